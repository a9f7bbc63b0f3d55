"""The gate before the clock: an operator whose results are wrong has no speed."""

from __future__ import annotations

import copy
import functools
import math
from dataclasses import replace

import torch
from torch import Tensor

from .measure import Case, Setting
from .operators import SIZE, Operator, set_implementation

LONG_SIZE = 60
"""Features of a direction in the check of long sentences, whose textbook form has to fit into memory."""

RULE = (
    "Output and every gradient are compared with the eager textbook form in float64. The error of each, the root mean "
    "square of the distance, may be twice that of the eager form in float32 (under autocast also: in the same "
    "precision); a quarter of a rounding counts where that is exact by chance, of the largest gradient where the "
    "exact one is 0. "
    "Compared are 2 sentences of a shape's length, at most 64 tokens, and for longer ones 1 sentence of at most 384 "
    f"tokens and {LONG_SIZE} features a direction."
)


@functools.cache
def refusal(operator: Operator, length: int, setting: Setting) -> str | None:
    """Why an operator's speed must not be reported for sentences of this length, or None."""
    samples = [(2, min(length, 64), SIZE)]
    if length > 64:
        samples.append((1, min(length, 384), LONG_SIZE))
    for batch, tokens, size in samples:
        for dtype in dict.fromkeys(("float32", setting.dtype)):
            where = f"at {batch}x{tokens} with {size} features in {dtype}"
            try:
                case = Case(operator, batch, tokens, replace(setting, dtype=dtype), size=size, built_for=length)
                excess, name = worst_error(case)
            except Exception as error:  # whatever one operator raises, the others can be measured
                return f"{type(error).__name__} {where}: {str(error).partition(chr(10))[0]}"
            if not excess <= 1:  # NaN too
                return f"{name} {where} has {excess:.3g} times the error allowed"
    return None


def worst_error(case: Case) -> tuple[float, str]:
    """The largest error in units of the error allowed, and of which result it is."""
    eager = copy.copy(case)
    eager.module = set_implementation(copy.deepcopy(case.module), "eager")
    truth = exact(eager)
    weights = [name for name, _ in case.module.named_parameters()]
    names = ["output", *(f"gradient of {name}" for name in ("the input", *weights)), "output without gradients"]
    largest = max(size(gradient) for gradient in truth[1:-1])
    rounding = torch.finfo(getattr(torch, case.setting.dtype)).eps / 4
    excess = {}
    for name, got, rounded, expected in zip(names, results(case), results(eager), truth, strict=True):
        # A bias in front of a softmax has a gradient of 0, and what is left of sums that cancel.
        scale = size(expected) if size(expected) >= 1e-9 * largest else largest
        allowed = 2 * max(size(rounded.double() - expected), rounding * scale)
        excess[name] = size(got.double() - expected) / max(allowed, torch.finfo(torch.float32).tiny)
    worst = max(excess, key=lambda name: (math.isnan(excess[name]), excess[name]))
    return excess[worst], worst


def results(case: Case) -> list[Tensor]:
    """Output and gradients as in training, and the output of the forward pass alone."""
    return [*case.gradients(), case.forward()]


def exact(case: Case) -> list[Tensor]:
    """The results of a case in float64."""
    case = copy.copy(case)
    case.module = copy.deepcopy(case.module).double()
    case.hidden = case.hidden.detach().double().requires_grad_()
    case.setting = replace(case.setting, dtype="float32")  # no autocast
    return results(case)


def size(x: Tensor) -> float:
    """Root mean square."""
    return float(x.double().pow(2).mean().sqrt())
