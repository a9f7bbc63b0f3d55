"""Saved models that are trained further or evaluated: whether the head fits the task, and loading."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig, PreTrainedModel

from ..data.columns import TEXTS_A_ROW, positions
from ..errors import InputError, first_line, listed, loading
from ..hub.configs import config_problem, is_encoder, saved_labels
from ..hub.saved import check_complete, quiet_transformers
from ..registry import locate
from ..tasks import Task
from ..tasks.base import TaskKind
from .arguments import RunArguments
from .optim import encoder_of, word_source

logger = logging.getLogger(__name__)


def encoder_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """The encoder's configuration: the model's own, except in an encoder-decoder."""
    return getattr(config, "encoder", config)


def make_trainable(model: PreTrainedModel, overrides: dict[str, Any]) -> None:
    """Convert int8 layers, and a word table of fewer bits that is to be trained, to float32.

    Half precision rounds most updates away, and in float16 Adam's epsilon is 0. Raises InputError if ``overrides``,
    the fields of the configuration that the options name, ask for int8, or for half precision in a word table.
    """
    config, encoder = encoder_config(model.config), encoder_of(model)
    if config.layers_dtype == "int8":
        if "layers_dtype" in overrides:
            raise InputError("layers_dtype is int8, in which layers cannot be trained; leave it out")
        (model if hasattr(model, "set_layers_dtype") else encoder).set_layers_dtype("float32")
        logger.info("the int8 layers become float32, to be trained; save_pretrained can store them as int8 again")
    dtype = config.embedding_dtype
    if dtype == "float32" or config.embedding_trainable == "none":
        return
    if "embedding_dtype" in overrides:
        raise InputError(
            f"embedding_dtype is {dtype}, a word table that cannot be trained; give --config_overrides "
            "embedding_dtype=float32, or embedding_trainable=none to train the layers alone"
        )
    encoder.set_embedding_dtype("float32")
    again = f"to be trained; save_pretrained can store it as {dtype} again"
    logger.info("the %s word table becomes float32, %s", dtype, again)


def in_order_of(config: PreTrainedConfig, task: Task) -> Task:
    """A task of the user's rows, with its labels in the order of a saved model that has the same."""
    order = positions(saved_labels(config), task.labels)
    if order is None:
        return task
    return replace(task, labels=tuple(task.labels[i] for i in order))


def may_hold_out(options: Mapping[str, Any], task: Task) -> bool:
    """Whether rows of a task are held out with these values of the options in `preparation.HELD_OUT`."""
    held = ("num_folds",) if options["select_on_test"] else ("num_folds", "validation_fraction")
    return any(options[name] or getattr(task, name) for name in held)


def warn_of_other_splits(name: str, trained: Mapping[str, Any], options: Mapping[str, Any], task: Task) -> None:
    """Warn if another seed, fold or fraction holds out rows that a saved model of the task may have been trained on.

    ``trained`` is what its configuration remembers of its rows; ``options`` include those of `preparation.HELD_OUT`.
    """
    changed = [f"--{option}" for option in options if option in trained and options[option] != trained[option]]
    if changed and may_hold_out(options, task):
        logger.warning(
            "%s differs from the training of %s: rows held out here may be among its training rows",
            *(", ".join(changed), name),
        )


def check_head(arguments: RunArguments, kind: TaskKind, config: PreTrainedConfig) -> None:
    """Raise InputError if the head of a saved model is not one for the task; an encoder without a head gets a new one.

    With `--ignore_mismatched_sizes` a head of another class is replaced too.
    """
    name, task, taken = arguments.model_name_or_path, kind.task, encoder_config(config).num_sentences
    if not is_encoder(config) and taken != task.num_sentences:
        raise InputError(
            f"the model at {name!r} takes {TEXTS_A_ROW[taken]} a row, the task has "
            f"{TEXTS_A_ROW[task.num_sentences]}; choose another model or task"
        )
    if not is_encoder(config):
        check_order_of_labels(name, kind, config)
    wanted_class = kind.model_class(encoder_config(config).model_type)
    if config.architectures and wanted_class.__name__ not in config.architectures:
        can_change = isinstance(config, wanted_class.config_class)
        if not (can_change and (is_encoder(config) or arguments.ignore_mismatched_sizes)):
            remedy = "--ignore_mismatched_sizes gives its encoder a new head" if can_change else "train a new model"
            raise InputError(
                f"the model at {name!r} is of class {', '.join(config.architectures)}, the task needs "
                f"{wanted_class.__name__}; {remedy}"
            )


def check_order_of_labels(name: str, kind: TaskKind, config: PreTrainedConfig) -> None:
    """Raise InputError if a saved head has the labels of the task in another order."""
    saved = saved_labels(config)
    order = positions(kind.task.labels, saved) or []
    if order != sorted(order):
        raise InputError(
            f"the model at {name!r} has the labels of the task in another order "
            f"({', '.join(saved)}); train a new model"
        )


def check_loaded(name: str, model: PreTrainedModel, report: dict[str, Any], *, may_differ: bool) -> None:
    """Log which weights of a loaded model are new; raises InputError if one has another shape than the saved one,
    unless it ``may_differ`` (--ignore_mismatched_sizes).
    """
    encoder = f"{model.base_model_prefix}."
    differing = sorted(report["mismatched_keys"], key=lambda entry: (not entry[0].startswith(encoder), entry[0]))
    if differing and not may_differ:
        weight, stored, expected = differing[0]
        remedy = "--ignore_mismatched_sizes gives it a new head"
        if weight.startswith("classifier.output."):
            raise InputError(
                f"the head of the model at {name!r} has {stored[0]} outputs, the task needs {expected[0]}; {remedy}"
            )
        if weight.startswith(encoder):
            remedy = "leave the sizes of the encoder as they are, or train a new model with --encoder"
        raise InputError(
            f"{weight} of the model at {name!r} has shape {tuple(stored)}, the configuration and the task need "
            f"{tuple(expected)}; {remedy}"
        )
    new = sorted({*report["missing_keys"], *(weight for weight, *_ in differing)})
    if others := [weight for weight in new if weight.startswith(encoder)]:
        logger.warning("these weights of %s start from random numbers: %s", name, ", ".join(others))
    without_place = ("classifier.",) if encoder_of(model).pooler else ("classifier.", "pooler.", f"{encoder}pooler.")
    if left_out := [weight for weight in sorted(report["unexpected_keys"]) if not weight.startswith(without_place)]:
        logger.warning("these weights of %s have no place in the configuration: %s", name, listed(left_out, 5))
    if len(new) > len(others):
        logger.info("%s gets a new head for %s", name, type(model).__name__)


def fields_for_head(
    arguments: RunArguments, kind: TaskKind, config: PreTrainedConfig, *, has_other_head: bool
) -> dict[str, Any]:
    """Configuration fields, which others may override, of a saved model for the head of a task."""
    encoder, fields = encoder_config(config), {}
    if has_other_head and encoder.pooling == "none":  # as under a tagger, which sets it again
        fields["pooling"] = type(encoder)().pooling
    if is_encoder(config):
        fields["pair_features"] = kind.task.recipe(encoder.model_type, arguments.recipe).pair_features
    return fields | kind.new_head_fields(config)


def renew_head(model: PreTrainedModel) -> set[str]:
    """Start the head from random numbers again; returns the names of its weights."""
    for parameter in model.classifier.parameters():
        parameter._is_hf_initialized = False
    model.classifier.apply(model._init_weights)
    return {f"classifier.{name}" for name in model.classifier.state_dict()}


def pretrained_model(
    arguments: RunArguments,
    kind: TaskKind,
    config: PreTrainedConfig,
    overrides: dict[str, Any],
    *,
    to_train: bool = False,
) -> PreTrainedModel:
    """A saved model whose head :func:`check_head` accepts, or which gets a new one; one `to_train` fits the task.
    Raises InputError if its head has another size, or its weights or its configuration cannot be used.
    """
    name, encoder = arguments.model_name_or_path, encoder_config(config)
    saved, wanted_class, stored_dtype = copy(config), kind.model_class(encoder.model_type), encoder.embedding_dtype
    is_another = bool(config.architectures) and wanted_class.__name__ not in config.architectures
    has_other_head = is_another and not is_encoder(config)
    overrides = fields_for_head(arguments, kind, config, has_other_head=has_other_head) | overrides
    overrides |= {"num_sentences": kind.task.num_sentences} if is_encoder(config) else {}
    overrides |= {"architectures": [wanted_class.__name__]} if is_another else {}
    with loading(name):
        try:
            for target, given in ((config, kind.config_fields()), (encoder, overrides)):
                for field_name, value in given.items():
                    setattr(target, field_name, value)
                target.validate()
            # An encoder-decoder reads the word table as its configuration says, so that says how it is stored.
            wanted_dtype, encoder.embedding_dtype = encoder.embedding_dtype, stored_dtype
            options = {"config": config, "ignore_mismatched_sizes": True, "output_loading_info": True}
            options |= {"dtype": "float32"} if to_train else {}  # by default that of the files, maybe half precision
            with quiet_transformers():
                model, report = wanted_class.from_pretrained(locate(name), **options)
        except StrictDataclassError as error:
            reason = config_problem(error, given, type(target))
            raise InputError(f"the configuration of {name!r} is impossible: {reason}") from error
        except ValueError as error:
            raise InputError(
                f"the model at {name!r} does not fit the task ({first_line(error)}); change its "
                "configuration by --config_overrides"
            ) from error
    if has_other_head:  # which may have the same shapes
        report["missing_keys"] |= renew_head(model)
    if not to_train:
        check_complete(name, config, report)
    elif getattr(model, "_hf_peft_config_loaded", False):
        raise InputError(
            f"the model at {name!r} has adapters of peft; merge them and save the model again to train it"
        )
    else:
        check_loaded(name, model, report, may_differ=arguments.ignore_mismatched_sizes)
    if any("classifier.output" in str(key) for keys in ("missing_keys", "mismatched_keys") for key in report[keys]):
        kind.start_head(model)
    elif to_train:
        kind.continue_head(model, saved)
    if wanted_dtype != stored_dtype:
        encoder_of(model).set_embedding_dtype(wanted_dtype)
    if encoder.embedding_trainable == "none":  # loading an encoder-decoder makes every parameter trainable
        word_source(model).requires_grad_(False)
    return model
