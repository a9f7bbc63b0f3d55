"""The cases that fuzzing has found; `make fuzz` looks for more."""

import subprocess
import sys
from pathlib import Path

import pytest
from fuzz.targets import TARGETS
from hypothesis import HealthCheck, Phase, settings


@pytest.mark.parametrize("name", TARGETS)
def test_found_cases(name):
    options = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
    settings(phases=[Phase.explicit], **options)(TARGETS[name])()


@pytest.mark.slow
def test_command():
    command = [sys.executable, "-m", "tests.fuzz", "--minutes", "0.01"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("no error") == len(TARGETS)
