"""A report of a run: `python -m benchmarks.report reports/NAME.json` writes NAME.md and figures beside it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from hf_blosan.errors import InputError

from .operators import OPERATORS, PASSES
from .targets import targets_table

YARDSTICK = "multihead"
"""The operator that the times of the others are divided by."""

UNITS = {"median_ms": "ms", "peak_mib": "MiB"}
"""The figures of a row that are drawn."""

PAPERS_LENGTH = 384
"""The longest sentences in the papers' figures."""


def markdown(report: dict[str, Any], figures: list[str], remarks: str) -> str:
    """The whole report as text."""
    head, hardware = report["header"], report["header"]["hardware"]
    versions = ", ".join(f"{name} {number}" for name, number in head["versions"].items() if number)
    precision = head["dtype"] if head["dtype"] == "float32" else f"autocast to {head['dtype']}"
    gpu = f"{hardware['gpu']}; " if hardware["gpu"] else ""
    parts = [
        "# Speed and memory of context layers",
        "\n".join(
            [
                f"- Hardware: {gpu}{hardware['cpu']}, {hardware['cores']} cores, {hardware['memory_gib']} GiB",
                f"- Device {head['device']}, {precision}; threads: {head['threads']}; seed: {head['seed']}",
                f"- Versions: {versions}",
                f"- Commit: {head['commit'] or 'unknown'}",
                f"- Command: `{head['command']}`",
                f"- Date: {head['date']}",
            ]
        ),
        f"Times are medians of {head['repeats']} samples in which all operators took turns, with quartiles. What is "
        "measured and how: benchmarks/README.md.",
        f"## Targets\n\n{targets_table(report)}",
        *([f"## Remarks\n\n{remarks}"] if remarks else []),
        *(["## Figures\n\n" + "\n\n".join(f"![{name}]({name})" for name in figures)] if figures else []),
        f"## All figures\n\nx: time in units of {OPERATORS[YARDSTICK].title}.\n\n{full_table(report['rows'])}",
        f"## Left out\n\n{left_out(report['rows'])}",
        f"## Correctness\n\n{head['rule']}",
    ]
    return "\n\n".join(parts) + "\n"


def full_table(rows: list[dict[str, Any]]) -> str:
    """One line for each shape and operator, the passes side by side."""
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


def left_out(rows: list[dict[str, Any]]) -> str:
    """Why there are figures missing, one reason a line."""
    reasons = [
        f"- {row['batch']}x{row['length']} {row['pass']}, {OPERATORS[row['operator']].title}: {word}, {row[word]}"
        for row in rows
        for word in ("refused", "skipped")
        if word in row
    ]
    return "\n".join(reasons) or "Nothing."


def draw(rows: list[dict[str, Any]], path: Path, *, logarithmic: bool) -> None:
    """Time and peak memory of a sentence against its length (Bi-BloSAN Fig. 6, MTSA Fig. 1), as far as measured.

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
            axis.set(title=pass_, xlabel="tokens", ylabel=f"{unit} a sentence")
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
    """A curve for each operator; returns the highest point but for the eager form, which would flatten all others."""
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
    """Lengths, and a figure for one sentence at each of them in the largest batch that was measured."""
    points = {}
    for row in sorted(rows, key=lambda row: (row["length"], row["batch"])):
        if (row["operator"], row["pass"]) == (name, pass_) and row.get(key):
            points[row["length"]] = row[key] / row["batch"]
    return list(points), list(points.values())


def write(path: Path) -> list[Path]:
    """Write the report of a JSON file beside it; the text of NAME.remarks.md, if there is one, becomes part of it.

    Raises:
        InputError: the file is no report, or matplotlib is missing.
    """
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        rows = report["rows"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a file that benchmarks.run wrote; give one of these") from error
    timed = [row for row in rows if "median_ms" in row]
    papers = [row for row in timed if row["length"] <= PAPERS_LENGTH]
    figures = []
    for suffix, points, logarithmic in (("lengths", papers, False), ("all_lengths", timed, True)):
        if points:
            figures.append(path.with_name(f"{path.stem}_{suffix}.png"))
            draw(points, figures[-1], logarithmic=logarithmic)
    remarks = path.with_suffix(".remarks.md")
    text = remarks.read_text(encoding="utf-8").strip() if remarks.exists() else ""
    target = path.with_suffix(".md")
    target.write_text(markdown(report, [figure.name for figure in figures], text), encoding="utf-8")
    return [target, *figures]


def main(argv: list[str] | None = None) -> int:
    """The command; bad input is one sentence on standard error and exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("reports", nargs="+", type=Path, help="JSON files that benchmarks.run wrote")
    try:
        for path in parser.parse_args(argv).reports:
            print(*write(path), sep="\n")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
