"""Tries a wheel as its users get it: `python .ci/check_wheel.py dist/hf_blosan-*.whl [other pythons]`.

The wheel is installed into an environment of its own and runs there away from the checkout. With other Pythons, which
need not have torch, the same file passes pip's check of its tags, and its library is loaded beside torch's libraries.
"""

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
        call(python, *pip, "--constraint", constraints, wheel)
        print(wheel.name)
        print(call(python, "-I", "-c", USE, cwd=folder), end="")
        torch = call(python, "-I", "-c", "import torch; print(torch.__path__[0])").strip()
        for number, other in enumerate(others):
            target = folder / f"target{number}"
            call(other, *pip, "--no-deps", "--no-index", "--target", target, wheel)
            print(call(other, "-I", "-c", LOAD, target, torch, cwd=folder), end="")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
