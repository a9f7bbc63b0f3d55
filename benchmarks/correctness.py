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

ROUNDINGS = 4
"""Allowed beside twice the eager form's error: this many roundings of a result's largest number, times the square root
of the number of tokens, because rounding errors of a sum grow with the root of its terms in whatever order it is made.
"""

RULE = (
    "Output and every gradient are compared with the eager textbook form in float64. The largest error of each may be "
    "twice that of the eager form in float32 (under autocast also: in the same precision), plus "
    f"{ROUNDINGS} sqrt(tokens) roundings of its largest number, or of the largest gradient where the exact one is 0. "
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
    largest = max(float(gradient.abs().max()) for gradient in truth[1:-1])
    rounding = ROUNDINGS * math.sqrt(case.mask.numel()) * torch.finfo(getattr(torch, case.setting.dtype)).eps
    excess = {}
    for name, got, rounded, expected in zip(names, results(case), results(eager), truth, strict=True):
        size = float(expected.abs().max())
        if size < 1e-9 * largest:  # a bias in front of a softmax: 0, and what is left of sums that cancel
            size = largest
        allowed = 2 * distance(rounded, expected) + rounding * size
        excess[name] = distance(got, expected) / max(allowed, torch.finfo(torch.float32).tiny)
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


def distance(got: Tensor, truth: Tensor) -> float:
    return float((got.double() - truth).abs().max())
