# __init__.py imports these on first use.
from .base import Source as Source
from .base import Task as Task
from .custom import custom_task as custom_task
from .loading import load_task as load_task
from .table import TASKS as TASKS
from .table import get_task as get_task
