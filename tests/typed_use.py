"""How users call the package, for `make types`: mypy checks the types of what it offers. Not run."""

from pathlib import Path
from typing import Any, assert_type

import datasets
import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

import hf_blosan
from hf_blosan import functional as F
from hf_blosan.analysis import Explanation, explain
from hf_blosan.data import make_demo_corpus
from hf_blosan.errors import InputError
from hf_blosan.estimators import SentenceClassifier, SentenceRegressor
from hf_blosan.hub import write_model_card
from hf_blosan.tasks import load_task
from hf_blosan.training import RunArguments, build_optimizer, l2_penalty, parse_arguments, train


def operators(k: torch.Tensor, q: torch.Tensor, x: torch.Tensor, mask: torch.Tensor) -> None:
    assert_type(F.directional_attention(k, q, x, direction="forward", key_mask=mask, window=3), torch.Tensor)
    assert_type(F.source2token_attention(k, x, mask=mask), torch.Tensor)
    assert_type(F.tensorized_attention(q, k, x, k, directions=["forward"], implementation="fused"), torch.Tensor)
    assert_type(F.linear_recurrence(k, x), torch.Tensor)
    assert_type(F.order_mask(7, "backward"), torch.Tensor)
    assert_type(F.optimal_block_length(20.0), int)


def models(folder: Path, ids: torch.Tensor) -> None:
    config = hf_blosan.DiSANConfig(vocab_size=100, hidden_size=64, directions=["forward", "backward"])
    assert_type(config.hidden_size, int)
    model = hf_blosan.DiSANModel(config)
    model.save_pretrained(folder)
    assert_type(model.set_attn_implementation("linear"), None)
    classifier = hf_blosan.MTSAForSequenceClassification(hf_blosan.MTSAConfig(num_heads=2))
    for module in (model, classifier):
        module(input_ids=ids)
    assert_type(hf_blosan.__version__, str)
    assert_type(hf_blosan.pretrained("name"), str)


def training() -> float:
    arguments = RunArguments(task_name="demo", encoder="disan", output_dir="out", num_train_epochs=2)
    assert_type(parse_arguments(["--task_name", "demo"]), RunArguments)
    try:
        record = train(arguments)
    except InputError as error:
        raise SystemExit(str(error)) from error
    assert_type(record, dict[str, Any])
    assert_type(write_model_card("out", record), Path)
    return float(record["figures"]["test_accuracy"])


def parts(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    assert_type(build_optimizer(model, "adamw", 1e-3, weight_decay=0.01), torch.optim.Optimizer)
    assert_type(l2_penalty(model, 1e-4), torch.Tensor)
    assert_type(explain(model, tokenizer, "a sentence"), Explanation)
    assert_type(load_task("trec", data_dir="data", seed=1), datasets.DatasetDict)
    assert_type(make_demo_corpus(), datasets.DatasetDict)


def estimators(folder: Path) -> None:
    classifier = SentenceClassifier(None, encoder="disan", learning_rate=1e-3, config_overrides={"dropout": 0.1})
    assert_type(classifier.fit(["a", "b"], [0, 1]), SentenceClassifier)
    assert_type(classifier.predict(["a"]), np.ndarray)
    assert_type(classifier.predict_proba(["a"]), np.ndarray)
    assert_type(classifier.save_pretrained(folder), None)
    assert_type(SentenceRegressor("a/model").fit([("a", "b")], [0.5]).predict([("a", "b")]), np.ndarray)
