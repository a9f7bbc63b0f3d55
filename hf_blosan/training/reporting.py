"""Reports of a run: its log, its predictions, its record and its summary."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedConfig

from ..files import plain, sha256, write_json, write_text
from ..hub.model_card import figure_table
from ..tasks.loading import find_file
from ..text.tokenization import is_word_level
from .arguments import CRITICAL_FOR_RESUMING, SECRETS, RunArguments, parse_arguments
from .optim import word_source

if TYPE_CHECKING:
    import numpy as np
    from accelerate import Accelerator
    from transformers import PreTrainedModel

    from ..tasks import Task
    from .checkpoints import Progress
    from .preparation import Preparation

PACKAGES = ("hf_blosan", "torch", "transformers", "accelerate", "datasets", "evaluate", "tokenizers", "numpy")
SPLITS = ("train", "validation", "test")
TASK_ENTRIES = ("name", "title", "num_sentences", "languages", "labels", "best_metric")
DECODER_FIELDS = ("decoder_layers", "decoder_attention_heads", "decoder_ffn_dim")
SETTINGS = (
    *("recipe", *CRITICAL_FOR_RESUMING, "select_on_test"),
    *("num_train_epochs", "max_train_steps", "early_stopping_patience", "max_train_samples"),
)


class RunLog:
    """Writes events as JSON lines and sends their numbers to the accelerator's experiment trackers.

    Only the main process writes the file; ``append`` keeps its content, for a resumed run.
    """

    def __init__(self, path: str | Path, accelerator: Accelerator, *, append: bool = False) -> None:
        self.path = Path(path)
        self.accelerator = accelerator
        if accelerator.is_main_process:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not append:
                self.path.write_text("", encoding="utf-8")

    def __call__(self, event: str, *, step: int, **entries: Any) -> None:
        """Log an event that occurs after `step` optimiser updates."""
        if self.accelerator.is_main_process:
            line = {"event": event, "time": round(time.time(), 3), "step": step} | entries
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(plain(line), ensure_ascii=False) + "\n")
        numbers = {name: value for name, value in entries.items() if isinstance(value, (int, float))}
        self.accelerator.log(numbers, step=step)


def write_predictions(path: str | Path, preparation: Preparation, predictions: np.ndarray) -> None:
    """Write the predictions on the test rows in run_glue's format: a header, then index and label or score.

    A prediction is written on one line; the index is that of the row in its file, from 0.
    """
    lines = preparation.kind.lines(predictions, preparation.tokenizer)
    numbered = zip(preparation.row_numbers["test"], lines, strict=True)
    rows = (f"{number - 1}\t{' '.join(text.splitlines())}\n" for number, text in numbered)
    write_text(path, "".join(["index\tprediction\n", *rows]))


def own_fields(config: PreTrainedConfig) -> dict[str, Any]:
    """Configuration fields that are specific to this package; for an encoder-decoder also the decoder's sizes."""
    if config.is_encoder_decoder:
        return own_fields(config.encoder) | {name: getattr(config.decoder, name) for name in DECODER_FIELDS}
    names = {entry.name for entry in fields(config)} - {entry.name for entry in fields(PreTrainedConfig)}
    return {name: value for name, value in config.to_dict().items() if name in names}


def count_parameters(model: PreTrainedModel) -> dict[str, int]:
    """Number of parameters: total, trained, and without word tables (as the papers count) or the backbone."""
    embeddings = word_source(model)
    word_table = sum(tensor.numel() for tensor in embeddings.state_dict().values())
    others = model.num_parameters() - sum(parameter.numel() for parameter in embeddings.parameters())
    of_decoder = model.get_decoder().get_input_embeddings().weight.numel() if model.config.is_encoder_decoder else 0
    return {
        "total": others + word_table,
        "trained": sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad),
        "without_embeddings": others - of_decoder,
    }


def command_line(argv: list[str] | None = None) -> str:
    """The command line as typed, with secrets replaced and without the program's path."""
    program, *words = sys.argv if argv is None else argv
    shown, hide = [], False
    for word in words:
        name, separator, _ = word.removeprefix("--").partition("=")
        secret = word.startswith("--") and name.replace("-", "_") in SECRETS
        shown.append("***" if hide else f"--{name}=***" if secret and separator else word)
        hide = secret and not separator
    folder, file = os.path.split(os.path.abspath(program))
    if file == "__main__.py":
        package = os.path.basename(folder)
        return shlex.join(["python", "-m", package if package == "hf_blosan" else f"hf_blosan.{package}", *shown])
    if file.removesuffix(".exe") == "hf-blosan":
        return shlex.join(["hf-blosan", *shown])
    relative = os.path.relpath(program)
    return shlex.join(["python", file if relative.startswith(os.pardir) else relative, *shown])


def arguments_of(record: Mapping[str, Any]) -> RunArguments:
    """The options that the command of a record names; raises InputError if it is not a training command."""
    words = shlex.split(record["command"])
    return parse_arguments(words[next((i for i, word in enumerate(words) if word.startswith("--")), len(words)) :])


def git_commit(file: Path = Path(__file__)) -> str | None:
    """Commit of the working tree with a file, with `-dirty` if tracked files differ; None outside a repository."""
    here = file.resolve()
    git = ["git", "-C", str(here.parent)]
    options = {"check": True, "capture_output": True, "text": True}
    try:
        # An untracked file means that the package is installed inside another repository.
        subprocess.run([*git, "ls-files", "--error-unmatch", here.name], **options)
        command = [*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        return subprocess.run(command, **options).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def hardware(accelerator: Accelerator) -> dict[str, Any]:
    """The machine of the run."""
    device = accelerator.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    return {
        "device": device.type,
        "name": name,
        "processes": accelerator.num_processes,
        "threads": torch.get_num_threads(),
        "mixed_precision": accelerator.mixed_precision,
    }


def processor() -> str:
    """The name of the CPU, which :func:`platform.processor` lacks on Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def peak_memory(device: torch.device) -> float | None:
    """The most memory used so far, in MiB: allocated on a GPU, resident in this process elsewhere; None on Windows."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**20, 1)
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 2**10  # bytes of ru_maxrss
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20, 1)


def data_source(arguments: RunArguments, task: Task) -> str:
    """Where the rows came from."""
    if arguments.dataset_name and not Path(arguments.dataset_name).exists():
        return "Hugging Face Hub"
    if task.files or arguments.dataset_name:
        return "own files"
    if task.generated:
        return "generated"
    return "local files" if arguments.data_dir or arguments.train_file else "Hugging Face Hub"


def own_files(arguments: RunArguments) -> dict[str, str]:
    """Splits read from files named in the options -> the files."""
    return {split: file for split in SPLITS if (file := getattr(arguments, f"{split}_file"))}


def files_read(arguments: RunArguments) -> list[str]:
    """The files of rows and word vectors that the options name."""
    files = (*own_files(arguments).values(), arguments.word_vectors, arguments.unlabeled_file)
    return [file for file in files if file]


def digests(arguments: RunArguments, task: Task) -> dict[str, str]:
    """The files of rows and word vectors -> their SHA-256."""
    given = dict(task.files) | own_files(arguments)
    others = (arguments.word_vectors, arguments.unlabeled_file)
    found: dict[str, Path] = {}
    for path in (Path(name).absolute() for name in (*given.values(), *others) if name):
        parts = 1
        while found.get(name := "/".join(path.parts[-parts:]), path) != path:
            parts += 1
        found[name] = path
    if arguments.data_dir and not (task.files or task.generated):
        names = [stems for split, stems in task.local.splits.items() if split not in given]
        names += [(task.local.phrases,)] if task.local.phrases and "train" not in given else []
        folder = Path(arguments.data_dir)
        paths = filter(None, (find_file(folder, task, stems) for stems in names))
        found |= {path.relative_to(folder).as_posix(): path for path in paths}
    return {name: sha256(path) for name, path in found.items()}


def saved_name(name: str | None) -> str | None:
    """The name of a saved model or tokenizer, without the path of a folder."""
    return Path(name).resolve().name if name and Path(name).exists() else name


def held_out(arguments: RunArguments, task: Task) -> dict[str, str]:
    """Splits held out of the training rows -> the part held out."""
    source = task.local if arguments.data_dir or task.generated else task.hub
    given = {split for split in ("validation", "test") if getattr(arguments, f"{split}_file")}
    if source and (arguments.data_dir or task.generated or not arguments.train_file):
        given |= set(source.splits)
    parts = {}
    if arguments.validation_fraction and not arguments.select_on_test:
        parts["validation"] = f"{100 * arguments.validation_fraction:.4g}% of the training rows"
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
    sha256: Mapping[str, str],
) -> dict[str, Any]:
    """The record of a finished run: the content of results files and the source of model cards.

    ``epochs`` and ``seconds`` are how long it took, ``command`` repeats it. ``sha256`` are the :func:`digests` of its
    files, made when they were read, as they may change during the run.
    """
    task = preparation.task
    source = data_source(arguments, task)
    hub = None if source == "own files" or arguments.train_file else task.hub
    of_words = is_word_level(preparation.tokenizer)
    tokenizer = arguments.tokenizer_name or arguments.backbone or (None if of_words else arguments.model_name_or_path)
    return plain(
        {
            "name": f"{preparation.encoder}-{task.name}",
            "encoder": preparation.encoder,
            "task": {name: getattr(task, name) for name in TASK_ENTRIES} | {"problem": task.kind},
            "data": {
                "source": source,
                "files": {split: Path(file).name for split, file in own_files(arguments).items()},
                "sha256": sha256,
                "hub_id": hub and hub.location,
                "hub_config": hub and hub.config,
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
            "tokenizer": saved_name(tokenizer) or preparation.kind.vocabulary,
            "backbone": saved_name(arguments.backbone),
            "continued_from": saved_name(arguments.model_name_or_path),
            "distillation": arguments.distill_from
            and {
                "teacher": saved_name(arguments.distill_from),
                "file": Path(arguments.unlabeled_file).name,
                "rows": preparation.num_taught_rows,
            },
            "word_vectors": preparation.word_vectors,
            "parameters": count_parameters(preparation.model),
            "training": {
                "steps": progress.step,
                "epochs": epochs,
                "best_step": progress.best_step,
                "best_test": progress.best_test,
                "seconds": round(progress.seconds, 1),
                "seconds_in_all": round(seconds, 1),
                "peak_memory_mib": peak_memory(accelerator.device),
            },
        }
    )


def write_record(path: str | Path, record: dict[str, Any]) -> None:
    """Write a record as JSON. ``test_predictions``, numbers in row order, become one line of text."""
    numbers = record.get("test_predictions")
    text = {} if numbers is None else {"test_predictions": " ".join(f"{number:.7g}" for number in numbers)}
    write_json(path, record | text)


def read_record(path: str | Path) -> dict[str, Any]:
    """The record in a file; ``test_predictions``, if any, become a list of floats. Raises OSError if the file cannot
    be read, ValueError if it is not a record.
    """
    record = json.loads(Path(path).read_bytes())
    if not isinstance(record, dict):
        raise ValueError(f"{path} is not a record")
    if "test_predictions" in record:
        record["test_predictions"] = [float(number) for number in record["test_predictions"].split()]
    return record


def figure_lines(table: dict[str, dict[str, float]]) -> list[str]:
    """Figures by split and metric as a table for the terminal."""
    metrics = list(dict.fromkeys(metric for row in table.values() for metric in row))
    width = max(map(len, table))
    lines = [" " * width + "".join(f"  {metric:>12}" for metric in metrics)]
    for split, row in table.items():
        cells = (f"{row[metric]:.4f}" if metric in row else "" for metric in metrics)
        lines.append(f"{split:<{width}}" + "".join(f"  {cell:>12}" for cell in cells))
    return lines


def summary(run: dict[str, Any], output_dir: str) -> str:
    """Summary for the terminal: a table of the figures, and the location of the files."""
    training = run["training"]
    counts = ", ".join(f"{split} {rows:,}" for split, rows in run["data"]["rows"].items())
    return "\n".join(
        [
            f"{run['encoder']} on {run['task']['title']}: best model after {training['best_step']} of "
            f"{training['steps']} updates, {training['seconds']:.0f} s of training; rows: {counts}",
            *figure_lines(figure_table(run)),
            f"Model, tokenizer and card (README.md), log.jsonl and all_results.json are in {output_dir}",
        ]
    )
