"""The library of operators: their namespace in torch, and the compiled C++ that implements them for the CPU.

Operators are declared in each folder's ``operator.py``; ``csrc/`` implements them for CPU tensors. Without the
compiled C++ they run in plain torch.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .sources import mark

NAMESPACE = "hf_blosan_kernels"
LIBRARY = torch.library.Library(NAMESPACE, "DEF")
LIBRARY.define("instruction_set() -> str")
LIBRARY.define("uses_onednn() -> bool")

OPERATORS = torch.ops.hf_blosan_kernels


def _load(folder: Path) -> str | None:
    """Load the compiled operators of the package whose kernels are in ``folder``.

    A Python that is started in a checkout imports the checkout, whether or not a copy is installed. The library of
    that copy serves as well, if it is compiled from the checkout's sources.

    Returns:
        None, or what is missing and the remedy.
    """
    csrc, package = folder / "csrc", folder.parent
    wanted, folders, others, broken = b"", [folder], [], []
    remedy = "pip install --no-cache-dir --force-reinstall --no-deps hf_blosan"
    if csrc.is_dir():
        wanted, remedy = mark(csrc), f"pip install --editable {package.parent}"
        folders += [Path(entry, *folder.parts[-2:]) for entry in sys.path if Path(entry).resolve() != package.parent]
    for path in (path for place in folders for path in sorted(place.glob("_csrc*.so"))):
        if wanted not in path.read_bytes():
            others.append(path.parent)
            continue
        try:
            torch.ops.load_library(path)
        except OSError as error:
            broken.append(f"{path.name} does not load ({error}); {remedy} compiles it again")
            continue
        return None
    if broken:
        return broken[0]
    missing = f"{package} holds no compiled C++ kernels"
    if others:
        missing = f"the C++ kernels in {others[0]} are compiled from other sources than those in {csrc}"
        if others[0] != folder:
            missing = f"{package} hides the installed copy {others[0].parent}, and {missing}"
    return f"{missing}; with a C++20 compiler (g++ 12 or clang 15), {remedy} compiles them"


_missing = _load(Path(__file__).resolve().parent)
if _missing:
    warnings.warn(f"hf_blosan runs in plain torch on the CPU, 2 to 6 times slower, because {_missing}", stacklevel=2)


def has_cpu_kernels() -> bool:
    """Whether the compiled operators are loaded."""
    return _missing is None


def refuse_forward_mode() -> None:
    """Raise an error under torch.func.jvp and torch.autograd.forward_ad, where an operator would have a tangent of 0.

    Whatever tensors it is called on: transforms hide tangents.
    """
    if forward_ad._current_level >= 0:
        raise NotImplementedError(
            "the kernels have no derivative in forward mode (jvp, forward_ad); compute with "
            'implementation="eager", a model after set_attn_implementation("eager")'
        )


def is_recorded(*tensors: Tensor | None) -> bool:
    """Whether autograd has to record an operator on these tensors: outside torch.compile if gradients are enabled.

    Raises:
        NotImplementedError: under forward-mode differentiation.
    """
    refuse_forward_mode()
    if not torch.is_grad_enabled():
        return False
    return not torch.compiler.is_compiling() or any(x is not None and x.requires_grad for x in tensors)


def distinct(*tensors: Tensor | None) -> list[Tensor | None]:
    """The same tensors, repeats replaced by views: torch.compile rejects a Function that gets a tensor twice."""
    seen: list[Tensor | None] = []  # a comprehension here ends Python 3.13.0 under torch.jit.trace, which reads frames
    for x in tensors:
        seen.append(x.view_as(x) if x is not None and any(x is other for other in seen) else x)
    return seen


def instruction_set() -> str | None:
    """The instruction set of the compiled loops: ``"avx512"``, ``"avx2"`` or ``"baseline"``; None without them."""
    return OPERATORS.instruction_set() if has_cpu_kernels() else None
