"""The library of operators: their namespace in torch, and the compiled C++ that implements them for the CPU.

Operators are declared in each folder's ``operator.py``; ``csrc/`` implements them for CPU tensors. Without the
compiled C++ they run in plain torch.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd import forward_ad

NAMESPACE = "hf_blosan_kernels"
LIBRARY = torch.library.Library(NAMESPACE, "DEF")
LIBRARY.define("instruction_set() -> str")

OPERATORS = torch.ops.hf_blosan_kernels


def _load(folder: Path) -> str | None:
    """Load the compiled operators. Returns None, or the reason why they are missing."""
    for path in sorted(folder.glob("_csrc*.so")):
        try:
            torch.ops.load_library(path)
        except OSError as error:
            return f"{path.name} does not load ({error})"
        return None
    return "its C++ kernels are not compiled"


_missing = _load(Path(__file__).parent)
if _missing:
    warnings.warn(
        f"hf_blosan runs in plain torch on the CPU, 2 to 6 times slower, because {_missing}; with a C++20 compiler "
        "(g++ 12 or clang 15), pip install --no-cache-dir --force-reinstall --no-deps hf_blosan compiles them",
        stacklevel=2,
    )


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
