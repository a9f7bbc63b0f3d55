"""The operators of the package: the papers' equations as functions of tensors.

What holds for all of them:

* **Dtypes.** As in torch's arithmetic, tensors are promoted to one dtype, in which the result is returned: float32 and
  float64 give float64, integers take the dtype of the others, and integers alone torch's default dtype. bfloat16 and
  float16 are computed in float32. Complex numbers are refused with a ValueError.
* **Padding is not read.** Where the mask of real tokens is false, tensors may hold anything, even NaN and infinity:
  it reaches neither results nor gradients. Results at padding are finite and mean nothing.
* **Derivatives.** ``implementation="eager"`` and the functions without an implementation have derivatives of every
  order and kind; the other implementations have first derivatives by backward() and torch.func.grad. Forward mode
  (torch.func.jvp, torch.autograd.forward_ad) raises NotImplementedError there.
"""

import functools
import inspect

import torch
from torch import Tensor

from .models import attention, attention_mtsa, equations, equations_mtsa, layers_recurrent
from .models.configuration_biblosan import optimal_block_length
from .models.equations import IMPLEMENTATIONS, Operator, spread_scores
from .models.equations_mtsa import SCORE_FUNCTIONS
from .models.masks import DIRECTIONS, mask_from_heads, order_mask, zero_padding

__all__ = [
    "DIRECTIONS",
    "IMPLEMENTATIONS",
    "SCORE_FUNCTIONS",
    "additive_attention",
    "directional_attention",
    "directional_attention_weights",
    "linear_recurrence",
    "mask_from_heads",
    "optimal_block_length",
    "order_mask",
    "source2token_attention",
    "source2token_weights",
    "spread_scores",
    "tensorized_attention",
    "tensorized_attention_weights",
]


def _operator(function: Operator) -> Operator:
    """A function of the models with the rules above. Models obey them without it: their tensors have one dtype, and
    ``ContextFusion`` does not read padding."""
    parameters = inspect.signature(function).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]

    @functools.wraps(function)
    def operator(*args, **options):
        given = dict(zip(names, args, strict=False)) | {name: options[name] for name in names if name in options}
        bias = {} if options.get("bias") is None else {"bias": options["bias"]}
        dtype = _common_dtype(given | bias)
        real_BN = _real_tokens(**options)
        ready = {name: _without_padding(x.to(dtype), real_BN) for name, x in given.items()}
        ready |= {name: x.to(dtype) for name, x in bias.items()}
        args = [ready.pop(name) for name in names[: len(args)]] + list(args[len(names) :])
        return function(*args, **(options | ready))

    return operator


def _common_dtype(tensors: dict[str, Tensor]) -> torch.dtype:
    for name, x in tensors.items():
        if x.is_complex():
            raise ValueError(f"{name} hold {x.dtype}; give real numbers, for instance {name}.real")
    dtype = functools.reduce(torch.promote_types, [x.dtype for x in tensors.values()], torch.bool)
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def _real_tokens(
    key_mask: Tensor | None = None, mask: Tensor | None = None, empty_rows: str = "zero", **others
) -> Tensor | None:
    """(B, N), true at tokens that may be read; None if all may."""
    mask = key_mask if mask is None else mask
    if mask is None or empty_rows == "zero":
        return None if mask is None else mask.bool()
    return mask.bool() | ~mask.bool().any(1, keepdim=True)  # the mean of a row of padding


def _without_padding(x: Tensor, real_BN: Tensor | None) -> Tensor:
    """x, (B, N), (B, N, D) or (B, H, N, D), 0 at padding."""
    if real_BN is None or real_BN.shape != (x.shape[0], x.shape[1 if x.dim() == 2 else -2]):
        return x  # the function refuses a mask of another shape
    if x.dim() == 2:
        return zero_padding(x[..., None], real_BN)[..., 0]
    return zero_padding(x, real_BN if x.dim() == 3 else real_BN[:, None])


@_operator
def additive_attention(scores: Tensor, values: Tensor, *, mask: Tensor, empty_rows: str = "zero") -> Tensor:
    """Vanilla additive attention (DiSAN Eq. 3-5): :func:`source2token_attention` with one score per token, (B, N)."""
    return equations.source2token_attention(scores[..., None], values, mask=mask, empty_rows=empty_rows)


directional_attention = _operator(attention.directional_attention)
directional_attention_weights = _operator(equations.directional_attention_weights)
linear_recurrence = _operator(layers_recurrent.linear_recurrence)
source2token_attention = _operator(attention.source2token_attention)
source2token_weights = _operator(equations.source2token_weights)
tensorized_attention = _operator(attention_mtsa.tensorized_attention)
tensorized_attention_weights = _operator(equations_mtsa.tensorized_attention_weights)
