"""Configuration of the recurrent baselines."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .configuration_base import SentenceEncoderConfig
from .masks import check_choice


@strict
class BiRNNConfig(SentenceEncoderConfig):
    """Bi-LSTM, Bi-GRU and Bi-SRU, the recurrent baselines of DiSAN and Bi-BloSAN (arXiv 1709.04696, 1804.00857).

    Fields in addition to the common ones. ``directions`` are the directions in which a row is read, ``"forward"`` or
    ``"backward"``; ``activation`` is used only in source2token and the classifier; the papers print no equations of
    these cells, so both formulations compute what the authors' code does.

    Args:
        cell: ``"lstm"``; ``"gru"``, in TensorFlow's form rather than torch's; ``"sru"``, or ``"sru_normal"`` with
            a scale and a shift after its matrix product. An SRU adds its input to its output, so a direction is as
            wide as a word vector:
            ``hidden_size = len(directions) * embedding_size``.
    """

    model_type = "birnn"
    stackable = True

    cell: Literal["lstm", "gru", "sru", "sru_normal"] = "lstm"

    def for_passages(self):
        config = super().for_passages()
        if config.cell.startswith("sru"):  # which has no hidden_size of its own
            config.cell = "lstm"
        return config

    def validate_directions(self):
        for direction in self.directions:
            check_choice("an entry of directions", direction, ("forward", "backward"))
        super().validate_directions()

    def validate_cell(self):
        if self.cell not in ("sru", "sru_normal"):
            return
        if self.num_hidden_layers > 1:
            raise ValueError(
                f'num_hidden_layers={self.num_hidden_layers} with cell="{self.cell}": each direction of an SRU is '
                'as wide as its input, so it cannot be stacked; set it to 1 or choose cell="lstm"'
            )
        wanted = len(self.directions) * self.input_size
        if self.hidden_size != wanted:
            raise ValueError(
                f'hidden_size={self.hidden_size} with cell="{self.cell}" and embedding_size={self.input_size}: '
                f"a direction of an SRU is as wide as its input; set hidden_size={wanted}"
            )
