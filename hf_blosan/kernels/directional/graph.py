"""Directional attention in ONNX graphs, in operators that every runtime has, in O(N D) time and memory.

Like the C++ it sums near keys one by one and distant keys together; README.md has the
mathematics. What differs is due to graphs, where every operator passes over its
tensors:

* Near keys go through the expansion too, in chunks of a few tokens. With A_ir = sum_s C_rs T_s(k_i / h), so that
  K(k_i + q_j) = exp(tilt (k_i + q_j)) sum_r A_ir T_r(q_j / h), a query meets the prefix sums over i of
  exp(tilt k_i) A_ir (x_i, 1), within a chunk by a product with a triangular matrix of ones, across chunks by the state
  of a loop. exp(tilt q_j) cancels. T_s is written in another basis, which takes fewer operators to compute.
* The coefficients C are computed when the graph runs, for the half range h of this batch, and as many of them are used
  as are not negligible: about 6 at h = 0.1 c, 14 at 0.6 c, 30 at 1.5 c.

Sentences too short for that and features whose range is too wide are computed pair by pair: all at once where they
are few, else a few queries at a time. A window bounds the keys of a query, which are then cut out of the sentence; the
pairs of a narrow window are computed at once. Short sentences should take few operators: a step of a loop takes each
of its operators anew, which costs microseconds, and more in a browser.

Loops are functions of ONNX (graph_functions.py), which ``hf-blosan export`` adds to the graph in place of the operator
that is traced here. Masks of single pairs, and graphs that ``torch.onnx.export`` writes by itself, have all pairs at
once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor
from torch.nn import functional as F

from .chunks import Options, visible_keys

DOMAIN = "hf_blosan"
# Windows up to this have no loop.
NARROW = 4
# Keys of a query that are computed together there: more would take more memory, and more time in large batches.
TOGETHER = 4
# A sum of weights of pairs is above this or 0: a scale is at most 60.
LEAST = 1e-30
# Nor have rows of a length that is known and at most this, such as short blocks.
SHORT_ROWS = 9

_functions_follow: ContextVar[bool] = ContextVar("functions_follow", default=False)


@contextmanager
def operators_of_graphs() -> Iterator[None]:
    """Within it attention is traced as an operator that ``graph_functions.add_functions`` then replaces."""
    token = _functions_follow.set(True)
    try:
        yield
    finally:
        _functions_follow.reset(token)


def directional_attention_graph(
    keys: Tensor,
    queries: Tensor,
    values: Tensor,
    *,
    direction: str,
    bias: Tensor | None = None,
    key_mask: Tensor | None = None,
    token_mask: Tensor | None = None,
    scale: float = 5.0,
    window: int | None = None,
) -> Tensor:
    """What ``directional_attention`` computes, with arguments and result as there; for graphs.

    With c = 5, as in all models, the error is at most 5e-6 of the largest value up to a half range of 1.2 c, and 1e-4
    at the widest, 2.8 c: narrow weights are sums of terms that cancel. Above 5 all pairs are computed. Other rows of a
    batch change a result by as much, because they share the range. Queries of padding, which no model reads, are not
    computed.
    """
    queries = queries if bias is None else queries + bias
    real = torch.ones_like(keys[..., 0], dtype=torch.bool) if key_mask is None else key_mask.bool()
    options = Options(direction, scale, window)
    length = keys.shape[1]
    if token_mask is not None or isinstance(length, int) and length <= SHORT_ROWS:
        return _pairs(keys, queries, values, real, token_mask, options)
    if window is not None and window <= NARROW:
        return _nearest(keys, queries, values, real, options)
    if not _functions_follow.get():
        return _pairs(keys, queries, values, real, None, options)
    attributes = {"scale": float(scale)} | ({} if window is None else {"window": window})
    name = f"{DOMAIN}.{direction}::{'attention' if window is None else 'window'}"
    tensors = (keys, queries, values, real)
    return torch.onnx.ops.symbolic(name, tensors, attributes, dtype=keys.dtype, shape=keys.shape, version=1)


def _pairs(keys, queries, values, real, token_mask, options: Options) -> Tensor:
    """The equation, with all pairs at once."""
    everything = slice(None)
    visible = visible_keys(keys.shape[1], real, token_mask, options, everything, everything, keys.device)
    keys, queries = keys / options.scale, queries / options.scale
    weights = (torch.tanh(queries[:, :, None] + keys[:, None]) * options.scale).exp()
    weights = weights * visible[..., None].to(keys.dtype)  # `where` takes four times as long
    return _divide((weights * values[:, None]).sum(2), weights.sum(2))


def _nearest(keys, queries, values, real, options: Options) -> Tensor:
    """The pairs of a narrow window: (B, N, W, D) for the W keys that a query may see, up to ``TOGETHER`` at a time."""
    rows, reach = torch.arange(keys.shape[1], device=keys.device), options.window
    before, after = [*range(reach)], [*range(reach + 1, 2 * reach + 1)]  # among the keys around a query
    seen = {"forward": before, "backward": after, "diagonal": before + after, "full": [*before, reach, *after]}
    places = rows[:, None] + torch.tensor(seen[options.direction], dtype=torch.long, device=keys.device)
    keys, queries, is_real = keys / options.scale, queries / options.scale, real[..., None].to(keys.dtype)
    padded = [F.pad(x, (0, 0, reach, reach)) for x in (keys, values, is_real)]
    sums = []
    for some in places.split(TOGETHER, dim=1):
        near_keys, near_values, is_key = (x.index_select(1, some.flatten()).unflatten(1, some.shape) for x in padded)
        weights = (torch.tanh(queries[:, :, None] + near_keys) * options.scale).exp() * is_key
        sums.append(((weights * near_values).sum(2), weights.sum(2)))
    numerators, denominators = (sum(others, start=first) for first, *others in zip(*sums, strict=True))
    return _divide(numerators, denominators)


def _divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    return numerator / denominator.clamp(min=LEAST)
