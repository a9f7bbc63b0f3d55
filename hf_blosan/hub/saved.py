"""A saved model, loaded for use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import _CACHED_NO_EXIST, try_to_load_from_cache
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import CONFIG_NAME, cached_file, logging

from ..errors import InputError, listed, loading
from ..files import sha256
from ..registry import FAMILIES, locate
from ..tasks.kinds import kind_of
from ..text.tokenization import check_type_ids, load_tokenizer
from .configs import has_head, read_config
from .finite import refuse_not_finite

logger = logging.get_logger(__name__)

SUFFIXES = (".json", ".safetensors", ".bin", ".txt", ".model", ".codes")
NAMES = (
    *("config", "generation_config", "model", "modules", "pytorch_model", "adapter"),
    *("tokenizer", "special_tokens", "added_tokens", "vocab", "merges", "spiece", "spm", "sentencepiece", "bpe"),
)
"""Prefixes of the names of the files that decide what a saved model computes."""
LOADED_WITH_REPORT = {"output_loading_info": True, "ignore_mismatched_sizes": True}
"""Options of ``from_pretrained``, whose report :func:`check_complete` reads."""


def load(
    name: str, task: str | None = None, *, cpu: bool = False, trust_remote_code: bool = False
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model in eval mode on the best device, and its tokenizer.

    The model raises :class:`hf_blosan.hub.finite.NotFinite` for outputs that are not finite.

    Args:
        name: a folder, an encoder that comes with the package, or a name on the Hub.
        task: the transformers pipeline of the model, for instance ``"text-classification"``;
            ``"feature-extraction"`` is the encoder without its head, ``None`` the encoder with its head.
        cpu: keep it on the CPU.
        trust_remote_code: as in transformers.

    Raises:
        InputError: the model is missing, lacks weights for its head, or is for another task.
    """
    options = {"trust_remote_code": trust_remote_code}
    with quiet_transformers(), loading(name):
        config = read_config(name, **options)
        auto_class = _auto_class(name, config, task)
        tokenizer = load_tokenizer(name, config, **options)
        check_type_ids(tokenizer, config, name)
        model, report = auto_class.from_pretrained(locate(name), config=config, **options, **LOADED_WITH_REPORT)
    lacks_head = auto_class is not transformers.AutoModel and not has_head(config)
    if report["missing_keys"] and lacks_head and config.model_type in FAMILIES:
        raise InputError(
            f"the model at {name!r} is an encoder without a head; `hf-blosan train --model_name_or_path {name}` "
            "trains one, `hf-blosan encode` writes its vectors"
        )
    check_complete(name, config, report)
    refuse_not_finite(model)
    accelerator = None if cpu else torch.accelerator.current_accelerator(check_available=True)
    return model.eval().to(accelerator or "cpu"), tokenizer


def check_complete(name: str, config: PreTrainedConfig, report: dict[str, Any]) -> None:
    """Raise InputError if a saved model, by its loading info, lacks weights, or has some with other shapes or no place
    in it.
    """
    for weight, stored, expected in sorted(report["mismatched_keys"]):
        shapes = f"shape {tuple(stored)}, but {tuple(expected)} in its config.json"
        raise InputError(f"{weight} of the model at {name!r} has {shapes}; save the model again")
    if report["missing_keys"]:
        missing = ", ".join(sorted(report["missing_keys"])[:3])
        raise InputError(
            f"the model at {name!r} has no weights {missing}, ...; train it for this, or give another one"
        )
    if config.model_type in FAMILIES and report["unexpected_keys"]:  # weights that would go unused
        weights = listed(sorted(report["unexpected_keys"]), 3)
        raise InputError(
            f"the model at {name!r} has weights for which its config.json has no place ({weights}); save the model "
            "again"
        )


@contextmanager
def quiet_transformers(*, warnings: bool = False) -> Iterator[None]:
    """Hide transformers' progress bars and, unless `warnings` is set, its warnings."""
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    if not warnings:
        logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()


def _auto_class(name: str, config: PreTrainedConfig, task: str | None) -> type:
    """The Auto class that loads a model; raises InputError if the model is for another task."""
    kind, vectors = kind_of(config), task == "feature-extraction"
    if kind.other_uses and task != kind.pipeline and not (vectors and kind.gives_vectors):
        raise InputError(f"the model at {name!r} {kind.other_uses}")
    predicates = getattr(config, "predicate_size", 0)
    if vectors and (predicates or getattr(config, "pooling", None) == "none"):
        why = f"needs predicates (predicate_size={predicates})" if predicates else 'has pooling="none"'
        raise InputError(f"the model at {name!r} {why} and gives no sentence vectors; give another one")
    is_encoder = vectors or not (task or has_head(config))
    return transformers.AutoModel if is_encoder else getattr(transformers, kind.auto_class)


def is_normalized(name: str) -> bool:
    """Whether sentence-transformers gives the model's vectors length 1, by a ``Normalize`` in modules.json.

    ``name`` is as in :func:`load`, or empty for a model that was not loaded. Raises InputError if a file of
    sentence-transformers is damaged, or asks for what this package does not apply: other modules after the encoder, a
    prompt before every text, or shortened vectors.
    """
    if not name:
        return False
    with loading(name):
        files = {file: _read_json(name, file) for file in ("modules.json", "config_sentence_transformers.json")}
        modules, options = (content or empty for content, empty in zip(files.values(), ([], {}), strict=True))
        later = [module["type"].rpartition(".")[2] for module in modules[1:]]
        others = [f"{module} (modules.json)" for module in later if module != "Normalize"]
        prompt = options.get("prompts", {}).get(options.get("default_prompt_name"))
        asked = {"default_prompt_name": prompt, "truncate_dim": options.get("truncate_dim")}
        others += [f"{option} (config_sentence_transformers.json)" for option, value in asked.items() if value]
    if others:
        raise InputError(
            f"the vectors of {name!r} need {', '.join(others)} of sentence-transformers, which is not applied "
            "here; use SentenceTransformer"
        )
    for file, content in files.items():
        if content is None and not Path(locate(name)).is_dir():
            if try_to_load_from_cache(name, file) is not _CACHED_NO_EXIST:
                what = "a Normalize" if file == "modules.json" else "a default prompt"
                logger.warning("%s of %s is not in the cache; if it has %s, that is not applied", file, name, what)
    return bool(later)


def _read_json(name: str, file: str) -> Any:
    """What a file of a saved model has; ``None`` if there is no such file."""
    missing = ("_raise_exceptions_for_missing_entries", "_raise_exceptions_for_connection_errors")
    path = cached_file(locate(name), file, **dict.fromkeys(missing, False))
    return json.loads(Path(path).read_text()) if path else None


def identity(name: str) -> list[Any]:
    """Identifies a version of the saved model: its files, or its commit on the Hub."""
    folder = Path(locate(name))
    if not folder.is_dir():
        return [name, Path(cached_file(name, CONFIG_NAME)).parent.name]
    return [str(folder.resolve()), *([path.name, *file_state(path)] for path in model_files(folder))]


def contents(name: str) -> dict[str, Any]:
    """Identifies a version of the saved model on any machine: the SHA-256 of its files, or its commit on the Hub."""
    folder = Path(locate(name))
    if not folder.is_dir():
        return {"name": name, "commit": identity(name)[1]}
    return {"name": folder.resolve().name, "sha256": {path.name: sha256(path) for path in model_files(folder)}}


def model_files(folder: Path) -> list[Path]:
    """The files of a saved model that decide what it computes: weights, configurations, vocabularies, its code.

    Empty if there is no such folder.
    """
    if not folder.is_dir():
        return []
    data = (path for path in folder.iterdir() if path.suffix in SUFFIXES and path.name.startswith(NAMES))
    return sorted([*data, *folder.glob("*.py")])


def file_state(path: Path) -> tuple[int, int]:
    """Size and time of the last change of a file."""
    state = path.stat()
    return state.st_size, state.st_mtime_ns
