"""What happens when commands start: how threads wait is decided before torch is imported, extras may be missing."""

import gc
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hf_blosan.cli import commands, startup

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = {
    "hf-blosan": 'runpy.run_module("hf_blosan", run_name="__main__")',
    "run_glue_style.py": 'runpy.run_path("run_glue_style.py", run_name="__main__")',
    "python -m hf_blosan.training": 'runpy.run_module("hf_blosan.training", run_name="__main__")',
}
RUN = """
import os, runpy, sys
from hf_blosan.cli import startup
decide = startup.prepare_imports
def decide_and_say():
    decide()
    print("before torch" if "torch" not in sys.modules else "too late", os.environ.get("GOMP_SPINCOUNT"))
    sys.exit()
startup.prepare_imports = decide_and_say
sys.argv = sys.argv[:1] + {arguments!r}
{command}
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_it_is_decided_before_torch_is_imported(command):
    arguments = ["encode", "no-model", "-", "no.npy"] if command == "hf-blosan" else ["--help"]
    code = RUN.format(arguments=arguments, command=COMMANDS[command])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=kept, capture_output=True, text=True)
    assert run.stdout.strip() == f"before torch {startup.SPINS}", run.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["encode", "disan-mini-en", "no.txt", "no.npy"],
        ["predict", "disan-mini-en", "no.csv", "no.jsonl"],
        ["evaluate", "disan-mini-en", "--test_file", "no.csv"],
        ["train", "--train_file", "no.csv", "--encoder", "disan", "--output_dir", "no"],
        ["train", "--task_name", "trec", "--encoder", "disan", "--output_dir", "no", "--word_vectors", "no.txt"],
    ],
)
def test_missing_files_are_named_before_anything_is_imported(words, monkeypatch, capsys):
    monkeypatch.setattr(commands, "prepare_imports", lambda: pytest.fail("it is too late"))
    assert commands.main(words) == 2
    assert re.match(r"error: (data|word-vector) file no\.(txt|csv) does not exist; give ", capsys.readouterr().err)


def test_imports_are_not_searched_for_garbage():
    before = gc.get_freeze_count()
    with startup.quick_imports():
        assert not gc.isenabled()
        made = [[] for _ in range(1000)]
    assert gc.isenabled() and gc.get_freeze_count() >= before + len(made)
    gc.disable()
    with startup.quick_imports():
        pass
    assert not gc.isenabled()
    gc.enable()


@pytest.mark.parametrize("triton", ["", ", triton"])
def test_nothing_is_printed_at_the_end(triton):
    code = f"from hf_blosan.cli.startup import quick_imports\nwith quick_imports(): import torch{triton}"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_the_users_choice_stays(name, monkeypatch):
    for variable in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(name, "7")
    before = dict(os.environ)
    startup.wait_briefly()
    assert dict(os.environ) == before


CORE = """
import sys
extras = "accelerate datasets evaluate jinja2 pandas pyarrow scipy sentencex sklearn triton".split()
sys.modules.update(dict.fromkeys(extras))
import torch, hf_blosan
from transformers import AutoConfig, AutoModel
model = AutoModel.from_config(AutoConfig.for_model("disan", vocab_size=9, embedding_size=4, hidden_size=4))
model(torch.tensor([[2, 3]])).pooler_output.sum().backward()
import hf_blosan.export, hf_blosan.kernels.directional.graph_functions, uvicorn
from hf_blosan.cli.commands import main
uvicorn.Server.run = lambda self, sockets: None  # serves nobody
name, texts = sys.argv[1:]
for command in (
    ["encode", name, texts, "vectors.npy"],
    ["predict", name, texts, "predictions.csv"],
    ["explain", name, "a cat"],
    ["bench", name, "--batch_sizes", "1", "--lengths", "4", "--seconds", "0.01"],
    ["serve", name, "--port", "0", "--cpu"],
    ["tasks"],
    ["encoders"],
):
    assert main(command) == 0, command
"""


def test_the_core_is_enough_for_models_and_for_commands_that_use_one(classifier, tmp_path):
    """The extras may be missing; ``serve`` and ``export`` need their own, and nothing of training's."""
    (tmp_path / "texts.txt").write_text("a cat\nred\n")
    command = [sys.executable, "-c", CORE, classifier, "texts.txt"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert {"vectors.npy", "predictions.csv"} <= {path.name for path in tmp_path.iterdir()}
