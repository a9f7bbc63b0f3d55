"""The metrics that Prometheus reads from ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
POWERS_OF_2 = tuple(2**i for i in range(11))


class Metrics:
    """Counters and histograms of a server, and memory, CPU time and open files of its process.

    ``waiting`` returns the number of texts accepted but not yet answered.
    """

    def __init__(self, waiting: Callable[[], int]):
        self.registry = CollectorRegistry()
        there = {"registry": self.registry, "namespace": "hf_blosan"}
        ProcessCollector(registry=self.registry)
        self.requests = Counter("requests", "Requests, by the status of the answer.", ["status"], **there)
        self.seconds = Histogram("request_seconds", "Time from request to answer.", buckets=SECONDS, **there)
        self.batch_texts = Histogram("batch_texts", "Texts in a batch.", buckets=POWERS_OF_2, **there)
        self.batch_seconds = Histogram("batch_seconds", "Time to compute a batch.", buckets=SECONDS, **there)
        self.tokens = Counter("tokens", "Tokens computed, without padding.", **there)
        self.padding = Counter("padding_tokens", "Padding tokens computed.", **there)
        Gauge("waiting_texts", "Texts accepted and not yet answered.", **there).set_function(waiting)
