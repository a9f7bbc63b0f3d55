"""From which sentence length the linear form of directional attention is faster than the fused one, tier by tier.

    python -m benchmarks.crossovers --output benchmarks/reports/cpu_crossovers.json

Keys and queries fill the whole range of a tier. Compared is the processor time of the CPU operators on one thread,
under a forward mask. The results are the lengths in ``ranges`` in ``hf_blosan/kernels/csrc/expansion.cpp``.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from hf_blosan.cli.options import option
from hf_blosan.errors import InputError
from hf_blosan.kernels.library import OPERATORS, has_cpu_kernels

from .command import Options, command

LENGTHS = (32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256, 288, 320, 384, 448)
PASSES = ("forward", "backward")
TOKENS, SIZE, SCALE = 1024, 300, 5.0
NO_MASKS = (None,) * 4


@dataclass(kw_only=True)
class CrossoverOptions(Options):
    """Options of ``python -m benchmarks.crossovers``."""

    threads: int = option("Threads of torch.", 1)
    repeats: int = option("Calls, of which the fastest counts.", 5)


def seconds(calls, repeats: int) -> list[float]:
    """The shortest processor time of each call; they take turns."""
    times = [[] for _ in calls]
    for _ in range(repeats + 1):  # the first warms up
        for call, known in zip(calls, times, strict=True):
            start = time.process_time()
            call()
            known.append(time.process_time() - start)
    return [min(known[1:]) for known in times]


def ratios(half_range: float, length: int, repeats: int) -> dict[str, float]:
    """Time of the linear form / time of the fused form, for each pass."""
    keys, queries, values, grad = (torch.rand(max(1, TOKENS // length), length, SIZE) * 2 - 1 for _ in range(4))
    tensors = (0.99 * half_range * keys, 0.99 * half_range * queries, values, *NO_MASKS)
    forwards, backwards = [], []
    for implementation in ("linear", "fused"):
        options = ("forward", SCALE, None, implementation, None)
        forwards.append(partial(OPERATORS.directional_attention.default, *tensors, *options, True))
        saved = forwards[-1]()
        backwards.append(partial(OPERATORS.directional_attention_backward.default, grad, *tensors, *saved, *options))
    times = [seconds(calls, repeats) for calls in (forwards, backwards)]
    return {pass_: linear / fused for pass_, (linear, fused) in zip(PASSES, times, strict=True)}


def measure(options: CrossoverOptions, report: dict[str, Any]) -> None:
    """A row for each tier.

    Raises:
        InputError: the kernels are not compiled.
    """
    if not has_cpu_kernels():
        raise InputError("the CPU kernels are not compiled; reinstall the package with a C++20 compiler")
    torch.manual_seed(options.seed)
    sizes, _ = OPERATORS.expansion(torch.empty(0, dtype=torch.float64), SCALE)
    for half_range, _, terms in sizes.tolist():
        found = {length: ratios(half_range, length, options.repeats) for length in LENGTHS}
        row = {"half_range": half_range, "terms": int(terms), "from": {}, "ratios": found}
        for pass_ in PASSES:
            faster = (n for n in LENGTHS if all(found[m][pass_] <= 1 for m in LENGTHS if m >= n))
            row["from"][pass_] = next(faster, None)
        report["rows"].append(row)
        print(f"half range {half_range:g}, {int(terms)} terms: faster from {row['from']}", file=sys.stderr)


main = command("benchmarks.crossovers", CrossoverOptions, measure, recorded=("repeats",))

if __name__ == "__main__":
    sys.exit(main())
