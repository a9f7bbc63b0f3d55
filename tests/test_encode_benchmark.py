"""The benchmarks of encoding, training steps and the server: what they record and refuse, never how fast they are."""

import gzip
import itertools
import json
from importlib.util import find_spec

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers import AutoConfig, AutoModel, BertConfig, BertModel

from benchmarks import encode, many_rows, roads, serving, train_step
from benchmarks.encode import STAGES
from hf_blosan.text.tokenization import build_tokenizer

QUICK = ["--task", "demo", "--repeats", "1", "--threads", "1"]


@pytest.fixture
def peer(tmp_path):
    """The folder of a small model of sentence-transformers to compare with."""
    folder = tmp_path / "peer"
    tokenizer = build_tokenizer(["a b c"])
    tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder)
    parts = [Transformer(str(folder)), Pooling(8, "mean"), Normalize()]
    SentenceTransformer(modules=parts, device="cpu").save_pretrained(str(folder))
    return str(folder)


@pytest.mark.slow  # encodes with several models
def test_from_texts_to_vectors(tmp_path, peer):
    path = tmp_path / "encode.json"
    options = ["--models", "disan", "--sentences", "40", "--batch_size", "16", "--keep_padding", "--peer", peer]
    assert encode.main([*QUICK, *options, "--output", str(path)]) == 0
    *rows, peer = json.loads(path.read_text())["rows"]
    assert [row["system"] for row in rows] == [
        f"disan {form}" for form in ("float32", "float32, padded", "int8", "int8, padded")
    ]
    assert peer["system"] == "peer" and peer["speed"] == 1
    for row in rows:
        assert row["shares"].keys() == set(STAGES) and sum(row["shares"].values()) == pytest.approx(1, abs=0.01)
        assert row["sentences_per_second"] > 0 and row["system"] in path.with_suffix(".md").read_text()


@pytest.mark.slow  # starts the command and datasets.map three times
def test_many_rows(tmp_path, capsys):
    path = tmp_path / "many.json"
    options = ["--task", "demo", "--rows", "640", "--fraction", "4", "--ways", "shard,map", "--output", str(path)]
    assert many_rows.main([*options, "--checked", "ray"]) == 2 and "there is no such choice" in capsys.readouterr().err
    assert many_rows.main([*options[:3], "63", *options[4:]]) == 2 and "at least 16 times" in capsys.readouterr().err
    assert many_rows.main(options) == 0
    rows = json.loads(path.read_text())["rows"]
    counts = [("shard", 20), ("shard", 160), ("shard", 640), ("map", 20), ("map", 160)]
    assert [(row["way"], row["rows"]) for row in rows] == counts
    assert all(row["cpu_seconds"] > 0 and row["bytes"] > 0 for row in rows)


@pytest.mark.slow  # exports two graphs
@pytest.mark.skipif(not find_spec("nncf"), reason="needs OpenVINO and NNCF; pip install hf_blosan[openvino]")
def test_every_road(tmp_path, peer):
    torch.manual_seed(0)
    sizes = {"vocab_size": 8, "embedding_size": 8, "hidden_size": 8}
    AutoModel.from_config(AutoConfig.for_model("disan", **sizes)).save_pretrained(tmp_path / "encoder")
    build_tokenizer(["a b c"]).save_pretrained(tmp_path / "encoder")
    # No two pairs have the same cosine, whose order would be that of rounding.
    words = [x for x in itertools.product("abc", repeat=4) if x < x[::-1]]
    rows = [{"sentence1": " ".join(x), "sentence2": " ".join(x[::-1]), "score": i % 5} for i, x in enumerate(words)]
    for name, split in (("stsb", "train"), ("stsb", "test"), ("sick", "test")):
        path = tmp_path / "data" / name / f"{split}.jsonl.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress("".join(f"{json.dumps(row)}\n" for row in rows).encode()))
    path = tmp_path / "roads.json"
    options = ["--peer", peer, "--encoder", str(tmp_path / "encoder"), "--data_dir", str(tmp_path / "data")]
    options += ["--sentences", "40", "--batch_size", "16", "--repeats", "1", "--threads", "1", "--output", str(path)]
    assert roads.main(options) == 0
    rows = json.loads(path.read_text())["rows"]
    ours, others = ([row for row in rows if row["system"] == name] for name in ("encoder", "peer"))
    runtimes = [f"onnxruntime {dtype}" for dtype in ("float32", "int8")]
    assert [row["form"] for row in ours] == [*5 * ["float32"], *5 * ["int8"], *runtimes]
    assert [row["parallel"] for row in ours[:5]] == [True, True, True, False, False]
    runtimes += [f"OpenVINO {dtype}" for dtype in ("float32", "int8")]
    assert [row["form"] for row in others] == [*5 * ["float32"], *runtimes]
    for same in (ours, others):
        scores = [row["stsb"] for row in same if row["form"].endswith("float32")]
        assert max(scores) - min(scores) < 0.1  # of the same vectors, but for rounding
    page = path.with_suffix(".md").read_text()
    assert all(row["sentences_per_second"] > 0 and f"| {row['form']} | {row['entry']} |" in page for row in rows)


def test_training_steps(tmp_path):
    path = tmp_path / "steps.json"
    options = ["--models", "wordbag", "--batch_size", "4", "--steps", "2"]
    assert train_step.main([*QUICK, *options, "--output", str(path)]) == 0
    base, other = json.loads(path.read_text())["rows"]
    assert base["encoder"] == "birnn" and base["ratio"] == 1 and other["encoder"] == "wordbag"
    assert other["ratio"] > 0 and other["optimizer"] == "adam" and "| wordbag |" in path.with_suffix(".md").read_text()


@pytest.mark.slow  # two servers under load
@pytest.mark.skipif(not find_spec("locust"), reason="needs locust; pip install hf_blosan[benchmark]")
def test_the_server_under_load(tmp_path, peer):
    path = tmp_path / "serving.json"
    options = ["--clients", "1,4", "--seconds", "2", "--soak_seconds", "4", "--soak_clients", "2", "--peer", peer]
    assert serving.main([*QUICK, *options, "--output", str(path)]) == 0
    report = json.loads(path.read_text())
    identity = [(row["system"], row["clients"]) for row in report["rows"]]
    assert identity == [("disan", 1), ("peer", 1), ("disan", 4), ("peer", 4)]
    for row in (*report["rows"], report["soak"]):
        assert row["requests_per_second"] > 0 == row["failures"] and 0 < row["p50_ms"] <= row["p99_ms"]
    assert all(row["mean_batch"] == 1 for row in report["rows"][:2])
    assert min(report["soak"]["memory_mib"]) > 50 and "| peer | 4 |" in path.with_suffix(".md").read_text()


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        (encode, ("--peer", "nowhere"), "there is no saved model"),
        (encode, ("--batch_size", "0"), "it must be more than 0"),
        (encode, ("--models", "bert"), "there is no such choice"),
        (train_step, ("--models", "bert"), "there is no such choice"),
        (train_step, ("--steps", "0"), "it must be more than 0"),
        (serving, ("--clients", "8,many"), "give numbers from 1 on"),
        (serving, ("--peer", "nowhere"), "there is no saved model"),
    ],
)
def test_bad_options_get_one_sentence(command, options, message, tmp_path, capsys):
    assert command.main([*options, "--output", str(tmp_path / "x.json")]) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())
