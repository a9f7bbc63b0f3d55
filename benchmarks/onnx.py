"""Encoders in onnxruntime beside torch: `python -m benchmarks.onnx --output benchmarks/reports/onnx.json`.

Both encode the same sentences in turn, on the CPU with the same number of threads, in models of the papers' sizes.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModel

from hf_blosan.cli.options import option
from hf_blosan.export import OPSET, export_onnx, input_names, random_inputs
from hf_blosan.registry import FAMILIES

from .command import Options, choose, command, parse_shapes
from .measure import times
from .report import page, table


@dataclass(kw_only=True)
class OnnxOptions(Options):
    """Options of ``python -m benchmarks.onnx``."""

    models: str = option("Encoders.", ",".join(FAMILIES))
    shapes: str = option("Batch x length.", "1x16,64x16,8x64,4x256,4x512,8x1024")
    repeats: int = option("Samples of each figure.", 11)


def measure(options: OnnxOptions, report: dict[str, Any]) -> None:
    models, shapes = choose("--models", options.models, FAMILIES), parse_shapes(options.shapes)
    report["rows"] = [row for model in models for row in measured(model, shapes, options)]


@torch.no_grad()
def measured(model_type: str, shapes: tuple[tuple[int, int], ...], options: OnnxOptions) -> list[dict]:
    """Times of an encoder at every shape, with padding and without; the largest difference of graph and model."""
    from onnxruntime import InferenceSession, SessionOptions

    torch.manual_seed(options.seed)
    model = AutoModel.from_config(AutoConfig.for_model(model_type, vocab_size=1000)).eval()
    how = SessionOptions()
    how.intra_op_num_threads = options.threads
    with tempfile.TemporaryDirectory() as folder:
        difference = export_onnx(model, Path(folder, "model.onnx"))
        session = InferenceSession(Path(folder, "model.onnx"), how, providers=["CPUExecutionProvider"])
    rows = []
    for (batch, length), padded in product(shapes, (True, False)):
        if batch == 1 and padded:
            continue
        inputs = random_inputs(model, input_names(model, None), batch, length)
        if not padded:
            inputs["attention_mask"].fill_(1)
        arrays = {name: value.numpy() for name, value in inputs.items()}
        calls = {"torch": partial(model, **inputs), "onnxruntime": partial(session.run, None, arrays)}
        found = times(calls, options.repeats, "cpu")
        ratio = round(found["onnxruntime"]["median_ms"] / found["torch"]["median_ms"], 3)
        place = {"model": model_type, "batch": batch, "length": length, "padded": padded}
        rows.append({**place, "ratio": ratio, "difference": difference, **found})
    return rows


def markdown(report: dict[str, Any]) -> str:
    """The ratios as tables: rows of random lengths, and rows without padding."""
    parts = []
    for padded in (True, False):
        rows = [row for row in report["rows"] if row.get("padded", True) == padded]
        if not rows:
            continue
        shapes = dict.fromkeys(f"{row['batch']}x{row['length']}" for row in rows)
        models = dict.fromkeys(row["model"] for row in rows)
        lines = [[model, *(f"{row['ratio']:.2f}" for row in rows if row["model"] == model)] for model in models]
        lengths = "the longest row, the others being random" if padded else "every row"
        parts += [f"Columns: batch x length of {lengths}.", table(["model", *shapes], lines)]
    return page(
        "ONNX graphs in onnxruntime",
        report["header"],
        [],
        f"Time of a forward pass in onnxruntime, opset {OPSET}, divided by that in torch with the package's kernels; "
        "below 1 onnxruntime is faster. Ids are random, out of 1,000, each of which the kernels map once in the first "
        "layer.",
        *parts,
    )


main = command("benchmarks.onnx", OnnxOptions, measure, recorded=("repeats",))

if __name__ == "__main__":
    sys.exit(main())
