"""Encoders in onnxruntime beside torch: `python -m benchmarks.onnx --output benchmarks/reports/onnx.json`.

Both encode the same sentences in turn, on the CPU with the same number of threads, in models of the papers' sizes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModel

from hf_blosan.export import OPSET, export_onnx, input_names, random_inputs
from hf_blosan.registry import FAMILIES

from .command import (
    check_positive,
    choose,
    cpu_header,
    exit_code,
    make_parser,
    parse_shapes,
    surroundings_lines,
    write_report,
)
from .measure import times

SHAPES = "1x16,64x16,8x64,4x256"


@torch.no_grad()
def measured(model_type: str, shapes: tuple[tuple[int, int], ...], arguments: argparse.Namespace) -> list[dict]:
    """Times of an encoder at every shape, and the graph's largest difference from the model."""
    from onnxruntime import InferenceSession, SessionOptions

    torch.manual_seed(arguments.seed)
    model = AutoModel.from_config(AutoConfig.for_model(model_type, vocab_size=1000)).eval()
    options = SessionOptions()
    options.intra_op_num_threads = arguments.threads
    with tempfile.TemporaryDirectory() as folder:
        difference = export_onnx(model, Path(folder, "model.onnx"))
        session = InferenceSession(Path(folder, "model.onnx"), options, providers=["CPUExecutionProvider"])
    rows = []
    for batch, length in shapes:
        inputs = random_inputs(model, input_names(model, None), batch, length)
        arrays = {name: value.numpy() for name, value in inputs.items()}

        def in_torch(inputs=inputs):
            return model(**inputs)

        def in_onnxruntime(arrays=arrays):
            return session.run(None, arrays)

        found = times({"torch": in_torch, "onnxruntime": in_onnxruntime}, arguments.repeats, "cpu")
        ratio = found["onnxruntime"]["median_ms"] / found["torch"]["median_ms"]
        row = {
            "model": model_type,
            "batch": batch,
            "length": length,
            "ratio": round(ratio, 3),
            "difference": difference,
        }
        rows.append({**row, **found})
    return rows


def markdown(report: dict[str, Any]) -> str:
    """The ratios as a table."""
    rows = report["rows"]
    shapes = list(dict.fromkeys((row["batch"], row["length"]) for row in rows))
    lines = ["# ONNX graphs in onnxruntime", "", *surroundings_lines(report["header"]), ""]
    lines += [
        f"Time of a forward pass in onnxruntime, opset {OPSET}, divided by that in torch with the package's kernels; "
        "below 1 onnxruntime is faster. Columns: batch x length.",
        "",
        f"| model | {' | '.join(f'{batch}x{length}' for batch, length in shapes)} |",
        f"| --- |{' ---: |' * len(shapes)}",
    ]
    for model in dict.fromkeys(row["model"] for row in rows):
        ratios = (f"{row['ratio']:.2f}" for row in rows if row["model"] == model)
        lines.append(f"| {model} | {' | '.join(ratios)} |")
    return "\n".join(lines) + "\n"


def parse(argv: list[str]) -> argparse.Namespace:
    parser = make_parser("benchmarks.onnx", __doc__, repeats=11)
    parser.add_argument("--models", default=",".join(FAMILIES), help=f"default: {','.join(FAMILIES)}")
    parser.add_argument("--shapes", default=SHAPES, help=f"batch x length; default: {SHAPES}")
    arguments = parser.parse_args(argv)
    check_positive(arguments, "threads", "repeats")
    return arguments


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure and write the report.

    Raises:
        InputError: an option that cannot be used.
    """
    argv = sys.argv[1:] if argv is None else argv
    arguments = parse(argv)
    models, shapes = choose("--models", arguments.models, FAMILIES), parse_shapes(arguments.shapes)
    torch.set_num_threads(arguments.threads)
    head = cpu_header("benchmarks.onnx", arguments, argv, ("repeats",))
    report = {"header": head, "rows": [row for model in models for row in measured(model, shapes, arguments)]}
    write_report(arguments.output, report, markdown(report))
    return report


def main(argv: list[str] | None = None) -> int:
    """The command; bad input is one sentence on standard error and exit code 2."""
    return exit_code(run, argv)


if __name__ == "__main__":
    sys.exit(main())
