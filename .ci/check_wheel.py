"""Tries a wheel as its users get it: `python .ci/check_wheel.py dist/hf_blosan-*.whl [other pythons]`.

The wheel is installed into an environment of its own and runs there away from the checkout: the operators, the command
from training to prediction, and, after the package is removed again, the checkpoint by itself. With other Pythons,
which need not have torch, the same file passes pip's check of its tags, and its library is loaded beside torch's
libraries.
"""

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

USE = """
import sys, torch, hf_blosan
from hf_blosan.kernels import library
assert "site-packages" in hf_blosan.__file__, hf_blosan.__file__
assert library.instruction_set() is not None, "the wheel holds no compiled operators"
config = hf_blosan.DiSANConfig(vocab_size=50, embedding_size=8, hidden_size=16, num_labels=3)
model = hf_blosan.DiSANForSequenceClassification(config)
ids = torch.randint(1, 50, (2, 9))
output = model(ids, attention_mask=torch.ones_like(ids), labels=torch.tensor([0, 2]))
output.loss.backward()
assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
print(f"Python {sys.version.split()[0]}, torch {torch.__version__}: forward and backward of a DiSAN,",
      f"compiled operators for {library.instruction_set()}")
"""

TRAIN = (
    "train --task_name demo --encoder disan --output_dir model --max_train_steps 20 --config_overrides hidden_size=24"
)
PAIR = ("the man pushes the cat", "the cat is pushed by the man")

ENCODER = """
import hf_blosan, torch
from transformers import AutoModel, AutoTokenizer
folder = hf_blosan.pretrained("disan-mini-en")
texts = ["The lawyer rescues the pilot.", "The pilot is rescued by the lawyer.", "The pilot rescues the lawyer."]
with torch.no_grad():
    batch = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    text, same, other = torch.nn.functional.normalize(AutoModel.from_pretrained(folder)(**batch).pooler_output)
assert text @ same > text @ other, (text @ same, text @ other)
print(f"disan-mini-en: cosine with the passive {text @ same:.3f}, with roles exchanged {text @ other:.3f}")
"""

ALONE = """
import importlib.util, json, sys
assert importlib.util.find_spec("hf_blosan") is None
from transformers import pipeline
classify = pipeline("text-classification", model="model", trust_remote_code=True)
answer = classify({"text": sys.argv[1], "text_pair": sys.argv[2]})
(row,) = map(json.loads, open("labels.jsonl"))
assert answer["label"] == row["label"] and abs(answer["score"] - row["score"]) < 1e-5, (answer, row)
print(f"without the package, by the checkpoint's own code: {answer['label']} ({answer['score']:.3f})")
"""

LOAD = """
import ctypes, sys
from pathlib import Path
target, torch = Path(sys.argv[1]), Path(sys.argv[2])
for name in ("libc10.so", "libtorch_cpu.so"):
    ctypes.CDLL(torch / "lib" / name, ctypes.RTLD_GLOBAL)
(library,) = target.glob("hf_blosan/kernels/_csrc*.so")
ctypes.CDLL(library)
print(f"Python {sys.version.split()[0]}: pip takes the wheel, {library.name} loads")
"""


def call(*command: object, cwd: Path | None = None) -> str:
    """What a command prints; its failure is ours."""
    result = subprocess.run([str(part) for part in command], cwd=cwd, stdout=subprocess.PIPE, text=True)
    if result.returncode:
        sys.exit(f"{command[0]} ends with {result.returncode}")
    return result.stdout


def main(wheel: Path, others: list[str]) -> None:
    constraints = Path(__file__).resolve().parents[1] / "constraints.txt"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "env", with_pip=True)
        python = folder / "env" / "bin" / "python"
        pip = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet")
        call(python, *pip, "--constraint", constraints, f"{wheel}[train]")
        print(wheel.name)
        print(call(python, "-I", "-c", USE, cwd=folder), end="")
        command = python.with_name("hf-blosan")
        call(command, *TRAIN.split(), cwd=folder)
        (folder / "pairs.jsonl").write_text(
            json.dumps(dict(zip(("sentence1", "sentence2"), PAIR, strict=True))) + "\n"
        )
        call(command, "predict", "model", "pairs.jsonl", "labels.jsonl", cwd=folder)
        print(call(python, "-I", "-c", ENCODER, cwd=folder), end="")
        print(f"hf-blosan {call(command, '--version').strip()}: train and predict")
        call(python, "-m", "pip", "--disable-pip-version-check", "uninstall", "--quiet", "--yes", "hf_blosan")
        print(call(python, "-I", "-c", ALONE, *PAIR, cwd=folder), end="")
        torch = call(python, "-I", "-c", "import torch; print(torch.__path__[0])").strip()
        for number, other in enumerate(others):
            target = folder / f"target{number}"
            call(other, *pip, "--no-deps", "--no-index", "--target", target, wheel)
            print(call(other, "-I", "-c", LOAD, target, torch, cwd=folder), end="")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
