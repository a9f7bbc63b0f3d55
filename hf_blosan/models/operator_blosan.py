"""Operators of torch's dispatcher that are called without it where nobody looks."""

import functools

import torch
from torch import Tensor

try:
    from torch._C import _has_storage
    from torch.autograd.profiler import _is_profiler_enabled  # noqa: F401
    from torch.utils._python_dispatch import is_in_torch_dispatch_mode

    CAN_TELL = True
except ImportError:  # another release of torch: all operators take the long way
    CAN_TELL = False

PLAIN = {Tensor, torch.nn.Parameter, type(None), bool, int, float, str, list, tuple}


class Operator:
    """A ``torch.library.custom_op``, with its ``register_fake`` and ``register_autograd``.

    Where no gradient is wanted and nothing records or intercepts operators, the function itself is called: the
    dispatcher's way to an operator in Python takes longer than a small kernel, most of all right after a product, when
    little of the interpreter is left in the cache.
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
    """Whether the dispatcher is needed, or torch cannot tell.

    A graph is recorded, or a mode or a profiler looks at operators, or tensors are not plain memory: of another type,
    of vmap, or without numbers.
    """
    return (
        torch.compiler.is_compiling()
        or not CAN_TELL
        or torch.jit.is_tracing()
        or is_in_torch_dispatch_mode()
        or torch.autograd.profiler._is_profiler_enabled
        or args[0].is_meta
        or not PLAIN.issuperset(map(type, args))
        or not all(_has_storage(x) for x in args if isinstance(x, Tensor))
    )
