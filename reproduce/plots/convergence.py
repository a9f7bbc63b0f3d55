"""Convergence: the validation metric against training time (Bi-BloSAN, Figure 5)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_blosan.errors import InputError

from .charts import legend, name_metric, new_charts, styles
from .records import Record, by_system, check_same_hardware, means_and_errors, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def measure(records: Sequence[Record]) -> dict[str, Any]:
    """The validation metric after each evaluation, and the wall-clock training time until then.

    The mean of several runs is over the first evaluation of each, the second of each and so on, up to the end of the
    shortest run; the time includes evaluation.

    Args:
        records: of runs on one task and one machine, each with ``log.jsonl`` in its folder.

    Returns:
        ``task``, ``metric`` and ``systems``: label -> ``runs``, their ``curves`` (for each run its ``record``,
        ``seconds`` and ``values``) and ``seconds``, ``mean`` and ``standard_error`` (NaN for one run) over the runs.

    Raises:
        InputError: a log is missing or has no validation events, or the machines differ.
    """
    check_same_hardware(records)
    systems = {}
    for label, same in by_system(records).items():
        curves = [read_curve(record) for record in same]
        seconds, values = (list(zip(*(curve[name] for curve in curves))) for name in ("seconds", "values"))  # noqa: B905
        means = {"seconds": [float(np.mean(group)) for group in seconds]} | means_and_errors(values)
        systems[label] = {"runs": [curve["record"] for curve in curves], "curves": curves} | means
    return {"task": records[0].content["task"]["title"], "metric": records[0].metric, "systems": systems}


def draw(numbers: dict[str, Any]) -> Figure:
    """A line for each system, the mean of its runs with a band of one standard error, and a thin line for each run."""
    figure, (axes,) = new_charts(numbers["task"])
    note = ""
    for label, style in styles(numbers["systems"]).items():
        system, colour = numbers["systems"][label], style["color"]
        axes.plot(system["seconds"], system["mean"], linewidth=1.5, **style)
        if len(system["runs"]) > 1:
            note = "; thick: mean of the runs, with a band of one standard error; thin: each run"
            mean, error = (np.array(system[name], dtype=float) for name in ("mean", "standard_error"))
            axes.fill_between(system["seconds"], mean - error, mean + error, color=colour, alpha=0.2, linewidth=0)
            for curve in system["curves"]:
                axes.plot(curve["seconds"], curve["values"], color=colour, linewidth=0.5, alpha=0.5)
    axes.set_xlabel("seconds of training")
    axes.set_xlim(left=0)
    name_metric(axes, numbers["metric"], "validation")
    legend(figure, axes, f"a point is an evaluation{note}")
    return figure


def read_curve(record: Record) -> dict[str, Any]:
    """The seconds and values of a run's evaluations; raises InputError if its log is missing, or has no validation
    events or no times.
    """
    path, folder = record.folder / "log.jsonl", record.folder
    if not path.is_file():
        raise InputError(f"there is no log {path}; train with --output_dir {folder} (tables: with --keep_models)")
    try:
        events = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        # A resumed run repeats the updates after its checkpoint.
        evaluations = {event["step"]: event for event in events if event["event"] == "validation"}.values()
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not the log of a run; train the run again") from error
    if not evaluations:
        raise InputError(f"{path} has no validation events; train for at least one epoch")
    if any("seconds" not in event for event in evaluations):
        raise InputError(f"the validation events in {path} have no seconds, as in older versions; train the run again")
    known = next(iter(evaluations))
    names = [name for name in known if name.startswith("validation_") and name.endswith(record.metric)]
    if not names:
        raise InputError(f"the validation events in {path} have no {record.metric}; train the run again")
    values = [number(event[names[0]]) for event in evaluations]
    return {"record": str(record.path), "seconds": [event["seconds"] for event in evaluations], "values": values}
