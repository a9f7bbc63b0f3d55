"""Accuracy against sentence length (DiSAN, Figure 5); for scores, the squared error."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_blosan.errors import InputError
from hf_blosan.tasks import TASKS, Task, get_task, load_task
from hf_blosan.text.tokenization import build_tokenizer
from hf_blosan.training.arguments import EvaluateArguments
from hf_blosan.training.evaluate_model import find_rows
from hf_blosan.training.preparation import DATA_OPTIONS, find_encoder

from .charts import legend, name_metric, new_charts, styles
from .records import Record, by_system, means_and_errors

if TYPE_CHECKING:
    from datasets import Dataset
    from matplotlib.figure import Figure

TOLERANCE = 1e-3
"""Relative error of a mean squared error from predictions with four digits, as older records have them."""

Row = tuple[str, ...]
"""The sentences of a test row, and its label."""


def measure(
    records: Sequence[Record], *, data_dir: str | None = None, test_file: str | None = None, bins: int | None = None
) -> dict[str, Any]:
    """Accuracy in groups of test rows of similar length; mean squared error for scores.

    A row counts once, with its mean over the runs of a system, so that the standard error over the rows of a group is
    meaningful for one run, for several seeds and for folds. Rows of the same text and label count as one.

    Args:
        records: of runs on one task, each with its predictions in its folder.
        data_dir: folder of the task's rows. Default: the Hub.
        test_file: the test rows, for runs on a user's own files.
        bins: number of groups, of about as many rows each. Default: 8.

    Returns:
        ``task``, ``metric``, ``bins`` (a dict for each: ``shortest``, ``longest`` and ``mean_length`` in words of the
        longer sentence, and ``rows``), and ``systems``: label -> ``runs``, and ``mean`` and ``standard_error`` of
        each group.

    Raises:
        InputError: rows or predictions are missing or do not match, or the systems were tested on different
            rows.
    """
    values = {label: row_values(same, data_dir, test_file) for label, same in by_system(records).items()}
    first, rows = next(iter(values.items()))
    for label, others in values.items():
        if others.keys() != rows.keys():
            raise InputError(
                f"{first!r} was tested on {len(rows)} rows, {label!r} on {len(others)} and not on the same; give runs "
                "with the same seeds and folds for every system"
            )
    groups, task = in_groups(lengths_of(list(rows)), bins or 8), records[0].content["task"]
    systems = {
        label: {"runs": [str(record.path) for record in same]}
        | means_and_errors([[values[label][row] for row in group] for group in groups])
        for label, same in by_system(records).items()
    }
    return {
        "task": task["title"],
        "metric": "accuracy" if task["labels"] else "mean squared error",
        "sentences": task["num_sentences"],
        "bins": [
            {"shortest": min(n), "longest": max(n), "mean_length": sum(n) / len(n), "rows": len(n)}
            for n in (list(group.values()) for group in groups)
        ],
        "systems": systems,
    }


def draw(numbers: dict[str, Any]) -> Figure:
    """A line for each system, with a band of one standard error."""
    figure, (axes,) = new_charts(numbers["task"])
    lengths = np.array([entry["mean_length"] for entry in numbers["bins"]])
    for label, style in styles(numbers["systems"]).items():
        system = numbers["systems"][label]
        mean, error = (np.array(system[name], dtype=float) for name in ("mean", "standard_error"))
        axes.plot(lengths, mean, linewidth=1.5, **style)
        axes.fill_between(lengths, mean - error, mean + error, color=style["color"], alpha=0.15, linewidth=0)
    longer = ", of the longer sentence" if numbers["sentences"] == 2 else ""
    axes.set_xlabel(f"sentence length (words{longer})")
    name_metric(axes, numbers["metric"], "test")
    rows = sum(entry["rows"] for entry in numbers["bins"])
    legend(figure, axes, f"{rows:,} rows in {len(lengths)} groups; band: one standard error over the rows of a group")
    return figure


def row_values(records: Sequence[Record], data_dir: str | None, test_file: str | None) -> dict[Row, float]:
    """Test row -> its accuracy or squared error, averaged over the runs that tested it."""
    found = defaultdict(list)
    for record in records:
        for row, value in values_of(record, *test_rows(record, data_dir, test_file)):
            found[row].append(value)
    return {row: sum(values) / len(values) for row, values in found.items()}


def test_rows(record: Record, data_dir: str | None, test_file: str | None) -> tuple[Task, Dataset]:
    """The test rows of a run, and their task; raises InputError if there are no test rows, or they are not texts with
    a label or a score.
    """
    if test_file:
        arguments = EvaluateArguments(str(record.folder), test_file=test_file)
        _, config = find_encoder(arguments)
        task, data = find_rows(arguments, config)
    elif record.task in TASKS:
        settings, task = record.content["settings"], get_task(record.task)
        options = {name: settings[name] for name in DATA_OPTIONS if name in settings}
        data = load_task(task, data_dir=data_dir, **options)
    else:
        raise InputError(f"{record.path} is a run on your own rows; give the test rows by --test_file")
    if "test" not in data:
        raise InputError(f"{task.name} has no test rows with labels; give them by --test_file, or choose another task")
    if not {*task.text_columns, "label"} <= set(data["test"].column_names):
        raise InputError(f"{record.path} is a run on {task.title}, which has no accuracy per sentence; leave it out")
    return task, data["test"]


def values_of(record: Record, task: Task, rows: Dataset) -> Iterator[tuple[Row, float]]:
    """Every test row of a run with its accuracy, 0 or 1, or its squared error; raises InputError if the predictions
    are not those of the rows.
    """
    predictions, labels = record.content.get("test_predictions"), rows["label"][:]
    if predictions is None:
        raise InputError(f"{record.path} has no predictions; train the run again, on a task with test rows")
    if len(predictions) != len(labels):
        raise InputError(
            f"{record.path} has {len(predictions)} predictions, but {task.name} has {len(labels)} test rows; check "
            "--data_dir or --test_file, and leave out runs with --max_eval_samples"
        )
    values = np.equal(predictions, labels) if task.labels else np.subtract(predictions, labels) ** 2
    name, tolerance = ("test_accuracy", 1e-6) if task.labels else ("test_mse", TOLERANCE)
    if name in record.content["figures"] and not math.isclose(
        mean := values.mean(), expected := record.figure(name), rel_tol=tolerance
    ):
        raise InputError(
            f"the predictions in {record.path} have a {name} of {mean:.4f} on these rows, but of {expected:.4f} in "
            "the run; give the rows of the run by --data_dir or --test_file"
        )
    texts = zip(*(rows[column][:] for column in task.text_columns), strict=True)
    keys = [(*sentences, str(label)) for sentences, label in zip(texts, labels, strict=True)]
    return zip(keys, values.astype(float).tolist(), strict=True)


def lengths_of(rows: Sequence[Row]) -> dict[Row, int]:
    """The length of each row in words, independent of tokenizers; for a pair, of the longer sentence."""
    texts = list(dict.fromkeys(text for *sentences, _ in rows for text in sentences))
    ids = build_tokenizer(texts)(texts, verbose=False)["input_ids"]
    words = {text: len(found) for text, found in zip(texts, ids, strict=True)}
    return {row: max(words[text] for text in row[:-1]) for row in rows}


def in_groups(lengths: dict[Row, int], count: int) -> list[dict[Row, int]]:
    """Groups of rows of similar length and about equal size; fewer if many rows have the same length."""
    values = np.array(list(lengths.values()))
    longest = np.unique(np.quantile(values, np.arange(1, count + 1) / count, method="inverted_cdf"))
    of_row = np.searchsorted(longest, values)
    groups: list[dict[Row, int]] = [{} for _ in longest]
    for (row, length), group in zip(lengths.items(), of_row, strict=True):
        groups[group][row] = length
    return groups
