"""Linear maps of attention heads. Shape suffixes: see equations.py."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import is_plain


class HeadLinear(nn.ModuleList):
    """W x + b for every head, (B, N, in) or (B, H, N, in) -> (B, H, N, out); each head is an ``nn.Linear``."""

    is_linear_map = True

    def __init__(self, num_heads, in_features, out_features, *, bias=True):
        super().__init__(nn.Linear(in_features, out_features, bias=bias) for _ in range(num_heads))

    @property
    def weights(self) -> list[Tensor]:
        """The weight of each head, (out, in)."""
        return [head.weight for head in self]

    @property
    def biases(self) -> list[Tensor]:
        """The bias of each head, (out); an empty list if there are none."""
        return [head.bias for head in self if head.bias is not None]

    def forward(self, x: Tensor) -> Tensor:
        if not all(type(head) is nn.Linear and is_plain(head) for head in self):
            inputs = x.unbind(1) if x.dim() == 4 else [x] * len(self)
            return torch.stack([head(x_BNE) for head, x_BNE in zip(self, inputs, strict=True)], dim=1)
        if x.dim() == 3 and torch.compiler.is_compiling():
            # In memory as ELU's gradient will be: torch mistakes its strides in a graph for training otherwise.
            y = F.linear(x, torch.cat(self.weights), torch.cat(self.biases) if self.biases else None)
            return y.unflatten(-1, (len(self), -1)).transpose(1, 2)
        y = (x[:, None] if x.dim() == 3 else x) @ torch.stack(self.weights).mT
        return y + torch.stack(self.biases)[:, None].to(y.dtype) if self.biases else y
