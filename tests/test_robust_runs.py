"""What can go wrong in a run: damaged or hostile files, divergence, signals, a full disk, two runs in a folder."""

import hashlib
import json
import math
import os
import pickle
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file
from small_data import options, read_log, write_splits

from hf_blosan.errors import InputError
from hf_blosan.training import checkpoints, train
from hf_blosan.training import run as run_module
from hf_blosan.training.arguments import CRITICAL_FOR_RESUMING, RunArguments
from hf_blosan.training.checkpoints import DESCRIPTION
from hf_blosan.training.interruption import Interrupted
from hf_blosan.training.loop import TrainingLoop
from hf_blosan.training.output_folder import is_full

FILES = ("model.safetensors", "optimizer.bin", "scheduler.bin", "random_states_0.pkl", "best_model.safetensors")
AVERAGED = {"ema_decay": 0.5, "checkpointing_steps": "5"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, questions):
    """A run with averaged weights and the checkpoints step_5 and step_10."""
    folder = tmp_path_factory.mktemp("trained") / "out"
    train(options(folder, questions, **AVERAGED))
    return folder


@pytest.fixture
def run_folder(tmp_path, trained):
    return Path(shutil.copytree(trained, tmp_path / "out"))


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def replace_file(checkpoint, name, content):
    """Replace a file and its fingerprint, as somebody would who wants it to be loaded."""
    (checkpoint / name).write_bytes(content)
    description = json.loads((checkpoint / DESCRIPTION).read_text())
    del description["sha256"]
    description["files"][name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    description["sha256"] = checkpoints._digest(description)
    (checkpoint / DESCRIPTION).write_text(json.dumps(description))


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


class TestCheckpoints:
    @pytest.mark.parametrize("name", [*FILES, "averaged_model.safetensors", "custom_checkpoint_0.pkl"])
    @pytest.mark.parametrize("write", [pickle.dumps, torch.save], ids=["pickle", "torch"])
    def test_nothing_in_a_file_is_executed(self, run_folder, tmp_path, questions, name, write):
        payload, marker = Payload(tmp_path / "executed"), tmp_path / "executed"
        if write is torch.save:
            torch.save(payload, tmp_path / "payload")
            content = (tmp_path / "payload").read_bytes()
        else:
            content = pickle.dumps(payload)
        replace_file(run_folder / "step_10", name, content)
        with pytest.raises(InputError, match="step_10 cannot be resumed from: .*; resume from .*step_5"):
            resume = {"resume_from_checkpoint": str(run_folder / "step_10")}
            train(options(tmp_path / "resumed", questions, **resume, **AVERAGED))
        assert not marker.exists()
        pickle.loads(pickle.dumps(payload))  # the payload works
        assert marker.exists()

    @pytest.mark.parametrize("name", [*FILES, "averaged_model.safetensors"])
    @pytest.mark.parametrize("damage", ["missing", "truncated", "other"])
    def test_damaged_files_are_refused_and_change_nothing(self, run_folder, questions, name, damage):
        path = run_folder / "step_10" / name
        content = path.read_bytes()
        path.unlink()  # best_model.safetensors may be a hard link to the good model
        if damage != "missing":
            path.write_bytes(content[: len(content) // 2] if damage == "truncated" else content[::-1])
        before = contents(run_folder)
        with pytest.raises(InputError) as error:
            train(options(run_folder, questions, resume_from_checkpoint=str(path.parent), **AVERAGED))
        what = f"{name} is missing" if damage == "missing" else f"{name} has changed since it was written"
        assert str(error.value) == (
            f"{path.parent} cannot be resumed from: {what}; resume from {run_folder / 'step_5'}, the last intact one."
        )
        assert contents(run_folder) == before

    @pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"files": 3}', '{"files": {}, "settings": {}}', "\x00"])
    def test_broken_description(self, run_folder, questions, content):
        for step in ("step_5", "step_10"):
            (run_folder / step / DESCRIPTION).write_text(content)
        with pytest.raises(InputError, match=f"{DESCRIPTION} cannot be read .*; no other is intact: start over"):
            train(options(run_folder, questions, resume_from_checkpoint=str(run_folder / "step_5"), **AVERAGED))

    def test_changed_progress_is_refused(self, run_folder, questions):
        path = run_folder / "step_5" / DESCRIPTION
        path.write_text(path.read_text().replace('"step": 5', '"step": 6'))
        with pytest.raises(InputError, match=f"{DESCRIPTION} has changed since it was written; resume from .*step_10"):
            train(options(run_folder, questions, resume_from_checkpoint=str(path.parent), **AVERAGED))

    def test_latest_is_the_last_whole_one(self, run_folder, questions, tmp_path):
        resume = {"resume_from_checkpoint": "latest", **AVERAGED}
        (run_folder / "step_10" / "optimizer.bin").write_bytes(b"")
        expected = train(options(run_folder, questions, **resume))
        assert [entry["checkpoint"] for entry in read_log(run_folder, "resume")] == ["step_5"]
        again = train(options(run_folder, questions, **resume))
        assert [entry["checkpoint"] for entry in read_log(run_folder, "resume")] == ["step_5", "step_10"]
        assert again["figures"] == expected["figures"]
        with pytest.raises(InputError, match="has no intact checkpoint; leave out --resume_from_checkpoint"):
            train(options(tmp_path / "new", questions, **resume))
        assert not (tmp_path / "new").exists()


def test_options_that_change_the_weights_are_compared_when_a_run_is_resumed():
    """A new option has to be in ``CRITICAL_FOR_RESUMING``, unless what it changes is compared by other means."""
    # By the configuration, the vocabulary, the rows, and the updates in all.
    by_other_means = {"encoder", "model_name_or_path", "tokenizer_name", "lower_case", "backbone", "config_overrides"}
    by_other_means |= {"word_vectors", "vocabulary", "embedding_trainable", "distill_from", "unlabeled_file"}
    by_other_means |= {"num_train_epochs", "max_train_steps"}
    changes_no_weights = {"trust_remote_code", "ignore_mismatched_sizes", "cpu", "early_stopping_patience"}
    changes_no_weights |= {"per_device_eval_batch_size", "recipe"}  # the last fills other options
    group, groups = None, {}
    for entry in fields(RunArguments):
        group = entry.metadata["group"] or group
        groups.setdefault(group, set()).add(entry.name)
    options = groups["model"] | groups["optimisation"]
    assert by_other_means | changes_no_weights <= options
    assert options - by_other_means - changes_no_weights <= set(CRITICAL_FOR_RESUMING)


def test_a_checkpoint_is_found_by_its_name(run_folder):
    assert checkpoints.find_checkpoint("step_5", run_folder) == run_folder / "step_5"


class TestSavedModels:
    """`--model_name_or_path` with something that is not a model."""

    @pytest.mark.parametrize(
        ("file", "content"),
        [
            ("model.safetensors", None),
            ("model.safetensors", b""),
            ("model.safetensors", b"garbage" * 100),
            ("config.json", b"{"),
            ("config.json", b"[]"),
            ("tokenizer.json", b"{"),
        ],
    )
    def test_broken_files(self, run_folder, tmp_path, questions, file, content):
        (run_folder / file).unlink()
        if content is not None:
            (run_folder / file).write_bytes(content)
        self.check_refused(run_folder, tmp_path, questions)

    @pytest.mark.parametrize(
        "changes",
        [
            {"hidden_size": -4},
            {"hidden_size": "six"},
            {"embedding_size": 7},
            {"dropout": 1.5},
            {"vocab_size": 3},
            {"model_type": "bert"},
            {"model_type": "no such type"},
        ],
        ids=str,
    )
    def test_impossible_configurations(self, run_folder, tmp_path, questions, changes):
        config = json.loads((run_folder / "config.json").read_text())
        (run_folder / "config.json").write_text(json.dumps(config | changes))
        self.check_refused(run_folder, tmp_path, questions)

    def check_refused(self, run_folder, tmp_path, questions):
        before, output = contents(run_folder), tmp_path / "new"
        with pytest.raises(InputError) as error:
            train(options(output, questions, encoder=None, config_overrides=None, model_name_or_path=str(run_folder)))
        assert "\n" not in str(error.value) and str(run_folder) in str(error.value)
        assert contents(run_folder) == before and not output.exists()


class TestDivergence:
    def test_infinite_loss_ends_the_run(self, tmp_path, questions):
        train(options(tmp_path, questions, learning_rate=1e-6))
        before = load_file(tmp_path / "model.safetensors")
        with pytest.raises(InputError) as error:
            train(options(tmp_path, questions, learning_rate=1e37, eval_every=1000))
        assert re.fullmatch(
            r"the loss is (nan|inf) after update \d+ with learning rate 1e\+37; no model was saved; lower "
            r"--learning_rate or give --max_grad_norm\.",
            str(error.value),
        )
        after = load_file(tmp_path / "model.safetensors")
        assert all(torch.equal(before[name], after[name]) for name in before)

    def test_a_model_with_infinite_weights_is_never_the_best(self, tmp_path, questions, monkeypatch):
        def validate(self):
            if self.progress.step == 4:
                next(self.model.parameters()).data[0, 0] = math.inf
            whole(self)

        whole = TrainingLoop._validate
        monkeypatch.setattr(TrainingLoop, "_validate", validate)
        with pytest.raises(
            InputError, match="weight is not finite after update 4 .* has the best model so far, of update 2"
        ):
            train(options(tmp_path, questions, eval_every=2, ema_decay=0))
        assert all(tensor.isfinite().all() for tensor in load_file(tmp_path / "model.safetensors").values())

    def test_a_batch_that_does_not_fit_into_the_memory(self, tmp_path, questions, monkeypatch):
        def allocate(*args):
            torch.empty(1 << 50)

        monkeypatch.setattr(TrainingLoop, "_batch", allocate)
        message = "a training batch of 8 rows does not fit into the memory; give a smaller --per_device_train_"
        with pytest.raises(InputError, match=message):
            train(options(tmp_path, questions, per_device_train_batch_size=8))

    def test_outputs_that_are_not_finite_end_the_run(self, tmp_path):
        """The weights are finite, so that only the outputs tell."""

        def rows(count, seed):
            return [{"text": f"a {i}", "score": i + 0.5} for i in range(count)]

        changes = {"learning_rate": 1e37, "max_grad_norm": 0.0, "max_train_steps": 1}
        with pytest.raises(InputError, match=r"an output is (nan|-?inf) after update 1 .*; no model was saved; lower"):
            train(options(tmp_path / "out", write_splits(tmp_path, rows), ema_decay=0, num_warmup_steps=0, **changes))
        assert not (tmp_path / "out" / "model.safetensors").exists()


class TestOutput:
    def test_one_run_at_a_time(self, tmp_path, questions):
        with FileLock(tmp_path / ".lock"), pytest.raises(InputError, match="another run is writing to --output_dir"):
            train(options(tmp_path, questions, max_train_steps=1))
        train(options(tmp_path, questions, max_train_steps=1))
        assert not (tmp_path / ".lock").exists()

    def test_leftovers_of_killed_runs_go(self, tmp_path, questions):
        for name in (".saving-abc", ".step_5.tmp"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "model.safetensors").write_bytes(b"half")
        (tmp_path / ".log.json.17.tmp").write_bytes(b"half")
        train(options(tmp_path, questions, max_train_steps=1))
        assert not [path for path in tmp_path.iterdir() if path.name.startswith((".saving", ".step", ".log"))]

    def test_a_checkpoint_that_a_killed_run_had_written_in_full_takes_its_place(self, run_folder, questions):
        for name, state in (("step_5", "missing"), ("step_10", "half deleted")):
            shutil.copytree(run_folder / name, run_folder / f".{name}.tmp")
            if state == "missing":
                shutil.rmtree(run_folder / name)
            else:
                (run_folder / name / "optimizer.bin").unlink()
        before = contents(run_folder / ".step_10.tmp")
        train(options(run_folder, questions, resume_from_checkpoint="latest", **AVERAGED))
        assert not list(run_folder.glob(".step*")) and contents(run_folder / "step_10") == before
        assert checkpoints.find_checkpoint("step_5", run_folder)

    @pytest.mark.parametrize(
        ("changes", "sentence"),
        [
            ({"output_dir": "{file}"}, "--output_dir {file} is a file; give a folder."),
            ({"output_dir": "{file}/out"}, "--output_dir {file}/out: {file} is a file; give"),
            ({"output_dir": "/proc/x"}, "--output_dir /proc/x: "),
            ({"output_dir": "{folder}"}, "--output_dir {folder} has a README.md that is not the card of a model"),
            ({"results_file": "{folder}/out/config.json"}, "--results_file {folder}/out/config.json could replace"),
            ({"results_file": "{folder}/out/README.md"}, "--results_file {folder}/out/README.md could replace"),
            ({"resume_from_checkpoint": ""}, "--resume_from_checkpoint is empty; give"),
            ({"results_file": "{folder}"}, "--results_file {folder} is a folder; give a file."),
            (
                {"test_file": "{folder}/out/log.jsonl"},
                "--output_dir: {folder}/out/log.jsonl is read, too, and would be lost; give another path",
            ),
            (
                {"results_file": "{file}/run.json"},
                "--results_file {file}/run.json: {file} is a file; give another path.",
            ),
            (
                {"results_file": "/proc/run.json"},
                "--results_file /proc/run.json: no permission to write in /proc; give",
            ),
        ],
    )
    def test_paths_are_checked_before_the_data(self, tmp_path, questions, changes, sentence, monkeypatch):
        monkeypatch.setattr(os, "access", lambda path, mode: str(path) != "/proc")  # root may write anywhere
        places = {"file": str(tmp_path / "file"), "folder": str(tmp_path)}
        for name in ("file", "README.md"):
            (tmp_path / name).write_text("content")
        changes = {name: value.format(**places) for name, value in changes.items()}
        data = questions | {"train_file": "not read"}
        data |= {"test_file": changes.pop("test_file", questions["test_file"])}
        with pytest.raises(InputError) as error:
            train(options(**({"output_dir": tmp_path / "out"} | {"data": data} | changes)))
        assert str(error.value).startswith(sentence.format(**places))
        assert not (tmp_path / "out").exists()
        assert (tmp_path / "file").read_text() == (tmp_path / "README.md").read_text() == "content"

    @pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can mount a small disk")
    @pytest.mark.parametrize(
        ("option", "kilobytes"), [("output_dir", 40), ("output_dir", 500), ("output_dir", 2000), ("results_file", 4)]
    )
    def test_full_disk(self, tmp_path, questions, option, kilobytes):
        disk = tmp_path / "disk"
        disk.mkdir()
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", disk], capture_output=True)
        if mount.returncode:
            pytest.skip("this machine does not let root mount a small disk")
        try:
            changes = {"config_overrides": "hidden_size=64,embedding_size=64", "checkpointing_steps": "1"}
            places = {"output_dir": str(disk)}
            if option == "results_file":
                places = {"output_dir": str(tmp_path / "out"), "results_file": str(disk / "record.json")}
                (disk / "other").write_bytes(bytes(1024 * kilobytes))
            place = places[option]
            with pytest.raises(
                InputError, match=rf"the disk of --{option} {place} is full \(\d+\.\d MiB free\); free space"
            ):
                train(options(places.pop("output_dir"), questions, **changes, **places))
        finally:
            subprocess.run(["umount", "--lazy", disk], check=True)

    def test_other_errors_are_not_full_disks(self):
        for error in (OSError(13, "Permission denied"), RuntimeError("size mismatch")):
            assert not is_full(error, free=0)
        unclear = RuntimeError("PytorchStreamWriter failed writing file data/1: file write failed")
        assert is_full(unclear, free=2**20) and not is_full(unclear, free=2**30)


SLOW_DATA = """
import sys, time
from hf_blosan.training import main
from hf_blosan.training.loop import TrainingLoop

batch = TrainingLoop._batch
def slower(self, *options):
    print("update", flush=True)
    time.sleep(0.05)
    return batch(self, *options)
TrainingLoop._batch = slower
sys.exit(main())
"""


@pytest.mark.parametrize("launched", [(2, "no"), (1, "bf16")])
def test_an_interrupted_run_of_a_launcher_says_to_start_it_again(tmp_path, questions, monkeypatch, capsys, launched):
    state = Mock(**dict(zip(("num_processes", "mixed_precision"), launched, strict=True)))
    monkeypatch.setattr(run_module, "AcceleratorState", lambda: state)
    monkeypatch.setattr(run_module, "train", Mock(side_effect=Interrupted(tmp_path)))
    assert run_module.run_command(options(tmp_path, questions)) == 143
    expected = "interrupted; to resume, start it again as before, with --resume_from_checkpoint latest\n"
    assert capsys.readouterr().err == expected


def test_signals_end_a_run_that_can_go_on(tmp_path, questions, monkeypatch, capsys):
    """Ctrl-C from another process, and then SIGTERM."""
    expected = train(options(tmp_path / "whole", questions))
    script, output = tmp_path / "run_glue_style.py", tmp_path / "out"
    script.write_text(SLOW_DATA)
    words = options(output, questions).to_argv()
    process = subprocess.Popen(
        [sys.executable, script, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert [process.stdout.readline() for _ in range(3)] == ["update\n"] * 3
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    command = errors.splitlines()[-1].removeprefix("interrupted; to resume, run: ")
    assert shlex.split(command) == ["python", "run_glue_style.py", *words, "--resume_from_checkpoint", "latest"]
    assert not (output / "all_results.json").exists() and not (output / ".lock").exists()
    with monkeypatch.context() as patch:
        batch = TrainingLoop._batch
        patch.setattr(TrainingLoop, "_batch", lambda *given: signal.raise_signal(signal.SIGTERM) or batch(*given))
        assert run_module.run_command(options(output, questions, resume_from_checkpoint="latest")) == 143
    assert capsys.readouterr().err.splitlines()[-1].startswith("interrupted; to resume, run: ")
    run = train(options(output, questions, resume_from_checkpoint="latest"))
    first, second = (entry["step"] for entry in read_log(output, "resume"))
    assert run["figures"] == expected["figures"] and 3 <= first < second == first + 1 < 14
    whole, resumed = (load_file(folder / "model.safetensors") for folder in (tmp_path / "whole", output))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
