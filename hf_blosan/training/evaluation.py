"""Predictions and figures of a model on the evaluation splits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader
from tqdm.auto import tqdm

from .preparation import row_lengths

if TYPE_CHECKING:
    from accelerate import Accelerator

    from .preparation import Preparation


@dataclass(frozen=True)
class EvaluationSplit:
    """A split prepared for prediction.

    Attributes:
        name: prefix of its figures, for example `validation` or `validation_mismatched`.
        loader: batches without labels, sorted by length to reduce padding.
        order: the data set's row number of the loader's i-th row.
        references: labels in data-set order.
    """

    name: str
    loader: DataLoader
    order: np.ndarray
    references: np.ndarray


class Evaluator:
    """Evaluates models on the evaluation splits of a task; the first split selects the best model.

    Args:
        preparation: encoded data, collator and task.
        batch_size: rows per batch and process.
        accelerator: distributes batches over the processes and gathers predictions.
        metrics: object whose `compute(predictions=, references=)` returns a dict of figures.
        watch_test: whether `validate` gives the figures on the test split too. They select nothing.
    """

    def __init__(
        self,
        preparation: Preparation,
        batch_size: int,
        accelerator: Accelerator,
        metrics: Any,
        *,
        watch_test: bool = False,
    ) -> None:
        self.accelerator = accelerator
        self.task = preparation.task
        self.metrics = metrics
        names = figure_names(self.task.evaluation_splits)
        names |= {"test": "test"} if "test" in preparation.data else {}
        self.splits = [self._split(preparation, split, name, batch_size) for split, name in names.items()]
        self.watched = [self.splits[0], *(split for split in self.splits if watch_test and split.name == "test")]

    @property
    def best_metric(self) -> str:
        """Name of the figure that selects the best model."""
        return f"{self.splits[0].name}_{self.task.best_metric}"

    def validate(self, model: torch.nn.Module) -> dict[str, float]:
        """Figures on the selecting split, and on the test split if it is watched."""
        figures = {}
        for split in self.watched:
            figures |= self._figures(split, self.predict(model, split))
        return figures

    def measure(self, model: torch.nn.Module) -> tuple[dict[str, float], np.ndarray | None]:
        """Figures on all splits, and the predictions on the test split if there is one."""
        figures, test_predictions = {}, None
        for split in self.splits:
            predictions = self.predict(model, split)
            figures |= self._figures(split, predictions)
            if split.name == "test":
                test_predictions = predictions
        return figures, test_predictions

    @torch.no_grad()
    def predict(self, model: torch.nn.Module, split: EvaluationSplit) -> np.ndarray:
        """Predicted classes or scores, shape (rows,), in data-set order; switches the model to eval mode."""
        model.eval()
        gather = self.accelerator.gather_for_metrics
        batches = tqdm(split.loader, desc=split.name, leave=False, disable=not self.accelerator.is_local_main_process)
        by_length = np.concatenate([gather(model(**batch).logits.float()).cpu().numpy() for batch in batches])
        logits = np.empty_like(by_length)
        logits[split.order] = by_length
        return logits[:, 0] if self.task.problem == "regression" else logits.argmax(axis=1)

    def _figures(self, split: EvaluationSplit, predictions: np.ndarray) -> dict[str, float]:
        computed = self.metrics.compute(predictions=predictions.tolist(), references=split.references.tolist())
        return {f"{split.name}_{metric}": float(value) for metric, value in computed.items()}

    def _split(self, preparation: Preparation, split: str, name: str, batch_size: int) -> EvaluationSplit:
        encoded = preparation.data[split]
        # Longest rows first, so that running out of memory shows in the first batch.
        order = np.argsort(-row_lengths(encoded), kind="stable")
        rows = encoded.remove_columns("labels").select(order)
        # Without its own generator a loader draws from the global one, and dropout would change.
        loader = DataLoader(
            rows, batch_size=batch_size, collate_fn=preparation.collate, generator=torch.Generator().manual_seed(0)
        )
        references = np.asarray(encoded[:]["labels"])
        return EvaluationSplit(name, self.accelerator.prepare_data_loader(loader), order, references)


def figure_names(splits: tuple[str, ...]) -> dict[str, str]:
    """Split -> prefix of its figures; with two validation splits (MNLI) the first is the matched one."""
    names = {split: split for split in splits}
    return names if len(splits) == 1 else names | {"validation": "validation_matched"}
