"""Two versions of the package: `python -m benchmarks.compare --old CHECKOUT --output benchmarks/reports/NAME.json`.

In every round and at every shape a fresh process of the old version and one of this checkout run side by side and
take samples in turn, so that each sample has a partner of the same moment. The ratio of a cell (operator, pass and
shape) is the median of new time / old time over these pairs; beside it is the ratio of the shortest times.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from dataclasses import MISSING, asdict, dataclass
from pathlib import Path
from typing import Any

from hf_blosan.cli.options import option
from hf_blosan.errors import InputError
from hf_blosan.files import write_json
from hf_blosan.training.reporting import git_commit

from .command import Options, choose, command, parse_shapes
from .measure import Setting
from .operators import OPERATORS, PASSES
from .report import page, table, write_markdown
from .shapes import TARGETS
from .targets import shown

NEW = Path(__file__).resolve().parents[1]
COMPARED = ("disa", "stack", "stack-int8", "biblosa", "mtsa-2", "mtsa-8")

MEAN_LIMIT, CELL_LIMIT = 1.0, 1.1
"""The targets: the largest geometric mean of all ratios, and the largest single ratio."""


@dataclass(kw_only=True)
class CompareOptions(Options):
    """Options of ``python -m benchmarks.compare``."""

    old: str = option("Checkout of the version to compare with.", MISSING)
    shapes: str = option("targets, or batch x length: 64x16,8x384.", "targets")
    passes: str = option("What is measured.", ",".join(PASSES))
    rounds: int = option("Pairs of processes for each shape.", 3)
    seconds: float = option("More rounds for shapes that have taken less time. Default: none.", 0.0)
    repeats: int = option("Samples of each time in a process.", 5)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not Path(self.old, "hf_blosan", "__init__.py").exists():
            raise InputError(f"--old {self.old}: there is no hf_blosan in this folder; give the root of a checkout")


class Side:
    """A process that measures one version at one shape; see one_side.py. Leaving the context ends it."""

    def __init__(self, checkout: Path, shape: tuple[int, int], setting: dict[str, Any]):
        command = [sys.executable, str(NEW / "benchmarks" / "one_side.py"), str(checkout)]
        self.checkout = checkout
        self.process = subprocess.Popen(
            [*command, json.dumps({"shape": shape, "setting": setting})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(checkout)},
        )

    def sample(self, operator: str, pass_: str) -> float:
        """Milliseconds of a call.

        Raises:
            RuntimeError: the process has ended; its message is on the standard error.
        """
        try:
            print(json.dumps([operator, pass_]), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            answer = ""
        else:
            answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process that measures {self.checkout} has ended, see above")
        return float(answer)

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_) -> None:
        self.process.kill()
        self.process.communicate()


def sample_pairs(old: Side, new: Side, operator: str, pass_: str, repeats: int) -> tuple[list[float], list[float]]:
    """Samples of the two versions. They take turns in going first, and the first pair, which warms up, is dropped."""
    samples = {old: [], new: []}
    for pair in range(repeats + 1):
        for side in (old, new)[:: -1 if pair % 2 else 1]:
            samples[side].append(side.sample(operator, pass_))
    return samples[old][1:], samples[new][1:]


def cell(old_ms: list[float], new_ms: list[float]) -> dict[str, Any]:
    """The figures of a cell from its samples, pair by pair."""
    ratios = [after / before for before, after in zip(old_ms, new_ms, strict=True)]
    return {
        "ratio": statistics.median(ratios),
        "ratio_of_minima": min(new_ms) / min(old_ms),
        "old_ms": [round(value, 4) for value in old_ms],
        "new_ms": [round(value, 4) for value in new_ms],
    }


def verdicts(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The targets, what was measured, and whether they are met."""
    mean = math.exp(statistics.fmean(math.log(row["ratio"]) for row in rows))
    found = {"geometric mean": (mean, MEAN_LIMIT), "largest ratio": (max(row["ratio"] for row in rows), CELL_LIMIT)}
    return {
        name: {"measured": value, "limit": limit, "result": "met" if value <= limit else "missed"}
        for name, (value, limit) in found.items()
    }


def verdict_lines(report: dict[str, Any]) -> list[str]:
    targets = report["targets"].items()
    return [f"- {name}: {x['measured']:.3f}, at most {x['limit']}: {x['result']}" for name, x in targets]


def markdown(report: dict[str, Any]) -> str:
    """The whole report as text."""
    head, rows = report["header"], report["rows"]
    cells = {(row["operator"], row["pass"], row["batch"], row["length"]): row for row in rows}
    shapes = list(dict.fromkeys((row["batch"], row["length"]) for row in rows))
    pairs = (len(next(x for x in rows if (x["batch"], x["length"]) == shape)["new_ms"]) for shape in shapes)
    lines = [["pairs of processes", "", *(count // head["repeats"] for count in pairs)]]
    for name, pass_ in dict.fromkeys((row["operator"], row["pass"]) for row in rows):
        found = [cells[(name, pass_, *shape)] for shape in shapes]
        texts = (f"{shown(x['ratio'], CELL_LIMIT)} ({x['ratio_of_minima']:.3g})" for x in found)
        lines.append([OPERATORS[name].title, pass_, *texts])
    return page(
        "Two versions of the context layers",
        head,
        [f"Commit of the old version: {head['old_commit'] or 'unknown'}"],
        f"New time / old time at batch x length: the median over several pairs of processes with {head['repeats']}"
        " pairs of samples each and, in brackets, the ratio of the shortest times; bold above"
        f" {CELL_LIMIT}. What is measured and how: benchmarks/README.md.",
        table(["layer", "pass", *(f"{B}x{N}" for B, N in shapes)], lines, left=2),
        "## Targets\n\n" + "\n".join(verdict_lines(report)),
    )


def measure(options: CompareOptions, report: dict[str, Any]) -> None:
    """Measure, and write the report after every round."""
    passes, old_checkout = choose("--passes", options.passes, PASSES), Path(options.old).resolve()
    shapes = TARGETS if options.shapes == "targets" else parse_shapes(options.shapes)
    setting = asdict(Setting(threads=options.threads, seed=options.seed))
    found: dict[tuple, tuple[list[float], list[float]]] = {}
    seconds = dict.fromkeys(shapes, 0.0)
    for turn in itertools.count(1):
        left = [shape for shape in shapes if turn <= options.rounds or seconds[shape] < options.seconds]
        if not left:
            break
        for shape in left:
            begin = time.monotonic()
            with Side(old_checkout, shape, setting) as old, Side(NEW, shape, setting) as new:
                for pass_, name in itertools.product(passes, COMPARED):
                    if OPERATORS[name].why_skipped(*shape, pass_):
                        continue
                    pairs = sample_pairs(old, new, name, pass_, options.repeats)
                    for known, samples in zip(found.setdefault((name, pass_, *shape), ([], [])), pairs, strict=True):
                        known.extend(samples)
            seconds[shape] += time.monotonic() - begin
        names = ("operator", "pass", "batch", "length")
        report["rows"] = [dict(zip(names, key, strict=True)) | cell(*pairs) for key, pairs in found.items()]
        report["targets"] = verdicts(report["rows"])
        write_json(options.output, report)
        write_markdown(Path(options.output), markdown(report))
        print(f"round {turn} of {len(left)} shapes is in {options.output}", file=sys.stderr)


def header(options: CompareOptions) -> dict[str, Any]:
    return {"old_commit": git_commit(Path(options.old, "pyproject.toml"))}


main = command("benchmarks.compare", CompareOptions, measure, recorded=("repeats",), header=header)

if __name__ == "__main__":
    sys.exit(main())
