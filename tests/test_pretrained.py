"""Encoders that come with the package: their names in commands and functions, and training heads on top of them."""

import json
import logging
import pickle
import subprocess
import sys
from inspect import getmembers
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
import torch
from cli_models import refused
from loopback_hub import LoopbackHub
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize
from small_data import (
    options,
    pair_rows,
    prepared,
    question_rows,
    read_lines,
    role_rows,
    squad_rows,
    tagging_rows,
    write_rows,
    write_splits,
)
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

import hf_blosan
from hf_blosan import registry
from hf_blosan.cli.commands import main
from hf_blosan.errors import InputError
from hf_blosan.hub import saved
from hf_blosan.hub.saved import identity, load
from hf_blosan.text.tokenization import load_tokenizer
from hf_blosan.training import train

TEXTS = ["a cat sat with two dogs", "the old horse", "who ?"]


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    return str(path)


def encoded(model: str, texts: str, folder: Path) -> np.ndarray:
    path = folder / "vectors.npy"
    assert main(["encode", model, texts, str(path), "--cpu"]) == 0
    return np.load(path)


class TestFunction:
    def test_its_folder_loads_everywhere(self, tiny_en, folder_of_encoders):
        path = hf_blosan.pretrained(tiny_en)
        assert path == str(folder_of_encoders / "tiny-en")
        assert type(AutoModel.from_pretrained(path)) is hf_blosan.DiSANModel
        assert AutoTokenizer.from_pretrained(path).tokenize("dogs") == load_tokenizer(tiny_en).tokenize("dogs")

    @pytest.mark.parametrize("name", ["tiny-de", "", "../pretrained/tiny-en", "TINY-EN"])
    def test_an_unknown_name_is_refused_with_those_that_there_are(self, tiny_en, name):
        with pytest.raises(InputError) as caught:
            hf_blosan.pretrained(name)
        assert str(caught.value) == f"no encoder {name!r} comes with hf_blosan; choose one of tiny-en"

    def test_a_copy_without_encoders_says_so(self, tmp_path, monkeypatch):
        monkeypatch.setattr(registry, "PRETRAINED", tmp_path / "none")
        with pytest.raises(InputError, match="comes with hf_blosan; this copy has none, install the package's wheel$"):
            hf_blosan.pretrained("tiny-en")

    @pytest.mark.parametrize("first", ["pass", "import hf_blosan.pretrained", "import hf_blosan.models.pretrained"])
    def test_the_folder_of_its_name_does_not_hide_it(self, first, tmp_path):
        """Also not one that holds no encoder yet, which Python imports as a module."""
        code = f"""
import sys
import hf_blosan
hf_blosan.__path__.append({str(tmp_path)!r})
{first}
import hf_blosan, types
from hf_blosan import pretrained
assert type(hf_blosan.pretrained) is types.FunctionType and hf_blosan.pretrained is pretrained
assert ("hf_blosan.pretrained" in sys.modules) == ({first!r} == "import hf_blosan.pretrained")
assert "torch" not in sys.modules or "models" in {first!r}
"""
        (tmp_path / "pretrained").mkdir()
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr

    def test_is_found_by_tools(self):
        assert dict(getmembers(hf_blosan))["pretrained"] is hf_blosan.pretrained
        assert pickle.loads(pickle.dumps(hf_blosan.pretrained)) is hf_blosan.pretrained
        assert "pretrained" in hf_blosan.__all__ and "pretrained" in dir(hf_blosan)


class TestNames:
    def test_a_folder_is_first(self, tiny_en, classifier, tmp_path, monkeypatch):
        """But not one without a model, such as the output folder of a run."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / tiny_en).mkdir()
        (tmp_path / tiny_en / "log.txt").touch()
        assert registry.locate(tiny_en) == hf_blosan.pretrained(tiny_en)
        copytree(classifier, tmp_path / tiny_en, dirs_exist_ok=True)
        assert registry.locate(tiny_en) == tiny_en and identity(tiny_en)[0] == str(tmp_path / tiny_en)
        assert type(load(tiny_en, cpu=True)[0]) is hf_blosan.DiSANForSequenceClassification

    def test_the_hub_is_last(self, tiny_en, classifier, tmp_path, monkeypatch):
        with LoopbackHub() as hub:
            hub.use_here(monkeypatch, tmp_path / "cache")
            assert main(["push", classifier, "--hub_model_id", "me/tiny-en"]) == 0
            model, _ = load("me/tiny-en", cpu=True)
            assert type(model) is hf_blosan.DiSANForSequenceClassification
            asked = len(hub.requests)
            assert type(load(tiny_en, cpu=True)[0]) is hf_blosan.DiSANModel and len(hub.requests) == asked

    def test_a_wrong_name_is_answered_with_those_that_there_are(self, tiny_en, texts, capsys):
        message = refused(capsys, "encode", "no/tiny-de", texts)
        assert message.endswith("; give its folder or Hub name or tiny-en")

    def test_commands_do_what_they_do_for_the_folder(self, tiny_en, texts, capsys):
        folder = hf_blosan.pretrained(tiny_en)
        for words in (["explain", tiny_en, TEXTS[0]], ["encode", tiny_en, texts], ["predict", tiny_en, texts]):
            outputs = []
            for model in (tiny_en, folder):
                status = main([words[0], model, *words[2:]])
                shown = capsys.readouterr()
                sentences = [line for line in shown.err.splitlines() if line.startswith("error: ")]
                outputs.append((status, shown.out, [line.replace(folder, tiny_en) for line in sentences]))
            assert outputs[0] == outputs[1] and outputs[0][1] + "".join(outputs[0][2])
        assert main(["bench", tiny_en, "--batch_sizes", "1", "--lengths", "4", "--seconds", "0.01", "--cpu"]) == 0
        assert capsys.readouterr().out.startswith("tiny-en: ")
        message = refused(capsys, "evaluate", tiny_en, "--cpu")
        assert "the model at 'tiny-en' was not trained on a task of this package" in message

    @pytest.mark.slow  # it takes ten seconds; a fast test of test_export.py has a folder in place of the name
    def test_a_graph(self, tiny_en, tmp_path):
        assert main(["export", tiny_en, str(tmp_path / "graph")]) == 0
        assert {"onnx", "config.json", "tokenizer.json"} <= {x.name for x in (tmp_path / "graph").iterdir()}
        assert {"model.onnx", "model_quantized.onnx"} == {x.name for x in (tmp_path / "graph" / "onnx").iterdir()}

    def test_vectors_are_those_of_sentence_transformers(self, tiny_en, texts, tmp_path, monkeypatch, capsys):
        """``encode`` gives pooled vectors, of length 1 if modules.json says so; other modules are refused."""
        model = SentenceTransformer(hf_blosan.pretrained(tiny_en), device="cpu")
        expected = model.encode(TEXTS)
        np.testing.assert_allclose(encoded(tiny_en, texts, tmp_path), expected, rtol=0, atol=1e-6)
        options = {"prompts": {"query": "q: "}, "default_prompt_name": "query", "truncate_dim": 4}
        SentenceTransformer(hf_blosan.pretrained(tiny_en), **options).save(str(tmp_path / "prompted"))
        model.append(Normalize())
        model.save(str(tmp_path / "encoders" / "unit-en"))
        monkeypatch.setattr(registry, "PRETRAINED", tmp_path / "encoders")
        unit = SentenceTransformer(hf_blosan.pretrained("unit-en"), device="cpu").encode(TEXTS)
        np.testing.assert_allclose(unit, expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=0, atol=1e-6)
        np.testing.assert_allclose(encoded("unit-en", texts, tmp_path), unit, rtol=0, atol=1e-6)
        before = identity("unit-en")
        model[1] = Dense(expected.shape[1], 5)
        model.save(str(tmp_path / "encoders" / "unit-en"))
        assert identity("unit-en") != before
        message = refused(capsys, "encode", "unit-en", texts)
        assert "need Dense (modules.json) of sentence-transformers, which is not applied here" in message
        message = refused(capsys, "encode", str(tmp_path / "prompted"), texts)
        file = "config_sentence_transformers.json"
        assert f"need default_prompt_name ({file}), truncate_dim ({file}) of sentence-transformers, which" in message

    def test_encode_resumes_with_the_same_encoder_only(self, tiny_en, tmp_path, monkeypatch):
        before = identity(tiny_en)
        assert before == identity(hf_blosan.pretrained(tiny_en))
        assert {name for name, *_ in before[1:]} >= {"config.json", "model.safetensors", "tokenizer.json"}
        copytree(hf_blosan.pretrained(tiny_en), tmp_path / "tiny-en")
        (tmp_path / "tiny-en" / "tokenizer.json").touch()
        monkeypatch.setattr(registry, "PRETRAINED", tmp_path)
        touched = identity(tiny_en)
        (tmp_path / "tiny-en" / "generation_config.json").write_text("{}")
        assert before != touched != (changed := identity(tiny_en))
        (tmp_path / "tiny-en" / "modeling_own.py").touch()
        assert len(identity(tiny_en)) == len(changed) + 1

    def test_a_normalize_that_the_hub_does_not_tell(self, monkeypatch, caplog):
        monkeypatch.setattr(saved, "cached_file", lambda *given, **options: None)  # without a network
        assert not saved.is_normalized("me/my-copy")
        assert "modules.json of me/my-copy is not in the cache; if it has a Normalize, that is not" in caplog.text
        assert "config_sentence_transformers.json of me/my-copy is not in the cache; if it has a def" in caplog.text

    def test_push_adds_the_code(self, tiny_en, tmp_path, monkeypatch, capsys):
        folder = Path(hf_blosan.pretrained(tiny_en))
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert not any(name.endswith(".py") for name in files)
        with LoopbackHub() as hub:
            hub.use_here(monkeypatch, tmp_path / "cache")
            assert main(["push", tiny_en, "--hub_model_id", "me/my-copy"]) == 0
            assert capsys.readouterr().out.strip() == f"{hub.url}/me/my-copy"
            pushed = hub.repos["me/my-copy"].files
            code = {name for name in pushed if name.endswith(".py")}
            assert "modeling_disan.py" in code and pushed.keys() == files.keys() | code
            assert {name for name in files if files[name] != pushed[name]} == {"config.json"}
            assert "auto_map" in json.loads(pushed["config.json"])
            assert main(["push", tiny_en]) == 0 and "me/tiny-en" in hub.repos
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == files


def small_rows(name: str, folder: Path) -> dict[str, str]:
    """Options with rows of a kind: files of the user's, or a task and its files."""
    if name == "chosen sentences":
        for seed, split in enumerate(("train", "validation")):
            write_rows(folder / "squad" / f"{split}.jsonl", squad_rows(60, seed))
        return {"task_name": "squad_sentences", "data_dir": str(folder)}
    if name == "translations":
        for split in ("train", "validation", "test"):
            write_rows(folder / "multi30k" / f"{split}.jsonl", [{"en": "a dog", "de": "ein Hund"}] * 9)
        return {"task_name": "multi30k_en_de", "data_dir": str(folder)}
    if name == "roles":
        for split in ("train", "validation", "test"):
            write_rows(folder / "propbank_ewt" / f"{split}.jsonl", role_rows(20))
        return {"task_name": "propbank_srl", "data_dir": str(folder)}
    make = {
        "labels": question_rows,
        "scores": lambda count, seed: [
            {"text": row["text"], "score": 500.5 + i} for i, row in enumerate(question_rows(count, seed))
        ],
        "labels of pairs": lambda count, seed: [
            {"sentence1": "a cat", "sentence2": f"the {x}", "label": x} for x in ("dog", "cat", "cow", "ox") * count
        ],
        "scores of pairs": pair_rows,
        "tags": tagging_rows,
    }[name]
    return write_splits(folder, make)


NEW = {"encoder": None, "config_overrides": None, "model_name_or_path": "tiny-en"}
HEADS = {
    "labels": ("ForSequenceClassification", 1, 3),
    "scores": ("ForSequenceClassification", 1, 1),
    "labels of pairs": ("ForSequenceClassification", 2, 4),
    "scores of pairs": ("ForPairRegression", 2, 1),
    "tags": ("ForTokenClassification", 1, 4),
    "chosen sentences": ("ForSentenceSelection", 2, 1),
}


class TestHeads:
    @pytest.mark.parametrize("name", HEADS)
    def test_every_kind_gets_a_new_head_on_the_weights_of_the_encoder(self, tiny_en, tmp_path, name, caplog):
        suffix, num_sentences, num_labels = HEADS[name]
        changes = {**NEW, "learning_rate": None, "optimizer": None, "recipe": "modern"}
        with caplog.at_level(logging.INFO, "hf_blosan.training.saved_model"):
            arguments, preparation = prepared(options(tmp_path / "out", small_rows(name, tmp_path), **changes))
        assert len([entry for entry in caplog.records if "int8 word table becomes float32" in entry.message]) == 1
        model, config = preparation.model, preparation.model.config
        assert type(model).__name__ == f"DiSAN{suffix}" and config.architectures == [f"DiSAN{suffix}"]
        assert (config.num_sentences, config.num_labels) == (num_sentences, num_labels)
        recipe = preparation.task.recipe("disan")
        assert (arguments.learning_rate, arguments.optimizer) == (recipe.learning_rate, recipe.optimizer)
        assert config.pair_features == recipe.pair_features
        encoder = AutoModel.from_pretrained(hf_blosan.pretrained(tiny_en), embedding_dtype="float32")
        assert (config.dropout, config.hidden_size) == (encoder.config.dropout, encoder.config.hidden_size)
        found = model.base_model.state_dict()
        expected = {
            key: x for key, x in encoder.state_dict().items() if model.base_model.pooler or "pooler" not in key
        }
        assert found.keys() == expected.keys() and all(torch.equal(found[key], x) for key, x in expected.items())
        assert all(weight.requires_grad and weight.dtype == torch.float32 for weight in model.parameters())

    @pytest.mark.parametrize("name", HEADS)
    def test_the_trained_model_is_one_like_any_other(self, tiny_en, tmp_path, name, capsys):
        run = train(options(tmp_path / "out", small_rows(name, tmp_path), max_train_steps=2, **NEW))
        assert run["continued_from"] == run["tokenizer"] == "tiny-en" and run["config"]["embedding_dtype"] == "float32"
        card = (tmp_path / "out" / "README.md").read_text()
        assert "trained further from `tiny-en`" in card
        assert "the tokenizer of `tiny-en`" in card and "their vectors start from its own." in card
        place = str(Path(hf_blosan.pretrained(tiny_en)).parent)
        assert not [path for path in (tmp_path / "out").iterdir() if place.encode() in path.read_bytes()]
        assert place not in json.dumps(run)
        rows = ["--data_dir", str(tmp_path)]
        if name != "chosen sentences":
            rows = ["--test_file", str(tmp_path / "test.jsonl")]
        capsys.readouterr()
        assert main(["evaluate", str(tmp_path / "out"), "--cpu", *rows]) == 0
        *_, figure = run["figures"].values()
        assert f"{figure:.4f}" in capsys.readouterr().out

    def test_a_second_run_continues_with_the_head(self, tiny_en, tmp_path):
        """Its head is checked as that of every saved model."""
        rows = small_rows("labels", tmp_path / "labels")
        train(options(tmp_path / "out", rows, max_train_steps=1, **NEW))
        again = {**NEW, "model_name_or_path": str(tmp_path / "out")}
        _, preparation = prepared(options(tmp_path / "second", rows, **again))
        trained, _ = load(str(tmp_path / "out"), cpu=True)
        assert torch.equal(preparation.model.classifier.output.weight, trained.classifier.output.weight)
        with pytest.raises(InputError, match="takes one text a row"):
            prepared(options(tmp_path / "third", small_rows("scores of pairs", tmp_path / "pairs"), **again))

    def test_translation_and_roles_are_refused(self, tiny_en, tmp_path):
        for name, message in (
            (
                "translations",
                "^the model at 'tiny-en' is of class DiSANModel, the task needs EncoderDecoderModel; "
                "train a new model$",
            ),
            ("roles", "predicate_size is 0, but .* has predicates; use a model with predicate_size above 0$"),
        ):
            with pytest.raises(InputError, match=message):
                prepared(options(tmp_path / "out", small_rows(name, tmp_path), **NEW))

    def test_a_frozen_table_stays_int8(self, tiny_en, tmp_path):
        rows = small_rows("labels", tmp_path)
        _, preparation = prepared(options(tmp_path / "out", rows, embedding_trainable="none", **NEW))
        table = preparation.model.get_input_embeddings()
        assert table.is_int8 and not table.weight.requires_grad
        run = train(options(tmp_path / "out", rows, embedding_trainable="none", max_train_steps=1, **NEW))
        assert run["config"]["embedding_dtype"] == "int8"
        with pytest.raises(InputError, match="embedding_dtype is int8, a word table that cannot be trained"):
            prepared(options(tmp_path / "out", rows, **{**NEW, "config_overrides": "embedding_dtype=int8"}))

    def test_options_change_the_configuration(self, tiny_en, tmp_path):
        changes = {**NEW, "config_overrides": "dropout=0.4,classifier_size=12"}
        _, preparation = prepared(options(tmp_path / "out", small_rows("labels", tmp_path), **changes))
        assert preparation.model.config.dropout == 0.4 and preparation.model.classifier.hidden.out_features == 12

    def test_an_output_folder_of_the_same_name(self, tiny_en, tmp_path, monkeypatch):
        """The folder that the run makes is not taken for its model."""
        rows = small_rows("labels", tmp_path)
        monkeypatch.chdir(tmp_path)
        run = train(options(Path("tiny-en"), rows, max_train_steps=1, **NEW))
        assert run["continued_from"] == "tiny-en" and type(load("tiny-en", cpu=True)[0]).__name__.endswith(
            "Classification"
        )

    def test_its_tokenizer_for_a_new_model(self, tiny_en, tmp_path):
        run = train(
            options(tmp_path / "out", small_rows("labels", tmp_path), tokenizer_name=tiny_en, max_train_steps=1)
        )
        assert run["tokenizer"] == "tiny-en" and run["continued_from"] is None
        assert load_tokenizer(str(tmp_path / "out")).get_vocab() == load_tokenizer(tiny_en).get_vocab()

    def test_with_transformers_alone(self, tiny_en, tmp_path):
        path, labels = hf_blosan.pretrained(tiny_en), {"num_labels": 3, "num_sentences": 2}
        model = AutoModelForSequenceClassification.from_pretrained(path, **labels, embedding_dtype="float32")
        batch = AutoTokenizer.from_pretrained(path)(["a cat"], ["two dogs"], return_tensors="pt")
        model.train()(**batch, labels=torch.tensor([1])).loss.backward()
        assert model.get_input_embeddings().weight.grad.abs().sum() > 0
        model.save_pretrained(tmp_path / "small", embedding_dtype="int8")
        again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "small")
        assert again.get_input_embeddings().is_int8 and again.config.num_sentences == 2
        as_stored = AutoModelForSequenceClassification.from_pretrained(path, **labels)
        assert as_stored(**batch).logits.shape == (1, 3) and as_stored.get_input_embeddings().is_int8


def test_lines_are_predicted_after_training(tiny_en, tmp_path):
    rows = question_rows(60)
    path, out = str(write_rows(tmp_path / "rows.jsonl", rows)), str(tmp_path / "out")
    words = ["train", "--model_name_or_path", tiny_en, "--train_file", path, "--validation_file", path, "--cpu"]
    words += ["--output_dir", out, "--learning_rate", "0.02", "--per_device_train_batch_size", "8"]
    assert main([*words, "--num_train_epochs", "30"]) == 0
    assert main(["predict", out, path, str(tmp_path / "labels.jsonl"), "--cpu"]) == 0
    found = [row["label"] for row in read_lines(tmp_path / "labels.jsonl")]
    assert sum(label == row["label"] for label, row in zip(found, rows, strict=True)) > 54
