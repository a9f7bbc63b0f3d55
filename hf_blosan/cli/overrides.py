"""``--config_overrides``: fields of a configuration on a command line."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields

import yaml
from transformers import PreTrainedConfig

from ..errors import InputError
from ..files import plain


def parse_config_overrides(text: str | None) -> dict:
    """``"dropout=0.3,directions=[diagonal,full]"`` -> ``{"dropout": 0.3, "directions": ["diagonal", "full"]}``.

    Values are read as YAML: numbers, true/false, null, strings, lists. Raises InputError if the text cannot be parsed.
    """
    if not text:
        return {}
    try:
        overrides = yaml.safe_load("{" + text.replace("=", ": ") + "}")
    except (yaml.YAMLError, ValueError, RecursionError):  # an impossible date is a ValueError
        overrides = {text: None}
    if not all(isinstance(name, str) for name in overrides) or any(
        value is None and f"{name}=" not in text.replace(" ", "") for name, value in overrides.items()
    ):
        raise InputError(f'config_overrides {text!r} cannot be read; write them as "dropout=0.3,hidden_size=480"')
    return {name: _number(value) for name, value in overrides.items()}


def format_config_overrides(overrides: Mapping) -> str:
    """The inverse of :func:`parse_config_overrides`."""
    return ",".join(f"{name}={_text(value)}" for name, value in overrides.items())


def _text(value) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_text, value))}]"
    return value if isinstance(value, str) else json.dumps(value, default=plain)


def _number(value):
    """YAML reads 1e-3, without a decimal point, as text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def check_field_names(names: Iterable[str], config_class: type, *, decided: Iterable[str] = ()) -> None:
    """Raise InputError for names that are not fields of the encoder, or that the command sets itself (`decided`)."""
    inherited = {entry.name for entry in fields(PreTrainedConfig)}
    own = {entry.name for entry in fields(config_class)}
    choices = sorted(own - inherited - set(decided))
    for name in names:
        if name not in choices:
            kind, known = config_class.model_type, ", ".join(choices)
            raise InputError(f"--config_overrides: {kind} has no field {name!r}; choose one of {known}")
