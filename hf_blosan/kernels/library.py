"""The library of operators: their namespace in torch, and the compiled C++ that implements them for the CPU."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .sources import mark

NAMESPACE = "hf_blosan_kernels"
LIBRARY = torch.library.Library(NAMESPACE, "DEF")
LIBRARY.define("instruction_set() -> str")
LIBRARY.define("has_own_products() -> bool")
LIBRARY.define("expansion(Tensor like, float scale) -> (Tensor, Tensor)")

OPERATORS = torch.ops.hf_blosan_kernels


def _load(folder: Path) -> str | None:
    """Load the compiled operators of the package whose kernels are in ``folder``. Returns what is missing and the
    remedy, or None.

    A Python that is started in a checkout imports the checkout, whether or not a copy is installed. The library of
    that copy serves as well, if it is compiled from the checkout's sources.
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


_REMEDY = 'compute with implementation="eager", a model after set_attn_implementation("eager")'


def refuse_forward_mode() -> None:
    """Raise an error under torch.func.jvp and torch.autograd.forward_ad, where an operator would have a tangent of 0.

    Whatever tensors it is called on: transforms hide tangents.
    """
    if forward_ad._current_level >= 0:
        raise NotImplementedError(f"the kernels have no derivative in forward mode (jvp, forward_ad); {_REMEDY}")


def is_recorded(*tensors: Tensor | None) -> bool:
    """Whether autograd has to record an operator on these tensors: outside torch.compile if gradients are enabled.

    Not under torch.jit.trace, which cannot save a Python function; a trace has no gradients through the operators.
    Raises NotImplementedError under forward-mode differentiation.
    """
    refuse_forward_mode()
    if not torch.is_grad_enabled() or torch.jit.is_tracing():
        return False
    return not torch.compiler.is_compiling() or any(x is not None and x.requires_grad for x in tensors)


def distinct(*tensors: Tensor | None) -> list[Tensor | None]:
    """The same tensors, repeats replaced by views: torch.compile rejects a Function that gets a tensor twice."""
    repeated = [x is not None and any(x is other for other in tensors[:i]) for i, x in enumerate(tensors)]
    return [x.view_as(x) if again else x for x, again in zip(tensors, repeated, strict=True)]


class DifferentiableOnce(torch.autograd.Function):
    """The first of several tensors; a derivative with respect to any of them is an error.

    Without it the second derivative of what reaches an operator is 0: torch's ``once_differentiable`` is an error only
    in ``backward()``, not in ``torch.autograd.grad`` and torch.func.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(number, *tensors):
        return tuple(None if x is None else x.view_as(x) for x in tensors[:number])

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *grads):
        raise NotImplementedError(f"the kernels have no second derivatives; {_REMEDY}")


class Differentiable:
    r"""A function of tensors that autograd records with a gradient of its own.

    Args:
        compute: (\*options, \*tensors, save) -> the result; a tuple of it and of what else the gradient needs.
        gradient: (\*options, needed, grad, \*tensors, \*results) -> the gradients of the first tensors.
        num_options: how many arguments that are not tensors come first.
        equation: (\*options, \*tensors) -> the result with torch's operators, for second derivatives and vmap.
        kept: (\*options) -> whether the gradient needs the result too, where that is alone.
        dropped: the position of a tensor that the gradient does without.
    """

    def __init__(
        self,
        compute: Callable,
        gradient: Callable,
        num_options: int,
        equation: Callable | None = None,
        kept: Callable = lambda *options: True,
        dropped: int | None = None,
    ):
        class Recorded(torch.autograd.Function):
            generate_vmap_rule = True

            @staticmethod
            def forward(*inputs):
                return compute(*inputs, True)

            @staticmethod
            def setup_context(ctx, inputs, output):
                results = output if isinstance(output, tuple) else (output,)
                ctx.options, tensors = inputs[:num_options], list(inputs[num_options:])
                ctx.num_tensors = len(tensors)
                if dropped is not None:
                    del tensors[dropped]
                if results[1:]:  # torch.compile takes an empty call for one that needs several results
                    ctx.mark_non_differentiable(*results[1:])
                ctx.set_materialize_grads(False)
                ctx.save_for_backward(*tensors, *(results if len(results) > 1 or kept(*ctx.options) else ()))

            @staticmethod
            def backward(ctx, grad, *_):
                saved, needed = ctx.saved_tensors, ctx.needs_input_grad[num_options:]
                if grad is None:
                    found = ()
                elif equation is not None and (torch.is_grad_enabled() or is_batched(grad, *saved)):
                    found = by_torch(equation, ctx.options, needed, grad, *saved[: ctx.num_tensors])
                else:
                    refuse_forward_mode()
                    found = gradient(*ctx.options, needed, grad, *saved)
                    if torch.is_grad_enabled():
                        found = DifferentiableOnce.apply(len(found), *found, grad, *saved)
                found = [x if need else None for x, need in zip(found, needed, strict=False)]
                return *(None,) * num_options, *found, *(None,) * (ctx.num_tensors - len(found))

        self._compute, self._recorded, self._num_options = compute, Recorded, num_options

    def __call__(self, *arguments):
        """The result, from options and tensors."""
        options, tensors = arguments[: self._num_options], arguments[self._num_options :]
        if is_recorded(*tensors):
            results = self._recorded.apply(*options, *distinct(*tensors))
        else:
            results = self._compute(*arguments, False)
        return results[0] if isinstance(results, tuple) else results


def define(
    name: str,
    tensors: str,
    options: tuple[str, ...] = (),
    *,
    saved: int = 0,
    gradients: int,
    fake: Callable,
    fake_backward: Callable | None = None,
    forms: tuple[Callable, ...] = (),
    dropped: int | None = None,
    more: Callable = lambda needed, gradients: (),
) -> Differentiable:
    """Declare an operator that is differentiable once, and its gradient, an operator too: nodes for torch.compile.

    ``name(tensors, options, save) -> (result, what the gradient needs)``, without ``save`` where the result is alone;
    ``name_backward(grad, tensors, results, options) -> gradients of the first tensors``. C++ implements them for the
    CPU.

    Args:
        tensors, options: as in a schema of torch.
        saved: how many results there are besides the first.
        gradients: how many there are.
        fake, fake_backward: the shapes of results and of gradients; by default these are like their tensors.
        forms: both for other devices, and for all where the C++ is missing.
        dropped: the position of a tensor that the gradient does without.
        more: (needed, gradients) -> the gradients of further tensors.

    Returns:
        The operator as a function of options and tensors.
    """
    names, save = tensors.split(", "), ("bool save",) * bool(saved)
    kept = [x for i, x in enumerate(names) if i != dropped] + [f"Tensor result{i}" for i in range(1 + saved)]
    LIBRARY.define(f"{name}({', '.join((*names, *options, *save))}) -> ({', '.join(['Tensor'] * (1 + saved))})")
    LIBRARY.define(
        f"{name}_backward({', '.join(('Tensor grad', *kept, *options))}) -> ({', '.join(['Tensor'] * gradients)})"
    )

    def like_tensors(_, *inputs):
        return tuple(x.new_empty(x.shape) for x in inputs[:gradients])

    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=LIBRARY)
    torch.library.register_fake(f"{NAMESPACE}::{name}_backward", fake_backward or like_tensors, lib=LIBRARY)
    for suffix, form in zip(("", "_backward"), forms, strict=False):
        LIBRARY.impl(name + suffix, form, "CompositeExplicitAutograd")
    operator, differentiate = (getattr(OPERATORS, name + suffix).default for suffix in ("", "_backward"))
    n = len(options)

    def compute(*arguments):
        *arguments, save = arguments
        return operator(*arguments[n:], *arguments[:n], *(save,) * bool(saved))

    def gradient(*arguments):
        found = differentiate(*arguments[n + 1 :], *arguments[:n])
        return *found, *more(arguments[n], found)

    return Differentiable(compute, gradient, n, dropped=dropped)


def by_torch(equation: Callable, options: tuple, needed: tuple[bool, ...], grad: Tensor, *tensors: Tensor | None):
    """Gradients of ``equation`` with torch's operators, which can be differentiated again and work under vmap."""
    again, wanted = torch.is_grad_enabled(), [i for i, need in enumerate(needed) if need]
    if torch._C._functorch.peek_interpreter_stack() is None:
        with torch.enable_grad():
            # Views, so that gradients take only this path.
            own = [x.view_as(x) if isinstance(x, Tensor) else x for x in tensors]
            found = torch.autograd.grad(equation(*options, *own), [own[i] for i in wanted], grad, create_graph=again)
    else:  # within a transform of torch.func, of which autograd knows nothing; vjp does not know hooks of autograd

        def of_wanted(*given):
            chosen = dict(zip(wanted, given, strict=True))
            return equation(*options, *(chosen.get(i, x) for i, x in enumerate(tensors)))

        found = torch.func.vjp(of_wanted, *(tensors[i] for i in wanted))[1](grad)
    gradients = dict(zip(wanted, found, strict=True))
    return tuple(gradients.get(i) for i in range(len(tensors)))


def is_batched(*tensors: Tensor | None) -> bool:
    """Whether vmap is active on these; it has no rule of its own for operators that take lists of tensors."""
    functorch = torch._C._functorch
    return any(functorch.is_batchedtensor(x) or functorch.is_legacy_batchedtensor(x) for x in tensors if x is not None)


def instruction_set() -> str | None:
    """The instruction set of the compiled loops: ``"avx512"``, ``"avx2"`` or ``"baseline"``; None without them."""
    return OPERATORS.instruction_set() if has_cpu_kernels() else None
