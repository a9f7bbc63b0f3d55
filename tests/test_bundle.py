"""hf_blosan/models is flat and closed, so that a checkpoint on the Hub can carry its code with it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModel

import hf_blosan
from hf_blosan.auto import ENCODERS

BUNDLE = Path(hf_blosan.__file__).parent / "models"
FILES = sorted(path for path in BUNDLE.glob("*.py") if path.name != "__init__.py")
# What the core depends on, and the kernels' optional packages, which only a try may import.
CORE = {"torch", "transformers", "safetensors", "tokenizers", "numpy", "huggingface_hub"} | set(
    sys.stdlib_module_names
)
OPTIONAL = {"numba", "llvmlite", "triton"}  # llvmlite is part of numba


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_imports_stay_in_the_bundle(path):
    tree = ast.parse(path.read_text())
    guarded = {id(node) for block in ast.walk(tree) if isinstance(block, ast.Try) for node in ast.walk(block)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            assert node.level == 1 and node.module, f"{path.name}:{node.lineno}: only 'from .sibling import name'"
            assert (BUNDLE / f"{node.module}.py").exists(), f"{path.name}:{node.lineno}: no sibling {node.module}"
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            for name in (name.partition(".")[0] for name in names):
                if name in OPTIONAL:
                    assert id(node) in guarded, f"{path.name}:{node.lineno}: {name} outside try"
                else:
                    assert name in CORE, f"{path.name}:{node.lineno}: {name} is no core dependency"


LOAD_WITHOUT_PACKAGE = """
import sys
sys.modules["hf_blosan"] = None  # importing it raises ImportError
import torch
from transformers import AutoModel
model = AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True)
assert "transformers_modules" in type(model).__module__
ids = torch.arange(2, 12)[None]
torch.save(model(ids).pooler_output, sys.argv[2])
"""


@pytest.mark.parametrize("model_type", [config.model_type for config, *_ in ENCODERS])
def test_checkpoint_carries_its_code(model_type, tmp_path, monkeypatch):
    """Saved with its code, a model loads where the package is not installed, with equal results."""
    config = AutoConfig.for_model(model_type, vocab_size=20, embedding_size=24, hidden_size=24)
    model = AutoModel.from_config(config).eval()
    monkeypatch.setattr(type(config), "_auto_class", "AutoConfig")
    monkeypatch.setattr(type(model), "_auto_class", "AutoModel")
    model.save_pretrained(tmp_path / "model")
    command = [sys.executable, "-c", LOAD_WITHOUT_PACKAGE, str(tmp_path / "model"), str(tmp_path / "out.pt")]
    run = subprocess.run(command, capture_output=True, text=True, env=_environment(tmp_path))
    assert run.returncode == 0, run.stderr
    assert torch.equal(torch.load(tmp_path / "out.pt"), model(torch.arange(2, 12)[None]).pooler_output)


def _environment(tmp_path):
    import os

    return {**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"}
