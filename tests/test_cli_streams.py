"""`hf-blosan predict` and `encode`: their files are right in every format."""

import csv
import io
import json
import re
import sys

import numpy as np
import pyarrow.parquet
import pytest
import torch
from cli_models import refused, save
from small_data import pair_rows, question_rows, read_lines, write_backbone, write_rows
from tqdm import tqdm
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DistilBertConfig,
    DistilBertModel,
    pipeline,
)

import hf_blosan
from hf_blosan.cli.commands import main
from hf_blosan.hub.saved import load
from hf_blosan.inference.batches import Batches
from hf_blosan.tasks import classification
from hf_blosan.tasks.classification import tokenize_texts
from hf_blosan.tasks.kinds import kind_of


class TestPredict:
    def test_as_the_pipeline_in_every_format(self, classifier, question_file, tmp_path, small_buffer):
        classify = pipeline("text-classification", classifier)
        expected = [classify(row["text"])[0] for row in question_rows(50)]
        for name in ("o.jsonl", "o.csv", "o.parquet"):
            assert main(["predict", classifier, question_file, str(tmp_path / name), "--batch-size", "4"]) == 0
        table = pyarrow.parquet.read_table(tmp_path / "o.parquet").to_pylist()
        with (tmp_path / "o.csv").open() as file:
            cells = [{"label": row["label"], "score": float(row["score"])} for row in csv.DictReader(file)]
        for found in (read_lines(tmp_path / "o.jsonl"), table, cells):
            assert [row["label"] for row in found] == [row["label"] for row in expected]
            np.testing.assert_allclose([row["score"] for row in found], [row["score"] for row in expected], atol=1e-6)
        assert not list(tmp_path.glob(".*"))

    def test_probabilities(self, classifier, question_file, tmp_path):
        assert main(["predict", classifier, question_file, str(tmp_path / "o.jsonl"), "--probabilities"]) == 0
        for row in read_lines(tmp_path / "o.jsonl"):
            probabilities = {name: row[f"probability_{name}"] for name in ("animal", "colour", "number")}
            assert sum(probabilities.values()) == pytest.approx(1, abs=1e-6)
            assert row["label"] == max(probabilities, key=probabilities.get) and row["score"] == max(
                probabilities.values()
            )

    @pytest.mark.parametrize("size", ["1", "64"])
    def test_scores_of_pairs(self, size, scorer, tmp_path):
        rows = [{"n": i, "b": row["sentence2"], "a": row["sentence1"]} for i, row in enumerate(pair_rows(30))]
        rows[3]["b"] = ""
        source, output = write_rows(tmp_path / "pairs.jsonl", rows), tmp_path / "o.csv"
        columns = ["--text_column_name", "a", "--text_pair_column_name", "b"]
        assert main(["predict", scorer, str(source), str(output), *columns, "--batch_size", size]) == 0
        model, tokenizer = (
            AutoModelForSequenceClassification.from_pretrained(scorer),
            AutoTokenizer.from_pretrained(scorer),
        )
        batch = tokenizer([row["a"] for row in rows], [row["b"] for row in rows], padding=True, return_tensors="pt")
        with torch.no_grad():
            expected = model(**batch).logits[:, 0]
        found = [float(row["score"]) for row in csv.DictReader(output.open())]
        np.testing.assert_allclose(found, expected, atol=1e-5)

    @pytest.mark.parametrize("lines", ["a cat\n\nred\n", '{"text": "a cat"}\n{"text": ""}\n{"text": "red"}\n'])
    @pytest.mark.parametrize("size", ["1", "64"])
    def test_standard_input_and_output(self, size, lines, classifier, monkeypatch, capsysbinary):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
        assert main(["predict", classifier, "--batch_size", size]) == 0
        rows = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
        classify = pipeline("text-classification", classifier)
        assert [row["score"] for row in rows] == pytest.approx([classify(t)[0]["score"] for t in ("a cat", "", "red")])

    def test_long_texts_are_truncated_and_counted(self, classifier, question_file, tmp_path, caplog):
        """The warning has a line of its own, not the progress bar's."""
        bars = []
        with caplog.filtering(lambda entry: bars.append((entry.levelname, len(tqdm._instances))) or True):
            assert main(["predict", classifier, question_file, str(tmp_path / "o.csv"), "--max_length", "3"]) == 0
        (message,) = [entry.getMessage() for entry in caplog.records if entry.levelname == "WARNING"]
        assert re.match(r"texts with more than 3 tokens \(the longest has 12\) were truncated: \d+; ", message)
        assert ("WARNING", 0) in bars

    @pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv"])
    def test_a_line_of_any_length_costs_no_more_than_a_long_one(
        self, suffix, classifier, tmp_path, caplog, monkeypatch
    ):
        long, short, seen = "the cat of in " * 100_000, "red dog", []
        rows = write_rows(tmp_path / f"rows{suffix}", [{"text": short}, {"text": long}]) if suffix != ".txt" else None
        if rows is None:
            rows = tmp_path / "rows.txt"
            rows.write_text(f"{short}\n{long}\n")
        with monkeypatch.context() as patch:
            tokenize = classification.tokenize_texts
            see = lambda texts, *options, **named: seen.extend(texts) or tokenize(texts, *options, **named)  # noqa: E731
            patch.setattr(classification, "tokenize_texts", see)
            assert main(["predict", classifier, str(rows), str(tmp_path / "o.jsonl")]) == 0
        assert max(len(text) for (text,) in seen) == 61_200
        message = "texts with more than 61200 characters, of which no more were tokenized: 1"
        assert message in caplog.text
        classify = pipeline("text-classification", classifier)
        expected = [classify(text, truncation=True)[0]["score"] for text in (short, long)]
        assert [row["score"] for row in read_lines(tmp_path / "o.jsonl")] == pytest.approx(expected, abs=1e-6)

    def test_rows_are_alike_whether_truncated_or_not(self, classifier, scorer):
        """A server computes them in one batch."""
        for name, texts in ((classifier, [("a b c",), ("a",)]), (scorer, [("a b c", "d"), ("a", "")])):
            model, tokenizer = load(name, None, cpu=True)
            batches = Batches(model, tokenizer, kind_of(model.config), batch_size=64, max_length=3)
            cut, rows = tokenize_texts(texts, tokenizer, 3), tokenize_texts(texts, tokenizer)
            assert [list(row) for row in cut] == [list(row) for row in rows]
            assert cut[1] == rows[1] and [len(row["input_ids"]) for row in cut] == [3, 1]
            assert len(rows[0]["input_ids"]) == sum(len(text.split()) for text in texts[0])
            assert batches.forward([cut[0], rows[1]]).shape[0] == 2

    def test_a_model_and_a_tokenizer_from_elsewhere(self, tmp_path, caplog, capsys):
        """The model has no number of sentences, the tokenizer no limit but that of the positions."""
        folder = write_backbone(tmp_path / "bert", ["a"])
        AutoModelForSequenceClassification.from_pretrained(folder).save_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.model_max_length = 10**30
        tokenizer.save_pretrained(folder)
        rows = write_rows(tmp_path / "rows.jsonl", [{"text": "a " * length} for length in (400, 0, 3)])
        assert main(["predict", str(folder), str(rows), str(tmp_path / "o.jsonl"), "--cpu"]) == 0
        assert [row["label"][:-1] for row in read_lines(tmp_path / "o.jsonl")] == ["LABEL_"] * 3
        assert (
            "more than 320 tokens (the longest has 402) were truncated: 1; the model has no positions" in caplog.text
        )
        for command, options, problem in (
            ("predict", ["--max_length", "400"], "--max_length is 400, but the model has 320 positions; use that"),
            ("bench", ["--lengths", "400"], "--lengths is 400, but the model has 320 positions; use that"),
            ("predict", ["--max_length", "2"], "--max_length is 2; use 3 or more tokens"),
            ("serve", ["--batch_tokens", "2"], "--batch_tokens is 2; use 3 or more tokens"),
        ):
            files = [str(rows), str(tmp_path / "p.jsonl")] if command == "predict" else []
            assert problem in refused(capsys, command, folder, *files, *options, "--cpu")

    def test_pairs_and_tags_of_models_from_elsewhere(self, tmp_path, capsys):
        folder = write_backbone(tmp_path / "bert", ["a", "b"])
        classifier = AutoModelForSequenceClassification.from_pretrained(folder)
        classifier.save_pretrained(folder)
        output = str(tmp_path / "o.jsonl")
        words = ["predict", str(folder), str(write_rows(tmp_path / "p.csv", [{"one": "a a", "two": "b"}])), output]
        assert "the model takes one text a row, but" in refused(capsys, *words, "--cpu")
        assert main([*words, "--text_column_name", "one", "--text_pair_column_name", "two", "--cpu"]) == 0
        classify = pipeline("text-classification", str(folder), device="cpu")
        (expected,) = classify([{"text": "a a", "text_pair": "b"}])
        assert read_lines(output)[0] == pytest.approx(expected, abs=1e-6)
        labels = {"id2label": {0: "O", 1: "B-X"}, "label2id": {"O": 0, "B-X": 1}}
        tagger = AutoModelForTokenClassification.from_pretrained(folder, **labels)
        tagger.save_pretrained(folder)
        words = ["predict", str(folder), str(write_rows(tmp_path / "w.jsonl", [{"tokens": ["a", "b", "c"]}])), output]
        assert main([*words, "--overwrite", "--cpu"]) == 0
        tokenizer = AutoTokenizer.from_pretrained(folder)
        with torch.no_grad():
            inputs = tokenizer(["a", "b", "c"], is_split_into_words=True, return_tensors="pt")
            tags = tagger.eval()(**inputs).logits[0, 1:-1].argmax(1)  # B-X may follow any tag
        assert read_lines(output) == [{"tags": [labels["id2label"][tag] for tag in tags.tolist()]}]

    def test_texts_longer_than_a_backbone(self, tmp_path, caplog):
        """More tokens would be refused, so the warning does not ask for them."""
        folder = write_backbone(tmp_path / "bert", ["a"])
        model = hf_blosan.DiSANForSequenceClassification(hf_blosan.DiSANConfig(backbone=str(folder), hidden_size=8))
        tokenizer = AutoTokenizer.from_pretrained(folder)
        for limit, remedy in ((None, "increase --max_length"), (320, "the model has no positions for more")):
            batches = Batches(model.eval(), tokenizer, kind_of(model.config), batch_size=2, max_length=limit)
            batches([("a " * 400,)])
            batches.report()
            assert f"more than {limit or 300} tokens (the longest has 402) were truncated: 1; {remedy}" in caplog.text


class TestEncode:
    @pytest.mark.parametrize(
        ("fields", "why"), [({"pooling": "none"}, 'has pooling="none"'), ({"predicate_size": 2}, "needs predicates")]
    )
    def test_encoders_without_sentence_vectors(self, fields, why, question_file, tmp_path, capsys):
        folder = save(tmp_path / "model", question_rows(6), hf_blosan.DiSANModel, **fields)
        message = refused(capsys, "encode", folder, question_file, tmp_path / "o.npy")
        assert why in message and message.endswith("gives no sentence vectors; give another one")

    def test_the_pooled_output_in_every_format(self, classifier, question_file, tmp_path, small_buffer):
        model, tokenizer = AutoModel.from_pretrained(classifier), AutoTokenizer.from_pretrained(classifier)
        with torch.no_grad():
            texts = [row["text"] for row in question_rows(50)]
            expected = model(**tokenizer(texts, padding=True, return_tensors="pt")).pooler_output.numpy()
        for name in ("o.npy", "o.jsonl", "o.parquet"):
            assert main(["encode", classifier, question_file, str(tmp_path / name), "--batch_size", "4"]) == 0
        vectors = np.load(tmp_path / "o.npy", mmap_mode="r")
        assert vectors.dtype == np.float32 and vectors.shape == (50, 8)
        np.testing.assert_allclose(vectors, expected, atol=1e-6)
        table = pyarrow.parquet.read_table(tmp_path / "o.parquet")["vector"].to_pylist()
        for found in (table, [row["vector"] for row in read_lines(tmp_path / "o.jsonl")]):
            np.testing.assert_array_equal(np.array(found, dtype=np.float32), vectors)

    def test_parquet_needs_pyarrow_before_the_first_row(
        self, classifier, question_file, tmp_path, monkeypatch, capsys
    ):
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        for command in ("encode", "predict"):
            message = refused(capsys, command, classifier, question_file, tmp_path / "o.parquet")
            assert message == f"error: writing {tmp_path}/o.parquet needs pyarrow: pip install pyarrow"
        assert not list(tmp_path.glob("*o.parquet*"))

    def test_a_link_stays_one(self, classifier, question_file, tmp_path):
        (tmp_path / "link.npy").symlink_to(tmp_path / "vectors.npy")
        assert main(["encode", classifier, str(question_file), str(tmp_path / "link.npy")]) == 0
        assert (tmp_path / "link.npy").is_symlink() and len(np.load(tmp_path / "vectors.npy")) == 50

    def test_both_texts(self, scorer, tmp_path, capsys):
        source = write_rows(tmp_path / "pairs.jsonl", pair_rows(20))
        message = refused(capsys, "encode", scorer, source, tmp_path / "o.npy")
        assert "two columns of texts, sentence1 and sentence2; name one with --text_column_name" in message
        columns = ["--text_column_name", "sentence1", "--text_pair_column_name", "sentence2"]
        for name in ("o.npy", "o.jsonl", "o.parquet"):
            assert main(["encode", scorer, str(source), str(tmp_path / name), *columns]) == 0
        assert (
            main(["encode", scorer, str(source), str(tmp_path / "second.npy"), "--text_column_name", "sentence2"]) == 0
        )
        both = np.load(tmp_path / "o.npy")
        assert both.shape == (20, 2, 8)
        np.testing.assert_allclose(both[:, 1], np.load(tmp_path / "second.npy"), atol=1e-6)
        for rows in (read_lines(tmp_path / "o.jsonl"), pyarrow.parquet.read_table(tmp_path / "o.parquet").to_pylist()):
            np.testing.assert_array_equal(np.array([row["vector_pair"] for row in rows], dtype=np.float32), both[:, 1])


def test_an_encoder_that_pools_nothing(classifier, question_file, tmp_path, capsys):
    tokenizer = AutoTokenizer.from_pretrained(classifier)
    config = DistilBertConfig(vocab_size=len(tokenizer), dim=8, hidden_dim=8, n_layers=1, n_heads=1)
    for part in (DistilBertModel(config), tokenizer):
        part.save_pretrained(tmp_path / "model")
    message = refused(capsys, "encode", tmp_path / "model", question_file, tmp_path / "o.npy")
    assert "model gives no sentence vectors (pooler_output); give an encoder that pools its tokens" in message.replace(
        "'", ""
    )
