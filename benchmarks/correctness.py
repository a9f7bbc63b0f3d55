"""The check before timing: an operator whose results are wrong gets no times."""

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
"""Features per direction in the check of long sentences, so that the textbook form fits into memory."""

RULE = (
    "The output and every gradient are compared with the eager textbook form in float64. The error of each, a root "
    "mean square, may be at most twice that of the eager form in float32 (under autocast: also in the lower "
    "precision). Where the eager form is exact by chance, its error counts as a quarter of the machine epsilon, "
    "relative to the result or, for gradients that are exactly 0, to the largest gradient. The comparison uses 2 "
    "sentences of the shape's length up to 64 tokens; for longer shapes also 1 sentence of up to 384 tokens with "
    f"{LONG_SIZE} features per direction."
)


@functools.cache
def refusal(operator: Operator, length: int, setting: Setting) -> str | None:
    """Why an operator must not be timed on sentences of this length, or None."""
    samples = [(2, min(length, 64), SIZE)]
    if length > 64:
        samples.append((1, min(length, 384), LONG_SIZE))
    for batch, tokens, size in samples:
        for dtype in dict.fromkeys(("float32", setting.dtype)):
            where = f"at {batch}x{tokens} with {size} features in {dtype}"
            try:
                case = Case(operator, batch, tokens, replace(setting, dtype=dtype), size=size, built_for=length)
                excess, name = worst_error(case)
            except Exception as error:  # the other operators can still be measured
                return f"{type(error).__name__} {where}: {str(error).partition(chr(10))[0]}"
            if not excess <= 1:  # NaN too
                return f"{name} {where} has {excess:.3g} times the allowed error"
    return None


def worst_error(case: Case) -> tuple[float, str]:
    """The largest error in units of the allowed error, and the name of the result that has it."""
    eager = copy.copy(case)
    eager.module = set_implementation(copy.deepcopy(case.module), "eager")
    truth = exact(eager)
    weights = [name for name, _ in case.module.named_parameters()]
    names = ["output", *(f"gradient of {name}" for name in ("the input", *weights)), "output without gradients"]
    largest = max(size(gradient) for gradient in truth[1:-1])
    rounding = torch.finfo(getattr(torch, case.setting.dtype)).eps / 4
    excess = {}
    for name, got, rounded, expected in zip(names, results(case), results(eager), truth, strict=True):
        # The gradient of a bias before a softmax is 0, up to rounding of sums that cancel.
        scale = size(expected) if size(expected) >= 1e-9 * largest else largest
        allowed = 2 * max(size(rounded.double() - expected), rounding * scale)
        excess[name] = size(got.double() - expected) / max(allowed, torch.finfo(torch.float32).tiny)
    worst = max(excess, key=lambda name: (math.isnan(excess[name]), excess[name]))
    return excess[worst], worst


def results(case: Case) -> list[Tensor]:
    """Output and gradients in training mode, and the output in evaluation mode."""
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
