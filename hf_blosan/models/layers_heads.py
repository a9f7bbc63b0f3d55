"""Linear maps of attention heads. Shape suffixes: see equations.py."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.core_model_loading import ConversionOps, WeightConverter, WeightTransform

from .attention import can_use_kernel, is_plain, kernels


class HeadLinear(nn.ModuleList):
    """W x + b for every head, (B, N, in) or (B, H, N, in) -> (B, H, N, out); each head is an ``nn.Linear``."""

    is_linear_map = True
    implementation = "auto"

    def __init__(self, num_heads, in_features, out_features, *, bias=True):
        super().__init__(nn.Linear(in_features, out_features, bias=bias) for _ in range(num_heads))

    @property
    def weights(self) -> list[Tensor]:
        """Of each head, (out, in)."""
        return [head.weight for head in self]

    @property
    def biases(self) -> list[Tensor]:
        """Of each head, (out); an empty list if there are none."""
        return [head.bias for head in self if head.bias is not None]

    def forward(self, x: Tensor) -> Tensor:
        if can_use_kernel(self.implementation, x, maps=self):
            return kernels.heads_linear(x, self.weights, self.biases)
        if not all(map(is_plain, self)):
            inputs = x.unbind(1) if x.dim() == 4 else [x] * len(self)
            return torch.stack([head(x_BNE) for head, x_BNE in zip(self, inputs, strict=True)], dim=1)
        if x.dim() == 3 and torch.compiler.is_compiling():
            # In memory as ELU's gradient will be: torch mistakes its strides in a graph for training otherwise.
            y = F.linear(x, torch.cat(self.weights), torch.cat(self.biases) if self.biases else None)
            return y.unflatten(-1, (len(self), -1)).transpose(1, 2)
        y = (x[:, None] if x.dim() == 3 else x) @ torch.stack(self.weights).mT
        return y + torch.stack(self.biases)[:, None].to(y.dtype) if self.biases else y

    def elu(self, x: Tensor) -> Tensor:
        """elu(W x + b), where ``can_use_kernel`` says that it may run as one kernel."""
        return kernels.heads_linear(x, self.weights, self.biases, elu=True)

    def of_each_head(self, x: Tensor) -> Tensor:
        """The input of all heads, (B, N, in), as that of each, (B, H, N, in)."""
        return x[:, None].expand(-1, len(self), -1, -1) if x.dim() == 3 else x

    def earlier_forms(self, name: str) -> list[WeightTransform]:
        """How ``from_pretrained`` reads the one tensor for all heads that earlier versions stored."""
        return [
            HeadConverter(f"{name}.{part}", [f"{name}.{h}.{part}" for h in range(len(self))], [SplitHeads()])
            for part in ("weight", "bias")
        ]

    @staticmethod
    def split(stacked: Tensor) -> list[Tensor]:
        """Weights (H, in, out) or biases (H, out) of all heads in the form of earlier checkpoints -> of each head."""
        return [part.T.contiguous() if part.dim() == 2 else part for part in stacked]

    def _load_from_state_dict(self, state_dict, prefix, *args):
        for name in ("weight", "bias"):
            if prefix + name in state_dict:
                parts = enumerate(self.split(state_dict.pop(prefix + name)))
                state_dict.update({f"{prefix}{h}.{name}": part for h, part in parts})
        super()._load_from_state_dict(state_dict, prefix, *args)


class SplitHeads(ConversionOps):
    """One tensor for all heads -> the tensors of each."""

    def convert(self, input_dict: dict, source_patterns: list[str], target_patterns: list[str], **kwargs) -> dict:
        (tensors,) = input_dict.values()
        stacked: Tensor = tensors[0] if isinstance(tensors, list) else tensors
        return dict(zip(target_patterns, HeadLinear.split(stacked), strict=True))


class HeadConverter(WeightConverter):
    """Divides a tensor among heads; a quantiser, which expects one tensor from a converter, gets one after another."""

    def convert(self, layer_name: str, model=None, config=None, hf_quantizer=None, loading_info=None) -> dict:
        quantization, self.quantization_operation = self.quantization_operation, None
        tensors = super().convert(layer_name, model, config, hf_quantizer, loading_info)
        if quantization is None:
            return tensors
        options = {"model": model, "config": config, "missing_keys": loading_info.missing_keys}
        converted = {}
        for name, tensor in tensors.items():
            converted |= quantization.convert({name: tensor}, full_layer_name=name, **options)
        return converted
