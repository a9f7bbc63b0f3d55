"""Significance tests of the difference between two systems."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy import stats

from hf_blosan.data.columns import positions
from hf_blosan.errors import InputError, listed
from hf_blosan.tasks import Task, load_task
from hf_blosan.training.preparation import DATA_OPTIONS, find_task
from hf_blosan.training.reporting import arguments_of, read_record

from .plots.records import Record
from .runner import Run
from .tables import Row

logger = logging.getLogger(__name__)


class NotComparable(InputError):
    """Runs of two systems that allow no paired test."""


FIGURES = {
    "test_accuracy": lambda predictions, labels: np.mean(predictions == labels),
    "test_pearson": lambda predictions, labels: stats.pearsonr(predictions, labels).statistic,
    "test_spearmanr": lambda predictions, labels: stats.spearmanr(predictions, labels).statistic,
    "test_mse": lambda predictions, labels: np.mean((predictions - labels) ** 2),
}
"""The figures that can be recomputed from predictions and labels of any test rows."""

LOWER_IS_BETTER = ("test_mse",)


def recorded_runs(paths: Iterable[str | Path]) -> list[Run]:
    """The runs of a system by their records, with the options that their commands name. Raises InputError if a file is
    not a record, its command is not one of training, or two runs differ in more than seed and fold.
    """
    runs, systems = [], {}
    for path in map(Path, paths):
        try:
            record = read_record(path)
            run = Run(Row(name=path.stem, encoder=record["encoder"]), arguments_of(record), folds=0, record=record)
            systems[path] = Record(path, record, path.stem).system
        except (OSError, ValueError, KeyError) as error:  # InputError is a ValueError
            raise InputError(f"{path} is not the record of a run ({error}); give a file of --results_file") from error
        runs.append(run)
    for (one, wanted), (other, given) in pairwise(systems.items()):
        if differing := [name for name in wanted if given.get(name, wanted[name]) != wanted[name]]:
            raise InputError(f"{one} and {other} differ in {listed(differing, 5)}; give the runs of one system")
    return runs


def paired_bootstrap(
    figure: str, first: list[Run], second: list[Run], *, samples: int = 2000, seed: int = 0
) -> tuple[float, float, float]:
    """Mean of (first - second), and its 95 % percentile interval over resampled test rows (Koehn 2004).

    Every sample has the same rows for both systems and all seeds. The figure is the mean over the seeds for which both
    have predictions of the same folds, each over the test rows of these folds together; a warning names the others.

    Args:
        figure: one of FIGURES.
        first, second: finished runs of two systems on one task.
        samples, seed: of the bootstrap.

    Returns:
        ``(mean, low, high)``.

    Raises:
        NotComparable: the figure is none of these or undefined for some predictions, no seed has predictions of the
            same folds in both systems, or the test rows differ between seeds or systems.
        InputError: two runs of a system have the same seed and fold, or test rows cannot be read.
    """
    if figure not in FIGURES:
        raise NotComparable(f"{figure} cannot be computed from predictions; choose from {', '.join(FIGURES)}")
    one, other = _by_seed(first), _by_seed(second)
    seeds = [seed for seed in one if seed in other and one[seed].keys() == other[seed].keys()]
    alone = ", ".join(map(str, sorted({run.arguments.seed for run in [*first, *second]}.difference(seeds))))
    if not seeds:
        raise NotComparable(
            f"no seed has predictions of the same folds in both systems (seeds {alone}); train both with the same"
        )
    if alone:
        logger.warning("seeds without predictions of the same folds in both systems are left out: %s", alone)
    parts = [runs[seed].values() for runs in (one, other) for seed in seeds]
    rows, *others = [np.concatenate([_rows(run) for run in part]) for part in parts]
    if any(not np.array_equal(rows, same) for same in others):
        raise NotComparable("the test rows differ between seeds or systems; test all on the same rows")
    labels = rows[:, 0]
    systems = [[np.concatenate([*map(_predictions, runs[seed].values())]) for seed in seeds] for runs in (one, other)]

    def difference(rows: np.ndarray) -> float:
        means = (np.mean([FIGURES[figure](predictions[rows], labels[rows]) for predictions in own]) for own in systems)
        return next(means) - next(means)

    rows = np.arange(len(labels))
    options = {"n_resamples": samples, "method": "percentile", "vectorized": False, "rng": seed}
    mean = difference(rows)
    low, high = stats.bootstrap((rows,), difference, **options).confidence_interval if np.isfinite(mean) else (0, 0)
    if not np.isfinite([mean, low, high]).all():
        raise NotComparable(f"{figure} is undefined for the predictions of a run, or for some of their rows")
    return float(mean), float(low), float(high)


def paired_p_value(figure: str, first: list[Run], second: list[Run]) -> float | None:
    """The p-value of a paired t-test over the seeds and folds common to both systems; None for fewer than three."""
    one, other = (
        {(run.arguments.seed, run.arguments.fold): run.record["figures"][figure] for run in runs}
        for runs in (first, second)
    )
    pairs = [(one[key], other[key]) for key in one if key in other]
    if len(pairs) < 3:
        return None
    return 1.0 if all(a == b for a, b in pairs) else float(stats.ttest_rel(*zip(*pairs, strict=True)).pvalue)


def _by_seed(runs: list[Run]) -> dict[int, dict[int, Run]]:
    """Runs whose predictions are recorded, by seed and fold, folds in order; raises InputError if two have the same
    seed and fold.
    """
    found: dict[int, dict[int, Run]] = {}
    for run in sorted(runs, key=lambda run: run.arguments.fold):
        if "test_predictions" in run.record:
            seed, fold = run.arguments.seed, run.arguments.fold
            if fold in found.setdefault(seed, {}):
                raise InputError(f"two runs of a system have seed {seed} and fold {fold}; give one of them")
            found[seed][fold] = run
    return found


def _rows(run: Run) -> np.ndarray:
    options = {name: getattr(run.arguments, name) for name in DATA_OPTIONS}
    return _load_rows(run.task or find_task(run.arguments), **options)


def _predictions(run: Run) -> np.ndarray:
    """Predictions of the test rows, (rows,), with class ids as in the rows: a model trained further has its own."""
    found, labels = np.array(run.record["test_predictions"]), run.record["task"].get("labels")
    order = positions(labels, find_task(run.arguments).labels) if labels else None
    return found if order is None else np.array(order)[found.astype(int)]


@lru_cache
def _load_rows(task: str | Task, **options) -> np.ndarray:
    """Label and number of each test row, (rows, 2): different folds of a file may have the same labels."""
    test = load_task(task, **options)["test"]
    return np.stack([np.array(test[column][:], dtype=float) for column in ("label", "row")], axis=1)
