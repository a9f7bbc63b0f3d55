"""Operators of torch's dispatcher that are called without it where nobody looks."""

import functools

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

PLAIN = {Tensor, torch.nn.Parameter, type(None), bool, int, float, str, list, tuple}


class Operator:
    """A ``torch.library.custom_op``, with its ``register_fake`` and ``register_autograd``.

    Where no gradient is wanted and nothing records or intercepts operators, the function itself is called: the
    dispatcher's way to an operator in Python takes longer than a small kernel (right after a product, when little of
    the interpreter is left in the cache, 57 us against 15 for one ELU on an Intel Xeon).
    """

    def __init__(self, function, name: str, mutates_args: tuple[str, ...]):
        self.function = function
        self.op = torch.library.custom_op(f"hf_blosan::{name}", function, mutates_args=mutates_args)
        self.register_fake, self.register_autograd = self.op.register_fake, self.op.register_autograd

    def __call__(self, *args):
        return (self.op if torch.is_grad_enabled() or observed(args) else self.function)(*args)


def operator(name: str, mutates_args: tuple[str, ...] = ()):
    """Make a function an :class:`Operator`."""
    return functools.partial(Operator, name=name, mutates_args=mutates_args)


def observed(args: tuple) -> bool:
    """Whether a graph is recorded, a mode or a profiler wants to see operators, or arguments are of other types."""
    return (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or is_in_torch_dispatch_mode()
        or getattr(torch.autograd.profiler, "_is_profiler_enabled", False)
        or not PLAIN.issuperset(map(type, args))
    )
