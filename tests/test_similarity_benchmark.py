"""benchmarks.similarity on small data, with models whose figures are known."""

import gzip
import json

import numpy as np
import pytest
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from benchmarks import similarity
from hf_blosan.text.tokenization import build_tokenizer

WORDS = [f"{a}{b}" for a in "bdfg" for b in ("at", "et", "it", "ot")]


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="module")
def table():
    return np.random.default_rng(0).normal(size=(100, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory, table):
    """The folder of a model that adds word vectors."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = build_tokenizer(WORDS)
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, table[: len(tokenizer)])]).save(str(folder / "sums"))
    return folder / "sums"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory, model):
    """Scores are the model's own cosines in STS13, and their opposite in SICK; labels of Banking77 are words."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(1)
    encoder = SentenceTransformer(str(model), device="cpu")
    for name, split in [*((name, "test") for name in similarity.SETS), ("stsb", "validation")]:
        first, second = ([" ".join(rng.choice(WORDS, 3)) for _ in range(40)] for _ in range(2))
        vectors = [encoder.encode(texts, normalize_embeddings=True).astype(float) for texts in (first, second)]
        scores = (vectors[0] * vectors[1]).sum(1) * (-1 if name == "sick" else 1)
        if name == "stsb":
            scores = rng.random(40)
        columns = zip(first, second, scores.tolist(), strict=True)
        write(
            folder / name / f"{split}.jsonl.gz",
            [dict(zip(("sentence1", "sentence2", "score"), row, strict=True)) for row in columns],
        )
    for split, count in (("train", 4), ("test", 2)):
        rows = [{"text": f"{word} {other}", "label": word} for word in WORDS[:4] for other in WORDS[4 : 4 + count]]
        write(folder / "banking77" / f"{split}.jsonl.gz", rows)
    return folder


def test_figures(tmp_path, data_dir, model):
    path = tmp_path / "similarity.json"
    options = ["--models", f"sums={model}", "--data_dir", str(data_dir), "--sizes", "4", "8", "--repeats", "1"]
    assert similarity.main([*options, "--output", str(path)]) == 0
    (row,) = json.loads(path.read_text())["rows"]
    assert row["model"] == "sums" and row["features"] == 8 and row["sentences_per_second"] > 0
    size = sum(path.stat().st_size for path in model.rglob("*") if path.is_file())
    assert row["megabytes"] == round(size / 1e6, 1)
    assert (row["sts13"], row["sick"]) == (100, -100) and -100 < row["stsb"] < 100
    assert row["mean"] == pytest.approx((100 + 100 + 100 + row["stsb"] - 100) / 5, abs=0.01)
    assert (
        row["mean_of_first"]["8"] == pytest.approx(row["mean"], abs=0.01) and row["mean_of_first"]["4"] != row["mean"]
    )
    low, high = row["intervals"]["stsb"]
    assert low < row["stsb"] < high and row["intervals"]["sts14"] == [100, 100]
    assert row["banking77"] == 100  # the label is a word of the text
    assert "| sums | 100.0 |" in path.with_suffix(".md").read_text()


def test_correlation():
    rng = np.random.default_rng(2)
    first, second = (similarity.unit(rng.normal(size=(30, 5)), 3) for _ in range(2))
    assert first.shape == (30, 3) and np.allclose((first**2).sum(1), 1)
    scores = rng.random(30)
    wanted = spearmanr([a @ b for a, b in zip(first, second, strict=True)], scores)[0]
    assert similarity.correlation(first, second, scores) == pytest.approx(100 * wanted)


def test_missing_data_and_wrong_sizes_are_named(tmp_path, model, capsys):
    options = ["--models", str(model), "--output", str(tmp_path / "x.json"), "--data_dir", str(tmp_path)]
    assert similarity.main(options) == 2
    assert str(tmp_path) in capsys.readouterr().err
    assert similarity.main([*options, "--sizes", "0"]) == 2
    assert "--sizes [0]: give numbers of features, 1 or more" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
