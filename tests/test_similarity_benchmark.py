"""benchmarks.similarity and benchmarks.retrieval on small data, with models whose figures are known."""

import gzip
import json

import numpy as np
import pytest
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from benchmarks import retrieval, similarity
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


def test_differences_are_paired(tmp_path, data_dir, model):
    """A model less itself is 0 in every sample, though each has an interval."""
    path = tmp_path / "similarity.json"
    options = ["--models", f"sums={model},again={model}", "--data_dir", str(data_dir), "--repeats", "1"]
    assert similarity.main([*options, "--output", str(path)]) == 0
    first, second = json.loads(path.read_text())["rows"]
    assert "mean_less_first" not in first and second["mean_less_first"] == [0, 0]
    assert second["intervals"] == first["intervals"] and first["intervals"]["stsb"][0] < first["intervals"]["stsb"][1]
    assert "less that of sums" in path.with_suffix(".md").read_text()
    assert "again +0.0 (+0.0 to +0.0)." in path.with_suffix(".md").read_text()


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
    assert "--sizes is 0; it must be more than 0" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_retrieval(tmp_path, model):
    """The answer's sentence is the one with the question's words; of one question they are in another."""
    passages = ["bat bet bit. dat det dit. fat fet fit.", "gat get git. bat bet bit."]
    rows = [
        {"question": "det dit", "context": passages[0], "answers": {"text": ["dat"], "answer_start": [13]}},
        {"question": "gat git", "context": passages[1], "answers": {"text": ["git", "bet"], "answer_start": [8, 17]}},
        {"question": "fat fet", "context": passages[0], "answers": {"text": ["bat"], "answer_start": [0]}},
    ]
    write(tmp_path / "squad" / "validation.jsonl.gz", rows)
    search = retrieval.read_search(str(tmp_path))
    assert search.sentences == ["bat bet bit.", "dat det dit.", "fat fet fit.", "gat get git."]
    assert search.right == [{1}, {3, 0}, {0}]
    path = tmp_path / "retrieval.json"
    options = ["--models", f"sums={model}", "--data_dir", str(tmp_path), "--output", str(path)]
    assert retrieval.main(options) == 0
    report = json.loads(path.read_text())
    assert (report["header"]["questions"], report["header"]["sentences"]) == (3, 4)
    bm25, sums = report["rows"]
    for row in (bm25, sums):
        assert row["first"] == pytest.approx(200 / 3, abs=0.01) and row["low"] < row["first"] < row["high"]
        assert row["first_10"] == 100 and 200 / 3 < row["mean_reciprocal_rank"] < 100
    assert "| BM25 | 66.7 (" in path.with_suffix(".md").read_text()


def test_a_rank_beyond_the_tenth_counts_nothing():
    search = retrieval.Search(["a", "b"], [str(i) for i in range(20)], [{15}, {4}])
    found = retrieval.scores(iter([np.arange(10), np.arange(10)]), search, 0)
    assert (found["first"], found["first_10"], found["mean_reciprocal_rank"]) == (0, 50, 10)
