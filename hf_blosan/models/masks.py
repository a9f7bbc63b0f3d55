"""Which tokens see which: word order, padding, dependency trees and blocks; and masks and shapes that are refused.

Shape suffixes: see equations.
"""

from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor

DIRECTIONS = ("forward", "backward", "diagonal", "full")


def order_mask(
    length: int,
    direction: str,
    *,
    include_self: bool = False,
    window: int | None = None,
    device: torch.device | None = None,
    queries: slice = slice(None),
    keys: slice = slice(None),
) -> Tensor:
    """Which keys a query may see by word order (DiSAN Eq. 16-17), as booleans of shape (N queries, N keys).

    Args:
        length: number of tokens N.
        direction: ``"forward"`` keys before the query, ``"backward"`` keys after it, ``"diagonal"`` every key but the
            query itself, ``"full"`` every key.
        include_self: let a query see itself too (it always does under ``"full"``).
        window: see only keys at most that many tokens away; any distance by default.
        device: where to build the mask.
        queries, keys: build these rows and columns only.

    Raises:
        ValueError: unknown direction, or a window below 0.
    """
    check_window(window)
    positions = torch.arange(length, device=device)
    query, key = positions[queries, None], positions[None, keys]
    if direction == "forward":
        visible = key < query
    elif direction == "backward":
        visible = key > query
    elif direction == "diagonal":
        visible = key != query
    elif direction == "full":
        visible = torch.ones_like(key == query)
    else:
        raise ValueError(f"direction is {direction!r}; choose one of {', '.join(DIRECTIONS)}")
    visible = visible | (key == query) if include_self else visible
    return visible if window is None else visible & ((key - query).abs() <= window)


def check_shapes(batch: int, length: int, mask: Tensor | None, **tensors: Tensor) -> None:
    """Refuse a mask that is not (B, N) and tensors of different shapes: kernels do not broadcast.

    Raises:
        ValueError: there is one.
    """
    if mask is not None and mask.shape != (batch, length):
        raise ValueError(
            f"the mask of real tokens has shape {tuple(mask.shape)} for {batch} rows of {length} tokens; give it the "
            f"shape {(batch, length)}"
        )
    if len({x.shape for x in tensors.values()}) > 1:
        shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in tensors.items())
        raise ValueError(f"shapes differ: {shapes}; give all of them the same")


def check_bias(bias: Tensor | None, size: int) -> None:
    """Refuse a bias that is not (D)."""
    if bias is not None and bias.shape != (size,):
        raise ValueError(f"bias has shape {tuple(bias.shape)} for vectors of {size} features; give it ({size},)")


def check_window(window: int | None) -> None:
    """Refuse a window below 0, or of no whole number of tokens."""
    if window is not None and (not isinstance(window, Integral) or window < 0):
        raise ValueError(f"window is {window}; give the number of tokens a query sees on each side, 0 or more")


def check_block_length(block_length: int | None, token_mask: Tensor | None = None) -> None:
    """Refuse blocks of no whole number of tokens or of none, and blocks together with a mask of token pairs."""
    if block_length is not None and (not isinstance(block_length, Integral) or block_length < 1):
        raise ValueError(f"block_length is {block_length}; give a number of tokens, 1 or more")
    if block_length is not None and token_mask is not None:
        raise ValueError("token_mask and block_length: blocks leave no place for a mask of tokens; give one of them")


def full_token_mask(token_mask: Tensor, batch: int, length: int) -> Tensor:
    """A caller's mask of token pairs as booleans (B, N, N); one of (N, N) serves every row without a copy.

    Raises:
        ValueError: another shape, or numbers that are no truth values.
    """
    meaning = "true where the query (row) may see the key (column)"
    if token_mask.is_floating_point():
        raise ValueError(f"token_mask holds {token_mask.dtype}; give booleans, {meaning}")
    if token_mask.shape not in ((length, length), (batch, length, length)):
        raise ValueError(
            f"token_mask has shape {tuple(token_mask.shape)}; give ({length}, {length}) or "
            f"({batch}, {length}, {length}), {meaning}"
        )
    return token_mask.bool().expand(batch, length, length)


def mask_from_heads(
    heads: Tensor, *, mask: Tensor | None = None, distance: int = 1, include_self: bool = False
) -> Tensor:
    """A token mask from dependency trees: a token sees its head and its children, and nothing else.

    Args:
        heads: (B, N) or (N,) integers, the position of each token's head in its own row, counted from 0; a root has
            -1, or its own position. (CoNLL-U counts from 1 and has 0 at the root: subtract 1.)
        mask: true at real tokens, in the shape of ``heads``; all tokens are real by default. What ``heads`` holds at
            padding is not read; padding sees nothing and is not seen.
        distance: see every token at most that many edges of the tree away; 2 adds grandparents, grandchildren and
            siblings.
        include_self: let a token see itself too.

    Returns:
        Booleans (B, N, N) or (N, N), true where the query (row) may see the key (column): a ``token_mask``. All of it
        is used under ``direction="full"``; the other directions hide what they hide, the token itself too.

    Raises:
        ValueError: heads that are no integers, a head beyond the sentence or at padding, a mask of another shape, or
            a distance below 1.

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


def in_blocks(x: Tensor, block_length: int) -> Tensor:
    """(B, N, ...) -> (B M, R, ...): blocks of R tokens, the last of each sentence filled up with zeros."""
    padding = -x.shape[1] % block_length
    if padding:
        x = torch.cat([x, x.new_zeros(len(x), padding, *x.shape[2:])], dim=1)
    return x.unflatten(1, (-1, block_length)).flatten(0, 1)


def of_tokens(blocks: Tensor, block_length: int, length: int) -> Tensor:
    """(B, M, ...) -> (B, N, ...): for each token what stands for its block."""
    return blocks.repeat_interleave(block_length, dim=1)[:, :length]


def on_blocks(operator, block_length: int, tensors: Sequence[Tensor], key_mask: Tensor | None) -> Tensor:
    """``operator(*tensors, key_mask=...)`` on blocks as sentences of their own, (B, N, D) each -> (B, M, ...)."""
    B, N, _ = tensors[0].shape
    mask_BN = tensors[0].new_ones(B, N, dtype=torch.bool) if key_mask is None else key_mask.bool()
    rows = operator(*(in_blocks(x, block_length) for x in tensors), key_mask=in_blocks(mask_BN, block_length))
    return rows.unflatten(0, (B, -(-N // block_length)))
