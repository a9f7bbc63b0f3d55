"""Predictions and figures of a model on the evaluation splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from tqdm.auto import tqdm

from ..errors import fitting
from ..hub.finite import NotFinite, refuse_not_finite
from .preparation import Preparation


@dataclass(frozen=True)
class EvaluationSplit:
    """A split prepared for prediction.

    Attributes:
        name: prefix of its figures, for example `validation` or `validation_mismatched`.
        loader: batches without labels, sorted by length to reduce padding.
        order: the data set's row number of the loader's i-th row.
        references: what the predictions are compared with, in data-set order, one or several per row.
        numbers: row numbers in the file, in data-set order.
    """

    name: str
    loader: DataLoader
    order: np.ndarray
    references: list
    numbers: Sequence[int]


class Evaluator:
    """Evaluates models on the evaluation splits of a task; the first of them, if any, selects the best model.

    Args:
        preparation: encoded data, collator and task.
        batch_size: rows per batch and process.
        accelerator: distributes batches over the processes and gathers predictions.
        watch_test: whether `validate` also reports the test split, without effect on model selection.
        bars: whether to show progress bars.
    """

    def __init__(
        self,
        preparation: Preparation,
        batch_size: int,
        accelerator: Accelerator,
        *,
        watch_test: bool = False,
        bars: bool = True,
    ) -> None:
        self.accelerator = accelerator
        self.bars = bars and accelerator.is_local_main_process
        self.kind, self.task, self.tokenizer = preparation.kind, preparation.task, preparation.tokenizer
        splits = dict.fromkeys((*self.task.evaluation_splits, "test"))
        splits = [split for split in splits if split in preparation.data]
        # Of two validation splits (MNLI) the first is the matched one.
        matched = {"validation": "validation_matched"} if "validation_mismatched" in splits else {}
        self.splits = [self._split(preparation, split, matched.get(split, split), batch_size) for split in splits]
        self.selecting = self.splits[:1] if self.task.evaluation_splits else []
        self.watched = [*self.selecting, *(split for split in self.splits if watch_test and split.name == "test")]

    @property
    def best_metric(self) -> str | None:
        """Name of the figure that selects the best model, if there are validation data."""
        return f"{self.selecting[0].name}_{self.task.best_metric}" if self.selecting else None

    def validate(self, model: torch.nn.Module) -> dict[str, float]:
        """Figures on the selecting split, and on the test split with `watch_test`."""
        figures = {}
        for split in self.watched:
            figures |= self._figures(split, self.predict(model, split, quick=True))
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
    def predict(self, model: torch.nn.Module, split: EvaluationSplit, *, quick: bool = False) -> np.ndarray:
        """Predictions of the rows, (rows,) or (rows, N), in data-set order; switches the model to eval mode.

        Raises InputError if a batch does not fit into the memory; and NotFinite, with the number of the row, if an
        output is not finite.
        """
        model.eval()
        batches = tqdm(split.loader, desc=split.name, leave=False, disable=not self.bars)
        by_length = []
        with refuse_not_finite(model):
            for batch in batches:
                try:
                    with fitting("a batch", "give a smaller --per_device_eval_batch_size or --max_length"):
                        answers = self.kind.infer(model, batch, quick=quick)
                    by_length.append(self._gathered(self.kind.decode(answers)))
                except NotFinite as error:
                    size = len(batch.get("question_attention_mask", batch["attention_mask"]))
                    before = sum(map(len, by_length))
                    row = split.order[before + self.accelerator.process_index * size + error.of(size)]
                    raise error.at(f"{split.name}, row {split.numbers[row]}") from error
        width = max(part.shape[1] for part in by_length) if by_length[0].ndim == 2 else None
        shape = (len(split.order),) if width is None else (len(split.order), width)
        predictions, start = np.full(shape, -100, dtype=by_length[0].dtype), 0
        for part in by_length:
            rows = split.order[start : start + len(part)]
            predictions[rows if width is None else (rows[:, None], np.arange(part.shape[1]))] = part
            start += len(part)
        return self.kind.complete(predictions, split.references)

    def _gathered(self, predictions: torch.Tensor) -> np.ndarray:
        """The predictions of all processes for a batch."""
        if predictions.dim() == 2:
            predictions = self.accelerator.pad_across_processes(predictions, dim=1, pad_index=-100)
        return self.accelerator.gather_for_metrics(predictions).cpu().numpy()

    def _figures(self, split: EvaluationSplit, predictions: np.ndarray) -> dict[str, float]:
        computed = self.kind.figures(predictions, split.references, self.tokenizer)
        return {f"{split.name}_{metric}": float(value) for metric, value in computed.items()}

    def _split(self, preparation: Preparation, split: str, name: str, batch_size: int) -> EvaluationSplit:
        encoded = preparation.data[split]
        # Longest rows first, so that running out of memory shows in the first batch.
        order = np.argsort(-self.kind.lengths(encoded), kind="stable")
        rows = encoded.remove_columns(list({"labels", self.kind.reference})).select(order)
        # Without its own generator a loader draws from the global one, and dropout would change.
        loader = DataLoader(
            rows, batch_size=batch_size, collate_fn=preparation.collate, generator=torch.Generator().manual_seed(0)
        )
        references = encoded[self.kind.reference][:]
        numbers = preparation.row_numbers[split]
        return EvaluationSplit(name, self.accelerator.prepare_data_loader(loader), order, references, numbers)
