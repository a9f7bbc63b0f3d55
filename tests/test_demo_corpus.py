"""The generated corpus: deterministic, balanced, and unlearnable without word order."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import RidgeClassifier
from sklearn.tree import DecisionTreeClassifier

from hf_blosan.data import make_demo_corpus
from hf_blosan.errors import InputError
from hf_blosan.tasks import load_task


@pytest.fixture(scope="module")
def corpus() -> DatasetDict:
    return make_demo_corpus()


def plain(sentence: str) -> str:
    """The sentence with each noun, verb and adjective replaced by one of its kind, and without the place."""
    for kind, word in (("cat|horse|bird|cow|pig", "dog"), ("boy|girl|woman|child|nurse", "man")):
        sentence = re.sub(rf"\b({kind})\b", word, sentence)
    kinds = {
        "dogs": "cats|horses|birds|cows|pigs|boys|girls|men|women|children|nurses",
        "chase": "follow|carry|pull|push|lead",
        "chases": "follows|carries|pulls|pushes|leads",
        "chased": "followed|carried|pulled|pushed|led",
        "wet": "hungry|quiet|tired|young|happy",
        "": " in the park| at night| near the old house",
    }
    for word, kind in kinds.items():
        sentence = re.sub(rf"({kind})$" if not word else rf"\b({kind})\b", word, sentence)
    return sentence


def test_demo_corpus_is_deterministic_balanced_and_free_of_shared_pairs(corpus):
    assert {split: len(rows) for split, rows in corpus.items()} == {"train": 6402, "validation": 798, "test": 798}
    again = make_demo_corpus()
    assert all(corpus[split][:] == again[split][:] for split in corpus)
    assert corpus["test"][:] != make_demo_corpus(seed=14)["test"][:]
    pairs = [(row["sentence1"], row["sentence2"]) for rows in corpus.values() for row in rows]
    assert len(set(pairs)) == len(pairs)
    for rows in corpus.values():
        assert set(Counter(rows["label"]).values()) == {len(rows) // 3}
        assert 1 <= min(rows["score"]) < max(rows["score"]) <= 5
    lengths = [len(sentence.split()) for pair in pairs for sentence in pair]
    assert 4 <= min(lengths) and max(lengths) <= 12


def test_demo_labels_mean_what_the_sentences_say(corpus):
    """The labels of all pairs of a form, whatever their nouns, verbs and adjectives."""
    rows, labels = corpus["train"], defaultdict(list)
    for first, second, label in zip(*(rows[column] for column in ("sentence1", "sentence2", "label")), strict=True):
        labels[plain(first), plain(second)].append(rows.features["label"].int2str(label))
    for sentence1, sentence2, label in (
        ("the dog chases the man", "the man chases the dog", "contradiction"),
        ("the dog chases the man", "the man does not chase the dog", "entailment"),
        ("the dog does not chase the man", "the man does not chase the dog", "neutral"),
        ("the man is chased by the dog", "the dog is chased by the man", "contradiction"),
        ("the dog chases the man", "the man is chased by the dog", "entailment"),
        ("the dog chases the man", "the dog is chased by the man", "contradiction"),
        ("the dog chases the man", "the dog is not chased by the man", "entailment"),
        ("the dog chases the man", "the man is not chased by the dog", "contradiction"),
        ("the dog does not chase the man", "the man is chased by the dog", "contradiction"),
        ("the dog does not chase the man", "the dog is chased by the man", "neutral"),
        ("the dog does not chase the man", "the man is not chased by the dog", "entailment"),
        ("the dog is chased by the man", "the man chases the dog", "entailment"),
        ("the dog is not chased by the man", "the dog does not chase the man", "neutral"),
        ("not all dogs are wet", "all dogs are not wet", "neutral"),
        ("all dogs are not wet", "not all dogs are wet", "entailment"),
        ("all dogs are not wet", "some dogs are wet", "contradiction"),
        ("not all dogs are wet", "some dogs are wet", "neutral"),
    ):
        found = labels[sentence1, sentence2]
        assert len(found) > 1 and set(found) == {label}, (sentence1, sentence2)


def test_demo_words_say_nothing_that_only_their_order_says(corpus):
    """Every combination of words has two labels equally often in every split, so no bag of words is above one half."""
    for rows in corpus.values():
        labels = {}
        for row in rows:
            words = tuple(tuple(sorted(row[column].split())) for column in ("sentence1", "sentence2"))
            labels.setdefault(words, Counter())[row["label"]] += 1
        best = sum(max(counter.values()) for counter in labels.values()) / len(rows)
        assert best <= 0.55


@pytest.mark.parametrize("model", [RidgeClassifier(), DecisionTreeClassifier(max_depth=12, random_state=0)])
def test_demo_bag_of_words_baselines_stay_near_one_half(corpus, model):
    count = CountVectorizer(token_pattern=r"\S+").fit(
        corpus["train"]["sentence1"][:] + corpus["train"]["sentence2"][:]
    )

    def features(rows: Dataset) -> np.ndarray:
        first, second = (count.transform(rows[column]).toarray() for column in ("sentence1", "sentence2"))
        return np.concatenate([first, second, first - second, first * second], axis=1)

    model.fit(features(corpus["train"]), corpus["train"]["label"][:])
    accuracy = model.score(features(corpus["test"]), corpus["test"]["label"])
    assert 0.4 < accuracy < 0.6


@pytest.mark.parametrize("size", [59, 10_001])
def test_impossible_demo_sizes(size):
    with pytest.raises(InputError, match=f"size is {size}"):
        make_demo_corpus(size=size)


def test_demo_tasks(corpus):
    entailment, relatedness = load_task("demo", seed=1), load_task("demo_relatedness", seed=2)
    assert entailment["test"]["label"][:] == corpus["test"]["label"][:]
    assert relatedness["test"]["label"][:] == corpus["test"]["score"][:]
    assert entailment["test"]["sentence2"][:] == corpus["test"]["sentence2"][:]
