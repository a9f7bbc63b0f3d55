"""A table as Markdown: our figures next to the paper's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from statistics import mean, stdev
from typing import Any

from hf_blosan.errors import listed
from hf_blosan.hub.model_card import data_sentence

from .runner import Run
from .significance import LOWER_IS_BETTER, NotComparable, paired_bootstrap, paired_p_value
from .tables import BEST, Column, Row, Table

NO_FIGURE = "-"
BEST_SEEN = "best seen"
LEADERS = (
    "Bold: significantly different from all others. The 95 % interval excludes 0 (paired bootstrap over the "
    "test rows, 2,000 samples), and over three or more seeds or folds p < 0.05 in a paired t-test."
)


def render(table: Table, runs: list[Run], missing: Mapping[str, str], baseline: Row | str | None = None) -> str:
    """The table and its notes.

    Args:
        table: the rows and columns to show.
        runs: finished and failed runs.
        missing: task -> why its data is not available.
        baseline: the row that the others are compared with, by a paired bootstrap over the test rows. ``"best"``: in
            each column the best row, which is bold if significantly different from all others.
    """
    leaders, reasons = find_leaders(table, runs) if baseline == BEST else ({}, {})
    lines = table_lines(table, runs, missing, leaders)
    notes = _notes(table, runs, missing)
    if BEST_SEEN in lines[0]:
        notes.append(
            f'"{BEST_SEEN}": the highest figure on the test split over all evaluations of a run, which is what the '
            "authors' code reports for TREC, CR, MPQA and SUBJ."
        )
    if baseline == BEST:
        notes += [f"{name}: {leader.sentence}" for name, leader in leaders.items()]
        notes += [f"{name}: no comparison, as {reason}." for name, reason in reasons.items()]
        notes.append(LEADERS)
    elif baseline:
        notes += _differences(table, runs, baseline)
    if table.published and any(column.name not in row.paper for row in table.rows for column in table.columns):
        notes.append(f'"{NO_FIGURE}" in a column "paper": the published figure could not be verified.')
    notes = ["", *(f"- {note}" for note in notes)] if notes else []
    return "\n".join([table.title, "", *lines, *notes])


def table_lines(table: Table, runs: list[Run], missing: Mapping[str, str], leaders: Mapping[str, Leader]) -> list[str]:
    """The table in Markdown; a leader significantly different from all others is bold."""
    columns = [["system", *(row.name for row in table.rows)]]
    for column in table.columns:
        figures = [_cell(row, column, runs, missing, column.figure_of) for row in table.rows]
        if (leader := leaders.get(column.name)) and leader.alone:
            place = columns[0].index(leader.name) - 1
            figures[place] = f"**{figures[place]}**"
        columns.append([column.name, *figures])
        if any(run.record and run.task == column.task and column.best_seen(run.record) is not None for run in runs):
            columns.append([BEST_SEEN, *(_cell(row, column, runs, missing, column.best_seen) for row in table.rows)])
        if table.published:
            columns.append(["paper", *(row.paper.get(column.name, NO_FIGURE) for row in table.rows)])
    return aligned(columns)


def aligned(columns: list[list[str]]) -> list[str]:
    """Columns with their headings as a Markdown table; all but the first are aligned to the right."""
    filled = []
    for place, (heading, *cells) in enumerate(columns):
        width = max(map(len, (heading, *cells)))
        rule, adjust = ("-" * (width - 1) + ":", str.rjust) if place else ("-" * width, str.ljust)
        filled.append([adjust(text, width) for text in (heading, rule, *cells)])
    return [f"| {' | '.join(line)} |" for line in zip(*filled, strict=True)]


def summary(run: Run) -> str:
    """A finished or failed run in one line."""
    fold = f", fold {run.arguments.fold} of {run.folds}" if run.folds else ""
    label = f"{run.row.name} on {run.task}, seed {run.arguments.seed}{fold}"
    if run.failure:
        return f"{label} failed: {run.failure}"
    metric, figures = run.record["task"]["best_metric"], run.record["figures"]
    names = [name for name in (f"validation_{metric}", f"test_{metric}") if figures.get(name) is not None]
    shown = [f"{name} {figures[name]:.4f}" for name in names]
    return f"{label}: {', '.join(shown)}, {run.record['training']['seconds_in_all']:.0f} s"


def _finished(runs: list[Run], row: Row, column: Column) -> list[Run]:
    return [run for run in runs if run.record and run.row == row and run.task == column.task]


def _interval(column: Column, found: tuple[float, float, float]) -> list[str]:
    """A difference and the ends of its interval, as printed."""
    return [f"{column.scale * value:+.{column.digits}f}" for value in found]


def _differences(table: Table, runs: list[Run], baseline: Row) -> list[str]:
    """The difference of every row from the baseline."""
    lines, without = [], {}
    for column, row in product(table.columns, table.rows):
        first, second = _finished(runs, row, column), _finished(runs, baseline, column)
        if row == baseline or not (first and second and column.is_tested):
            continue
        try:
            mean, low, high = _interval(column, paired_bootstrap(column.figure, first, second))
            lines.append(f"{column.name}: {row.name} - {baseline.name} = {mean}, 95 % interval {low} to {high}")
        except NotComparable as error:
            without.setdefault(str(error), []).append(f"{column.name} of {row.name}")
    if lines:
        lines.append("Intervals: paired bootstrap over the test rows, 2,000 samples.")
    return lines + [f"No interval for {', '.join(names)}: {reason}." for reason, names in without.items()]


@dataclass(frozen=True)
class Leader:
    """The best row of a column: its name, whether it differs significantly from all others, and a sentence on that."""

    name: str
    alone: bool
    sentence: str


def find_leaders(table: Table, runs: list[Run]) -> tuple[dict[str, Leader], dict[str, str]]:
    """The best row of each column of test figures, and of columns that allow no paired test the reason."""
    leaders, reasons = {}, {}
    for column in table.columns:
        finished = {row.name: own for row in table.rows if (own := _finished(runs, row, column))}
        if len(finished) < 2 or not column.is_tested:
            continue
        try:
            leaders[column.name] = _leader(column, finished)
        except NotComparable as error:
            reasons[column.name] = str(error)
    return leaders, reasons


def _leader(column: Column, finished: dict[str, list[Run]]) -> Leader:
    figures = {name: [column.figure_of(run.record) for run in own] for name, own in finished.items()}
    if undefined := [name for name, own in figures.items() if None in own]:
        raise NotComparable(f"{listed(undefined)} has no figure in a finished run; it was undefined there")
    means = {name: mean(own) for name, own in figures.items()}
    first, *others = sorted(means, key=means.__getitem__, reverse=column.figure not in LOWER_IS_BETTER)
    level, below, sign = [], [], -1 if column.figure in LOWER_IS_BETTER else 1
    for name in others:
        pair = finished[first], finished[name]
        found = paired_bootstrap(column.figure, *pair)
        p = paired_p_value(column.figure, *pair)
        if max(found[1] * sign, found[2] * sign) < 0:
            raise NotComparable(
                f"{first} is best by all of its runs, but below {name} by those that both have; make the missing ones"
            )
        difference, low, high = _interval(column, found)
        text = f"{name} ({difference}, {low} to {high}{'' if p is None else f', p = {p:.3f}'})"
        (below if found[1] * found[2] > 0 and (p is None or p < 0.05) else level).append(text)
    if level:
        return Leader(first, False, f"{first} is not significantly different from {', '.join(level)}.")
    return Leader(first, True, f"{first} is significantly different from all others, {below[0]} the nearest.")


def _cell(
    row: Row,
    column: Column,
    runs: list[Run],
    missing: Mapping[str, str],
    figure_of: Callable[[Mapping[str, Any]], float | None],
) -> str:
    """Mean over seeds and folds, with the standard deviation if there are several."""
    selected = [run for run in runs if run.row == row and run.task == column.task]
    failed = sum(run.failure is not None for run in selected)
    every = [figure_of(run.record) for run in selected if run.record]
    figures = [figure for figure in every if figure is not None]
    if not figures:
        return "no data" if column.task in missing else "failed" if failed else NO_FIGURE
    text = column.text(mean(figures))
    if len(figures) > 1 and column.figure != "parameters":
        text += f" ± {column.text(stdev(figures))}"
    undefined = len(every) - len(figures) if column.is_tested and figure_of == column.figure_of else 0
    counts = ", ".join(f"{count} {what}" for count, what in ((failed, "failed"), (undefined, "undefined")) if count)
    return f"{text} ({counts})" if counts else text


def _notes(table: Table, runs: list[Run], missing: Mapping[str, str]) -> list[str]:
    """Failures, the data of each task and the word vectors."""
    notes = [summary(run) for run in runs if run.failure]
    for task, train_rows in {column.task: column.train_rows for column in table.columns}.items():
        if task in missing:
            notes.append(f"{task}: no data: {missing[task]}")
        if finished := [run for run in runs if run.record and run.task == task]:
            notes.append(f"{task}: {_data(finished)}{_warning(finished[0].record, train_rows or 0)}")
    records = [run.record for run in runs if run.record]
    notes += dict.fromkeys(_vectors(record, table.published) for record in records)
    if records:
        on_test = runs[0].arguments.select_on_test  # of all runs
        split = "test split, as in the authors' code for TREC, CR, MPQA and SUBJ" if on_test else "validation split"
        notes.append(
            f"Accuracies are percentages. A run's model is the best one on its {split}. Several runs (seeds, folds): "
            "mean ± standard deviation."
        )
    return notes


def _data(runs: list[Run]) -> str:
    """The rows of the runs on a task, and the seeds and folds of the averages."""
    record, parts = runs[0].record, {(run.arguments.seed, run.arguments.fold) for run in runs}
    if len(parts) == 1:
        return data_sentence(record)
    held_out = record["data"]["held_out"]
    text = data_sentence(record | {"data": record["data"] | {"held_out": {}}})
    if "validation" in held_out:
        text += f" The validation split is {held_out['validation']}."
    seeds, folds = (len(set(numbers)) for numbers in zip(*parts, strict=True))
    text += f" {len(parts)} runs of each system: {seeds} seed{'s' if seeds > 1 else ''}"
    if runs[0].folds:
        text += f", {folds} of {runs[0].folds} folds; the numbers of rows are those of the first run"
    return f"{text}."


def _warning(record: Mapping[str, Any], paper_rows: int) -> str:
    """A sentence on rows that differ from the papers', if any."""
    settings = record["experiment"]["settings"]
    limits = [f"--{name} {settings[name]}" for name in ("max_train_samples", "max_eval_samples") if name in settings]
    if limits:
        return f" Limited by {' and '.join(limits)}: the figures are not comparable with the papers'."
    if record["data"]["rows"]["train"] < paper_rows:
        return f" The papers train on {paper_rows:,} rows: the figures are not comparable."
    return ""


def _vectors(record: Mapping[str, Any], published: bool) -> str:
    """The source of the word vectors; next to published figures also a note that theirs differ."""
    if backbone := record.get("backbone"):
        return f"Words are hidden states of {backbone}."
    if start := record.get("continued_from"):
        return f"Word vectors start from those of {start}."
    vectors = record["word_vectors"]
    start = f"from `{vectors['file']}` (width {vectors['width']})" if vectors else "at random"
    if not published or vectors and "glove.6b" in vectors["file"].lower():
        return f"Word vectors start {start}."
    return f"Word vectors start {start}, those of the papers from GloVe 6B: compare with care."
