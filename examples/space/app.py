"""The page of ``hf-blosan demo`` as a Space, for the models named in the Space's variables MODEL and MODEL2."""

import os
import sys

from hf_blosan.analysis.arguments import DemoArguments
from hf_blosan.analysis.page import demo

if not os.environ.get("MODEL"):
    sys.exit("set the Space's variable MODEL to the name of a model on the Hub")
host = os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1")  # Spaces set it
demo(DemoArguments(os.environ["MODEL"], os.environ.get("MODEL2"), host=host))
