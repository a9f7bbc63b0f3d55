"""Reorders the tokens of a row for layers that count positions. Shape suffixes: see equations.py."""

from dataclasses import replace

import torch
from torch import Tensor

from .attention import Tokens
from .configuration_base import SentenceEncoderConfig
from .embeddings import real_tokens_first
from .equations import can_branch_on, in_graph


def reorder(tokens: Tensor | Tokens, order_BN: Tensor) -> Tensor | Tokens:
    """Reorder the tokens of each row, (B, N, D)."""
    if isinstance(tokens, Tokens):
        return replace(tokens, places_BN=tokens.places_BN.gather(1, order_BN))
    B, N, _ = tokens.shape
    places_BN = order_BN + N * torch.arange(B, device=order_BN.device)[:, None]
    # index_select copies whole vectors; gather copies element by element, which takes ten times as long.
    return tokens.flatten(0, 1).index_select(0, places_BN.flatten()).unflatten(0, order_BN.shape)


def check_graph(config: SentenceEncoderConfig, field: str) -> None:
    """Raise ValueError while a graph of pairs is recorded, if this field of the configuration makes padding count.

    A pair is cut to the longest sentence of its batch, whose length a graph does not know.
    """
    if in_graph() and config.num_sentences == 2 and not getattr(config, field):
        raise ValueError(
            f"{field}=False and num_sentences=2: vectors of pairs depend on the longest sentence of a batch, which a "
            f"graph does not know; set {field}=True, or num_sentences=1 for an encoder of single sentences"
        )


def with_left_aligned_tokens(fuse, hidden_BNE: Tensor | Tokens, mask_BN: Tensor, *others):
    """``fuse(hidden_BNE, mask_BN, *others) -> (tokens_BNH, maps)`` on rows whose real tokens come first.

    For layers that count positions. Tokens and their gates, the last of the maps, are moved back afterwards; positions
    in attention, and blocks, count real tokens only. Gates that are moved are copies, without gradients of the result.
    """
    # Usually padding is on the right already.
    if can_branch_on(mask_BN) and not (mask_BN[:, 1:] > mask_BN[:, :-1]).any():
        return fuse(hidden_BNE, mask_BN, *others)
    order_BN = real_tokens_first(mask_BN)
    tokens_BNH, maps = fuse(reorder(hidden_BNE, order_BN), mask_BN.gather(1, order_BN), *others)
    back_BN = order_BN.argsort(dim=1)
    if maps is not None and maps.gates:
        *of_blocks, gates = maps.gates  # (B, ..., N, D)
        places = back_BN.view(back_BN.shape[0], *(1,) * (gates.dim() - 3), -1, 1)
        maps = maps._replace(gates=(*of_blocks, gates.gather(-2, places.expand_as(gates))))
    return reorder(tokens_BNH, back_BN), maps
