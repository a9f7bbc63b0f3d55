"""Who sees whom: by word order, within a window, and by a caller's own mask. Shape suffixes: see equations.py."""

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
        device: device of the mask.
        queries, keys: build these rows and columns only.

    Raises:
        ValueError: the direction is unknown, or the window is negative.
    """
    check_choice("direction", direction, DIRECTIONS)
    check_window(window)
    positions = torch.arange(length, device=device)
    query, key = positions[queries, None], positions[None, keys]
    visible = key == query if include_self or direction == "full" else torch.zeros_like(key == query)
    if direction != "backward":
        visible = visible | (key < query)
    if direction != "forward":
        visible = visible | (key > query)
    return visible if window is None else visible & ((key - query).abs() <= window)


def full_token_mask(token_mask: Tensor, batch: int, length: int) -> Tensor:
    """A caller's mask of token pairs as booleans (B, N, N); an (N, N) mask is expanded to every row without a copy.

    A mask of no tokens becomes one of a single padded position, as rows without tokens do.

    Raises:
        ValueError: the mask has another shape or is floating-point.
    """
    meaning = "true where the query (row) may see the key (column)"
    if token_mask.is_floating_point():
        raise ValueError(f"token_mask holds {token_mask.dtype}; give booleans, {meaning}")
    if length == 1 and not token_mask.numel():
        return token_mask.new_zeros(batch, 1, 1, dtype=torch.bool)
    if token_mask.shape not in ((length, length), (batch, length, length)):
        shapes = f"({length}, {length}) or ({batch}, {length}, {length})"
        raise ValueError(f"token_mask has shape {tuple(token_mask.shape)}; give {shapes}, {meaning}")
    return token_mask.bool().expand(batch, length, length)


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a value that is not one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; choose one of {', '.join(choices)}")


def check_window(window: int | None) -> None:
    """Refuse a window that is negative, beyond 64 bits or not an integer."""
    if window is not None and (not isinstance(window, Integral) or not 0 <= window < 2**63):
        raise ValueError(f"window is {window}; give the number of tokens a query sees on each side, 0 or more")
