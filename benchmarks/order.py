"""Word order and negation: `python -m benchmarks.order --models FOLDER,... --output NAME.json [--data_dir DIR]`.

An encoder is right about an item of `benchmarks/order_suite` if it finds the text nearer, by cosine, to its paraphrase
than to its foil. With `--data_dir`, SemAntoNeg, which is for tests only: the text must be nearest to the one of three
sentences that says the same.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hf_blosan.cli.options import option
from hf_blosan.data.columns import check_columns
from hf_blosan.data.tables import read_table
from hf_blosan.errors import InputError
from hf_blosan.registry import locate

from .command import Options, choose, command
from .order_suite import PARTS, items, texts
from .peers_systems import model2vec_table, token_table
from .report import page, table

TIE = 1e-6
"""Cosines that differ by less are equal: float32 adds the same vectors in another order to within this."""
RESAMPLES = 2000
SEMANTONEG = "semantoneg"
COLUMNS = {
    ("roles", "same_form"): "roles, same form",
    ("roles", "paraphrase_form"): "roles, paraphrase's form",
    ("attributes", "same_form"): "attributes, same form",
    ("attributes", "paraphrase_form"): "attributes, paraphrase's form",
    ("negation", "negation"): "negation",
    (SEMANTONEG, SEMANTONEG): "SemAntoNeg (test only)",
}
MAKERS: dict[str, Callable[[str, int], Any]] = {
    "token_vectors": token_table,
    "model2vec": lambda folder, seed: model2vec_table(folder),
    "last_64": lambda folder, seed: LastFeatures(load(folder, seed), 64),
}
"""What is made of another model, which follows after a colon: static models, and the last features of its vectors."""

Vectors = dict[str, np.ndarray]


def load(name: str, seed: int) -> Any:
    """A sentence-transformers model, of a name as in ``--models``, without its label.

    Raises:
        InputError: it cannot be loaded.
    """
    from sentence_transformers import SentenceTransformer

    maker, _, source = name.partition(":")
    try:
        return (
            MAKERS[maker](locate(source), seed) if maker in MAKERS else SentenceTransformer(locate(name), device="cpu")
        )
    except (OSError, ValueError, ImportError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"--models {name}: it cannot be loaded ({reason}); give a folder or a name on the Hub"
        ) from error


@dataclass
class LastFeatures:
    """A model of which only the last features of a vector are used."""

    model: Any
    size: int

    def encode(self, *args: Any, **options: Any) -> np.ndarray:
        """(texts, size)."""
        return self.model.encode(*args, **options)[:, -self.size :]


def named_models(models: str) -> dict[str, str]:
    """The names in ``--models`` by their labels.

    Raises:
        InputError: two have the same.
    """
    pairs = (entry.rpartition("=") for entry in models.split(","))
    named = {label or Path(name).name: name for label, _, name in pairs}
    if len(named) < len(models.split(",")):
        raise InputError(f"--models {models}: two have the same name; give them labels as in LABEL=FOLDER")
    return named


def encode(model: Any, sentences: Iterable[str], batch_size: int) -> Vectors:
    """A unit vector in float64 of each sentence."""
    unique = list(dict.fromkeys(sentences))
    vectors = model.encode(unique, batch_size=batch_size, show_progress_bar=False).astype(np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return dict(zip(unique, vectors / np.where(norms == 0, 1, norms), strict=True))


def share(right: float, *wrong: float) -> float:
    """1 if the right cosine is the largest, 0 if it is not, and 1 / n where n are equally large."""
    best = max(right, *wrong)
    return 0.0 if right < best - TIE else 1 / (1 + sum(other > best - TIE for other in wrong))


def interval(scores: Iterable[float], seed: int) -> tuple[float, float]:
    """95 % of the means of scores that are drawn again, with replacement."""
    scores = np.array(list(scores))
    drawn = np.random.default_rng(seed).integers(0, len(scores), (RESAMPLES, len(scores)))
    low, high = np.percentile(scores[drawn].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


def row(kind: str, setting: str, items: int, scores: Iterable[float], seed: int) -> dict[str, Any]:
    """Percent right with its interval over these scores, which are those of templates or of items."""
    scores = list(scores)
    percent, low, high = (round(100 * float(value), 2) for value in (np.mean(scores), *interval(scores, seed)))
    return {"kind": kind, "setting": setting, "items": items, "percent": percent, "low": low, "high": high}


def suite_rows(vectors: Vectors, part: str, seed: int) -> list[dict[str, Any]]:
    """A row for each kind and setting, with the percentage of each template."""
    shares: dict[tuple[str, str], dict[str, list[float]]] = {}
    for item in items(part):
        text, paraphrase, foil = (vectors[form] for form in (item.text, item.paraphrase, item.foil))
        templates = shares.setdefault((item.kind, item.setting), {})
        templates.setdefault(item.template, []).append(share(text @ paraphrase, text @ foil))
    rows = []
    for (kind, setting), templates in shares.items():
        means = {name: float(np.mean(values)) for name, values in templates.items()}
        found = row(kind, setting, sum(map(len, templates.values())), means.values(), seed)
        rows.append(found | {"templates": {name: round(100 * mean, 2) for name, mean in means.items()}})
    return rows


def semantoneg_row(vectors: Vectors, rows: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    """The row of SemAntoNeg."""
    scores = []
    for entry in rows:
        cosines = [float(vectors[entry["text"]] @ vectors[choice]) for choice in entry["choices"]]
        scores.append(share(cosines.pop(entry["label"]), *cosines))
    return row(SEMANTONEG, SEMANTONEG, len(scores), scores, seed)


def measure(options: OrderOptions, report: dict[str, Any]) -> None:
    """Rows for each model."""
    path = Path(options.data_dir or "", SEMANTONEG, "test.jsonl.gz")
    negated = []
    if options.data_dir:
        rows = read_table(path)
        check_columns(("text", "choices", "label"), rows.column_names, str(path))
        negated = rows.to_list()
    wanted = [form for item in items(options.part) for form in (item.text, item.paraphrase, item.foil)]
    wanted += [text for entry in negated for text in (entry["text"], *entry["choices"])]
    for label, name in options.named.items():
        vectors = encode(load(name, options.seed), wanted, options.batch_size)
        rows = suite_rows(vectors, options.part, options.seed)
        if negated:
            rows.append(semantoneg_row(vectors, negated, options.seed))
        report["rows"] += [{"model": label, **found} for found in rows]


def markdown(report: dict[str, Any]) -> str:
    """A line for each model."""
    header, lines = report["header"], {}
    for found in report["rows"]:
        cell = f"{found['percent']:.1f} ({found['low']:.1f} to {found['high']:.1f})"
        lines.setdefault(found["model"], {})[found["kind"], found["setting"]] = cell
    measured = [column for column in COLUMNS if any(column in cells for cells in lines.values())]
    return page(
        "Word order and negation",
        header,
        [f"Part: {header['part']}; SHA-256 of the suite: {header['suite']}"],
        "Percent of items whose text is nearer to its paraphrase than to its foil, and 95 % of bootstrap samples of "
        "the templates (SemAntoNeg: of the items). A foil has the words of the text (same form) or those of the "
        "paraphrase (paraphrase's form): bags of words have 0 in the first and 50 in the second. Chance is 50, in "
        "SemAntoNeg 33.3.",
        table(
            ["model", *(COLUMNS[column] for column in measured)],
            [[name, *(cells.get(column, "") for column in measured)] for name, cells in lines.items()],
        ),
    )


@dataclass(kw_only=True)
class ModelsOptions(Options):
    """Options of the commands that measure models for sentence-transformers."""

    models: str = option(
        "Folders or names of models for sentence-transformers, separated by commas; LABEL=FOLDER gives a name for the "
        f"report, {' and '.join(f'{maker}:FOLDER' for maker in MAKERS)} are made of another model.",
        MISSING,
    )
    batch_size: int = option("Texts of a batch.", 64)

    def __post_init__(self) -> None:
        super().__post_init__()
        named_models(self.models)

    @property
    def named(self) -> dict[str, str]:
        """The models by their labels."""
        return named_models(self.models)


@dataclass(kw_only=True)
class OrderOptions(ModelsOptions):
    """Options of ``python -m benchmarks.order``."""

    part: str = option("Part of the suite: validation or test.", "test")
    data_dir: str | None = option("Folder with DIR/semantoneg/test.jsonl.gz. Default: without SemAntoNeg.")

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("--part", self.part, PARTS)
        if "," in self.part:
            raise InputError(f"--part {self.part}: give one of {', '.join(PARTS)}")


def suite(options: OrderOptions) -> dict[str, str]:
    """What the header says of the suite: figures of other sentences cannot be compared."""
    return {"suite": hashlib.sha256("\n".join(texts()).encode()).hexdigest()}


main = command(
    "benchmarks.order",
    OrderOptions,
    measure,
    recorded=("part", "batch_size"),
    packages=("sentence-transformers",),
    header=suite,
)

if __name__ == "__main__":
    sys.exit(main())
