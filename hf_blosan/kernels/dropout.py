"""Dropout whose mask costs less than the layer it belongs to."""

import torch
from torch import Tensor
from torch.nn import functional as F


def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """``torch.nn.functional.dropout(x, p, training)``, faster on the CPU.

    torch draws a double for each element there, this 16 bits, from the same generator: the probability of keeping an
    element is a multiple of 2^-16, and what is kept is divided by just that.
    """
    kept = round((1 - p) * 2**16)
    if not training or x.device.type != "cpu" or kept in (0, 2**16) or torch.compiler.is_compiling():
        return F.dropout(x, p, training)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    mask = words.view(torch.int16)[: x.numel()].view(x.shape) < kept - 2**15
    return x * mask.to(x.dtype).mul_(2**16 / kept)
