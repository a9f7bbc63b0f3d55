"""The attention weights and gates of one sentence, without padding, from the output of each encoder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from ..models.equations_mtsa import divided
from ..models.masks import order_mask

KEY = "weight of the key"
ITSELF = "share of the token itself, the rest is its context"
CONTEXT = "share of the context, the rest is the token itself"
BLOCK_ITSELF = "share of the block itself, the rest is the other blocks"
BLOCK_CONTEXT = "share of the other blocks, the rest is the block itself"
IN_SENTENCE = "weight in the sentence vector"
MAX_POOLED = "share of the sentence vector's features taken from the window that starts here"


@dataclass(frozen=True, eq=False)
class Map:
    """Weights or gates over the tokens, or blocks of tokens, of a sentence.

    Attributes:
        kind: ``"attention"``, ``"gate"`` or ``"pooling"``.
        title: as in ``"attention, forward"``.
        meaning: meaning of a value.
        values: float32; attention (query, key, feature), 0 where the query does not see the key; a gate (token,
            feature), between 0 and 1; pooling (token, feature). One feature if all share a weight.
        labels: the tokens or blocks.
        visible: attention whose weights may underflow to 0, (query, key): whether the query sees the key.
        equal: pooling within blocks, (token,): an equal share.
    """

    kind: Literal["attention", "gate", "pooling"]
    title: str
    meaning: str
    values: np.ndarray
    labels: list[str]
    visible: np.ndarray | None = None
    equal: np.ndarray | None = None

    @property
    def name(self) -> str:
        """The title as an identifier, as in ``"attention_forward"``."""
        return re.sub(r"\W+", "_", self.title)

    @property
    def mean(self) -> np.ndarray:
        """The mean over the features: (query, key) or (token,)."""
        return self.values.mean(axis=-1)

    @property
    def hidden(self) -> np.ndarray:
        """Attention only, (query, key): whether order mask, window or block hides the key from the query."""
        return ~(self.values.any(axis=-1) if self.visible is None else self.visible)

    @property
    def equal_share(self) -> np.ndarray:
        """Pooling only, (token,): the weights if all tokens had the same."""
        return np.full(len(self.labels), self.mean.sum() / len(self.labels)) if self.equal is None else self.equal


def read_maps(config: Any, output: Any, row: int, tokens: list[str]) -> list[Map]:
    """The maps of one row of a model's output with ``output_attentions=True``, context layers first, then the pooler.

    The row has the N ``tokens`` of the sentence first, then padding.
    """
    attentions, gates = ([to_numpy(x[row]) for x in maps or ()] for maps in (output.attentions, output.gates))
    found = []
    if (read := READERS.get(config.model_type)) and (attentions or gates):
        layers = config.num_hidden_layers
        for layer in range(layers):
            parts = (maps[len(maps) * layer // layers :][: len(maps) // layers] for maps in (attentions, gates))
            suffix = f", layer {layer + 1}" if layers > 1 else ""
            found += [replace(map_, title=map_.title + suffix) for map_ in read(config, *parts, tokens)]
    pooled = to_numpy(output.pooler_attentions[row, : len(tokens)])
    title = config.pooling if config.pooling == "source2token" else f"{config.pooling} pooling"
    return [*found, Map("pooling", title, MAX_POOLED if config.pooling == "max" else IN_SENTENCE, pooled, tokens)]


def make_maps(kind: str, title: str, meaning: str, names: Sequence[str], values: Any, labels: list[str]) -> list[Map]:
    """A map per name (a direction or head), along the first axis of the values."""
    return [Map(kind, f"{title}, {name}", meaning, value, labels) for name, value in zip(names, values, strict=True)]


def read_disan(config: Any, attentions: list, gates: list, tokens: list[str]) -> list[Map]:
    """Attention (2, N, N, D) and gates (2, N, D) of both directions (DiSAN Eq. 15-20)."""
    N, names = len(tokens), with_windows(numbered(config.directions), config.windows)
    return [
        *make_maps("attention", "attention", KEY, names, attentions[0][:, :N, :N], tokens),
        *make_maps("gate", "gate", ITSELF, names, gates[0][:, :N], tokens),
    ]


def read_biblosan(config: Any, attentions: list, gates: list, tokens: list[str]) -> list[Map]:
    """Attention in blocks (2, M, R, R, D), of block vectors (2, M, R, D), between blocks (2, M, M, D), and gates."""
    N, R = len(tokens), config.block_length
    edges = [*range(0, N, R), N]
    M, names = len(edges) - 1, numbered(config.directions)
    in_blocks = [on_diagonal(weights_MRRD[:M])[:N, :N] for weights_MRRD in attentions[0]]
    local = make_maps("attention", "attention in blocks", KEY, names, in_blocks, tokens)
    fused = make_maps("gate", "gate", CONTEXT, names, gates[-1][:, :N], tokens)
    if not config.fuse_global:
        return local + fused
    blocks = [block_label(tokens[start:end]) for start, end in pairwise(edges)]
    of_block = BLOCK_ITSELF if config.formulation == "released" else BLOCK_CONTEXT
    vectors = attentions[1].reshape(len(names), -1, attentions[1].shape[-1])[:, :N]
    of_tokens = make_maps("pooling", "block vectors", "weight in the vector of its block", names, vectors, tokens)
    lengths = np.diff(edges)
    equal = np.repeat(1 / lengths, lengths)
    return [
        *local,
        *make_maps("attention", "attention between blocks", KEY, names, attentions[2][:, :M, :M], blocks),
        *make_maps("gate", "gate of blocks", of_block, names, gates[0][:, :M], blocks),
        *fused,
        *(replace(map_, equal=equal) for map_ in of_tokens),
    ]


def read_mtsa(config: Any, attentions: list, gates: list, tokens: list[str]) -> list[Map]:
    """Attention (H, N, N, D) and, if any, gates (H, N, D) of the heads (MTSA Eq. 7-13)."""
    N = len(tokens)
    directions, windows = (divided(x, config.num_heads) for x in (config.directions, config.windows or [None]))
    names = with_windows([f"head {i} {direction}" for i, direction in enumerate(directions, 1)], windows)
    maps = make_maps("attention", "attention", KEY, names, attentions[0][:, :N, :N], tokens)
    found = []
    for map_, direction, window in zip(maps, directions, windows, strict=True):
        mask = order_mask(N, direction, include_self=config.attend_to_self, window=window)
        found.append(replace(map_, visible=mask.numpy()))
    return found + [map_ for gate in gates for map_ in make_maps("gate", "gate", ITSELF, names, gate[:, :N], tokens)]


def read_multihead(config: Any, attentions: list, gates: list, tokens: list[str]) -> list[Map]:
    """Attention (H, N, N): one weight for all features of a head."""
    N, names = len(tokens), [f"head {i + 1}" for i in range(config.num_heads)]
    maps = make_maps("attention", "attention", KEY, names, attentions[0][:, :N, :N, None], tokens)
    return [replace(map_, visible=np.ones((N, N), dtype=bool)) for map_ in maps]


def read_textcnn(config: Any, attentions: list, gates: list, tokens: list[str]) -> list[Map]:
    """The gates (N, hidden_size) of a hierarchical CNN."""
    return [Map("gate", "gate", "share of the convolution's result that passes", gates[0][: len(tokens)], tokens)]


READERS = {
    "disan": read_disan,
    "biblosan": read_biblosan,
    "mtsa": read_mtsa,
    "multihead": read_multihead,
    "textcnn": read_textcnn,
}
"""Functions that read the attention and gates of a layer, by model type; the others have none."""


def to_numpy(x: Any) -> np.ndarray:
    return x.detach().float().cpu().numpy()


def numbered(names: Sequence[str]) -> list[str]:
    """Names, numbered if they are not unique."""
    different = len(set(names)) == len(names)
    return list(names) if different else [f"{name} {i}" for i, name in enumerate(names, 1)]


def with_windows(names: Sequence[str], windows: Sequence[int | None] | None) -> list[str]:
    """Names with the window of each."""
    return [
        name if window is None else f"{name} within {window}"
        for name, window in zip(names, windows or [None] * len(names), strict=True)
    ]


def on_diagonal(blocks_MRRD: np.ndarray) -> np.ndarray:
    """(M, R, R, D) -> (M R, M R, D), 0 outside the blocks."""
    M, R, _, D = blocks_MRRD.shape
    whole = np.zeros((M, R, M, R, D), dtype=blocks_MRRD.dtype)
    whole[np.arange(M), :, np.arange(M)] = blocks_MRRD
    return whole.reshape(M * R, M * R, D)


def word_of(token: str) -> str:
    """The word as written, without the name of the unknown token that follows it (``[UNK]``, ``<unk>``)."""
    return token.partition(" ")[0]


def block_label(tokens: list[str]) -> str:
    """A block, labelled by its first and last token."""
    words = list(map(word_of, tokens))
    return " ".join(words) if len(words) < 3 else f"{words[0]} … {words[-1]}"
