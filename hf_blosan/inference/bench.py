"""The speed and size of a saved model on this machine."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch
from torch.utils.benchmark import Timer
from transformers import PreTrainedModel

from ..errors import fitting
from ..files import check_not_read, check_writable, write_json
from ..hub.saved import load, model_files
from ..registry import locate
from ..text.tokenization import check_max_length
from .arguments import BenchArguments


def bench(arguments: BenchArguments) -> None:
    """Print a table of sentences per second and latency by batch size and length.

    Raises:
        InputError: the model does not exist, or a batch does not fit into memory.
    """
    if arguments.output_file:
        check_writable("--output_file", arguments.output_file, folder=False)
        check_not_read("--output_file", arguments.output_file, model_files(Path(locate(arguments.model))))
    model, _ = load(arguments.model, cpu=arguments.cpu, trust_remote_code=arguments.trust_remote_code)
    check_max_length(max(arguments.lengths), model.config, "--lengths")
    report = describe(model, arguments.model)
    print(
        f"{report['model']}: {report['parameters']:,} parameters, {report['megabytes']:.1f} MB of weights; "
        f"{report['device']}, {report['threads']} threads, torch {report['torch']}"
    )
    print(f"{'batch':>6} {'tokens':>7} {'sentences/s':>12} {'ms a batch':>11} {'IQR':>7}")
    report["cells"] = []
    for length in arguments.lengths:
        for batch_size in arguments.batch_sizes:
            what = f"a batch of {batch_size} rows of {length} tokens"
            with fitting(what, "give smaller --batch_sizes or --lengths"):
                cell = measure(model, batch_size, length, arguments.seconds)
            report["cells"].append(cell)
            print(
                f"{batch_size:>6} {length:>7} {cell['sentences_per_second']:>12,.0f} {cell['milliseconds']:>11.2f} "
                f"{cell['interquartile_range']:>7.2f}",
                flush=True,
            )
    if arguments.output_file:
        write_json(arguments.output_file, report)


def describe(model: PreTrainedModel, name: str) -> dict[str, Any]:
    """What was measured, and where."""
    device = model.device
    weights = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    return {
        "model": Path(name).name if Path(name).exists() else name,
        "class": type(model).__name__,
        "parameters": sum(tensor.numel() for tensor in model.state_dict().values()),
        "megabytes": weights / 1e6,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device} ({platform.machine()})",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


@torch.inference_mode()
def measure(model: PreTrainedModel, batch_size: int, length: int, seconds: float) -> dict[str, float]:
    """The median time of a forward pass over random unpadded sentences; for pairs, two of that length per row."""
    num_sentences = getattr(model.config, "num_sentences", 1) if hasattr(model, "classifier") else 1
    shape, generator = (batch_size, length * num_sentences), torch.Generator().manual_seed(0)
    inputs = {"input_ids": torch.randint(model.config.vocab_size, shape, generator=generator)}
    inputs["attention_mask"] = torch.ones(shape, dtype=torch.long)
    if num_sentences == 2:
        inputs["token_type_ids"] = (torch.arange(shape[1]) >= length).long().expand(shape)
    inputs = {name: tensor.to(model.device) for name, tensor in inputs.items()}
    timer = Timer("model(**inputs)", globals={"model": model, "inputs": inputs}, num_threads=torch.get_num_threads())
    times = timer.blocked_autorange(min_run_time=seconds)
    return {
        "batch_size": batch_size,
        "tokens": length,
        "sentences_per_second": batch_size * num_sentences / times.median,
        "milliseconds": times.median * 1e3,
        "interquartile_range": times.iqr * 1e3,
    }
