"""Configurations: read from a saved model, changed by a command line, and what is wrong with them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import yaml
from huggingface_hub.errors import StrictDataclassError, StrictDataclassFieldValidationError
from transformers import AutoConfig, PreTrainedConfig

from .errors import InputError, first_line

NAMES_OF_TYPES = {int: "a whole number", float: "a number", bool: "true or false", str: "text", dict: "a dictionary"}


def read_config(name: str, *, trust_remote_code: bool = False) -> PreTrainedConfig:
    """The configuration of a saved model.

    Raises:
        InputError: there is no model in the folder or of the name on the Hub, or its configuration is impossible.
    """
    try:
        return AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        raise InputError(f"no saved model at {name!r} ({first_line(error)}); give its folder or Hub name") from error
    except (StrictDataclassError, TypeError, AttributeError, LookupError) as error:
        problem = f"{first_line(error)}; save the model again"
        if isinstance(error, StrictDataclassError):
            given, _ = PreTrainedConfig.get_config_dict(name)
            problem = config_problem(error, given, type(AutoConfig.for_model(given["model_type"])))
        raise InputError(f"config.json of the model at {name!r} is impossible: {problem}") from error


def config_problem(error: StrictDataclassError, given: Mapping[str, Any], config_class: type) -> str:
    """What is wrong with a configuration of the given fields: the field, its value and what it takes."""
    if not isinstance(error, StrictDataclassFieldValidationError):
        return str(error).strip().splitlines()[-1].strip().removeprefix("ValueError: ")
    # The first line of its message quotes the field's name; the others speak of Python's types.
    name = str(error).split("'")[1]
    kind = next(entry.type for entry in fields(config_class) if entry.name == name)
    return f"{name} is {given.get(name)!r}; give {_description(kind)}"


def _description(kind: Any) -> str:
    """What a field of this type takes."""
    parts = get_args(kind)
    if get_origin(kind) is Literal:
        return f"one of {', '.join(parts)}"
    if get_origin(kind) is dict:
        return NAMES_OF_TYPES[dict]
    if get_origin(kind) is list:
        return f"a list (each item: {_description(parts[0])})"
    if get_origin(kind) is None and not parts:
        return "null" if kind is NoneType else NAMES_OF_TYPES.get(kind, getattr(kind, "__name__", str(kind)))
    kinds = [part for part in parts if not (part is int and float in parts)]
    return " or ".join(dict.fromkeys(map(_description, kinds)))


def parse_config_overrides(text: str | None) -> dict:
    """``"dropout=0.3,directions=[diagonal,full]"`` -> ``{"dropout": 0.3, "directions": ["diagonal", "full"]}``.

    Values are read as YAML: numbers, true/false, null, strings, lists.

    Raises:
        InputError: the text has another form.
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
    """The text that :func:`parse_config_overrides` turns into these fields."""
    return ",".join(f"{name}={_text(value)}" for name, value in overrides.items())


def _text(value) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_text, value))}]"
    return value if isinstance(value, str) else json.dumps(value)


def _number(value):
    """YAML reads 1e-3, without a decimal point, as text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def check_field_names(names: Iterable[str], config_class: type, *, decided: Iterable[str] = ()) -> None:
    """Raise InputError for names that are not the encoder's own fields, or that users cannot set (`decided`)."""
    inherited = {entry.name for entry in fields(PreTrainedConfig)}
    own = {entry.name for entry in fields(config_class)}
    choices = sorted(own - inherited - set(decided))
    for name in names:
        if name not in choices:
            kind, known = config_class.model_type, ", ".join(choices)
            raise InputError(f"--config_overrides: {kind} has no field {name!r}; choose one of {known}")
