"""The maps of a sentence as matplotlib figures; pyplot, which is not thread-safe, is not used."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError, require
from .maps import Map

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .explanation import Sentence

HIDDEN = "0.88"
"""Grey level of keys hidden from a query."""
BAR, COLOURS = "#225ea8", "YlGnBu"
CELL, SMALLEST_CELL = 0.34, 0.1
"""Inches per token for short and very long sentences."""
SMALLEST, LARGEST = 2.4, 6.0
"""Minimum and maximum side of a heatmap in inches."""
LETTER, LONGEST_LABEL = 0.08, 22
"""Inches per letter of a label, and the maximum letters."""
MOST_NUMBERS = 24
"""Maximum number of tokens for printing gate values."""


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches; raises InputError if matplotlib is not installed."""
    require("figures need", "analysis", "matplotlib")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=120, layout="constrained")


def draw_attention(maps: Sequence[Map], *, columns: int = 2) -> Figure:
    """A heatmap for each map: a row is a query, a column a key; grey keys are hidden from the query. Raises InputError
    if there are no columns, or matplotlib is not installed.
    """
    if columns < 1:
        raise InputError(f"columns is {columns}; give 1 or more")
    columns = min(columns, len(maps))
    rows = math.ceil(len(maps) / columns)
    side = max(heatmap_side(map_) for map_ in maps)
    room = 0.6 + LETTER * max(len(shorten(label)) for map_ in maps for label in map_.labels)
    figure = new_figure(columns * (side + room) + 1.4, rows * (side + room + 0.3) + 0.4)
    from matplotlib.colors import PowerNorm
    from matplotlib.patches import Patch

    grid = figure.subplots(rows, columns, squeeze=False)
    # The square root keeps the small weights of long sentences visible; the same scale in all figures.
    colours = {"norm": PowerNorm(0.5, vmin=0, vmax=1), "cmap": COLOURS}
    for axes, map_ in zip(grid.flat, maps, strict=False):
        image = axes.imshow(np.ma.array(map_.mean, mask=map_.hidden), **colours)
        axes.set_facecolor(HIDDEN)
        axes.set_title(map_.title, fontsize=10)
        token_ticks(axes.xaxis, map_.labels, side, upright=True)
        token_ticks(axes.yaxis, map_.labels, side)
        axes.set(xlabel="key (attended to)", ylabel="query (attends)")
    for axes in grid.flat[len(maps) :]:
        axes.remove()
    label, ticks = f"{maps[0].meaning}, {averaged(maps[0])}", [0, 0.05, 0.2, 0.5, 1]
    figure.colorbar(image, ax=list(grid.flat[: len(maps)]), shrink=0.8 / rows, aspect=25, ticks=ticks, label=label)
    if any(map_.hidden.any() for map_ in maps):
        hidden = Patch(facecolor=HIDDEN, edgecolor="0.6", label="hidden: by word order, window or block")
        figure.legend(handles=[hidden], loc="outside lower center", frameon=False, fontsize=9)
    return figure


def draw_gates(maps: Sequence[Map]) -> Figure:
    """A strip per gate, grouped by their tokens or blocks; 0.5 is white."""
    by_tokens: dict[tuple, list[Map]] = {}
    for map_ in maps:
        by_tokens.setdefault((map_.meaning, *map_.labels), []).append(map_)
    groups = list(by_tokens.values())
    width = max(strip_width(group[0]) for group in groups)
    figure = new_figure(width + 2.6, sum(0.45 * len(group) + 1.5 for group in groups))
    strips = figure.subplots(len(groups), squeeze=False, height_ratios=[0.45 * len(g) + 1 for g in groups])
    for axes, group in zip(strips[:, 0], groups, strict=True):
        values = np.stack([map_.mean for map_ in group])
        largest = max(0.05, float(np.abs(values - 0.5).max()))
        image = axes.imshow(values, cmap="PuOr", vmin=0.5 - largest, vmax=0.5 + largest, aspect="auto")
        token_ticks(axes.xaxis, group[0].labels, width, upright=True)
        axes.set_yticks(range(len(group)), [map_.title for map_ in group], fontsize=9)
        if values.shape[1] <= MOST_NUMBERS:
            for row, column in np.ndindex(*values.shape):
                strong = abs(values[row, column] - 0.5) > 0.7 * largest
                style = {"color": "white" if strong else "black", "fontsize": 8, "ha": "center", "va": "center"}
                axes.text(column, row, f"{values[row, column]:.2f}".lstrip("0"), **style)
        axes.set_title(f"{group[0].meaning}\n{averaged(group[0])}", fontsize=9, loc="left")
        figure.colorbar(image, ax=axes, pad=0.02, aspect=8)
    return figure


def draw_pooling(maps: Sequence[Map]) -> Figure:
    """Bars of the tokens' weights per map; the line marks an equal share."""
    width = max(strip_width(map_) for map_ in maps)
    figure = new_figure(width + 1.0, 2.4 * len(maps))
    for axes, map_ in zip(figure.subplots(len(maps), squeeze=False)[:, 0], maps, strict=True):
        values = map_.mean
        axes.bar(range(len(values)), values, color=BAR)
        edges, equal = np.arange(len(values) + 1) - 0.5, map_.equal_share
        axes.step(edges, [*equal, equal[-1]], where="post", color="0.4", linewidth=0.8, linestyle="--")
        axes.set_title(f"{map_.title}: {map_.meaning}\n{averaged(map_)}", fontsize=9, loc="left")
        axes.set_xlim(-0.6, len(values) - 0.4)
        axes.spines[["top", "right"]].set_visible(False)
        token_ticks(axes.xaxis, map_.labels, width, upright=True)
    return figure


DRAW = {"attention": draw_attention, "gate": draw_gates, "pooling": draw_pooling}
"""The function that draws each kind of map."""


def compare_word(word: str, first: Sentence, second: Sentence) -> Figure:
    """The weights of a word in the sentence vectors of two sentences, feature by feature (DiSAN Fig. 8).

    Raises:
        InputError: the word is not a token of both, they come from models of different width, or matplotlib is not
            installed.
    """
    weights = [sentence.word_weights(word) for sentence in (first, second)]
    if weights[0].shape != weights[1].shape:
        raise InputError(f"the sentences come from models with {len(weights[0])} and {len(weights[1])} features")
    figure = new_figure(9.0, 3.6)
    strip, dots = figure.subplots(1, 2, width_ratios=[2, 1])
    largest = float(max(w.max() for w in weights))
    image = strip.imshow(np.stack(weights), cmap=COLOURS, aspect="auto", vmin=0, vmax=largest, interpolation="none")
    strip.set_yticks([0, 1], ["first", "second"])
    strip.axhline(0.5, color="white", linewidth=3)
    strip.set(xlabel="feature of the sentence vector")
    texts = (textwrap.shorten(sentence.text, 60, placeholder="...") for sentence in (first, second))
    strip.set_title("weight of “{}” in\nfirst: {}\nsecond: {}".format(word, *texts), **LITERAL, fontsize=9)
    figure.colorbar(image, ax=strip, label="weight", pad=0.02)
    dots.scatter(*weights, s=6, color=BAR, alpha=0.6, linewidths=0)
    dots.axline((0, 0), slope=1, color="0.4", linewidth=0.8, linestyle="--")
    dots.set(xlabel="weight in the first", ylabel="weight in the second", xlim=(0, largest), ylim=(0, largest))
    dots.set_title(f"mean {weights[0].mean():.3f} and {weights[1].mean():.3f}", fontsize=9)
    return figure


LITERAL: dict[str, Any] = {"parse_math": False}
"""Texts with $ escaped."""


def averaged(map_: Map) -> str:
    features = map_.values.shape[-1]
    return "one for all features" if features == 1 else f"mean of {features} features"


def heatmap_side(map_: Map) -> float:
    N = len(map_.labels)
    return max(SMALLEST, min(CELL * N, LARGEST), SMALLEST_CELL * N)


def strip_width(map_: Map) -> float:
    return 1.6 * heatmap_side(map_)


def shorten(label: str) -> str:
    return label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}…"


def token_ticks(axis: Any, labels: Sequence[str], length: float, *, upright: bool = False) -> None:
    """Label every token on an axis of this length in inches, in a font that fits."""
    size = min(9, 0.75 * 72 * length / len(labels))
    axis.set_ticks(range(len(labels)), [shorten(label) for label in labels], fontsize=size, **LITERAL)
    if upright:
        axis.set_tick_params(rotation=90)
