"""Tasks: their table, their rows, and what is particular to each kind of them.

The table is there at once; what loads and encodes rows is imported on first use and needs the extra `train`.
"""

from importlib import import_module

from .table import TASKS as TASKS
from .table import Source as Source
from .table import Task as Task
from .table import get_task as get_task

_LAZY = {"custom_task": "custom", "load_task": "loading"}

__all__ = ["TASKS", "Source", "Task", "custom_task", "get_task", "load_task"]


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_LAZY[name]}", __name__), name)
