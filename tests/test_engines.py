"""The examples for Ray Data and Spark give the vectors of `hf-blosan encode`; `make test-all` installs both."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_models import save_encoder
from small_data import question_rows

from hf_blosan.cli.commands import main

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.slow


def run(example, *words) -> str:
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])}
    environment |= {
        "RAY_DEDUP_LOGS": "0",
        "RAY_DATA_DEFAULT_WAIT_FOR_MIN_ACTORS_S": "500",
    }  # both start before the rows
    command = [sys.executable, str(ROOT / "examples" / example), *map(str, words)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout + run.stderr


@pytest.fixture
def rows(tmp_path):
    """A Parquet file, a model, and the vector of each row."""
    source, model = tmp_path / "rows.parquet", save_encoder(tmp_path / "model")
    texts = [row["text"] for row in question_rows(300)]
    pq.write_table(pa.table({"id": range(300), "text": texts}), source, row_group_size=64)
    assert main(["encode", model, str(source), str(tmp_path / "expected.npy"), "--cpu"]) == 0
    return model, source, np.load(tmp_path / "expected.npy")


def read(folder: Path) -> tuple[list[int], np.ndarray]:
    table = pa.concat_tables([pq.read_table(path) for path in folder.glob("*.parquet")]).sort_by("id")
    assert table.column_names == ["id", "text", "vector"]
    return table["id"].to_pylist(), np.array(table["vector"].to_pylist(), dtype=np.float32)


@pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra hf_blosan[ray]")
def test_two_actors_of_ray_load_once_each(rows, tmp_path):
    model, source, expected = rows
    output = run("ray_data.py", model, source, tmp_path / "out", "--actors", 2, "--rows", 32)
    loaded = re.findall(r"pid=(\d+).* is loaded", re.sub(r"\x1b\[[0-9;]*m", "", output))
    assert len(loaded) == len(set(loaded)) == 2
    ids, vectors = read(tmp_path / "out")
    assert ids == list(range(300))
    np.testing.assert_allclose(vectors, expected, atol=1e-3)  # of float16


@pytest.mark.skipif(find_spec("pyspark") is None, reason="needs the extra hf_blosan[spark]")
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs a Java runtime")
def test_tasks_of_spark(rows, tmp_path):
    model, source, expected = rows
    run("spark.py", model, source, tmp_path / "out", "--master", "local[2]", "--partitions", 2)
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 2
    ids, vectors = read(tmp_path / "out")
    assert ids == list(range(300))
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
