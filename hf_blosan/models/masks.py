"""Visibility: which tokens see which, by word order, padding, dependency trees and blocks; checks of arguments; and
tokens in other places: blocks, rows without padding, rows with real tokens first.

Shape suffixes: see equations.py.
"""

from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor
from torch.nn import functional as F

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
        device: device of the mask.
        queries, keys: build these rows and columns only.

    Raises:
        ValueError: the direction is unknown, or the window is negative.
    """
    check_direction(direction)
    check_window(window)
    positions = torch.arange(length, device=device)
    query, key = positions[queries, None], positions[None, keys]
    if direction == "forward":
        visible = key < query
    elif direction == "backward":
        visible = key > query
    elif direction == "diagonal":
        visible = key != query
    else:
        visible = torch.ones_like(key == query)
    visible = visible | (key == query) if include_self else visible
    return visible if window is None else visible & ((key - query).abs() <= window)


def in_graph() -> bool:
    """Whether a graph is recorded, which must hold for other values and, unless fixed by the caller, other lengths."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def can_look_at(x: Tensor) -> bool:
    """Whether Python may branch on values: free on the CPU, a synchronization elsewhere, impossible in a graph."""
    plain = type(x) is Tensor and not torch._C._functorch.is_batchedtensor(x)
    return plain and x.device.type == "cpu" and not in_graph()


def zero_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """x (B, N, D), 0 where the mask is false, whatever is there."""
    return x if mask is None or can_look_at(mask) and mask.all() else torch.where(mask[..., None].bool(), x, 0.0)


def check_shapes(batch: int, length: int, mask: Tensor | None, **tensors: Tensor) -> None:
    """Refuse a mask that is not (B, N), and tensors of different shapes: kernels do not broadcast.

    Raises:
        ValueError: names the shapes.
    """
    if mask is not None and mask.shape != (batch, length):
        raise ValueError(
            f"the mask of real tokens has shape {tuple(mask.shape)} for {batch} rows of {length} tokens; give it the "
            f"shape {(batch, length)}"
        )
    first = next(iter(tensors.values()), None)
    # Compared one by one: a set of shapes would hash symbolic sizes, and torch.compile would fix every length.
    if any(x.shape != first.shape for x in tensors.values()):
        shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in tensors.items())
        raise ValueError(f"shapes differ: {shapes}; give all of them the same")


def check_bias(bias: Tensor | None, size: int) -> None:
    """Refuse a bias that is not (D)."""
    if bias is not None and bias.shape != (size,):
        raise ValueError(f"bias has shape {tuple(bias.shape)} for vectors of {size} features; give it ({size},)")


def check_direction(direction: str) -> None:
    """Refuse an unknown order mask."""
    if direction not in DIRECTIONS:
        raise ValueError(f"direction is {direction!r}; choose one of {', '.join(DIRECTIONS)}")


def check_window(window: int | None) -> None:
    """Refuse a window that is negative, beyond 64 bits or not an integer."""
    if window is not None and (not isinstance(window, Integral) or not 0 <= window < 2**63):
        raise ValueError(f"window is {window}; give the number of tokens a query sees on each side, 0 or more")


def check_scale(scale: float) -> None:
    """Refuse a scale that bounds no scores, or whose sums of exponentials overflow float32."""
    if not 0 < scale <= 80:
        raise ValueError(f"scale is {scale}; give a bound of the scores above 0 and up to 80")


def check_block_length(block_length: int | None, token_mask: Tensor | None = None) -> None:
    """Refuse a block length that is not a positive integer, and blocks together with a mask of token pairs."""
    if block_length is not None and (not isinstance(block_length, Integral) or block_length < 1):
        raise ValueError(f"block_length is {block_length}; give a number of tokens, 1 or more")
    if block_length is not None and token_mask is not None:
        raise ValueError("token_mask and block_length exclude each other; give one of them")


def check_cu_seqlens(cu_seqlens: Tensor | None, batch: int, length: int, **exclusive) -> None:
    """Refuse places where sentences start, (S + 1,), that do not divide a single row of tokens.

    Raises:
        ValueError: names the places, or an option that excludes them.
    """
    if cu_seqlens is None:
        return
    for name, value in exclusive.items():
        if value is not None:
            raise ValueError(f"cu_seqlens and {name} exclude each other; give one of them")
    whole = not cu_seqlens.is_floating_point() and cu_seqlens.dtype != torch.bool
    if not whole or cu_seqlens.dim() != 1 or not len(cu_seqlens) or batch != 1:
        raise ValueError(
            f"cu_seqlens has shape {tuple(cu_seqlens.shape)} and dtype {cu_seqlens.dtype} for {batch} rows of tokens; "
            "give S + 1 integers for S sentences that lie one after the other in a single row"
        )
    if not in_graph():
        starts = cu_seqlens.tolist()
        if starts[0] != 0 or starts[-1] != length or sorted(starts) != starts:
            raise ValueError(
                f"cu_seqlens is {starts}; give the places where sentences start, in order, from 0 to the number of "
                f"tokens, {length}"
            )


def full_token_mask(token_mask: Tensor, batch: int, length: int) -> Tensor:
    """A caller's mask of token pairs as booleans (B, N, N); an (N, N) mask is expanded to every row without a copy.

    Raises:
        ValueError: the mask has another shape or is floating-point.
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


def in_blocks(x: Tensor, block_length: int) -> Tensor:
    """(B, N, ...) -> (B M, R, ...): blocks of R tokens, the last of each sentence padded with zeros.

    R is the block length; in sentences shorter than that it is N, except in a graph.
    """
    B, N = x.shape[:2]
    block_length = block_length if in_graph() else min(block_length, max(N, 1))
    num_blocks = (N + block_length - 1) // block_length
    # In this form, unlike with cat and reshape, a graph holds for every N.
    x = F.pad(x, (0, 0) * (x.dim() - 2) + (0, num_blocks * block_length - N))
    return x.flatten(0, 1).unflatten(0, (B * num_blocks, block_length))


def out_of_blocks(rows: Tensor, batch: int, length: int) -> Tensor:
    """(B M, R, ...) -> (B, N, ...): undoes :func:`in_blocks`."""
    R = rows.shape[1]
    tokens = rows.flatten(0, 1).unflatten(0, (batch, (length + R - 1) // R * R))
    if torch.compiler.is_compiling():  # the strides of a slice would fix N
        return tokens.index_select(1, torch.arange(length, device=rows.device))
    return tokens[:, :length]


def broadcast_blocks_to_tokens(blocks: Tensor, block_length: int, length: int) -> Tensor:
    """(B, M, ...) -> (B, N, ...): each token gets the vector of its block."""
    return blocks.index_select(1, torch.arange(length, device=blocks.device) // block_length)


def on_blocks(operator, block_length: int, tensors: Sequence[Tensor], key_mask: Tensor | None) -> Tensor:
    """``operator(*tensors, key_mask=...)`` with each block as a separate row, (B, N, D) each -> (B M, ...)."""
    mask_BN = tensors[0].new_ones(tensors[0].shape[:2], dtype=torch.bool) if key_mask is None else key_mask.bool()
    return operator(*(in_blocks(x, block_length) for x in tensors), key_mask=in_blocks(mask_BN, block_length))


def cumulative_lengths(mask_BN: Tensor) -> Tensor:
    """Where each sentence starts once padding is left out, and where the last one ends: ``cu_seqlens``, (B + 1,)."""
    return F.pad(mask_BN.sum(1).cumsum(0), (1, 0))


def pack(x: Tensor, mask_BN: Tensor) -> Tensor:
    """(B, N, ...) -> (1, T, ...): the T tokens where the mask is true, sentence after sentence."""
    return x.flatten(0, 1).index_select(0, mask_BN.flatten().nonzero()[:, 0])[None]


def unpack(x: Tensor, mask_BN: Tensor) -> Tensor:
    """(1, T, ...) -> (B, N, ...), 0 where the mask is false: undoes :func:`pack`."""
    real_BN = mask_BN.flatten()
    rows = x.new_empty(len(real_BN), *x.shape[2:]).index_copy_(0, real_BN.nonzero()[:, 0], x[0])
    return rows.index_fill_(0, (~real_BN).nonzero()[:, 0], 0).unflatten(0, mask_BN.shape)


def rows_of_sentences(cu_seqlens: Tensor) -> Tensor:
    """The mask (S, L) of S sentences of a single row once each has a row of its own, padded to the longest."""
    lengths_S = cu_seqlens.diff()
    longest = int(lengths_S.max()) if len(lengths_S) else 0
    return torch.arange(longest, device=cu_seqlens.device) < lengths_S[:, None]


def on_sentences(operator, cu_seqlens: Tensor, tensors: Sequence[Tensor], key_mask: Tensor | None) -> Tensor:
    """``operator(*tensors, key_mask=...)`` with each sentence of a row as a row, (1, N, D) each -> (S, L, ...)."""
    mask_SL = rows_of_sentences(cu_seqlens)
    real_SL = mask_SL if key_mask is None else unpack(key_mask.bool(), mask_SL)
    return operator(*(unpack(x, mask_SL) for x in tensors), key_mask=real_SL)


def out_of_sentences(rows: Tensor, cu_seqlens: Tensor) -> Tensor:
    """(S, L, ...) -> (1, N, ...): undoes what :func:`on_sentences` does to tensors."""
    return pack(rows, rows_of_sentences(cu_seqlens))


def real_tokens_first(mask_BN: Tensor) -> Tensor:
    """Positions (B, N), real tokens first; both real tokens and padding keep their order."""
    if torch.compiler.is_exporting():  # to formats without a stable sort: distinct keys
        N, device = mask_BN.shape[1], mask_BN.device
        return torch.where(mask_BN, torch.arange(N, device=device), torch.arange(N, 2 * N, device=device)).argsort(1)
    return torch.argsort((~mask_BN).to(torch.uint8), dim=1, stable=True)


def reorder(tokens_BND: Tensor, order_BN: Tensor) -> Tensor:
    """Tokens of each row in another order."""
    B, N, _ = tokens_BND.shape
    places_BN = order_BN + N * torch.arange(B, device=order_BN.device)[:, None]
    # index_select copies whole vectors; gather copies element by element, which takes ten times as long.
    return tokens_BND.flatten(0, 1).index_select(0, places_BN.flatten()).unflatten(0, order_BN.shape)
