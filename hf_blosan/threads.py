"""How OpenMP's threads wait for work, which is decided before torch is imported."""

from __future__ import annotations

import os

SPINS = 10_000


def wait_briefly() -> None:
    """Let a thread that waits spin for a moment only, unless the environment says how threads wait.

    By default they spin for milliseconds. Beside other programs they then keep the cores that the threads which they
    wait for need; benchmarks/reports/waiting.md has the times.
    """
    if not os.environ.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}:
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)
