"""Settings of all tests."""

import os

import pytest
import torch

from hf_blosan.models import attention, attention_mtsa, layers_recurrent

# Their asserts show values when they fail, as those of the tests do.
pytest.register_assert_rewrite("cli_models", "serving_models")

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


@pytest.fixture(scope="session")
def classifier(tmp_path_factory):
    """The folder of a small saved model that tells animals, colours and numbers apart."""
    from cli_models import save_classifier  # here, because the tests of the kernels do without transformers

    return save_classifier(tmp_path_factory.mktemp("classifier"))


@pytest.fixture(scope="session")
def scorer(tmp_path_factory):
    """The folder of a small saved model that scores pairs."""
    from cli_models import save_scorer

    return save_scorer(tmp_path_factory.mktemp("scorer"))
