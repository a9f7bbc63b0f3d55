"""Whether two systems differ by more than the choice of test rows explains."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy import stats

from hf_blosan.tasks import load_task

from .runner import Run

METRICS = {
    "test_accuracy": lambda predictions, labels: np.mean(predictions == labels),
    "test_pearson": lambda predictions, labels: stats.pearsonr(predictions, labels).statistic,
    "test_spearmanr": lambda predictions, labels: stats.spearmanr(predictions, labels).statistic,
    "test_mse": lambda predictions, labels: np.mean((predictions - labels) ** 2),
}

LOWER_IS_BETTER = ("test_mse",)


def paired_bootstrap(
    figure: str, first: list[Run], second: list[Run], *, samples: int = 2000, seed: int = 0
) -> tuple[float, float, float] | None:
    """Mean of (first - second) and its 95 % percentile interval over resampled test rows (Koehn 2004).

    Every sample has the same rows for both systems and all seeds. The figure is the mean over the seeds for which both
    have finished the same folds, each over the test rows of these folds together.

    Args:
        figure: a figure of a record.
        first, second: finished runs of two systems on one task.
        samples, seed: of the bootstrap.

    Returns:
        ``(mean, low, high)``, or None: the figure is not in METRICS, the systems have no seed in common, or their
        folds depend on the seed.
    """
    systems = [_by_seed(runs) for runs in (first, second)]
    seeds = [s for s in systems[0] if s in systems[1] and systems[0][s].keys() == systems[1][s].keys()]
    if figure not in METRICS or not seeds:
        return None
    labels = [np.concatenate([_labels(run) for run in systems[0][s].values()]) for s in seeds]
    if any(not np.array_equal(labels[0], others) for others in labels):
        return None
    predictions = [
        [np.concatenate([_predictions(run) for run in system[s].values()]) for s in seeds] for system in systems
    ]
    metric, labels = METRICS[figure], labels[0]

    def difference(rows: np.ndarray) -> float:
        one, other = (np.mean([metric(p[rows], labels[rows]) for p in system]) for system in predictions)
        return one - other

    rows = np.arange(len(labels))
    options = {"n_resamples": samples, "method": "percentile", "vectorized": False, "rng": seed}
    low, high = stats.bootstrap((rows,), difference, **options).confidence_interval
    return float(difference(rows)), float(low), float(high)


def paired_p_value(figure: str, first: list[Run], second: list[Run]) -> float | None:
    """The p-value of a paired t-test over the seeds and folds that both systems have; None for fewer than three."""
    systems = [
        {(run.arguments.seed, run.arguments.fold): run.record["figures"][figure] for run in runs}
        for runs in (first, second)
    ]
    common = [key for key in systems[0] if key in systems[1]]
    if len(common) < 3:
        return None
    return float(stats.ttest_rel(*([system[key] for key in common] for system in systems)).pvalue)


def _by_seed(runs: list[Run]) -> dict[int, dict[int, Run]]:
    """Runs whose predictions are recorded, by seed and fold, folds in order."""
    found: dict[int, dict[int, Run]] = {}
    for run in sorted(runs, key=lambda run: run.arguments.fold):
        if "test_predictions" in run.record:
            found.setdefault(run.arguments.seed, {})[run.arguments.fold] = run
    return found


def _predictions(run: Run) -> np.ndarray:
    return np.array(run.record["test_predictions"].split(), dtype=float)


def _labels(run: Run) -> np.ndarray:
    names = ("data_dir", "num_folds", "validation_fraction", "max_train_samples", "max_eval_samples", "seed", "fold")
    return _load_labels(run.task, **{name: getattr(run.arguments, name) for name in names})


@lru_cache
def _load_labels(task: str, **options) -> np.ndarray:
    return np.array(load_task(task, **options)["test"]["label"], dtype=float)
