"""The hidden states of a frozen backbone: computed once for every sentence of a task, and kept on disk."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from accelerate import PartialState
from datasets import Dataset, Features, List, Value
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from ..errors import InputError

INPUTS = ["input_ids", "token_type_ids"]
ROWS_AT_ONCE = 64


def with_states(
    rows: list[dict], *, collate: Callable[[list[dict]], Any], states: Dataset, places: dict[bytes, int], width: int
) -> Any:
    """Encoded rows as a batch of ``collate``, with ``backbone_hidden_states`` (B, N, width) in place of ``input_ids``.

    ``states`` has one memory-mapped row per sentence: the states of its tokens, concatenated; ``places`` has the row
    of each sentence, by keys as from :func:`sentences_of`.
    """
    batch = collate(rows)
    is_token_BN = batch["attention_mask"].bool()
    sentences = [places[found] for row in rows for found in sentences_of(*(row[name] for name in INPUTS))]
    found = states[sentences]["states"] if sentences else []
    tokens = torch.from_numpy(np.concatenate([*found, np.zeros(0, np.float16)])).view(-1, width)
    batch["backbone_hidden_states"] = tokens.new_zeros(*is_token_BN.shape, width)
    batch["backbone_hidden_states"][is_token_BN] = tokens
    del batch["input_ids"]
    return batch


def sentences_of(input_ids: Iterable[int], token_type_ids: Iterable[int]) -> Iterator[bytes]:
    """The sentences of an encoded row that have tokens: their token ids as bytes."""
    ids, types = np.asarray(input_ids, np.int32), np.asarray(token_type_ids)
    for sentence in (0, 1):
        if (types == sentence).any():
            yield ids[types == sentence].tobytes()


def cached_states(
    model: PreTrainedModel, data: dict[str, Dataset], collate: Callable[[list[dict]], Any], dtype: str
) -> Callable[[list[dict]], Any]:
    """A collator with a frozen backbone's states of all encoded splits; computes those that are not yet on disk.

    The file is below the cache folder of ``datasets`` (``HF_DATASETS_CACHE``). Its name is a hash of the backbone and
    of the sentences, so runs of other encoders, seeds and folds share it. ``collate`` pads a list of encoded rows into
    a batch; ``dtype`` is that of the stored states, ``"float16"`` or ``"float32"``.

    Raises InputError if the model has no backbone, or trains it; the rows or the head do not support states; or the
    file cannot be written.
    """
    takes_states = "backbone_hidden_states" in inspect.signature(model.forward).parameters
    if not takes_states or any(not {*INPUTS} <= {*rows.column_names} for rows in data.values()):
        raise InputError("--cache_backbone needs rows of one sentence or a pair; leave it out.")
    config, backbone = model.config, model.base_model.embeddings.backbone
    if config.backbone_config is None or config.embedding_trainable != "none":
        kind = "trains its backbone" if config.backbone_config is not None else "has none"
        raise InputError(
            f"--cache_backbone keeps the states of a frozen backbone, but this model {kind}; leave it out."
        )
    found = set()
    for rows in data.values():
        columns = rows.select_columns(INPUTS)[:]
        for ids, types in zip(columns["input_ids"], columns["token_type_ids"], strict=True):
            found.update(sentences_of(ids, types))
    sentences = sorted(found, key=lambda sentence: (len(sentence), sentence))
    name = fingerprint_of_states(backbone, sentences, dtype)
    file = Path(datasets.config.HF_DATASETS_CACHE, "hf_blosan", f"backbone-{name}.arrow")
    backbone = backbone.to(PartialState().device).eval()

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        states = Dataset.from_dict({"sentence": sentences}).map(
            lambda rows: sentence_states(backbone, rows, dtype),
            batched=True,
            batch_size=ROWS_AT_ONCE,
            remove_columns="sentence",
            features=Features({"states": List(Value(dtype))}),
            cache_file_name=str(file),
            new_fingerprint=name,
            desc="states of the backbone",
        )
    except OSError as error:
        raise InputError(
            f"--cache_backbone: {file} cannot be written ({error.strerror or error}); set HF_DATASETS_CACHE to a "
            "folder with free space, or leave the option out."
        ) from error
    model.to("cpu")
    places = {sentence: row for row, sentence in enumerate(sentences)}
    states = states.with_format("numpy", dtype=getattr(np, dtype))
    return partial(with_states, collate=collate, states=states, places=places, width=config.embedding_size)


@torch.no_grad()
def sentence_states(
    backbone: PreTrainedModel, rows: dict[str, list[bytes]], dtype: str
) -> dict[str, list[np.ndarray]]:
    """The states of some sentences, one flat array of tokens * width numbers each; raises InputError if one is beyond
    the range of the dtype.
    """
    ids = [torch.from_numpy(np.frombuffer(sentence, np.int32).astype(np.int64)) for sentence in rows["sentence"]]
    mask_BN = pad_sequence([torch.ones_like(sentence) for sentence in ids], batch_first=True).to(backbone.device)
    ids_BN = pad_sequence(ids, batch_first=True).to(backbone.device)
    states_BNE = backbone(input_ids=ids_BN, attention_mask=mask_BN).last_hidden_state
    kept_BNE = states_BNE.to("cpu", getattr(torch, dtype))
    if states_BNE.isfinite().all() and not kept_BNE.isfinite().all():
        raise InputError(
            f"--cache_backbone {dtype}: a state of the backbone is {states_BNE.abs().max():.4g}, beyond the range of "
            f"{dtype}; give float32"
        )
    return {"states": [states[: len(row)].flatten().numpy() for states, row in zip(kept_BNE, ids, strict=True)]}


def digest_of_weights(backbone: PreTrainedModel) -> Any:
    """The SHA-256 object of a model's weights and their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(backbone.state_dict().items()):
        digest.update(name.encode() + tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest


def fingerprint_of_states(backbone: PreTrainedModel, sentences: list[bytes], dtype: str) -> str:
    """Hash of everything that determines the states."""
    settings = {name: value for name, value in backbone.config.to_dict().items() if name != "_name_or_path"}
    digest = digest_of_weights(backbone)
    digest.update(json.dumps([dtype, settings], sort_keys=True, default=str).encode())
    for sentence in sentences:
        digest.update(hashlib.sha256(sentence).digest())
    return digest.hexdigest()[:16]
