"""`python -m reproduce.plots`: what the plots of the papers show is what the runs recorded."""

import json
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from small_data import TINY, WORDS, options, pair_rows, question_rows, read_log, write_rows, write_splits

from hf_blosan.errors import install
from hf_blosan.training import train
from reproduce.plots import convergence, length, scatter
from reproduce.plots.command import main
from reproduce.plots.records import read_records

BAG = {"encoder": "wordbag", "config_overrides": f"{TINY},dense_map=true"}
REVIEWS = {"negative": WORDS["animal"], "positive": WORDS["colour"]}


def write_reviews(folder: Path, count: int = 60) -> Path:
    """A data directory with distinct generated reviews in CR's format."""
    rows = {row["text"]: row for row in question_rows(2 * count, 5, REVIEWS)}
    write_rows(folder / "cr" / "train.jsonl", list(rows.values())[:count])
    return folder


def train_run(path: Path, data: dict, **changes) -> Path:
    """A run with its record beside its folder."""
    train(options(path, data, results_file=f"{path}.json", **changes))
    return Path(f"{path}.json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two folds of a DiSAN and of a bag of words, and a regression of pairs."""
    folder = tmp_path_factory.mktemp("runs")
    data = {"task_name": "cr", "data_dir": str(write_reviews(folder / "data")), "num_folds": 2}
    for fold in (0, 1):
        train_run(folder / f"disan{fold}", data, fold=fold)
        train_run(folder / f"words{fold}", data, fold=fold, num_train_epochs=3, **BAG)
    train_run(folder / "pairs", write_splits(folder / "pair_rows", pair_rows), num_train_epochs=1, **BAG)
    return folder


@pytest.fixture(scope="module")
def records(folder):
    """The records of the four runs on reviews."""
    return [folder / f"{name}{fold}.json" for name in ("disan", "words") for fold in (0, 1)]


@pytest.fixture
def copied(folder, tmp_path):
    """The runs and their data, to be spoilt."""
    return Path(shutil.copytree(folder, tmp_path / "runs"))


def change(path: Path, **changes) -> None:
    """Overwrite fields of a record, such as ``training={"epochs": 0}``."""
    record = json.loads(path.read_text())
    for name, value in changes.items():
        record[name] = (record[name] or {}) | value
    path.write_text(json.dumps(record))


class TestLength:
    def test_groups_have_the_accuracy_of_the_runs(self, folder, records):
        numbers = length.measure(read_records(records), data_dir=str(folder / "data"), bins=4)
        lines = (folder / "data" / "cr" / "train.jsonl").read_text().splitlines()
        words = Counter(len(json.loads(line)["text"].split()) for line in lines)
        expected = 1
        for group in numbers["bins"]:
            inside = {n: rows for n, rows in words.items() if group["shortest"] <= n <= group["longest"]}
            assert group["shortest"] >= expected and group["rows"] == sum(inside.values()) > 8
            assert group["mean_length"] == pytest.approx(sum(n * r for n, r in inside.items()) / group["rows"])
            expected = group["longest"] + 1
        assert len(numbers["bins"]) == 4 and sum(group["rows"] for group in numbers["bins"]) == 60
        assert numbers["metric"] == "accuracy" and list(numbers["systems"]) == ["DiSAN", "WordBag"]
        rows = np.array([group["rows"] for group in numbers["bins"]])
        for label, paths in (("DiSAN", records[:2]), ("WordBag", records[2:])):
            system = numbers["systems"][label]
            assert system["runs"] == [str(path) for path in paths]
            mean, figures = np.array(system["mean"]), [json.loads(path.read_text())["figures"] for path in paths]
            assert mean @ rows / 60 == pytest.approx(np.mean([each["test_accuracy"] for each in figures]))
            assert system["standard_error"] == pytest.approx(np.sqrt(mean * (1 - mean) / (rows - 1)))

    def test_a_row_that_several_runs_tested_counts_once(self, copied):
        """A second seed that is wrong wherever the first is right makes every row half right."""
        record = json.loads((copied / "disan0.json").read_text())
        accuracy, opposite = record["figures"]["test_accuracy"], str.maketrans("01", "10")
        record["test_predictions"] = record["test_predictions"].translate(opposite)
        (copied / "disan1.json").write_text(json.dumps(record))
        change(copied / "disan1.json", figures={"test_accuracy": 1 - accuracy})
        numbers = length.measure(read_records([copied / "disan0", copied / "disan1"]), data_dir=str(copied / "data"))
        assert sum(group["rows"] for group in numbers["bins"]) == 30
        assert set(numbers["systems"]["DiSAN"]["mean"]) == {0.5}

    def test_scores_have_a_squared_error(self, folder):
        """The rows of a user's own file."""
        test_file = str(folder / "pair_rows" / "test.jsonl")
        runs = read_records([folder / "pairs"])
        numbers = length.measure(runs, test_file=test_file, bins=3)
        rows = [group["rows"] for group in numbers["bins"]]
        assert numbers["metric"] == "mean squared error" and sum(rows) == 21
        mse = np.dot(numbers["systems"]["WordBag"]["mean"], rows) / 21
        assert mse == pytest.approx(runs[0].content["figures"]["test_mse"], rel=1e-3)
        assert length.draw(numbers).axes[0].get_xlabel() == "sentence length (words, of the longer sentence)"

    def test_groups_are_of_about_as_many_rows(self):
        lengths = {(str(i),): int(value) for i, value in enumerate([3] * 50 + list(range(4, 54)))}
        groups = length.in_groups(lengths, 5)
        assert [len(group) for group in groups] == [50, 10, 20, 20]
        assert [set(group.values()) & {3} for group in groups] == [{3}, set(), set(), set()]
        assert len(length.in_groups(dict.fromkeys([("a",), ("b",)], 7), 4)) == 1


class TestConvergence:
    def test_curves_are_those_of_the_logs(self, folder, records):
        numbers = convergence.measure(read_records(records))
        assert numbers["metric"] == "accuracy"
        for label, name, epochs in (("DiSAN", "disan", 2), ("WordBag", "words", 3)):
            system = numbers["systems"][label]
            for fold, curve in enumerate(system["curves"]):
                events = read_log(folder / f"{name}{fold}", "validation")
                assert curve["values"] == [event["validation_accuracy"] for event in events] and len(events) == epochs
                assert curve["seconds"] == sorted(curve["seconds"]) and curve["seconds"][0] > 0
                recorded = json.loads((folder / f"{name}{fold}.json").read_text())["training"]["seconds"]
                assert curve["seconds"][-1] == pytest.approx(recorded, abs=0.051)
            first, second = (curve["values"] for curve in system["curves"])
            assert system["mean"] == pytest.approx(np.mean([first, second], axis=0))
            assert system["standard_error"] == pytest.approx(np.abs(np.subtract(first, second)) / 2)

    def test_a_mean_is_over_all_runs(self, copied):
        """It ends where the shortest run ends; what a resumed run repeats counts once."""
        log = copied / "words0" / "log.jsonl"
        *_, last = read_log(copied / "words0", "validation")
        log.write_text(log.read_text() + json.dumps(last | {"validation_accuracy": 0.125, "seconds": 99}) + "\n")
        short = copied / "words1" / "log.jsonl"
        events = read_log(copied / "words1", "validation")[:2]
        short.write_text("".join(json.dumps(event) + "\n" for event in events))
        system = convergence.measure(read_records([copied / "words0", copied / "words1"]))["systems"]["WordBag"]
        assert [len(curve["values"]) for curve in system["curves"]] == [3, 2] and len(system["mean"]) == 2
        assert system["curves"][0]["values"][-1] == 0.125 and system["curves"][0]["seconds"][-1] == 99


def test_scatter_shows_the_records(records):
    numbers = scatter.measure(read_records(records))
    assert numbers["hardware"].startswith("cpu (")
    for label, paths in (("DiSAN", records[:2]), ("WordBag", records[2:])):
        found = [json.loads(path.read_text()) for path in paths]
        system = numbers["systems"][label]
        for name, values in (
            ("test", [each["figures"]["test_accuracy"] for each in found]),
            ("seconds_per_epoch", [each["training"]["seconds"] / each["training"]["epochs"] for each in found]),
            ("peak_memory_mib", [each["training"]["peak_memory_mib"] for each in found]),
        ):
            assert system[name]["mean"] == pytest.approx(np.mean(values))
            assert system[name]["standard_error"] == pytest.approx(abs(values[0] - values[1]) / 2)
        assert 50 < system["peak_memory_mib"]["mean"] < 1e5


@pytest.mark.parametrize("name", ["length", "convergence", "scatter"])
def test_command(name, folder, records, tmp_path, capsys):
    """The figure shows the numbers that are written beside it."""
    data = ["--data_dir", str(folder / "data"), "--bins", "3"] if name == "length" else []
    output, numbers = tmp_path / "new" / f"{name}.svg", tmp_path / "new" / f"{name}.json"
    runs = [str(folder / path.stem) for path in records]
    words = [name, *runs, "--labels", *["ours $5 and $6"] * 2, *["words"] * 2]
    assert main([*words, "--output", str(output), "--figures_file", str(numbers), *data]) == 0
    assert capsys.readouterr().out == f"wrote {output}\n"
    assert sorted(path.name for path in output.parent.iterdir()) == [f"{name}.json", f"{name}.svg"]
    assert output.read_text().startswith("<?xml")
    numbers = json.loads(numbers.read_text())
    figure = {"length": length, "convergence": convergence, "scatter": scatter}[name].draw(numbers)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.texts] == ["ours $5 and $6 (2 runs)", "words (2 runs)"]
    assert figure.get_suptitle() == "customer-review polarity" and len(figure.axes) == (2 if name == "scatter" else 1)
    drawn = [line.get_ydata().tolist() for line in figure.axes[0].lines]
    for system in numbers["systems"].values():
        assert ([system["test"]["mean"]] if name == "scatter" else system["mean"]) in drawn


def replace(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


def no_class(path: Path) -> None:
    """Predictions of a class that no row has."""
    found = re.sub(r'(?<="test_predictions": ")[01 ]+', lambda text: re.sub("[01]", "9", text[0]), path.read_text())
    path.write_text(found)


def remove(path: Path) -> None:
    path.unlink()


def without(path: Path, name: str) -> None:
    """Leave a field out of the events of a log."""
    events = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({k: v for k, v in event.items() if k != name}) + "\n" for event in events))


BOTH = ("disan0", "words0")
BAD = {
    "no record": ("scatter", BOTH, lambda runs: remove(runs / "words0.json"), "there is no record .*words0.json"),
    "no run": ("scatter", ("gone.json",), None, "there is no record .*gone.json; train with --output_dir"),
    "no JSON": ("scatter", BOTH, lambda runs: (runs / "words0.json").write_text("{"), "is not the record of a run"),
    "other JSON": ("length", ("disan0/config.json",), None, "config.json is not the record of a run; give a file"),
    "tasks": ("scatter", ("disan0", "pairs"), None, "disan0.json is a run on cr and .*pairs.json on .*; give runs on"),
    "twice": ("scatter", ("disan0", "words0", "disan0.json"), None, "disan0.json is given twice; leave one out"),
    "systems": (
        "scatter",
        ("disan0", "disan1"),
        lambda runs: change(runs / "disan1.json", config={"dropout": 0.7}),
        "are both 'DiSAN', but dropout is 0.3 in the one and 0.7 in the other; separate the systems by --labels",
    ),
    "teachers": (
        "scatter",
        ("disan0", "disan1"),
        lambda runs: change(runs / "disan1.json", distillation={"teacher": "t", "file": "texts.csv", "rows": 9}),
        "are both 'DiSAN', but a teacher's texts is False in the one and True in the other; separate the",
    ),
    "machines": (
        "convergence",
        BOTH,
        lambda runs: change(runs / "words0.json", hardware={"device": "cuda", "name": "H100"}),
        r"words0.json on cuda \(H100\), 1 x 1 threads; give runs from one machine",
    ),
    "memory": (
        "scatter",
        BOTH,
        lambda runs: change(runs / "words0.json", training={"peak_memory_mib": None}),
        "words0.json has no peak memory, .*; train the run again",
    ),
    "untested": (
        "scatter",
        BOTH,
        lambda runs: change(runs / "words0.json", task={"best_metric": "f1"}),
        "words0.json has no figure test_f1, it has .*; give runs that were tested",
    ),
    "no log": ("convergence", BOTH, lambda runs: remove(runs / "words0" / "log.jsonl"), "there is no log .*; train"),
    "no lines": (
        "convergence",
        BOTH,
        lambda runs: (runs / "words0" / "log.jsonl").write_text("epoch 1\n"),
        "log.jsonl is not the log of a run; train the run again",
    ),
    "no validation": (
        "convergence",
        BOTH,
        lambda runs: (runs / "words0" / "log.jsonl").write_text('{"event": "train", "step": 1, "loss": 1.5}\n'),
        "log.jsonl has no validation events; train for at least one epoch",
    ),
    "no seconds": (
        "convergence",
        BOTH,
        lambda runs: without(runs / "words0" / "log.jsonl", "seconds"),
        "log.jsonl have no seconds, as in older versions; train the run again",
    ),
    "no metric": (
        "convergence",
        BOTH,
        lambda runs: without(runs / "words0" / "log.jsonl", "validation_accuracy"),
        "log.jsonl have no accuracy; train the run again",
    ),
    "no predictions": (
        "length",
        BOTH,
        lambda runs: replace(runs / "words0.json", '"test_predictions"', '"others"'),
        "words0.json has no predictions; train the run again, on a task with test rows",
    ),
    "more rows": (
        "length",
        BOTH,
        lambda runs: write_reviews(runs / "data", 70),
        "has 30 predictions, but cr has 35 test rows; check --data_dir",
    ),
    "other rows": (
        "length",
        BOTH,
        lambda runs: no_class(runs / "disan0.json"),
        "disan0.json have a test_accuracy of 0.0000 on these rows, but of 0.* in the run; give the rows of the run",
    ),
    "folds": ("length", ("disan0", "disan1", "words0"), None, "'DiSAN' was tested on 60 rows, 'WordBag' on 30 and"),
    "own rows": ("length", ("pairs",), None, "pairs.json is a run on your own rows; give the test rows by"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_compared_is_said_in_a_sentence(case, copied, capsys):
    name, runs, spoil, message = BAD[case]
    if spoil:
        spoil(copied)
    data = ["--data_dir", str(copied / "data")] if name == "length" else []
    words = [name, *(str(copied / run) for run in runs), "--output", str(copied / "a.png"), *data]
    check_refused(words, message, capsys)
    assert not (copied / "a.png").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("scatter a.json --output a.gif", "--output is 'a.gif'; its suffix must be one of .png, .svg, .pdf."),
        ("scatter a.json", "the following arguments are required: --output"),
        ("length a.json --output a.png --bins 0", "--bins is 0; it must be more than 0."),
        ("scatter a.json --output a.png --bins 3", "--bins is for the analysis length, not for scatter"),
        ("scatter a.json --labels a b --output a.png", "there are 1 runs and 2 labels; give one label for each run"),
        ("depth a.json --output a.png", "invalid choice: 'depth'"),
        ("scatter a.json --output a.png --sizes 3", "unknown option '--sizes'"),
    ],
)
def test_wrong_options(words, message, capsys):
    check_refused(words.split(), re.escape(message), capsys)


def test_a_figure_that_cannot_be_written(records, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    words = ["scatter", str(records[0]), "--output", str(tmp_path / "file" / "a.png")]
    check_refused(words, "cannot be written", capsys)


def test_matplotlib_is_an_extra(records, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    words = ["scatter", str(records[0]), "--output", str(tmp_path / "a.png")]
    check_refused(words, re.escape(f"figures need matplotlib; {install('analysis')}"), capsys)


def check_refused(words: list[str], message: str, capsys) -> None:
    """One sentence, in which the pattern occurs, and status 2."""
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ") and printed.err.count("\n") == 1 and not printed.out
    assert re.search(message, printed.err), printed.err
