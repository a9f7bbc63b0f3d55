# __init__.py imports these on first use.
from .custom import custom_task as custom_task
from .loading import load_task as load_task
from .table import TASKS as TASKS
from .table import Source as Source
from .table import Task as Task
from .table import get_task as get_task
