# __init__.py imports these on first use.
from .arguments import RunArguments as RunArguments
from .arguments import parse_arguments as parse_arguments
from .evaluate_model import evaluate as evaluate
from .optim import build_optimizer as build_optimizer
from .optim import l2_penalty as l2_penalty
from .run import main as main
from .run import train as train
