"""What a command decides before torch is imported."""

from __future__ import annotations

import logging
import os

SPINS = 10_000


def prepare_imports() -> None:
    """Decide how threads wait, and which warnings of other packages are not shown."""
    wait_briefly()
    quiet_imports()


def wait_briefly() -> None:
    """Let a thread that waits spin for a moment only, unless the environment says how threads wait.

    By default they spin for milliseconds. Beside other programs they then keep the cores that the threads which they
    wait for need; benchmarks/reports/waiting.md has the times.
    """
    if not os.environ.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}:
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)


def quiet_imports() -> None:
    """Where torchao is installed, transformers imports it, and it warns of parts that nobody asked for.

    Its warnings, and torch's of how it registers its classes, are not shown; errors are.
    """
    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)
