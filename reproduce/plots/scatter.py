"""The test metric against time and memory of training (Bi-BloSAN, Figure 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hf_blosan.errors import InputError

from .charts import legend, name_metric, new_charts, styles
from .records import Record, by_system, check_same_hardware, mean_and_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXES = {"seconds_per_epoch": "seconds of training per epoch", "peak_memory_mib": "peak memory (MiB)"}


def measure(records: Sequence[Record]) -> dict[str, Any]:
    """Training seconds per epoch including evaluation, peak memory in MiB, and test metric of each system.

    Memory is what a GPU allocates, or the resident size of the whole process on a CPU.

    Args:
        records: of runs on one task and one machine.

    Returns:
        ``task``, ``metric``, ``hardware`` and ``systems``: label -> ``runs``, and ``seconds_per_epoch``,
        ``peak_memory_mib`` and ``test``, each with ``mean`` and ``standard_error`` (NaN for one run).

    Raises:
        InputError: a record has no test figure or no memory, or the machines differ.
    """
    check_same_hardware(records)
    first, systems = records[0], {}
    for label, same in by_system(records).items():
        systems[label] = {
            "runs": [str(record.path) for record in same],
            "seconds_per_epoch": mean_and_error([seconds_per_epoch(record) for record in same]),
            "peak_memory_mib": mean_and_error([peak_memory(record) for record in same]),
            "test": mean_and_error([record.figure(f"test_{record.metric}") for record in same]),
        }
    title = first.content["task"]["title"]
    return {"task": title, "metric": first.metric, "hardware": first.hardware, "systems": systems}


def draw(numbers: dict[str, Any]) -> Figure:
    """The test metric against time and against memory, side by side; error bars: one standard error over the runs."""
    figure, charts = new_charts(numbers["task"], columns=2)
    systems, note = numbers["systems"], numbers["hardware"]
    for axes, (name, title) in zip(charts, AXES.items(), strict=True):
        for label, style in styles(systems).items():
            x, y = systems[label][name], systems[label]["test"]
            errors = {}
            if len(systems[label]["runs"]) > 1:
                errors = {"xerr": x["standard_error"], "yerr": y["standard_error"]}
                note = f"{numbers['hardware']}; bars: one standard error over the runs"
            axes.errorbar(x["mean"], y["mean"], **errors, linestyle="", **style)
        axes.set_xlim(0, 1.05 * axes.get_xlim()[1])
        axes.set_xlabel(title)
    name_metric(charts[0], numbers["metric"], "test")
    legend(figure, charts[0], note)
    return figure


def seconds_per_epoch(record: Record) -> float:
    training = record.content["training"]
    if not training["epochs"]:
        raise InputError(f"{record.path} is a run without training; leave it out")
    return training["seconds"] / training["epochs"]


def peak_memory(record: Record) -> float:
    """In MiB; raises InputError if the record has none."""
    memory = record.content["training"].get("peak_memory_mib")
    if memory is None:
        raise InputError(f"{record.path} has no peak memory, as in older versions and on Windows; train the run again")
    return memory
