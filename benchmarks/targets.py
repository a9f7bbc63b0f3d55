"""Targets for speed and memory, as ratios within one run, and whether a report meets them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .shapes import CUDA, HALF_LENGTH, TARGETS

Shape = tuple[int, int]


@dataclass(frozen=True)
class Target:
    """An upper limit of a ratio.

    Args:
        what: the ratio in words.
        above, below: the operators in the numerator and in the denominator.
        pass_: ``"forward"`` or ``"forward+backward"``.
        limit: the largest ratio that meets the target.
        shapes: the shapes at which it must be met.
        figure: ``"median_ms"`` or ``"peak_mib"``.
        below_shape: the shape of the denominator, if it differs (growth with the length).
        device, dtype: the runs that the target applies to.
    """

    what: str
    above: str
    below: str
    pass_: str
    limit: float
    shapes: tuple[Shape, ...] = TARGETS
    figure: str = "median_ms"
    below_shape: Shape | None = None
    device: str = "cpu"
    dtype: str = "float32"


BOTH = "forward+backward"
SENTENCES = TARGETS[:-1]
"""The shapes of sentences and of paragraphs."""

ON_CPU = (
    Target("DiSA / nn.MultiheadAttention", "disa", "multihead", "forward", 0.8, SENTENCES),
    Target("DiSA / nn.MultiheadAttention", "disa", "multihead", BOTH, 0.8, SENTENCES),
    Target("DiSA / nn.LSTM", "disa", "lstm", "forward", 2.0),
    Target("DiSA / its eager textbook form", "disa", "disa-eager", "forward", 1 / 12, ((64, 64),)),
    Target("DiSA / its eager textbook form", "disa", "disa-eager", BOTH, 1 / 12, ((64, 64),)),
    Target("MTSA, 2 heads / nn.MultiheadAttention", "mtsa-2", "multihead", "forward", 0.8, SENTENCES),
    Target("MTSA, 2 heads / nn.MultiheadAttention", "mtsa-2", "multihead", BOTH, 0.9, SENTENCES),
    Target("MTSA, 8 heads / nn.MultiheadAttention", "mtsa-8", "multihead", "forward", 0.8, SENTENCES),
    Target("MTSA, 8 heads / nn.MultiheadAttention", "mtsa-8", "multihead", BOTH, 0.9, SENTENCES),
    Target("Bi-BloSA / nn.MultiheadAttention", "biblosa", "multihead", "forward", 1.0, SENTENCES),
    Target("Bi-BloSA / nn.MultiheadAttention", "biblosa", "multihead", BOTH, 1.1, SENTENCES),
    Target("peak memory, DiSA / nn.LSTM", "disa", "lstm", BOTH, 1.5, ((8, 384),), "peak_mib"),
    Target("peak memory, DiSA / at half the length", "disa", "disa", BOTH, 2.2, ((8, 384),), "peak_mib", HALF_LENGTH),
)

ON_CUDA = (
    Target("DiSA / cuDNN's nn.LSTM", "disa", "lstm", BOTH, 1 / 5, CUDA, device="cuda"),
    Target("DiSA's kernel / a copy of its bytes", "kernel", "copy", "forward", 2.0, CUDA, device="cuda"),
    *(
        Target(what, name, "multihead", pass_, 1.5, ((64, 384),), device="cuda", dtype="bfloat16")
        for name, what in (
            ("disa", "DiSA / nn.MultiheadAttention"),
            ("mtsa-2", "MTSA, 2 heads / nn.MultiheadAttention"),
            ("mtsa-8", "MTSA, 8 heads / nn.MultiheadAttention"),
        )
        for pass_ in ("forward", BOTH)
    ),
)


def ratios(target: Target, report: dict[str, Any]) -> dict[Shape, float | str]:
    """The ratio at each shape of the target, or ``"refused"`` or ``"not measured"``."""
    same_pass = (row for row in report["rows"] if row["pass"] == target.pass_)
    rows = {(row["operator"], row["batch"], row["length"]): row for row in same_pass}
    found = {}
    for shape in target.shapes:
        pair = [rows.get((target.above, *shape), {}), rows.get((target.below, *(target.below_shape or shape)), {})]
        figures = [row.get(target.figure) for row in pair]
        if any("refused" in row for row in pair):
            found[shape] = "refused"
        elif None in figures or not figures[1]:
            found[shape] = "not measured"
        else:
            found[shape] = figures[0] / figures[1]
    return found


def verdict(target: Target, found: dict[Shape, float | str]) -> str:
    """``met`` at every shape, ``missed`` at any, ``refused`` where results are wrong, or ``not measured``."""
    values = list(found.values())
    if any(isinstance(value, float) and value > target.limit for value in values):
        return "missed"
    return next((word for word in ("refused", "not measured") if word in values), "met")


def targets_table(report: dict[str, Any]) -> str:
    """The targets that apply to a report, as a Markdown table; ratios above the limit are bold."""
    head, shapes = report["header"], {(row["batch"], row["length"]) for row in report["rows"]}
    operators = {row["operator"] for row in report["rows"]}
    lines = ["| target | pass | limit | ratio at batch x length | result |", "| --- | --- | --- | --- | --- |"]
    for target in (*ON_CPU, *ON_CUDA):
        if (target.device, target.dtype) != (head["device"], head["dtype"]):
            continue
        if not {target.above, target.below} <= operators:
            continue
        found = {shape: ratio for shape, ratio in ratios(target, report).items() if shape in shapes}
        if not found:
            continue
        cells = ", ".join(f"{B}x{N}: {shown(value, target.limit)}" for (B, N), value in found.items())
        result = verdict(target, found)
        mark = result if result == "met" else f"**{result}**"
        lines.append(f"| {target.what} | {target.pass_} | {target.limit:.3g} | {cells} | {mark} |")
    return "\n".join(lines) if len(lines) > 2 else "There are no targets for this device, precision and these shapes."


def shown(value: float | str, limit: float) -> str:
    """A ratio in a table, bold above its limit; a word in place of a ratio is shortened."""
    if isinstance(value, str):
        return "refused" if value == "refused" else "-"
    return f"**{value:.3g}**" if value > limit else f"{value:.3g}"
