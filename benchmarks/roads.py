"""All ways from texts to vectors: `python -m benchmarks.roads --peer FOLDER --data_dir DIR --output NAME.json`.

A trained encoder in torch, with layers in int8 and as ONNX graphs, by this package's batches, by
`SentenceTransformer.encode` and by plain `AutoModel`; and a model of sentence-transformers in torch, onnxruntime and
OpenVINO, in float32 and int8. All take turns on the same sentences and threads, and each is scored on STS-B.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from hf_blosan.cli.options import option
from hf_blosan.errors import InputError, require
from hf_blosan.export import export
from hf_blosan.inference.batches import Batches
from hf_blosan.registry import locate

from .browser import export_peer
from .command import Options, command
from .encode import VectorsBy, mean_pooled, without_modules
from .measure import times
from .order import encode as unit_vectors
from .report import page, table
from .similarity import correlation, read_rows

GRAPHS = {"float32": "model.onnx", "int8": "model_quantized.onnx"}
CALIBRATION = 300
"""Sentences of STS-B's training rows by which OpenVINO's int8 chooses its ranges."""
TOKENIZED = (
    ", which tokenizes all sentences first. 1 tokenizer thread: with TOKENIZERS_PARALLELISM=false; by default the "
    "tokenizer's threads and torch's, which wait in a loop for work, take turns at every batch"
)

Encode = Callable[[Sequence[str]], np.ndarray]


@dataclass
class Road:
    """A way from texts to vectors.

    Args:
        system: ``"encoder"`` or ``"peer"``.
        form: what the model is run by, and in which numbers.
        entry: which code stands between the texts and the model.
        compute: texts -> vectors.
        parallel: whether the tokenizer may use several threads, as it does by default.
    """

    system: str
    form: str
    entry: str
    compute: Encode
    parallel: bool = True

    @property
    def name(self) -> str:
        return f"{self.system}, {self.form}, {self.entry}, {self.parallel}"

    def encode(self, texts: Sequence[str], *_: Any, **__: Any) -> np.ndarray:
        """The vectors of any number of texts; how many at a time is known to ``compute``."""
        with patch.dict(os.environ, TOKENIZERS_PARALLELISM=str(self.parallel).lower()):
            return self.compute(texts)


def by_batches(
    tokenizer: PreTrainedTokenizerBase,
    model: PreTrainedModel,
    run: Callable[[dict[str, Tensor]], Tensor],
    batch_size: int,
) -> Encode:
    """As in `hf-blosan encode`, with batches to vectors by ``run``, for the model or a form of it."""
    batches = Batches(model, tokenizer, VectorsBy(model.config, run), batch_size=batch_size)
    return lambda texts: np.stack(batches([(text,) for text in texts]))


def by_model(
    tokenizer: PreTrainedTokenizerBase, run: Callable[[dict[str, Tensor]], Tensor], batch_size: int
) -> Encode:
    """As on a model's page: ``model(**tokenizer(texts, padding=True, return_tensors="pt"))``, sorted by length."""

    def compute(texts: Sequence[str]) -> np.ndarray:
        order, parts = sorted(range(len(texts)), key=lambda i: len(texts[i])), []
        for start in range(0, len(texts), batch_size):
            some = [texts[i] for i in order[start : start + batch_size]]
            parts.append(run(tokenizer(some, padding=True, truncation=True, return_tensors="pt")).numpy())
        return np.concatenate(parts)[np.argsort(order)]

    return compute


def by_entries(
    system: str,
    form: str,
    tokenizer: PreTrainedTokenizerBase,
    model: PreTrainedModel,
    whole: SentenceTransformer,
    pool: Callable[[Any, Tensor], Tensor],
    batch_size: int,
) -> list[Road]:
    """A model in torch, by every entry."""
    run = in_torch(model, pool)
    roads = [Road(system, form, "batches", by_batches(tokenizer, model, run, batch_size))]
    encode = partial(whole.encode, batch_size=batch_size, show_progress_bar=False)
    for parallel in (True, False):
        roads.append(Road(system, form, "AutoModel", by_model(tokenizer, run, batch_size), parallel))
        roads.append(Road(system, form, "SentenceTransformer.encode", encode, parallel))
    return roads


def in_torch(model: PreTrainedModel, pool: Callable[[Any, Tensor], Tensor]) -> Callable[[dict[str, Tensor]], Tensor]:
    @torch.inference_mode()
    def run(inputs: dict[str, Tensor]) -> Tensor:
        return pool(model(**inputs), inputs["attention_mask"])

    return run


def arrays(names: Sequence[str], inputs: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """What a graph takes; a row of one sentence may have come without its types, which are 0."""
    zeros = torch.zeros_like(inputs["input_ids"])
    return {name: inputs.get(name, zeros).numpy() for name in names}


def in_onnxruntime(path: Path, threads: int) -> Callable[[dict[str, Tensor]], Tensor]:
    from onnxruntime import InferenceSession, SessionOptions

    how = SessionOptions()
    how.intra_op_num_threads = threads
    session = InferenceSession(path, how, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]

    def run(inputs: dict[str, Tensor]) -> Tensor:
        return torch.from_numpy(session.run(["sentence_embedding"], arrays(names, inputs))[0])

    return run


def in_openvino(path: Path, threads: int, sample: list[dict[str, Tensor]] | None) -> Callable:
    """A graph in OpenVINO, quantised to int8 by the ranges that ``sample``, batches of inputs, has in it."""
    import nncf
    import openvino

    core = openvino.Core()
    model = core.read_model(path)
    names = [entry.get_any_name() for entry in model.inputs]
    if sample is not None:
        ranges = nncf.Dataset(sample, partial(arrays, names))
        model = nncf.quantize(model, ranges, model_type=nncf.ModelType.TRANSFORMER, subset_size=len(sample))
    compiled = core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": threads})

    def run(inputs: dict[str, Tensor]) -> Tensor:
        found = compiled(arrays(names, inputs))["sentence_embedding"]
        return torch.from_numpy(np.array(found))

    return run


def encoder_roads(options: RoadsOptions, folder: Path) -> list[Road]:
    """This package's encoder: both forms in torch by every entry, and its graphs."""
    source, size, roads = locate(options.encoder), options.batch_size, []
    tokenizer = AutoTokenizer.from_pretrained(source)
    for form in ("float32", "int8"):
        model = AutoModel.from_pretrained(source, layers_dtype=form).eval()
        whole = SentenceTransformer(source, device="cpu", model_kwargs={"layers_dtype": form})
        roads += by_entries("encoder", form, tokenizer, model, whole, lambda output, _: output.pooler_output, size)
    export(options.encoder, folder)
    for form, graph in GRAPHS.items():
        run = in_onnxruntime(folder / "onnx" / graph, options.threads)
        roads.append(Road("encoder", f"onnxruntime {form}", "batches", by_batches(tokenizer, model, run, size)))
    return roads


def peer_roads(options: RoadsOptions, folder: Path) -> list[Road]:
    """The peer in torch by every entry, and its graphs in two runtimes."""
    tokenizer, size = AutoTokenizer.from_pretrained(options.peer), options.batch_size
    model = without_modules(AutoModel.from_pretrained(options.peer)).eval()
    whole = SentenceTransformer(options.peer, device="cpu")
    roads = by_entries("peer", "float32", tokenizer, model, whole, mean_pooled, size)
    export_peer(options.peer, folder)
    runs = {
        f"onnxruntime {form}": in_onnxruntime(folder / "onnx" / graph, options.threads)
        for form, graph in GRAPHS.items()
    }
    texts = read_rows(options.data_dir, "stsb", "train")["sentence1"][:CALIBRATION]
    sample = [dict(tokenizer([text], return_tensors="pt")) for text in texts]
    for form, batches in {"float32": None, "int8": sample}.items():
        runs[f"OpenVINO {form}"] = in_openvino(folder / "onnx" / GRAPHS["float32"], options.threads, batches)
    for form, run in runs.items():
        roads.append(Road("peer", form, "batches", by_batches(tokenizer, model, run, size)))
    return roads


def sts(road: Road, options: RoadsOptions) -> float:
    """100 x Spearman's correlation of cosines with the scores of STS-B's test rows."""
    rows = read_rows(options.data_dir, "stsb", "test")
    vectors = unit_vectors(road, [*rows["sentence1"], *rows["sentence2"]], options.batch_size)
    pair = [np.stack([vectors[text] for text in rows[column]]) for column in ("sentence1", "sentence2")]
    return round(correlation(*pair, np.array(rows["score"])), 2)


def measure(options: RoadsOptions, report: dict[str, Any]) -> None:
    """A row for each road, with its speed in units of the peer in torch and of the peer's fastest."""
    rows = read_rows(options.data_dir, "sick", "test")
    texts = list(dict.fromkeys([*rows["sentence1"], *rows["sentence2"]]))[: options.sentences]
    report["header"]["sentences"] = len(texts)
    with tempfile.TemporaryDirectory() as encoder, tempfile.TemporaryDirectory() as peer:
        roads = encoder_roads(options, Path(encoder)) + peer_roads(options, Path(peer))
        calls = {road.name: partial(road.encode, texts) for road in roads}
        summaries = times(calls, options.repeats, "cpu")
        rows = [{name: getattr(road, name) for name in ("system", "form", "entry", "parallel")} for road in roads]
        for row, road in zip(rows, roads, strict=True):
            row |= summaries[road.name]
            row["sentences_per_second"] = round(1e3 * len(texts) / row["median_ms"])
            row["stsb"] = sts(road, options)
    peers = {(row["form"], row["entry"], row["parallel"]): row["median_ms"] for row in rows if row["system"] == "peer"}
    for row in rows:
        if row["system"] == "encoder":
            row["to_torch"] = round(peers["float32", row["entry"], row["parallel"]] / row["median_ms"], 2)
            row["to_fastest"] = round(min(peers.values()) / row["median_ms"], 2)
    report["rows"] += rows


def markdown(report: dict[str, Any]) -> str:
    header = report["header"]
    names = {"encoder": header["encoder"], "peer": header["peer"]}
    whole = "parallel" in report["rows"][0]  # older reports are of batches that are tokenized one by one
    lines = [
        [
            names[row["system"]],
            row["form"],
            row["entry"] + ", 1 tokenizer thread" * (not row.get("parallel", True)),
            f"{row['sentences_per_second']:,}",
            row.get("to_torch", ""),
            row.get("to_fastest", ""),
            f"{row['stsb']:.2f}",
        ]
        for row in report["rows"]
    ]
    return page(
        "From texts to vectors by every road",
        header,
        [f"Sentences: {header['sentences']} of SICK's test rows, in batches of {header['batch_size']}"],
        f"By torch and by fastest: times as many sentences a second as {header['peer']} in torch by the same "
        f"{'entry' if whole else 'batches'}, and as its fastest row here. STS-B: 100 x Spearman's correlation on the "
        f"test rows. Batches: as in `hf-blosan encode`{TOKENIZED if whole else ''}.",
        table(["model", "runs in", "entry", "sentences / s", "by torch", "by fastest", "STS-B"], lines, left=3),
    )


@dataclass(kw_only=True)
class RoadsOptions(Options):
    """Options of ``python -m benchmarks.roads``."""

    peer: str = option("Folder of a sentence-transformers model with mean pooling, to compare with.", MISSING)
    encoder: str = option("Encoder of this package: a folder, a bundled name or a name on the Hub.", "disan-mini-en")
    data_dir: str = option("Folder with DIR/stsb/ and DIR/sick/<split>.jsonl.gz.", MISSING)
    sentences: int = option("How many, of SICK's test rows.", 2000)
    batch_size: int = option("Sentences of a batch.", 64)
    repeats: int = option("Samples of each figure.", 7)

    def __post_init__(self) -> None:
        super().__post_init__()
        require("this benchmark needs", "openvino", "openvino", "nncf")
        if not Path(self.peer, "config.json").is_file():
            raise InputError(f"--peer {self.peer}: there is no saved model; give the folder of one")


RECORDED = ("encoder", "peer", "sentences", "batch_size", "repeats")
PACKAGES = ("sentence-transformers", "openvino", "nncf")
main = command("benchmarks.roads", RoadsOptions, measure, recorded=RECORDED, packages=PACKAGES)

if __name__ == "__main__":
    sys.exit(main())
