"""Trained models in fewer bits: `python -m benchmarks.int8 --run TASK=DIR --data_dir DIR --output NAME.json`.

Every form of a model is saved, measured on the test split, and timed on the same batches; all forms take turns.
Accuracy and speed are of the loaded model.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import MISSING, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from transformers import PreTrainedModel, TorchAoConfig

from hf_blosan.cli.options import option
from hf_blosan.errors import InputError, require
from hf_blosan.hub.configs import read_config
from hf_blosan.tasks.kinds import remembered_rows
from hf_blosan.training import RunArguments
from hf_blosan.training.evaluation import Evaluator
from hf_blosan.training.preparation import HELD_OUT, Preparation, find_encoder, find_task, prepare

from .command import DATA_DIR, Options, command
from .measure import times
from .report import page, table

TIMED_BATCHES = 5
"""The number of batches of the test split that are timed, of all its lengths."""


def load(folder: Path, model_class: type, **options: Any) -> PreTrainedModel:
    return model_class.from_pretrained(folder, **options).eval()


def by_torchao(kind: str) -> Callable[[Path, type], PreTrainedModel]:
    def quantised(folder: Path, model_class: type, **options: Any) -> PreTrainedModel:
        from torchao import quantization

        return load(folder, model_class, quantization_config=TorchAoConfig(getattr(quantization, kind)()), **options)

    return quantised


FORMS: dict[str, tuple[Callable, dict[str, str]]] = {
    "float32": (load, {}),
    "word table float16": (load, {"embedding_dtype": "float16"}),
    "word table int8": (load, {"embedding_dtype": "int8"}),
    "layers int8": (load, {"layers_dtype": "int8"}),
    "layers and word table int8": (load, {"layers_dtype": "int8", "embedding_dtype": "int8"}),
    "torchao, int8 weights and activations": (by_torchao("Int8DynamicActivationInt8WeightConfig"), {}),
}


def megabytes(model: PreTrainedModel) -> float:
    """On disk."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return round(sum(path.stat().st_size for path in Path(folder).glob("*.safetensors")) / 1e6, 2)


def prepared(task_name: str, folder: Path, options: Int8Options) -> tuple[Preparation, Evaluator]:
    """The trained model of a run, and its task's test split, of which it was not trained on any row."""
    files = {"model_name_or_path": str(folder), "output_dir": str(folder), "data_dir": options.data_dir}
    trained = remembered_rows(read_config(str(folder)))
    held_out = {"seed": options.seed} | {name: trained[name] for name in HELD_OUT if name in trained}
    arguments = RunArguments(task_name=task_name, cpu=True, **held_out, **files)
    task = find_task(arguments)
    encoder, config = find_encoder(arguments)
    arguments = arguments.resolved(task, encoder)
    preparation = prepare(arguments, task, encoder, config)
    return preparation, Evaluator(preparation, arguments.per_device_eval_batch_size, Accelerator(cpu=True))


def measured(task_name: str, folder: Path, options: Int8Options) -> list[dict[str, Any]]:
    """A row for each form of a model."""
    preparation, evaluator = prepared(task_name, folder, options)
    (split,) = (split for split in evaluator.splits if split.name == "test")
    models, rows, expected = {}, [], None
    for name, (make, how) in FORMS.items():
        models[name] = model = make(folder, type(preparation.model), **how)
        figures, predictions = evaluator.measure(model)
        expected = predictions if name == "float32" else expected
        figures = {name: round(value, 4) for name, value in figures.items() if name.startswith("test_")}
        row = {"task": task_name, "encoder": preparation.encoder, "form": name, "megabytes": megabytes(model)}
        rows.append(row | {"figures": figures})
        rows[-1]["changed_predictions"] = round(float((abs(predictions - expected) > 1e-3).mean()), 4)

    batches = list(split.loader)
    batches = batches[:: max(1, len(batches) // TIMED_BATCHES)]

    @torch.no_grad()
    def predict(model: PreTrainedModel) -> None:
        for batch in batches:
            model(**batch)

    summaries = times({name: partial(predict, model) for name, model in models.items()}, options.repeats, "cpu")
    base = summaries["float32"]["median_ms"]
    for row in rows:
        time = summaries[row["form"]]
        row |= time | {"rows_per_second": round(1e3 * sum(len(x["input_ids"]) for x in batches) / time["median_ms"])}
        row["speed"] = round(base / time["median_ms"], 2)
    return rows


def measure(options: Int8Options, report: dict[str, Any]) -> None:
    models = options.models()
    require("the comparison needs", "quantization", "torchao")
    for task, folder in models:
        report["rows"] += measured(task, folder, options)


def markdown(report: dict[str, Any]) -> str:
    lines = []
    for row in report["rows"]:
        figures = ", ".join(f"{name.removeprefix('test_')} {value:.4f}" for name, value in row["figures"].items())
        changed = f"{100 * row['changed_predictions']:.1f} %"
        lines.append([row["task"], row["form"], row["megabytes"], figures, changed, f"{row['speed']:.2f}"])
    return page(
        "Models in fewer bits",
        report["header"],
        [],
        "MB: the file with the weights. Changed: predictions on the test split that differ from those of float32 (of "
        "scores, by more than 0.001). Speed: rows a second, in units of float32.",
        table(["task", "form", "MB", "test figures", "changed", "speed"], lines, left=2),
    )


@dataclass(kw_only=True)
class Int8Options(Options):
    """Options of ``python -m benchmarks.int8``."""

    run: list[str] = option("Trained models, each as TASK=DIR.", MISSING)
    data_dir: str | None = option(DATA_DIR)
    repeats: int = option("Samples of each figure.", 5)

    def __post_init__(self) -> None:
        super().__post_init__()
        for task, folder in self.models():
            if not Path(folder, "config.json").is_file():
                remedy = "give TASK=DIR, for instance trec=out/trec"
                raise InputError(f"--run {task}={folder}: there is no saved model; {remedy}")

    def models(self) -> list[tuple[str, Path]]:
        """Tasks and folders."""
        parts = (text.partition("=") for text in self.run)
        return [(task, Path(folder)) for task, _, folder in parts]


main = command("benchmarks.int8", Int8Options, measure)

if __name__ == "__main__":
    sys.exit(main())
