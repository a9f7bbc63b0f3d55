"""The comparison as Markdown, whose first table is that of the README, and as a figure."""

from __future__ import annotations

import io
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest, norm

from hf_blosan.errors import InputError
from hf_blosan.files import write_bytes
from hf_blosan.tasks import TASKS

from .peers_systems import OURS, SYSTEMS
from .report import page, table

NAMES = {"sst2": "SST-2", "sick_entailment": "SICK-E", "sick_relatedness": "SICK-R"}
"""Headings of tasks that are not their names in capitals."""
METRIC_NAMES = {"spearmanr": "Spearman", "mse": "MSE"}

EXPLANATION = """\
A row is a sentence, or a pair of sentences in SICK. All systems are trained on the same training rows and measured on
the same test rows, those of the training command with this seed: of data without a test split one fold. Everything
that is chosen (the best step, the C of a logistic regression) is chosen on the validation rows. Training is the time
from rows in memory to the saved model, with reading word vectors and pretrained models; tables made from MiniLM are
the same for all tasks and not counted. MB is everything that the saved model consists of. Speed is from text to
prediction, the rows sorted by length, the median over samples. ± is half the width of the 95 % interval over test rows
(Wilson's for accuracies, by Fisher's z for correlations). Each system was trained once, and what another seed changes
is not in it."""


def heading(task: str) -> str:
    return NAMES.get(task, task.upper())


def best_figure(row: dict[str, Any]) -> float | None:
    """The figure that the task is compared by, on the test rows; None where a correlation is undefined."""
    return row["figures"][f"test_{TASKS[row['task']].best_metric}"]


def shown(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4f}"


def accuracy_interval(value: float, rows: int) -> tuple[float, float]:
    return tuple(binomtest(round(value * rows), rows).proportion_ci(method="wilson"))


def correlation_interval(value: float, rows: int) -> tuple[float, float]:
    with np.errstate(divide="ignore"):  # of a correlation of 1
        return tuple(np.tanh(np.arctanh(value) + norm.ppf([0.025, 0.975]) / math.sqrt(rows - 3)))


INTERVALS = {"accuracy": accuracy_interval, "pearson": correlation_interval}
"""Metric -> its 95 % interval on a number of test rows. Other metrics have none."""


def best_shown(row: dict[str, Any]) -> str:
    """The figure that the task is compared by, and half the width of its interval."""
    value, metric = best_figure(row), TASKS[row["task"]].best_metric
    if value is None or metric not in INTERVALS:
        return shown(value)
    low, high = INTERVALS[metric](value, row["rows"]["test"])
    return f"{value:.4f} ± {(high - low) / 2:.3f}"


def by_task(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    return {task: [row for row in rows if row["task"] == task] for task in dict.fromkeys(row["task"] for row in rows)}


def overview(rows: list[dict[str, Any]]) -> str:
    """One line for each system: its figure on each task, and the median of each cost over the tasks."""
    tasks = by_task(rows)
    lines = []
    for name, system in SYSTEMS.items():
        own = {row["task"]: row for row in rows if row["system"] == name}
        if not own:
            continue
        cells = [f"**{system.title}**" if name in OURS else system.title]
        cells += [best_shown(own[task]) if task in own else "" for task in tasks]
        for size in ("1", "64"):
            rates = [row["speed"][size]["rows_per_second"] for row in own.values()]
            cells.append(f"{statistics.median(rates):,.0f}")
        cells.append(f"{statistics.median(row['train_seconds'] for row in own.values()):,.0f}")
        cells.append(f"{statistics.median(row['megabytes'] for row in own.values()):.1f}")
        lines.append(cells)
    headings = ["system", *map(heading, tasks), "rows/s, batch 1", "rows/s, batch 64", "training, s", "MB"]
    return table(headings, lines)


def task_table(rows: list[dict[str, Any]]) -> str:
    """Everything that was measured on a task."""
    metrics = [name.removeprefix("test_") for name in rows[0]["figures"] if name.startswith("test_")]
    selecting = TASKS[rows[0]["task"]].best_metric
    headings = ["system", f"validation {selecting}", *(METRIC_NAMES.get(name, name) for name in metrics)]
    headings += ["training, s", "MB", "rows/s, batch 1", "rows/s, batch 64"]
    lines = []
    for row in rows:
        figures = row["figures"]
        cells = [SYSTEMS[row["system"]].title, shown(figures[f"validation_{selecting}"])]
        cells += [shown(figures[f"test_{name}"]) for name in metrics]
        cells += [f"{row['train_seconds']:,.1f}", f"{row['megabytes']:.1f}", *map(rate, row["speed"].values())]
        lines.append(cells)
    return table(headings, lines)


def rate(timed: dict[str, float]) -> str:
    """Rows a second with quartiles."""
    low, high = (1e3 * timed["rows"] / timed[f"{name}_quartile_ms"] for name in ("upper", "lower"))
    return f"{timed['rows_per_second']:,.0f} ({low:,.0f} to {high:,.0f})"


def markdown(report: dict[str, Any]) -> str:
    """The whole report as text."""
    head, tasks = report["header"], by_task(report["rows"])
    origins = [f"{label}: {head[key]}" for key, label in (("word_vectors", "Word vectors"), ("minilm", "MiniLM"))]
    metrics = (f"{heading(task)} {TASKS[task].best_metric}" for task in tasks)
    parts = [
        EXPLANATION,
        f"## All tasks\n\nTest figures: {', '.join(metrics)}. Speed, training and MB: the median over these tasks.",
        overview(report["rows"]),
    ]
    for task, rows in tasks.items():
        counts = ", ".join(f"{number:,} {split}" for split, number in rows[0]["rows"].items())
        parts += [f"## {TASKS[task].title}\n\nRows: {counts}.", task_table(rows)]
    notes = [line for line in origins if not line.endswith("None")]
    return page("The encoders beside what people use today", head, notes, *parts)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Plot the figure of each task over rows a second, a panel for each task.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        from matplotlib import colormaps
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError('the figure needs matplotlib: pip install -e ".[benchmark]"') from error
    tasks = by_task(rows)
    columns = math.ceil(math.sqrt(len(tasks)))
    lines = math.ceil(len(tasks) / columns)
    figure = Figure(figsize=(1 + 4 * columns, 1 + 3.2 * lines), layout="constrained")
    panels = list(figure.subplots(lines, columns, squeeze=False).flat)
    handles = {}
    for panel, (task, there) in zip(panels, tasks.items(), strict=False):
        panel.set(title=heading(task), xscale="log", xlabel="rows a second", ylabel=TASKS[task].best_metric)
        panel.grid(alpha=0.3)
        for row in there:
            if best_figure(row) is None:
                continue
            number = list(SYSTEMS).index(row["system"])
            style = {"color": colormaps["tab10"](number), "marker": "o" if row["system"] in OURS else "s"}
            speeds = [row["speed"][size]["rows_per_second"] for size in ("1", "64")]
            heights = [best_figure(row)] * 2
            panel.plot(speeds, heights, linewidth=1, markerfacecolor="white", **style)
            title = SYSTEMS[row["system"]].title
            (handles[title],) = panel.plot(speeds[1:], heights[1:], linestyle="", label=title, **style)
    for panel in panels[len(tasks) :]:
        panel.set_visible(False)
    figure.suptitle("hollow: one row at a time; filled: batches of 64")
    figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=columns)
    file = io.BytesIO()
    figure.savefig(file, format=path.suffix.removeprefix("."), dpi=110)
    write_bytes(path, file.getvalue())
