"""The training loop: accelerate, early stopping on a validation metric, exact resume."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import Dataset
from safetensors.torch import load_model as load_weights
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import PreTrainedModel

from ..errors import InputError, fitting
from ..hub.finite import NotFinite
from ..tasks.words import GOLD
from .arguments import CRITICAL_FOR_RESUMING, RunArguments
from .backbone_states import digest_of_weights
from .checkpoints import WEIGHTS, Progress, load_checkpoint, save_checkpoint, save_pretrained
from .evaluation import Evaluator
from .interruption import Interrupted, deferred_signals
from .optim import build_optimizer, l2_penalty, make_scheduler, moving_average, word_source
from .preparation import Preparation
from .reporting import own_fields
from .word_rows import UsedWords, train_all_words, train_used_words

logger = logging.getLogger(__name__)


class TrainingLoop:
    """Trains `preparation.model`; from the first evaluation on, `output_dir` holds the best model so far.

    Args:
        arguments: resolved options of the run.
        preparation: model, tokenizer, encoded data, ...
        accelerator: created with `step_scheduler_with_optimizer=False`.
        evaluator: gives the figures on the validation data, one of which selects the best model; without validation
            data the last model is kept.
        log: called with the entries of each event.
    """

    def __init__(
        self,
        arguments: RunArguments,
        preparation: Preparation,
        accelerator: Accelerator,
        evaluator: Evaluator,
        *,
        log: Callable[..., None],
    ) -> None:
        self.arguments = arguments
        self.accelerator = accelerator
        self.tokenizer = preparation.tokenizer
        self.kind = preparation.kind
        self.evaluator = evaluator
        self.best_metric = evaluator.best_metric
        self.test_metric = f"test_{preparation.task.best_metric}"
        self.log = log
        self.progress = Progress()

        train_used_words(word_source(preparation.model), preparation.data["train"], self.tokenizer.pad_token_id)
        self.sampler = preparation.batch_sampler(arguments)
        # Its own generator: creating an iterator would otherwise draw from the global one, and a resumed run, which
        # creates one more iterator, would continue with different dropout.
        options = {"collate_fn": preparation.collate, "generator": torch.Generator()}
        loader = DataLoader(preparation.data["train"], batch_sampler=self.sampler, **options)
        optimizer = build_optimizer(
            preparation.model,
            arguments.optimizer,
            arguments.learning_rate,
            weight_decay=arguments.weight_decay,
            embedding_learning_rate=arguments.embedding_learning_rate,
        )
        # Each process's number of batches is known only after the loader is prepared.
        self.loader = accelerator.prepare(loader)
        self.updates_per_epoch = math.ceil(len(self.loader) / arguments.gradient_accumulation_steps)
        self.total_steps = arguments.max_train_steps or arguments.num_train_epochs * self.updates_per_epoch
        warmup, embedding_warmup = arguments.num_warmup_steps, arguments.embedding_warmup_steps
        warmups = [
            round(steps * self.total_steps) if steps < 1 else int(steps)
            for steps in (warmup, warmup if embedding_warmup is None else embedding_warmup)
        ]
        scheduler = make_scheduler(optimizer, arguments.lr_scheduler_type, self.total_steps, *warmups)
        self.model, self.optimizer, self.scheduler = accelerator.prepare(preparation.model, optimizer, scheduler)
        self.average = moving_average(self.unwrapped_model, arguments.ema_decay) if arguments.ema_decay else None
        self.settings = resume_settings(arguments, preparation, self.total_steps)

    @property
    def unwrapped_model(self) -> PreTrainedModel:
        return self.accelerator.unwrap_model(self.model, keep_torch_compile=False)

    @property
    def averaged_model(self) -> PreTrainedModel | None:
        return None if self.average is None else self.average.module

    def best_model(self) -> PreTrainedModel:
        """The model with the best weights so far, loaded from `output_dir`."""
        model = self.unwrapped_model
        train_all_words(word_source(model))
        load_weights(model, Path(self.arguments.output_dir) / WEIGHTS)
        return model

    @property
    def finished(self) -> bool:
        """Whether the last update has been made or the validation metric has stopped improving."""
        patience = self.arguments.early_stopping_patience
        stopped = patience > 0 and self.progress.evaluations_since_best >= patience
        return stopped or self.progress.step >= self.total_steps

    def run(self) -> Iterator[int]:
        """Train to the end, resuming from `arguments.resume_from_checkpoint` if given; yields the number of completed
        epochs after each.

        Raises InputError if the checkpoint is missing or damaged, or its run had different settings; the loss or a
        weight is not finite; or a batch does not fit into the memory. Raises Interrupted after Ctrl-C or SIGTERM;
        there is then a checkpoint of the last update.
        """
        # Dropout must not depend on the random numbers drawn to build the model, and must differ between processes.
        set_seed(self.arguments.seed, device_specific=True)
        if self.arguments.resume_from_checkpoint:
            self._resume(self.arguments.resume_from_checkpoint)
        patience, every = self.arguments.early_stopping_patience, self.arguments.eval_every or self.updates_per_epoch
        if self.best_metric and 0 < patience * every < self.total_steps:
            logger.info(
                "early stopping: training ends after %d evaluations without a better %s (--early_stopping_patience; "
                "0: never)",
                *(patience, self.best_metric),
            )
        begin = time.monotonic() - self.progress.seconds
        bar = tqdm(
            total=self.total_steps,
            initial=self.progress.step,
            desc="training",
            disable=self.arguments.in_memory or not self.accelerator.is_local_main_process,
        )
        with bar, deferred_signals(self.accelerator) as signals:
            while not self.finished:
                if self._epoch(bar, begin, signals):
                    yield self.progress.epoch
        if not self.progress.best_step:  # resumed after the last update of a shorter run that was not evaluated yet
            self._validate()
        if self.progress.step < self.total_steps:
            logger.info(
                "early stopping: %s is no better than after update %d; training ends after update %d of %d",
                *(self.best_metric, self.progress.best_step, self.progress.step, self.total_steps),
            )

    def _resume(self, checkpoint: str) -> None:
        """Restore the state of a run, and its best model into `output_dir`."""
        self.progress = load_checkpoint(
            self.accelerator,
            Path(checkpoint),
            self.arguments.output_dir,
            self.settings,
            self.unwrapped_model,
            self.tokenizer,
            self.averaged_model,
        )
        if self.average:
            self.average.n_averaged.fill_(self.progress.step)
        self.log("resume", step=self.progress.step, checkpoint=Path(checkpoint).name)

    def _epoch(self, bar: tqdm, begin: float, signals: list[int]) -> bool:
        """Train the rest of the current epoch, unless training finishes before; return whether it is complete."""
        progress, steps = self.progress, self.arguments.checkpointing_steps
        # With several processes accelerate's set_epoch does not reach a custom batch sampler.
        self.loader.set_epoch(progress.epoch)
        self.sampler.set_epoch(progress.epoch)
        loader = self.loader
        if progress.batches:
            loader = self.accelerator.skip_first_batches(self.loader, progress.batches)
        for batch in loader:
            what = f"a training batch of {self.arguments.per_device_train_batch_size} rows"
            with fitting(what, "give a smaller --per_device_train_batch_size or --max_length"):
                updated = self._batch(batch)
            if not updated:
                continue
            bar.update()
            progress.seconds = time.monotonic() - begin
            self._after_update(bar)
            saved = None
            if steps and steps.isdecimal() and progress.step % int(steps) == 0:
                saved = self._save_checkpoint(f"step_{progress.step}")
            if self.finished:
                break
            if self.accelerator.check_trigger():
                raise Interrupted(saved or self._save_checkpoint(f"step_{progress.step}"), *signals[:1])
        loader.end()
        if progress.batches < len(self.loader):
            return False
        progress.epoch, progress.batches = progress.epoch + 1, 0
        if steps == "epoch":
            self._save_checkpoint(f"epoch_{progress.epoch - 1}")
        return True

    def _save_checkpoint(self, name: str) -> Path:
        folder, average = self.arguments.output_dir, self.averaged_model
        return save_checkpoint(self.accelerator, folder, name, self.settings, self.progress, average)

    def _batch(self, batch: dict[str, torch.Tensor]) -> bool:
        """Accumulate the gradient of a batch; return whether the weights were updated."""
        self.model.train()
        group = self.arguments.gradient_accumulation_steps
        with self.accelerator.accumulate(self.model):
            outputs = self.kind.outputs(self.model, batch)
            loss = self.kind.loss(outputs, batch["labels"], self.arguments.label_smoothing)
            if self.arguments.l2:
                model, factor = self.unwrapped_model, self.arguments.l2
                loss = loss + self.kind.l2_penalty(l2_penalty(model, factor), model, factor)
            # accelerate divides by the nominal group size, but the last group of an epoch may be smaller.
            first = self.progress.batches // group * group
            actual = min(group, len(self.loader) - first)
            self.accelerator.backward(loss * (group / actual) if actual < group else loss)
            if self.accelerator.sync_gradients and self.arguments.max_grad_norm:
                self.accelerator.clip_grad_norm_(self.model.parameters(), self.arguments.max_grad_norm)
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.progress.batches += 1
        value = loss.item()
        if not math.isfinite(value):
            raise self._diverged(f"the loss is {value}")
        self.progress.loss_sum += value
        self.progress.loss_count += 1
        if self.accelerator.sync_gradients:
            self.scheduler.step()
            self.progress.step += 1
            if self.average:
                self.average.update_parameters(self.unwrapped_model)
        return self.accelerator.sync_gradients

    def _after_update(self, bar: tqdm) -> None:
        """Log and evaluate if due."""
        progress, every = self.progress, self.arguments.eval_every
        end_of_epoch = progress.batches == len(self.loader)
        last = progress.step >= self.total_steps
        if progress.step % self.arguments.logging_steps == 0 or last:
            loss = self._mean_of_processes(progress.loss_sum / progress.loss_count)
            progress.loss_sum, progress.loss_count = 0.0, 0
            bar.set_postfix(loss=f"{loss:.4f}")
            rate = self.scheduler.get_last_lr()[0]
            self.log("train", step=progress.step, epoch=self.epochs, loss=loss, learning_rate=rate)
        if last or (progress.step % every == 0 if every else end_of_epoch):
            self._validate()

    def _mean_of_processes(self, value: float) -> float:
        if self.accelerator.num_processes == 1:
            return value
        return self.accelerator.reduce(torch.tensor(value, device=self.accelerator.device), "mean").item()

    def _validate(self) -> None:
        """Evaluate the model, and save it if it is the best so far."""
        progress = self.progress
        model = self.unwrapped_model if self.averaged_model is None else self.averaged_model
        if not all(bool(weight.isfinite().all()) for weight in model.parameters()):
            raise self._diverged("a weight is not finite")
        try:
            measured = self.evaluator.validate(model)
        except NotFinite as error:
            raise self._diverged(f"an output is {error.value}") from error
        value, test = self.best_metric and measured[self.best_metric], measured.get(self.test_metric)
        if self.best_metric and math.isnan(value) and progress.best_metric is None:
            logger.warning("%s is undefined; the last model is kept until it is defined", self.best_metric)
        if test is not None and self._is_better(test, progress.best_test):
            progress.best_test = test
        better = not self.best_metric or self._is_better(value, progress.best_metric)
        if better:
            if self.accelerator.is_main_process:
                save_pretrained(model, self.tokenizer, self.arguments.output_dir)
            self.accelerator.wait_for_everyone()
            progress.best_metric, progress.best_step, progress.evaluations_since_best = value, progress.step, 0
        else:
            progress.evaluations_since_best += 1
        entries = {"epoch": self.epochs, "seconds": round(progress.seconds, 3), "best": better}
        self.log("validation", step=progress.step, **entries, **measured)

    def _diverged(self, what: str) -> InputError:
        step, rate = self.progress.step, self.scheduler.get_last_lr()[0]
        kept = "no model was saved"
        if (best := self.progress.best_step) and not self.arguments.in_memory:
            kept = f"{self.arguments.output_dir} has the best model so far, of update {best}"
        return InputError(
            f"{what} after update {step} with learning rate {rate:.3g}; {kept}; lower --learning_rate or give "
            "--max_grad_norm."
        )

    def _is_better(self, value: float, best: float | None) -> bool:
        # At 0, as while a tagger finds no span, the later model is further on.
        return best is None or math.isnan(best) or value > best or value == best == 0

    @property
    def epochs(self) -> float:
        """Epochs trained, including the fraction of the current one."""
        return round(self.progress.epoch + self.progress.batches / len(self.loader), 4)


def fingerprint(rows: Dataset) -> str:
    """Hash of the encoded rows and their order."""
    table, parts = rows.with_format("arrow")[:], []
    # Labels cover translations and the gold tags of words with a token, so their text columns are left out.
    for name in sorted(set(table.column_names) - {"attention_mask", "translation", GOLD}):
        values = table[name].combine_chunks()
        while pa.types.is_list(values.type):  # nested: the lengths, then the elements
            parts.append(pc.list_value_length(values))
            values = values.flatten()
        parts.append(values)
    return short_hash(b"".join(part.to_numpy(zero_copy_only=False).tobytes() for part in parts))


def short_hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def resume_settings(arguments: RunArguments, preparation: Preparation, total_steps: int) -> dict[str, Any]:
    """Everything that determines the weights; resuming a checkpoint requires the same values."""
    settings = {name: getattr(arguments, name) for name in CRITICAL_FOR_RESUMING}
    warmups = (arguments.num_warmup_steps, arguments.embedding_warmup_steps)
    is_part_of_all = any(0 < (steps or 0) < 1 for steps in warmups)
    of_any_length = ("constant",) if is_part_of_all else ("constant", "constant_with_warmup")
    if arguments.lr_scheduler_type not in of_any_length:
        settings["total_steps"] = total_steps
    if arguments.cache_backbone:  # whose states are of the present one, not of the one in the checkpoint
        settings["backbone"] = digest_of_weights(word_source(preparation.model)).hexdigest()[:16]
    settings["task"] = preparation.task.name
    if preparation.kind.loss_scale != 1:
        settings["loss_scale"] = preparation.kind.loss_scale
    words = word_source(preparation.model)
    settings["trained_words"] = len(words.ids) if isinstance(words, UsedWords) else None
    settings["train_rows"] = len(preparation.data["train"])
    splits = {split: rows for split, rows in preparation.data.items() if not split.startswith("test")}
    settings |= {f"{split}_data": fingerprint(rows) for split, rows in splits.items()}
    settings["vocabulary"] = short_hash(json.dumps(preparation.tokenizer.get_vocab(), sort_keys=True).encode())
    config = own_fields(preparation.model.config)
    return settings | {f"config.{name}": value for name, value in config.items()}
