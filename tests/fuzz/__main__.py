"""Run targets for some time each; with atheris, cases are chosen by the coverage of the package that they reach.

A case that ends the process leaves its files in the folder of temporary files.
"""

import argparse
import faulthandler
import logging
import subprocess
import sys
import time
from contextlib import nullcontext

from datasets import disable_progress_bars
from hypothesis import HealthCheck, Phase, settings

CASES_AT_A_TIME = 100


def fuzz(name: str, target, seconds: float) -> None:
    """With hypothesis alone; raises the error of the smallest case that was found."""
    options = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
    phases = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]
    target = settings(max_examples=CASES_AT_A_TIME, phases=phases, **options)(target)
    end, cases = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        target()  # with other random numbers every time
        cases += CASES_AT_A_TIME
    print(f"{name}: about {cases:,} cases in {seconds:.0f} s, no error", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", help="targets (all of targets.py)")
    parser.add_argument("--minutes", type=float, default=10.0, help="for each target (10)")
    parser.add_argument("--atheris", action="store_true", help="use atheris; pip install atheris")
    options = parser.parse_args()
    faulthandler.enable()
    instrumented = nullcontext()
    if options.atheris:
        import atheris

        instrumented = atheris.instrument_imports(include=["hf_blosan"])
    with instrumented:
        from .targets import TARGETS
    disable_progress_bars()
    logging.disable(logging.CRITICAL)  # what the libraries say of thousands of damaged files
    names, seconds = options.names or list(TARGETS), 60 * options.minutes
    if unknown := set(names) - set(TARGETS):
        parser.error(f"no target {', '.join(unknown)}; choose from {', '.join(TARGETS)}")
    if not options.atheris:
        for name in names:
            fuzz(name, TARGETS[name], seconds)
        return 0
    if len(names) > 1:  # atheris ends its process
        command = [sys.executable, "-m", "tests.fuzz", "--atheris", "--minutes", str(options.minutes)]
        return max(subprocess.run([*command, name]).returncode for name in names)
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds:.0f}"], TARGETS[names[0]].hypothesis.fuzz_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
