"""From which sentence length the linear form of directional attention beats the fused one on the CPU, tier by tier.

    python -m benchmarks.crossovers --output benchmarks/reports/cpu_crossovers.json

Keys and queries fill the whole range of a tier. What counts is the kernel's processor time under a forward mask
on one thread. The lengths found are written down in ``kernels_cpu_blosan.CROSSOVERS``.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path

import torch

from hf_blosan.models import kernels_cpu_blosan as kernels
from hf_blosan.models.far_field_blosan import tiers
from hf_blosan.training.reporting import command_line, write_json

from .run import surroundings

LENGTHS = (32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256, 288, 320, 384, 448)
TOKENS, SIZE, SCALE = 1024, 300, 5.0


def seconds(call, repeats: int) -> float:
    """The shortest processor time of a call."""
    call()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def ratios(half_range: float, length: int, repeats: int) -> dict[str, float]:
    """Time of the linear form over that of the fused one, pass by pass."""
    keys, queries, values, grad = (torch.rand(max(1, TOKENS // length), length, SIZE) * 2 - 1 for _ in range(4))
    keys, queries = 0.99 * half_range * keys, 0.99 * half_range * queries
    times = {}
    for implementation in ("linear", "fused"):
        options = (None, "forward", SCALE, None, implementation)
        forward = partial(kernels.forward, keys, queries, values, *options)
        backward = partial(kernels.backward, grad, keys, queries, values, None, *forward(), *options[1:])
        times[implementation] = (seconds(forward, repeats), seconds(backward, repeats))
    return {pass_: linear / fused for pass_, linear, fused in zip(kernels.CROSSOVERS, *times.values(), strict=True)}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crossovers", description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="JSON file")
    parser.add_argument("--repeats", type=int, default=5, help="calls of which the fastest counts; default: 5")
    parser.add_argument("--seed", type=int, default=42)
    options = parser.parse_args(argv)
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    rows = []
    for tier in tiers(SCALE):
        found = {length: ratios(tier.half_range, length, options.repeats) for length in LENGTHS}
        row = {"half_range": tier.half_range, "terms": len(tier.weight), "from": {}, "ratios": found}
        for pass_ in kernels.CROSSOVERS:
            longer = (n for n in LENGTHS if all(found[m][pass_] <= 1 for m in LENGTHS if m >= n))
            row["from"][pass_] = next(longer, None)
        rows.append(row)
        print(f"half range {tier.half_range:g}, {len(tier.weight)} terms: from {row['from']} on", file=sys.stderr)
    command = command_line(["-m", "benchmarks.crossovers", *(sys.argv[1:] if argv is None else argv)])
    report = {**surroundings(), "seed": options.seed, "repeats": options.repeats, "command": command, "rows": rows}
    write_json(options.output, report)


if __name__ == "__main__":
    main()
