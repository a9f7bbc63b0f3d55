"""Tasks and encoders, one line each."""

from __future__ import annotations

from ..registry import ENCODERS
from ..tasks import TASKS
from ..tasks.kinds import describe_rows
from .arguments import NoArguments


def task_list() -> str:
    """Name, title, and a description of the rows."""
    return "\n".join(f"  {task.name:<18}{task.title} ({describe_rows(task)})" for task in TASKS.values())


def encoder_list() -> str:
    """Model type and description."""
    return "\n".join(f"  {name:<18}{encoder.description}" for name, encoder in ENCODERS.items())


def tasks(options: NoArguments) -> None:
    """Print the tasks."""
    print(task_list())


def encoders(options: NoArguments) -> None:
    """Print the encoders."""
    print(encoder_list())
