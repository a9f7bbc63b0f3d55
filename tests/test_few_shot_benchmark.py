"""benchmarks.few_shot on small data, with a small encoder in both places."""

import json
from collections import Counter

import numpy as np
import pytest
from cli_models import save_encoder
from small_data import question_rows, write_rows

from benchmarks import few_shot


def test_the_sample_has_as_many_of_each_class():
    rows = {"text": [f"t{i}" for i in range(60)], "label": ["a", "b", "c"] * 20}
    texts, labels = few_shot.sample(rows, 4, seed=1)
    assert Counter(labels) == {"a": 4, "b": 4, "c": 4} and len(set(texts)) == 12
    assert all(rows["label"][int(text[1:])] == label for text, label in zip(texts, labels, strict=True))
    assert few_shot.sample(rows, 4, seed=1) == (texts, labels) != few_shot.sample(rows, 4, seed=2)


def test_pairs():
    train = ["a1", "a2", "b1", "b2"], ["a", "a", "b", "b"]
    found = few_shot.pairs(train, 1000, seed=0)
    assert len(found["label"]) == 4 * 2 * few_shot.PAIRS and Counter(found["label"])[1.0] == 4 * few_shot.PAIRS
    for first, second, label in zip(*found.values(), strict=True):
        assert (first[0] == second[0]) == (label == 1)
    assert len(few_shot.pairs(train, 7, seed=0)["label"]) == 7


@pytest.mark.slow
def test_report(tmp_path):
    encoder = save_encoder(tmp_path / "tiny-en")
    rows = [{"text": row["text"], "label": row["label"]} for row in question_rows(120)]
    write_rows(tmp_path / "sst2" / "train.jsonl.gz", rows)
    write_rows(tmp_path / "sst2" / "test.jsonl.gz", rows[:30])
    path = tmp_path / "few_shot.json"
    options = ["--data_dir", str(tmp_path), "--tasks", "sst2", "--repeats", "2", "--pairs", "64"]
    options += ["--encoder", encoder, "--minilm", encoder, "--output", str(path)]
    assert few_shot.main(options) == 0
    report = json.loads(path.read_text())
    unfinished = {**report, "rows": report["rows"][:3]}
    path.write_text(json.dumps(unfinished))
    assert few_shot.main(options) == 0
    again = json.loads(path.read_text())["rows"]
    assert again[:3] == unfinished["rows"]
    assert [row["accuracy"] for row in again] == [row["accuracy"] for row in report["rows"]]
    counts = Counter(row["system"] for row in report["rows"])
    assert len(counts) == 5 and set(counts.values()) == {4}
    accuracies = {(row["system"], row["shots"], row["seed"]): row["accuracy"] for row in report["rows"]}
    assert accuracies["encoder, probe", 8, 42] == accuracies["minilm, probe", 8, 42]
    assert min(accuracies.values()) > 100 / 3 and np.ptp(list(accuracies.values())) > 0
    assert "| encoder, classifier |" in path.with_suffix(".md").read_text()
