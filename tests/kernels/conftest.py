"""The kernels as they run where the C++ is not compiled."""

import pytest
import torch

from hf_blosan.kernels import recurrence
from hf_blosan.kernels.directional import chunks
from hf_blosan.kernels.directional import operator as directional
from hf_blosan.kernels.library import NAMESPACE, has_cpu_kernels
from hf_blosan.kernels.tensorized import tiles
from hf_blosan.models import attention

FORMS = {"directional_attention": directional, "linear_recurrence": recurrence, "tensorized_attention": tiles}


@pytest.fixture
def without_cpp(monkeypatch):
    """A function after which operators take their forms in plain torch on the CPU too, until the test ends."""
    scope = torch.library.Library(NAMESPACE, "IMPL")

    def remove():
        monkeypatch.setattr(directional, "has_cpu_kernels", lambda: False)
        for name, form in FORMS.items():
            scope.impl(name, form.forward, "CPU")
            scope.impl(f"{name}_backward", form.backward, "CPU")

    yield remove
    scope._destroy()


@pytest.fixture(params=["kernel", "torch", "equations"])
def form(request, monkeypatch, remove_kernels, without_cpp):
    """What computes directional attention, see test_directional.py."""
    if request.param == "torch":
        without_cpp()
        monkeypatch.setattr(chunks, "CHUNK_ELEMENTS", 500)
    elif request.param == "equations":
        remove_kernels()
        monkeypatch.setattr(attention, "CHUNK_ELEMENTS", 1 << 14)
    elif not has_cpu_kernels():
        pytest.skip("the C++ kernels are not compiled")
    return request.param
