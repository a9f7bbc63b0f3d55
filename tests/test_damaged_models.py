"""Saved models with a defect, hostile ones among them: commands end in one sentence, before they write anything."""

import json
import logging
import os
import shutil
from pathlib import Path

import pytest
import torch
import transformers.utils.hub
from cli_models import refused
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file, save_file
from small_data import question_rows, write_rows
from test_models import make
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from hf_blosan import functional
from hf_blosan.cli.commands import main
from hf_blosan.errors import InputError
from hf_blosan.hub.configs import read_config

CONFIG, TOKENIZER, TOKENIZER_CONFIG = "config.json", "tokenizer.json", "tokenizer_config.json"
DEEP = object()


def write(folder: Path, file: str, change) -> None:
    """Change a JSON file of a folder by a function, or by fields."""
    path = folder / file
    content = json.loads(path.read_text())
    if callable(change):
        change(content)
    else:
        content |= {name: "DEEP" if value is DEEP else value for name, value in change.items()}
    path.write_text(json.dumps(content).replace('"DEEP"', 100_000 * "[" + 100_000 * "]"))


def without_unknown(tokenizer: dict) -> None:
    del tokenizer["model"]["vocab"]["[UNK]"]
    tokenizer["added_tokens"] = [token for token in tokenizer["added_tokens"] if token["content"] != "[UNK]"]


def other_post_processor(tokenizer: dict) -> None:
    first, second = ({"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB"))
    start = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
    tokens = {"[CLS]": {"id": "[CLS]", "ids": [99999], "tokens": ["[CLS]"]}}
    pieces = {"single": [start, first], "pair": [first, second], "special_tokens": tokens}
    tokenizer["post_processor"] = {"type": "TemplateProcessing", **pieces}


DEFECTS = {
    "labels with a gap": (
        CONFIG,
        {"id2label": {"0": "a", "2": "b", "3": "c"}},
        "id2label has the labels 0, 2",
    ),
    "a label without a name": (
        CONFIG,
        {"id2label": {"0": "a", "1": None, "2": "c"}},
        "id2label has the labels 0",
    ),
    "no labels": (CONFIG, {"id2label": {}}, "has the labels {}; number them 0, 1, ... without"),
    "one name for two": (CONFIG, {"id2label": {"0": "a", "1": "a", "2": "c"}}, "has a name twice (a, a, c)"),
    "unpaired surrogate": (
        CONFIG,
        {"id2label": {"0": "\ud83d", "1": "b", "2": "c"}},
        "an unpaired surrogate, '",
    ),
    "more labels": (CONFIG, {"num_labels": 5}, "classifier.output.bias of the model at"),
    "a window of 64 bits": (
        CONFIG,
        {"windows": [2**63, None]},
        "windows has the number 922",
    ),
    "an id of 64 bits": (
        CONFIG,
        {"unk_token_id": 2**70},
        "unk_token_id has the number 118",
    ),
    "rows that are text": (CONFIG, {"training_rows": "x"}, "training_rows is 'x'; remove it"),
    "columns that are numbers": (
        CONFIG,
        {"training_rows": {"text_columns": [3]}},
        "training_rows has text_columns = [3]",
    ),
    "a seed that is text": (CONFIG, {"training_rows": {"seed": "x"}}, "training_rows has seed = 'x'"),
    "a task that is a list": (CONFIG, {"finetuning_task": ["a"]}, "finetuning_task is ['a']"),
    "a deep list": (CONFIG, {"x": DEEP}, "config.json of the model at"),
    "a list of 30 levels": (CONFIG, {"x": json.loads(30 * "[" + 30 * "]")}, "x is nested too deeply"),
    "a limit that is text": (
        TOKENIZER_CONFIG,
        {"model_max_length": "x"},
        "model_max_length in tokenizer_config",
    ),
    "a limit of 1.5": (TOKENIZER_CONFIG, {"model_max_length": 1.5}, "is 1.5; give a number of tokens, 1 or more"),
    "no padding": (TOKENIZER_CONFIG, {"pad_token": None}, "has no padding token; choose"),
    "other inputs": (TOKENIZER_CONFIG, {"model_input_names": ["x"]}, "model_input_names in tokenizer_config"),
    "no inputs": (
        TOKENIZER_CONFIG,
        {"model_input_names": []},
        "are []; give input_ids, token_type_ids",
    ),
    "deep settings": (TOKENIZER_CONFIG, {"x": DEEP}, "the saved tokenizer at"),
    "a deep tokenizer": (TOKENIZER, {"x": DEEP}, "the saved tokenizer at"),
    "no unknown token": (TOKENIZER, without_unknown, "Missing [UNK] token from the vocabulary)"),
    "an id of no row": (TOKENIZER, other_post_processor, "has ids up to 99999, but vocab_size is 26 in its model"),
}

COMMANDS = {
    "predict": "predict {model} {rows} {output} --cpu",
    "encode": "encode {model} {rows} {output} --cpu",
    "explain": "explain {model} cat --cpu --output_dir {output}",
    "serve": "serve {model} --cpu --port 0",
    "evaluate": "evaluate {model} --test_file {rows} --cpu",
    "export": "export {model} {output}",
    "train": "train --model_name_or_path {model} --train_file {rows} --validation_file {rows} --output_dir {output}",
}
HEADS = ("more labels",)
"""Defects that are found where the head is loaded, of which training makes a new one."""


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("rows") / "rows.csv", question_rows(20))


def run(command: str, capsys, **places) -> str:
    return refused(capsys, *COMMANDS[command].format(**places).split())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_defect_is_one_sentence(command, classifier, rows, tmp_path, capsys):
    suffix = {"predict": "o.jsonl", "encode": "o.npy"}.get(command, "o")
    for name, (file, change, message) in DEFECTS.items():
        if name in HEADS and command in ("encode", "evaluate", "export", "train"):
            continue
        model, output = tmp_path / "model", tmp_path / suffix
        shutil.copytree(classifier, model, dirs_exist_ok=True)
        write(model, file, change)
        sentence = run(command, capsys, model=model, rows=rows, output=output)
        assert message in sentence and str(model) in sentence, (name, sentence)
        assert not output.exists() or not any(output.rglob("model*")), name
        shutil.rmtree(model)
        shutil.rmtree(output, ignore_errors=True)


@pytest.mark.parametrize("command", COMMANDS)
def test_weights_without_a_place_are_not_left_out_in_silence(command, classifier, rows, tmp_path, capsys):
    model, output = tmp_path / "model", tmp_path / {"predict": "o.jsonl", "encode": "o.npy"}.get(command, "o")
    shutil.copytree(classifier, model)
    write(model, CONFIG, {"pooling": "mean"})
    if command == "train":  # which may change the configuration
        assert main(COMMANDS[command].format(model=model, rows=rows, output=output).split()) == 0
        sentence = capsys.readouterr().err
        assert f"these weights of {model} have no place in the configuration: model.pooler." in sentence
        return
    sentence = run(command, capsys, model=model, rows=rows, output=output)
    assert "has weights for which its config.json has no place (" in sentence and "pooler." in sentence
    assert str(model) in sentence and not output.exists()


@pytest.mark.parametrize("part", ["classifier.", "model.context."])
def test_a_model_without_some_of_its_weights_is_not_measured(part, classifier, rows, tmp_path, capsys):
    shutil.copytree(classifier, tmp_path / "model")
    weights = load_file(tmp_path / "model" / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if not name.startswith(part)}
    save_file(kept, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    sentence = run("evaluate", capsys, model=tmp_path / "model", rows=rows)
    assert f"has no weights {part}" in sentence and "train it for this, or give another one" in sentence


def test_training_names_weights_of_an_encoder_that_it_leaves_out(classifier, rows, tmp_path, capsys):
    AutoModel.from_pretrained(classifier).save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(classifier).save_pretrained(tmp_path / "model")
    command = COMMANDS["train"].format(model=tmp_path / "model", rows=rows, output=tmp_path / "o")
    assert main([*command.split(), "--config_overrides", "pooling=mean", "--max_train_steps", "1"]) == 0
    assert "have no place in the configuration: pooler.hidden." in capsys.readouterr().err


def test_a_model_of_pairs_needs_type_ids(scorer, rows, tmp_path, capsys):
    model = shutil.copytree(scorer, tmp_path / "model")
    write(model, TOKENIZER_CONFIG, {"model_input_names": ["input_ids", "attention_mask"]})
    for command in ("predict", "explain", "export", "serve"):
        output = tmp_path / ("o.onnx" if command == "export" else "o.jsonl")
        sentence = run(command, capsys, model=model, rows=rows, output=output)
        assert f"tokenizer_config.json of '{model}' lack token_type_ids" in sentence


def test_the_form_of_outputs_is_not_saved(classifier, rows, tmp_path, capsys, monkeypatch):
    """`return_dict`, which scripts of others set: commands do the same with it and without, training included."""
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: None)
    found = []
    for name, fields in (("plain", {}), ("tuples", {"return_dict": False, "output_attentions": True})):
        model, output = shutil.copytree(classifier, tmp_path / name / "model"), tmp_path / name
        write(model, CONFIG, fields)
        outputs = {
            "predict": "p.jsonl",
            "encode": "v.jsonl",
            "explain": "e",
            "serve": "",
            "evaluate": "",
            "train": "t",
        }
        for command, file in outputs.items():
            words = COMMANDS[command].format(model=model, rows=rows, output=output / file).split()
            words += ["--num_train_epochs", "1", "--config_overrides", "dropout=0"] if command == "train" else []
            assert main(words) == 0, command
        explanation = (output / "e" / "explanation.json").read_text()
        weights = AutoModelForSequenceClassification.from_pretrained(output / "t").state_dict()
        written = [(output / file).read_text() for file in ("p.jsonl", "v.jsonl")]
        found.append((written, explanation, {key: value.tolist() for key, value in weights.items()}))
        if fields:
            assert json.loads((output / "t" / CONFIG).read_text()).get("return_dict", True) is True
    assert found[0] == found[1]


class TestNothingFromElsewhere:
    @pytest.fixture(autouse=True)
    def asked(self, monkeypatch):
        """What transformers looks up that is not a folder; nothing may be."""
        asked, find = [], transformers.utils.hub.cached_files

        def watch(path_or_repo_id, *args, **kwargs):
            if not os.path.isdir(path_or_repo_id):
                asked.append(path_or_repo_id)
            return find(path_or_repo_id, *args, **kwargs)

        monkeypatch.setattr("transformers.utils.hub.cached_files", watch)
        yield asked
        assert not asked

    @pytest.mark.parametrize(
        "fields",
        [
            {"backbone": "me/hostile"},
            {"backbone_config": {"model_type": "disan", "backbone": "me/hostile", "hidden_size": 6, "vocab_size": 26}},
        ],
    )
    def test_a_backbone_is_not_looked_up(self, fields, classifier, tmp_path, rows):
        model = shutil.copytree(classifier, tmp_path / "model")
        write(model, CONFIG, fields)
        config = AutoConfig.from_pretrained(model)
        assert config.backbone is None and getattr(config.backbone_config, "backbone", None) is None
        if "backbone" in fields:
            loaded = AutoModelForSequenceClassification.from_pretrained(model)
            AutoModelForSequenceClassification.from_config(loaded.config)
            words = COMMANDS["predict"].format(model=model, rows=rows, output=tmp_path / "p.jsonl")
            assert main(words.split()) == 0

    def test_nor_that_of_a_part(self, tmp_path):
        encoder = {"model_type": "disan", "backbone": "me/hostile"}
        (tmp_path / CONFIG).write_text(
            json.dumps({"model_type": "encoder-decoder", "encoder": encoder, "decoder": {}})
        )
        with pytest.raises(InputError, match="encoder has backbone 'me/hostile'; remove it"):
            read_config(str(tmp_path))

    def test_code_of_a_backbone_is_not_run(self, classifier, tmp_path, monkeypatch):
        monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("a question was asked"))
        code = {
            "model_type": "align_text_model",
            "auto_map": {"AutoModel": "evil.Model"},
            "_name_or_path": "me/hostile",
        }
        sizes = {"hidden_size": 6, "vocab_size": 26, "pad_token_id": 0}
        model = shutil.copytree(classifier, tmp_path / "model")
        write(model, CONFIG, {"backbone_config": code | sizes})
        with pytest.raises((ValueError, StrictDataclassError)):
            AutoModel.from_pretrained(model)


@pytest.mark.parametrize("place", ["../other/x.safetensors", "{other}/x.safetensors", "a/../../other/x.safetensors"])
def test_weights_of_another_folder(place, classifier, rows, tmp_path, capsys):
    """What an index names is refused before it is opened; other names in the folder are fine."""
    model, other = tmp_path / "model", tmp_path / "other"
    AutoModelForSequenceClassification.from_pretrained(classifier).save_pretrained(model, max_shard_size=2000)
    AutoTokenizer.from_pretrained(classifier).save_pretrained(model)
    index = model / "model.safetensors.index.json"
    first = sorted(set(json.loads(index.read_text())["weight_map"].values()))[0]
    other.mkdir()
    os.mkfifo(other / "x.safetensors")  # opening it would wait for ever

    def name(shard: str) -> None:
        names = json.loads(index.read_text())
        names["weight_map"] = {key: shard if file == first else file for key, file in names["weight_map"].items()}
        index.write_text(json.dumps(names))

    content = index.read_text()
    name(f"./{first}")
    assert main(COMMANDS["predict"].format(model=model, rows=rows, output=tmp_path / "p.jsonl").split()) == 0
    index.write_text(content)
    name(shard := place.format(other=other))
    for command in COMMANDS:
        sentence = run(command, capsys, model=model, rows=rows, output=tmp_path / "o.jsonl")
        assert f"model.safetensors.index.json is impossible (the weights '{shard}' are not in the folder" in sentence
    with pytest.raises(ValueError, match="are not in the folder of the model"):
        AutoModelForSequenceClassification.from_pretrained(model)


class TestLabels:
    """Of the heads in training."""

    @pytest.mark.parametrize("labels", [[0, 3], [0, -1], [0, 2**40]])
    def test_beyond_the_classes(self, labels):
        labels = torch.tensor(labels)
        ids = torch.ones(2, 4, dtype=torch.long)
        model = make(AutoModelForSequenceClassification, "disan", num_labels=3).train()
        with pytest.raises(ValueError, match=rf"labels hold {labels[1]}; give class ids from 0 to 2, or -100"):
            model(ids, labels=labels)
        tagger = make(AutoModelForTokenClassification, "disan", num_labels=3).train()
        with pytest.raises(ValueError, match=rf"labels hold {labels[1]}; give class ids from 0 to 2, or -100"):
            tagger(ids, labels=labels[:, None].expand(2, 4))

    def test_no_label(self):
        ids, labels = torch.ones(2, 4, dtype=torch.long), torch.tensor([1, -100])
        model = make(AutoModelForSequenceClassification, "disan", num_labels=3).eval()
        torch.testing.assert_close(model(ids, labels=labels).loss, model(ids[:1], labels=labels[:1]).loss)

    def test_scores_and_several_labels_are_no_classes(self):
        ids = torch.ones(2, 4, dtype=torch.long)
        for fields, labels in (
            ({"num_labels": 1}, torch.tensor([7.0, -3.0])),
            ({"num_labels": 1}, torch.tensor([7, -3])),
            ({"num_labels": 3, "problem_type": "multi_label_classification"}, torch.ones(2, 3)),
        ):
            model = make(AutoModelForSequenceClassification, "disan", **fields)
            labels = labels if labels.is_floating_point() else labels.float()
            assert model(ids, labels=labels).loss.isfinite()

    def test_of_sentences(self):
        model = make(AutoModelForMultipleChoice, "disan")
        ids = torch.ones(1, 2, 4, dtype=torch.long)
        inputs = {"input_ids": ids, "token_type_ids": torch.tensor([0, 0, 1, 1]).expand(1, 2, 4)}
        assert model(**inputs, labels=torch.tensor([1])).loss.isfinite()
        with pytest.raises(ValueError, match="labels hold 2; give class ids from 0 to 1"):
            model(**inputs, labels=torch.tensor([2]))
        inputs |= {"attention_mask": torch.tensor([[[1] * 4, [0] * 4]])}
        with pytest.raises(ValueError, match="labels hold 1 in row 0, where there is no sentence"):
            model(**inputs, labels=torch.tensor([1]))
        assert model(**inputs, labels=torch.tensor([0])).loss.isfinite()
        for labels in (torch.tensor([0], dtype=torch.uint8), torch.tensor([[1.0, 0.0]])):  # bytes, probabilities
            assert model(**inputs, labels=labels).loss.isfinite()


@pytest.mark.parametrize("window", [2**63, 2**70])
def test_windows_beyond_64_bits(window):
    with pytest.raises(StrictDataclassError, match="a window is the number of tokens seen on each side"):
        AutoConfig.for_model("disan", windows=[window, None])
    x = torch.ones(1, 3, 4)
    with pytest.raises(ValueError, match=f"window is {window}; give"):
        functional.directional_attention(x, x, x, direction="forward", window=window)
    functional.directional_attention(x, x, x, direction="forward", window=2**63 - 1)


def test_an_encoder_ignores_the_head(classifier, tmp_path, caplog):
    """And nothing else: weights that an encoder or a head lacks are reported as always."""

    def report(auto_class, folder) -> str:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "transformers"):
            auto_class.from_pretrained(folder)
        return caplog.text

    monitored = logging.getLogger("transformers")
    propagate, monitored.propagate = monitored.propagate, True
    try:
        assert report(AutoModel, classifier) == report(AutoModelForSequenceClassification, classifier) == ""
        with_highway = make(AutoModelForSequenceClassification, "disan", classifier_highway=True)
        with_highway.save_pretrained(tmp_path)
        assert report(AutoModel, tmp_path) == ""
        write(tmp_path, CONFIG, {"classifier_highway": False})
        assert "classifier.highway.map.weight" in report(AutoModelForSequenceClassification, tmp_path)
        write(tmp_path, CONFIG, {"pooling": "mean"})
        found = report(AutoModel, tmp_path)
        assert "pooler.hidden.weight" in found and "UNEXPECTED" in found and "classifier" not in found
    finally:
        monitored.propagate = propagate
