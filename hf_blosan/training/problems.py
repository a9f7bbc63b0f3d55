"""What each kind of task adds to a run: model inputs, model, loss, predictions, figures."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import evaluate
import numpy as np
import torch
from torch.nn.functional import cross_entropy

from ..auto import ENCODERS
from ..data import PaddingCollator, encode_dataset, length_statistics, sentence_lengths
from ..data.selection import (
    PassageCollator,
    distinct_passages,
    encode_passages,
    longest_sentences,
    passage_statistics,
    passages_of,
)
from ..metrics import task_metrics
from ..tasks import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from datasets import Dataset, DatasetDict
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from transformers.utils import ModelOutput

SCORE_FIELDS = ("score_min", "score_max", "num_score_classes")
CLASSES = {classes[0].model_type: classes for classes in ENCODERS}
CONFIG_CLASSES = {model_type: config for model_type, (config, *_) in CLASSES.items()}


class Problem:
    """A kind of task: one label per row, by default. Subclasses override what is different for theirs.

    Args:
        task: the task.
    """

    def __init__(self, task: Task) -> None:
        self.task = task

    @cached_property
    def metrics(self) -> evaluate.CombinedEvaluations:
        return task_metrics(self.task)

    def texts(self, rows: Dataset) -> Iterator[str]:
        """All texts of a split, from which the vocabulary is built."""
        for column in self.task.text_columns:
            yield from rows[column]

    def encode(
        self, dataset: DatasetDict, tokenizer: PreTrainedTokenizerBase, max_length: int | None = None
    ) -> DatasetDict:
        """Loaded splits as inputs of the model, and `labels`."""
        return encode_dataset(dataset, tokenizer, max_length=max_length)

    def lengths(self, encoded: Dataset) -> np.ndarray:
        """Cost of each row in tokens, (rows,); the sentences of a pair are padded to the longer."""
        return sentence_lengths(encoded).max(axis=1)

    def groups(self, encoded: Dataset) -> np.ndarray | None:
        """Number of each row's group, (rows,), whose rows cost less in one batch; `None`: there are no groups."""
        return None

    def length_statistics(self, encoded: Dataset) -> tuple[float, float]:
        """Mean and standard deviation of the tokens per sentence."""
        return length_statistics(encoded)

    def collator(self, tokenizer: PreTrainedTokenizerBase, **padding: Any) -> Callable[[list[dict]], Any]:
        """The function that pads a list of encoded rows into a batch."""
        return PaddingCollator(tokenizer, num_sentences=self.task.num_sentences, **padding)

    def config_fields(self) -> dict[str, Any]:
        """Configuration fields that depend only on the task."""
        names = dict(enumerate(self.task.labels))
        return {
            "finetuning_task": self.task.name,
            "id2label": names,
            "label2id": {name: i for i, name in names.items()},
            "problem_type": "single_label_classification",
        }

    def model_class(self, encoder: str) -> type[PreTrainedModel]:
        """The class with that encoder and the head of this kind of task."""
        _, _, classifier, *_ = CLASSES[encoder]
        return classifier

    def make_model(self, encoder: str, config_fields: dict[str, Any]) -> PreTrainedModel:
        """A new model with random weights."""
        return self.model_class(encoder)(CONFIG_CLASSES[encoder](**config_fields))

    def loss(self, output: ModelOutput, labels: torch.Tensor, label_smoothing: float) -> torch.Tensor:
        """The training loss of a batch; `output.loss` is that without label smoothing."""
        if not label_smoothing:
            return output.loss
        return cross_entropy(output.logits, labels, label_smoothing=label_smoothing)

    def predict(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """A prediction per row, (B,); or several, (B, N), filled up with -100."""
        return model(**batch).logits.argmax(dim=1)

    def figures(self, predictions: np.ndarray, references: list) -> dict[str, float]:
        """The task's metrics of the predictions, (rows,) or (rows, N), and the rows' labels."""
        return self.metrics.compute(predictions=predictions.tolist(), references=references)

    def lines(self, predictions: np.ndarray) -> Iterator[str]:
        """Predictions as text, one per row."""
        return (self.task.labels[prediction] for prediction in predictions)


class Regression(Problem):
    """A score per row; the head of pair regression if rows are pairs."""

    def config_fields(self):
        scores = {name: getattr(self.task, name) for name in SCORE_FIELDS}
        return {"finetuning_task": self.task.name, **scores, "num_labels": 1, "problem_type": "regression"}

    def model_class(self, encoder):
        _, _, classifier, regressor, _ = CLASSES[encoder]
        return regressor if self.task.num_sentences == 2 else classifier

    def loss(self, output, labels, label_smoothing):
        return output.loss

    def predict(self, model, batch):
        return model(**batch).logits.float()[:, 0]

    def lines(self, predictions):
        return (f"{prediction:.4f}" for prediction in predictions)


class Selection(Problem):
    """The sentence of a passage that answers a question; batches are packed."""

    def texts(self, rows):
        yield from rows["question"]
        for sentences in distinct_passages(rows)["sentences"]:
            yield from sentences

    def encode(self, dataset, tokenizer, max_length=None):
        return encode_passages(dataset, tokenizer, max_length=max_length)

    def lengths(self, encoded):
        return longest_sentences(encoded)

    def groups(self, encoded):
        return passages_of(encoded)

    def length_statistics(self, encoded):
        return passage_statistics(encoded)

    def collator(self, tokenizer, **padding):
        return PassageCollator(tokenizer, padding)

    def config_fields(self):
        return {"finetuning_task": self.task.name, "num_labels": 1}

    def model_class(self, encoder):
        *_, selector = CLASSES[encoder]
        return selector

    def loss(self, output, labels, label_smoothing):
        """Label smoothing is over the sentences of the passage, not over the padding of a batch of passages."""
        if not label_smoothing:
            return output.loss
        there = output.logits > torch.finfo(output.logits.dtype).min
        log_probs = torch.where(there, output.logits.float().log_softmax(dim=1), 0.0)
        smooth = -(log_probs.sum(dim=1) / there.sum(dim=1).clamp(min=1)).mean()
        return (1 - label_smoothing) * output.loss + label_smoothing * smooth

    def lines(self, predictions):
        return map(str, predictions)


PROBLEMS: dict[str, type[Problem]] = {"classification": Problem, "regression": Regression, "selection": Selection}
"""The class for each `Task.problem`."""


def find_problem(task: Task) -> Problem:
    """The kind of a task."""
    return PROBLEMS[task.problem](task)
