"""From options to what a run trains: task, encoded data, tokenizer, configuration and model."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict
from huggingface_hub.errors import StrictDataclassError
from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..cli.overrides import check_field_names, parse_config_overrides
from ..data import LengthBucketBatchSampler
from ..errors import InputError, first_line, loading
from ..functional import optimal_block_length
from ..hub.configs import config_problem, is_encoder, read_config
from ..registry import FAMILIES
from ..tasks import Task, custom_task, get_task, load_task
from ..tasks.base import TaskKind, config_class
from ..tasks.kinds import find_kind, remembered_rows
from ..tasks.loading import sample
from ..text.tokenization import (
    check_max_length,
    count_words,
    limit_length,
    load_tokenizer,
    num_fixed_words,
    vocabulary_size,
)
from ..text.word_vectors import WordVectors, embedding_matrix, read_word_vectors
from .arguments import RunArguments
from .backbone_states import cached_states
from .distillation import with_taught_rows
from .reporting import held_out
from .saved_model import (
    check_head,
    encoder_config,
    in_order_of,
    make_trainable,
    pretrained_model,
    warn_of_other_splits,
)
from .word_rows import ids_of

logger = logging.getLogger(__name__)

DECIDED_BY_DATA = ("vocab_size", "num_sentences", "num_fixed_embeddings", "pad_token_id", "unk_token_id")
CUSTOM_OPTIONS = tuple(inspect.signature(custom_task).parameters)
DATA_OPTIONS = tuple(inspect.signature(load_task).parameters)[1:]
HELD_OUT = {"seed": 42, "fold": 0, "num_folds": None, "validation_fraction": None, "select_on_test": False}
"""Options that determine the held-out rows, with their defaults."""

MANY_SHARED = 0.05
"""Share of held-out rows whose texts are those of training rows, above which their figures mislead."""

MANY_UNKNOWN = 0.3
"""Share of unknown tokens above which a model reads too little of its texts."""


@dataclass(frozen=True)
class Preparation:
    """Everything a run trains with.

    Attributes:
        kind: the kind of task.
        encoder: model type, for example `disan`.
        tokenizer: the model's tokenizer.
        model: the model with its head, on the CPU.
        data: encoded splits (for sentences the columns input_ids, token_type_ids, attention_mask, labels).
        collate: pads a list of rows into a batch.
        row_numbers: evaluation split -> the number of each of its rows in the file, from 1.
        word_vectors: file name, width and coverage of the word vectors, if any.
        num_taught_rows: number of training rows that a teacher labelled, the last ones.
    """

    kind: TaskKind
    encoder: str
    tokenizer: PreTrainedTokenizerBase
    model: PreTrainedModel
    data: DatasetDict
    collate: Callable[[list[dict]], Any]
    row_numbers: dict[str, list[int]]
    word_vectors: dict[str, Any] | None = None
    num_taught_rows: int = 0

    @property
    def task(self) -> Task:
        return self.kind.task

    def batch_sampler(self, arguments: RunArguments) -> LengthBucketBatchSampler:
        """Training batches of rows of similar length; of shuffled rows with `--no_bucketing`."""
        lengths = self.kind.lengths(self.data["train"])
        if not arguments.bucketing:
            lengths = np.zeros_like(lengths)
        options = {"groups": self.kind.groups(self.data["train"]), "seed": arguments.seed}
        return LengthBucketBatchSampler(lengths, arguments.per_device_train_batch_size, **options)


def find_task(arguments: RunArguments) -> Task:
    """The task named in the options, or the custom task defined by the user's data."""
    if not arguments.task_name:
        return custom_task(**{name: getattr(arguments, name) for name in CUSTOM_OPTIONS})
    task = get_task(arguments.task_name)
    if not arguments.train_file:
        return task
    # Other rows of the same form, whose language is unknown.
    return replace(task, title=f"{task.name} ({Path(arguments.train_file).name})", languages=())


def training_rows(arguments: RunArguments, task: Task) -> dict[str, Any]:
    """What a saved model records about its rows: which are held out and from which source, or the user's columns.

    Later commands then read the same columns and do not test on training rows.
    """
    if arguments.task_name:
        if arguments.train_file:
            return {}
        own = [split for split in ("validation", "test") if getattr(arguments, f"{split}_file")]
        splits = {name: getattr(arguments, name) for name in HELD_OUT}
        if arguments.select_on_test and arguments.test_file:  # both splits are the user's rows
            splits["select_on_test"], own = False, ["validation", "test"]
        return splits | {"from_data_dir": bool(arguments.data_dir)} | ({"own_splits": own} if own else {})
    return {"text_columns": list(task.local.text_columns), "label_column": task.local.label_column}


def find_encoder(arguments: RunArguments) -> tuple[str, PreTrainedConfig | None]:
    """Model type, and the configuration of the saved model if the run continues from one; raises InputError if that is
    missing or not one of this package.
    """
    if arguments.encoder:
        return arguments.encoder, None
    name = arguments.model_name_or_path
    config = read_config(name, trust_remote_code=arguments.trust_remote_code)
    if config.problem_type == "multi_label_classification" and not is_encoder(config):
        raise InputError(
            f"the model at {name!r} gives a row several labels, this command one; hf-blosan predict --probabilities "
            "gives those of every label, and transformers' Trainer trains it"
        )
    model_type = encoder_config(config).model_type
    if model_type not in FAMILIES:
        remedy = (
            f"; --encoder and --backbone {name} put one on top of it" if isinstance(arguments, RunArguments) else ""
        )
        raise InputError(
            f"the model at {name!r} is of type {model_type}, not an encoder of this package "
            f"({', '.join(FAMILIES)}){remedy}"
        )
    return model_type, config


def prepare(
    arguments: RunArguments, task: Task, encoder: str, saved_config: PreTrainedConfig | None = None
) -> Preparation:
    """Load the data and build tokenizer and model.

    The options are resolved with the recipe for task and encoder; the other arguments are from `find_task` and
    `find_encoder`. Raises InputError if data, word vectors, tokenizer or a configuration field cannot be used.
    """
    if saved_config is not None and not arguments.task_name:
        task = find_kind(in_order_of(saved_config, task)).continued(saved_config)
    kind, backbone = find_kind(task), find_backbone(arguments)
    if saved_config is not None:
        check_head(arguments, kind, saved_config)
        again = arguments.task_name and arguments.task_name == getattr(saved_config, "finetuning_task", None)
        if again and not arguments.train_file and held_out(arguments, task):
            splits = {option: getattr(arguments, option) for option in HELD_OUT}
            name, trained = str(arguments.model_name_or_path), remembered_rows(saved_config)
            warn_of_other_splits(name, trained, splits, task)
        if "text_columns" in remembered_rows(saved_config) and not arguments.task_name and held_out(arguments, task):
            logger.warning(
                "%s was trained on rows of your own: if rows held out here were among them, their figures are too "
                "good; give validation rows that it has not seen",
                arguments.model_name_or_path,
            )
    dataset, taught = read_rows(arguments, kind)
    if not arguments.task_name:
        warn_of_shared_texts(dataset, kind.task.text_columns)
    if arguments.watch_test and "test" not in dataset:
        raise InputError("--watch_test: there are no test rows; give --test_file, or leave it out.")
    overrides = parse_config_overrides(arguments.config_overrides)
    check_overrides(overrides, encoder)
    overrides.pop("backbone", None)  # it comes from the options
    tokenizer, vectors = make_tokenizer(arguments, kind, dataset["train"], saved_config or backbone, overrides)
    data = kind.encode(dataset, tokenizer, arguments.max_length)
    warn_of_unknown_tokens(data, tokenizer)
    formulation = overrides.get("formulation", getattr(encoder_config(saved_config), "formulation", "released"))
    if overrides.get("block_length") == "auto":
        overrides["block_length"] = fitting_block_length(arguments, kind, data["train"], formulation)
    if saved_config is None:
        proposed = propose_config(arguments, kind, encoder, tokenizer, data["train"], formulation)
        if vectors is not None:
            proposed["embedding_size"] = vectors.width
        if backbone is not None:
            proposed |= {"backbone": arguments.backbone, "backbone_config": backbone}
            proposed |= {"embedding_size": None, "embedding_scale": 1.0}  # the recipe's values are for word vectors
            if encoder == "wordbag" and not overrides.get("dense_map"):
                proposed["hidden_size"] = backbone.hidden_size
        model = make_model(kind, encoder, proposed | overrides, tokenizer)
    else:
        trainable = {"embedding_trainable": arguments.embedding_trainable} if arguments.embedding_trainable else {}
        model = pretrained_model(arguments, kind, saved_config, trainable | overrides, to_train=True)
    kind.check_config(model.config)
    model.config.training_rows = training_rows(arguments, task)
    make_trainable(model, overrides)
    report = None if vectors is None else start_words(arguments, kind, model, tokenizer, vectors, dataset["train"])
    padding = {"padding": "max_length", "max_length": arguments.max_length} if arguments.pad_to_max_length else {}
    collate = kind.collator(tokenizer, **padding)
    if arguments.cache_backbone:
        collate = cached_states(model, data, collate, arguments.cache_backbone)
    return Preparation(kind, encoder, tokenizer, model, data, collate, numbers_of(dataset), report, taught)


def read_rows(arguments: RunArguments, kind: TaskKind) -> tuple[DatasetDict, int]:
    """The rows of the splits, and how many of the training rows, the last ones, a teacher labelled."""
    options = {name: getattr(arguments, name) for name in DATA_OPTIONS}
    if not arguments.distill_from:
        return load_task(kind.task, **options), 0
    # The teacher's texts are compared with every held-out row, so the sample is drawn after that.
    dataset = load_task(kind.task, **options | {"max_eval_samples": None})
    gold = len(dataset["train"])
    dataset["train"] = with_taught_rows(arguments, kind, dataset)
    for split in dataset.keys() - {"train"}:
        dataset[split] = sample(dataset[split], arguments.max_eval_samples, arguments.seed)
    return dataset, len(dataset["train"]) - gold


def make_tokenizer(
    arguments: RunArguments, kind: TaskKind, train: Dataset, config: PreTrainedConfig | None, overrides: dict[str, Any]
) -> tuple[PreTrainedTokenizerBase, WordVectors | None]:
    """The tokenizer, built from the training texts or pretrained, and the word vectors named in the options.

    It gets the limits of ``config``, that of the saved model or the backbone, if any.
    """
    pretrained = arguments.backbone or arguments.tokenizer_name or arguments.model_name_or_path
    if not pretrained:
        return make_vocabulary(arguments, kind, train, overrides.get("embedding_size"))
    tokenizer = load_tokenizer(pretrained, config, trust_remote_code=arguments.trust_remote_code)
    tokenizer = kind.prepare_tokenizer(tokenizer, for_backbone=bool(arguments.backbone))
    check_max_length(arguments.max_length, config)
    # Later commands read as many tokens as training; on a backbone, all that its tokenizer allows.
    on_backbone = getattr(config, "backbone_config", arguments.backbone) is not None
    tokenizer.model_max_length = max(arguments.max_length, tokenizer.model_max_length if on_backbone else 0)
    if config is not None:
        limit_length(tokenizer, config)
    return tokenizer, None


def start_words(
    arguments: RunArguments,
    kind: TaskKind,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    vectors: WordVectors,
    train: Dataset,
) -> dict[str, Any]:
    """Start a model's word table from word vectors; returns what a record says about them."""
    counts = count_words(tokenizer, kind.texts(train))
    matrix, coverage = embedding_matrix(tokenizer, vectors, counts=counts, seed=arguments.seed)
    level = logging.INFO if coverage.with_vector else logging.WARNING  # of another language, or not of words
    logger.log(level, "%s: %s", arguments.word_vectors, coverage)
    model.load_word_vectors(matrix)
    return {"file": Path(arguments.word_vectors).name, "width": vectors.width, "coverage": asdict(coverage)}


def warn_of_unknown_tokens(data: DatasetDict, tokenizer: PreTrainedTokenizerBase) -> None:
    """Warn if many tokens are unknown, in the validation rows if any: a new vocabulary covers all training rows."""
    split = "validation" if "validation" in data else "train"
    counts = ids_of(data[split])
    unknown = counts[tokenizer.unk_token_id] / max(counts.total(), 1)
    if unknown > MANY_UNKNOWN:
        logger.warning(
            "%.0f%% of the tokens of the %s rows are unknown to the tokenizer; give more rows, or with "
            "--tokenizer_name a tokenizer of subwords of their language",
            *(100 * unknown, "training" if split == "train" else split),
        )


def warn_of_shared_texts(dataset: DatasetDict, columns: tuple[str, ...]) -> None:
    """Warn if many held-out rows have the texts of a training row, whatever their case and spaces."""

    def texts(rows: Dataset) -> Iterator[tuple[str, ...]]:
        return zip(*([" ".join(text.lower().split()) for text in rows[column][:]] for column in columns), strict=True)

    if len(dataset) == 1 or not {*columns} <= {*dataset["train"].column_names}:  # tags, and sentences of passages
        return
    train = set(texts(dataset["train"]))
    for split in sorted(dataset.keys() - {"train"}):
        held = list(texts(dataset[split]))
        shared = sum(row in train for row in held)
        if shared > MANY_SHARED * len(held):
            logger.warning(
                "%d of %d %s rows have the text of a training row, which makes their figures too good; remove "
                "duplicates before rows are held out",
                *(shared, len(held), split),
            )


def numbers_of(dataset: DatasetDict) -> dict[str, list[int]]:
    """`Preparation.row_numbers` of the loaded evaluation splits."""
    return {split: rows["row"][:] for split, rows in dataset.items() if split != "train"}


def find_backbone(arguments: RunArguments) -> PreTrainedConfig | None:
    """The configuration of the backbone named in the options, if any; raises InputError if it is missing."""
    if arguments.backbone is None:
        return None
    with loading(arguments.backbone, "backbone"):
        given, _ = PreTrainedConfig.get_config_dict(arguments.backbone)
        if given.get("auto_map") and given.get("model_type") not in CONFIG_MAPPING:
            raise InputError(
                f"--backbone {arguments.backbone} comes with code of its own, which a model saved on top would lack; "
                "give one of a type that transformers has"
            )
        return AutoConfig.from_pretrained(arguments.backbone)


def make_vocabulary(
    arguments: RunArguments, kind: TaskKind, train: Dataset, width: int | None
) -> tuple[PreTrainedTokenizerBase, WordVectors | None]:
    """A tokenizer built from the training texts, and the options' word vectors, of any width or of the given one.

    Raises InputError if the texts contain no words, or the word-vector file is unusable, in general or for this task.
    """
    options = {"model_max_length": arguments.max_length}
    if kind.vocabulary == "word level":
        options["lower_case"] = arguments.lower_case
    elif not arguments.lower_case:
        raise InputError(f"--no_lower_case: the task has a {kind.vocabulary} vocabulary, case included; leave it out")
    tokenizer = kind.build_tokenizer(train, **options)
    if not arguments.word_vectors:
        return tokenizer, None
    if kind.vocabulary != "word level":
        raise InputError(
            f"--word_vectors needs a word-level vocabulary, but the task has a {kind.vocabulary} vocabulary; "
            "leave them out"
        )
    if arguments.vocabulary == "train":
        return tokenizer, read_word_vectors(arguments.word_vectors, words=tokenizer.get_vocab(), width=width)
    vectors = read_word_vectors(arguments.word_vectors, width=width)
    words = [word for word in vectors.words if not arguments.lower_case or word == word.lower()]
    if len(words) < len(vectors.words):
        logger.warning(
            "%s: %d words have capitals and are left out, as texts are read in lower case; --no_lower_case keeps case",
            *(arguments.word_vectors, len(vectors.words) - len(words)),
        )
    return kind.build_tokenizer(train, extra_words=words, **options), vectors


def propose_config(
    arguments: RunArguments,
    kind: TaskKind,
    encoder: str,
    tokenizer: PreTrainedTokenizerBase,
    train: Dataset,
    formulation: str,
) -> dict[str, Any]:
    """Configuration fields of a new model, from the recipe, the task, the vocabulary and the data."""
    task, known = kind.task, {entry.name for entry in fields(config_class(encoder))}
    recipe = task.recipe(encoder, arguments.recipe).for_rows(len(train))
    proposed = {name: value for name, value in asdict(recipe).items() if name in known}
    if arguments.word_vectors:
        del proposed["embedding_scale"]  # it is for vectors that start at random
    proposed |= recipe.config
    subwords = arguments.tokenizer_name or kind.vocabulary != "word level"
    of_words = recipe.embedding_trainable if arguments.word_vectors else None
    default = "none" if arguments.backbone else "all" if subwords else of_words or "train_words"
    trainable = arguments.embedding_trainable or default
    has_fixed_vectors = arguments.word_vectors and trainable == "train_words"
    proposed |= {
        "vocab_size": vocabulary_size(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "unk_token_id": tokenizer.unk_token_id,
        "embedding_trainable": trainable,
        "num_fixed_embeddings": num_fixed_words(tokenizer) if has_fixed_vectors else 0,
        "num_sentences": task.num_sentences,
    }
    if "block_length" in known:
        proposed["block_length"] = fitting_block_length(arguments, kind, train, formulation)
    return proposed | kind.config_fields()


def fitting_block_length(arguments: RunArguments, kind: TaskKind, train: Dataset, formulation: str) -> int:
    """The value of ``block_length="auto"``: Appendix A's optimum for the sentence lengths of the training rows."""
    mean, deviation = kind.length_statistics(train)
    batch_size = arguments.per_device_train_batch_size
    optimum = optimal_block_length(mean, length_std=deviation, batch_size=batch_size)
    return optimum + 1 if formulation == "released" else optimum  # as in the released scripts


def check_overrides(overrides: dict[str, Any], encoder: str) -> None:
    """Raise InputError for fields that the encoder lacks or that the data determine."""
    check_field_names(overrides, config_class(encoder), decided=(*DECIDED_BY_DATA, "backbone_config"))


def make_model(
    kind: TaskKind, encoder: str, config_fields: dict[str, Any], tokenizer: PreTrainedTokenizerBase
) -> PreTrainedModel:
    """A new model with random weights; raises InputError if a field has the wrong type, or fields contradict each
    other.
    """
    try:
        return kind.make_model(encoder, config_fields, tokenizer)
    except StrictDataclassError as error:
        reason = config_problem(error, config_fields, config_class(encoder))
        raise InputError(f"the configuration of {encoder} is impossible: {reason}") from error
    except ValueError as error:
        raise InputError(f"the configuration of {encoder} is impossible: {first_line(error)}") from error
