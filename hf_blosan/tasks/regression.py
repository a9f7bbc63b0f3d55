"""Sentences or pairs with a score."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..data.columns import is_number, row_numbers
from ..errors import InputError
from .base import CLASSIFIER_FIELDS, SCORE_FIELDS
from .classification import Classification, labels_of

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedConfig, PreTrainedModel

    from .task import Task

logger = logging.getLogger(__name__)

MEASURED = {"metrics": ("Pearson", "Spearman", "MeanSquaredError"), "best_metric": "pearson"}
MUCH_BEYOND = 0.05
"""How far beyond the task's range, as a fraction of it, a teacher's score is worth a warning."""
SAME_SCALE = 5
"""Ratio of the wider of two ranges to what they share, below which their scores are on the same scale."""
LARGEST_SCORE = 1e15  # its square fits in float32
NARROW = 0.01
"""The recipes do not learn scores of texts that span less than this, unlike scores from 0 to 1."""


class Regression(Classification):
    """A score per row; the head of pair regression if rows are pairs."""

    column = "score"
    use = "scoring {}"
    unused_fields = (*CLASSIFIER_FIELDS, "passage_block_length", "label_smoothing")

    @classmethod
    def recognises(cls, table, where, names):
        """A column ``score``, or numbers with decimals, which are not class ids."""
        from datasets import ClassLabel

        columns = cls.choose_columns(table, where, names)
        column = columns["label_column"]
        if isinstance(table.features[column], ClassLabel):
            return column == "score"
        if column == "score":
            return True
        labels = table.select_columns(column)[:][column]
        try:
            list(map(float, labels))  # inf and nan, too, which are then refused with their rows
        except (TypeError, ValueError):
            return False
        scores = any("." in str(label) for label in labels)
        if scores and all(float(label).is_integer() for label in labels):
            classes = "if they are classes, write them without decimals or give --do_regression false"
            logger.warning("%s: the labels are whole numbers with decimals, and read as scores; %s", where, classes)
        return scores

    @classmethod
    def task_fields(cls, tables, columns):
        """The range is that of the scores in all tables."""
        labels = labels_of(tables, columns)
        where = next(iter(tables))
        if labels[where] and not any(map(is_number, labels[where])):
            first = labels[where][0]
            remedy = "for classes give --do_regression false"
            if re.fullmatch(r"-?[\d.,]*\d", str(first)):
                remedy = "write numbers with a point before the decimals and nothing between thousands"
            raise InputError(f"{where}: {columns['label_column']} has no number, for example {first!r}; {remedy}")
        scores = [score for where, table in tables.items() for score in cls.checked(labels[where], table, where)]
        found = cls.range_of(scores, where)
        if len(columns["text_columns"]) == 1 and (width := found["score_max"] - found["score_min"]) < NARROW:
            logger.warning(
                "%s: the scores are within %g of each other, where the recipes' learning rates are too high; scale "
                "them, for instance to between 0 and 1",
                *(where, width),
            )
        return found | MEASURED | {"recipe_family": "own_scores"}

    @staticmethod
    def checked(scores: list, table: Dataset, where: str) -> list:
        """The scores of a table; raises InputError if one is not a finite number, or too large to be squared."""
        for row, score in zip(row_numbers(table), scores, strict=True):
            if not is_number(score):
                raise InputError(
                    f"{where}, row {row}: score {score!r} is not a finite number; correct it or remove it"
                )
            if abs(float(score)) > LARGEST_SCORE:
                raise InputError(
                    f"{where}, row {row}: score {score!r} is beyond {LARGEST_SCORE:g}; scale the scores, for instance "
                    "to between 0 and 1"
                )
        return scores

    @staticmethod
    def range_of(scores: list, where: str) -> dict[str, Any]:
        """Fields of a task with the range of these scores; raises InputError if all are the same."""
        lowest, highest = (Decimal(str(bound(map(float, scores)))) for bound in (min, max))
        if lowest == highest:
            score = f"{lowest.normalize():f}"
            raise InputError(f"{where}: every score is {score}; a regression task needs different scores")
        # Outward to whole numbers or, where that is much wider, to the first decimal place of the spread.
        spread = highest - lowest
        for places in (0, max(min(spread.adjusted(), 0), -15)):  # the square of 1e-15 is in the range of float32
            step = Decimal(1).scaleb(places)
            low, high = lowest.quantize(step, ROUND_FLOOR) + 0, highest.quantize(step, ROUND_CEILING) + 0  # + 0: no -0
            if high - low < SAME_SCALE * spread:
                break
        # One class per integer score, as on SICK, but at least 5 and at most 21.
        classes = min(max(int(high - low) + 1, 5), 21)
        return {"score_min": float(low), "score_max": float(high), "num_score_classes": classes}

    @classmethod
    def recognises_config(cls, config):
        return config.problem_type == "regression"

    @classmethod
    def saved_fields(cls, config):
        return {name: getattr(config, name, None) for name in SCORE_FIELDS} | MEASURED

    def for_rows(self, table, where, names):
        """The score of a pair is within the model's range; that of a single text is unbounded."""
        task = super().for_rows(table, where, names)
        if task.num_sentences == 2:
            return task
        scores = self.checked(table[task.local.label_column][:], table, where)
        return replace(task, **self.range_of([task.score_min, task.score_max, *scores], where))

    def label_reader(self, raw, source):
        from datasets import Value

        low, high = self.task.score_min, self.task.score_max

        def read(label):
            return float(label) if is_number(label) and low <= float(label) <= high else None

        return Value("float32"), read, f"score {{!r}} is not a number from {low:g} to {high:g}"

    def strata(self, rows):
        return None

    def check_teacher(self, teacher, name):
        """A model of one number; transformers' own do not say in which range."""
        if teacher.config.num_labels != 1 or not isinstance(teacher, Classification):
            raise InputError(
                f"--distill_from: the model at {name!r} predicts {', '.join(teacher.task.labels)}, the task "
                "has scores; give a model trained on these"
            )
        ranges = [(task.score_min, task.score_max) for task in (teacher.task, self.task)]
        (low, high), (lowest, highest) = ranges
        if low is not None and (low < lowest or high > highest or self.is_of_another_scale(teacher.task)):
            given, wanted = (f"{low:g} to {high:g}" for low, high in ranges)
            raise InputError(
                f"--distill_from: the model at {name!r} predicts scores from {given}, the task has "
                f"{wanted}; give a model trained on these"
            )

    def taught_rows(self, gold, texts, answers, teacher):
        """A teacher's scores, within the range of the task's."""
        from datasets import Dataset

        low, high = self.task.score_min, self.task.score_max
        scores = answers[:, 0].clip(low, high)
        if changed := np.mean(np.abs(scores - answers[:, 0]) > MUCH_BEYOND * (high - low)):
            logger.warning(
                "the teacher's scores of %.1f%% of the texts are beyond %g to %g and become the nearest of these; "
                "does it predict another range?",
                *(100 * changed, low, high),
            )
        return gold, Dataset.from_dict(texts | {"label": scores}, features=gold.features)

    def config_fields(self):
        scores = {name: getattr(self.task, name) for name in SCORE_FIELDS}
        own = {"finetuning_task": self.task.name, "num_labels": 1, "problem_type": "regression"}
        return own | scores

    @property
    def head(self) -> str:
        return "ForPairRegression" if self.task.num_sentences == 2 else "ForSequenceClassification"

    @property
    def half_range(self) -> float:
        """Half of the range of the scores; 1 for pairs, whose head knows the range."""
        return (self.task.score_max - self.task.score_min) / 2 if self.task.num_sentences == 1 else 1.0

    @property
    def loss_scale(self):
        return 1 / self.half_range**2

    def new_head_fields(self, config):
        """A bias, without which a new head could not reach scores far from 0."""
        return {} if config.problem_type == "regression" else {"classifier_bias": True}

    def start_head(self, model):
        """Scores of single sentences start around the middle of the range, scaled to its width."""
        if self.task.num_sentences == 1 and model.classifier.output.bias is not None:
            torch.nn.init.zeros_(model.classifier.output.bias)  # a replaced head may have kept it
        self.map_head(model, -1.0, 1.0)

    def is_of_another_scale(self, saved: PreTrainedConfig | Task) -> bool:
        """Whether a saved model's scores have a range so different that the task's are not on the same scale."""
        task, low, high = self.task, saved.score_min, saved.score_max
        overlap = min(high, task.score_max) - max(low, task.score_min)
        return overlap * SAME_SCALE <= max(high - low, task.score_max - task.score_min)

    def continued(self, saved):
        """Scores of pairs on the scale of the saved model have its range, and more only where theirs is wider."""
        task = self.task
        if not (trained_on_scores(saved) and task.num_sentences == saved.num_sentences == 2):
            return task
        task = replace(task, num_score_classes=saved.num_score_classes)
        if self.is_of_another_scale(saved):
            return task
        low, high = min(saved.score_min, task.score_min), max(saved.score_max, task.score_max)
        return replace(task, score_min=low, score_max=high)

    def continue_head(self, model, saved):
        """Scores move from the saved model's range to the task's; those of single sentences if the scale differs."""
        task, low, high = self.task, saved.score_min, saved.score_max
        differs = (low, high) != (task.score_min, task.score_max)
        if trained_on_scores(saved) and (differs if task.num_sentences == 2 else self.is_of_another_scale(saved)):
            self.map_head(model, low, high)
            ranges = (low, high, task.score_min, task.score_max)
            logger.info("the model's scores are mapped from their range, %g to %g, to the task's, %g to %g", *ranges)

    def map_head(self, model: PreTrainedModel, low: float, high: float) -> None:
        """Map the head's scores from this range to the task's; those of pairs follow from the configuration."""
        if self.task.num_sentences == 1:
            output, factor = model.classifier.output, 2 * self.half_range / (high - low)
            with torch.no_grad():
                getattr(output, "scale", output.weight).mul_(factor)  # of rows in int8
                if output.bias is not None:
                    output.bias.sub_((low + high) / 2).mul_(factor).add_(self.task.score_min + self.half_range)

    def loss(self, output, labels, label_smoothing):
        """The loss of rescaled scores, so that clipping and learning rates do not depend on the task's range."""
        return output.loss * self.loss_scale

    def l2_penalty(self, penalty, model, factor):
        """The penalty on the scale of the loss: the last matrix grows with the range of the scores."""
        if self.task.num_sentences == 2:
            return penalty
        return penalty - (1 - self.loss_scale) * factor / 2 * model.classifier.output.weight.float().square().sum()

    def decode(self, answers):
        return answers.float()[:, 0]

    def lines(self, predictions, tokenizer):
        return (f"{prediction:.7g}" for prediction in predictions)

    @classmethod
    def output_of(cls, run):
        return f" (a score from {run['config']['score_min']} to {run['config']['score_max']})"

    def columns(self, answers, items, tokenizer, *, probabilities=False):
        return {"score": np.stack(answers)[:, 0]}


def trained_on_scores(saved: PreTrainedConfig) -> bool:
    """Whether a saved model has a head for scores, trained by this package."""
    return saved.problem_type == "regression" and bool(getattr(saved, "finetuning_task", None))
