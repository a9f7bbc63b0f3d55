"""Linear maps with weights in int8. Only checkpoints with such layers carry this file."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from .attention_int8 import int8_linear


class Int8Linear(nn.Module):
    """A linear map for inference, with a weight of integers from -63 to 63 and a scale for each of its rows.

    Seven bits, for weights and for what they are multiplied with, because AVX2 adds products in 16 bits.
    """

    implementation = "auto"
    is_linear_map = True

    def __init__(self, map_: nn.Linear):
        super().__init__()
        self.load_map(map_)
        self.frozen = not map_.weight.requires_grad
        self.train(map_.training)

    def load_map(self, map_: nn.Linear) -> None:
        """Take the weight and the bias of a map."""
        weight = map_.weight.detach().float()
        scale = weight.abs().amax(1).clamp(min=1e-30) / 63
        self.register_buffer("weight", (weight / scale[:, None]).round().to(torch.int8))
        self.register_buffer("scale", scale.to(map_.weight.dtype))
        self.register_buffer("bias", None if map_.bias is None else map_.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            raise ValueError('int8 layers cannot be trained; load the model with layers_dtype="float32"')
        return int8_linear(x, self.weight, self.scale, self.bias, implementation=self.implementation)

    def to_float(self) -> nn.Linear:
        """The map with a weight in the dtype of the scale, frozen if it was."""
        map_ = nn.Linear(*self.weight.shape[::-1], self.bias is not None).to(self.scale).train(self.training)
        map_.weight.data.copy_(self.weight * self.scale[:, None])
        if self.bias is not None:
            map_.bias.data.copy_(self.bias)
        return map_.requires_grad_(not self.frozen)


def convert_layers(model: nn.Module, is_int8: Callable[[str], bool]) -> None:
    """Make linear maps int8, or not, by their names; a backbone, and maps of a recurrent state, stay as they are.

    Raises:
        ValueError: a map that would become int8 has adapters; the model stays as it is.
    """
    for parent, name, map_ in list(to_convert(model, is_int8)):
        setattr(parent, name, Int8Linear(map_) if type(map_) is nn.Linear else map_.to_float())


def to_convert(parent: nn.Module, is_int8: Callable[[str], bool], prefix: str = "") -> Iterator[tuple]:
    """The maps to convert, each with the module that it belongs to and its name there."""
    if not getattr(parent, "takes_int8", True):
        return
    for name, map_ in parent.named_children():
        wanted = is_int8(f"{prefix}{name}")
        if type(map_) is nn.Linear and wanted:
            if any(len(getattr(parent, kind)) for kind in getattr(parent, "adapter_layer_names", ())):
                raise ValueError(
                    f'layers_dtype="int8": {prefix.rstrip(".")} has adapters of peft; merge them first, with '
                    "merge_and_unload() of a PeftModel"
                )
            yield parent, name, map_
        elif isinstance(map_, Int8Linear) and not wanted:
            yield parent, name, map_
        elif name != "backbone":
            yield from to_convert(map_, is_int8, f"{prefix}{name}.")
