"""Settings of all tests."""

import gc
import logging
import os
import sys
from pathlib import Path

import pytest

gc.disable()  # while tests are imported: a sixth of the time

# Their asserts show values when they fail, as those of the tests do.
pytest.register_assert_rewrite("cli_models", "serving_models")

# Small tensors do not fill a second thread, which would only be waited for; here and in the programs that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop():
    """The garbage collector leaves out what the imports have made, and runs less often: a twentieth of the time."""
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    gc.enable()


def pytest_sessionfinish():
    gc.unfreeze()


@pytest.fixture(autouse=True)
def one_thread():
    """Sums depend on the number of threads, which the commands of the benchmarks set."""
    import torch  # here, as the process that distributes the tests to others has no use for it

    torch.set_num_threads(1)
    yield
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def root_logger():
    """Commands set it up for standard error as it is in their test."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.fixture
def code_of_checkpoints(tmp_path, monkeypatch):
    """Code that comes with checkpoints is written to a folder of the test and imported from there."""

    def forget():
        for name in [name for name in sys.modules if name.partition(".")[0] == "transformers_modules"]:
            del sys.modules[name]

    forget()
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    # transformers appends its folder, so that one that is there already would come first.
    others = [place for place in sys.path if not Path(place, "transformers_modules").exists()]
    monkeypatch.setattr(sys, "path", others)
    yield
    forget()


@pytest.fixture
def remove_kernels(monkeypatch):
    """A function after which models compute as they do where the package's kernels are not installed."""

    from hf_blosan.models import attention, attention_blocks, attention_mtsa, attention_recurrent

    def remove():
        for module in (attention, attention_blocks, attention_mtsa, attention_recurrent):
            monkeypatch.setattr(module, "kernels", None)

    return remove


@pytest.fixture
def driver():
    """A Chromium without a window, which can reach nothing but this machine."""
    from benchmarks.browser import chromium  # here, because the tests of the kernels do without transformers
    from hf_blosan.errors import InputError

    try:
        with chromium() as driver:
            yield driver
    except InputError as error:
        pytest.skip(str(error))


@pytest.fixture
def question_file(tmp_path):
    """A file of 50 rows with questions."""
    from small_data import question_rows, write_rows

    return str(write_rows(tmp_path / "questions.jsonl", question_rows(50)))


@pytest.fixture(scope="session")
def questions(tmp_path_factory):
    """Options that name three files of questions with their classes, for training."""
    from small_data import question_rows, write_splits

    return write_splits(tmp_path_factory.mktemp("questions"), question_rows)


@pytest.fixture(scope="session")
def pairs(tmp_path_factory):
    """Options that name three files of scored pairs, for training."""
    from small_data import pair_rows, write_splits

    return write_splits(tmp_path_factory.mktemp("pairs"), pair_rows)


@pytest.fixture
def small_buffer(monkeypatch):
    """Eight rows are read ahead with `--batch_size 4`."""
    from hf_blosan.inference import stream

    monkeypatch.setattr(stream, "BUFFER_BATCHES", 2)


@pytest.fixture(scope="session")
def classifier(tmp_path_factory):
    """The folder of a small saved model that tells animals, colours and numbers apart."""
    from cli_models import save_classifier  # here, because the tests of the kernels do without transformers

    return save_classifier(tmp_path_factory.mktemp("classifier"))


@pytest.fixture(scope="session")
def folder_of_encoders(tmp_path_factory):
    """A folder like that of the encoders that come with the package; it has a small one, tiny-en."""
    from cli_models import save_encoder

    folder = tmp_path_factory.mktemp("pretrained")
    save_encoder(folder / "tiny-en")
    return folder


@pytest.fixture
def tiny_en(folder_of_encoders, monkeypatch):
    """The name of an encoder that comes with the package."""
    monkeypatch.setattr("hf_blosan.registry.PRETRAINED", folder_of_encoders)
    return "tiny-en"


@pytest.fixture(scope="session")
def scorer(tmp_path_factory):
    """The folder of a small saved model that scores pairs."""
    from cli_models import save_scorer

    return save_scorer(tmp_path_factory.mktemp("scorer"))
