"""What each kind of task adds to a run: model inputs, model, loss, predictions, figures."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import evaluate
import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import DataCollatorForSeq2Seq, EncoderDecoderModel
from transformers.models.encoder_decoder.modeling_encoder_decoder import shift_tokens_right

from ..data import PaddingCollator, encode_dataset, length_statistics, sentence_lengths
from ..errors import InputError
from ..registry import FAMILIES, load
from ..text.tokenization import (
    build_subword_tokenizer,
    build_tokenizer,
    decoder_positions,
    prepare_pretrained_tokenizer,
    put_spaces_before_words,
)
from ..training.optim import l2_penalty
from .encoder_decoder import make_encoder_decoder, translate
from .metrics import task_metrics
from .selection import (
    PassageCollator,
    distinct_passages,
    encode_passages,
    longest_sentences,
    passage_statistics,
    passages_of,
)
from .table import Task
from .tagging import GOLD, NO_TAG, TaggingCollator, all_words, encode_tags
from .tags import decode_tags
from .translation import encode_translations

if TYPE_CHECKING:
    from collections.abc import Callable

    from datasets import Dataset, DatasetDict
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
    from transformers.utils import ModelOutput

PREDICATE_SIZE = 100  # of a new model, if the recipe does not say
SCORE_FIELDS = ("score_min", "score_max", "num_score_classes")
CONFIG_CLASSES = {model_type: load(f"{stem}Config") for model_type, stem in FAMILIES.items()}


class Problem:
    """A kind of task: one label per row, by default. Subclasses override what is different for theirs.

    Args:
        task: the task.

    Attributes:
        vocabulary: how texts are divided into tokens unless a tokenizer is given.
        head: what the class of a model is called after its encoder.
        loss_scale: factor of the model's own loss.
        reference: the column of encoded rows that predictions are compared with.
    """

    vocabulary = "word level"
    head = "ForSequenceClassification"
    loss_scale = 1.0
    reference = "labels"

    def __init__(self, task: Task) -> None:
        self.task = task

    @cached_property
    def metrics(self) -> evaluate.CombinedEvaluations:
        return task_metrics(self.task)

    def build_tokenizer(self, rows: Dataset, **options: Any) -> PreTrainedTokenizerBase:
        """A tokenizer for the training rows; options as in `hf_blosan.text.tokenization.build_tokenizer`."""
        own = {"split_compounds": self.task.split_compounds, "pretokenized": self.task.pretokenized}
        return build_tokenizer(self.texts(rows), **own, **options)

    def prepare_tokenizer(self, tokenizer: PreTrainedTokenizerBase, *, for_backbone: bool) -> PreTrainedTokenizerBase:
        """A pretrained tokenizer in the form that the models need; `for_backbone`: it belongs to one."""
        return prepare_pretrained_tokenizer(tokenizer, for_backbone=for_backbone)

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

    def outputs(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> ModelOutput:
        """What the model computes of a training batch."""
        return model(**batch)

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
        return load(f"{FAMILIES[encoder]}{self.head}")

    def make_model(self, encoder: str, config_fields: dict[str, Any]) -> PreTrainedModel:
        """A new model with random weights."""
        model = self.model_class(encoder)(CONFIG_CLASSES[encoder](**config_fields))
        self.start_head(model)
        return model

    def start_head(self, model: PreTrainedModel) -> None:
        """Adapt the random weights of a new head to the task."""

    def check_config(self, config: PreTrainedConfig) -> None:
        """Raise InputError if a configuration does not fit the rows of the task."""

    def loss(self, output: ModelOutput, labels: torch.Tensor, label_smoothing: float) -> torch.Tensor:
        """The training loss of a batch; `output.loss` is that without label smoothing."""
        if not label_smoothing:
            return output.loss
        return cross_entropy(output.logits.flatten(0, -2), labels.flatten(), label_smoothing=label_smoothing)

    def l2_penalty(self, model: torch.nn.Module, factor: float) -> torch.Tensor:
        """The term of the loss that keeps matrices small."""
        return l2_penalty(model, factor)

    def predict(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """A prediction per row, (B,); or several, (B, N), filled up with -100."""
        return model(**batch).logits.argmax(dim=1)

    def predict_quickly(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """As :meth:`predict`, for the figures in training that select the best model."""
        return self.predict(model, batch)

    def complete(self, predictions: np.ndarray, references: list) -> np.ndarray:
        """Predictions for the rows as they were before they were encoded; mostly the same."""
        return predictions

    def figures(self, predictions: np.ndarray, references: list) -> dict[str, float]:
        """The task's metrics of the predictions, (rows,) or (rows, N), and the rows' `reference`."""
        return self.metrics.compute(predictions=predictions.tolist(), references=references)

    def lines(self, predictions: np.ndarray) -> Iterator[str]:
        """Predictions as text, one per row."""
        return (self.task.labels[prediction] for prediction in predictions)


class Regression(Problem):
    """A score per row; the head of pair regression if rows are pairs."""

    def config_fields(self):
        scores = {name: getattr(self.task, name) for name in SCORE_FIELDS}
        return {"finetuning_task": self.task.name, **scores, "num_labels": 1, "problem_type": "regression"}

    @property
    def head(self) -> str:
        return "ForPairRegression" if self.task.num_sentences == 2 else "ForSequenceClassification"

    @property
    def spread(self) -> float:
        """Half of the range of the scores; the head of pairs knows the range by itself."""
        return (self.task.score_max - self.task.score_min) / 2 if self.task.num_sentences == 1 else 1.0

    @property
    def loss_scale(self):
        return 1 / self.spread**2

    def start_head(self, model):
        """The scores of single sentences start in the middle of the range, and spread over it."""
        if self.task.num_sentences == 1:
            output = model.classifier.output
            with torch.no_grad():
                output.weight *= self.spread
                if output.bias is not None:
                    output.bias.fill_(self.task.score_min + self.spread)

    def loss(self, output, labels, label_smoothing):
        """Of scores on a scale of their own, so that clipping and learning rates do not depend on theirs."""
        return output.loss * self.loss_scale

    def l2_penalty(self, model, factor):
        """The same on that scale: the last matrix is as large as the scores are spread."""
        penalty = super().l2_penalty(model, factor)
        if self.task.num_sentences == 2:
            return penalty
        return penalty - (1 - self.loss_scale) * factor / 2 * model.classifier.output.weight.float().square().sum()

    def predict(self, model, batch):
        return model(**batch).logits.float()[:, 0]

    def lines(self, predictions):
        return (f"{prediction:.4f}" for prediction in predictions)


class Tagging(Problem):
    """A tag for each word; with a predicate in each row if the task has a column of them."""

    head = "ForTokenClassification"
    reference = GOLD

    @property
    def has_predicates(self) -> bool:
        return self.task.local.predicate_column is not None

    def prepare_tokenizer(self, tokenizer, *, for_backbone):
        return put_spaces_before_words(super().prepare_tokenizer(tokenizer, for_backbone=for_backbone))

    def texts(self, rows):
        return all_words(rows)

    def encode(self, dataset, tokenizer, max_length=None):
        splits = {}
        for split, rows in dataset.items():
            options = {"where": f"{split}: ", "for_training": split == "train"}
            splits[split] = encode_tags(rows, tokenizer, max_length, **options)
        return type(dataset)(splits)

    def lengths(self, encoded):
        return np.array([len(ids) for ids in encoded["input_ids"]])

    def collator(self, tokenizer, **padding):
        return TaggingCollator(tokenizer, **padding)

    def make_model(self, encoder, config_fields):
        predicates = {"predicate_size": PREDICATE_SIZE} if self.has_predicates else {}
        return super().make_model(encoder, predicates | config_fields)

    def check_config(self, config):
        size, title = config.predicate_size, self.task.title
        if self.has_predicates and not size:
            raise InputError(
                f"predicate_size is 0, but {title} has predicates; use a model with predicate_size above 0"
            )
        if size and not self.has_predicates:
            raise InputError(
                f"predicate_size is {size}, but {title} has no column of predicates; add predicate_index, or use a "
                "model with predicate_size 0"
            )

    def predict(self, model, batch):
        return decode_tags(model(**batch).logits, self.task.labels, batch["word_mask"])

    def complete(self, predictions, references):
        """The tags of all words of each row; that of a word without a token is `NO_TAG`."""
        found = np.full((len(references), max(len(gold["tags"]) for gold in references)), -100)
        for row, of_tokens, gold in zip(found, predictions, references, strict=True):
            row[: len(gold["tags"])] = NO_TAG
            row[gold["words"]] = of_tokens[of_tokens != -100]
        return found

    def figures(self, predictions, references):
        gold = [self._tags(row["tags"]) for row in references]
        return self.metrics.compute(predictions=list(map(self._tags, predictions.tolist())), references=gold)

    def lines(self, predictions):
        return (" ".join(self._tags(row)) for row in predictions.tolist())

    def _tags(self, ids: list[int]) -> list[str]:
        missing = "O" if "O" in self.task.labels else "_"  # which is wrong, whatever the gold tag is
        return [missing if i == NO_TAG else self.task.labels[i] for i in ids if i != -100]


class Selection(Problem):
    """The sentence of a passage that answers a question; batches are packed."""

    head = "ForSentenceSelection"

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

    def loss(self, output, labels, label_smoothing):
        """Label smoothing is over the sentences of the passage, not over the padding of a batch of passages."""
        if not label_smoothing:
            return output.loss
        # The lowest number of any dtype: in mixed precision the logits have been converted since.
        there = output.logits > torch.finfo(torch.float16).min
        log_probs = torch.where(there, output.logits.float().log_softmax(dim=1), 0.0)
        smooth = -(log_probs.sum(dim=1) / there.sum(dim=1).clamp(min=1)).mean()
        return (1 - label_smoothing) * output.loss + label_smoothing * smooth

    def lines(self, predictions):
        return map(str, predictions)


class Translation(Problem):
    """Translates each row with an encoder-decoder: an encoder of this package, Marian's decoder, one vocabulary."""

    vocabulary = "byte-pair"
    reference = "translation"
    tokenizer: PreTrainedTokenizerBase  # set by encode; predictions and labels are token ids

    def build_tokenizer(self, rows, **options):
        return build_subword_tokenizer(self.texts(rows), **options)

    def prepare_tokenizer(self, tokenizer, *, for_backbone):
        if for_backbone:
            raise InputError("--backbone: a translator has a vocabulary for both of its languages; leave it out")
        return tokenizer

    def texts(self, rows):
        yield from super().texts(rows)
        yield from rows["translation"]

    def encode(self, dataset, tokenizer, max_length=None):
        self.tokenizer = tokenizer
        task_metrics(self.task)  # names a missing package now, not after an epoch
        return encode_translations(dataset, tokenizer, max_length=max_length)

    def lengths(self, encoded):
        return super().lengths(encoded) + [len(ids) for ids in encoded[:]["labels"]]

    def collator(self, tokenizer, **padding):
        if "max_length" in padding:  # the decoder has no more positions
            padding["max_length"] = min(padding["max_length"], decoder_positions(tokenizer))
        return DataCollatorForSeq2Seq(tokenizer, **padding)

    def config_fields(self):
        return {"finetuning_task": self.task.name}

    def model_class(self, encoder):
        return EncoderDecoderModel

    def make_model(self, encoder, config_fields):
        own = {name: config_fields[name] for name in self.config_fields()}
        fields = {name: value for name, value in config_fields.items() if name not in own}
        return make_encoder_decoder(CONFIG_CLASSES[encoder](**fields), self.tokenizer, **own)

    def outputs(self, model, batch):
        """Leaves out the labels; given them, the model would also compute its own loss."""
        inputs = {name: value for name, value in batch.items() if name != "labels"}
        ids = self.tokenizer.pad_token_id, self.tokenizer.bos_token_id
        return model(**inputs, decoder_input_ids=shift_tokens_right(batch["labels"], *ids))

    def loss(self, output, labels, label_smoothing):
        """Mean cross entropy of the batch's tokens."""
        return cross_entropy(output.logits.flatten(0, 1), labels.flatten(), label_smoothing=label_smoothing)

    def predict(self, model, batch, **search):
        """Token ids of the translations."""
        found = translate(model, batch, **search)
        return found.masked_fill(found == self.tokenizer.pad_token_id, -100)

    def predict_quickly(self, model, batch):
        """By greedy search, which takes less time than beams."""
        return self.predict(model, batch, num_beams=1)

    def figures(self, predictions, references):
        return self.metrics.compute(predictions=self.decode(predictions.tolist()), references=references)

    def lines(self, predictions):
        return (" ".join(text.split()) for text in self.decode(predictions.tolist()))

    def decode(self, rows: list[list[int]]) -> list[str]:
        """Token ids, filled up with -100, as text."""
        kept = [[token for token in row if token != -100] for row in rows]
        return self.tokenizer.batch_decode(kept, skip_special_tokens=True)


PROBLEMS: dict[str, type[Problem]] = {
    "classification": Problem,
    "regression": Regression,
    "tagging": Tagging,
    "selection": Selection,
    "translation": Translation,
}
"""The class for each `Task.problem`."""


def find_problem(task: Task) -> Problem:
    """The kind of a task."""
    return PROBLEMS[task.problem](task)
