"""Run targets for some time each, guided by the coverage of the code under test where atheris is installed."""

import argparse
import subprocess
import sys
import time

from hypothesis import HealthCheck, Phase, settings

from . import targets

CASES_AT_A_TIME = 100


def fuzz(name: str, seconds: float) -> None:
    """With hypothesis alone; raises the error of the smallest case that was found."""
    options = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
    phases = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]
    target = settings(max_examples=CASES_AT_A_TIME, phases=phases, **options)(targets.TARGETS[name])
    end, cases = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        target()  # with other random numbers every time
        cases += CASES_AT_A_TIME
    print(f"{name}: about {cases:,} cases in {seconds:.0f} s, no error", flush=True)


def fuzz_by_coverage(name: str, seconds: float) -> None:
    """With atheris, in a process of its own: it ends the process."""
    import atheris

    target = targets.TARGETS[name]
    atheris.instrument_all()
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds:.0f}"], target.hypothesis.fuzz_one_input)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", default=list(targets.TARGETS), help=f"of {', '.join(targets.TARGETS)}")
    parser.add_argument("--minutes", type=float, default=10.0, help="for each target (10)")
    parser.add_argument("--atheris", action="store_true", help="use atheris; pip install atheris")
    options = parser.parse_args()
    if unknown := set(options.names) - set(targets.TARGETS):
        parser.error(f"no target {', '.join(unknown)}; choose from {', '.join(targets.TARGETS)}")
    if options.atheris and len(options.names) > 1:
        command = [sys.executable, "-m", "tests.fuzz", "--atheris", "--minutes", str(options.minutes)]
        return max(subprocess.run([*command, name]).returncode for name in options.names)
    for name in options.names:
        (fuzz_by_coverage if options.atheris else fuzz)(name, 60 * options.minutes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
