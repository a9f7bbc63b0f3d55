"""A saved model, loaded for use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModel,
    AutoModelForMultipleChoice,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import CONFIG_NAME, cached_file, logging

from ..errors import InputError, loading
from ..hub.configs import read_config
from ..text.tokenization import check_type_ids, load_tokenizer
from .finite import refuse_not_finite


def load(
    name: str, auto_class: type | None, *, cpu: bool = False, trust_remote_code: bool = False
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model in eval mode on the best device, and its tokenizer.

    The model raises :class:`hf_blosan.hub.finite.NotFinite` in place of outputs that are not finite.

    Args:
        name: folder, or name on the Hub.
        auto_class: the Auto class that loads it; ``None`` is that of its head, if it was saved with one.
        cpu: leave it on the CPU.
        trust_remote_code: as in transformers.

    Raises:
        InputError: there is none, it has no weights for what the class adds to the encoder, or it does something else.
    """
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    options = {"trust_remote_code": trust_remote_code}
    try:
        with loading(name):
            config = read_config(name, **options)
            saved = config.architectures or ()
            tags = any(cls.endswith("ForTokenClassification") for cls in saved)
            if tags and auto_class is not AutoModelForTokenClassification:
                raise InputError(
                    f"the model at {name!r} tags words; use it with hf-blosan predict and evaluate, or with "
                    "pipeline('token-classification')"
                )
            if config.is_encoder_decoder and auto_class is not AutoModelForSeq2SeqLM:
                raise InputError(
                    f"the model at {name!r} translates, which only hf-blosan predict does; give another one"
                )
            selects = any(cls.endswith("ForSentenceSelection") for cls in saved)
            if selects and auto_class not in (AutoModel, AutoModelForMultipleChoice):
                raise InputError(
                    f"the model at {name!r} chooses sentences of passages, which this command does not read; use it "
                    "with hf-blosan predict, evaluate and encode"
                )
            predicates = getattr(config, "predicate_size", 0)
            if auto_class is AutoModel and (predicates or getattr(config, "pooling", None) == "none"):
                why = f"needs predicates (predicate_size={predicates})" if predicates else 'has pooling="none"'
                raise InputError(f"the model at {name!r} {why} and gives no sentence vectors; give another one")
            if auto_class is None:
                auto_class = AutoModelForSequenceClassification if any("For" in cls for cls in saved) else AutoModel
            tokenizer = load_tokenizer(name, config, **options)
            check_type_ids(tokenizer, config, name)
            options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
            model, report = auto_class.from_pretrained(name, config=config, **options)
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()
    for weight, stored, expected in sorted(report["mismatched_keys"]):
        shapes = f"shape {tuple(stored)}, in its config.json {tuple(expected)}"
        raise InputError(f"{weight} of the model at {name!r} has {shapes}; save the model again")
    if report["missing_keys"]:
        missing = ", ".join(sorted(report["missing_keys"])[:3])
        raise InputError(
            f"the model at {name!r} has no weights {missing}, ...; train it for this, or give another one"
        )
    refuse_not_finite(model)
    accelerator = None if cpu else torch.accelerator.current_accelerator(check_available=True)
    return model.eval().to(accelerator or "cpu"), tokenizer


def identity(name: str) -> list[Any]:
    """What tells the saved model from another one of this name: its files, or its commit on the Hub."""
    folder = Path(name)
    if not folder.is_dir():
        return [name, Path(cached_file(name, CONFIG_NAME)).parent.name]
    files = sorted(path for path in folder.iterdir() if path.suffix in (".json", ".safetensors", ".bin"))
    read = [path for path in files if path.name.startswith(("config", "model", "pytorch_model", "tokenizer"))]
    return [str(folder.resolve()), *([path.name, *file_state(path)] for path in read)]


def file_state(path: Path) -> tuple[int, int]:
    """Size and time of the last change of a file."""
    state = path.stat()
    return state.st_size, state.st_mtime_ns


def probabilities_of(config: Any, logits: np.ndarray, function_to_apply: str | None = None) -> np.ndarray | None:
    """Of the labels, (rows, labels), from logits of that shape, as in transformers' text-classification pipeline.

    ``None`` for a regression, whose logits are scores.

    Args:
        config: of the model.
        logits: (rows, labels).
        function_to_apply: ``"sigmoid"``, ``"softmax"`` or ``"none"``, in place of the one that suits the model.
    """
    if function_to_apply is None:
        several = config.problem_type == "multi_label_classification" or config.num_labels == 1
        function_to_apply = "none" if config.problem_type == "regression" else "sigmoid" if several else "softmax"
    if function_to_apply == "none":
        return None
    logits = torch.from_numpy(logits)
    return (logits.sigmoid() if function_to_apply == "sigmoid" else logits.softmax(-1)).numpy()
