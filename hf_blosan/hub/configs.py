"""The configuration of a saved model, and its validation."""

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypedDict, get_args, get_origin

from huggingface_hub.dataclasses import validate_typed_dict
from huggingface_hub.errors import HFValidationError, StrictDataclassError, StrictDataclassFieldValidationError
from transformers import AutoConfig, PreTrainedConfig

from ..errors import InputError, first_line, listed, unpaired_surrogate
from ..registry import locate, pretrained_names

logger = logging.getLogger(__name__)

NAMES_OF_TYPES = {int: "a whole number", float: "a number", bool: "true or false", str: "text", dict: "a dictionary"}
DEEPEST = 20
"""Maximum nesting in a configuration, which many functions of Python traverse recursively."""


class TrainingRows(TypedDict, total=False):
    """What a saved model records about its training rows; see ``training.preparation.training_rows``."""

    text_columns: list[str]
    label_column: str | None
    seed: int
    fold: int
    num_folds: int | None
    validation_fraction: float | int | None
    select_on_test: bool
    from_data_dir: bool
    own_splits: list[str]


def read_config(name: str, *, trust_remote_code: bool = False) -> PreTrainedConfig:
    """The configuration of a saved model, with ``name`` as in :func:`hf_blosan.hub.saved.load`. Its output options are
    reset to those that commands expect.

    Raises InputError if there is no model in the folder or on the Hub, its configuration is invalid, or its weights
    are outside the folder.
    """
    given: Any = {}
    name = os.fspath(name)
    place = locate(name)
    if not os.path.exists(place):  # without a network the answer takes half a minute
        meant = get_close_matches(name.lower(), pretrained_names(), n=1, cutoff=0.8)
        if meant and "/" not in name:
            raise InputError(f"no saved model at {name!r} (no such folder); did you mean {meant[0]}?")
        logger.info("no folder %s; trying it as a name on the Hub", name)
    try:
        given, _ = PreTrainedConfig.get_config_dict(place)
        check_fields(given)
        config = AutoConfig.from_pretrained(place, trust_remote_code=trust_remote_code)
    except InputError as error:
        raise InputError(f"config.json of the model at {name!r} is impossible: {error}") from error
    except (OSError, ValueError) as error:
        remedy = " or ".join(["give its folder or Hub name", *pretrained_names()])
        reason = first_line(error)
        if not os.path.exists(place):  # transformers only says why it is not on the Hub
            impossible = isinstance(error.__cause__, HFValidationError)
            reason = "no such folder" if impossible else f"no such folder; {reason}"
        elif not os.path.exists(os.path.join(place, "config.json")):
            reason = f"it is {'a folder without config.json' if os.path.isdir(place) else 'a file'}"
        raise InputError(f"no saved model at {name!r} ({reason}); {remedy}") from error
    except (StrictDataclassError, TypeError, AttributeError, LookupError, RecursionError) as error:
        problem = f"{first_line(error)}; save the model again"
        if isinstance(error, StrictDataclassError):
            problem = config_problem(error, given, type(AutoConfig.for_model(given["model_type"])))
        raise InputError(f"config.json of the model at {name!r} is impossible: {problem}") from error
    check_shards(Path(place))
    for part in (config, *(value for value in vars(config).values() if isinstance(value, PreTrainedConfig))):
        part.return_dict, part.output_attentions, part.output_hidden_states = True, False, False
    return config


def check_fields(given: Any) -> None:
    """Raise InputError for config.json values that transformers accepts but commands cannot use."""
    if not isinstance(given, dict):
        raise InputError(f"it is of type {type(given).__name__}; save the model again")
    for name, value in given.items():
        if problem := problem_of_leaves(value):
            raise InputError(f"{listed([name])} {problem}")
    for part in ("encoder", "decoder"):
        if isinstance(given.get(part), dict) and given[part].get("backbone"):
            raise InputError(f"{part} has backbone {given[part]['backbone']!r}; remove it")
    labels, task, rows = (given.get(name) for name in ("id2label", "finetuning_task", "training_rows"))
    if labels is not None:
        check_labels(labels)
    if not isinstance(task, str | None):
        raise InputError(f"finetuning_task is {task!r}; give the name of a task, or remove it")
    if not isinstance(rows, dict | None):
        raise InputError(f"training_rows is {rows!r}; remove it")
    for name in TrainingRows.__annotations__.keys() & (rows or {}).keys():  # later versions may add fields
        try:
            validate_typed_dict(TrainingRows, {name: rows[name]})
        except (StrictDataclassError, TypeError) as error:
            raise InputError(f"training_rows has {name} = {rows[name]!r}; remove it") from error


def problem_of_leaves(value: Any) -> str | None:
    """The problem with the numbers, texts or nesting of a value read from JSON, if any."""
    level = [value]
    for _ in range(DEEPEST):
        for leaf in level:
            if isinstance(leaf, int) and not -(2**63) <= leaf < 2**63:
                return f"has the number {str(leaf)[:30]}, which is beyond 64 bits; give a smaller one"
            if isinstance(leaf, str) and (half := unpaired_surrogate(leaf)):
                return f"has an unpaired surrogate, {half!r}; correct the text"
        inner = [x for x in level if isinstance(x, dict | list)]
        level = [y for x in inner for y in ([*x, *x.values()] if isinstance(x, dict) else x)]
    return "is nested too deeply; save the model again" if level else None


def check_labels(labels: Any) -> None:
    """Raise InputError unless the labels 0, 1, ... each have a unique name."""
    names = [labels.get(str(i)) for i in range(len(labels))] if isinstance(labels, dict) else []
    if not names or not all(isinstance(name, str) for name in names):
        ids = listed(labels, 8) if labels and isinstance(labels, dict) else repr(labels)
        raise InputError(f"id2label has the labels {ids}; number them 0, 1, ... without gaps and give each a name")
    if len(set(names)) < len(names):
        raise InputError(f"id2label has a name twice ({listed(names, 8)}); give each label its own")


def saved_labels(config: PreTrainedConfig) -> list[str]:
    """The labels of a saved model in the order of their ids."""
    return [config.id2label[i] for i in range(config.num_labels)]


def has_head(config: PreTrainedConfig) -> bool:
    """Whether a saved model is more than an encoder."""
    return config.is_encoder_decoder or any("For" in name for name in config.architectures or ())


def is_encoder(config: PreTrainedConfig) -> bool:
    """Whether a saved model is known to be an encoder without a head."""
    return bool(config.architectures) and not has_head(config)


def check_shards(folder: Path) -> None:
    """Raise InputError if the index of a sharded model names a file outside its folder."""
    from ..models.pretrained import check_inside  # here, because it imports torch

    for index in (*folder.glob("model*.safetensors.index*.json"), *folder.glob("pytorch_model*.bin.index*.json")):
        try:
            check_inside(folder, json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
            raise InputError(f"{index} is impossible ({first_line(error)}); save the model again") from error


def config_problem(error: StrictDataclassError, given: Mapping[str, Any], config_class: type) -> str:
    """The problem with a configuration of the given fields: the field, its value and the expected type."""
    if not isinstance(error, StrictDataclassFieldValidationError):
        return str(error).strip().splitlines()[-1].strip().removeprefix("ValueError: ")
    # The first line of the message quotes the field's name, the others Python's types and the value.
    name = str(error).split("'")[1]
    kind, value = {entry.name: entry.type for entry in fields(config_class)}.get(name), repr(given.get(name))
    if kind is None or "(value: " in str(error) and f"(value: {value})" not in str(error):  # of a backbone
        return f"{str(error).strip().splitlines()[-1].strip().removeprefix('TypeError: ')}; correct it"
    return f"{name} is {value}; give {_description(kind)}"


def _description(kind: Any) -> str:
    """Description of a type."""
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
