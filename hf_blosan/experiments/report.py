"""A table for people: our figures beside the paper's, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean, stdev
from typing import Any

from ..hub.model_card import data_sentence
from .runner import Result
from .tables import Column, Row, Table

NO_FIGURE = "-"


def render(
    table: Table,
    rows: tuple[Row, ...],
    columns: tuple[Column, ...],
    results: list[Result],
    missing: Mapping[str, str],
) -> str:
    """The table with its notes.

    Args:
        table: the table, for its title.
        rows, columns: the part of it that is shown.
        results: what became of the runs.
        missing: task -> why its data cannot be had.
    """
    head = ["system"]
    for column in columns:
        head += [column.name, "paper"] if table.published else [column.name]
    body = []
    for row in rows:
        line = [row.name]
        for column in columns:
            line.append(_cell(row, column, results, missing))
            if table.published:
                line.append(row.paper.get(column.name, NO_FIGURE))
        body.append(line)
    notes = _notes(columns, results, missing)
    if table.published and any(column.name not in row.paper for row in rows for column in columns):
        notes.append(f'"{NO_FIGURE}" in a column "paper": the published figure could not be checked.')
    notes = [f"- {note}" for note in notes]
    return "\n".join([table.title, "", *markdown([head, *body]), *([""] if notes else []), *notes])


def markdown(lines: list[list[str]]) -> list[str]:
    """A Markdown table, its first line the heading, all but the first column to the right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    justified = [
        [
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        for line in (lines[0], rule, *lines[1:])
    ]
    return [f"| {' | '.join(line)} |" for line in justified]


def figure(record: Mapping[str, Any], column: Column) -> float | None:
    """The column's figure of a record; ``None`` where it is not defined (a correlation of constant predictions)."""
    if column.figure == "parameters":
        return record["parameters"]["without_embeddings"]
    return record["figures"].get(column.figure)


def _cell(row: Row, column: Column, results: list[Result], missing: Mapping[str, str]) -> str:
    """Mean over seeds and folds, with the standard deviation where there are several."""
    mine = [result for result in results if result.run.row == row and result.run.task == column.task]
    failed = sum(result.failure is not None for result in mine)
    figures = [figure(result.record, column) for result in mine if result.record]
    figures = [value for value in figures if value is not None]
    if not figures:
        return "no data" if column.task in missing else "failed" if failed else NO_FIGURE
    text = column.text(mean(figures))
    if len(figures) > 1 and column.figure != "parameters":
        text += f" ± {column.text(stdev(figures))}"
    return f"{text} ({failed} failed)" if failed else text


def _notes(columns: tuple[Column, ...], results: list[Result], missing: Mapping[str, str]) -> list[str]:
    """Where the figures come from, and why some are not there."""
    notes = [str(result) for result in results if result.failure]
    for task in dict.fromkeys(column.task for column in columns):
        finished = [result for result in results if result.record and result.run.task == task]
        if task in missing:
            notes.append(f"{task}: no data: {missing[task]}")
        if finished:
            full = max(column.train_rows or 0 for column in columns if column.task == task)
            notes.append(f"{task}: {_data(finished)}{_warning(finished[0].record, full)}")
    records = [result.record for result in results if result.record]
    notes += dict.fromkeys(map(_vectors, records))
    if records:
        notes.append(
            "Accuracies are in percent. The model of a run is the one that is best on its validation split. Of "
            "several runs (seeds, folds): mean ± standard deviation."
        )
    return notes


def _data(results: list[Result]) -> str:
    """The rows of the runs on a task, and over how many runs of a system the figures are means."""
    record, run = results[0].record, results[0].run
    parts = {(result.run.arguments.seed, result.run.arguments.fold) for result in results}
    if len(parts) == 1:
        return data_sentence(record)
    data = record["data"]
    sentences = [data_sentence(record | {"data": data | {"held_out": {}}})]
    if "validation" in data["held_out"]:
        sentences.append(f"The validation split is {data['held_out']['validation']}.")
    seeds, folds = (len(set(numbers)) for numbers in zip(*parts, strict=True))
    over = f"{seeds} seed{'s' if seeds > 1 else ''}"
    if run.folds:
        over += f", {folds} of {run.folds} folds; the numbers of rows are those of the first run"
    return f"{' '.join(sentences)} {len(parts)} runs of each system: {over}."


def _warning(record: Mapping[str, Any], full: int) -> str:
    """A sentence that is due where the rows are not the papers', and nothing else."""
    settings = record["experiment"]["settings"]
    cuts = [f"--{name} {settings[name]}" for name in ("max_train_samples", "max_eval_samples") if name in settings]
    if cuts:
        return f" Cut by {' and '.join(cuts)}: the figures cannot be compared with the papers'."
    if record["data"]["rows"]["train"] < full:
        return f" The papers train on {full:,} rows: the figures cannot be compared."
    return ""


def _vectors(record: Mapping[str, Any]) -> str:
    """What the word vectors start from."""
    vectors = record["word_vectors"]
    start = f"from `{vectors['file']}` (width {vectors['width']})" if vectors else "at random"
    if vectors and "glove.6b" in vectors["file"].lower():
        return f"Word vectors start {start}."
    return f"Word vectors start {start}, in the papers from GloVe 6B: compare with care."
