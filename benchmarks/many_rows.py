"""Many rows in several processes: `python -m benchmarks.many_rows --data_dir DIR --output NAME.json`.

Workers of one thread each are started by the command's shards, by Ray Data, by Spark and by `datasets.map`, from one
Parquet file of sentences to Parquet files of vectors. Times include all that a user waits for: imports, models,
reading, writing. Rates are those between the two largest sizes, without what every run spends on its start, and in the
time of the core that the processes had, so that they hold on a busy machine too.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import psutil
import pyarrow
import pyarrow.parquet

from hf_blosan.cli.options import option
from hf_blosan.errors import InputError
from hf_blosan.files import write_json
from hf_blosan.tasks import get_task, load_task
from hf_blosan.tasks.kinds import find_kind

from .command import DATA_DIR, Options, choose, command
from .report import page, table

MANY = 100_000_000
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

MAP = """
import sys
import torch
from datasets import load_dataset
from hf_blosan.hub.saved import load
from hf_blosan.inference.batches import Batches, SentenceVectors

def encode(rows):
    vectors = encoder([(text,) for text in rows["text"]])
    return {"vector": [vector.astype("float16") for vector in vectors]}

model, source, output, workers = sys.argv[1:]
torch.set_num_threads(1)
loaded, tokenizer = load(model, "feature-extraction", cpu=True)
encoder = Batches(loaded, tokenizer, SentenceVectors(loaded.config), batch_size=64)
rows = load_dataset("parquet", data_files=source, split="train", cache_dir=output + "/cache")
rows = rows.map(encode, batched=True, batch_size=4096, num_proc=int(workers))
rows.to_parquet(output + "/vectors.parquet")
"""


def commands(way: str, options: ManyRowsOptions, source: str, output: str) -> list[list[str]]:
    """What is started at once."""
    workers, model = str(options.workers), options.model
    ours = [sys.executable, "-m", "hf_blosan", "encode", model, source, f"{output}/vectors.parquet", "--cpu"]
    shards = [
        [*ours, "--vector_dtype", "float16", "--shard", f"{index}/{workers}"] for index in range(options.workers)
    ]
    ray = [sys.executable, str(EXAMPLES / "ray_data.py"), model, source, output, "--actors", workers]
    spark = [sys.executable, str(EXAMPLES / "spark.py"), model, source, output]
    spark += ["--master", f"local[{workers}]", "--partitions", workers]
    return {
        "shard": shards,
        "ray": [[*ray, "--rows", str(options.block)]],
        "spark": [spark],
        "map": [[sys.executable, "-c", MAP, model, source, output, workers]],
    }[way]


WAYS = {
    "shard": "`hf-blosan encode --shard`",
    "ray": "Ray Data, actors",
    "spark": "Spark, `mapInPandas`",
    "map": "`datasets.map(num_proc)`",
}


def timed(way: str, options: ManyRowsOptions, rows: int, texts: list[str]) -> dict[str, Any]:
    """Seconds of a way for that many rows, and what it wrote.

    Raises:
        RuntimeError: it fails, or a row is missing.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "rows.parquet"), Path(folder, "vectors")
        columns = {"id": range(rows), "text": list(islice(cycle(texts), rows))}
        pyarrow.parquet.write_table(pyarrow.table(columns), source, row_group_size=50_000)
        environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in (os.getcwd(), *sys.path[1:]) if path)
        load_before, begin = os.getloadavg()[1], time.perf_counter()
        with open(Path(folder, "log"), "w") as log:
            started = [
                psutil.Popen(words, stdout=log, stderr=log, env=environment)
                for words in commands(way, options, str(source), str(output))
            ]
            cores = cpu_seconds(started)
        seconds = time.perf_counter() - begin
        if any(process.returncode for process in started):
            raise RuntimeError(f"{way} fails:\n{Path(folder, 'log').read_text()[-4000:]}")
        files = list(output.glob("*.parquet"))
        written = sum(pyarrow.parquet.ParquetFile(path).metadata.num_rows for path in files)
        if written != rows:
            raise RuntimeError(f"{way} wrote {written} of {rows} rows")
        size = sum(path.stat().st_size for path in files)
    found = {
        "way": way,
        "rows": rows,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cores, 1),
        "files": len(files),
        "bytes": size,
    }
    return found | {"load": [round(load_before, 1), round(os.getloadavg()[1], 1)]}


def cpu_seconds(started: list[psutil.Popen]) -> float:
    """Wait for processes; the time of a core that they and all their descendants took, sampled twice a second."""
    spent: dict[psutil.Process, float] = {}
    while any(process.poll() is None for process in started):
        for root in started:
            with suppress(psutil.Error):
                spent |= dict.fromkeys({root, *root.children(recursive=True)} - spent.keys(), 0.0)
        for process in spent:
            with suppress(psutil.Error):
                times = process.cpu_times()
                spent[process] = times.user + times.system
        time.sleep(0.5)
    return sum(spent.values())


def measure(options: ManyRowsOptions, report: dict[str, Any]) -> None:
    """A row for each way and size; the large size only for the ways that are checked."""
    task = get_task(options.task)
    data = load_task(task, data_dir=options.data_dir, seed=options.seed)
    texts = list(find_kind(task).texts(data["train"]))
    done = {(row["way"], row["rows"]) for row in report["rows"]}
    small, large = options.rows // options.fraction, options.rows
    for way in options.ways.split(","):
        sizes = [small // 8, small, *[large] * (way in options.checked.split(","))]
        for rows in sizes:
            if (way, rows) not in done:
                report["rows"].append(timed(way, options, rows, texts))
                write_json(options.output, report)


def rate(first: dict[str, Any], second: dict[str, Any]) -> float:
    """Rows in a second of a core, between two runs."""
    return (second["rows"] - first["rows"]) / max(second["cpu_seconds"] - first["cpu_seconds"], 1e-9)


def markdown(report: dict[str, Any]) -> str:
    """Times, and what they come to for very many rows."""
    header, lines, computed = report["header"], [], []
    for way in dict.fromkeys(row["way"] for row in report["rows"]):
        found = [row for row in report["rows"] if row["way"] == way]
        for row in found:
            load = " to ".join(map(str, row["load"]))
            times = (row["seconds"], row["cpu_seconds"])
            lines.append([WAYS[way], f"{row['rows']:,}", *times, row["files"], f"{row['bytes']:,}", load])
        first, second, *large = sorted(found, key=lambda row: row["rows"])
        speed, checked = rate(first, second), ["", ""]
        if large:
            (last,) = large
            expected = first["cpu_seconds"] + (last["rows"] - first["rows"]) / speed
            checked, speed = [f"{expected:,.0f}", f"{last['cpu_seconds']:,.0f}"], rate(second, last)
        size = found[-1]["bytes"] / found[-1]["rows"] * MANY / 1e9
        computed.append([WAYS[way], *checked, f"{speed:,.0f}", f"{MANY / speed / 3600:,.1f}", f"{size:,.0f}"])
    notes = [f"Sentences of {header['task']}, repeated; {header['workers']} workers of one thread; {header['model']}"]
    return page(
        "More rows than one machine",
        header,
        notes,
        table(["way", "rows", "seconds", "core seconds", "files", "bytes", "load before and after"], lines),
        "Seconds are those on the clock, and of this machine with all that ran on it: where the load, a mean of five "
        "minutes, is above the number of cores, other programs had their share. Core seconds are those that the "
        "processes of a way had, their start included. Those of the largest run are compared with what the two "
        "smaller ones let expect. Rows in a core second are those between the two largest runs of a way; hours and "
        f"gigabytes are computed from them for {MANY:,} rows. Vectors are in float16, Spark's in float32; files have "
        "ids and texts of the rows too, but for the command's.",
        table(["way", "expected core seconds", "measured", "rows / core second", "core hours", "GB"], computed),
    )


@dataclass(kw_only=True)
class ManyRowsOptions(Options):
    """Options of ``python -m benchmarks.many_rows``."""

    model: str = option("Encoder.", "disan-mini-en")
    task: str = option("Task of the sentences, of the training split.", "sick_relatedness")
    data_dir: str | None = option(DATA_DIR)
    rows: int = option("How many, for the ways that are checked.", 1_000_000)
    fraction: int = option("One in so many of them gives the rates.", 25)
    ways: str = option(f"Of {','.join(WAYS)}.", "shard,map")
    checked: str = option("Ways that take all rows.", "shard")
    workers: int = option("Processes that encode, of one thread each.", 2)
    block: int = option("Rows of a block of Ray.", 8192)

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("--ways", self.ways, WAYS)
        choose("--checked", self.checked, self.ways.split(","))
        if self.rows < 16 * self.fraction:
            raise InputError(f"--rows {self.rows}: give at least 16 times --fraction, {16 * self.fraction}")


RECORDED = ("model", "task", "rows", "fraction", "workers")
main = command(
    "benchmarks.many_rows",
    ManyRowsOptions,
    measure,
    recorded=RECORDED,
    packages=("pyarrow", "datasets", "ray", "pyspark"),
    resume=lambda options: (),
)

if __name__ == "__main__":
    sys.exit(main())
