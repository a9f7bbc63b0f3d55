"""What a run tells the world: its log, its predictions, its figures, the record it was made by."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
import time
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import PreTrainedConfig

from ..hub.model_card import figure_table
from .arguments import CRITICAL_FOR_RESUMING, SECRETS, RunArguments
from .files import plain

if TYPE_CHECKING:
    from accelerate import Accelerator
    from transformers import PreTrainedModel

    from ..tasks import Task
    from .checkpoints import Progress
    from .preparation import Preparation

PACKAGES = ("hf_blosan", "torch", "transformers", "accelerate", "datasets", "evaluate", "tokenizers", "numpy")
SETTINGS = (*CRITICAL_FOR_RESUMING, "num_train_epochs", "max_train_steps", "early_stopping_patience")


class RunLog:
    """Events of a run as JSON lines, and to the experiment trackers of the accelerator.

    Args:
        path: file to write; only the main process does.
        accelerator: knows the main process and the trackers.
        append: keep what the file holds (a resumed run).
    """

    def __init__(self, path: str | Path, accelerator: Accelerator, *, append: bool = False) -> None:
        self.path = Path(path)
        self.accelerator = accelerator
        if accelerator.is_main_process:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not append:
                self.path.write_text("", encoding="utf-8")

    def __call__(self, event: str, *, step: int, **entries: Any) -> None:
        """Write an event after `step` optimiser updates."""
        if self.accelerator.is_main_process:
            line = {"event": event, "time": round(time.time(), 3), "step": step} | entries
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(plain(line), ensure_ascii=False) + "\n")
        numbers = {name: value for name, value in entries.items() if isinstance(value, (int, float))}
        self.accelerator.log(numbers, step=step)


def write_predictions(path: str | Path, predictions: np.ndarray, labels: tuple[str, ...] = ()) -> None:
    """Write predictions as run_glue does: a header, then the row's number and its label or score."""
    with Path(path).open("w", encoding="utf-8") as file:
        file.write("index\tprediction\n")
        for row, prediction in enumerate(predictions):
            file.write(f"{row}\t{labels[int(prediction)] if labels else f'{prediction:.4f}'}\n")


def own_fields(config: PreTrainedConfig) -> dict[str, Any]:
    """Fields of a configuration that its class adds to those of every transformers model."""
    names = {entry.name for entry in fields(config)} - {entry.name for entry in fields(PreTrainedConfig)}
    return {name: value for name, value in config.to_dict().items() if name in names}


def count_parameters(model: PreTrainedModel) -> dict[str, int]:
    """Numbers in the model: all, those that are trained, those outside the word table (the papers' count)."""
    word_table = sum(tensor.numel() for tensor in model.base_model.embeddings.state_dict().values())
    others = model.num_parameters() - model.base_model.embeddings.word_embeddings.weight.numel()
    return {
        "total": others + word_table,
        "trained": sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad),
        "without_embeddings": others,
    }


def command_line(argv: list[str] | None = None) -> str:
    """The command as typed, without secrets and without the folder of the program."""
    program, *words = sys.argv if argv is None else argv
    shown, hide = [], False
    for word in words:
        name, separator, _ = word.removeprefix("--").partition("=")
        secret = word.startswith("--") and name in SECRETS
        shown.append("***" if hide else f"--{name}=***" if secret and separator else word)
        hide = secret and not separator
    folder, file = os.path.split(os.path.abspath(program))
    if file == "__main__.py":
        return shlex.join(["python", "-m", f"hf_blosan.{os.path.basename(folder)}", *shown])
    return shlex.join(["python", _below_here(program), *shown])


def _below_here(path: str) -> str:
    relative = os.path.relpath(path)
    return os.path.basename(path) if relative.startswith(os.pardir) else relative


def git_commit() -> str | None:
    """Commit of the package's working tree, with `-dirty` behind it if files differ; None outside of one."""
    here = Path(__file__).resolve()
    git = ["git", "-C", str(here.parent)]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", here.name], check=True, capture_output=True)
        described = subprocess.run(
            [*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            check=True,
            capture_output=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()


def hardware(accelerator: Accelerator) -> dict[str, Any]:
    """Where the run took place."""
    device = accelerator.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "device": device.type,
        "name": name,
        "processes": accelerator.num_processes,
        "threads": torch.get_num_threads(),
        "mixed_precision": accelerator.mixed_precision,
    }


def data_source(arguments: RunArguments, task: Task) -> str:
    """Where the rows came from, in words."""
    if task.files:
        return "own files"
    if task.generated:
        return "generated"
    return "local files" if arguments.data_dir or arguments.train_file else "Hugging Face Hub"


def held_out(arguments: RunArguments, task: Task) -> dict[str, str]:
    """Splits that the data set does not have and that were taken from its training rows, and which part of them."""
    source = task.local if arguments.data_dir or task.generated else task.hub
    given = {split for split in ("validation", "test") if getattr(arguments, f"{split}_file")}
    if source and not task.files and (arguments.data_dir or task.generated or not arguments.train_file):
        given |= set(source.splits)
    parts = {"validation": f"{arguments.validation_fraction:.0%} of the training rows"}
    if arguments.num_folds:
        parts["test"] = f"fold {arguments.fold} of {arguments.num_folds}"
    return {split: part for split, part in parts.items() if split not in given}


def record(
    arguments: RunArguments,
    preparation: Preparation,
    accelerator: Accelerator,
    progress: Progress,
    figures: dict[str, float],
    *,
    epochs: float,
    seconds: float,
    command: str,
) -> dict[str, Any]:
    """Everything that is to be known about a finished run, as it stands in results files and model cards."""
    task = preparation.task
    return plain(
        {
            "name": f"{preparation.encoder}-{task.name}",
            "encoder": preparation.encoder,
            "task": {
                "name": task.name,
                "title": task.title,
                "problem": task.problem,
                "num_sentences": task.num_sentences,
                "labels": task.labels,
                "best_metric": task.best_metric,
            },
            "data": {
                "source": data_source(arguments, task),
                "hub_id": None if arguments.train_file else task.hub_id,
                "hub_config": None if arguments.train_file else task.hub_config,
                "rows": {name: len(rows) for name, rows in preparation.data.items()},
                "held_out": held_out(arguments, task),
            },
            "figures": figures,
            "command": command,
            "commit": git_commit(),
            "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
            "hardware": hardware(accelerator),
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "seed": arguments.seed,
            "settings": {name: getattr(arguments, name) for name in SETTINGS},
            "config": own_fields(preparation.model.config),
            "tokenizer": Path(arguments.tokenizer_name).name if arguments.tokenizer_name else "word level",
            "continued_from": Path(arguments.model_name_or_path).name if arguments.model_name_or_path else None,
            "word_vectors": preparation.word_vectors,
            "parameters": count_parameters(preparation.model),
            "training": {
                "steps": progress.step,
                "epochs": epochs,
                "best_step": progress.best_step,
                "seconds": round(progress.seconds, 1),
                "seconds_in_all": round(seconds, 1),
            },
        }
    )


def summary(run: dict[str, Any], output_dir: str) -> str:
    """The end of a run for people: a table of figures, and where things are."""
    table = figure_table(run)
    metrics = list(dict.fromkeys(metric for row in table.values() for metric in row))
    width = max(len(split) for split in table)
    lines = [" " * width + "".join(f"  {metric:>12}" for metric in metrics)]
    for split, row in table.items():
        cells = (row.get(metric) for metric in metrics)
        lines.append(
            f"{split:<{width}}" + "".join(f"  {cell:>12.4f}" if cell is not None else " " * 14 for cell in cells)
        )
    training = run["training"]
    return "\n".join(
        [
            f"{run['encoder']} on {run['task']['title']}: best model after {training['best_step']} of "
            f"{training['steps']} updates, {training['seconds']:.0f} s of training",
            *lines,
            f"Model, tokenizer and card (README.md), log.jsonl and all_results.json are in {output_dir}",
        ]
    )
