"""A run as Markdown: `python -m benchmarks.report benchmarks/reports/NAME.json` writes NAME.md beside it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from hf_blosan.errors import InputError
from hf_blosan.files import write_text

from .command import exit_code, surroundings_lines
from .operators import OPERATORS, PASSES
from .targets import targets_table

YARDSTICK = "multihead"
"""The operator whose time is the unit of the ratios."""

UNITS = {"median_ms": "ms", "peak_mib": "MiB"}
"""What is drawn, and in which unit."""

PAPERS_LENGTH = 384
"""The longest sentences in the papers' figures."""


def markdown(report: dict[str, Any], remarks: str) -> str:
    """The whole report as text."""
    head = report["header"]
    parts = [
        "# Speed and memory of context layers",
        "\n".join(surroundings_lines(head)),
        f"Times are medians of {head['repeats']} samples, with quartiles; all operators take turns. What is measured "
        "and how: benchmarks/README.md.",
        f"## Targets\n\n{targets_table(report)}",
        *([f"## Remarks\n\n{remarks}"] if remarks else []),
        f"## All figures\n\nx: time in units of {OPERATORS[YARDSTICK].title}.\n\n{full_table(report['rows'])}",
        f"## Not measured\n\n{absences(report['rows'])}",
        f"## Correctness\n\n{head['rule']}",
    ]
    return "\n\n".join(parts) + "\n"


def full_table(rows: list[dict[str, Any]]) -> str:
    """One line for each shape and operator, with the passes side by side."""
    cells = {(row["batch"], row["length"], row["operator"], row["pass"]): row for row in rows}
    names = [f"{pass_} {what}" for pass_ in PASSES for what in ("ms", "x", "MiB")]
    lines = [f"| shape | operator | {' | '.join(names)} |", "| --- | --- |" + " ---: |" * len(names)]
    for batch, length, name in dict.fromkeys((row["batch"], row["length"], row["operator"]) for row in rows):
        line = [f"{batch}x{length}", OPERATORS[name].title]
        for pass_ in PASSES:
            row = cells.get((batch, length, name, pass_), {})
            yardstick = cells.get((batch, length, YARDSTICK, pass_), {})
            line += [time_cell(row), ratio_cell(row, yardstick), memory_cell(row)]
        lines.append(f"| {' | '.join(line)} |")
    return "\n".join(lines)


def time_cell(row: dict[str, Any]) -> str:
    if "median_ms" not in row:
        return next((word for word in ("refused", "skipped") if word in row), "")
    return f"{row['median_ms']:.4g} ({row['lower_quartile_ms']:.4g} to {row['upper_quartile_ms']:.4g})"


def ratio_cell(row: dict[str, Any], yardstick: dict[str, Any]) -> str:
    if "median_ms" not in row or "median_ms" not in yardstick:
        return ""
    return f"{row['median_ms'] / yardstick['median_ms']:.2f}"


def memory_cell(row: dict[str, Any]) -> str:
    if "peak_mib" not in row:
        return ""
    return "too large" if row["peak_mib"] is None else f"{row['peak_mib']:.1f}"


def absences(rows: list[dict[str, Any]]) -> str:
    """Why figures are missing, one reason per line."""
    reasons = [
        f"- {row['batch']}x{row['length']} {row['pass']}, {OPERATORS[row['operator']].title}: {word}, {row[word]}"
        for row in rows
        for word in ("refused", "skipped")
        if word in row
    ]
    return "\n".join(reasons) or "Nothing."


def draw(rows: list[dict[str, Any]], path: Path, *, logarithmic: bool) -> None:
    """Plot time and peak memory per sentence over its length (Bi-BloSAN Fig. 6, MTSA Fig. 1).

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import ScalarFormatter
    except ImportError as error:
        raise InputError('the figures need matplotlib: pip install -e ".[benchmark]"') from error
    passes = [pass_ for pass_ in PASSES if any(row["pass"] == pass_ for row in rows)]
    units = [entry for entry in UNITS.items() if any(row.get(entry[0]) for row in rows)]
    figure = Figure(figsize=(1 + 5 * len(passes), 1 + 4 * len(units)), layout="constrained")
    axes = figure.subplots(len(units), len(passes), squeeze=False)
    for line, (key, unit) in zip(axes, units, strict=True):
        for axis, pass_ in zip(line, passes, strict=True):
            axis.set(title=pass_, xlabel="tokens", ylabel=f"{unit} per sentence")
            top = draw_curves(axis, rows, pass_, key)
            if logarithmic:
                axis.set_xscale("log", base=2)
                axis.set_yscale("log")
                axis.xaxis.set_major_formatter(ScalarFormatter())
            elif top:
                axis.set_ylim(0, 1.1 * top)
    figure.legend(handles=axes[0, 0].lines, loc="outside lower center", ncols=2 * len(passes))
    figure.savefig(path, dpi=110)


def draw_curves(axis, rows: list[dict[str, Any]], pass_: str, key: str) -> float:
    """Plot a curve for each operator; returns the highest point of all but the eager forms, which are far above."""
    from matplotlib import colormaps

    top = 0.0
    used = {row["operator"] for row in rows}
    for number, (name, operator) in enumerate(OPERATORS.items()):
        if name in used:
            points = curve(rows, name, pass_, key)
            style = "-" if operator.checked or operator.eager else ":"
            axis.plot(*points, style, marker=".", color=colormaps["tab20"](number), label=operator.title)
            top = max(top, 0.0 if operator.eager else max(points[1], default=0.0))
    return top


def curve(rows: list[dict[str, Any]], name: str, pass_: str, key: str) -> tuple[list[int], list[float]]:
    """Lengths, and the figure per sentence at each of them, from the largest batch of that length."""
    points = {}
    for row in sorted(rows, key=lambda row: (row["length"], row["batch"])):
        if (row["operator"], row["pass"]) == (name, pass_) and row.get(key):
            points[row["length"]] = row[key] / row["batch"]
    return list(points), list(points.values())


def write(path: Path, figures: bool = False) -> list[Path]:
    """Write the report of a JSON file beside it; the text of NAME.remarks.md, if there is one, becomes part of it.

    Raises:
        InputError: the file is not a report, or matplotlib is missing.
    """
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        rows = report["rows"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a file that benchmarks.run wrote; give one of these") from error
    remarks = path.with_suffix(".remarks.md")
    text = remarks.read_text(encoding="utf-8").strip() if remarks.exists() else ""
    written = [path.with_suffix(".md")]
    write_text(written[0], markdown(report, text))
    timed = [row for row in rows if "median_ms" in row]
    papers = [row for row in timed if row["length"] <= PAPERS_LENGTH]
    for suffix, points, logarithmic in (("lengths", papers, False), ("all_lengths", timed, True)):
        if figures and points:
            written.append(path.with_name(f"{path.stem}_{suffix}.png"))
            draw(points, written[-1], logarithmic=logarithmic)
    return written


def run(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("reports", nargs="+", type=Path, help="JSON files that benchmarks.run wrote")
    parser.add_argument("--figures", action="store_true", help="also draw NAME_lengths.png and NAME_all_lengths.png")
    arguments = parser.parse_args(argv)
    for path in arguments.reports:
        print(*write(path, arguments.figures), sep="\n")


def main(argv: list[str] | None = None) -> int:
    return exit_code(run, argv)


if __name__ == "__main__":
    sys.exit(main())
