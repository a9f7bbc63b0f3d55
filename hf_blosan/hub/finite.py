"""Checks that the weights and outputs of a saved model are finite."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ..errors import InputError

OUTPUTS = ("logits", "pooler_output", "last_hidden_state")
"""Outputs to check; the first that a model has is checked."""


class NotFinite(InputError):
    """A model's output is NaN or infinite.

    Attributes:
        row: index in the batch of the first such row.
        rows: rows of the output; beam search has several per row of the batch.
        value: NaN or infinity.
    """

    def __init__(self, sentence: str, row: int, rows: int, value: float):
        super().__init__(sentence)
        self.row, self.rows, self.value = row, rows, value

    def of(self, size: int) -> int:
        """The index of the row in a batch of that size."""
        return self.row * size // self.rows

    def at(self, place: str) -> NotFinite:
        """The same error with the row's location."""
        return NotFinite(f"{place}: {self}", self.row, self.rows, self.value)


def refuse_not_finite(model: nn.Module) -> RemovableHandle:
    """Make a model raise :class:`NotFinite` if its output is not finite, until ``remove()`` or a ``with`` ends."""
    return model.register_forward_hook(_check)


def _check(model: nn.Module, inputs: Any, output: Any) -> None:
    found = next((output[name] for name in OUTPUTS if name in output), None)
    if found is None or bool(found.isfinite().all()):
        return
    is_wrong = ~found.isfinite().flatten(1)
    row = int(is_wrong.any(1).nonzero()[0])
    value = found.flatten(1)[row][is_wrong[row]][0].item()
    raise NotFinite(_sentence("the output", value, model), row, len(found), value)


def check_weights(model: nn.Module) -> None:
    """Raise InputError if a weight of a saved model is not finite."""
    for name, weight in model.state_dict().items():
        if weight.is_floating_point() and not bool(weight.isfinite().all()):
            raise InputError(_sentence(f"the weight {name}", weight[~weight.isfinite()][0].item(), model))


def _sentence(what: str, value: float, model: nn.Module) -> str:
    half = getattr(model, "dtype", None) == torch.float16
    place = f" at {model.name_or_path!r}" if model.name_or_path else ""
    return (
        f"{what} of the model{place} is {value}; give a model whose weights are not damaged and "
        f"whose training did not diverge{', saved in float32, because float16 overflows' * half}"
    )
