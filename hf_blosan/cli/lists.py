"""Tasks and encoders, one line each."""

from __future__ import annotations

from ..registry import ENCODERS
from ..tasks import TASKS
from .arguments import NoArguments


def task_list() -> str:
    """Name, title, and what a row is."""
    lines = []
    for task in TASKS.values():
        rows = "pairs" if task.num_sentences == 2 else "words" if task.problem == "tagging" else "texts"
        kinds = {"regression": "scores", "tagging": f"{len(task.labels)} tags", "translation": "translations"}
        kind = kinds.get(task.problem, f"{len(task.labels)} classes")
        what = "passages, one sentence" if task.problem == "selection" else f"{rows}, {kind}"
        lines.append(f"  {task.name:<18}{task.title} ({what})")
    return "\n".join(lines)


def encoder_list() -> str:
    """Model type and description."""
    return "\n".join(f"  {name:<18}{encoder.description}" for name, encoder in ENCODERS.items())


def tasks(options: NoArguments) -> int:
    """Print the tasks; return the exit status."""
    print(task_list())
    return 0


def encoders(options: NoArguments) -> int:
    """Print the encoders; return the exit status."""
    print(encoder_list())
    return 0
