"""The report of `benchmarks.run`."""

from __future__ import annotations

from typing import Any

from .operators import OPERATORS, PASSES
from .report import page, table
from .targets import targets_table

YARDSTICK = "multihead"
"""The operator whose time is the unit of the ratios."""


def markdown(report: dict[str, Any]) -> str:
    """The whole report as text."""
    head = report["header"]
    return page(
        "Speed and memory of context layers",
        head,
        [],
        f"Times are medians of {head['repeats']} samples, with quartiles; all operators take turns. What is measured "
        "and how: benchmarks/README.md.",
        f"## Targets\n\n{targets_table(report)}",
        f"## All figures\n\nx: time in units of {OPERATORS[YARDSTICK].title}.\n\n{full_table(report['rows'])}",
        f"## Not measured\n\n{absences(report['rows'])}",
        f"## Correctness\n\n{head['rule']}",
    )


def full_table(rows: list[dict[str, Any]]) -> str:
    """One line for each shape and operator, with the passes side by side."""
    cells = {(row["batch"], row["length"], row["operator"], row["pass"]): row for row in rows}
    lines, on_a_gpu = [], any("kernels" in row for row in rows)
    for batch, length, name in dict.fromkeys((row["batch"], row["length"], row["operator"]) for row in rows):
        line = [f"{batch}x{length}", OPERATORS[name].title]
        for pass_ in PASSES:
            row = cells.get((batch, length, name, pass_), {})
            line += figure_cells(row, cells.get((batch, length, YARDSTICK, pass_), {}))
            line += [f"{row['kernels']} in {row['kernels_ms']:.4g} ms" if "kernels" in row else ""][:on_a_gpu]
        lines.append(line)
    names = [f"{pass_} {what}" for pass_ in PASSES for what in ("ms", "x", "MiB", "kernels")[: 3 + on_a_gpu]]
    return table(["shape", "operator", *names], lines, left=2)


def figure_cells(row: dict[str, Any], yardstick: dict[str, Any]) -> list[str]:
    """Time, ratio and memory of a row."""
    time, ratio, memory = next((word for word in ("refused", "skipped") if word in row), ""), "", ""
    if "median_ms" in row:
        time = f"{row['median_ms']:.4g} ({row['lower_quartile_ms']:.4g} to {row['upper_quartile_ms']:.4g})"
        ratio = f"{row['median_ms'] / yardstick['median_ms']:.2f}" if "median_ms" in yardstick else ""
    if "peak_mib" in row:
        memory = "too large" if row["peak_mib"] is None else f"{row['peak_mib']:.1f}"
    return [time, ratio, memory]


def absences(rows: list[dict[str, Any]]) -> str:
    """Why figures are missing, one reason per line."""
    reasons = [
        f"- {row['batch']}x{row['length']} {row['pass']}, {OPERATORS[row['operator']].title}: {word}, {row[word]}"
        for row in rows
        for word in ("refused", "skipped")
        if word in row
    ]
    return "\n".join(reasons) or "Nothing."
