"""The script that trains the best recorded models again."""

import importlib.util
import json
import shlex
from pathlib import Path

import pytest
from small_data import options, question_rows, write_rows

from hf_blosan.registry import pretrained_names
from hf_blosan.training import train

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "examples" / "remake_checkpoints.py"
SPECIFICATION = importlib.util.spec_from_file_location("remake_checkpoints", SCRIPT)
remake_checkpoints = importlib.util.module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(remake_checkpoints)
QUESTIONS = {"ABBR": ("abbreviation", "exp"), "LOC": ("city", "country"), "NUM": ("count", "date")}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A folder with the data of TREC, and one with the records of two seeds."""
    folder = tmp_path_factory.mktemp("recorded")
    for split, count in (("train", 60), ("test", 20)):
        rows = question_rows(count, len(split))
        names = sorted({row["label"] for row in rows})
        rows = [row | {"label": list(QUESTIONS)[names.index(row["label"])]} for row in rows]
        write_rows(folder / "data" / "trec" / f"{split}.jsonl", rows)
    for seed in (1, 2):
        run = options(folder / "out", {}, task_name="trec", data_dir=str(folder / "data"), seed=seed)
        command = shlex.join(["python", "run_glue_style.py", *run.to_argv()])
        record = train(run, command=command)
        (folder / "records").mkdir(exist_ok=True)
        (folder / "records" / f"disan_trec_seed{seed}.json").write_text(json.dumps(record))
    return folder


def test_the_best_seed_is_trained_again(recorded, tmp_path, capsys):
    records = [json.loads(path.read_text()) for path in sorted((recorded / "records").iterdir())]
    best = max(records, key=lambda record: record["figures"]["validation_accuracy"])
    moved = recorded / "data"
    argv = ["--records", str(recorded / "records"), "--output_dir", str(tmp_path), "--data_dir", str(moved)]
    argv += ["--word_vectors", "absent.txt", "--backbone", "absent"]  # the run had none
    assert remake_checkpoints.main(["disan-trec", *argv]) == 0
    printed = capsys.readouterr().out.splitlines()[-2:]
    for line, (name, value) in zip(printed, best["figures"].items(), strict=True):
        assert line == f"disan-trec {name}: recorded {value:.4f}, now {value:.4f}"
    assert {"model.safetensors", "README.md"} <= {path.name for path in (tmp_path / "disan-trec").iterdir()}


def test_cards_need_no_training(recorded, tmp_path):
    assert remake_checkpoints.main(["--records", str(recorded / "records"), "--cards", str(tmp_path)]) == 0
    (card,) = tmp_path.iterdir()
    assert "Of the runs with seeds 1, 2 it is the best" in card.read_text()
    assert card.name == "disan-trec.md" and "model-index" in card.read_text()


def test_unknown_names(recorded, tmp_path, capsys):
    assert remake_checkpoints.main(["mtsa-trec", "--records", str(recorded / "records")]) == 2
    assert "no record of mtsa-trec" in capsys.readouterr().err


def test_every_best_model_has_its_card():
    """What is shown in model_cards/ is made from the records."""
    models = remake_checkpoints.runs_by_model(remake_checkpoints.RECORDS)
    # Six encoders on three tasks, three on semantic roles, five on sentence selection, three on translation, five on
    # two tasks on top of a backbone.
    assert len(models) == 39
    shown = {path.stem: path.read_text() for path in (ROOT / "model_cards").iterdir()}
    of_single_runs = {path.stem for path in (ROOT / "results").glob("*.json")}
    assert shown.keys() == models.keys() | of_single_runs | set(pretrained_names())
    for name, runs in models.items():
        assert shown[name].strip() == str(remake_checkpoints.card_of(name, runs)).strip(), name
