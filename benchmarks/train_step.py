"""Training steps of encoders beside that of a Bi-LSTM: `python -m benchmarks.train_step --data_dir DIR --output FILE`.

A step is the training command's own: a batch, its loss with the recipe's L2 term, gradients, the optimiser's update.
All encoders take turns on batches of the same rows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from itertools import islice
from typing import Any

import torch
from accelerate.utils import set_seed

from hf_blosan.registry import FAMILIES
from hf_blosan.training import RunArguments
from hf_blosan.training.loop import TrainingLoop
from hf_blosan.training.preparation import find_encoder, find_task, prepare
from hf_blosan.training.run import make_accelerator

from .command import check_positive, choose, cpu_header, exit_code, make_parser, surroundings_lines, write_report
from .measure import times

BASE = "birnn"


def make_loop(encoder: str, options: argparse.Namespace, output_dir: str) -> TrainingLoop:
    """The training loop of a run from scratch."""
    arguments = RunArguments(
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
    set_seed(options.seed)
    task = find_task(arguments)
    arguments = arguments.resolved(task, encoder)
    preparation = prepare(arguments, task, *find_encoder(arguments))
    figures = {"evaluate": lambda model: {}, "best_metric": "none", "log": lambda *_, **__: None}
    return TrainingLoop(arguments, preparation, make_accelerator(arguments), **figures)


def train_on(loop: TrainingLoop, batches: list[dict[str, torch.Tensor]]) -> None:
    for batch in batches:
        loop._batch(batch)


def measured(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each encoder."""
    encoders = [BASE, *(encoder for encoder in arguments.models if encoder != BASE)]
    with tempfile.TemporaryDirectory() as folder:
        loops = {encoder: make_loop(encoder, arguments, folder) for encoder in encoders}
    calls = {name: partial(train_on, loop, list(islice(loop.loader, arguments.steps))) for name, loop in loops.items()}
    summaries = times(calls, arguments.repeats, "cpu")
    rows = []
    for encoder, loop in loops.items():
        in_ms = {name: value for name, value in summaries[encoder].items() if name.endswith("_ms")}
        row = {"encoder": encoder, "optimizer": loop.arguments.optimizer, "l2": loop.arguments.l2}
        row["parameters"] = sum(x.numel() for x in loop.model.parameters() if x.requires_grad)
        row |= {name: round(value / arguments.steps, 3) for name, value in in_ms.items()}
        rows.append(row | {"ratio": round(in_ms["median_ms"] / summaries[BASE]["median_ms"], 3)})
    return rows


def markdown(report: dict[str, Any]) -> str:
    """Times and ratios as a table."""
    header = report["header"]
    lines = ["# Training steps", "", *surroundings_lines(header)]
    lines += [f"- Batches of {header['batch_size']} rows of {header['task']}, {header['steps']} of them in turn", ""]
    lines += [f"Milliseconds of a step of the training command, and its ratio to that of the {BASE}.", ""]
    lines += ["| encoder | optimiser | L2 | trained parameters | ms | ratio |"]
    lines += ["| --- | --- | ---: | ---: | ---: | ---: |"]
    for row in report["rows"]:
        cells = [row[name] for name in ("encoder", "optimizer", "l2", "parameters", "median_ms")]
        cells.append(f"{row['ratio']:.2f}")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def parse(argv: list[str]) -> argparse.Namespace:
    parser = make_parser("benchmarks.train_step", __doc__, repeats=11)
    parser.add_argument("--models", default="disan,biblosan,mtsa", help="default: disan,biblosan,mtsa")
    parser.add_argument("--task", default="trec", help="default: trec")
    parser.add_argument("--data_dir", help="folder with DIR/<task>/<split>.jsonl.gz; default: the data set on the Hub")
    parser.add_argument("--optimizer", choices=("adadelta", "adam", "adamw"), help="default: the recipe's")
    parser.add_argument("--batch_size", type=int, default=32, help="default: 32")
    parser.add_argument("--steps", type=int, default=10, help="batches; default: 10")
    arguments = parser.parse_args(argv)
    check_positive(arguments, "batch_size", "steps", "threads", "repeats")
    arguments.models = choose("--models", arguments.models, FAMILIES)
    return arguments


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure and write the report.

    Raises:
        InputError: an option that cannot be used.
    """
    argv = sys.argv[1:] if argv is None else argv
    arguments = parse(argv)
    torch.set_num_threads(arguments.threads)
    head = cpu_header("benchmarks.train_step", arguments, argv, ("task", "steps", "batch_size", "repeats"))
    report = {"header": head, "rows": measured(arguments)}
    write_report(arguments.output, report, markdown(report))
    return report


def main(argv: list[str] | None = None) -> int:
    """The command; bad input is one sentence on standard error and exit code 2."""
    return exit_code(run, argv)


if __name__ == "__main__":
    sys.exit(main())
