"""The test metric against time and memory of training (Bi-BloSAN, Figure 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hf_blosan.errors import InputError

from .charts import counted, legend, name_metric, new_charts, styles
from .runs import Run, by_system, check_same_hardware, hardware, mean_and_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXES = {"seconds_per_epoch": "seconds of training per epoch", "peak_memory_mib": "peak memory (MiB)"}


def measure(runs: Sequence[Run]) -> dict[str, Any]:
    """Seconds of training per epoch with its evaluations, peak memory in MiB, and the test metric of each system.

    Memory is what a GPU allocates, or the resident size of the whole process on a CPU.

    Args:
        runs: runs on one task and one machine.

    Returns:
        ``task``, ``metric``, ``hardware`` and ``systems``: label -> ``runs``, and ``seconds_per_epoch``,
        ``peak_memory_mib`` and ``test``, each with ``mean`` and ``standard_error`` (NaN for one run).

    Raises:
        InputError: a record has no test figure or no memory, or the machines differ.
    """
    check_same_hardware(runs)
    numbers: dict[str, Any] = {
        "task": runs[0].record["task"]["title"],
        "metric": runs[0].metric,
        "hardware": hardware(runs[0]),
        "systems": {},
    }
    for label, same in by_system(runs).items():
        figures = {
            "seconds_per_epoch": [seconds_per_epoch(run) for run in same],
            "peak_memory_mib": [peak_memory(run) for run in same],
            "test": [run.figure(f"test_{run.metric}") for run in same],
        }
        system: dict[str, Any] = {"runs": [str(run.path) for run in same]}
        for name, values in figures.items():
            system[name] = dict(zip(("mean", "standard_error"), mean_and_error(values), strict=True))
        numbers["systems"][label] = system
    return numbers


def draw(numbers: dict[str, Any]) -> Figure:
    """The test metric against time, and beside it against memory; error bars are one standard error over the runs."""
    figure, charts = new_charts(numbers["task"], columns=2)
    several = any(len(system["runs"]) > 1 for system in numbers["systems"].values())
    for axes, (name, title) in zip(charts, AXES.items(), strict=True):
        for label, style in styles(list(numbers["systems"])).items():
            system = numbers["systems"][label]
            x, y, runs = system[name], system["test"], len(system["runs"])
            errors = {"xerr": x["standard_error"], "yerr": y["standard_error"]} if runs > 1 else {}
            axes.errorbar(x["mean"], y["mean"], **errors, label=counted(label, runs), linestyle="", **style)
        axes.set_xlim(0, 1.05 * axes.get_xlim()[1])
        axes.set_xlabel(title)
    name_metric(charts[0], numbers["metric"], "test")
    bars = "; bars: one standard error over the runs" if several else ""
    legend(figure, charts[0], f"{numbers['hardware']}{bars}")
    return figure


def seconds_per_epoch(run: Run) -> float:
    training = run.record["training"]
    if not training["epochs"]:
        raise InputError(f"{run.path} is a run without training; leave it out")
    return training["seconds"] / training["epochs"]


def peak_memory(run: Run) -> float:
    """In MiB; raises InputError if the record has none."""
    memory = run.record["training"].get("peak_memory_mib")
    if memory is None:
        raise InputError(f"{run.path} has no peak memory, as in older versions and on Windows; train the run again")
    return memory
