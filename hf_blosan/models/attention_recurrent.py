"""The recurrence of simple recurrent units, as equation and operator with an ``implementation``; see attention.py.

Shape suffixes: see equations.py.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .attention import kernels, to_onnx
from .equations import IMPLEMENTATIONS, full_precision, upcast
from .masks import check_choice


@full_precision
def recurrence(forget: Tensor, values: Tensor) -> Tensor:
    """The states of a simple recurrent unit (arXiv 1709.02755): c_t = f_t * c_(t-1) + (1 - f_t) * x_t, c_0 = 0.

    Args:
        forget: gates f between 0 and 1, shape (B, N, D).
        values: x, shape (B, N, D).

    Returns:
        c, shape (B, N, D), in the dtype of ``values``.
    """
    if not values.shape[1]:
        return torch.zeros_like(values)
    forget_NBD, values_NBD = (x.transpose(0, 1) for x in upcast(forget, values))

    def step(state_BD, forget_BD, value_BD):
        state_BD = forget_BD * state_BD + (1 - forget_BD) * value_BD
        return state_BD, state_BD

    return for_each_slice(step, torch.zeros_like(values_NBD[0]), forget_NBD, values_NBD).to(values.dtype)


def for_each_slice(step: Callable, state, *tensors: Tensor) -> Tensor:
    """``step(state, *slices) -> (state, output)`` from the first slice of tensors (N, ...) to the last.

    Returns the outputs, stacked in dimension 1. In a graph the loop is a single operator, so the graph serves every N.
    """
    if torch.compiler.is_compiling():
        return scan(lambda state, slices: step(state, *slices), state, tensors).transpose(0, 1)
    outputs = []
    for slices in zip(*(x.unbind() for x in tensors), strict=True):
        state, output = step(state, *slices)
        outputs.append(output)
    return torch.stack(outputs, dim=1)


def scan(step: Callable, state, slices) -> Tensor:
    """The outputs of torch's scan over dimension 0, whose ``step`` may return one tensor as state and as output."""
    from torch._higher_order_ops.scan import scan  # takes long to import

    def apart(state, slices):
        state, output = step(state, slices)
        return pytree.tree_map(torch.clone, (state, output))

    return scan(apart, state, slices)[1]


def linear_recurrence(forget: Tensor, values: Tensor, *, implementation: str = "auto") -> Tensor:
    """The states of a simple recurrent unit (arXiv 1709.02755): c_t = f_t * c_(t-1) + (1 - f_t) * x_t, c_0 = 0.

    Args:
        forget: gates f between 0 and 1, shape (B, N, D).
        values: x, shape (B, N, D).
        implementation: ``"eager"`` computes token by token, all others compute all tokens in one operation. Only
            ``"eager"`` has second derivatives.

    Returns:
        c, shape (B, N, D), in the dtype of ``values``.

    Raises:
        ValueError: the implementation is unknown, or the tensors are not both of one shape (B, N, D).
    """
    check_choice("implementation", implementation, IMPLEMENTATIONS)
    if forget.shape != values.shape or values.dim() != 3:
        raise ValueError(
            f"gates have shape {tuple(forget.shape)}, values {tuple(values.shape)}; give both the shape (B, N, D)"
        )
    if implementation == "eager" or kernels is None or to_onnx():
        return recurrence(forget, values)
    dtype = torch.promote_types(values.dtype, torch.float32)
    return kernels.linear_recurrence(forget.to(dtype), values.to(dtype)).to(values.dtype)
