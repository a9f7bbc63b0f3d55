"""The load of `benchmarks.serving`, run by locust: every client sends one text after the other.

The environment names the files: HF_BLOSAN_TEXTS, a JSON list of texts, and HF_BLOSAN_TIMES, where the times go. They
are taken for HF_BLOSAN_SECONDS.
"""

import json
import os
import random
import time
from pathlib import Path

import gevent
from locust import FastHttpUser, events, task
from locust.env import Environment

WARM_UP = 2.0
"""Seconds after the start of the last client that are left out."""

texts = json.loads(Path(os.environ["HF_BLOSAN_TEXTS"]).read_text(encoding="utf-8"))
times: list[float] = []
failures: list[str] = []
began = float("inf")


class Client(FastHttpUser):
    """Waits for an answer, then asks again."""

    def on_start(self) -> None:
        self.random = random.Random(random.randrange(2**32))

    @task
    def embed(self) -> None:
        self.client.post("/", json={"inputs": self.random.choice(texts)})


@events.init.add_listener
def prepare(environment: Environment, **_) -> None:
    @events.spawning_complete.add_listener
    def begin(**_) -> None:
        global began
        began = time.time() + WARM_UP
        gevent.spawn_later(WARM_UP + float(os.environ["HF_BLOSAN_SECONDS"]), environment.runner.quit)


@events.request.add_listener
def record(response_time: float, exception: Exception | None, start_time: float, **_) -> None:
    if start_time >= began:
        (failures if exception else times).append(str(exception) if exception else response_time)


@events.quitting.add_listener
def write(**_) -> None:
    content = {"seconds": time.time() - began, "milliseconds": times, "failures": failures}
    Path(os.environ["HF_BLOSAN_TIMES"]).write_text(json.dumps(content), encoding="utf-8")
