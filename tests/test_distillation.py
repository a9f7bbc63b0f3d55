"""A task distilled from a larger model that labels texts: here a BERT of two layers, or a model of this package."""

from dataclasses import replace

import datasets
import numpy as np
import pytest
import torch
from small_data import (
    FILLER,
    WORDS,
    options,
    pair_rows,
    prepared,
    question_rows,
    read_lines,
    tagging_rows,
    write_backbone,
    write_rows,
    write_splits,
)
from transformers import AutoTokenizer, BertForSequenceClassification, pipeline

from hf_blosan.cli.commands import main
from hf_blosan.data.columns import normal
from hf_blosan.errors import InputError
from hf_blosan.estimators import SentenceClassifier
from hf_blosan.tasks import TASKS
from hf_blosan.tasks.classification import Classification
from hf_blosan.tasks.kinds import find_kind
from hf_blosan.training import distillation, train
from hf_blosan.training.preparation import find_task
from hf_blosan.training.reporting import digests

LABELS = ["number", "Animal", "colour"]
"""Of the teacher; the task has them in another order."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("distillation")


@pytest.fixture(scope="module")
def bert(folder):
    """A transformer with random weights and the labels of the questions."""
    words = [*FILLER, *(word for words in WORDS.values() for word in words)]
    name = write_backbone(folder / "bert", words)
    labels = dict(enumerate(LABELS))
    options = {"id2label": labels, "label2id": {name: i for i, name in labels.items()}}
    model = BertForSequenceClassification.from_pretrained(name, **options)
    torch.manual_seed(1)
    for weight in model.parameters():
        if weight.dim() == 2:
            torch.nn.init.normal_(weight, std=0.5)
    model.save_pretrained(name)
    return name


@pytest.fixture(scope="module")
def questions(folder):
    return write_splits(folder / "questions", question_rows)


@pytest.fixture(scope="module")
def texts(folder, questions):
    """Texts without labels, among them one of the training rows, one of the test rows and a repetition."""
    rows = [{"text": row["text"], "other": "x"} for row in question_rows(40, seed=9)]
    train_row, test_row = (read_lines(questions[f"{name}_file"])[5] for name in ("train", "test"))
    known = [train_row["text"].upper(), f" {test_row['text']} !", rows[3]["text"]]
    return str(write_rows(folder / "texts.jsonl", [*({"text": text, "other": "x"} for text in known), *rows]))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of its own for each test."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path / "cache" / "hf_blosan"


def distilling(output, data, teacher, texts, **changes):
    return options(output, data, distill_from=str(teacher), unlabeled_file=str(texts), **changes)


class TestRows:
    def test_labels_are_the_teachers_probabilities(self, tmp_path, questions, texts, bert):
        _, found = prepared(distilling(tmp_path, questions, bert, texts))
        rows, gold = found.data["train"], read_lines(questions["train_file"])
        names = found.task.labels
        assert names == ("animal", "colour", "number") and found.num_taught_rows == len(rows) - len(gold)
        exact = [[float(name == row["label"]) for name in names] for row in gold]
        assert rows["labels"][: len(gold)] == exact
        classify = pipeline("text-classification", str(bert), top_k=None, device="cpu")
        known = {normal(row["text"]) for file in questions.values() for row in read_lines(file)}
        kept = {normal(row["text"]): row["text"] for row in reversed(read_lines(texts))}
        kept = [text for key, text in reversed(kept.items()) if key not in known]
        assert len(kept) == found.num_taught_rows < 40
        probabilities = [{answer["label"].lower(): answer["score"] for answer in row} for row in classify(kept)]
        expected = sorted([row[name] for name in names] for row in probabilities)
        assert np.ptp(expected, axis=0).min() > 0.05  # the teacher tells the texts apart
        np.testing.assert_allclose(sorted(rows["labels"][len(gold) :]), expected, atol=1e-5)
        assert len(found.data["validation"]["labels"]) == 21 and isinstance(found.data["validation"]["labels"][0], int)
        # Texts of held-out rows are left out also if these are not evaluated.
        _, fewer = prepared(distilling(tmp_path, questions, bert, texts, max_eval_samples=1))
        assert (
            fewer.num_taught_rows == found.num_taught_rows
            and len(fewer.data["test"]) == len(fewer.data["validation"]) == 1
        )

    def test_forms_of_unicode_are_the_same_text(self):
        composed, decomposed = "Le caf\u00e9 est bon", "LE CAFE\u0301 est bon!"
        held_out = {"test": datasets.Dataset.from_dict({"sentence1": [composed]})}
        assert distillation.without_known({1: (decomposed,), 2: ("le cafe",)}, held_out, ["sentence1"]) == {
            2: ("le cafe",)
        }

    def test_the_vocabulary_has_the_words_of_both(self, tmp_path, questions, bert):
        texts = write_rows(tmp_path / "texts.csv", [{"text": "the zebra"}])
        _, found = prepared(distilling(tmp_path, questions, bert, texts))
        assert "zebra" in found.tokenizer.get_vocab() and "cat" in found.tokenizer.get_vocab()

    def test_answers_are_computed_once(self, tmp_path, questions, texts, bert, cache, monkeypatch):
        calls, load = [], distillation.load
        monkeypatch.setattr(distillation, "load", lambda *args, **kwargs: calls.append(args) or load(*args, **kwargs))
        found = [
            prepared(distilling(tmp_path, questions, bert, texts, encoder=encoder, seed=seed))[1]
            for encoder, seed in (("disan", 1), ("biblosan", 2))
        ]
        assert len(calls) == len(list(cache.iterdir())) == 1
        assert found[0].data["train"]["labels"] == found[1].data["train"]["labels"]
        more = write_rows(tmp_path / "more.jsonl", [{"text": "one more cat"}])
        prepared(distilling(tmp_path, questions, bert, more))
        assert len(calls) == len(list(cache.iterdir())) == 2

    def test_names_come_before_positions(self):
        """As a student sees its own teacher's LABEL_10 before LABEL_2."""
        names = [f"LABEL_{i}" for i in range(12)]
        teacher, student = (
            Classification(replace(TASKS["trec"], labels=tuple(labels))) for labels in (names, sorted(names))
        )
        assert student.teachers_order(teacher) == [names.index(name) for name in sorted(names)]

    @pytest.mark.parametrize(
        "ours, theirs, order",
        [
            (["IT", "US", "it", "us"], ["us", "it", "US", "IT"], [3, 2, 1, 0]),
            (["IT", "it"], ["It", "it"], None),
            (["IT", "us"], ["Us", "it"], [1, 0]),
        ],
    )
    def test_labels_are_compared_exactly_first(self, ours, theirs, order):
        teacher, student = (Classification(replace(TASKS["trec"], labels=tuple(x))) for x in (theirs, ours))
        assert student.teachers_order(teacher) == order

    def test_what_texts_are_compared_by(self):
        assert normal("Who's there?") == normal("whos THERE") != normal("whose there")
        assert normal(":)") == ":)" != normal(":(") and normal("कि") != normal("की")

    def test_labels_without_names_are_in_the_order_of_the_task(self, tmp_path, questions, texts, bert, caplog):
        model = BertForSequenceClassification.from_pretrained(
            bert, id2label=None, label2id=None, num_labels=3, ignore_mismatched_sizes=True
        )
        model.config.id2label = {i: f"LABEL_{i}" for i in range(3)}
        model.save_pretrained(tmp_path / "unnamed")
        AutoTokenizer.from_pretrained(bert).save_pretrained(tmp_path / "unnamed")
        named, unnamed = (
            np.array(prepared(distilling(tmp_path, questions, name, texts))[1].data["train"]["labels"][56:])
            for name in (bert, tmp_path / "unnamed")
        )
        np.testing.assert_allclose(unnamed[:, [1, 2, 0]], named, atol=1e-6)
        assert caplog.text.count("are taken in the order of the task's: LABEL_0 for animal, LABEL_1 for colour") == 1
        model.config.problem_type = "multi_label_classification"
        model.save_pretrained(tmp_path / "unnamed")
        with pytest.raises(InputError, match="unnamed' gives a text several labels; give a model that gives it one"):
            prepared(distilling(tmp_path, questions, tmp_path / "unnamed", texts))

    def test_scores_of_pairs(self, tmp_path):
        data = write_splits(tmp_path, pair_rows)
        train(options(tmp_path / "teacher", data))
        texts = write_rows(tmp_path / "pairs.jsonl", pair_rows(30, seed=9))
        _, found = prepared(distilling(tmp_path / "student", data, tmp_path / "teacher", texts))
        assert main(["predict", str(tmp_path / "teacher"), str(texts), str(tmp_path / "scores.jsonl"), "--cpu"]) == 0
        scores = [row["score"] for row in read_lines(tmp_path / "scores.jsonl")]
        np.testing.assert_allclose(found.data["train"]["labels"][56:], scores, atol=1e-4)

    def test_a_transformer_that_scores_pairs(self, tmp_path, bert, caplog):
        """One number, without a range in its configuration, as cross-encoders have it."""
        data = write_splits(tmp_path, pair_rows)
        model = BertForSequenceClassification.from_pretrained(bert, num_labels=1, ignore_mismatched_sizes=True)
        torch.nn.init.normal_(model.classifier.weight, std=3.0)
        texts = write_rows(tmp_path / "pairs.jsonl", pairs := pair_rows(30, seed=9))
        tokenizer = AutoTokenizer.from_pretrained(bert)
        tokenizer.save_pretrained(tmp_path / "scorer")
        batch = tokenizer(*([row[name] for row in pairs] for name in ("sentence1", "sentence2")), padding=True)
        with torch.no_grad():
            raw = model.eval()(**{name: torch.tensor(ids) for name, ids in batch.items()}).logits[:, 0]
        assert raw.min() < 0 or raw.max() > 6  # the task has 1 to 5
        for problem_type in (None, "regression"):
            model.config.problem_type = problem_type
            model.save_pretrained(tmp_path / "scorer")
            caplog.clear()
            _, found = prepared(distilling(tmp_path, data, tmp_path / "scorer", texts))
            expected = raw.clamp(found.task.score_min, found.task.score_max)
            torch.testing.assert_close(torch.tensor(found.data["train"]["labels"][56:]), expected, rtol=0, atol=1e-4)
            assert "does it predict another range?" in caplog.text

    def test_scores_of_another_range(self, tmp_path):
        data = write_splits(tmp_path, pair_rows)
        train(options(tmp_path / "teacher", data, max_train_steps=1))
        halved = write_splits(
            tmp_path / "half", lambda *args: [row | {"score": row["score"] / 5} for row in pair_rows(*args)]
        )
        texts = write_rows(tmp_path / "pairs.jsonl", pair_rows(30, seed=9))
        with pytest.raises(InputError, match="predicts scores from 1 to 5, the task has 0 to 1; give a model"):
            prepared(distilling(tmp_path, halved, tmp_path / "teacher", texts))


class TestTraining:
    def test_loss_of_probabilities(self, tmp_path, questions):
        arguments = options(tmp_path, questions)
        kind, (_, found) = find_kind(find_task(arguments)), prepared(arguments)
        batch = found.collate([found.data["train"][i] for i in range(4)])
        soft = torch.tensor([[0.7, 0.2, 0.1], [0, 1, 0], [0.1, 0.1, 0.8], [1, 0, 0]])
        model = found.model.eval()
        logits = model(**batch).logits
        output = kind.outputs(model, batch | {"labels": soft})
        for smoothing in (0.0, 0.1):
            target = (1 - smoothing) * soft + smoothing / 3
            expected = -(target * logits.log_softmax(-1)).sum(-1).mean()
            torch.testing.assert_close(kind.loss(output, soft, smoothing), expected)
        ids = kind.loss(kind.outputs(model, batch), batch["labels"], 0.1)
        exact = torch.eye(3)[batch["labels"]]
        torch.testing.assert_close(kind.loss(output, exact, 0.1), ids)

    def test_a_student_learns_what_only_its_teacher_knows(self, tmp_path, folder):
        """Nine rows do not show which words matter; 150 texts with a teacher's answers do."""
        rows = write_splits(tmp_path / "many", question_rows, train=300, evaluation=60)
        few = rows | {"train_file": str(write_rows(tmp_path / "few.jsonl", question_rows(9, seed=5)))}
        texts = [{"text": row["text"]} for row in question_rows(150, seed=7)]
        texts = write_rows(tmp_path / "texts.parquet.jsonl", texts)
        common = {"num_train_epochs": 8, "config_overrides": "hidden_size=16,embedding_size=12,classifier_size=16"}
        teacher = train(options(tmp_path / "teacher", rows, **common))
        alone = train(options(tmp_path / "alone", few, **common))
        run = train(distilling(tmp_path / "student", few, tmp_path / "teacher", texts, **common))
        accuracy = [record["figures"]["test_accuracy"] for record in (teacher, alone, run)]
        assert accuracy[0] > 0.9 and accuracy[2] > accuracy[1] + 0.2, accuracy
        assert run["distillation"] == {
            "teacher": "teacher",
            "file": texts.name,
            "rows": run["data"]["rows"]["train"] - 9,
        }
        assert texts.name in run["data"]["sha256"] and alone["distillation"] is None
        card = (tmp_path / "student" / "README.md").read_text()
        assert f"training rows are texts of `{texts.name}`, labelled by `teacher`" in " ".join(card.split())


def test_estimators(folder, bert, texts, capfd):
    rows = question_rows(56)
    X, y = ([row[key] for row in rows] for key in ("text", "label"))
    sizes = {"hidden_size": 8, "embedding_size": 6, "classifier_size": 8}
    common = {"encoder": "disan", "num_train_epochs": 1, "config_overrides": sizes, "random_state": 1, "cpu": True}
    options = {"distill_from": str(bert), "unlabeled_file": texts}
    alone, taught = (SentenceClassifier(**common, options=given).fit(X, y) for given in (None, options))
    assert taught.predict_proba(X).shape == (56, 3) and abs(taught.predict_proba(X) - alone.predict_proba(X)).max() > 0
    assert "answers" not in capfd.readouterr().err  # a fit is silent


class TestBadInput:
    def test_both_options(self, tmp_path, questions):
        for one in ({"distill_from": "teacher"}, {"unlabeled_file": "texts.jsonl"}):
            with pytest.raises(InputError, match="--distill_from and --unlabeled_file.*give both"):
                options(tmp_path, questions, **one)

    @pytest.mark.parametrize(
        "make, teacher, rows, problem",
        [
            (question_rows, "nowhere", [{"text": "a cat"}], "no saved model at .*nowhere"),
            (question_rows, "bert", [{"sentence": "a cat"}], "texts.jsonl has no column 'text'"),
            (question_rows, "bert", [{"text": "a cat"}, {"text": None}], "row 2: text is null"),
            (question_rows, "bert", None, "every text of .* is one of the task"),
            (pair_rows, "bert", pair_rows(3), "predicts number, Animal, colour, the task has scores"),
            (tagging_rows, "bert", tagging_rows(3), "needs a task with a label or a score for each text or pair"),
        ],
    )
    def test_unusable(self, make, teacher, rows, problem, tmp_path, bert):
        data = write_splits(tmp_path, make)
        texts = write_rows(tmp_path / "texts.jsonl", rows) if rows else data["test_file"]
        name = bert if teacher == "bert" else tmp_path / teacher
        with pytest.raises(InputError, match=problem):
            prepared(distilling(tmp_path, data, name, texts))

    def test_other_labels(self, tmp_path, questions, bert):
        data = write_splits(
            tmp_path, lambda count, seed: [{"text": f"{i} a cat", "label": i % 2} for i in range(count)]
        )
        with pytest.raises(InputError, match="predicts number, Animal, colour, the task has 0, 1"):
            prepared(distilling(tmp_path, data, bert, questions["test_file"]))

    def test_a_teacher_of_pairs(self, tmp_path, questions):
        def pairs(*args):
            return [
                {"sentence1": "x", "sentence2": row["text"], "label": row["label"]} for row in question_rows(*args)
            ]

        data = write_splits(tmp_path, pairs)
        train(options(tmp_path / "pairs", data, max_train_steps=1))
        with pytest.raises(InputError, match="takes a pair of texts a row, the task has one text"):
            prepared(distilling(tmp_path, questions, tmp_path / "pairs", questions["test_file"]))

    def test_a_teacher_whose_answers_are_not_numbers(self, tmp_path, questions, texts, bert, cache):
        model = BertForSequenceClassification.from_pretrained(bert)
        torch.nn.init.constant_(model.classifier.bias, torch.nan)
        model.save_pretrained(tmp_path / "nan")
        AutoTokenizer.from_pretrained(bert).save_pretrained(tmp_path / "nan")
        with pytest.raises(InputError, match=r"--distill_from .*nan, the text '.*': .*nan"):
            prepared(distilling(tmp_path, questions, tmp_path / "nan", texts))
        assert not cache.exists()

    def test_a_cache_that_cannot_be_written(self, tmp_path, questions, texts, bert, cache):
        cache.parent.write_text("a file")
        with pytest.raises(InputError, match="cannot be written .* set HF_DATASETS_CACHE"):
            prepared(distilling(tmp_path, questions, bert, texts))


def test_the_file_is_part_of_the_data(tmp_path, questions, texts, bert):
    arguments = distilling(tmp_path, questions, bert, texts)
    assert "texts.jsonl" in digests(arguments, find_task(arguments))
