"""Linear maps with int8 weights on the CPU, for features that are rounded to int8 token by token.

They are C++ (``csrc/int8.cpp``) for AVX2, AVX-512 VNNI and AMX, without gradients. Weights are packed as the
instructions read them, once each.
"""

from __future__ import annotations

import weakref
from functools import cache, partial

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from .library import LIBRARY, OPERATORS, instruction_set
from .pointwise import available

LIBRARY.define("uses_amx() -> bool")
LIBRARY.define("int8_linear(Tensor x, Tensor packed, Tensor shifts, Tensor scale, Tensor? bias) -> Tensor")

COLUMNS, DEPTH = 16, 4
"""As in ``csrc/int8.h``."""


def int8_linear(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """x W' + b with the rows of W in units of ``scale``.

    Args:
        x: (..., in), float32.
        weight: (out, in), int8 numbers from -63 to 63.
        scale: (out), what 1 stands for in each row of the weight.
        bias: (out).

    Returns:
        (..., out); ``None`` where the operator does not support the tensors, or the gradient of x is wanted.

    Raises:
        RuntimeError: shapes or dtypes do not match.
    """
    if torch.is_grad_enabled() and x.requires_grad or forward_ad._current_level >= 0:
        return None
    if x.shape[-1:] != weight.shape[1:]:  # packed weights do not tell
        raise RuntimeError(f"x has shape {tuple(x.shape)}; give (..., {weight.shape[1]}), as wide as the weight")
    operands = int8_operands(x, weight, scale) if available(x, scale) else None
    return OPERATORS.int8_linear.default(x, *operands, bias) if operands else None


def int8_operands(x: Tensor, weight: Tensor, scale: Tensor) -> list[Tensor]:
    """A map as C++ takes it: packed weight, shifts and scale; [] without loops for this processor or dtype of x."""
    return [*packed(weight), scale] if x.dtype == torch.float32 and _has_loops() else []


@cache
def _has_loops() -> bool:
    return instruction_set() in ("avx2", "avx512")


def packed(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A weight as the operator reads it, (out / 16, in / 4, 16, 4), and what features shifted by 64 add, (out).

    They are kept until the weight's version changes, which writing to ``weight.data`` does not do.
    """
    version = None if weight.is_inference() else weight._version  # of what is made in inference mode nobody knows
    owner, made, *known = _PACKED.get(id(weight), (None, None))
    if version is None or made != version or owner() is not weight:
        rows, size = weight.shape
        groups = 16 if OPERATORS.uses_amx() else 2  # of features, as many as an instruction takes
        padded = F.pad(weight, (0, -size % (groups * DEPTH), 0, -rows % COLUMNS))
        panels = padded.unflatten(1, (-1, DEPTH)).unflatten(0, (-1, COLUMNS)).transpose(1, 2).contiguous()
        known = panels, weight.sum(1, dtype=torch.int32) * 64
        owner = weakref.ref(weight, partial(_forget, id(weight)))
        _PACKED[id(weight)] = owner, version, *known
    return tuple(known)


def _forget(key: int, owner: weakref.ref) -> None:
    """Drop what is packed for a tensor that is gone, unless another one has its id by now."""
    if _PACKED.get(key, (None,))[0] is owner:
        del _PACKED[key]


# By id: WeakTensorKeyDictionary takes ten times as long to find a tensor.
_PACKED: dict[int, tuple] = {}
