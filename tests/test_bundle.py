"""hf_blosan/models is flat and closed, so that a checkpoint on the Hub can carry its code with it."""

import ast
import json
import sys
from pathlib import Path

import fresh
import pytest
import torch
from transformers import AutoConfig, AutoModel

import hf_blosan

BUNDLE = Path(hf_blosan.__file__).parent / "models"
FILES = sorted(path for path in BUNDLE.glob("*.py") if path.name != "__init__.py")
CORE = {"torch", "transformers", "safetensors", "tokenizers", "numpy", "huggingface_hub"} | set(
    sys.stdlib_module_names
)
NOT_IN_THE_BUNDLE = ("numba", "triton", "ctypes", "custom_op", "torch.library")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_imports_stay_in_the_bundle(path):
    text = path.read_text()
    tree = ast.parse(text)
    guarded = {id(node) for block in ast.walk(tree) if isinstance(block, ast.Try) for node in ast.walk(block)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            assert node.level == 1 and node.module, f"{path.name}:{node.lineno}: only 'from .sibling import name'"
            assert (BUNDLE / f"{node.module}.py").exists(), f"{path.name}:{node.lineno}: no sibling {node.module}"
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            for name in (name.partition(".")[0] for name in names):
                if name == "hf_blosan":  # the only import of the kernels
                    assert path.name == "attention.py" and id(node) in guarded, f"{path.name}:{node.lineno}"
                else:
                    assert name in CORE, f"{path.name}:{node.lineno}: {name} is not a core dependency"
    assert not [word for word in NOT_IN_THE_BUNDLE if word in text], path.name


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.stem.startswith(("layers", "modeling"))], ids=lambda path: path.stem
)
def test_layers_know_neither_layouts_nor_kernels(path):
    """How a batch lies in memory, and what runs as a kernel, is decided behind attention.py."""
    names = {
        getattr(node, name, None) for node in ast.walk(ast.parse(path.read_text())) for name in ("id", "attr", "arg")
    }
    assert not names & {"kernels", "places_BN", "cu_seqlens", "can_use_kernel", "Tokens"}


LOAD = """
import json, sys
if sys.argv[1] == "without":
    sys.modules["hf_blosan"] = None  # importing it raises ImportError
import torch
from transformers import AutoModel
models = [AutoModel.from_pretrained(path, trust_remote_code=True) for path in sys.argv[3:]]
assert all("transformers_modules" in type(model).__module__ for model in models)
ids = torch.arange(2, 12)[None]
torch.save([model(ids).pooler_output for model in models], sys.argv[2])
"""


def load_elsewhere(package, tmp_path, *folders):
    """The sentence vectors of models with their own code, in a fresh process with or without the package."""
    run = fresh.run(LOAD, package, str(tmp_path / "out.pt"), *map(str, folders), cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    return torch.load(tmp_path / "out.pt")


def make(model_type):
    config = AutoConfig.for_model(model_type, vocab_size=20, embedding_size=24, hidden_size=24)
    return AutoModel.from_config(config).eval()


def test_a_checkpoint_carries_little(tmp_path):
    make("disan").save_pretrained(tmp_path)
    carried = sorted(tmp_path.glob("*.py"))
    # The encoder, the classifier, what backbones need, and what leaves padding out.
    lines = sum(len(path.read_text().splitlines()) for path in carried)
    remedy = (
        "every checkpoint carries them; make others shorter, or use a file that only the models which need it carry"
    )
    assert len(carried) <= 12 and lines <= 2400, f"{len(carried)} files with {lines} lines: {remedy}"


@pytest.mark.parametrize(
    "order", [("one", "other"), pytest.param(("other", "one"), marks=pytest.mark.slow)], ids=" before ".join
)
def test_bundles_do_not_touch_each_other(order, tmp_path, remove_kernels):
    """Two bundles in one process, one of them with a changed equation."""
    model = make("disan")
    for name in ("one", "other"):
        model.save_pretrained(tmp_path / name)
    equations = tmp_path / "other" / "equations.py"
    text = equations.read_text()
    assert text.count("scale * torch.tanh(") == 1
    equations.write_text(text.replace("scale * torch.tanh(", "0.5 * scale * torch.tanh("))
    found = load_elsewhere("without", tmp_path, *(tmp_path / name for name in order))
    vectors = dict(zip(order, found, strict=True))
    remove_kernels()
    expected = model(torch.arange(2, 12)[None]).pooler_output
    assert torch.equal(vectors["one"], expected) and not torch.allclose(vectors["other"], expected)


def test_a_bundle_finds_the_kernels(tmp_path):
    """Where the package is installed, a checkpoint with its own code uses its kernels if their interface fits."""
    script = """
import json, sys
import torch
from transformers import AutoModel
from hf_blosan import kernels
found = []
for interface in (kernels.INTERFACE, kernels.INTERFACE + 1):
    kernels.INTERFACE = interface
    model = AutoModel.from_pretrained(sys.argv[1 + len(found)], trust_remote_code=True)
    module = sys.modules[type(model).__module__.replace("modeling_disan", "attention")]
    found.append(module.kernels is not None)
print(json.dumps(found))
"""
    for name in ("one", "other"):
        make("disan").save_pretrained(tmp_path / name)
        config = json.loads((tmp_path / name / "config.json").read_text())
        config["model_type"] = "not_registered"  # so that the installed classes do not take over
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        for path in (tmp_path / name).glob("configuration_disan.py"):
            path.write_text(path.read_text().replace('model_type = "disan"', 'model_type = "not_registered"'))
    run = fresh.run(script, str(tmp_path / "one"), str(tmp_path / "other"), cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout.splitlines()[-1]) == [True, False]
