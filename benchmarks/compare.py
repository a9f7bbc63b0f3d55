"""Two versions of the package: `python -m benchmarks.compare --old CHECKOUT --output benchmarks/reports/NAME.json`.

Fresh processes of the old version and of this checkout take turns, shape by shape, and swap their order every round.
The ratio of a cell (operator, pass and shape) is the median over the rounds of new time / old time, each of two
processes that ran one after the other; beside it is the ratio of the shortest times of all rounds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hf_blosan.errors import InputError
from hf_blosan.training.files import write_json
from hf_blosan.training.reporting import command_line

from .command import check_positive, choose, exit_code, parse_shapes, surroundings, surroundings_lines
from .measure import Setting
from .operators import OPERATORS, PASSES
from .shapes import TARGETS
from .targets import shown

NEW = Path(__file__).resolve().parents[1]
COMPARED = ("disa", "biblosa", "mtsa-2", "mtsa-8")

MEAN_LIMIT, CELL_LIMIT = 1.0, 1.1
"""The targets: the largest geometric mean of all ratios, and the largest single ratio."""


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__.partition("\n")[0])
    parser.add_argument("--old", type=Path, required=True, help="checkout of the version to compare with")
    parser.add_argument("--output", type=Path, required=True, help="JSON file; the Markdown is written beside it")
    parser.add_argument("--shapes", default="targets", help="targets, or batch x length: 64x16,8x384")
    parser.add_argument("--passes", default=",".join(PASSES), help=f"default: {','.join(PASSES)}")
    parser.add_argument("--rounds", type=int, default=7, help="pairs of processes for each shape; default: 7")
    parser.add_argument("--repeats", type=int, default=5, help="samples of each time in a process; default: 5")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch; default: 2")
    parser.add_argument("--seed", type=int, default=42, help="of weights and inputs; default: 42")
    arguments = parser.parse_args(argv)
    check_positive(arguments, "rounds", "repeats", "threads")
    if not (arguments.old / "hf_blosan" / "__init__.py").exists():
        raise InputError(f"--old {arguments.old}: there is no hf_blosan in this folder; give the root of a checkout")
    return arguments


def measured(checkout: Path, job: dict[str, Any]) -> dict[tuple[str, str], dict[str, float]]:
    """Times of one version in a fresh process, by operator and pass.

    Raises:
        RuntimeError: the process fails.
    """
    command = [sys.executable, str(NEW / "benchmarks" / "one_side.py"), str(checkout), json.dumps(job)]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"the process that measures {checkout} fails:\n{done.stderr}")
    return {(row["operator"], row["pass"]): row for row in json.loads(done.stdout.splitlines()[-1])}


def cell(old: list[dict[str, float]], new: list[dict[str, float]]) -> dict[str, Any]:
    """The figures of a cell from those of its processes, round by round."""
    ratios = [after["median_ms"] / before["median_ms"] for before, after in zip(old, new, strict=True)]
    fastest = [min(row["min_ms"] for row in rows) for rows in (old, new)]
    return {
        "ratio": statistics.median(ratios),
        "ratio_of_minima": fastest[1] / fastest[0],
        "old_median_ms": [row["median_ms"] for row in old],
        "new_median_ms": [row["median_ms"] for row in new],
        "old_min_ms": fastest[0],
        "new_min_ms": fastest[1],
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
    names = " | ".join(f"{B}x{N}" for B, N in shapes)
    lines = [f"| layer | pass | {names} |", "| --- | --- |" + " ---: |" * len(shapes)]
    for name, pass_ in dict.fromkeys((row["operator"], row["pass"]) for row in rows):
        found = [cells[(name, pass_, *shape)] for shape in shapes]
        texts = (f"{shown(x['ratio'], CELL_LIMIT)} ({x['ratio_of_minima']:.3g})" for x in found)
        lines.append(f"| {OPERATORS[name].title} | {pass_} | {' | '.join(texts)} |")
    parts = [
        "# Two versions of the context layers",
        "\n".join([*surroundings_lines(head), f"- Commit of the old version: {head['old_commit'] or 'unknown'}"]),
        f"New time / old time at batch x length: the median over {head['rounds']} pairs of processes and, in brackets,"
        f" the ratio of the shortest times; bold above {CELL_LIMIT}. What is measured and how: benchmarks/README.md.",
        "\n".join(lines),
        "## Targets\n\n" + "\n".join(verdict_lines(report)),
    ]
    return "\n\n".join(parts) + "\n"


def commit_of(checkout: Path) -> str | None:
    """The commit of a checkout, with the suffix `-dirty` if tracked files differ; None outside a repository."""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or None


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure and write the report.

    Raises:
        InputError: an option that cannot be used.
    """
    argv = sys.argv[1:] if argv is None else argv
    arguments = parse(argv)
    passes = choose("--passes", arguments.passes, PASSES)
    shapes = TARGETS if arguments.shapes == "targets" else parse_shapes(arguments.shapes)
    setting = asdict(Setting(threads=arguments.threads, seed=arguments.seed))
    head = {**surroundings(), **setting, "rounds": arguments.rounds, "repeats": arguments.repeats}
    head |= {"old_commit": commit_of(arguments.old), "command": command_line(["-m", "benchmarks.compare", *argv])}
    sides = {"old": arguments.old.resolve(), "new": NEW}
    found: dict[tuple, dict[str, list]] = {}
    for turn in range(arguments.rounds):
        for shape in shapes:
            job = {"shape": shape, "operators": COMPARED, "passes": passes, "setting": setting}
            for side in list(sides)[:: -1 if turn % 2 else 1]:
                for key, row in measured(sides[side], job | {"repeats": arguments.repeats}).items():
                    found.setdefault((*key, *shape), {"old": [], "new": []})[side].append(row)
        print(f"round {turn + 1} of {arguments.rounds}", file=sys.stderr)
    names = ("operator", "pass", "batch", "length")
    rows = [dict(zip(names, key, strict=True)) | cell(**processes) for key, processes in found.items()]
    report = {"header": head, "rows": rows, "targets": verdicts(rows)}
    write_json(arguments.output, report)
    arguments.output.with_suffix(".md").write_text(markdown(report), encoding="utf-8")
    print(*verdict_lines(report), sep="\n")
    return report


def main(argv: list[str] | None = None) -> int:
    return exit_code(run, argv)


if __name__ == "__main__":
    sys.exit(main())
