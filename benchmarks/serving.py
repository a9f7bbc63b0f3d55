"""`hf-blosan serve` under load: `python -m benchmarks.serving --data_dir DIR --output NAME.json [--peer FOLDER]`.

Encoders of the default size with random weights and word vectors answer clients that each send one sentence after the
other, made by locust. The servers take turns, so that their ratios hold on a busy machine too. Then the first one
answers for --soak_seconds while its memory is recorded.
"""

from __future__ import annotations

import argparse
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
from typing import Any
from urllib.request import urlopen

import numpy as np

from hf_blosan.errors import InputError
from hf_blosan.registry import FAMILIES

from .command import check_positive, choose, cpu_header, exit_code, make_parser, surroundings_lines, write_report
from .encode import add_text_options, check_text_options, random_model, texts_and_tokenizer

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
        environment = os.environ | {"HF_BLOSAN_TEXTS": str(texts), "HF_BLOSAN_TIMES": str(times)}
        command = [sys.executable, "-m", "locust", "--headless", "--only-summary", "-f", str(LOAD)]
        command += ["--host", server.address, "--users", str(clients), "--spawn-rate", str(clients)]
        command += ["--run-time", f"{seconds + 2:g}s", "--stop-timeout", "60", "--exit-code-on-error", "0"]
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


def measured(servers: dict[str, Server], arguments: argparse.Namespace, texts: Path) -> list[dict[str, Any]]:
    """A row for each server and number of clients: the medians over the repeats."""
    rows = []
    for clients in arguments.clients:
        samples: dict[str, list] = {name: [] for name in servers}
        for _ in range(arguments.repeats):
            for name, server in servers.items():
                samples[name].append(load(server, clients, arguments.seconds, texts))
        for name, taken in samples.items():
            medians = {figure: statistics.median(sample[figure] for sample in taken) for figure in taken[0]}
            rows.append({"system": name, "clients": clients} | medians)
            print(rows[-1], flush=True)
    return rows


def soak(server: Server, arguments: argparse.Namespace, texts: Path) -> dict[str, Any]:
    """Resident memory of a server, in MiB, over a long time under load."""
    memory, ended = [], threading.Event()

    def record() -> None:
        while not ended.wait(arguments.soak_seconds / SAMPLES):
            memory.append(round(server.metric("process_resident_memory_bytes") / 2**20, 1))

    recorder = threading.Thread(target=record)
    recorder.start()
    try:
        row = load(server, arguments.soak_clients, arguments.soak_seconds, texts)
    finally:
        ended.set()
        recorder.join()
    tenth = max(1, len(memory) // 10)
    # The first tenth is left out: caches of the allocator fill.
    early, late = statistics.median(memory[tenth : 2 * tenth]), statistics.median(memory[-tenth:])
    soaked = {"clients": arguments.soak_clients, "seconds": arguments.soak_seconds, "memory_mib": memory}
    return soaked | {"early_mib": early, "late_mib": late, "growth": round(late / early - 1, 4)} | row


def markdown(report: dict[str, Any]) -> str:
    """Figures by system and clients, and memory over time."""
    header = report["header"]
    lines = ["# The server under load", "", *surroundings_lines(header)]
    lines += [f"- Sentences of {header['task']}, one in a request; clients on the same cores as the server"]
    lines += [f"- Median of {header['repeats']} runs of {header['seconds']:g} seconds", ""]
    lines += ["| system | clients | requests / s | p50 ms | p99 ms | texts in a batch | failures |"]
    lines += [f"| --- |{' ---: |' * 6}"]
    figures = ("system", "clients", "requests_per_second", "p50_ms", "p99_ms", "mean_batch", "failures")
    lines += [f"| {' | '.join(str(row[figure]) for figure in figures)} |" for row in report["rows"]]
    if soaked := report.get("soak"):
        memory = soaked["memory_mib"]
        tenths = [memory[len(memory) * i // 10] for i in range(10)] + memory[-1:]
        lines += ["", f"{report['rows'][0]['system']} for {soaked['seconds']:g} seconds: {soaked['clients']} clients,"]
        lines += [f"{soaked['requests_per_second']} requests a second, {soaked['failures']} failures. Resident memory"]
        lines += [f"in MiB, ten times and at the end: {', '.join(f'{mib:.0f}' for mib in tenths)}. Medians of the"]
        lines += [f"second tenth of the time and of the last: {soaked['early_mib']:.1f}, {soaked['late_mib']:.1f}."]
    return "\n".join(lines) + "\n"


def parse(argv: list[str]) -> argparse.Namespace:
    parser = make_parser("benchmarks.serving", __doc__, repeats=3)
    add_text_options(parser)
    parser.add_argument("--models", default="disan", help="default: disan")
    parser.add_argument("--clients", default="1,8,64", help="default: 1,8,64")
    parser.add_argument("--seconds", type=float, default=20.0, help="of load, for each figure; default: 20")
    parser.add_argument("--soak_seconds", type=float, default=0.0, help="of load on the first model; default: none")
    parser.add_argument("--soak_clients", type=int, default=8, help="default: 8")
    parser.set_defaults(batch_size=1)
    arguments = parser.parse_args(argv)
    try:
        arguments.clients = [int(number) for number in arguments.clients.split(",")]
    except ValueError:
        arguments.clients = [0]
    if min(arguments.clients) < 1:
        raise InputError("--clients: give numbers from 1 on, as in 1,8,64")
    check_positive(arguments, "seconds", "soak_clients", "threads", "repeats")
    arguments.models = choose("--models", arguments.models, FAMILIES)
    check_text_options(arguments)
    return arguments


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure and write the report.

    Raises:
        InputError: an option that cannot be used.
    """
    argv = sys.argv[1:] if argv is None else argv
    arguments = parse(argv)
    options, packages = ("task", "sentences", "seconds", "repeats"), ("fastapi", "uvicorn", "locust")
    head = cpu_header("benchmarks.serving", arguments, argv, options, packages)
    batches, tokenizer = texts_and_tokenizer(arguments)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        texts, servers = Path(folder, "texts.json"), {}
        texts.write_text(json.dumps([text for batch in batches for text in batch]), encoding="utf-8")
        for name in arguments.models:
            random_model(name, tokenizer, arguments.seed).save_pretrained(Path(folder, name))
            tokenizer.save_pretrained(Path(folder, name))
            words = ["hf_blosan", "serve", str(Path(folder, name)), "--cpu"]
            servers[name] = stack.enter_context(running(words, arguments.threads))
        if arguments.peer:
            words = ["benchmarks.serving_peer", str(Path(arguments.peer).resolve())]
            servers["peer"] = stack.enter_context(running(words, arguments.threads))
        report = {"header": head, "rows": measured(servers, arguments, texts)}
        if arguments.soak_seconds:
            report["soak"] = soak(next(iter(servers.values())), arguments, texts)
    write_report(arguments.output, report, markdown(report))
    return report


def main(argv: list[str] | None = None) -> int:
    """The command; bad input is one sentence on standard error and exit code 2."""
    return exit_code(run, argv)


if __name__ == "__main__":
    sys.exit(main())
