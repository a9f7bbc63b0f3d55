"""Checks of the options that training and evaluation share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from ..cli.options import without_none
from ..errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .arguments import EvaluateArguments, RunArguments

MAY_BE_ZERO = (
    *("early_stopping_patience", "num_warmup_steps", "embedding_warmup_steps", "fold", "num_folds", "seed"),
    *("weight_decay", "l2", "max_grad_norm", "label_smoothing", "ema_decay"),
)
"""Numbers that may be 0; all others must be positive."""

BELOW = {"label_smoothing": 1, "ema_decay": 1, "validation_fraction": 1, "seed": 2**32}
"""Limits that numbers must stay below."""


def refuse(*cases: tuple[Any, str]) -> None:
    """Raise the sentence of the first case that is true as an InputError."""
    for wrong, sentence in cases:
        if wrong:
            raise InputError(sentence)


def cases_of_rows(options: RunArguments | EvaluateArguments) -> Iterator[tuple[Any, str]]:
    """Cases of :func:`refuse` that both commands have."""
    yield (
        options.text_pair_column_name and not options.text_column_name,
        "--text_pair_column_name needs --text_column_name, the column of the first text; give both.",
    )
    yield (
        options.dataset_config_name and not options.dataset_name,
        "--dataset_config_name needs --dataset_name; give both, or leave it out.",
    )


def check_values(options: RunArguments | EvaluateArguments) -> None:
    """Raise InputError for a value that is none of the option's choices, or out of its range."""
    kinds = get_type_hints(type(options))
    for name, value in vars(options).items():
        choices = get_args(without_none(kinds[name]))
        if choices and value is not None and value not in choices:
            raise InputError(f"--{name} is {value!r}; choose from {', '.join(choices)}.")
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            continue
        zero_allowed = name in MAY_BE_ZERO
        if not (value > 0 or zero_allowed and value == 0):
            raise InputError(f"--{name} is {value}; it must be {'0 or more' if zero_allowed else 'more than 0'}.")
        if not math.isfinite(value):
            raise InputError(f"--{name} is {value}; it must be finite.")
        if name in BELOW and value >= BELOW[name]:
            raise InputError(f"--{name} is {value}; it must be below {BELOW[name]}.")
