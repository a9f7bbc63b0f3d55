"""Settings of all tests."""

import os

import torch

# Small tensors do not fill a second thread, which would only be waited for. The variable is for the programs that
# tests start.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")
