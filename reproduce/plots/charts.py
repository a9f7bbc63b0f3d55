"""Common parts of the plots: a chart with a legend, and a colour and a marker for every system."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hf_blosan.analysis.figures import LITERAL, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = "osD^vPX*<>p"
"""One more marker than colours: systems may share a colour or a marker, never both."""


def new_charts(title: str, columns: int = 1) -> tuple[Figure, Sequence[Axes]]:
    """A figure with charts side by side, which share the vertical axis; raises InputError without matplotlib."""
    figure = new_figure(4.0 * columns + 2.4, 4.2)
    figure.suptitle(title, fontsize=11, **LITERAL)
    charts = figure.subplots(1, columns, sharey=True, squeeze=False)[0]
    for axes in charts:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.92")
        axes.set_axisbelow(True)
    return figure, charts


def styles(systems: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """System -> line style and name in the legend, with the number of runs if several."""
    from matplotlib import colormaps

    colours, found = colormaps["tab10"].colors, {}
    for i, (label, system) in enumerate(systems.items()):
        runs = len(system["runs"])
        look = {"color": colours[i % len(colours)], "marker": MARKERS[i % len(MARKERS)], "markersize": 5}
        found[label] = look | {"label": label if runs == 1 else f"{label} ({runs} runs)"}
    return found


def name_metric(axes: Axes, metric: str, where: str) -> None:
    """The name of the vertical axis; accuracy is in percent."""
    if metric == "accuracy":
        axes.yaxis.set_major_formatter(lambda value, place: f"{100 * value:.4g} %")
    axes.set_ylabel(f"{where} {metric}")


def legend(figure: Figure, axes: Axes, note: str) -> None:
    """A legend of the systems, with a note on what is drawn."""
    box = figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9)
    for text in box.get_texts():
        text.set(**LITERAL)
    figure.supxlabel(note, fontsize=8, color="0.35")
