"""The library of operators: their namespace in torch, and the compiled C++ that implements them for the CPU."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from .sources import mark

NAMESPACE = "hf_blosan_kernels"
LIBRARY = torch.library.Library(NAMESPACE, "DEF")
LIBRARY.define("instruction_set() -> str")
LIBRARY.define("uses_onednn() -> bool")
LIBRARY.define("expansion(Tensor like, float scale) -> (Tensor, Tensor)")

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


class Operator:
    """An operator that is differentiable once, and its gradient, an operator too: single nodes for torch.compile.

    ``name(tensors, options, save) -> (result, what the gradient needs of it)``, without ``save`` where that is the
    result alone; ``name_backward(grad, tensors, results, options) -> gradients of the first tensors``. C++ implements
    them for the CPU; ``forward`` and ``backward`` are for other devices, and for all where it is missing.

    Args:
        tensors, options: as in a schema of torch.
        saved: how many results there are besides the first.
        gradients: how many there are.
        fakes: shapes of the results of both, see ``torch.library.register_fake``.
        dropped: the position of a tensor that the gradient does without.
        more: from the gradients and ``needs_input_grad`` those of further tensors.
    """

    def __init__(
        self,
        name: str,
        tensors: str,
        options: tuple[str, ...] = (),
        *,
        saved: int = 0,
        gradients: int,
        fakes: tuple[Callable, Callable],
        forward: Callable | None = None,
        backward: Callable | None = None,
        dropped: int | None = None,
        more: Callable = lambda gradients, needed: (),
    ):
        names = tensors.split(", ")
        kept = [i for i in range(len(names)) if i != dropped]
        results = ["Tensor"] * (1 + saved)
        save = ["bool save"] if saved else []
        needed = ["Tensor grad", *(names[i] for i in kept), *(f"Tensor result{i}" for i in range(1 + saved)), *options]
        LIBRARY.define(f"{name}({', '.join([*names, *options, *save])}) -> ({', '.join(results)})")
        LIBRARY.define(f"{name}_backward({', '.join(needed)}) -> ({', '.join(['Tensor'] * gradients)})")
        for suffix, function, fake in zip(("", "_backward"), (forward, backward), fakes, strict=True):
            torch.library.register_fake(f"{NAMESPACE}::{name}{suffix}", fake, lib=LIBRARY)
            if function is not None:
                LIBRARY.impl(name + suffix, function, "CompositeExplicitAutograd")
        compute, differentiate = (getattr(OPERATORS, name + suffix).default for suffix in ("", "_backward"))

        class Recorded(torch.autograd.Function):
            generate_vmap_rule = True

            @staticmethod
            def forward(*arguments):
                return compute(*arguments, *(True for _ in save))

            @staticmethod
            def setup_context(ctx, inputs, output):
                output = output if saved else (output,)
                ctx.options = inputs[len(names) :]
                ctx.mark_non_differentiable(*output[1:])
                ctx.save_for_backward(*(inputs[i] for i in kept), *output)

            @staticmethod
            @once_differentiable
            def backward(ctx, grad, *_):
                found = differentiate(grad, *ctx.saved_tensors, *ctx.options)
                found = (*found, *more(found, ctx.needs_input_grad))
                return *found, *(None,) * (len(ctx.needs_input_grad) - len(found))

        self._compute, self._recorded, self._num_tensors, self._saves = compute, Recorded, len(names), bool(saved)

    def __call__(self, *arguments):
        """The first result."""
        tensors = distinct(*arguments[: self._num_tensors])
        arguments = (*tensors, *arguments[self._num_tensors :])
        if is_recorded(*tensors):
            results = self._recorded.apply(*arguments)
        else:
            results = self._compute(*arguments, False) if self._saves else self._compute(*arguments)
        return results[0] if self._saves else results


def instruction_set() -> str | None:
    """The instruction set of the compiled loops: ``"avx512"``, ``"avx2"`` or ``"baseline"``; None without them."""
    return OPERATORS.instruction_set() if has_cpu_kernels() else None
