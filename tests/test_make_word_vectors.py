"""examples/make_word_vectors.py on small generated data, with a small BERT."""

import gzip
import hashlib
import json

import numpy as np
import pytest
from cli_models import save_sentence_bert
from sentence_transformers import SentenceTransformer
from sklearn.decomposition import PCA

from examples import make_word_vectors
from hf_blosan.data import make_demo_corpus
from hf_blosan.text.word_vectors import read_word_vectors

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Tables like the real ones, with made-up scores."""
    folder, corpus = tmp_path_factory.mktemp("data"), make_demo_corpus()
    for name in ("stsb", "sick"):
        (folder / name).mkdir()
        for split in ("train", "validation", "test"):
            rows = [
                {"sentence1": row["sentence1"], "sentence2": row["sentence2"], "score": float(number % 5)}
                for number, row in enumerate(corpus[split].select(range(100)))
            ]
            with gzip.open(folder / name / f"{split}.jsonl.gz", "wt") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
    return folder


@pytest.fixture(scope="module")
def teacher(data, tmp_path_factory):
    with gzip.open(data / "stsb" / "train.jsonl.gz", "rt") as file:
        return save_sentence_bert(tmp_path_factory.mktemp("teacher"), [json.loads(line)["sentence1"] for line in file])


def test_static_word_vectors_of_the_teacher(data, teacher, tmp_path, capsys):
    path = tmp_path / "vectors.txt.gz"
    options = ["--model", str(teacher), "--output", str(path), "--size", "10"]
    make_word_vectors.main([*options, "--data_dir", str(data)])
    made = read_word_vectors(path)
    assert {"the", "cat", "pushes"} <= set(made.words) and made.matrix.shape == (len(made.words), 10)
    np.testing.assert_allclose((made.matrix**2).mean(axis=1), 0.4**2, rtol=1e-2)  # three decimals
    encoded = SentenceTransformer(str(teacher), device="cpu").encode(made.words)
    expected = PCA(10, random_state=0).fit_transform(encoded)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    cosines = np.abs((made.matrix * expected).sum(axis=0)) / np.linalg.norm(made.matrix, axis=0)
    np.testing.assert_allclose(cosines, np.linalg.norm(expected, axis=0), rtol=1e-3)
    digest = hashlib.sha256(gzip.decompress(path.read_bytes())).hexdigest()
    assert f"SHA-256 of the text: {digest}" in capsys.readouterr().out

    # A component with the other sign, and a number that is a little off.
    other = tmp_path / "other.txt"
    matrix = made.matrix * np.where(np.arange(10) == 3, -1, 1)
    matrix[0, 0] += 0.25
    rows = zip(made.words, matrix, strict=True)
    other.write_text("".join(f"{word} {' '.join(f'{x:.3f}' for x in row)}\n" for word, row in rows))
    make_word_vectors.main([*options, "--compare", str(other)])
    shown = capsys.readouterr().out
    assert f"{len(made.words)} words in common: 1 of {10 * len(made.words)} numbers differ, by at most 0.250;" in shown
    assert shown.endswith("1 of 10 components have the other sign.\n") and digest in shown

    for wrong, message in ((["--words", "no.txt"], "--words no.txt: there is no"), (["--size", "90"], "--size 90: ")):
        with pytest.raises(SystemExit, match=message):
            make_word_vectors.main([*options, "--data_dir", str(data), *wrong])
    with pytest.raises(SystemExit, match="has no tables"):
        make_word_vectors.main([*options, "--data_dir", str(tmp_path)])
