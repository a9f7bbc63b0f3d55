"""What a user is told: the packages that are missing, and nothing that does not concern them."""

import json
import sys
from importlib import metadata
from pathlib import Path

import pytest
from cli_models import refused

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
            ("train --task_name demo --encoder disan --output_dir o --cpu", "hf_blosan.training.find_spec", "train"),
            ("evaluate none", "hf_blosan.training.find_spec", "train"),
            ("export none o", "hf_blosan.export.find_spec", "export"),
            ("serve none", "uvicorn", "serve"),
        ],
    )
    def test_a_command(self, command, module, extra, monkeypatch, tmp_path, capsys):
        monkeypatch.chdir(tmp_path)
        if module.endswith("find_spec"):
            monkeypatch.setattr(module, lambda name: None)
        else:
            monkeypatch.setitem(sys.modules, module, None)
        assert refused(capsys, *command.split()).endswith(f'pip install -e "{ROOT}[{extra}]"')
        assert not list(tmp_path.iterdir())
