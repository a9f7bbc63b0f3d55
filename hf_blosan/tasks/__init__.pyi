# __init__.py imports these on first use.
from .custom import custom_task as custom_task
from .loading import load_task as load_task
from .table import TASKS as TASKS
from .table import get_task as get_task
from .task import Source as Source
from .task import Task as Task
