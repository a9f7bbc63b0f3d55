"""What a user is told: the packages that are missing, and nothing that does not concern them."""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from cli_models import refused
from loopback_hub import LoopbackHub
from small_data import TINY, question_rows, write_rows

from hf_blosan import errors
from hf_blosan.errors import install

ROOT = Path(__file__).resolve().parents[1]


class TestMissingExtra:
    @pytest.fixture
    def installed(self, tmp_path, monkeypatch):
        """A function that puts the package into site-packages, installed from an origin."""

        def put(origin: dict | None) -> str:
            class Distribution:
                def read_text(self, name):
                    return json.dumps(origin) if origin and name == "direct_url.json" else None

            monkeypatch.setattr(errors, "__file__", str(tmp_path / "site-packages" / "hf_blosan" / "errors.py"))
            monkeypatch.setattr(metadata, "distribution", lambda name: Distribution())
            return install("train")

        return put

    def test_in_a_checkout(self):
        assert install("train") == f'pip install -e "{ROOT}[train]"'

    def test_from_an_index(self, installed):
        assert installed(None) == 'pip install "hf_blosan[train]"'

    def test_from_a_folder(self, installed, tmp_path):
        origin = {"url": (tmp_path / "my copy").as_uri(), "dir_info": {}}
        assert installed(origin) == 'pip install "hf_blosan[train]"'  # the folder is gone
        (tmp_path / "my copy").mkdir()
        assert installed(origin) == f'pip install "{tmp_path}/my copy[train]"'

    def test_from_a_wheel_or_a_repository(self, installed, tmp_path):
        wheel = tmp_path / "hf_blosan-1-py3-none-any.whl"
        wheel.touch()
        assert installed({"url": wheel.as_uri(), "archive_info": {}}) == (
            f'pip install "hf_blosan[train] @ {wheel.as_uri()}"'
        )
        repository = {"url": "https://host/hf_blosan", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
        assert installed(repository) == 'pip install "hf_blosan[train] @ git+https://host/hf_blosan@abc"'

    def test_a_missing_package_is_no_damaged_model(self, classifier, monkeypatch, capsys):
        monkeypatch.setitem(sys.modules, "hf_blosan.tasks.selection", None)  # as if it had no package of its own
        message = refused(capsys, "bench", classifier)
        assert "this command needs more packages (" in message and "selection" in message
        assert message.endswith(install("train"))

    def test_without_metadata(self, tmp_path, monkeypatch):
        """A folder on the path, not installed."""

        def missing(name):
            raise metadata.PackageNotFoundError(name)

        monkeypatch.setattr(errors, "__file__", str(tmp_path / "hf_blosan" / "errors.py"))
        monkeypatch.setattr(metadata, "distribution", missing)
        assert install("serve") == 'pip install "hf_blosan[serve]"'

    @pytest.mark.parametrize(
        ("command", "module", "extra"),
        [
            ("train --task_name demo --encoder disan --output_dir o --cpu", "scipy", "train"),
            ("evaluate none", "accelerate", "train"),
            ("export none o", "onnxscript", "export"),
            ("serve none", "uvicorn", "serve"),
        ],
    )
    def test_a_command(self, command, module, extra, monkeypatch, tmp_path, capsys):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setitem(sys.modules, module, None)
        assert refused(capsys, *command.split()).endswith(f'pip install -e "{ROOT}[{extra}]"')
        assert not list(tmp_path.iterdir())


EXPECTED = re.compile(r"|INFO hf_blosan\.[a-z_.]+: .*|.*[\d?k] ?(it|B|examples)/s.*|(validation|test): +0%.*")
"""Lines on standard error: what the command does, and bars of progress."""

COMMANDS = (
    "train --train_file rows.csv --validation_file held_out.csv --encoder disan --output_dir out --num_train_epochs 1 "
    f"--config_overrides {TINY} --results_file run.json --cpu",
    "evaluate out --test_file rows.csv --cpu",
    "predict out rows.csv predictions.csv --cpu",
    "encode out rows.csv vectors.npy --cpu",
    "explain out cat --cpu --output_dir figures",
    "bench out --lengths 4 --batch_sizes 1 --seconds 0.01 --cpu",
    "export out out.onnx",
    "serve out --port 0 --cpu",
    "card run.json --output_dir cards",
    "push out --hub_model_id me/out",
    "tasks",
    "encoders",
)

RUN_ALL = """
import contextlib, io, json, logging, os, sys
import uvicorn
from hf_blosan.cli.commands import main
uvicorn.Server.run = lambda self, sockets: None  # serves nobody
for number, command in enumerate(json.loads(sys.argv[1])):
    with open(f"{number}.err", "wb", buffering=0) as file:
        os.dup2(file.fileno(), 2)
        logging.root.handlers.clear()  # as when it starts in a process of its own
        logging.root.setLevel(logging.WARNING)
        assert main(command.split()) == 0, command
        for library in ("torchao", "torch.utils._pytree"):
            logging.getLogger(library).warning("what libraries that are not installed here say when they are imported")
        sys.stderr.flush()
"""


def strange(stderr: bytes) -> list[str]:
    """The lines that are not expected."""
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", stderr.decode()))
    return [line for line in lines if not EXPECTED.fullmatch(line.strip())]


def test_commands_print_what_is_expected(tmp_path):
    """On standard error, by themselves and by libraries, in C++ too."""
    write_rows(tmp_path / "rows.csv", question_rows(40))
    write_rows(tmp_path / "held_out.csv", [row | {"text": f"{row['text']} again"} for row in question_rows(40)])
    with LoopbackHub() as hub:
        environment = hub.environment(tmp_path / "home") | {"PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", RUN_ALL, json.dumps(COMMANDS)]
        run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True)
    found = {words: strange((tmp_path / f"{number}.err").read_bytes()) for number, words in enumerate(COMMANDS)}
    assert not any(found.values()) and run.returncode == 0 and not run.stderr, (found, run)


def test_python_prints_what_is_expected(classifier, tmp_path):
    code = """
import sys
import hf_blosan
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, pipeline
AutoModel.from_pretrained(sys.argv[1])
AutoModelForSequenceClassification.from_pretrained(sys.argv[1])
pipeline("text-classification", model=sys.argv[1], tokenizer=AutoTokenizer.from_pretrained(sys.argv[1]))("a cat")
"""
    run = subprocess.run([sys.executable, "-c", code, classifier], cwd=tmp_path, capture_output=True)
    assert run.returncode == 0 and not run.stdout and not strange(run.stderr), run
