"""`hf-blosan serve` under load: `python -m benchmarks.serving --data_dir DIR --output NAME.json [--peer FOLDER]`.

Encoders of the default size with random weights and word vectors answer clients that each send one sentence after the
other, made by locust. The servers take turns, so that their ratios hold on a busy machine too. Then the first one
answers for --soak_seconds while its memory is recorded.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.request import urlopen

import numpy as np

from hf_blosan.cli.options import option
from hf_blosan.cli.startup import wait_briefly
from hf_blosan.errors import InputError

from .command import command
from .encode import TextOptions, random_model, texts_and_tokenizer
from .report import page, table

ROOT = Path(__file__).resolve().parents[1]
LOAD = ROOT / "benchmarks" / "serving_load.py"
SAMPLES = 120
"""How often memory is read in the soak."""


@dataclass(frozen=True)
class Server:
    """A running server."""

    address: str

    def metric(self, name: str) -> float:
        """A figure of ``/metrics``, without labels."""
        with urlopen(f"{self.address}/metrics", timeout=60) as answer:
            lines = (line.split() for line in answer.read().decode().splitlines())
        return next(float(words[1]) for words in lines if words[0] == name)


@contextmanager
def running(words: list[str], threads: int) -> Iterator[Server]:
    """Start a server on a free port, and end it.

    Raises:
        RuntimeError: it does not start.
    """
    wait_briefly()  # the peer's server, too
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", *words, "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            if "http://" not in line:
                raise RuntimeError(f"{' '.join(words)} did not start")
            yield Server(line.split()[0])
        finally:
            process.terminate()


def load(server: Server, clients: int, seconds: float, texts: Path) -> dict[str, Any]:
    """What clients of a server see: requests per second, percentiles of their time, failures; and the mean batch.

    Raises:
        RuntimeError: locust fails, or no request is answered.
    """
    batches = {name: -server.metric(f"hf_blosan_batch_texts_{name}") for name in ("sum", "count")}
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder, "times.json")
        files = {"HF_BLOSAN_TEXTS": str(texts), "HF_BLOSAN_TIMES": str(times)}
        environment = os.environ | files | {"HF_BLOSAN_SECONDS": str(seconds)}
        command = [sys.executable, "-m", "locust", "--headless", "--only-summary", "-f", str(LOAD)]
        command += ["--host", server.address, "--users", str(clients), "--spawn-rate", str(clients)]
        command += ["--stop-timeout", "60", "--exit-code-on-error", "0"]
        run = subprocess.run(command, env=environment, capture_output=True, text=True)
        if run.returncode or not times.exists():
            raise RuntimeError(f"locust failed: {run.stderr[-2000:]}")
        seen = json.loads(times.read_text(encoding="utf-8"))
    if not seen["milliseconds"]:
        raise RuntimeError(f"no request was answered: {seen['failures'][:3]}")
    for name in batches:
        batches[name] += server.metric(f"hf_blosan_batch_texts_{name}")
    p50, p99 = np.percentile(seen["milliseconds"], [50, 99])
    return {
        "requests_per_second": round(len(seen["milliseconds"]) / seen["seconds"], 1),
        "p50_ms": round(float(p50), 2),
        "p99_ms": round(float(p99), 2),
        "failures": len(seen["failures"]),
        "mean_batch": round(batches["sum"] / batches["count"], 2),
    }


def measured(servers: dict[str, Server], options: ServingOptions, texts: Path) -> list[dict[str, Any]]:
    """A row for each server and number of clients: the medians over the repeats."""
    rows = []
    for clients in map(int, options.clients.split(",")):
        samples: dict[str, list] = {name: [] for name in servers}
        for _ in range(options.repeats):
            for name, server in servers.items():
                samples[name].append(load(server, clients, options.seconds, texts))
        for name, taken in samples.items():
            medians = {figure: statistics.median(sample[figure] for sample in taken) for figure in taken[0]}
            rows.append({"system": name, "clients": clients} | medians)
            print(rows[-1], flush=True)
    return rows


def soak(server: Server, options: ServingOptions, texts: Path) -> dict[str, Any]:
    """Resident memory of a server, in MiB, over a long time under load."""
    memory, ended = [], threading.Event()

    def record() -> None:
        while not ended.wait(options.soak_seconds / SAMPLES):
            memory.append(round(server.metric("process_resident_memory_bytes") / 2**20, 1))

    recorder = threading.Thread(target=record)
    recorder.start()
    try:
        row = load(server, options.soak_clients, options.soak_seconds, texts)
    finally:
        ended.set()
        recorder.join()
    tenth = max(1, len(memory) // 10)
    # The first tenth is left out: caches of the allocator fill.
    early, late = statistics.median(memory[tenth : 2 * tenth]), statistics.median(memory[-tenth:])
    soaked = {"clients": options.soak_clients, "seconds": options.soak_seconds, "memory_mib": memory}
    return soaked | {"early_mib": early, "late_mib": late, "growth": round(late / early - 1, 4)} | row


def markdown(report: dict[str, Any]) -> str:
    """Figures by system and clients, and memory over time."""
    header, parts = report["header"], []
    if soaked := report.get("soak"):
        memory = soaked["memory_mib"]
        tenths = [memory[len(memory) * i // 10] for i in range(10)] + memory[-1:]
        parts.append(
            f"{report['rows'][0]['system']} for {soaked['seconds']:g} seconds: {soaked['clients']} clients, "
            f"{soaked['requests_per_second']} requests a second, {soaked['failures']} failures. Resident memory in "
            f"MiB, ten times and at the end: {', '.join(f'{mib:.0f}' for mib in tenths)}. Medians of the second tenth "
            f"of the time and of the last: {soaked['early_mib']:.1f}, {soaked['late_mib']:.1f}."
        )
    figures = ("system", "clients", "requests_per_second", "p50_ms", "p99_ms", "mean_batch", "failures")
    names = ["system", "clients", "requests / s", "p50 ms", "p99 ms", "texts in a batch", "failures"]
    notes = [
        f"Sentences of {header['task']}, one in a request; clients on the same cores as the server",
        f"Median of {header['repeats']} runs of {header['seconds']:g} seconds",
    ]
    shown = table(names, ([row[figure] for figure in figures] for row in report["rows"]))
    return page("The server under load", header, notes, shown, *parts)


@dataclass(kw_only=True)
class ServingOptions(TextOptions):
    """Options of ``python -m benchmarks.serving``."""

    batch_size: ClassVar[int] = 1
    models: str = option("Encoders.", "disan")
    clients: str = option("How many send at once.", "1,8,64")
    seconds: float = option("Of load, for each figure.", 20.0)
    soak_seconds: float = option("Of load on the first model. Default: none.", 0.0)
    soak_clients: int = option("Clients meanwhile.", 8)
    repeats: int = option("Samples of each figure.", 3)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(number.isdecimal() and int(number) for number in self.clients.split(",")):
            raise InputError(f"--clients {self.clients}: give numbers from 1 on, as in 1,8,64")


def measure(options: ServingOptions, report: dict[str, Any]) -> None:
    batches, tokenizer = texts_and_tokenizer(options)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        texts, servers = Path(folder, "texts.json"), {}
        texts.write_text(json.dumps([text for batch in batches for text in batch]), encoding="utf-8")
        for name in options.models.split(","):
            random_model(name, tokenizer, options.seed).save_pretrained(Path(folder, name))
            tokenizer.save_pretrained(Path(folder, name))
            words = ["hf_blosan", "serve", str(Path(folder, name)), "--cpu"]
            servers[name] = stack.enter_context(running(words, options.threads))
        if options.peer:
            words = ["benchmarks.serving_peer", str(Path(options.peer).resolve())]
            servers["peer"] = stack.enter_context(running(words, options.threads))
        report["rows"] = measured(servers, options, texts)
        if options.soak_seconds:
            report["soak"] = soak(next(iter(servers.values())), options, texts)


RECORDED = ("task", "sentences", "seconds", "repeats")
PACKAGES = ("fastapi", "uvicorn", "locust")
main = command("benchmarks.serving", ServingOptions, measure, recorded=RECORDED, packages=PACKAGES)

if __name__ == "__main__":
    sys.exit(main())
