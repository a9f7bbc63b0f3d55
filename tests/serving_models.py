"""Models for tests of the server, and what its clients do: ask, read refusals and metrics, and wait."""

import time
from functools import cache

import torch
from small_data import pair_rows, question_rows

import hf_blosan
from hf_blosan.text.tokenization import build_tokenizer

SIZES = {"embedding_size": 6, "hidden_size": 8, "classifier_size": 8}
LABELS = {"id2label": dict(enumerate("abc")), "label2id": {label: i for i, label in enumerate("abc")}}
MODELS = {
    "labels": ("DiSANForSequenceClassification", LABELS),
    "pairs": ("MTSAForSequenceClassification", LABELS | {"num_sentences": 2}),
    "scores": ("BiBloSANForPairRegression", {"num_sentences": 2}),
    "vectors": ("DiSANModel", {}),
}
TEXTS = [row["text"] for row in question_rows(40)]
PAIRS = [{"text": row["sentence1"], "text_pair": row["sentence2"]} for row in pair_rows(40)]


@cache
def make_model(name: str):
    """A model of random weights and its tokenizer."""
    tokenizer = build_tokenizer([*TEXTS, *(text for pair in PAIRS for text in pair.values())], model_max_length=20)
    torch.manual_seed(0)
    model_class, config = MODELS[name]
    model_class = getattr(hf_blosan, model_class)
    config = model_class.config_class(vocab_size=len(tokenizer), **SIZES, **config)
    return model_class(config).eval(), tokenizer


def post(client, inputs, **options):
    return client.post("/", json={"inputs": inputs, **options})


def error(answer, status):
    """The sentence of a refusal."""
    assert answer.status_code == status, answer.text
    content = answer.json()
    assert content.keys() == {"error"} and content["error"][0].islower()
    return content["error"]


def metric(client, name):
    lines = [line.split() for line in client.get("/metrics").text.splitlines()]
    return sum(float(words[-1]) for words in lines if words[0].partition("{")[0] == f"hf_blosan_{name}")


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
