"""Static word vectors from a sentence encoder: the file `minilm.static.300d.txt.gz` of the recorded runs.

    python examples/make_word_vectors.py --model sentence-transformers/all-MiniLM-L6-v2 --data_dir data \
        --output minilm.static.300d.txt.gz --compare data/embeddings/minilm.static.300d.txt.gz

Each word alone goes through the encoder. The vectors are centred, reduced by principal component analysis, and brought
to one length, at which a dimension has a root mean square of 0.4, about that of GloVe. No random number is involved.

The words are those of --words, of the vector file that is compared with, or else the most frequent lower-cased words
of the tables in --data_dir, in the spelling of the package's tokenizer. The vectors are written in GloVe's text format
with three decimals. Printed are the share of the variance that is kept and the SHA-256 of the text.
"""

import argparse
import gzip
import hashlib
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer

from hf_blosan.data.tables import read_table
from hf_blosan.errors import InputError
from hf_blosan.files import check_writable, write_bytes
from hf_blosan.text.tokenization import PAD_TOKEN, UNK_TOKEN, build_tokenizer
from hf_blosan.text.word_vectors import WordVectors, read_word_vectors

TEXT_COLUMNS = ("text", "sentence1", "sentence2", "question", "context", "en")
RMS = 0.4


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True, help="a sentence-transformers model: a folder or a name on the Hub")
    parser.add_argument("--output", type=Path, required=True, help="file to write: .txt or .txt.gz")
    parser.add_argument("--words", type=Path, help="file with a word a line; what follows a space is ignored")
    parser.add_argument("--data_dir", type=Path, default=Path("data"), help="has NAME/SPLIT.jsonl.gz")
    parser.add_argument("--num_words", type=int, default=50_000, help="of the tables, seen twice or more")
    parser.add_argument("--size", type=int, default=300, help="numbers per word; at most those of the model")
    parser.add_argument("--batch_size", type=int, default=256, help="words that the model encodes at a time")
    parser.add_argument("--compare", type=Path, help="vector file to compare with; without --words also the words")
    return parser.parse_args(argv)


def words_of_tables(data_dir: Path, limit: int) -> list[str]:
    """The most frequent words of all tables, those seen once left out.

    Raises:
        InputError: there is no table.
    """
    paths = sorted(data_dir.glob("*/*.jsonl.gz"))
    if not paths:
        raise InputError(f"--data_dir {data_dir} has no tables NAME/SPLIT.jsonl.gz; correct it, or give --words")
    tables = (read_table(path) for path in paths)
    texts = (
        text for rows in tables for column in TEXT_COLUMNS if column in rows.column_names for text in rows[column]
    )
    tokenizer = build_tokenizer(filter(None, texts), min_frequency=2, max_vocab_size=limit)
    words = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    return [word for word in words if word not in (PAD_TOKEN, UNK_TOKEN)]


def static_vectors(vectors: np.ndarray, size: int) -> tuple[np.ndarray, float]:
    """Sentence vectors (words, features) -> word vectors (words, size), and the share of the variance that they keep.

    Raises:
        InputError: there are fewer words or features than `size`.
    """
    if size > min(vectors.shape):
        raise InputError(f"--size {size}: {len(vectors)} words have vectors of {vectors.shape[1]}; give less")
    centred = vectors - vectors.mean(axis=0, dtype=np.float64)
    _, deviations, directions = np.linalg.svd(centred, full_matrices=False)
    reduced = centred @ directions[:size].T
    kept = (deviations[:size] ** 2).sum() / (deviations**2).sum()
    return reduced * (RMS * size**0.5 / np.linalg.norm(reduced, axis=1, keepdims=True)), float(kept)


def compared(made: WordVectors, other: WordVectors) -> str:
    """How far the vectors differ from those of the same words in another file, in a sentence.

    The sign of a component is arbitrary and depends on the linear algebra library: it is that of the other file.
    """
    common = [word for word in made.words if word in other.index]
    if not common or made.width != other.width:
        return f"The file to compare with has {len(common)} of the words and width {other.width}."
    a, b = (vectors.matrix[[vectors.index[word] for word in common]] for vectors in (made, other))
    signs = np.where((a * b).sum(axis=0) < 0, -1, 1)
    difference = np.abs(a * signs - b)
    cosines = (a * signs * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return (
        f"{len(common)} words in common: {(difference > 5e-4).sum()} of {a.size} numbers differ, by at most "
        f"{difference.max():.3f}; smallest cosine {cosines.min():.6f}; {(signs < 0).sum()} of {len(signs)} components "
        "have the other sign."
    )


def sha256(path: Path) -> str:
    """Of the text of a file, plain or compressed."""
    content = path.read_bytes()
    return hashlib.sha256(gzip.decompress(content) if path.suffix == ".gz" else content).hexdigest()


def run(options: argparse.Namespace) -> None:
    check_writable("--output", options.output, folder=False)
    for name in ("words", "compare"):
        path = getattr(options, name)
        if path and not path.is_file():
            raise InputError(f"--{name} {path}: there is no such file; correct the path")
    other = read_word_vectors(options.compare) if options.compare else None
    if options.words:
        lines = options.words.read_text(encoding="utf-8").splitlines()
        words = list(dict.fromkeys(line.split(" ")[0] for line in lines if line.strip()))
    else:
        words = other.words if other else words_of_tables(options.data_dir, options.num_words)
    model = SentenceTransformer(options.model, device="cpu")
    encoded = model.encode(words, batch_size=options.batch_size, show_progress_bar=True)
    matrix, kept = static_vectors(encoded, options.size)
    text = "".join(f"{word} {' '.join(f'{x:.3f}' for x in row)}\n" for word, row in zip(words, matrix, strict=True))
    zipped = options.output.suffix == ".gz"
    write_bytes(options.output, gzip.compress(text.encode(), mtime=0) if zipped else text.encode())
    print(f"{len(words)} words, {kept:.1%} of the variance")
    print(f"SHA-256 of the text: {sha256(options.output)}")
    if other:
        print(f"SHA-256 of {options.compare}: {sha256(options.compare)}")
        print(compared(read_word_vectors(options.output), other))


def main(argv: list[str] | None = None) -> None:
    try:
        run(parse(argv))
    except InputError as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main()
