"""Settings that must be made before torch is imported."""

from __future__ import annotations

import logging
import os

SPINS = 10_000


def prepare_imports() -> None:
    """Set how idle threads wait, and silence warnings of other packages."""
    wait_briefly()
    quiet_imports()


def wait_briefly() -> None:
    """Limit how long OpenMP threads spin before they sleep, unless the environment sets it.

    By default they spin for milliseconds, and beside other programs they then occupy the cores of the very threads
    that they wait for: benchmarks/reports/waiting.md has the times.
    """
    if not os.environ.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}:
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)


def quiet_imports() -> None:
    """Hide the warnings that torchao, which transformers imports where it is installed, causes; errors are shown."""
    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)
