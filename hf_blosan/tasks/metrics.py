"""Metrics as ``evaluate.Metric`` classes that need no network.

``evaluate.load`` downloads a script from the Hub; these classes are instantiated directly and otherwise work the same
(``compute``, ``add_batch``, ``evaluate.combine``). All results are Python floats. GLUE's metrics are combinations of
them: MRPC and QQP accuracy and F1, CoLA Matthews, STS-B Pearson and Spearman.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import datasets
import evaluate
import numpy as np
import scipy.stats
import sklearn.metrics

from ..errors import InputError, require
from .tags import spans
from .task import Task


class _OfflineMetric(evaluate.Metric):
    """Common parts; subclasses define ``key``, ``value`` and ``score``; their docstrings describe them."""

    key: str
    value, what = datasets.Value("int64"), "class ids, one"
    score: Callable[..., float]

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=self.__doc__,
            citation="",
            inputs_description=f"predictions, references: predicted and true {self.what} per row.",
            features=datasets.Features({"predictions": self.value, "references": self.value}),
        )

    def _compute(self, predictions, references) -> dict[str, float]:
        return {self.key: float(self.score(references, predictions))}


class Accuracy(_OfflineMetric):
    """``accuracy``: fraction of correctly classified rows, 0 to 1."""

    key = "accuracy"
    score = staticmethod(sklearn.metrics.accuracy_score)


class F1(_OfflineMetric):
    """``f1``: harmonic mean of precision and recall of class 1; 0 if class 1 neither occurs nor is predicted."""

    key = "f1"
    score = staticmethod(partial(sklearn.metrics.f1_score, zero_division=0))


class MacroF1(_OfflineMetric):
    """``f1_macro``: mean over the classes that occur or are predicted of the harmonic mean of precision and recall."""

    key = "f1_macro"
    score = staticmethod(partial(sklearn.metrics.f1_score, average="macro", zero_division=0))


class MatthewsCorrelation(_OfflineMetric):
    """``matthews_correlation``: -1 to 1; 0 for constant predictions, by the usual definition."""

    key = "matthews_correlation"
    score = staticmethod(sklearn.metrics.matthews_corrcoef)


class Pearson(_OfflineMetric):
    """``pearson``: linear correlation, -1 to 1.

    NaN where undefined: for fewer than two rows, or constant predictions or references. 0 would look like a measured
    absence of correlation; NaN compares as worse than every number, so it wins against none.
    """

    key, value, what = "pearson", datasets.Value("float64"), "scores, one"
    correlation = staticmethod(scipy.stats.pearsonr)

    def score(self, references, predictions) -> float:
        if len(references) < 2 or np.ptp(predictions) == 0 or np.ptp(references) == 0:
            return math.nan
        return self.correlation(predictions, references).statistic


class Spearman(Pearson):
    """``spearmanr``: rank correlation, -1 to 1; NaN where undefined, as in :class:`Pearson`."""

    key = "spearmanr"
    correlation = staticmethod(scipy.stats.spearmanr)


class MeanSquaredError(_OfflineMetric):
    """``mse``: mean squared difference, in squared score units; smaller is better."""

    key, value, what = "mse", datasets.Value("float64"), "scores, one"
    score = staticmethod(sklearn.metrics.mean_squared_error)


class _TagMetric(_OfflineMetric):
    """Metrics of tag sequences: predictions and references are lists of tags such as ``B-PER``, one per row."""

    value, what = datasets.List(datasets.Value("string")), "tags, a list"


class SpanScores(_TagMetric):
    """``precision``, ``recall`` and ``f1`` of spans, 0 to 1, over all rows together, as seqeval counts them.

    A span is correct if its type and both ends are. A figure whose denominator is 0 is 0.
    """

    ignored: tuple[str, ...] = ()

    def _compute(self, predictions, references) -> dict[str, float]:
        predicted, true = ([self.spans(tags) for tags in rows] for rows in (predictions, references))
        right = sum(len(p & t) for p, t in zip(predicted, true, strict=True))
        found, wanted = sum(map(len, predicted)), sum(map(len, true))
        return {
            "precision": right / found if found else 0.0,
            "recall": right / wanted if wanted else 0.0,
            "f1": 2 * right / (found + wanted) if right else 0.0,
        }

    def spans(self, tags: list[str]) -> set[tuple[str, int, int]]:
        """The spans of a row that count."""
        return {span for span in spans(tags) if span[0] not in self.ignored}


class ArgumentScores(SpanScores):
    """Like :class:`SpanScores`, for semantic roles: the predicate itself, type V, does not count.

    Also ``complete``: the fraction of rows (propositions) with all arguments correct.
    """

    ignored = ("V",)

    def _compute(self, predictions, references) -> dict[str, float]:
        complete = [self.spans(p) == self.spans(t) for p, t in zip(predictions, references, strict=True)]
        return super()._compute(predictions, references) | {"complete": sum(complete) / len(complete)}


class TagAccuracy(_TagMetric):
    """``accuracy``: fraction of words with the correct tag, 0 to 1."""

    def _compute(self, predictions, references) -> dict[str, float]:
        right = [p == t for tags in zip(predictions, references, strict=True) for p, t in zip(*tags, strict=True)]
        return {"accuracy": sum(right) / len(right) if right else 0.0}


class SacreBLEU(_OfflineMetric):
    """``bleu``: BLEU of the corpus, 0 to 100, by sacreBLEU's defaults (tokenizer 13a, case counts; Post 2018)."""

    key, value, what = "bleu", datasets.Value("string"), "translations, as plain text, one"

    def _info(self) -> evaluate.MetricInfo:
        require("BLEU needs the package", "translation", "sacrebleu")
        return super()._info()

    @staticmethod
    def score(references, predictions) -> float:
        from sacrebleu import corpus_bleu

        return corpus_bleu(predictions, [references]).score


METRICS: dict[str, type[evaluate.Metric]] = {
    metric.__name__: metric
    for metric in (
        *(Accuracy, F1, MacroF1, MatthewsCorrelation, Pearson, Spearman, MeanSquaredError),
        *(SpanScores, ArgumentScores, TagAccuracy, SacreBLEU),
    )
}
"""Every metric by class name, as in :attr:`Task.metrics`."""


def task_metrics(task: Task) -> evaluate.CombinedEvaluations:
    """The metrics of a task as one object.

    ``task_metrics(task).compute(predictions=..., references=...)`` returns a flat dict of floats. The inputs are class
    ids for classification, scores for regression, lists of tags for tagging and texts for translation. Values are kept
    in memory, so processes never share a file. Raises InputError if the task names an unknown metric.
    """
    for name in task.metrics:
        if name not in METRICS:
            raise InputError(f"task {task.name} has unknown metric {name!r}; choose from {', '.join(METRICS)}")
    return evaluate.combine([METRICS[name](keep_in_memory=True) for name in task.metrics])
