"""Make an encoder that comes with the package: `python -m pretraining --data_dir data --output_dir DIR`.

A DiSAN learns from the vectors of larger encoders (sentence-transformers models), and from made triplets to tell word
order and negation. Needs the extras train, sentence-transformers and pretraining, the teachers, and Debian's
`wordnet-base`. What takes long is kept in `--cache_dir`: an interrupted command goes on after it.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from datasets import Dataset
from scipy.stats import spearmanr
from transformers import set_seed

from benchmarks.command import surroundings
from benchmarks.order import suite_rows
from benchmarks.order_suite import items, texts
from hf_blosan import DiSANConfig, DiSANModel
from hf_blosan.cli.options import CheckedOptions, Parser, exit_status, option
from hf_blosan.data.tables import read_table
from hf_blosan.errors import InputError
from hf_blosan.files import write_bytes, write_json
from hf_blosan.text.tokenization import prepare_pretrained_tokenizer
from hf_blosan.training.reporting import command_line

from .corpus import evaluation_texts, training_sentences
from .filters import Filters, normalised
from .parses import parse
from .student import Encoder, Recipe, train
from .teachers import load_teacher, principal_directions, teacher_vectors, token_vectors
from .triplets import make_triplets
from .wordnet import FOLDER, WordNet

logger = logging.getLogger("pretraining")

LONGEST = 128
"""Tokens of a text that the encoder reads."""
HELD_OUT = 100
"""One triplet of so many is not trained on; they show what is learned of each kind."""
PARSED_WORDS = range(3, 26)
"""Words of the sentences that are parsed."""


@dataclass(kw_only=True)
class Options(CheckedOptions, Recipe):
    """Options of ``python -m pretraining``."""

    data_dir: str = option("Folder with NAME/train.jsonl.gz and so on.", MISSING, group="files")
    output_dir: str = option("Folder for the model and its record.", MISSING)
    teachers: list[str] = option(
        "Models for sentence-transformers, folders or names on the Hub; the vectors lie in the space of the first.",
        ["sentence-transformers/all-MiniLM-L6-v2"],
    )
    teacher_dtype: str = option("Of the teachers' weights; bfloat16 is faster where the processor has it.", "bfloat16")
    wordnet: str = option("Folder of WordNet's files.", FOLDER)
    cache_dir: str = option("Folder for the teachers' vectors and the made triplets.", "out/pretraining")
    sentences: int = option("Sentences to learn from, at most.", 400_000, group="data")
    all_sentences: bool = option("Take all of every set, not a share of the large ones.", False)
    parsed_sentences: int = option("Of these, how many are parsed, for made triplets.", 100_000)
    hidden_size: int = option("Features of the vectors.", 320, group="model")
    embedding_size: int = option("Width of the word table.", 256)
    num_hidden_layers: int = option("Layers.", 2)
    window: int = option("Tokens that the directions with a window see on their side.", 2)
    data_seed: int = option("Of what to learn from: sentences and made triplets.", 42, zero=True)
    threads: int = option("Threads of torch.", 2)
    device: Literal["cpu", "cuda"] = option("Where teachers and student run.", "cpu")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order_features >= self.hidden_size:
            raise InputError(
                f"--order_features is {self.order_features}; it must be less than --hidden_size, {self.hidden_size}"
            )


ENTAILMENTS = {"snli": "train_subset", "sick": "train"}
"""Sets of pairs with labels, and the splits to learn from."""


def kept(path: Path, make: Callable[[], list]) -> list:
    """A list of rows in a Parquet file, which is made unless it exists."""
    if not path.exists():
        file = io.BytesIO()
        Dataset.from_list(make()).to_parquet(file)
        write_bytes(path, file.getvalue())
    return Dataset.from_parquet(str(path), cache_dir=str(path.parent / "arrow")).to_list()


def made_triplets(options: Options, sentences: list[str], held_out: set[str]) -> tuple[list[dict], dict[str, int]]:
    """The triplets, and how many were dropped, by the reason."""
    data_dir, chosen = Path(options.data_dir), [text for text in sentences if len(text.split()) in PARSED_WORDS]
    chosen = chosen[: options.parsed_sentences]
    tables = [read_table(data_dir / name / f"{split}.jsonl.gz") for name, split in ENTAILMENTS.items()]
    pairs = [row for table in tables for row in table.select_columns(["sentence1", "sentence2", "label"]).to_list()]
    made_from = [options.data_seed, options.wordnet, chosen, pairs, sorted(held_out)]
    key = hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:16]
    path = Path(options.cache_dir, f"triplets-{key}.parquet")
    counts = path.with_suffix(".dropped.json")

    def make() -> list[dict]:
        negated = read_table(data_dir / "semantoneg" / "test.jsonl.gz").to_list()
        filters, dropped = Filters(held_out, negated), Counter()
        found = make_triplets(parse(chosen), pairs, filters, WordNet(options.wordnet), options.data_seed)
        for (_, reason), count in filters.dropped.items():
            dropped[reason] += count
        logger.info("dropped: %s", dict(dropped))
        write_json(counts, dropped)
        return found

    return kept(path, make), json.loads(counts.read_text())


def new_student(options: Options) -> Encoder:
    """A DiSAN with the tokens of the first teacher, and its vectors of each token alone as the first word table."""
    teacher = load_teacher(options.teachers[0], "float32", options.device)
    tokenizer = prepare_pretrained_tokenizer(teacher.tokenizer)
    tokenizer.model_max_length = LONGEST
    config = DiSANConfig(
        vocab_size=len(tokenizer),
        embedding_size=options.embedding_size,
        hidden_size=options.hidden_size,
        num_hidden_layers=options.num_hidden_layers,
        activation="gelu",
        directions=["forward", "backward", "forward", "backward"],
        windows=[None, None, options.window, options.window],
        pad_token_id=tokenizer.pad_token_id,
        unk_token_id=tokenizer.unk_token_id,
    )
    model = DiSANModel(config)
    model.load_word_vectors(token_vectors(teacher, tokenizer, options.embedding_size, options.seed))
    return Encoder(model.to(options.device), tokenizer, LONGEST)


def validation(encoder: Encoder, data_dir: Path) -> dict[str, float]:
    """Spearman's correlation on STS-B's validation rows, and the percentages of the suite's validation part, x 100."""
    rows = read_table(data_dir / "stsb" / "validation.jsonl.gz")
    wanted = [text for item in items("validation") for text in (item.text, item.paraphrase, item.foil)]
    vectors = encoder.encode([*rows["sentence1"], *rows["sentence2"], *wanted])
    cosines = [float(vectors[a] @ vectors[b]) for a, b in zip(rows["sentence1"], rows["sentence2"], strict=True)]
    found = {"stsb": round(100 * float(spearmanr(cosines, rows["score"])[0]), 2)}
    return found | {f"{row['kind']}, {row['setting']}": row["percent"] for row in suite_rows(vectors, "validation", 0)}


def right_by_kind(encoder: Encoder, triplets: list[dict]) -> dict[str, float]:
    """Of the foils of each kind of triplets the percentage that is farther from the text than its paraphrase."""
    flat = [text for triplet in triplets for text in (triplet["text"], triplet["paraphrase"], *triplet["foils"])]
    vectors, right = encoder.encode(flat) if flat else {}, {}
    for triplet in triplets:
        text, paraphrase = vectors[triplet["text"]], vectors[triplet["paraphrase"]]
        right.setdefault(triplet["kind"], []).extend(
            float(text @ paraphrase > text @ vectors[foil]) for foil in triplet["foils"]
        )
    return {kind: round(100 * float(np.mean(found)), 1) for kind, found in sorted(right.items()) if found}


def run(options: Options, argv: list[str]) -> None:
    """Make the encoder and write it with its record."""
    torch.set_num_threads(options.threads)
    if options.device == "cuda":
        torch.set_float32_matmul_precision("high")  # tf32, which rounds less than bfloat16
    set_seed(options.seed)
    data_dir, output, cache = Path(options.data_dir), Path(options.output_dir), Path(options.cache_dir)
    head = {
        **surroundings(options.device == "cuda"),
        "threads": options.threads,
        "seed": options.seed,
        "options": asdict(options),
    }
    head |= {"command": command_line(["-m", "pretraining", *argv])}
    held_out = evaluation_texts(data_dir) | set(map(normalised, texts()))
    wordnet = WordNet(options.wordnet)
    sentences = training_sentences(data_dir, wordnet, held_out, options.data_seed, options.all_sentences)
    sentences = sentences[: options.sentences]
    triplets, dropped = made_triplets(options, sentences, held_out) if options.triplets else ([], {})
    kinds = Counter(triplet["kind"] for triplet in triplets)
    logger.info("%d sentences; triplets: %s", len(sentences), dict(kinds))
    for name, size, count in (
        ("batch_size", options.batch_size, len(sentences)),
        ("triplet_batch_size", options.triplet_batch_size, len(triplets) - len(triplets[::HELD_OUT])),
    ):
        if count < size and (options.triplets or name == "batch_size"):
            raise InputError(f"--{name} is {size}, but there are {count} to learn from; give a smaller one")
    found = [
        teacher_vectors(name, options.teacher_dtype, sentences, cache, options.device) for name in options.teachers
    ]
    directions = principal_directions(found[0], options.hidden_size - options.order_features)
    targets = torch.nn.functional.normalize(torch.from_numpy(found[0]).float() @ torch.from_numpy(directions), dim=-1)
    set_seed(options.seed)
    encoder, rows, held_out_triplets = new_student(options), [], triplets[::HELD_OUT]
    chosen = [
        [triplet["text"], triplet["paraphrase"], *triplet["foils"]]
        for i, triplet in enumerate(triplets)
        if i % HELD_OUT
    ]

    def report(step: int, terms: dict[str, float]) -> None:
        rows.append({"step": step} | {name: round(value, 4) for name, value in terms.items()})
        rows[-1] |= {
            "validation": validation(encoder, data_dir),
            "held_out": right_by_kind(encoder, held_out_triplets),
        }
        encoder.model.save_pretrained(output, include_code=False)
        encoder.tokenizer.save_pretrained(output)
        write_json(record_file, record)  # so that it is never that of an earlier run beside these weights
        logger.info("%s", rows[-1])

    record = {"header": head, "sentences": len(sentences), "triplets": dict(kinds), "dropped": dropped, "rows": rows}
    record_file = output.parent / f"{output.name}.json"
    teachers = [torch.from_numpy(vectors) for vectors in found]
    train(encoder, sentences, targets.half(), teachers, chosen, options, report)
    encoder.model.cpu().set_embedding_dtype("int8")
    encoder.model.save_pretrained(output, include_code=False)  # it comes with the package
    write_json(record_file, record | {"int8": validation(encoder, data_dir)})
    logger.info("written to %s", output)


def command(argv: list[str] | None) -> None:
    """Read the options and make the encoder."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logger.setLevel(logging.INFO)
    words = sys.argv[1:] if argv is None else argv
    run(Parser(prog="python -m pretraining", description=__doc__).read(Options, words), words)


def main(argv: list[str] | None = None) -> int:
    """The exit status: 2 after bad input."""
    return exit_status(command, argv)


if __name__ == "__main__":
    sys.exit(main())
