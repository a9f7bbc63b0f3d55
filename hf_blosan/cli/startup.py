"""Settings that must be made before torch is imported."""

from __future__ import annotations

import logging
import os

SPINS = 10_000


def prepare_imports() -> None:
    """Limit spinning of idle threads, and hide warnings caused by torchao, which transformers imports if installed."""
    wait_briefly()
    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)


def wait_briefly() -> None:
    """Limit how long OpenMP threads spin before they sleep, unless the environment sets it.

    By default they spin for milliseconds; next to other programs this keeps cores from the threads
    they wait for. Timings are in benchmarks/reports/waiting.md.
    """
    if not os.environ.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}:
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)
