"""The benchmarks from texts to vectors and of training steps: what they record and refuse, never how fast they are."""

import json

import pytest
from transformers import BertConfig, BertModel

from benchmarks import encode, train_step
from benchmarks.encode import STAGES
from hf_blosan.tokenization import build_tokenizer

QUICK = ["--task", "demo", "--repeats", "1", "--threads", "1"]


@pytest.mark.slow  # builds int8 models
@pytest.mark.filterwarnings("ignore:.*quantize_dynamic", "ignore:torch.ao.quantization is deprecated")
def test_from_texts_to_vectors(tmp_path):
    tokenizer = build_tokenizer(["a b c"])
    tokenizer.save_pretrained(tmp_path / "peer")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(tmp_path / "peer")
    path = tmp_path / "encode.json"
    options = ["--models", "disan", "--sentences", "40", "--batch_size", "16", "--peer", str(tmp_path / "peer")]
    assert encode.main([*QUICK, *options, "--output", str(path)]) == 0
    *rows, peer = json.loads(path.read_text())["rows"]
    assert [row["system"] for row in rows] == ["disan float32", "disan int8"]
    assert peer["system"] == "peer" and peer["speed"] == 1
    for row in rows:
        assert row["shares"].keys() == set(STAGES) and sum(row["shares"].values()) == pytest.approx(1, abs=0.01)
        assert row["sentences_per_second"] > 0 and row["system"] in path.with_suffix(".md").read_text()


@pytest.mark.slow  # prepares two training runs
def test_training_steps(tmp_path):
    path = tmp_path / "steps.json"
    options = ["--models", "wordbag", "--batch_size", "4", "--steps", "2"]
    assert train_step.main([*QUICK, *options, "--output", str(path)]) == 0
    base, other = json.loads(path.read_text())["rows"]
    assert base["encoder"] == "birnn" and base["ratio"] == 1 and other["encoder"] == "wordbag"
    assert other["ratio"] > 0 and other["optimizer"] == "adam" and "| wordbag |" in path.with_suffix(".md").read_text()


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        (encode, ("--peer", "nowhere"), "there is no saved model"),
        (encode, ("--batch_size", "0"), "at least 1"),
        (encode, ("--models", "bert"), "there is no such choice"),
        (encode, ("--forms", "int4"), "there is no such choice"),
        (train_step, ("--models", "bert"), "there is no such choice"),
        (train_step, ("--steps", "0"), "at least 1"),
    ],
)
def test_bad_options_get_one_sentence(command, options, message, tmp_path, capsys):
    assert command.main([*options, "--output", str(tmp_path / "x.json")]) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())
