"""What is fuzzed, and with what."""

import functools
import gzip
import io
import json
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import datasets
import numpy as np
import pyarrow
import torch
from accelerate import Accelerator
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import parquet
from safetensors.torch import load_file, save
from transformers import AutoConfig, AutoModelForSequenceClassification

from hf_blosan.cli.overrides import parse_config_overrides
from hf_blosan.data.rows import READABLE_ROWS, READABLE_TABLES, Rows
from hf_blosan.data.tables import read_table
from hf_blosan.errors import InputError
from hf_blosan.hub.configs import read_config
from hf_blosan.hub.saved import load
from hf_blosan.registry import FAMILIES
from hf_blosan.tasks import custom_task, load_task
from hf_blosan.text.tokenization import build_tokenizer
from hf_blosan.text.word_vectors import read_word_vectors
from hf_blosan.training.checkpoints import Progress, find_checkpoint, save_checkpoint
from reproduce.convert_tf_checkpoint import convert_model, read_arrays

GOLDEN = Path(__file__).parents[1] / "golden"


@contextmanager
def one_sentence():
    """The only error of a reader is an InputError, of one line."""
    try:
        yield
    except InputError as error:
        assert str(error).strip() and "\n" not in str(error), f"not one sentence: {error}"


@contextmanager
def folder():
    """A folder of its own, where `datasets` also keeps what it has read."""
    with tempfile.TemporaryDirectory() as path:
        cache, datasets.config.HF_DATASETS_CACHE = datasets.config.HF_DATASETS_CACHE, Path(path) / "cache"
        try:
            yield Path(path)
        finally:
            datasets.config.HF_DATASETS_CACHE = cache


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["cut", "replace", "compress", "insert"]),
        st.integers(0, 10_000),
        st.binary(min_size=1, max_size=4),
    ),
    max_size=2,
)


def damage(data: bytes, steps: list[tuple[str, int, bytes]]) -> bytes:
    """Bytes cut off, with others put in, or compressed; a place beyond the end counts from the start again."""
    for step, place, new in steps:
        place %= len(data) + 1
        if step == "compress":
            data = gzip.compress(data, mtime=0)
        elif step == "cut":
            data = data[:place]
        else:
            data = data[:place] + new + data[place + (len(new) if step == "replace" else 0) :]
    return data


def damaged(contents: st.SearchStrategy) -> st.SearchStrategy:
    return st.builds(damage, contents, STEPS)


def joined(parts: st.SearchStrategy, separators: list[bytes], **limits) -> st.SearchStrategy:
    return st.tuples(st.lists(parts, **limits), st.sampled_from(separators)).map(lambda x: x[1].join(x[0]))


NUMBERS = st.one_of(
    st.floats(width=32).map(str), st.integers(-3, 3).map(str), st.sampled_from(["", "1e999", "0x1", "1_0", "-", "٣"])
)
WORDS = st.one_of(st.text(max_size=3), st.sampled_from(["the", ".", "\ufeff", "\u00a0", "\u2028", "2", "\r", "\x00"]))

# --- Word vectors -----------------------------------------------------------------------------------------------

VECTOR_LINES = joined(
    joined(st.one_of(NUMBERS, WORDS).map(lambda x: x.encode("utf-8", "surrogatepass")), [b" ", b"  "], max_size=5),
    [b"\n", b"\r\n"],
    max_size=5,
)


@given(damaged(st.one_of(VECTOR_LINES, st.binary(max_size=60))), st.sampled_from([".txt", ".txt.gz"]))
@example(b"the 1 2\n. \xff 3 4\n", ".txt")  # the second part of a word is not UTF-8
@example(b"\xef\xbb\xbf2 2\nthe 1 2\nof 3 4\n", ".txt")  # a byte order mark before the header
@example(gzip.compress(b"a 1 2\n" * 999)[:18] + b"\xff" * 9, ".txt.gz")
def word_vectors(data, suffix):
    with folder() as path, one_sentence():
        file = path / f"vectors{suffix}"
        file.write_bytes(data)
        vectors = read_word_vectors(file)
        assert vectors.matrix.shape == (len(vectors.words), vectors.width) and vectors.width > 0
        assert np.isfinite(vectors.matrix).all() and len(set(vectors.words)) == len(vectors.words)


# --- Tables -----------------------------------------------------------------------------------------------------

COLUMNS = st.sampled_from(["text", "label", "score", "sentence1", "sentence2", "id", "", "a"])
CELLS = st.one_of(WORDS, NUMBERS, st.sampled_from(["1e308", "-1", "a,b", '"', "text", "label", "0", "1", "²"]))
SEPARATED = st.builds(
    lambda header, rows, delimiter: "\n".join(delimiter.join(row) for row in [header, *rows]),
    st.lists(COLUMNS, max_size=3),
    st.lists(st.lists(CELLS, max_size=3), max_size=6),
    st.sampled_from([",", "\t"]),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), WORDS, CELLS),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(COLUMNS, inner, max_size=2)),
    max_leaves=4,
)
OBJECTS = st.dictionaries(COLUMNS, VALUES, max_size=3)
JSON_LINES = st.one_of(
    st.lists(OBJECTS, max_size=5).map(lambda rows: "\n".join(map(json.dumps, rows))),
    st.lists(st.one_of(OBJECTS, VALUES), max_size=4).map(json.dumps),
)
# Rows that make a task, so that what follows the reader is reached too.
LABELLED = st.lists(st.tuples(WORDS, CELLS), min_size=4, max_size=9).map(
    lambda rows: "\n".join(json.dumps({"text": text, "label": label}) for text, label in rows)
)


def parquet_file(columns):
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue()


PARQUET_FILES = st.dictionaries(
    COLUMNS, st.lists(st.one_of(st.integers(0, 2), st.none()), min_size=3, max_size=3)
).map(lambda columns: parquet_file(columns or {"text": ["a"]}))
# The schema, in base64 of Arrow, has integers of 1000 bits.
WIDE_INTEGERS = parquet_file({"text": [0]}).replace(b"FAAAAAAAAAAA==", b"+AAAAAAAAAAA==")

TEXTS = st.one_of(SEPARATED, JSON_LINES, LABELLED).map(lambda text: text.encode("utf-8", "surrogatepass"))
TABLES = damaged(st.one_of(TEXTS, TEXTS, PARQUET_FILES, st.binary(max_size=40)))


@given(TABLES, st.sampled_from(READABLE_TABLES))
@example(b"text,label\na,0\ntext,label\nb,1\n", ".csv")
@example(b"text,text,label\na,b,0\n", ".csv")
@example(b"text,score\na,1e308\nb,-1e308\n", ".csv")
@example(gzip.compress(b"text,label\n" + b"a,0\n" * 999)[:20] + b"\xff" * 30, ".csv.gz")
@example(b"text,label\na,0\nb,1\nc,2\nd,00\n", ".csv")  # every class has a single row
@example(b'null\n{"text": "a", "label": 0}\n', ".jsonl")  # ended the process
@example(b'[null, {"text": "a", "label": 0}]', ".json")
@example(b'a,"b\nc"\n1,2\n', ".csv")  # a line break in a name
@example("text,label\na,²\nb,0\n".encode(), ".csv")  # a digit that is no number
@example(b'{"text": "a", "label": ' + b"[" * 200_000, ".jsonl")  # ended the process
@example(b"\n\ntext,label\na,0\nb,1,2\n", ".csv")
def tables(data, suffix):
    with folder() as path:
        file = path / f"rows{suffix}"
        file.write_bytes(data)
        with one_sentence():
            table = read_table(file)
            assert len(table) > 0
        with one_sentence():
            task = custom_task(file)
            splits = load_task(task, seed=1, validation_fraction=0.5)
            assert len(splits["train"]) > 0 and len(splits["validation"]) > 0


@given(TABLES, st.sampled_from(READABLE_ROWS))
@example(WIDE_INTEGERS, ".parquet")
@example(b'{"text": "a", "text": "b"}\n', ".jsonl")
@example(gzip.compress(b"text\n" + b"a\n" * 999)[:20] + b"\xff" * 30, ".csv.gz")
@example(b'text,label\na,"0\nb,1\n', ".csv")  # swallowed the rest of the file
@example(b'{"text": ' + b"[" * 3000, ".jsonl")
def rows(data, suffix):
    with folder() as path, one_sentence():
        file = path / f"rows{suffix}"
        file.write_bytes(data)
        with Rows(file) as found:
            assert all(isinstance(row, dict) for row in found)


# --- Configurations ---------------------------------------------------------------------------------------------

FIELDS = sorted(AutoConfig.for_model("mtsa").to_dict() | AutoConfig.for_model("textcnn").to_dict())
NOT_SIZES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 12), st.floats(), st.text(max_size=4), st.lists(st.integers(-1, 4)),
    st.sampled_from(["forward", "auto", "paper", "additive", ["forward"], ["diagonal", "full"], [None, 3], {}]),
)  # fmt: skip


@given(st.sampled_from(list(FAMILIES)), st.dictionaries(st.sampled_from(FIELDS), NOT_SIZES, max_size=3))
@example("disan", {"initializer_range": float("nan")})
@example("disan", {"hidden_size": "abc"})
@example("disan", {"id2label": 3})
@example("disan", {"dtype": []})
@example("mtsa", {"windows": 3})
def configurations(model_type, fields):
    small = {"vocab_size": 9, "embedding_size": 4, "hidden_size": 4, "model_type": model_type}
    with folder() as path, one_sentence():
        (path / "config.json").write_text(json.dumps(small | fields), encoding="utf-8")
        config = read_config(str(path))
        assert config.hidden_size % max(1, len(config.directions)) == 0


@given(damaged(st.just(json.dumps({"model_type": "disan", "hidden_size": 4}).encode())))
@example(b"[]")
@example(b"3")
def configuration_files(data):
    with folder() as path, one_sentence():
        (path / "config.json").write_bytes(data)
        read_config(str(path))


@given(st.one_of(st.text(max_size=30), joined(st.one_of(WORDS, NUMBERS), ["=", ",", "[", ": ", "{", "!!"])))
@example("0=")
@example("a=2001-99-99")
def overrides(text):
    with one_sentence():
        assert all(isinstance(name, str) for name in parse_config_overrides(text))


# --- Checkpoints ------------------------------------------------------------------------------------------------


@functools.cache
def saved_model() -> Path:
    """A small classifier with its tokenizer; the folder goes with the process."""
    path = Path(tempfile.mkdtemp(prefix="fuzz-"))
    tokenizer = build_tokenizer(["a few words"])
    sizes = {"embedding_size": 4, "hidden_size": 4, "classifier_size": 4, "vocab_size": len(tokenizer)}
    model = AutoModelForSequenceClassification.from_config(AutoConfig.for_model("disan", **sizes))
    model.save_pretrained(path, include_code=False)
    tokenizer.save_pretrained(path)
    return path


@given(st.sampled_from(["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"]), STEPS)
@example("model.safetensors", [("cut", 0, b"")])
@example("model.safetensors", [("replace", 8, b"\xff")])
@example("tokenizer.json", [("cut", 100, b"")])
def checkpoints(name, steps):
    with folder() as path:
        shutil.copytree(saved_model(), path, dirs_exist_ok=True)
        (path / name).write_bytes(damage((path / name).read_bytes(), steps))
        with one_sentence():
            model, tokenizer = load(str(path), "feature-extraction", cpu=True)
            assert model(**tokenizer("few words", return_tensors="pt")).pooler_output.shape == (1, 4)


@functools.cache
def training_checkpoint() -> Path:
    """One of a run; it has everything but weights, which are files like the others."""
    path, accelerator = Path(tempfile.mkdtemp(prefix="fuzz-")), Accelerator(cpu=True)
    settings = {"learning_rate": 0.1, "config.directions": ["forward", "backward"]}
    return save_checkpoint(accelerator, path, "step_5", settings, Progress(step=5, best_metric=0.5))


@given(st.sampled_from(["checkpoint.json", "random_states_0.pkl"]), STEPS)
@example("checkpoint.json", [("replace", 60, b"9")])
@example("random_states_0.pkl", [("cut", 0, b"")])
def training_checkpoints(name, steps):
    with folder() as path:
        copy = shutil.copytree(training_checkpoint(), path / "step_5")
        content = (copy / name).read_bytes()
        damaged = damage(content, steps)
        (copy / name).write_bytes(damaged)
        with one_sentence():
            assert find_checkpoint("latest", path) == find_checkpoint(copy, path) == copy
            assert damaged == content or name == "checkpoint.json" and json.loads(damaged) == json.loads(content)


# --- Arrays of TensorFlow ---------------------------------------------------------------------------------------


@functools.cache
def variables() -> dict[str, torch.Tensor]:
    tensors = load_file(GOLDEN / "task_snli_disan.safetensors")
    return {name.removeprefix("weight/"): t for name, t in tensors.items() if name.startswith("weight/")}


CHANGES = {
    "drop": lambda array: None,
    "flatten": lambda array: array.flatten(),
    "cut": lambda array: torch.atleast_1d(array)[:1],
    "scalar": lambda array: torch.tensor(1.0),
    "integers": lambda array: array.long(),
    "empty": lambda array: torch.atleast_1d(array)[:0],
    "deeper": lambda array: array[None, None],
    "same": lambda array: array,
}


@given(
    st.sampled_from(list(FAMILIES)[:4]),
    st.lists(
        st.tuples(
            st.sampled_from(sorted(variables())),
            st.sampled_from(list(CHANGES)),
            st.sampled_from(["", "", "/x", "_1", "/W", "/Adam", "/qkv_combine/W"]),
        ),
        max_size=2,
    ),
)
@example("disan", [("disan/emb/gene_token_emb_mat/emb_mat", "scalar", "")])
@example("disan", [("disan/emb/gene_token_emb_mat/emb_mat", "flatten", "")])
@example("mtsa", [])
def tensorflow_arrays(model_type, changes):
    """One or two of a model's arrays missing, renamed, or of another shape or dtype."""
    arrays = dict(variables())
    for name, change, suffix in changes:
        if name in arrays:
            array = CHANGES[change](arrays.pop(name))
            arrays |= {} if array is None else {name + suffix: array}
    with one_sentence():
        assert sum(x.numel() for x in convert_model(model_type, arrays).parameters()) > 0


@st.composite
def array_files(draw):
    suffix = draw(st.sampled_from([".npz", ".safetensors"]))
    arrays = {"a": torch.ones(2, 3), "b/c": torch.zeros(1)}
    if suffix == ".safetensors":
        return draw(damaged(st.just(save(arrays)))), suffix
    file = io.BytesIO()
    kind = draw(st.sampled_from([float, np.uint16, object, "U3", complex, "datetime64[s]"]))
    np.savez(file, **{name: x.numpy().astype(kind) for name, x in arrays.items()})
    return draw(damaged(st.just(file.getvalue()))), suffix


@given(array_files())
@example((b"", ".npz"))
def array_file(case):
    data, suffix = case
    with folder() as path, one_sentence():
        file = path / f"arrays{suffix}"
        file.write_bytes(data)
        assert all(isinstance(x, torch.Tensor) for x in read_arrays(file).values())


TARGETS = {
    target.__name__: target
    for target in (
        *(
            word_vectors,
            tables,
            rows,
            configurations,
            configuration_files,
            overrides,
            checkpoints,
            training_checkpoints,
        ),
        *(tensorflow_arrays, array_file),
    )
}
