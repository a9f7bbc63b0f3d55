"""Directional attention and its gradient in plain torch, a slice of queries at a time: for reading, and for devices
without a kernel. Every kernel must agree with the gradient written here (:func:`backward`).

With u_ij = k_i + q_j, t_ij = tanh(u_ij / c), weights w_ij = exp(c t_ij) where key i is visible to query j, and
denominators d_j = sum_i w_ij the result is s_j = sum_i w_ij x_i / d_j. If the gradient of the loss with respect to s_j
is g_j, then with respect to

    x_i    it is   sum_j w_ij G_j                        where G_j = g_j / d_j
    u_ij   it is   w_ij G_j (x_i - s_j) (1 - t_ij^2)     as dw/du = w (1 - t^2), ds_j/dw_ij = (x_i - s_j) / d_j

and k_i and q_j sum up the gradients of their u_ij.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

DIRECTIONS = ("forward", "backward", "diagonal", "full")
# Elements of a (B, queries, keys, D) tensor that are computed at a time.
CHUNK_ELEMENTS = 1 << 21


class Options(NamedTuple):
    """What directional attention does besides its tensors; ``scale`` is c, the bound of the scores."""

    direction: str
    scale: float
    window: int | None
    implementation: str = "auto"


def forward(
    keys: Tensor, queries: Tensor, values: Tensor, key_mask: Tensor | None, token_mask: Tensor | None, options: Options
) -> tuple[Tensor, Tensor]:
    """Results s and denominators d, both (B, N, D)."""
    out, denominators = torch.empty_like(values), torch.empty_like(values)
    for rows, columns in _chunks(values, options):
        weights, _ = _weights(keys, queries, key_mask, token_mask, options, rows, columns)
        total = weights.sum(2)
        denominators[:, rows] = total
        weights *= values[:, None, columns]
        out[:, rows] = weights.sum(2) / torch.where(total > 0, total, 1.0)
    return out, denominators


def backward(
    grad: Tensor,
    keys: Tensor,
    queries: Tensor,
    values: Tensor,
    key_mask: Tensor | None,
    token_mask: Tensor | None,
    out: Tensor,
    denominators: Tensor,
    options: Options,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of keys, queries and values, each (B, N, D)."""
    grad_keys, grad_queries, grad_values = (torch.zeros_like(values) for _ in range(3))
    share = grad / torch.where(denominators > 0, denominators, 1.0)
    for rows, columns in _chunks(values, options):
        weights, tanh = _weights(keys, queries, key_mask, token_mask, options, rows, columns)
        weights *= share[:, rows, None]
        grad_values[:, columns] += weights.sum(1)
        weights *= values[:, None, columns] - out[:, rows, None]
        weights *= 1 - tanh * tanh
        grad_keys[:, columns] += weights.sum(1)
        grad_queries[:, rows] = weights.sum(2)
    return grad_keys, grad_queries, grad_values


def _chunks(values: Tensor, options: Options) -> Iterator[tuple[slice, slice]]:
    """Ranges of queries, each with the range of keys that may be visible to them by word order and window."""
    B, N, D = values.shape
    reach = N if options.window is None else options.window
    size = max(1, CHUNK_ELEMENTS // max(1, B * N * D))
    for start in range(0, N, size):
        stop = min(N, start + size)
        first = start if options.direction == "backward" else max(0, start - reach)
        last = stop if options.direction == "forward" else min(N, stop + reach)
        yield slice(start, stop), slice(first, last)


def _weights(keys, queries, key_mask, token_mask, options, rows, columns) -> tuple[Tensor, Tensor]:
    """w and t for ranges of queries and keys, (B, Q, K, D)."""
    tanh = torch.tanh((queries[:, rows, None] + keys[:, None, columns]) / options.scale)
    visible = visible_keys(keys.shape[1], key_mask, token_mask, options, rows, columns, keys.device)
    return torch.where(visible[..., None], (options.scale * tanh).exp(), 0.0), tanh


def visible_keys(length, key_mask, token_mask, options: Options, rows, columns, device) -> Tensor:
    """Which keys each query sees, for ranges of queries and keys, (B or 1, Q, K)."""
    positions = torch.arange(length, device=device)
    distance = positions[columns] - positions[rows, None]
    visible = {
        "forward": distance < 0,
        "backward": distance > 0,
        "diagonal": distance != 0,
        "full": distance == distance,
    }
    visible = visible[options.direction][None]
    if options.window is not None:
        visible = visible & (distance.abs() <= options.window)
    if key_mask is not None:
        visible = visible & key_mask[:, None, columns].bool()
    if token_mask is not None:
        visible = visible & token_mask[:, rows, columns]
    return visible
