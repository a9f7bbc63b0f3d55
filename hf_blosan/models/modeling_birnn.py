"""Bi-LSTM, Bi-GRU and Bi-SRU: the recurrent baselines of DiSAN and Bi-BloSAN (arXiv 1709.04696, 1804.00857)."""

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .alignment import reorder
from .configuration_birnn import BiRNNConfig
from .embeddings import real_tokens_first
from .encoder import SentenceEncoderModel, SentenceEncoderPreTrainedModel, StackableLayer
from .heads import SequenceClassificationMixin
from .layers_recurrent import GRU, LSTM, SRU, FrozenNorm, GateMap


def make_cell(config: BiRNNConfig, in_features: int) -> nn.Module:
    """The cell of one direction."""
    size, options = config.hidden_size // len(config.directions), {"dropout": config.fusion_dropout}
    if config.cell in ("sru", "sru_normal"):
        return SRU(size, normalize=config.cell == "sru_normal", **options)
    return {"lstm": LSTM, "gru": GRU}[config.cell](in_features, size, **options)


def reading_order(mask_BN: Tensor, direction: str) -> Tensor:
    """Positions (B, N) in reading order, from the last real token to the first if backward, with padding at the end.

    No real token is read after padding, wherever padding is.
    """
    if direction == "forward":
        return real_tokens_first(mask_BN)
    return mask_BN.shape[1] - 1 - real_tokens_first(mask_BN.flip(1))


class BiRNNLayer(StackableLayer):
    """[cell from left to right; cell from right to left]; outputs at padding are 0."""

    def __init__(self, config: BiRNNConfig):
        super().__init__(config)
        self.reads = tuple(config.directions)
        self.directions = nn.ModuleList(make_cell(config, self.in_features) for _ in config.directions)

    def fuse(self, hidden_BNE, mask_BN, output_attentions=False):
        outputs = []
        for cell, direction in zip(self.directions, self.reads, strict=True):
            order_BN = reading_order(mask_BN, direction)
            outputs.append(reorder(cell(reorder(hidden_BNE, order_BN)), order_BN.argsort(dim=1)))
        return torch.cat(outputs, dim=-1) * mask_BN[..., None], None


class BiRNNPreTrainedModel(SentenceEncoderPreTrainedModel):
    config: BiRNNConfig
    _no_split_modules = ["BiRNNLayer"]

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, GateMap):
            parts = module.from_input.weight, module.from_state.weight
            bound = (6 / (len(parts[0]) + sum(part.shape[1] for part in parts))) ** 0.5
            for part in parts:
                init.uniform_(part, -bound, bound)
            init.constant_(module.bias, module.bias_start)
        elif isinstance(module, SRU):
            init.zeros_(module.forget_bias)
            init.zeros_(module.reset_bias)
        elif isinstance(module, FrozenNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)
            init.zeros_(module.mean)
            init.ones_(module.variance)


class BiRNNModel(BiRNNPreTrainedModel, SentenceEncoderModel):
    """A recurrent encoder; ``attentions`` and ``gates`` are empty.

    After ``set_attn_implementation("eager")`` LSTM and SRU compute their equations token by token; GRU always does.
    In a trace (``torch.jit.trace``) these loops have the length of the example, GRU's always.
    """

    layer_class = BiRNNLayer


class BiRNNForSequenceClassification(SequenceClassificationMixin, BiRNNPreTrainedModel):
    encoder_class = BiRNNModel
