"""How threads wait is decided by the command and the training scripts, before torch is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hf_blosan.cli import startup

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
    arguments = ["encode", "no-model", "no.txt", "no.npy"] if command == "hf-blosan" else ["--help"]
    code = RUN.format(arguments=arguments, command=COMMANDS[command])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=kept, capture_output=True, text=True)
    assert run.stdout.strip() == f"before torch {startup.SPINS}", run.stderr


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_the_users_choice_stays(name, monkeypatch):
    for variable in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(name, "7")
    before = dict(os.environ)
    startup.wait_briefly()
    assert dict(os.environ) == before
