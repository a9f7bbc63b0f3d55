"""Products with int8 weights, as an equation and as an operator with an ``implementation``; see attention.py."""

from torch import Tensor
from torch.nn import functional as F

from .attention import kernels
from .equations import upcast


def rounded_linear(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """W x + b for an int8 weight, (out, in), whose rows are in units of ``scale``, (out).

    Each token of x, (..., in), is rounded to integers, where 63 stands for its largest number; rounding has a gradient
    of 1. Sums of their products with weights from -63 to 63 are whole numbers below 2^24 for up to 4,000 features, so
    they are as exact in float32 as in integers.
    """
    (exact,) = upcast(x)
    most = exact.detach().abs().amax(-1, keepdim=True).clamp(min=1e-30)
    exact = exact * (63 / most)
    y = F.linear(exact + (exact.round() - exact).detach(), weight.to(exact.dtype)) * (most / 63 * scale)
    return (y if bias is None else y + bias).to(x.dtype)


def int8_linear(
    x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None, *, implementation: str = "auto"
) -> Tensor:
    """:func:`rounded_linear`, for weights from -63 to 63; ``"eager"`` is the equation, all others its fastest form."""
    fast = None if implementation == "eager" else getattr(kernels, "int8_linear", None)  # an older package has none
    y = None if fast is None else fast(x, weight, scale, bias)
    return rounded_linear(x, weight, scale, bias) if y is None else y
