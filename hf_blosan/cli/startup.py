"""Settings that must be made before torch is imported."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SPINS = 10_000


def prepare_imports() -> None:
    """Limit spinning of idle threads, and hide warnings caused by torchao, which transformers imports if installed."""
    wait_briefly()
    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import without searching for garbage, which takes much of the time of torch and transformers.

    What they leave is not searched later either, which saves time when the command ends.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
        atexit.register(search_for_triton)


def search_for_triton() -> None:
    """Let triton's objects be freed: it prints those that are left at the end."""
    if "triton" in sys.modules:
        gc.unfreeze()


def wait_briefly() -> None:
    """Limit how long OpenMP threads spin before they sleep, unless the environment sets it.

    By default they spin for milliseconds; next to other programs this keeps cores from the threads
    they wait for. Timings are in benchmarks/reports/waiting.md.
    """
    if not os.environ.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}:
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)
