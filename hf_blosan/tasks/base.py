"""The base class of the kinds of tasks: everything specific to one, from its columns to its card.

The kinds are in :data:`hf_blosan.tasks.kinds.KINDS`; the data of a task are a :class:`hf_blosan.tasks.task.Task`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..data.columns import ColumnNames
from ..errors import InputError
from ..registry import FAMILIES, load
from .task import Source, Task

if TYPE_CHECKING:
    import evaluate
    import numpy as np
    from datasets import Dataset, DatasetDict
    from torch import Tensor, nn
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
    from transformers.utils import ModelOutput

logger = logging.getLogger(__name__)

SCORE_FIELDS = ("score_min", "score_max", "num_score_classes")
CLASSIFIER_FIELDS = ("pair_features", "classifier_highway", "classifier_bias")
"""Fields of the configuration that only heads of scores use, and that only heads of classes use."""


def config_class(encoder: str) -> type[PreTrainedConfig]:
    """The class of an encoder's configuration."""
    return load(f"{FAMILIES[encoder]}Config")


def log_columns(where: str, columns: Mapping[str, Any], column: str | None) -> None:
    """Log which columns are read; ``column``: what the last of them has, as in :attr:`TaskKind.column`."""
    texts, labels = columns["text_columns"], columns["label_column"]
    what = "texts" if len(texts) == 1 else "pairs of texts"
    logger.info("%s: %s from %s, %s from %s", where, what, " and ".join(texts), column or "labels", labels)


class TaskKind(ABC):
    """Everything specific to a kind of task: one subclass per kind, its instances bound to a task.

    The class defines a task (:meth:`recognises`, :meth:`choose_columns`, :meth:`task_fields`); instances come from
    ``kind_of`` for a saved model and ``find_kind`` for a task. Rows pass through :meth:`normalise`,
    :meth:`encode`, :meth:`collator`, the model, :meth:`infer` and :meth:`decode`; rows to predict without labels
    through :meth:`choose_texts`, :meth:`tokenize`, the same collator, and :meth:`columns`.

    Args:
        task: the task.
        config: of a saved model, if there is one.

    Attributes:
        head: suffix of the model's class name, after the encoder's.
        auto_class: the Auto class of transformers that loads such a model.
        pipeline: the pipeline of transformers that runs it.
        vocabulary: how texts are divided into tokens unless a tokenizer is given.
        loss_scale: factor of the model's own loss.
        reference: the column of encoded rows that predictions are compared with.
        column: name of the predictions in an output; ``None`` for labels, which have probabilities.
        flat: whether a prediction fits into a CSV cell.
        use: what a model is for, in its card; ``{}`` stands for the texts of a row.
        own_code: whether a saved model carries the code of its encoder.
        unused_fields: fields of the configuration that a model does not use, and options that training does not.
        other_uses: what commands that do not take such a model say; ``None`` if all take it.
        gives_vectors: whether the model without its head gives sentence vectors.
        has_graph: whether the model has the inputs, (B, N), that ONNX export supports.
    """

    head = "ForSequenceClassification"
    auto_class = "AutoModelForSequenceClassification"
    pipeline = "text-classification"
    vocabulary = "word level"
    loss_scale = 1.0
    reference = "labels"
    column: str | None = None
    flat = True
    use = "classifying {}"
    own_code = True
    unused_fields: tuple[str, ...] = ()
    other_uses: str | None = None
    gives_vectors = True
    has_graph = True

    def __init__(self, task: Task, config: PreTrainedConfig | None = None):
        self.task, self.config = task, config

    # A user's own data, and saved models

    @classmethod
    def recognises(cls, table: Dataset, where: str, names: ColumnNames) -> bool:
        """Whether a user's rows, as read, are of this kind."""
        return False

    @classmethod
    def choose_columns(cls, table: Dataset, where: str, names: ColumnNames) -> dict[str, Any]:
        """The columns of a user's rows, as fields of a :class:`Source`; raises InputError if one is missing."""
        raise NotImplementedError(f"{cls.__name__} must implement choose_columns if it recognises any rows")

    @classmethod
    def has_gold(cls, table: Dataset, columns: Mapping[str, Any]) -> bool:
        """Whether any row has a gold label."""
        return columns["label_column"] in table.column_names

    @classmethod
    def task_fields(cls, tables: Mapping[str, Dataset], columns: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of a :class:`Task` with the rows of these tables (name in messages -> rows, training rows first);
        raises InputError if the rows define no task.
        """
        raise NotImplementedError(f"{cls.__name__} must implement task_fields if it recognises any rows")

    @classmethod
    def recognises_config(cls, config: Any) -> bool:
        """Whether the model with this configuration is of this kind."""
        return any(name.endswith(cls.head) for name in config.architectures or ())

    @classmethod
    def saved_fields(cls, config: Any) -> dict[str, Any]:
        """Fields of a saved model's :class:`Task`, from its configuration."""
        return {}

    def for_rows(self, table: Dataset, where: str, names: ColumnNames) -> Task:
        """The task of a saved model on a user's rows; raises InputError if they do not fit."""
        try:
            columns = self.choose_columns(table, where, self.with_trained_columns(names, table))
        except InputError as error:
            use = self.use.format("pairs of sentences" if self.task.num_sentences == 2 else "sentences")
            raise InputError(f"{error}, or choose other rows: the model is for {use}") from error
        source = Source(location="", splits={}, **columns)
        log_columns(where, columns, self.column)
        return replace(self.task, local=source, num_sentences=len(source.text_columns))

    def with_trained_columns(self, names: ColumnNames, table: Dataset) -> ColumnNames:
        """The named columns, or else the training columns that the rows have."""
        texts, label = self.task.local.text_columns, self.task.local.label_column
        if not names.text and texts and set(texts) <= set(table.column_names):
            names = replace(names, **dict(zip(("text", "text_pair"), texts, strict=False)))
        return replace(names, label=label) if label in table.column_names and not names.label else names

    # Distillation

    def check_teacher(self, teacher: TaskKind, name: str) -> None:
        """Raise InputError if the labels of a teacher, a saved model of that name, are not those of the task."""
        raise InputError(
            "--distill_from needs a task with a label or a score for each text or pair, and this one is of another "
            "kind; leave it and --unlabeled_file out"
        )

    def taught_rows(
        self, gold: Dataset, texts: Mapping[str, Sequence[Any]], answers: np.ndarray, teacher: TaskKind
    ) -> tuple[Dataset, Dataset]:
        """The loaded training rows, and texts with a teacher's answers as labels, with the same columns.

        ``texts`` has the columns of the texts, and `row`; ``answers`` are the logits for them, (texts, labels), of a
        teacher that :meth:`check_teacher` accepts.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement taught_rows if check_teacher accepts any")

    # From rows to batches

    @abstractmethod
    def normalise(self, raw: Dataset, source: Source, where: str) -> Dataset:
        """Rows as read, with the package's columns and ``row``, the row number in the file.

        ``source`` has the names of the columns as read; ``where`` describes the rows in error messages. Raises
        InputError if a column is missing, or a cell is invalid.
        """

    def row_groups(self, rows: Dataset) -> tuple[Sequence[int], str] | None:
        """The group id of each row, (rows,), and what groups are called; ``None`` without groups.

        Groups are held out as a whole, because training on some of a group's rows reveals the others.
        """
        return None

    def strata(self, rows: Dataset) -> list[int] | None:
        """The class of each row, by which held-out rows are stratified; ``None`` without classes."""
        return None

    def texts(self, rows: Dataset) -> Iterator[str]:
        """All texts of a split, from which the vocabulary is built."""
        for column in self.task.text_columns:
            yield from rows[column][:]  # at once: iterating over `rows[column]` reads row by row

    def build_tokenizer(self, rows: Dataset, **options: Any) -> PreTrainedTokenizerBase:
        """A tokenizer for the training rows; options as in :func:`hf_blosan.text.tokenization.build_tokenizer`."""
        from ..text.tokenization import build_tokenizer

        return build_tokenizer(self.texts(rows), split_compounds=self.task.split_compounds, **options)

    def prepare_tokenizer(self, tokenizer: PreTrainedTokenizerBase, *, for_backbone: bool) -> PreTrainedTokenizerBase:
        """A pretrained tokenizer in the form that the models need; `for_backbone`: it belongs to one."""
        from ..text.tokenization import prepare_pretrained_tokenizer

        return prepare_pretrained_tokenizer(tokenizer, for_backbone=for_backbone)

    @abstractmethod
    def encode(
        self, dataset: DatasetDict, tokenizer: PreTrainedTokenizerBase, max_length: int | None = None
    ) -> DatasetDict:
        """Loaded splits as model inputs and `labels`; `max_length` defaults to the tokenizer's limit."""

    @abstractmethod
    def lengths(self, encoded: Dataset) -> np.ndarray:
        """Cost of each row in tokens, (rows,)."""

    def groups(self, encoded: Dataset) -> np.ndarray | None:
        """Group id of each row, (rows,); rows of a group cost less in one batch. `None` without groups."""
        return None

    def length_statistics(self, encoded: Dataset) -> tuple[float, float]:
        """Mean and standard deviation of the tokens per sentence."""
        from ..data.batching import length_statistics

        return length_statistics(encoded)

    def collator(self, tokenizer: PreTrainedTokenizerBase, **padding: Any) -> Callable[[list[dict]], Any]:
        """The function that pads a list of encoded rows into a batch."""
        from ..data.batching import PaddingCollator

        return PaddingCollator(tokenizer, num_sentences=self.task.num_sentences, **padding)

    # The model and its loss

    def config_fields(self) -> dict[str, Any]:
        """Configuration fields that depend only on the task."""
        return {"finetuning_task": self.task.name}

    def model_class(self, encoder: str) -> type[PreTrainedModel]:
        """The model class of that encoder with the head of this kind of task."""
        return load(f"{FAMILIES[encoder]}{self.head}")

    def make_model(
        self, encoder: str, config_fields: dict[str, Any], tokenizer: PreTrainedTokenizerBase
    ) -> PreTrainedModel:
        """A new model with random weights."""
        model = self.model_class(encoder)(config_class(encoder)(**config_fields))
        self.start_head(model)
        return model

    def start_head(self, model: PreTrainedModel) -> None:
        """Adapt the random weights of a new head to the task."""
        return

    def continued(self, saved: PreTrainedConfig) -> Task:
        """The task of the user's rows, as used to train a saved model further."""
        return self.task

    def continue_head(self, model: PreTrainedModel, saved: PreTrainedConfig) -> None:
        """Adapt a saved head to the task before it is trained further; `saved` is its configuration."""
        return

    def new_head_fields(self, config: PreTrainedConfig) -> dict[str, Any]:
        """Configuration fields that a saved model needs for a new head of this kind."""
        return {}

    def check_config(self, config: PreTrainedConfig) -> None:
        """Raise InputError if a configuration does not fit the rows of the task."""
        return

    def outputs(self, model: nn.Module, batch: dict[str, Tensor]) -> ModelOutput:
        """The model's output for a training batch."""
        return model(**batch)

    def loss(self, output: ModelOutput, labels: Tensor, label_smoothing: float) -> Tensor:
        """The training loss of a batch: the model's own where it has one and there is no label smoothing.

        Otherwise the mean cross entropy; labels are class ids, (B) or (B, N), or probabilities, (B, labels).
        """
        from torch.nn.functional import cross_entropy

        if output.loss is not None and not label_smoothing:
            return output.loss
        logits, last = output.logits.float(), output.logits.dim() - 2
        return cross_entropy(logits.flatten(0, last), labels.flatten(0, last), label_smoothing=label_smoothing)

    def l2_penalty(self, penalty: Tensor, model: PreTrainedModel, factor: float) -> Tensor:
        """The L2 term of the loss; `penalty` is that of all regularised matrices, with this factor."""
        return penalty

    # Predictions and figures

    def infer(self, model: nn.Module, batch: dict[str, Tensor], *, quick: bool = False) -> Tensor:
        """The model's answer for each row of a batch without labels, (B, ...); for most kinds, the logits.

        The model has the head of this kind, and ``batch`` is from the collator. ``quick`` asks for a faster search,
        for the validation metrics during training.
        """
        return model(**batch).logits

    def decode(self, answers: Tensor) -> Tensor:
        """Answers as predictions: whole numbers, (B,), or (B, N) with -100 where a row has fewer."""
        return answers.argmax(dim=1)

    def complete(self, predictions: np.ndarray, references: list) -> np.ndarray:
        """Predictions for the rows before encoding; usually unchanged."""
        return predictions

    @cached_property
    def metrics(self) -> evaluate.CombinedEvaluations:
        """The task's metrics as one object; raises InputError if a package is missing."""
        from .metrics import task_metrics

        return task_metrics(self.task)

    def figures(
        self, predictions: np.ndarray, references: list, tokenizer: PreTrainedTokenizerBase
    ) -> dict[str, float]:
        """The task's metrics of the predictions, (rows,) or (rows, N), and the rows' `reference`."""
        return self.metrics.compute(predictions=predictions.tolist(), references=references)

    def lines(self, predictions: np.ndarray, tokenizer: PreTrainedTokenizerBase) -> Iterator[str]:
        """Predictions as text, one per row."""
        return (self.task.labels[prediction] for prediction in predictions)

    # Prediction without labels

    @abstractmethod
    def choose_texts(
        self, head: list[dict[str, Any]], where: str, names: ColumnNames
    ) -> tuple[tuple[str, ...], Callable[[dict[str, Any], int], tuple]]:
        """The columns to read, and a function from a row and its number to the item to predict.

        ``head`` are the first rows, ``where`` describes them in error messages, ``names`` are the columns that the
        user names. Raises InputError if a column is missing; the function raises it for an invalid cell.
        """

    def cut(self, item: tuple, limit: int, side: str) -> tuple:
        """An item whose texts are cut well beyond a limit of tokens; `side`: the truncation side."""
        return item

    def sizes(self, items: Sequence[tuple]) -> Iterable[int]:
        """Characters of each item; their sum limits how many items are tokenized at once."""
        return (sum(map(len, item)) for item in items)

    @abstractmethod
    def tokenize(
        self, items: Sequence[tuple], tokenizer: PreTrainedTokenizerBase, limit: int
    ) -> tuple[list[dict[str, Any]], list[int]]:
        """Items as rows of at most `limit` token ids, and the original lengths of the truncated ones."""

    def trim(self, answer: np.ndarray, row: dict[str, Any]) -> np.ndarray:
        """The answer for a row of token ids, (...), without the padding of its batch."""
        return answer

    @abstractmethod
    def columns(
        self,
        answers: Sequence[np.ndarray],
        items: Sequence[tuple],
        tokenizer: PreTrainedTokenizerBase,
        *,
        probabilities: bool = False,
    ) -> dict[str, Any]:
        """What ``predict`` writes for some rows: columns of equal length.

        ``answers`` are from :meth:`infer` and :meth:`trim`, one per row, computed from ``items``; ``probabilities``
        adds the probability of every class.
        """

    # Cards; `run` is the record of a training run

    @classmethod
    def input_of(cls, run: Mapping[str, Any]) -> str:
        """What a row is."""
        return "a pair of sentences" if run["task"]["num_sentences"] == 2 else "one sentence"

    @classmethod
    def output_of(cls, run: Mapping[str, Any]) -> str:
        """What is predicted, in parentheses after the title of the task."""
        return ""

    @classmethod
    def examples(cls, task: Mapping[str, Any]) -> list[dict[str, str]] | None:
        """Example inputs for the model's page and snippet; ``None`` for none."""
        return None

    @classmethod
    def snippet(cls, run: Mapping[str, Any], location: str, example: Mapping[str, str] | None) -> str:
        """Python code that loads the model and uses it."""
        return cls.loading_snippet(location)

    @classmethod
    def loading_snippet(cls, location: str) -> str:
        """Python code that loads model and tokenizer, with the code saved with the model."""
        return (
            f'model = {cls.auto_class}.from_pretrained("{location}", trust_remote_code=True)\n'
            f'tokenizer = AutoTokenizer.from_pretrained("{location}", trust_remote_code=True)'
        )
