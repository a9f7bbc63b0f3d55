"""One run after another in the same output folder: it holds a whole model of one of them, or none."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_data import options, read_log, write_rows

from hf_blosan.cli.commands import main
from hf_blosan.errors import InputError
from hf_blosan.training import train
from hf_blosan.training.checkpoints import BEST_WEIGHTS, WEIGHTS
from hf_blosan.training.loop import TrainingLoop

# The first evaluation comes after three checkpoints.
SECOND = {"checkpointing_steps": "2", "eval_every": 7, "num_train_epochs": 9}
LATEST = {"resume_from_checkpoint": "latest"}


class Killed(BaseException):
    """The end of a process without a handler, as with SIGKILL."""


def data(folder, words):
    """Files with a class for each word. The weights for any two words have the same shapes."""
    rows = [{"text": f"the {word} one", "label": word} for word in words.split()] * 24
    return {f"{split}_file": str(write_rows(folder / f"{split}.csv", rows)) for split in ("train", "validation")}


def train_until_killed(monkeypatch, updates, arguments):
    """Train, with the process killed before another update is made."""
    batch, left = TrainingLoop._batch, iter(range(updates))

    def limited(self, *positional):
        if next(left, None) is None:
            raise Killed
        return batch(self, *positional)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(TrainingLoop, "_batch", limited)
        train(arguments)


def model_in(folder):
    """A saved model and what its run says of it: all files but the log."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != "log.jsonl"}


def labels_in(folder):
    return set(json.loads((folder / "config.json").read_text())["label2id"])


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A finished run, whose model knows red and cow."""
    folder = tmp_path_factory.mktemp("first")
    train(options(folder / "out", data(folder, "red cow"), num_train_epochs=1, checkpointing_steps="4"))
    return folder / "out"


@pytest.fixture
def shared(first, tmp_path):
    return Path(shutil.copytree(first, tmp_path / "shared"))


@pytest.fixture
def second(tmp_path):
    """Data of another run, whose model knows Oslo and Rome."""
    return data(tmp_path / "second", "oslo rome")


def test_an_earlier_model_stays_whole_until_this_run_has_one(first, shared, second, tmp_path, monkeypatch):
    train_until_killed(monkeypatch, 5, options(shared, second, **SECOND))
    assert (shared / "step_4").exists() and not (shared / "step_4" / BEST_WEIGHTS).exists()
    train_until_killed(monkeypatch, 1, options(shared, second, **SECOND, **LATEST))
    assert [entry["checkpoint"] for entry in read_log(shared, "resume")] == ["step_4"]
    assert model_in(shared) == model_in(first)
    texts = write_rows(tmp_path / "texts.csv", [{"text": "the red one"}, {"text": "the cow one"}])
    for folder in (first, shared):
        assert main(["predict", str(folder), str(texts), str(tmp_path / f"{folder.name}.csv")]) == 0
    assert (tmp_path / "out.csv").read_text() == (tmp_path / "shared.csv").read_text()

    train_until_killed(monkeypatch, 5, options(shared, second, **SECOND, **LATEST))
    assert read_log(shared, "validation")[-1]["best"] and labels_in(shared) == {"oslo", "rome"}
    assert not {"README.md", "all_results.json"} & model_in(shared).keys()
    expected = train(options(tmp_path / "alone", second, **SECOND))
    assert train(options(shared, second, **SECOND, **LATEST))["figures"] == expected["figures"]
    kept, alone = (load_file(folder / WEIGHTS) for folder in (shared, tmp_path / "alone"))
    assert all(torch.equal(kept[name], alone[name]) for name in alone)


def test_a_checkpoint_of_earlier_versions_with_another_runs_model(first, shared, second, monkeypatch):
    """Versions up to 0.1 put whatever model lay in the folder into a checkpoint."""
    from test_robust_runs import replace_file

    train_until_killed(monkeypatch, 3, options(shared, second, **SECOND))
    replace_file(shared / "step_2", BEST_WEIGHTS, (first / WEIGHTS).read_bytes())
    train_until_killed(monkeypatch, 1, options(shared, second, **SECOND, **LATEST))
    assert read_log(shared, "resume") and model_in(shared) == model_in(first)


def test_the_best_model_of_a_checkpoint_replaces_a_later_runs(first, shared, second, tmp_path, monkeypatch):
    mine = data(tmp_path / "again", "red cow")
    train_until_killed(monkeypatch, 9, options(shared, mine, **SECOND))
    best = load_file(shared / "step_8" / BEST_WEIGHTS)
    train(options(shared, second, num_train_epochs=1))
    assert labels_in(shared) == {"oslo", "rome"} and {"README.md", "all_results.json"} < model_in(shared).keys()
    train_until_killed(monkeypatch, 0, options(shared, mine, **SECOND, **LATEST))
    assert labels_in(shared) == {"red", "cow"}
    assert all(torch.equal(best[name], kept) for name, kept in load_file(shared / WEIGHTS).items())
    assert (shared / "tokenizer.json").read_bytes() == (first / "tokenizer.json").read_bytes()
    assert not {"README.md", "all_results.json"} & model_in(shared).keys()


@pytest.mark.parametrize("resumed", [False, True], ids=["first evaluation", "resumed"])
def test_killed_while_the_model_is_replaced(first, shared, second, tmp_path, monkeypatch, resumed):
    """Whichever change of the folder is the last, no part of one model is beside a part of the other."""
    resume = {}
    if resumed:
        train_until_killed(monkeypatch, 9, options(tmp_path / "alone", second, **SECOND))
        assert (tmp_path / "alone" / "step_8" / BEST_WEIGHTS).exists()
        resume = {"resume_from_checkpoint": str(tmp_path / "alone" / "step_8")}
    of_first = first / WEIGHTS, first / "config.json", first / "tokenizer.json"
    seen, changes = [], {"replace": os.replace, "unlink": Path.unlink}

    def watched(name):
        def change(*positional, **named):
            changes[name](*positional, **named)
            if (shared / WEIGHTS).exists():
                seen.append([(shared / path.name).read_bytes() == path.read_bytes() for path in of_first])
            else:
                seen.append(None)

        return change

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", watched("replace"))
        patch.setattr(Path, "unlink", watched("unlink"))
        train_until_killed(monkeypatch, 8, options(shared, second, **SECOND, **resume))
    assert labels_in(shared) == {"oslo", "rome"}
    assert None in seen and all(same is None or len(set(same)) == 1 for same in seen)
    assert {tuple(same) for same in seen if same} == {(True,) * 3, (False,) * 3}


def test_a_better_model_of_the_same_run_replaces_the_last_in_one_step(shared, second, tmp_path, monkeypatch):
    """Files that are equal stay."""
    seen, replaced, replace = [], set(), os.replace

    def watched(source, target):
        replace(source, target)
        seen.append((shared / WEIGHTS).exists())
        replaced.add(target)

    train_until_killed(monkeypatch, 8, options(shared, second, **SECOND))
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", watched)
        patch.setattr(TrainingLoop, "_is_better", lambda self, value, best: True)
        train(options(shared, second, **SECOND, **LATEST))
    assert len(seen) > 20 and all(seen)
    assert shared / WEIGHTS in replaced and not {shared / "config.json", shared / "tokenizer.json"} & replaced


def test_resumed_after_its_last_update_without_an_evaluation(shared, first, second, monkeypatch):
    """A shorter run ends at once, with the model of the checkpoint, not with what lies in the folder."""
    train_until_killed(monkeypatch, 5, options(shared, second, **SECOND))
    run = train(options(shared, second, **SECOND | {"max_train_steps": 4}, **LATEST))
    assert run["training"]["best_step"] == run["training"]["steps"] == 4
    kept, trained = load_file(shared / WEIGHTS), load_file(shared / "step_4" / "model.safetensors")
    assert all(torch.equal(kept[name], trained[name]) for name in kept)


def test_files_that_a_later_model_lacks_go(shared, second):
    left = ["generation_config.json", "model-00001-of-00002.safetensors", "model.safetensors.index.json"]
    for name in left:
        (shared / name).write_text("{}")
    card, notes = (shared / "README.md").read_bytes(), b"my own notes, in Latin-1: \xe9"
    (shared / "README.md").write_bytes(notes)
    with pytest.raises(InputError, match=r"has a README.md that is not the card .*; give another folder"):
        train(options(shared, second, max_train_steps=1))
    assert (shared / "README.md").read_bytes() == notes and all((shared / name).exists() for name in left)
    (shared / "README.md").unlink()
    (shared / "log.jsonl").rename(shared / "log")
    with pytest.raises(InputError, match=r"here \(config.json and model.safetensors\), which training would replace;"):
        train(options(shared, second, max_train_steps=1))
    (shared / "log").rename(shared / "log.jsonl")
    (shared / "README.md").write_bytes(card)
    train(options(shared, second, max_train_steps=1))
    assert not [name for name in left if (shared / name).exists()]
