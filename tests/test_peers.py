"""The comparison with what people use: what it trains, records and refuses, on small generated data."""

import json
from importlib.util import find_spec

import numpy as np
import pytest
from cli_models import save_sentence_bert
from scipy.sparse import csr_matrix
from scipy.stats import pearsonr
from small_data import pair_rows, write_rows, write_trec, write_vectors

from benchmarks import peers, peers_report, peers_systems, report, word_vectors
from benchmarks.peers_data import Problem, Split, read_problem
from benchmarks.peers_systems import SYSTEMS
from hf_blosan.errors import InputError
from hf_blosan.tasks import get_task

QUESTIONS = "stand acronym why mean define animal who whom where country many year the a of in".split()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = write_trec(tmp_path_factory.mktemp("data"), train=240, test=60)
    for seed, split in enumerate(("train", "validation", "test")):
        rows = pair_rows(200 if split == "train" else 60, seed)
        for row in rows:
            if row["score"] >= 4:
                row["sentence2"] = row["sentence1"]
        write_rows(folder / "sick" / f"{split}.jsonl", rows)
    write_vectors(folder / "vectors.txt", QUESTIONS)
    return folder


@pytest.fixture(scope="module")
def minilm(tmp_path_factory):
    """A small random sentence encoder with its own words."""
    return save_sentence_bert(tmp_path_factory.mktemp("minilm"), [" ".join(QUESTIONS)] * 3)


@pytest.fixture
def compare(data, tmp_path, monkeypatch):
    """Runs the command with one sample of each time; returns its report."""
    monkeypatch.setattr("benchmarks.measure.SAMPLE_MS", 1.0)
    path = tmp_path / "peers.json"

    def call(*options):
        defaults = ["--data_dir", str(data), "--output", str(path), "--threads", "1", "--repeats", "1"]
        assert peers.main([*defaults, *map(str, options)]) == 0
        return json.loads(path.read_text())

    call.path = path
    return call


def test_from_command_to_report_figure_and_back(compare, monkeypatch, capsys):
    first = compare("--systems", "ngrams", "--tasks", "sick_relatedness")
    (row,) = first["rows"]
    assert (row["task"], row["system"]) == ("sick_relatedness", "ngrams")
    assert row["rows"] == {"train": 200, "validation": 60, "test": 60}
    assert row["figures"]["test_pearson"] > 0.7 and row["figures"]["test_mse"] < 1
    assert row["settings"]["C"] in peers_systems.SPARSE_CS and row["megabytes"] > 0 and row["train_seconds"] > 0
    validation = row["settings"]["validation"]
    assert validation[f"{row['settings']['C']:g}"] == max(validation.values())
    assert abs(row["figures"]["validation_pearson"] - max(validation.values())) < 1e-4
    assert row["speed"]["1"]["rows"] == row["speed"]["64"]["rows"] == 60
    assert all(row["speed"][size]["rows_per_second"] > 0 for size in ("1", "64"))
    head = first["header"]
    assert head["command"].startswith("python -m benchmarks.peers --data_dir") and head["versions"]["scikit-learn"]

    # Interrupted after one of two tasks, the command makes only the other.
    measured, made = peers.measured, []
    monkeypatch.setattr(peers, "measured", lambda *given: made.append(given[0].task.name) or measured(*given))
    both = compare("--systems", "ngrams", "--tasks", "trec,sick_relatedness")
    assert made == ["trec"]
    assert both["rows"][1] == row and both["rows"][0]["figures"]["test_accuracy"] > 0.7
    assert both["header"]["command"].splitlines() != [head["command"]]
    capsys.readouterr()

    figure = compare.path.parent / "images" / "peers.png"
    assert report.main([str(compare.path), "--figure", str(figure)]) == 0
    assert figure.read_bytes().startswith(b"\x89PNG") and list(figure.parent.iterdir()) == [figure]
    line = f"| n-grams, logistic regression | {both['rows'][0]['figures']['test_accuracy']:.4f} ± 0."
    text = compare.path.with_suffix(".md").read_text()
    assert line in text and "## SICK relatedness" in text

    options = ["--output", str(compare.path), "--systems", "ngrams", "--threads", "1", "--repeats", "1"]
    assert peers.main([*options, "--seed", "7"]) == 2
    assert "was made with seed 42, now it is 7; give another --output" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--systems", "disan"), "--systems disan needs --word_vectors; give it"),
        (("--systems", "minilm"), "--systems minilm needs --minilm; give it"),
        (("--systems", "minilm", "--minilm", "no/where"), "--minilm no/where: there is no such folder"),
        (("--systems", "fasttext"), "--systems fasttext: there is no such choice"),
        (("--tasks", "imdb"), "--tasks imdb: there is no such choice"),
        (("--systems", "ngrams", "--tasks", "sst2", "--data_dir", "nowhere"), "data directory nowhere does not exist"),
        (("--repeats", "0"), "--repeats is 0; it must be more than 0"),
    ],
)
def test_bad_options_get_one_sentence(options, message, tmp_path, capsys):
    assert peers.main(["--output", str(tmp_path / "x.json"), *options]) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_intervals():
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(2, 80))
    other += one
    found = pearsonr(one, other)
    expected = found.confidence_interval(0.95)
    assert peers_report.INTERVALS["pearson"](found.statistic, 80) == pytest.approx(tuple(expected))
    # Wilson (1927) for 45 of 50.
    half = 1.96 * (0.9 * 0.1 / 50 + 1.96**2 / (4 * 50**2)) ** 0.5 / (1 + 1.96**2 / 50)
    centre = (0.9 + 1.96**2 / 100) / (1 + 1.96**2 / 50)
    assert peers_report.INTERVALS["accuracy"](0.9, 50) == pytest.approx((centre - half, centre + half), abs=1e-4)
    row = {"task": "trec", "figures": {"test_accuracy": 0.9}, "rows": {"test": 50}}
    assert peers_report.best_shown(row) == f"0.9000 ± {half:.3f}"
    assert peers_report.INTERVALS["pearson"](1.0, 80) == (1, 1)
    assert peers_report.best_shown({"task": "cola", "figures": {"test_matthews_correlation": 0.5}}) == "0.5000"
    assert peers_report.best_shown({"task": "stsb", "figures": {"test_pearson": None}}) == "undefined"


def problem(name, labels):
    split = Split([("a", "b")] * len(labels), np.asarray(labels, np.float32))
    return Problem(get_task(name), {"train": split}, None, None, None, 0)


def test_features_of_pairs_are_the_same_dense_and_sparse():
    vectors = {"a": [1.0, 0, 2], "b": [3.0, 1, 0], "c": [0.0, 0, 1]}
    rows = [("a", "b"), ("c", "a")]

    def dense(texts):
        return np.array([vectors[text] for text in texts])

    found = peers_systems.features(dense, rows)
    assert found[0].tolist() == [1, 0, 2, 3, 1, 0, 2, 1, 2, 3, 0, 0]
    sparse = peers_systems.features(lambda texts: csr_matrix(dense(texts)), rows)
    assert (sparse.toarray() == found).all()
    signed = peers_systems.features(dense, rows, signed=True)
    assert signed[0].tolist() == [1, 0, 2, 3, 1, 0, -2, -1, 2, 3, 0, 0]
    sparse = peers_systems.features(lambda texts: csr_matrix(dense(texts)), rows, signed=True)
    assert (sparse.toarray() == signed).all()
    assert (peers_systems.features(dense, [("a",), ("b",)]) == dense(["a", "b"])).all()


@pytest.mark.slow  # imports sentence-transformers and trains
@pytest.mark.parametrize("task", ["trec", "sick_relatedness"])
def test_every_peer_is_trained_and_measured(task, compare, data, minilm):
    names = [name for name in SYSTEMS if name not in peers_systems.OURS]
    names = [name for name in names if all(map(find_spec, SYSTEMS[name].packages))]
    options = ("--word_vectors", data / "vectors.txt", "--minilm", minilm, "--systems", ",".join(names))
    report = compare("--tasks", task, *options)
    assert [row["system"] for row in report["rows"]] == names
    assert report["header"]["minilm"] == "model" and report["header"]["word_vectors"] == "vectors.txt"
    for row in report["rows"]:
        figures, selected = row["figures"], row["settings"]["validation"]
        metric = "accuracy" if task == "trec" else "pearson"
        if row["system"] == "minilm_fine_tuned":  # a random BERT learns nothing in four epochs
            assert figures[f"validation_{metric}"] == pytest.approx(selected, abs=1e-4)
        else:
            assert figures[f"validation_{metric}"] == pytest.approx(max(selected.values()), abs=1e-4)
            assert figures[f"test_{metric}"] > 0.3, row["system"]  # a constant prediction has 1/6 right, or Pearson 0
        assert row["megabytes"] > 0 and row["speed"]["64"]["rows_per_second"] > 0


@pytest.mark.slow  # trains
@pytest.mark.parametrize(("task", "figure"), [("trec", "test_accuracy"), ("sick_relatedness", "test_pearson")])
def test_our_figures_are_those_of_the_training_command(task, figure, data, tmp_path):
    options = {"data_dir": str(data), "word_vectors": str(data / "vectors.txt"), "minilm": None, "seed": 1}
    rows = read_problem(task, **options)
    settings = SYSTEMS["biblosan"].fit(rows, tmp_path)
    assert settings["seed"] == 1 and settings["steps"] >= settings["best_step"] > 0
    predictions = SYSTEMS["biblosan"].load(tmp_path)(rows.splits["test"].texts)
    expected = json.loads((tmp_path / "all_results.json").read_text())
    assert rows.figures("test", predictions)[figure.removeprefix("test_")] == pytest.approx(expected[figure], abs=1e-5)


@pytest.mark.slow  # imports sentence-transformers and trains
def test_word_vectors_are_measured_on_every_fold(tmp_path):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(QUESTIONS, 8)) for _ in range(400)]
    rows = [{"text": text, "label": "positive" if "many" in text.split() else "negative"} for text in texts]
    write_rows(tmp_path / "cr" / "train.jsonl", rows)
    vectors = write_vectors(tmp_path / "vectors.txt", QUESTIONS, width=30)
    path = tmp_path / "report.json"
    options = ["--data_dir", tmp_path, "--word_vectors", vectors, "--tasks", "cr", "--output", path]
    assert word_vectors.main(list(map(str, options))) == 0
    report = json.loads(path.read_text())
    assert [row["fold"] for row in report["rows"]] == list(range(10))
    assert sum(row["rows"]["test"] for row in report["rows"]) == 400
    accuracies = [row["figures"]["accuracy"] for row in report["rows"]]
    assert np.mean(accuracies) > 0.9  # a third of the rows are positive
    assert f"| cr | accuracy | 10 | {np.mean(accuracies):.4f} ± " in path.with_suffix(".md").read_text()
    (tmp_path / "records").mkdir()  # with records, rows made without them are made again
    assert word_vectors.main([*map(str, options), "--records", str(tmp_path / "records")]) == 0
    again = json.loads(path.read_text())["rows"]
    assert [(row["fold"], row["compared"]) for row in again] == [(fold, {}) for fold in range(10)]


@pytest.mark.slow  # imports sentence-transformers and trains
def test_word_vectors_of_pairs_are_compared_by_either_difference(data, tmp_path):
    path = tmp_path / "report.json"
    options = ["--data_dir", data, "--word_vectors", data / "vectors.txt", "--tasks", "sick_relatedness"]
    options = [str(option) for option in (*options, "--output", path)]
    for given in ([], ["--signed_difference"]):
        assert word_vectors.main([*options, *given]) == 0
    first, second = json.loads(path.read_text())["rows"]
    assert first["figures"] != second["figures"]
    text = path.with_suffix(".md").read_text()
    for row, name in ((first, "abs(u - v)"), (second, "u - v")):
        assert f"| sick_relatedness, {name} | pearson | 1 | {row['figures']['pearson']:.4f} |" in text


def test_recorded_systems_are_compared_row_by_row(tmp_path):
    """Two seeds of a system that is right where the other is wrong on a fifth of the rows; records of other rows are
    refused."""
    labels = np.tile([0, 1, 2, 1, 0], 40)
    worse = np.where(np.arange(200) % 5 == 0, 1, labels)
    for seed in (1, 2):
        record = {"figures": {"test_accuracy": 1.0}, "experiment": {"row": "DiSAN"}}
        record["test_predictions"] = " ".join(map(str, labels))
        (tmp_path / f"{seed}.json").write_text(json.dumps(record))
    difference, low, high = word_vectors.compared(worse, labels, tmp_path)["DiSAN"]
    assert difference == pytest.approx(0.2)
    error = (0.2 * 0.8 / 200) ** 0.5  # of the mean of rows of which a fifth differs
    assert low == pytest.approx(0.2 - 1.96 * error, abs=0.015) and high == pytest.approx(0.2 + 1.96 * error, abs=0.015)
    with pytest.raises(InputError, match="predictions of other test rows"):
        word_vectors.compared(worse, labels[::-1].copy() + 1, tmp_path)
