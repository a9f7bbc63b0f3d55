"""A kind of task is one file and one line: that of the page trains and predicts; nobody else asks for kinds."""

import json
import re

import pytest
from pages import ROOT, blocks
from small_data import read_lines, write_rows
from transformers import BartConfig

import hf_blosan.tasks
from hf_blosan import DiSANConfig
from hf_blosan.cli.commands import main
from hf_blosan.tasks import TASKS
from hf_blosan.tasks.classification import Classification
from hf_blosan.tasks.kinds import KINDS, describe_rows, find_kind, kind_of
from hf_blosan.tasks.translation import Translation

PAGE = "docs/add_a_kind.md"
WORDS = ("awful", "poor", "fine", "good", "great")


@pytest.fixture
def ordinal(tmp_path, monkeypatch):
    """The package with the file and the line of the page."""
    (file,) = blocks(PAGE, "python")
    (line,) = re.findall(r'^\+ +"(\w+)": (\(.+\)),$', blocks(PAGE, "diff")[0].code, re.MULTILINE)
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / f"{line[0]}.py").write_text(file.code)
    monkeypatch.setattr(hf_blosan.tasks, "__path__", [*hf_blosan.tasks.__path__, str(folder)])
    others = dict(KINDS)
    KINDS.clear()
    KINDS.update({line[0]: eval(line[1]), **others})
    yield line[0]
    KINDS.clear()  # restored in their order, which decides
    KINDS.update(others)


def test_a_sixth_kind(ordinal, tmp_path, capsys):
    rows = [{"text": f"a {word} film {i % 3}", "level": level} for i in range(12) for level, word in enumerate(WORDS)]
    path, out = str(write_rows(tmp_path / "rows.jsonl", rows)), str(tmp_path / "out")
    words = ["--train_file", path, "--validation_file", path, "--encoder", "wordbag", "--cpu", "--output_dir", out]
    words += [
        "--config_overrides",
        "hidden_size=16,embedding_size=16,classifier_size=16,dropout=0.0",
        "--learning_rate",
        "0.03",
        "--num_train_epochs",
        "40",
    ]
    assert main(["train", *words, "--per_device_train_batch_size", "8"]) == 0
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["ordinal"] and config["id2label"] == {str(i): str(i) for i in range(5)}
    assert "For rating sentences like those" in (tmp_path / "out" / "README.md").read_text()
    assert main(["evaluate", out, "--test_file", path, "--cpu", "--output_file", str(tmp_path / "f.json")]) == 0
    figures = json.loads((tmp_path / "f.json").read_text())
    assert figures.keys() == {"test_accuracy", "test_spearmanr"} and figures["test_accuracy"] > 0.9
    assert main(["predict", out, path, str(tmp_path / "o.csv"), "--cpu"]) == 0
    predicted = (tmp_path / "o.csv").read_text().split()
    right = [found == str(row["level"]) for found, row in zip(predicted[1:], rows, strict=True)]
    assert predicted[0] == "level" and sum(right) == round(figures["test_accuracy"] * len(rows))
    assert main(["predict", out, path, str(tmp_path / "o.jsonl"), "--cpu"]) == 0
    assert [row["level"] for row in read_lines(tmp_path / "o.jsonl")] == predicted[1:]


def test_rows_of_tasks_are_described():
    assert describe_rows(TASKS["snli"]) == "pairs, 3 classes" and describe_rows(TASKS["stsb"]) == "pairs, scores"
    assert all(type(find_kind(task)).__name__ == KINDS[task.kind][0] for task in TASKS.values())


def test_encoder_decoders_with_a_head_for_classes_are_no_translators():
    """BART's and T5's, which teach and are evaluated as any classifier."""
    for name, kind in (
        ("BartForSequenceClassification", Classification),
        ("BartForConditionalGeneration", Translation),
    ):
        assert type(kind_of(BartConfig(architectures=[name], num_labels=3))) is kind


def test_nobody_else_asks_for_a_kind_by_its_name():
    names = "|".join(KINDS)
    asks = re.compile(
        rf'(?<!map_)\.kind\s*(==|!=|in\b)|["\']({names})["\']\s*(==|!=)|(==|!=)\s*["\']({names})["\']|endswith\("For'
    )
    found = {
        f"{path.relative_to(ROOT)}:{n}"
        for folder in ("hf_blosan", "reproduce")
        for path in (ROOT / folder).rglob("*.py")
        if "tasks" not in path.parts
        for n, line in enumerate(path.read_text().splitlines(), 1)
        if asks.search(line)
    }
    assert not found


def test_a_saved_model_may_have_more_labels_than_files_define():
    config = DiSANConfig(num_labels=1500, architectures=["DiSANForSequenceClassification"])
    assert len(kind_of(config).task.labels) == 1500
