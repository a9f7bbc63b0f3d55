"""From texts to sentence vectors: `python -m benchmarks.encode --data_dir DIR --output NAME.json [--peer FOLDER]`.

Encoders of the default size with random weights and word vectors, in float32 and int8, encode the sentences of a task
in batches sorted by length. All systems take turns, so that their ratios hold on a busy machine too.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from hf_blosan.cli.options import option
from hf_blosan.errors import InputError
from hf_blosan.inference.batches import Batches, SentenceVectors
from hf_blosan.registry import FAMILIES
from hf_blosan.tasks import get_task, load_task
from hf_blosan.tasks.kinds import find_kind
from hf_blosan.text.tokenization import build_tokenizer, num_fixed_words

from .command import DATA_DIR, Options, choose, command
from .measure import times
from .report import page, table

STAGES = ("tokenizer", "padding", "embeddings", "context", "pooler", "others")


def mean_pooled(output: Any, mask_BN: Tensor) -> Tensor:
    """The sentence vectors of sentence-transformers' models: the mean of the tokens, normalised."""
    weights_BN1 = mask_BN[..., None].float()
    return nn.functional.normalize((output.last_hidden_state * weights_BN1).sum(1) / weights_BN1.sum(1), dim=-1)


def without_modules(model: PreTrainedModel) -> PreTrainedModel:
    """The same model of sentence-transformers, for `Batches`: its modules.json is left to :func:`mean_pooled`."""
    model.config.name_or_path = ""
    return model


class VectorsBy(SentenceVectors):
    """Sentence vectors, (B, features), by a function of a batch instead of the model."""

    def __init__(self, config: Any, run: Callable[[dict[str, Tensor]], Tensor]):
        super().__init__(config)
        self.run = run

    def infer(self, model, batch, *, quick=False):
        return self.run(batch)


class System:
    """A tokenizer and a model that encode texts as `hf-blosan encode` does: all are tokenized, then sorted by length.

    Args:
        tokenizer, model: as in transformers.
        pool: from the model's output and the mask (B, N) to sentence vectors.
        batch_size: sentences of a batch.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        model: PreTrainedModel,
        pool: Callable[[Any, Tensor], Tensor],
        batch_size: int,
    ):
        self.model = model.eval()
        self.kind = VectorsBy(model.config, lambda batch: pool(model(**batch), batch["attention_mask"]))
        self.batches = Batches(model, tokenizer, self.kind, batch_size=batch_size)

    def encode(self, texts: list[str]) -> list[np.ndarray]:
        """The vector of each sentence."""
        return self.batches([(text,) for text in texts])

    def shares(self, texts: list[str], repeats: int) -> dict[str, float]:
        """The fraction of the time that each stage takes."""
        spent = dict.fromkeys(STAGES, 0.0)

        def timed(stage, function, *arguments, **options):
            begun = time.perf_counter()
            result = function(*arguments, **options)
            spent[stage] += time.perf_counter() - begun
            return result

        parts = [(stage, getattr(self.model, stage), "forward") for stage in ("embeddings", "context", "pooler")]
        parts += [("tokenizer", self.batches, "tokenize"), ("padding", self.batches, "collate")]
        with ExitStack() as stack:
            for stage, owner, name in parts:  # with a hook the model would take another path
                stack.enter_context(patch.object(owner, name, partial(timed, stage, getattr(owner, name))))
            for _ in range(repeats):
                timed("others", self.encode, texts)
        total = spent["others"]
        spent["others"] -= sum(spent[stage] for stage, *_ in parts)
        return {stage: round(seconds / total, 3) for stage, seconds in spent.items()}


def texts_and_tokenizer(options: TextOptions) -> tuple[list[list[str]], PreTrainedTokenizerBase]:
    """Batches of test sentences sorted by length, and a tokenizer that knows their words.

    Words of the training data come first; words of the test data only have fixed vectors, as those of a vector file.
    """
    task, size = get_task(options.task), options.batch_size
    data = load_task(task, data_dir=options.data_dir, seed=options.seed)
    texts_of = find_kind(task).texts
    texts = list(texts_of(data["test"]))[: options.sentences]
    if len(texts) < size:
        raise InputError(f"--batch_size {size}: there are only {len(texts)} sentences; give fewer")
    how = {"split_compounds": task.split_compounds}
    words = build_tokenizer(texts, **how).get_vocab()
    tokenizer = build_tokenizer(texts_of(data["train"]), extra_words=words, **how)
    texts.sort(key=len)
    return [texts[start : start + size] for start in range(0, len(texts) - size + 1, size)], tokenizer


def random_model(model_type: str, tokenizer: PreTrainedTokenizerBase, seed: int) -> PreTrainedModel:
    """An encoder of the default size with random weights and word vectors."""
    torch.manual_seed(seed)
    fields = {"vocab_size": len(tokenizer), "num_fixed_embeddings": num_fixed_words(tokenizer)}
    config = AutoConfig.for_model(model_type, embedding_trainable="train_words", **fields)
    model = AutoModel.from_config(config)
    model.load_word_vectors(torch.rand(len(tokenizer), config.embedding_size) - 0.5)
    return model


def make_systems(options: EncodeOptions, tokenizer: PreTrainedTokenizerBase) -> dict[str, System]:
    """All systems by name; encoders of this package are saved and loaded, as users get them."""
    systems, size = {}, options.batch_size
    for model_type in options.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            random_model(model_type, tokenizer, options.seed).save_pretrained(folder)
            for form in ("float32", "int8"):
                for name in (f"{model_type} {form}", *[f"{model_type} {form}, padded"] * options.keep_padding):
                    loaded = AutoModel.from_pretrained(folder, layers_dtype=form)
                    if name.endswith("padded"):  # which a hook sees to
                        loaded.context.register_forward_hook(lambda *_: None)
                    systems[name] = System(tokenizer, loaded, lambda output, _: output.pooler_output, size)
    if options.peer:
        peer = without_modules(AutoModel.from_pretrained(options.peer))
        systems["peer"] = System(AutoTokenizer.from_pretrained(options.peer), peer, mean_pooled, size)
    return systems


def measure(options: EncodeOptions, report: dict[str, Any]) -> None:
    """A row for each system."""
    batches, tokenizer = texts_and_tokenizer(options)
    texts = [text for batch in batches for text in batch]
    report["header"]["sentences"] = len(texts)
    systems = make_systems(options, tokenizer)
    calls = {name: partial(system.encode, texts) for name, system in systems.items()}
    summaries = times(calls, options.repeats, "cpu")
    for name, system in systems.items():
        median = summaries[name]["median_ms"]
        row = {"system": name, "sentences_per_second": round(1e3 * len(texts) / median)}
        if options.peer:
            row["speed"] = round(summaries["peer"]["median_ms"] / median, 2)
        if name != "peer":
            row["shares"] = system.shares(texts, options.repeats)
        report["rows"].append(row | summaries[name])


def markdown(report: dict[str, Any]) -> str:
    """Speeds and shares as a table."""
    header, rows = report["header"], report["rows"]
    lines = []
    for row in rows:
        shares = [f"{100 * row['shares'][stage]:.0f}" if "shares" in row else "" for stage in STAGES]
        lines.append([row["system"], row["sentences_per_second"], row.get("speed", ""), *shares])
    padded = " A padded system does not leave padding out." if any("padded" in row["system"] for row in rows) else ""
    return page(
        "From texts to sentence vectors",
        header,
        [f"Sentences: {header['sentences']} of {header['task']}, in batches of {header['batch_size']}"],
        "Speed: sentences a second, in units of the peer. Shares of the time, in percent: tokenizer, padding, and the "
        f"parts of the model.{padded}",
        table(["system", "sentences / s", "speed", *STAGES], lines),
    )


@dataclass(kw_only=True)
class TextOptions(Options):
    """Which sentences are encoded, and by which models."""

    peer: str | None = option("Folder of a sentence-transformers model with mean pooling, to compare with.")
    task: str = option("Task of the sentences.", "sick_relatedness")
    data_dir: str | None = option(DATA_DIR)
    sentences: int = option("How many, of the test split.", 1280)
    models: str = option("Encoders.", "disan,biblosan,mtsa")

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("--models", self.models, FAMILIES)
        if self.peer and not Path(self.peer, "config.json").is_file():
            raise InputError(f"--peer {self.peer}: there is no saved model; give the folder of one")


@dataclass(kw_only=True)
class EncodeOptions(TextOptions):
    """Options of ``python -m benchmarks.encode``."""

    batch_size: int = option("Sentences of a batch.", 64)
    keep_padding: bool = option("Measure models with their padding, too.", False)
    repeats: int = option("Samples of each figure.", 7)


RECORDED = ("task", "sentences", "batch_size", "repeats")
main = command("benchmarks.encode", EncodeOptions, measure, recorded=RECORDED)

if __name__ == "__main__":
    sys.exit(main())
