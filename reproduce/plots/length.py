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

from .arguments import LENGTH_BINS
from .charts import counted, legend, name_metric, new_charts, styles
from .runs import Run, by_system, mean_and_error

if TYPE_CHECKING:
    from datasets import Dataset
    from matplotlib.figure import Figure

TOLERANCE = 1e-3
"""Relative error of a mean squared error from predictions with four decimals."""

Row = tuple[str, ...]
"""The sentences of a test row, and its label."""


def measure(
    runs: Sequence[Run], *, data_dir: str | None = None, test_file: str | None = None, bins: int | None = None
) -> dict[str, Any]:
    """Accuracy in groups of test rows of similar length; mean squared error for scores.

    A row counts once, with its mean over the runs of a system, so that the standard error over the rows of a group is
    meaningful for one run, for several seeds and for folds. Rows of the same text and label count as one.

    Args:
        runs: runs on one task, each with its predictions in its folder.
        data_dir: folder of the task's rows. Default: the Hub.
        test_file: the test rows, for runs on a user's own files.
        bins: number of groups, of about as many rows each. Default: 8.

    Returns:
        ``task``, ``metric``, ``bins`` (a dict for each: ``shortest``, ``longest`` and ``mean_length`` in words of the
        longer sentence, and ``rows``), and ``systems``: label -> ``runs``, and ``mean`` and ``standard_error`` of
        each group.

    Raises:
        InputError: rows or predictions are missing or do not belong together, or the systems were tested on different
            rows.
    """
    values = {label: row_values(same, data_dir, test_file) for label, same in by_system(runs).items()}
    first, rows = next(iter(values.items()))
    for label, others in values.items():
        if others.keys() != rows.keys():
            raise InputError(
                f"{first!r} was tested on {len(rows)} rows, {label!r} on {len(others)} and not on the same; give runs "
                "with the same seeds and folds for every system"
            )
    groups = in_groups(lengths_of(list(rows)), bins or LENGTH_BINS)
    record = runs[0].record["task"]
    numbers: dict[str, Any] = {
        "task": record["title"],
        "metric": "mean squared error" if record["problem"] == "regression" else "accuracy",
        "sentences": record["num_sentences"],
        "bins": [
            {
                "shortest": min(lengths),
                "longest": max(lengths),
                "mean_length": sum(lengths) / len(lengths),
                "rows": len(lengths),
            }
            for lengths in (list(group.values()) for group in groups)
        ],
        "systems": {},
    }
    for label, same in by_system(runs).items():
        means = [mean_and_error([values[label][row] for row in group]) for group in groups]
        numbers["systems"][label] = {
            "runs": [str(run.path) for run in same],
            "mean": [mean for mean, _ in means],
            "standard_error": [error for _, error in means],
        }
    return numbers


def draw(numbers: dict[str, Any]) -> Figure:
    """A line for each system, with a band of one standard error."""
    figure, (axes,) = new_charts(numbers["task"])
    lengths = np.array([entry["mean_length"] for entry in numbers["bins"]])
    for label, style in styles(list(numbers["systems"])).items():
        system = numbers["systems"][label]
        mean, error = (np.array(system[name], dtype=float) for name in ("mean", "standard_error"))
        axes.plot(lengths, mean, label=counted(label, len(system["runs"])), linewidth=1.5, **style)
        axes.fill_between(lengths, mean - error, mean + error, color=style["color"], alpha=0.15, linewidth=0)
    longer = ", of the longer sentence" if numbers["sentences"] == 2 else ""
    axes.set_xlabel(f"sentence length (words{longer})")
    name_metric(axes, numbers["metric"], "test")
    rows = sum(entry["rows"] for entry in numbers["bins"])
    legend(figure, axes, f"{rows:,} rows in {len(lengths)} groups; band: one standard error over the rows of a group")
    return figure


def row_values(runs: Sequence[Run], data_dir: str | None, test_file: str | None) -> dict[Row, float]:
    """Test row -> its accuracy or squared error, the mean over the runs that tested it."""
    found = defaultdict(list)
    for run in runs:
        for row, value in values_of(run, *test_rows(run, data_dir, test_file)):
            found[row].append(value)
    return {row: sum(values) / len(values) for row, values in found.items()}


def test_rows(run: Run, data_dir: str | None, test_file: str | None) -> tuple[Task, Dataset]:
    """The test rows of a run, and what they mean.

    Raises:
        InputError: there are none.
    """
    if test_file:
        arguments = EvaluateArguments(str(run.folder), test_file=test_file)
        _, config = find_encoder(arguments)
        task, data = find_rows(arguments, config)
    elif run.task in TASKS:
        settings = run.record["settings"]
        options = {name: settings[name] for name in DATA_OPTIONS if name in settings}
        task = get_task(run.task)
        data = load_task(task, data_dir=data_dir, **options)
    else:
        raise InputError(f"{run.path} is a run on rows of your own; give the test rows by --test_file")
    if task.problem == "tagging":
        raise InputError(f"{task.name} is a tagging task, which has no plot by length; choose runs on sentences")
    if task.problem == "translation":
        raise InputError(f"{run.path} translates, which has no accuracy of a row; leave it out")
    if task.problem == "selection":
        raise InputError(f"{run.path} chooses sentences of passages, which have no length of a text; leave it out")
    if "test" not in data:
        raise InputError(f"{task.name} has no test rows with labels; give them by --test_file, or choose another task")
    return task, data["test"]


def values_of(run: Run, task: Task, rows: Dataset) -> Iterator[tuple[Row, float]]:
    """Every test row of a run with its accuracy, 0 or 1, or its squared error.

    Raises:
        InputError: the predictions are not those of the rows.
    """
    predictions, labels = read_predictions(run), rows["label"][:]
    regression = task.problem == "regression"
    if len(predictions) != len(labels):
        raise InputError(
            f"{run.folder} has {len(predictions)} predictions, but {task.name} has {len(labels)} test rows; check "
            "--data_dir or --test_file, and leave out runs with --max_eval_samples"
        )
    try:
        pairs = list(zip(predictions, labels, strict=True))
        values = [(float(p) - label) ** 2 if regression else float(p == task.labels[label]) for p, label in pairs]
    except ValueError as error:
        raise InputError(f"a prediction in {run.folder} is not a score ({error}); train the run again") from error
    name = "test_mse" if regression else "test_accuracy"
    if name in run.record["figures"]:
        expected, mean = run.figure(name), sum(values) / len(values)
        if not math.isclose(mean, expected, rel_tol=TOLERANCE if regression else 1e-6):
            raise InputError(
                f"the predictions in {run.folder} have a {name} of {mean:.4f} on these rows, but {run.path} says "
                f"{expected:.4f}; give the rows of the run by --data_dir or --test_file"
            )
    texts = zip(*(rows[column][:] for column in task.text_columns), strict=True)
    keys = [(*sentences, str(label)) for sentences, label in zip(texts, labels, strict=True)]
    return zip(keys, values, strict=True)


def read_predictions(run: Run) -> list[str]:
    """The predictions of a run on its test rows; raises InputError if there are none."""
    path = run.folder / f"predict_results_{run.task}.txt"
    if not path.is_file():
        raise InputError(
            f"there are no predictions {path}; train with --output_dir {run.folder} on a task with test rows "
            "(tables: with --keep_models)"
        )
    return [line.partition("\t")[2] for line in path.read_text(encoding="utf-8").splitlines()[1:]]


def lengths_of(rows: Sequence[Row]) -> dict[Row, int]:
    """The length of each row in words, whatever the tokenizers of the models; of a pair's longer sentence."""
    texts = list(dict.fromkeys(text for *sentences, _ in rows for text in sentences))
    ids = build_tokenizer(texts)(texts, verbose=False)["input_ids"]
    words = {text: len(found) for text, found in zip(texts, ids, strict=True)}
    return {row: max(words[text] for text in row[:-1]) for row in rows}


def in_groups(lengths: dict[Row, int], count: int) -> list[dict[Row, int]]:
    """Rows of similar length together, in groups of about as many rows; fewer groups if many rows have one length."""
    values = np.array(list(lengths.values()))
    longest = np.unique(np.quantile(values, np.arange(1, count + 1) / count, method="inverted_cdf"))
    of_row = np.searchsorted(longest, values)
    groups: list[dict[Row, int]] = [{} for _ in longest]
    for (row, length), group in zip(lengths.items(), of_row, strict=True):
        groups[group][row] = length
    return groups
