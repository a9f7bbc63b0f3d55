"""The metrics, compared with values computed by hand."""

from __future__ import annotations

import math

import evaluate
import pytest
import torch

from hf_blosan.errors import InputError
from hf_blosan.tasks import TASKS, Task
from hf_blosan.tasks.metrics import (
    F1,
    METRICS,
    Accuracy,
    MacroF1,
    MatthewsCorrelation,
    MeanSquaredError,
    Pearson,
    Spearman,
    task_metrics,
)

CLASSES = {"predictions": [1, 1, 1, 0, 0], "references": [1, 1, 0, 0, 1]}
SCORES = {"predictions": [1.0, 2.0, 4.0], "references": [1.0, 3.0, 5.0]}


@pytest.mark.parametrize(
    ("metric", "inputs", "expected"),
    [
        (Accuracy, CLASSES, {"accuracy": 3 / 5}),
        (F1, CLASSES, {"f1": 2 / 3}),
        (MacroF1, CLASSES, {"f1_macro": (2 / 3 + 1 / 2) / 2}),
        (MatthewsCorrelation, CLASSES, {"matthews_correlation": (2 * 1 - 1 * 1) / 6}),
        (Pearson, SCORES, {"pearson": 6 / math.sqrt(14 / 3 * 8)}),
        (Spearman, SCORES, {"spearmanr": 1.0}),
        (MeanSquaredError, SCORES, {"mse": 2 / 3}),
    ],
)
def test_values(metric, inputs, expected):
    result = metric(keep_in_memory=True).compute(**inputs)
    assert result == pytest.approx(expected)
    assert all(type(value) is float for value in result.values())
    assert METRICS[metric.__name__] is metric


@pytest.mark.parametrize("metric", [Pearson, Spearman])
@pytest.mark.parametrize("predictions", [[2.0, 2.0, 2.0], [1.0]])
def test_undefined_correlation_is_nan(metric, predictions):
    references = [1.0, 2.0, 3.0][: len(predictions)]
    (value,) = metric(keep_in_memory=True).compute(predictions=predictions, references=references).values()
    assert math.isnan(value)


def test_f1_without_positives_is_zero():
    assert F1(keep_in_memory=True).compute(predictions=[0, 0], references=[0, 0]) == {"f1": 0.0}


def test_batches_of_tensors_and_files():
    metric = Accuracy()
    metric.add_batch(predictions=torch.tensor([1, 0]), references=torch.tensor([1, 1]))
    metric.add_batch(predictions=torch.tensor([2]), references=torch.tensor([2]))
    assert metric.compute() == {"accuracy": pytest.approx(2 / 3)}


def test_metrics_combine_as_those_of_evaluate_do():
    combined = evaluate.combine([Accuracy(), F1()])
    assert combined.compute(**CLASSES) == pytest.approx({"accuracy": 3 / 5, "f1": 2 / 3})


@pytest.mark.parametrize(
    ("task", "names"),
    [
        ("trec", {"accuracy"}),
        ("mrpc", {"accuracy", "f1"}),
        ("cola", {"matthews_correlation"}),
        ("stsb", {"pearson", "spearmanr"}),
        ("sick_relatedness", {"pearson", "spearmanr", "mse"}),
    ],
)
def test_task_metrics(task, names):
    inputs = SCORES if TASKS[task].kind == "regression" else CLASSES
    metrics = task_metrics(TASKS[task])
    for prediction, reference in zip(inputs["predictions"], inputs["references"], strict=True):
        metrics.add_batch(predictions=[prediction], references=[reference])
    assert set(metrics.compute()) == names


def test_unknown_metric_is_named():
    task = Task(name="mine", title="mine", metrics=("Bleu",), local=TASKS["cr"].local)
    with pytest.raises(InputError, match="unknown metric 'Bleu'; choose from Accuracy"):
        task_metrics(task)
