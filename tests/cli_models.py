"""Small saved models for tests of the commands, and a command that is refused."""

from pathlib import Path

import torch
from small_data import pair_rows, question_rows

import hf_blosan
from hf_blosan.cli.commands import main
from hf_blosan.text.tokenization import build_tokenizer


def save(folder: Path, rows: list[dict], model_class: type, **config) -> str:
    """A model with random weights, and its tokenizer."""
    torch.manual_seed(0)
    tokenizer = build_tokenizer([text for row in rows for text in row.values() if isinstance(text, str)])
    config = {"vocab_size": len(tokenizer), "embedding_size": 6, "hidden_size": 8, "classifier_size": 8} | config
    model_class(model_class.config_class(**config)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def save_classifier(folder: Path) -> str:
    labels = {"id2label": {0: "animal", 1: "colour", 2: "number"}, "label2id": {"animal": 0, "colour": 1, "number": 2}}
    return save(folder, question_rows(60), hf_blosan.DiSANForSequenceClassification, **labels)


def save_scorer(folder: Path) -> str:
    return save(folder, pair_rows(60), hf_blosan.MTSAForPairRegression, num_sentences=2, num_heads=2)


def refused(capsys, *words) -> str:
    """Run a command that ends with one sentence and code 2; return the sentence."""
    assert main([str(word) for word in words]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    return lines[0]
