"""The table of tasks and settings."""

from __future__ import annotations

import math

import pytest

from hf_blosan.data.demo_corpus import LABELS
from hf_blosan.errors import InputError
from hf_blosan.registry import FAMILIES
from hf_blosan.tasks import TASKS, get_task
from hf_blosan.tasks.metrics import task_metrics
from hf_blosan.tasks.recipes import Recipe
from hf_blosan.tasks.regression import Regression


def test_unknown_task_names_the_choices():
    with pytest.raises(InputError, match="unknown task 'sst'; choose one of cola, cr, demo"):
        get_task("sst")
    assert get_task("trec") is TASKS["trec"]


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_tasks_are_consistent(task):
    assert TASKS[task.name] is task
    assert len(set(task.labels)) == len(task.labels)
    for source in filter(None, (task.local, task.hub)):
        assert len(source.text_columns) == task.num_sentences
        assert "train" in source.splits
        assert source.label_order is None or set(source.label_order) == set(task.labels)
        assert set(task.evaluation_splits) - {"validation"} <= set(source.splits)
    assert (task.hub is None) == (task.generated or bool(task.local.phrases) or task.kind == "tagging")
    if task.kind == "regression":
        assert task.labels == ()
        assert task.score_min < task.score_max and task.num_score_classes >= 2
        values = [task.score_min, task.score_max, task.score_max]
    elif task.kind == "translation":
        assert task.labels == ()
        values = ["Ein Hund rennt auf der Wiese."] * 3
    elif task.kind == "selection":
        assert task.labels == ()
        values = [0, 1, 7]
    else:
        assert len(task.labels) >= 2
        assert task.score_min is task.score_max is task.num_score_classes is None
        values = [0, 1, 1]
    if task.kind == "tagging":
        values = [["O", "B-V"], list(task.labels), ["O"]]
    results = task_metrics(task).compute(predictions=values, references=values)
    assert task.best_metric in results
    assert not any(math.isnan(value) for value in results.values())
    for encoder in FAMILIES:
        paper, modern = (task.recipe(encoder, name) for name in ("paper", "modern"))
        for recipe in (paper, modern):
            assert 0 <= recipe.dropout < 1 and 0 <= recipe.attention_dropout < 1
        layers = ("hidden_size", "classifier_highway", "classifier_bias", "activation", "classifier_size")
        changed = ["elu", 300] if task.kind == "selection" else [paper.activation, paper.classifier_size]
        released = [getattr(paper, name) for name in layers[:3]]
        assert [getattr(modern, name) for name in layers] == released + changed
        compared = task.recipe_family in ("snli", "sick")  # also of scores, whose head has |u - v| alone
        assert (paper.pair_features, modern.pair_features) == ("released", "absolute" if compared else "released")


def test_label_orders():
    assert TASKS["trec"].labels == ("ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM")
    assert len(TASKS["trec_fine"].labels) == 50
    assert TASKS["demo"].labels == LABELS == TASKS["snli"].labels
    # Local files and the Hub number the two classes the other way round.
    assert TASKS["subj"].labels == TASKS["subj"].hub.label_order[::-1]


def test_mnli_has_two_development_splits():
    assert TASKS["mnli"].evaluation_splits == ("validation", "validation_mismatched")
    assert (TASKS["mnli"].hub.location, TASKS["mnli"].hub.config) == ("nyu-mll/glue", "mnli")


@pytest.mark.parametrize(
    ("task", "encoder", "expected"),
    [
        ("snli", "disan", {"batch_size": 64, "dropout": 0.25, "l2": 5e-5, "activation": "elu", "hidden_size": 600}),
        ("snli", "biblosan", {"hidden_size": 480, "classifier_size": 240, "classifier_highway": True}),
        ("snli", "mtsa", {"batch_size": 128, "eval_batch_size": 160, "dropout": 0.35, "classifier_highway": True}),
        ("sst5", "disan", {"origin": "DiSAN SST-5", "dropout": 0.3, "l2": 1e-4, "classifier_bias": False}),
        ("trec", "biblosan", {"optimizer": "adadelta", "learning_rate": 0.5, "batch_size": 32, "dropout": 0.35}),
        ("trec", "mtsa", {"dropout": 0.5, "l2": 5e-5, "activation": "relu"}),
        ("cr", "biblosan", {"optimizer": "adam", "learning_rate": 0.001, "batch_size": 32, "dropout": 0.4}),
        ("cr", "mtsa", {"dropout": 0.525, "attention_dropout": 0.19, "batch_size": 64}),
        ("mpqa", "mtsa", {"dropout": 0.45, "attention_dropout": 0.0}),
        ("sick_relatedness", "disan", {"origin": "Bi-BloSAN SICK", "batch_size": 32, "classifier_bias": True}),
        ("rte", "mtsa", {"origin": "MTSA SNLI"}),
        ("snli", "birnn", {"activation": "relu", "hidden_size": 600, "classifier_highway": False, "batch_size": 128}),
        ("trec", "multihead", {"origin": "Bi-BloSAN TREC", "optimizer": "adadelta", "dropout": 0.35}),
        ("cr", "textcnn", {"origin": "Bi-BloSAN CR, MPQA and SUBJ", "optimizer": "adam", "hidden_size": 600}),
        ("sst2", "wordbag", {"origin": "Bi-BloSAN SST", "hidden_size": 300}),
    ],
)
def test_recorded_settings(task, encoder, expected):
    recipe = TASKS[task].recipe(encoder, "paper")
    assert isinstance(recipe, Recipe)
    assert {name: getattr(recipe, name) for name in expected} == expected


def test_unknown_encoder_names_the_choices():
    with pytest.raises(InputError, match="encoder 'bert'; choose one of .*biblosan, .*disan, "):
        TASKS["trec"].recipe("bert")


@pytest.mark.parametrize(
    ("scores", "low", "high", "classes"),
    [
        ([1.2, 2.3, 4.3], 1, 5, 5),
        ([0.013, 0.05], 0.01, 0.05, 5),
        ([0.2, 0.4, 0.9], 0, 1, 5),
        ([0.5, 0.4, 0.7], 0, 1, 5),
        ([0.52, 0.4, 0.5], 0.4, 0.6, 5),
        ([1.9, 3.1], 1, 4, 5),
        ([0.1 * 3, 0.2], 0.2, 0.4, 5),  # 0.1 * 3 is above 0.3
        ([-0.5, -0.42], -0.5, -0.42, 5),
        ([1e-300, 2e-300], 0, 1e-15, 5),
    ],
)
def test_the_range_of_scores_is_rounded_outward_by_their_spread(scores, low, high, classes):
    assert tuple(Regression.range_of(scores, "a.csv").values()) == (low, high, classes)
    assert tuple(Regression.range_of([low, high], "a.csv").values()) == (low, high, classes)
