"""Metrics as ``evaluate.Metric`` classes that need no network.

``evaluate.load`` fetches a script from the Hub; these classes are instantiated directly and otherwise behave the same
(``compute``, ``add_batch``, ``evaluate.combine``). Every result is a Python float. GLUE's metrics are combinations of
them: MRPC and QQP accuracy and F1, CoLA Matthews, STS-B Pearson and Spearman.
"""

from __future__ import annotations

import math

import datasets
import evaluate
import numpy as np
from scipy import stats
from sklearn import metrics as sklearn_metrics

from .errors import InputError
from .tasks import Task

_INPUTS = """
Args:
    predictions: predicted {what}, one a row.
    references: true {what}, one a row.
"""


class _OfflineMetric(evaluate.Metric):
    """Common parts: subclasses give ``description``, ``value_type`` and ``_compute``."""

    description: str
    citation: str
    value_type: str

    def _info(self) -> evaluate.MetricInfo:
        what = "class ids" if self.value_type == "int64" else "scores"
        value = datasets.Value(self.value_type)
        return evaluate.MetricInfo(
            description=self.description,
            citation=self.citation,
            inputs_description=_INPUTS.format(what=what),
            features=datasets.Features({"predictions": value, "references": value}),
        )


class Accuracy(_OfflineMetric):
    """``accuracy``: share of the rows whose class is predicted right, 0 to 1."""

    description = "Share of the rows whose predicted class is the true one."
    citation = "scikit-learn, sklearn.metrics.accuracy_score"
    value_type = "int64"

    def _compute(self, predictions, references) -> dict[str, float]:
        return {"accuracy": float(sklearn_metrics.accuracy_score(references, predictions))}


class F1(_OfflineMetric):
    """``f1``: harmonic mean of precision and recall of class 1, 0 to 1; 0 if that class is never met nor predicted."""

    description = "Harmonic mean of the precision and the recall of class 1."
    citation = "scikit-learn, sklearn.metrics.f1_score"
    value_type = "int64"

    def _compute(self, predictions, references) -> dict[str, float]:
        return {"f1": float(sklearn_metrics.f1_score(references, predictions, zero_division=0))}


class MatthewsCorrelation(_OfflineMetric):
    """``matthews_correlation``: -1 to 1; 0 for constant predictions, by the usual definition."""

    description = "Matthews correlation coefficient of predicted and true classes."
    citation = "scikit-learn, sklearn.metrics.matthews_corrcoef"
    value_type = "int64"

    def _compute(self, predictions, references) -> dict[str, float]:
        return {"matthews_correlation": float(sklearn_metrics.matthews_corrcoef(references, predictions))}


class Pearson(_OfflineMetric):
    """``pearson``: linear correlation, -1 to 1.

    It is NaN where it is undefined: fewer than two rows, or constant predictions or references. A 0 would pass for a
    measured absence of correlation; NaN compares as worse than every number, so no checkpoint is chosen for it.
    """

    description = "Pearson's linear correlation of predicted and true scores."
    citation = "SciPy, scipy.stats.pearsonr"
    value_type = "float64"

    def _compute(self, predictions, references) -> dict[str, float]:
        return {"pearson": _correlation(stats.pearsonr, predictions, references)}


class Spearman(_OfflineMetric):
    """``spearmanr``: rank correlation, -1 to 1; NaN where it is undefined, as in :class:`Pearson`."""

    description = "Spearman's rank correlation of predicted and true scores."
    citation = "SciPy, scipy.stats.spearmanr"
    value_type = "float64"

    def _compute(self, predictions, references) -> dict[str, float]:
        return {"spearmanr": _correlation(stats.spearmanr, predictions, references)}


class MeanSquaredError(_OfflineMetric):
    """``mse``: mean squared difference, in squared score units; smaller is better."""

    description = "Mean squared difference of predicted and true scores."
    citation = "scikit-learn, sklearn.metrics.mean_squared_error"
    value_type = "float64"

    def _compute(self, predictions, references) -> dict[str, float]:
        return {"mse": float(sklearn_metrics.mean_squared_error(references, predictions))}


METRICS: dict[str, type[evaluate.Metric]] = {
    metric.__name__: metric for metric in (Accuracy, F1, MatthewsCorrelation, Pearson, Spearman, MeanSquaredError)
}
"""Every metric by class name, as :attr:`Task.metrics` names them."""


def task_metrics(task: Task) -> evaluate.CombinedEvaluations:
    """The metrics of a task as one object.

    ``task_metrics(task).compute(predictions=..., references=...)`` returns a flat dict of floats. Class ids for
    classification, scores for regression, one a row. Values are kept in memory, so that several processes never share
    a file.

    Raises:
        InputError: the task names a metric there is none of.
    """
    unknown = [name for name in task.metrics if name not in METRICS]
    if unknown:
        raise InputError(f"task {task.name} has unknown metric {unknown[0]!r}; choose from {', '.join(METRICS)}")
    return evaluate.combine([METRICS[name](keep_in_memory=True) for name in task.metrics])


def _correlation(function, predictions, references) -> float:
    if len(references) < 2 or np.ptp(predictions) == 0 or np.ptp(references) == 0:
        return math.nan
    return float(function(predictions, references).statistic)
