"""Trains only those rows of a word table that the training texts use.

Every other row has a gradient of 0 in every update, which no optimiser here turns into a change: word vectors have
neither weight decay nor an L2 term. A pretrained vocabulary has tens of thousands of words, a task a few thousand, so
leaving the others out of gradients, optimiser and average saves a good part of an update's time and memory.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.nn import functional as F

from ..models.embeddings import WordEmbeddings

WORTHWHILE = 0.8
"""Part of the table above which all of it is trained: looking up rows in two places takes time, too."""


class UsedWords(WordEmbeddings):
    """A word table in training. It saves and loads all rows, like the table that it was made from.

    Attributes:
        weight: the rows of the words that the training texts use, (U, E).
        ids: their ids, (U,), ascending.
        table: all rows, (V, E); those in ``weight`` are out of date here.
        places: the place of each id in ``weight``, (V,), or -1.
    """

    def look_up(self, input_ids: Tensor) -> Tensor:
        places_BN = self.places[input_ids]
        if self.training:
            return F.embedding(places_BN, self.weight, self.padding_idx)
        used_BNE = F.embedding(places_BN.clamp(min=0), self.weight)
        return torch.where((places_BN >= 0)[..., None], used_BNE, F.embedding(input_ids, self.table))

    @property
    def tables(self) -> list[tuple[Tensor, Tensor | None]]:
        return [(self.all_rows(), None)]

    def all_rows(self) -> Tensor:
        """The table as trained so far, (V, E)."""
        return self.table.index_copy(0, self.ids, self.weight.detach())

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}weight"] = self.all_rows()

    def _load_from_state_dict(self, state_dict, prefix, *args):
        if (rows := state_dict.get(f"{prefix}weight")) is not None and rows.shape == self.table.shape:
            self.table.copy_(rows)
            state_dict[f"{prefix}weight"] = rows[self.ids.to(rows.device)]
        super()._load_from_state_dict(state_dict, prefix, *args)


def train_used_words(table: nn.Module, rows: Dataset, pad_token_id: int) -> None:
    """Make a word table, in place, train only the words of encoded training rows, if that saves much.

    The table is the source of a model's word vectors; a backbone stays as it is. ``pad_token_id`` pads batches.
    """
    if type(table) is not WordEmbeddings or table.fixed_weight is not None or not table.weight.requires_grad:
        return
    special = {pad_token_id} if table.padding_idx is None else {pad_token_id, table.padding_idx}
    ids = torch.tensor(sorted(ids_of(rows).keys() | special))
    if len(ids) > WORTHWHILE * len(table.weight):
        return
    whole = table.weight.detach()
    places = torch.full((len(whole),), -1)
    places[ids] = torch.arange(len(ids))
    for name, tensor in (("table", whole), ("ids", ids), ("places", places)):
        table.register_buffer(name, tensor, persistent=False)
    table.weight = nn.Parameter(whole[ids])
    if table.padding_idx is not None:
        table.padding_idx = int(places[table.padding_idx])
    table.__class__ = UsedWords


def train_all_words(table: nn.Module) -> None:
    """Undo :func:`train_used_words`, and keep what was trained."""
    if not isinstance(table, UsedWords):
        return
    if table.padding_idx is not None:
        table.padding_idx = int(table.ids[table.padding_idx])
    table.weight = nn.Parameter(table.all_rows())
    for name in ("table", "ids", "places"):
        delattr(table, name)
    table.__class__ = WordEmbeddings


def ids_of(rows: Dataset) -> Counter[int]:
    """How often the token ids of encoded rows occur."""
    columns, found = [name for name in rows.column_names if name.endswith("input_ids")], Counter()
    for values in rows.select_columns(columns).with_format("arrow")[:].columns:
        values = values.combine_chunks()
        while pa.types.is_list(values.type):
            values = values.flatten()
        found.update(dict(zip(*(part.to_pylist() for part in pc.value_counts(values).flatten()), strict=True)))
    return found
