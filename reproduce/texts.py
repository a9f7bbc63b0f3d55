"""Texts without labels, which teachers label: samples of the data sets of other tasks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from hf_blosan.data.tables import read_table
from hf_blosan.errors import InputError
from hf_blosan.files import write_text

NUMBER, SEED = 20_000, 1


def write_texts(source: str, data_dir: str | None, path: str | Path) -> None:
    """Write a seeded sample of 20,000 texts, in a column ``text``, unless the file exists.

    Args:
        source: ``"squad"``, the questions of its training rows, or a source of ``text/train``, such as
            ``"movie_reviews"``.
        data_dir: folder of the data sets.
        path: JSON lines file.

    Raises:
        InputError: the folder is not given, or lacks the texts.
    """
    if Path(path).exists():
        return
    if data_dir is None:
        raise InputError("a teacher labels texts of other data sets, which are not on the Hub; give --data_dir")
    if source == "squad":
        texts = read_table(Path(data_dir, "squad", "train.jsonl.gz"))["question"][:]
    else:
        rows = read_table(Path(data_dir, "text", "train.jsonl.gz"))
        texts = [text for text, found in zip(rows["text"][:], rows["source"][:], strict=True) if found == source]
    if not texts:
        raise InputError(f"{data_dir} has no texts of {source}; correct --data_dir")
    order = np.random.default_rng(SEED).permutation(len(texts))[:NUMBER]
    write_text(path, "".join(json.dumps({"text": texts[i]}, ensure_ascii=False) + "\n" for i in order))
