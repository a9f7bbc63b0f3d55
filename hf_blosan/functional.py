"""The operators of the package: the papers' equations as functions of tensors.

All of them follow these rules:

* **Dtypes.** As in torch's arithmetic, tensors are promoted to one dtype, in which the result is returned: float32 and
  float64 give float64, integers take the dtype of the others, and integers alone torch's default dtype. bfloat16 and
  float16 are computed in float32. Complex numbers are refused with a ValueError.
* **Padding is not read.** Where the mask of real tokens is false, tensors may have any values, even NaN and infinity:
  they reach neither results nor gradients. Results at padding are finite but meaningless.
* **Derivatives.** ``implementation="eager"`` and the functions without an implementation have derivatives of every
  order and kind; the other implementations have first derivatives by backward() and torch.func.grad. Second
  derivatives and forward mode (torch.func.jvp, torch.autograd.forward_ad) raise NotImplementedError there.
"""

import functools
import inspect

import torch
from torch import Tensor

from .models import attention, attention_mtsa, attention_recurrent, equations, equations_mtsa
from .models.configuration_biblosan import optimal_block_length
from .models.equations import IMPLEMENTATIONS, Operator, can_branch_on, zero_padding
from .models.equations_mtsa import SCORE_FUNCTIONS
from .models.heads_regression import spread_scores
from .models.masks import DIRECTIONS, order_mask

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


def _operator(function: Operator, form: str = "B, N, D", **forms: str) -> Operator:
    """Apply the rules above to a function of the models. Models need no wrapper: their tensors have one dtype, and
    ``ContextFusion`` does not read padding. ``form`` is the shape of the tensors, except of those named in ``forms``.
    """
    parameters = inspect.signature(function).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]

    @functools.wraps(function)
    def operator(*args, **options):
        given = dict(zip(names, args, strict=False)) | {name: options[name] for name in names if name in options}
        for name, x in given.items():
            if x.dim() != (dims := forms.get(name, form)).count(",") + 1:
                raise ValueError(f"{name} has shape {tuple(x.shape)}; give a tensor ({dims})")
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
    if mask is not None and mask.is_floating_point() and can_branch_on(mask) and (mask < 0).any():
        raise ValueError(
            "the mask has values below 0; give 1 or true for tokens that may be read, 0 or false for others"
        )
    if mask is None or empty_rows == "zero":
        return None if mask is None else mask.bool()
    return mask.bool() | ~mask.bool().any(1, keepdim=True)  # rows of padding alone get the mean


def _without_padding(x: Tensor, real_BN: Tensor | None) -> Tensor:
    """x, (B, N), (B, N, D) or (B, H, N, D), 0 at padding."""
    if real_BN is None or real_BN.shape != (x.shape[0], x.shape[1 if x.dim() == 2 else -2]):
        return x  # the function raises an error for the mask's shape
    if x.dim() == 2:
        return zero_padding(x[..., None], real_BN)[..., 0]
    return zero_padding(x, real_BN if x.dim() == 3 else real_BN[:, None])


@functools.partial(_operator, scores="B, N")
def additive_attention(scores: Tensor, values: Tensor, *, mask: Tensor, empty_rows: str = "zero") -> Tensor:
    """Vanilla additive attention (DiSAN Eq. 3-5): :func:`source2token_attention` with one score per token, (B, N)."""
    options = {"mask": mask, "empty_rows": empty_rows, "implementation": "eager"}
    return attention.source2token_attention(scores[..., None], values, **options)


def mask_from_heads(
    heads: Tensor, *, mask: Tensor | None = None, distance: int = 1, include_self: bool = False
) -> Tensor:
    """A token mask from dependency trees: a token sees only its head and its children.

    Args:
        heads: (B, N) or (N,) integers, the position of each token's head within its row, counted from 0; -1 or the
            token's own position marks a root. (CoNLL-U counts from 1 and marks roots by 0: subtract 1.)
        mask: true at real tokens, in the shape of ``heads``; by default all tokens are real. Values of ``heads`` at
            padding are ignored; padding neither sees nor is seen.
        distance: how many edges of the tree a token sees along; 2 adds grandparents, grandchildren and siblings.
        include_self: let a token see itself as well.

    Returns:
        Booleans (B, N, N) or (N, N), true where the query (row) may see the key (column): a ``token_mask``.
        Directions other than ``"full"`` hide further keys.

    Raises:
        ValueError: the heads are not integers, a head is outside the sentence or at padding, the mask has another
            shape, or the distance is below 1.

    Example:
        >>> heads = torch.tensor([[1, -1, 1, 2]])  # dogs chase cats everywhere
        >>> mask_from_heads(heads).int()
        tensor([[[0, 1, 0, 0],
                 [1, 0, 1, 0],
                 [0, 1, 0, 1],
                 [0, 0, 1, 0]]], dtype=torch.int32)
    """
    length = heads.shape[-1]
    if heads.is_floating_point() or heads.dtype == torch.bool:
        raise ValueError(f"heads hold {heads.dtype}; give the position of each token's head as an integer")
    if mask is not None and mask.shape != heads.shape:
        raise ValueError(f"the mask has shape {tuple(mask.shape)}, the heads {tuple(heads.shape)}; they must agree")
    if distance < 1:
        raise ValueError(f"distance is {distance}; give the number of edges a token may see along, 1 or more")
    real_BN = torch.ones_like(heads, dtype=torch.bool) if mask is None else mask.bool()
    if not torch.compiler.is_compiling():  # a graph cannot depend on values
        _check_heads(heads, real_BN)
    itself_NN = torch.eye(length, dtype=torch.bool, device=heads.device)
    is_head_BNN = heads[..., None] == torch.arange(length, device=heads.device)
    near_BNN = (is_head_BNN | is_head_BNN.transpose(-1, -2) | itself_NN) & real_BN[..., None] & real_BN[..., None, :]
    visible_BNN = near_BNN
    for _ in range(min(distance, length) - 1):
        visible_BNN = visible_BNN.float() @ near_BNN.float() > 0
    return visible_BNN if include_self else visible_BNN & ~itself_NN


def _check_heads(heads_BN: Tensor, real_BN: Tensor) -> None:
    heads_BN = heads_BN.long()
    length = heads_BN.shape[-1]
    at_padding_BN = (heads_BN >= 0) & ~real_BN.gather(-1, heads_BN.clamp(0, max(0, length - 1)))
    wrong_BN = real_BN & ((heads_BN < -1) | (heads_BN >= length) | at_padding_BN)
    if wrong_BN.any():
        place = wrong_BN.nonzero()[0].tolist()
        raise ValueError(
            f"heads{place} is {int(heads_BN[tuple(place)])}; a head is the position of a real token of the sentence, "
            f"0 to {length - 1}, and -1 or the token itself at a root"
        )


directional_attention = _operator(attention.directional_attention)
directional_attention_weights = _operator(equations.directional_attention_weights)
linear_recurrence = _operator(attention_recurrent.linear_recurrence)
source2token_attention = _operator(attention.source2token_attention)
source2token_weights = _operator(equations.source2token_weights)
tensorized_attention = _operator(attention_mtsa.tensorized_attention, "B, H, N, D")
tensorized_attention_weights = _operator(equations_mtsa.tensorized_attention_weights, "B, H, N, D")
