"""Training steps of encoders beside that of a Bi-LSTM: `python -m benchmarks.train_step --data_dir DIR --output FILE`.

A step is the training command's own: a batch, its loss with the recipe's L2 term, gradients, the optimiser's update.
All encoders take turns on batches of the same rows.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, repeat
from typing import Any, Literal

import torch

from hf_blosan.cli.options import option
from hf_blosan.estimators.fitting import InMemoryArguments
from hf_blosan.registry import FAMILIES
from hf_blosan.training.loop import TrainingLoop
from hf_blosan.training.run import make_accelerator, prepare_run

from .command import DATA_DIR, Options, choose, command
from .measure import times
from .report import page, table

BASE = "birnn"


@dataclass(kw_only=True)
class StepOptions(Options):
    """Options of ``python -m benchmarks.train_step``."""

    models: str = option("Encoders.", "disan,biblosan,mtsa")
    task: str = option("Task that is trained on.", "trec")
    data_dir: str | None = option(DATA_DIR)
    optimizer: Literal["adadelta", "adam", "adamw"] | None = option("Default: the recipe's.")
    batch_size: int = option("Rows of a batch.", 32)
    steps: int = option("Batches.", 10)
    repeats: int = option("Samples of each figure.", 11)


def make_loop(encoder: str, options: StepOptions, output_dir: str) -> TrainingLoop:
    """The training loop of a run from scratch."""
    arguments = InMemoryArguments(
        task_name=options.task,
        data_dir=options.data_dir,
        encoder=encoder,
        optimizer=options.optimizer,
        per_device_train_batch_size=options.batch_size,
        num_train_epochs=10**6,
        seed=options.seed,
        output_dir=output_dir,
        cpu=True,
    )
    accelerator = make_accelerator(arguments)
    arguments, preparation, evaluator = prepare_run(arguments, accelerator)
    return TrainingLoop(arguments, preparation, accelerator, evaluator, log=lambda *_, **__: None)


def train_on(loop: TrainingLoop, batches: list[dict[str, torch.Tensor]]) -> None:
    for batch in batches:
        loop.progress.batches = 0  # the last batch of an epoch may be part of a group
        loop._batch(batch)


def measure(options: StepOptions, report: dict[str, Any]) -> None:
    """A row for each encoder."""
    models = choose("--models", options.models, FAMILIES)
    with tempfile.TemporaryDirectory() as folder:
        loops = {encoder: make_loop(encoder, options, folder) for encoder in dict.fromkeys((BASE, *models))}
    calls = {}
    for encoder, loop in loops.items():
        batches = chain.from_iterable(repeat(loop.loader))  # epoch after epoch
        calls[encoder] = partial(train_on, loop, list(islice(batches, options.steps)))
    summaries = times(calls, options.repeats, "cpu")
    for encoder, loop in loops.items():
        in_ms = {name: value for name, value in summaries[encoder].items() if name.endswith("_ms")}
        row = {"encoder": encoder, "optimizer": loop.arguments.optimizer, "l2": loop.arguments.l2}
        row["parameters"] = sum(x.numel() for x in loop.model.parameters() if x.requires_grad)
        row |= {name: round(value / options.steps, 3) for name, value in in_ms.items()}
        report["rows"].append(row | {"ratio": round(in_ms["median_ms"] / summaries[BASE]["median_ms"], 3)})


def markdown(report: dict[str, Any]) -> str:
    """Times and ratios as a table."""
    header, names = report["header"], ("encoder", "optimizer", "l2", "parameters", "median_ms")
    return page(
        "Training steps",
        header,
        [f"Batches of {header['batch_size']} rows of {header['task']}, {header['steps']} of them in turn"],
        f"Milliseconds of a step of the training command, and its ratio to that of the {BASE}.",
        table(
            ["encoder", "optimiser", "L2", "trained parameters", "ms", "ratio"],
            ([*(row[name] for name in names), f"{row['ratio']:.2f}"] for row in report["rows"]),
            left=2,
        ),
    )


RECORDED = ("task", "steps", "batch_size", "repeats")
main = command("benchmarks.train_step", StepOptions, measure, recorded=RECORDED)

if __name__ == "__main__":
    sys.exit(main())
