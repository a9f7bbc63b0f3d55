"""Settings of all tests."""

import os

import pytest
import torch

from hf_blosan.models import attention, attention_mtsa, layers_recurrent

# Small tensors do not fill a second thread, which would only be waited for. The variable is for the programs that
# tests start.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def one_thread():
    """Sums depend on the number of threads, which the commands of the benchmarks set."""
    yield
    torch.set_num_threads(1)


@pytest.fixture
def remove_kernels(monkeypatch):
    """A function after which models compute as they do where the package's kernels are not installed."""

    def remove():
        for module in (attention, attention_mtsa, layers_recurrent):
            monkeypatch.setattr(module, "kernels", None)

    return remove
