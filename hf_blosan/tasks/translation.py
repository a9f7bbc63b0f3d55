"""Sentences and their translations, by an encoder of this package and a decoder of transformers that attends to it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import (
    DataCollatorForSeq2Seq,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    MarianConfig,
    PreTrainedTokenizerBase,
    StoppingCriteria,
)
from transformers.models.encoder_decoder.modeling_encoder_decoder import shift_tokens_right

from ..data.batching import cut, map_in_memory, sentence_lengths, token_limit
from ..data.columns import as_text, check_columns, check_distinct, row_numbers
from ..errors import InputError, listed
from ..models.configuration_base import SentenceEncoderConfig
from ..text.tokenization import build_subword_tokenizer, check_vocabulary, decoder_positions
from .base import CLASSIFIER_FIELDS, SCORE_FIELDS, TaskKind, config_class
from .classification import Classification, choose_texts
from .kinds import remembered_rows
from .table import TASKS
from .task import Source

if TYPE_CHECKING:
    from datasets import Dataset
    from torch import Tensor

logger = logging.getLogger(__name__)

MEASURED = {"metrics": ("SacreBLEU",), "best_metric": "bleu"}


class Translation(TaskKind):
    """Translates each row with an encoder-decoder: an encoder of this package, Marian's decoder, one vocabulary."""

    auto_class = "AutoModelForSeq2SeqLM"
    pipeline = "translation"
    vocabulary = "byte-pair"
    reference = "translation"
    column = "translation"
    use = "translating sentences"
    own_code = False
    unused_fields = (*SCORE_FIELDS, *CLASSIFIER_FIELDS, "classifier_size", "passage_block_length")
    other_uses = "translates, which hf-blosan predict and evaluate do; give another model"
    gives_vectors = False

    @classmethod
    def recognises_config(cls, config):
        # BART and T5 have heads for classes as well.
        return config.is_encoder_decoder and not super().recognises_config(config)

    @classmethod
    def recognises(cls, table, where, names):
        languages = languages_of(table)
        unknown = {names.text, names.label} - {None, *languages}
        if languages and unknown and not unknown & set(table.column_names):
            raise InputError(
                f"{where}: column 'translation' has the languages {listed(languages, 8)}, not {listed(unknown)}; name "
                "two that it has, with --text_column_name and --label_column_name"
            )
        return bool(languages) and not unknown

    @classmethod
    def choose_columns(cls, table, where, names):
        names.refuse_pair("translation")
        languages = languages_of(table)
        if len(languages) == 1:
            raise InputError(
                f"{where}: column 'translation' has the language {languages[0]} alone; give each row its text in "
                "another one, too"
            )
        if len(languages) != 2 and not (names.text and names.label):
            raise InputError(
                f"{where}: column 'translation' has the languages {listed(languages, 8)}; name two, with "
                "--text_column_name and --label_column_name"
            )
        source = names.text or next(language for language in languages if language != names.label)
        target = names.label or next(language for language in languages if language != source)
        check_distinct((source, target), where)
        return {"text_columns": (source,), "label_column": target}

    @classmethod
    def has_gold(cls, table, columns):
        return columns["label_column"] in languages_of(table)

    @classmethod
    def task_fields(cls, tables, columns):
        languages = (*columns["text_columns"], columns["label_column"])
        known = all(re.fullmatch("[a-z]{2,3}", language) for language in languages)  # as the Hub names them
        return {**MEASURED, "recipe_family": "translation", "languages": languages if known else ()}

    @classmethod
    def saved_fields(cls, config):
        """The columns are those of the task that the model was trained on."""
        if "text_columns" in (rows := remembered_rows(config)):
            return cls.task_fields({}, rows)
        task = TASKS.get(getattr(config, "finetuning_task", None)) or TASKS["multi30k_en_de"]
        return {"local": task.local, "languages": task.languages, **MEASURED}

    def for_rows(self, table, where, names):
        names.refuse_pair("translation")
        names = self.with_trained_columns(names, by_language(table))
        texts, label = names.texts or self.task.local.text_columns, names.label or self.task.local.label_column
        return replace(self.task, local=Source(location="", splits={}, text_columns=texts, label_column=label))

    def normalise(self, raw, source, where):
        """Rows with ``sentence1`` and ``translation``, both text and not empty."""
        from datasets import Dataset, Features, Value

        names = {"sentence1": source.text_columns[0], "translation": source.label_column}
        numbers, raw = row_numbers(raw), by_language(raw)
        check_columns(names.values(), raw.column_names, where)
        rows = {}
        for name, column in names.items():
            cells = zip(numbers, raw[column][:], strict=True)
            rows[name] = [as_text(cell, where, row, column).strip() for row, cell in cells]
            if "" in rows[name]:
                row = numbers[rows[name].index("")]
                raise InputError(f"{where}, row {row}: {column} is empty; write the sentence or remove the row")
        if not len(raw):
            raise InputError(f"{where} has no rows; give another file or leave this split out")
        features = Features(dict.fromkeys(names, Value("string")) | {"row": Value("int64")})
        return Dataset.from_dict(rows | {"row": list(numbers)}, features=features)

    def build_tokenizer(self, rows, **options):
        return build_subword_tokenizer(self.texts(rows), **options)

    def prepare_tokenizer(self, tokenizer, *, for_backbone):
        if for_backbone:
            raise InputError("--backbone: a translator has a vocabulary for both of its languages; leave it out")
        return tokenizer

    def texts(self, rows):
        yield from super().texts(rows)
        yield from rows["translation"][:]

    def encode(self, dataset, tokenizer, max_length=None):
        """Splits with the columns ``input_ids``, ``attention_mask`` and ``labels``, the token ids of the translation.

        Evaluation splits keep its text, ``translation``, because not every tokenizer can decode it exactly.

        Sentences, and training translations, are truncated to ``max_length`` tokens each, in training to at most
        the decoder's positions; a warning gives their number.
        """
        limit = token_limit(tokenizer, max_length)
        self.metrics  # noqa: B018 - reports a missing package now, not after an epoch

        def encode(rows: dict[str, list], split: str, limit: int) -> dict[str, list]:
            shorten = {"truncation": True, "max_length": limit}
            encoded = tokenizer([cut(text, limit, tokenizer.truncation_side) for text in rows["sentence1"]], **shorten)
            labels = tokenizer(text_target=rows["translation"], **(shorten if split == "train" else {}))
            return {**{name: encoded[name] for name in ("input_ids", "attention_mask")}, "labels": labels["input_ids"]}

        splits = {}
        for split, rows in dataset.items():
            most = min(limit, decoder_positions(tokenizer)) if split == "train" else limit
            unused = [column for column in rows.column_names if split == "train" or column != "translation"]
            options = {"remove_columns": unused, "fn_kwargs": {"split": split, "limit": most}}
            splits[split] = map_in_memory(rows, encode, desc=f"{split}: tokens", **options)
            encoded = splits[split].select_columns(["input_ids", "labels"])[:]
            full = sum(most in map(len, pair) for pair in zip(*encoded.values(), strict=True))
            if full:
                logger.warning("%s: %d of %d rows reach %d tokens and may be truncated", split, full, len(rows), most)
        return type(dataset)(splits)

    def lengths(self, encoded):
        """The texts of both languages."""
        return sentence_lengths(encoded).max(axis=1) + [len(ids) for ids in encoded[:]["labels"]]

    def collator(self, tokenizer, **padding):
        if "max_length" in padding:  # the decoder has no more positions
            padding["max_length"] = min(padding["max_length"], decoder_positions(tokenizer))
        return DataCollatorForSeq2Seq(tokenizer, **padding)

    def model_class(self, encoder):
        return EncoderDecoderModel

    def make_model(self, encoder, config_fields, tokenizer):
        own = {name: config_fields[name] for name in self.config_fields()}
        fields = {name: value for name, value in config_fields.items() if name not in own}
        return make_encoder_decoder(config_class(encoder)(**fields), tokenizer, **own)

    def outputs(self, model, batch):
        """Called without the labels; with them the model would also compute its own loss."""
        inputs = {name: value for name, value in batch.items() if name != "labels"}
        config = getattr(model, "module", model).config
        ids = config.pad_token_id, config.decoder_start_token_id
        return model(**inputs, decoder_input_ids=shift_tokens_right(batch["labels"], *ids))

    def infer(self, model, batch, *, quick=False):
        """Token ids of the translations, (B, N), padded with -100; `quick` replaces beam search by greedy search."""
        found = translate(model, batch, **({"num_beams": 1} if quick else {}))
        return found.masked_fill(found == model.config.pad_token_id, -100)

    def decode(self, answers):
        return answers

    def figures(self, predictions, references, tokenizer):
        return self.metrics.compute(predictions=texts_of(predictions, tokenizer), references=references)

    def lines(self, predictions, tokenizer):
        return (" ".join(text.split()) for text in texts_of(predictions, tokenizer))

    def choose_texts(self, head, where, names):
        if isinstance(head[0].get("translation"), dict):
            language = names.text or self.task.local.text_columns[0]
            texts = [row["translation"] for row in head if isinstance(row.get("translation"), dict)]
            languages = dict.fromkeys(chain.from_iterable(texts))
            if language not in languages:
                raise InputError(
                    f"{where}: column 'translation' has the languages {listed(languages, 8)}, not {language}; name "
                    "the one to translate with --text_column_name"
                )
            logger.info("%s: texts from %s", where, language)

            def read(row: dict[str, Any], number: int) -> tuple[str]:
                texts = row.get("translation")
                text = texts.get(language) if isinstance(texts, dict) else None
                return (as_text(text, where, number, language),)

            return ("translation",), read
        return choose_texts(head, where, names, self.task.local.text_columns, 1)

    cut = Classification.cut
    tokenize = Classification.tokenize

    def columns(self, answers, items, tokenizer, *, probabilities=False):
        """A text without words has an empty translation."""
        texts = zip(items, texts_of(answers, tokenizer), strict=True)
        return {"translation": [found if item[0].strip() else "" for item, found in texts]}

    @classmethod
    def snippet(cls, run, location, example):
        return f"""import hf_blosan
from transformers import {cls.auto_class}, AutoTokenizer

model = {cls.auto_class}.from_pretrained("{location}")
tokenizer = AutoTokenizer.from_pretrained("{location}")
found = model.generate(**tokenizer("{example["text"] if example else "Your text"}", return_tensors="pt"))
tokenizer.decode(found[0], skip_special_tokens=True)"""

    @classmethod
    def examples(cls, task):
        return [{"text": "Two dogs are playing in the snow."}]


def languages_of(table: Dataset) -> tuple[str, ...]:
    """The languages of a column ``translation``, an object with a text for each, as in data sets on the Hub."""
    feature = table.features.get("translation")
    return tuple(getattr(feature, "languages", feature if isinstance(feature, dict) else ()))


def by_language(table: Dataset) -> Dataset:
    """A table with such a column as one with a column for each language."""
    if not (languages := languages_of(table)):
        return table
    flat = table.select_columns(["translation"]).flatten()
    return flat.rename_columns({f"translation.{language}": language for language in languages})


def texts_of(rows: Iterable[np.ndarray], tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Token ids, padded with -100, as text."""
    return tokenizer.batch_decode([row[row != -100].tolist() for row in rows], skip_special_tokens=True)


def make_encoder_decoder(
    encoder: SentenceEncoderConfig,
    tokenizer: PreTrainedTokenizerBase,
    *,
    decoder_fields: dict[str, Any] | None = None,
    **fields: Any,
) -> EncoderDecoderModel:
    """A new ``EncoderDecoderModel`` with random weights: that encoder, and Marian's decoder with cross attention.

    The decoder is the Transformer's (Vaswani et al. 2017), as wide and as deep as the encoder, with one table for its
    input and output words. ``generate`` searches with 4 beams. ``import hf_blosan`` before loading a saved model.

    Args:
        encoder: configuration of the encoder; it gets ``pooling="none"``.
        tokenizer: one for both languages, such as that of ``build_subword_tokenizer``, with [BOS], [EOS] and [PAD].
        decoder_fields: fields of ``MarianConfig``, overriding those derived from the encoder. Default: heads of
            32 features or more, feed-forward layers twice as wide as a token.
        **fields: further fields of the model's configuration.

    Raises:
        InputError: the encoder has a backbone or takes predicates; or the tokenizer lacks a special token, or has ids
            beyond ``encoder.vocab_size``.
    """
    if encoder.backbone_config is not None:
        raise InputError("an encoder-decoder has its own vocabulary; leave out the backbone")
    if encoder.predicate_size:
        raise InputError(f"predicate_size={encoder.predicate_size}: translation has no predicates; set it to 0")
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos")}
    if missing := [name.removesuffix("_token_id") for name, value in ids.items() if value is None]:
        raise InputError(
            f"the tokenizer has no {missing[0]}_token, which an encoder-decoder needs; set it, or build a tokenizer "
            "with build_subword_tokenizer"
        )
    check_vocabulary(tokenizer, encoder.vocab_size, tokenizer.name_or_path or type(tokenizer).__name__)
    size, length = encoder.hidden_size, decoder_positions(tokenizer)
    encoder = type(encoder).from_dict(encoder.to_dict() | {"pooling": "none"})
    follows = {
        "vocab_size": encoder.vocab_size,
        "d_model": size,
        "decoder_layers": encoder.num_hidden_layers,
        "decoder_attention_heads": max(heads for heads in range(1, max(size // 32, 1) + 1) if size % heads == 0),
        "decoder_ffn_dim": 2 * size,
        "activation_function": "relu",
        "dropout": encoder.dropout,
        "init_std": size**-0.5,
        "scale_embedding": True,
        "max_position_embeddings": length,
        "forced_eos_token_id": None,
    }
    start = {"decoder_start_token_id": ids["bos_token_id"]}
    decoder = MarianConfig(**(follows | ids | start | (decoder_fields or {})))
    common = {"vocab_size": encoder.vocab_size} | ids | start | fields
    model = EncoderDecoderModel(EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder, **common))
    model.generation_config.update(num_beams=4, max_length=length)
    model.accepts_loss_kwargs = False  # its loss is the mean of a batch, which Trainer has to divide by accumulation
    return model


def translate(model: EncoderDecoderModel, batch: dict[str, Tensor], **search: Any) -> Tensor:
    """Token ids of an encoder-decoder's translations of a batch, (B, N), with [EOS], then padding.

    A translation has at most 10 tokens more than twice as many as its sentence, independent of the rest of the batch.
    ``batch`` has `input_ids` and `attention_mask`, (B, N); ``search`` are options of ``generate``, overriding the
    model's: ``num_beams=1`` is greedy search.
    """
    limits_B = 2 * batch["attention_mask"].sum(1) + 10
    limit = int(limits_B.max())
    limit = min(model.generation_config.max_length or limit, limit)
    return model.generate(**batch, max_length=limit, stopping_criteria=[RowLimits(limits_B)], **search)[:, 1:]


class RowLimits(StoppingCriteria):
    """Ends the translations of each row at that row's maximum length, ``limits_B`` tokens with [BOS] included."""

    def __init__(self, limits_B: Tensor):
        self.limits_B = limits_B

    def __call__(self, input_ids: Tensor, scores: Any, **options: Any) -> Tensor:
        """Whether each sequence ends; the beams of a row are consecutive."""
        limits = self.limits_B.repeat_interleave(len(input_ids) // len(self.limits_B))
        return input_ids.shape[1] >= limits
