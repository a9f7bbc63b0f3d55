"""Training in several processes over gloo: the figures of one, two machines, and a process that is lost."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_data import FILLER, WORDS, options, question_rows, read_log, write_backbone, write_splits

from hf_blosan.errors import InputError
from hf_blosan.training import train
from hf_blosan.training.interruption import other_processes
from hf_blosan.training.output_folder import check_shared

ROOT = Path(__file__).resolve().parents[1]

LOSE_ONE = """
import os, signal, sys
from hf_blosan.training import main
from hf_blosan.training.loop import TrainingLoop

batch = TrainingLoop._batch
def batch_or_end(self, *options):
    if os.environ["RANK"] == "1" and self.progress.step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return batch(self, *options)
TrainingLoop._batch = batch_or_end
sys.exit(main())
"""


@pytest.fixture
def questions(tmp_path):
    return write_splits(tmp_path / "data", question_rows, train=64)


def accelerate(script, arguments, *words) -> subprocess.Popen:
    """`accelerate launch`, which starts processes on CPUs only with --multi_gpu."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{environment.get('PYTHONPATH', '')}"
    command = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", *words]
    command += [str(script), *arguments.to_argv()]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def free_port() -> str:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return str(chosen.getsockname()[1])


@pytest.mark.slow
def test_two_machines_give_the_figures_of_one_process(tmp_path, questions):
    """With the same rows in every update; without dropout, whose numbers differ between processes.

    Of the vocabulary each process trains the words of the rows alone.
    """
    words = [*FILLER, *(word for words in WORDS.values() for word in words), *(f"word{i}" for i in range(40))]
    tokenizer = write_backbone(tmp_path / "tokenizer", words)
    common = {"tokenizer_name": str(tokenizer)}
    common |= {"config_overrides": "hidden_size=8,embedding_size=6,classifier_size=8,dropout=0", "eval_every": 2}
    train(options(tmp_path / "one", questions, gradient_accumulation_steps=2, **common))
    shared = options(tmp_path / "two", questions, **common)
    place = ("--num_machines", "2", "--main_process_ip", "127.0.0.1", "--main_process_port", free_port())
    machines = [
        accelerate(ROOT / "run_glue_style.py", shared, *place, "--machine_rank", str(rank)) for rank in range(2)
    ]
    for machine in machines:
        _, errors = machine.communicate(timeout=240)
        assert machine.returncode == 0, errors
    for event, figures in (
        ("train", ("loss",)),
        ("validation", ("validation_accuracy",)),
        ("end", ("test_accuracy",)),
    ):
        one, two = (read_log(tmp_path / name, event) for name in ("one", "two"))
        assert [entry["step"] for entry in one] == [entry["step"] for entry in two] and one
        for name in figures:
            assert [entry[name] for entry in two] == pytest.approx([entry[name] for entry in one], abs=1e-5)


@pytest.mark.slow
def test_a_lost_process_ends_the_run_and_it_goes_on(tmp_path, questions):
    """In one sentence, after which only the launcher reports, and then as if nothing had happened."""
    script, common = tmp_path / "lose.py", {"checkpointing_steps": "2"}
    script.write_text(LOSE_ONE)
    ended = accelerate(script, options(tmp_path / "lost", questions, **common), "--main_process_port", free_port())
    _, errors = ended.communicate(timeout=240)
    assert ended.returncode == 1
    before_the_launcher = errors.split("torch/distributed/elastic")[0]
    assert "Traceback" not in before_the_launcher
    (message,) = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert message == (
        "error: another process of this run has ended or cannot be reached, see its own message; start all of them "
        "again with --resume_from_checkpoint latest, which is step_2."
    )
    assert not (tmp_path / "lost" / "all_results.json").exists() and not (tmp_path / "lost" / ".lock").exists()
    for name, resume in (("whole", {}), ("lost", {"resume_from_checkpoint": "latest"})):
        again = options(tmp_path / name, questions, **common, **resume)
        run = accelerate(ROOT / "run_glue_style.py", again, "--main_process_port", free_port())
        _, errors = run.communicate(timeout=240)
        assert run.returncode == 0, errors
    assert read_log(tmp_path / "lost", "resume")[0]["step"] == 2
    whole, resumed = (load_file(tmp_path / name / "step_8" / "model.safetensors") for name in ("whole", "lost"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    figures = [read_log(tmp_path / name, "end")[0]["test_accuracy"] for name in ("whole", "lost")]
    assert figures[0] == figures[1]


def test_errors_of_other_kinds_stay(tmp_path, questions):
    arguments = options(tmp_path / "out", questions)
    with pytest.raises(RuntimeError, match="^size mismatch"), other_processes(arguments):
        raise RuntimeError("size mismatch")
    for error in (
        torch.distributed.DistBackendError("NCCL"),
        RuntimeError("[x/gloo/transport/tcp/pair.cc:5] Timed out"),
    ):
        with (
            pytest.raises(InputError, match="again; with --checkpointing_steps they would"),
            other_processes(arguments),
        ):
            raise error


def test_a_folder_that_is_not_shared(tmp_path, questions):
    """The first process has locked it, this one does not see that."""
    with pytest.raises(InputError, match="--output_dir .*out is not the same folder on all machines; give one that"):
        check_shared(options(tmp_path / "out", questions))
