"""Small data sets, word vectors and options for tests of training."""

import csv
import gzip
import io
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from datasets import ClassLabel, Dataset, DatasetDict
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from hf_blosan.training import RunArguments
from hf_blosan.training.preparation import Preparation, find_encoder, find_task, prepare

TINY = "hidden_size=8,embedding_size=6,classifier_size=8,dropout=0.3"
WORDS = {
    "animal": "cat dog horse cow".split(),
    "colour": "red green blue grey".split(),
    "number": "one two six".split(),
}
QUESTION_WORDS = {
    "ABBR": "stand acronym".split(),
    "DESC": "why mean define".split(),
    "ENTY": "animal instrument colour".split(),
    "HUM": "who whom president".split(),
    "LOC": "where country city".split(),
    "NUM": "many year far".split(),
}
FILLER = "the a of in on with and some very old".split()


def sentence(rng: random.Random, kind: str, length: int, kinds: dict[str, list[str]] = WORDS) -> str:
    """A sentence of filler words and one word of its kind."""
    words = [rng.choice(FILLER) for _ in range(length - 1)]
    words.insert(rng.randrange(length), rng.choice(kinds[kind]))
    return " ".join(words)


def write_rows(path: Path, rows: list[dict]) -> Path:
    """Write rows to a file of the type given by its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in (".csv", ".tsv"):
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
        return path
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def read_lines(path: Path | str) -> list[dict]:
    """The rows of a JSON Lines file."""
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def question_rows(count: int, seed: int = 0, kinds: dict[str, list[str]] = WORDS) -> list[dict]:
    """Single sentences with a label, of 1 to 12 words."""
    rng = random.Random(seed)
    labels = [list(kinds)[i % len(kinds)] for i in range(count)]
    return [{"text": sentence(rng, kind, rng.randint(1, 12), kinds), "label": kind} for kind in labels]


PLACES = "Rome Oslo Bonn Kiel Lyon Nice Bath York Graz Linz".split()


def squad_rows(count, seed=0, form="squad"):
    """Passages of 3 to 5 sentences, of which one has a place and one a day, each with a question about both."""
    generator, rows = torch.Generator().manual_seed(seed), []

    def draw(size):
        return int(torch.randint(size, (), generator=generator))

    for _ in range(count // 2):
        place, day = PLACES[draw(len(PLACES))], str(1 + draw(30))
        others = ["It was cold.", "Nobody knew why.", "He had two dogs."][: 1 + draw(3)]
        sentences = [f"She lived in {place}.", f"She came on {day} June.", *others]
        sentences = [sentences[i] for i in torch.randperm(len(sentences), generator=generator)]
        for question, answer in (("Where did she live?", place), ("When did she come?", f"{day} June")):
            label = next(i for i, sentence in enumerate(sentences) if answer in sentence)
            if form == "listed":
                rows.append({"question": question, "sentences": sentences, "label": label})
                continue
            context = "  ".join(sentences)
            answers = {"text": [answer], "answer_start": [context.index(answer)]}
            rows.append({"question": question, "context": context, "answers": answers})
    return rows


def write_trec(folder: Path, train: int = 560, test: int = 60) -> Path:
    """A data directory with generated questions in TREC's format."""
    for seed, (split, count) in enumerate({"train": train, "test": test}.items()):
        write_rows(folder / "trec" / f"{split}.jsonl", question_rows(count, seed, QUESTION_WORDS))
    return folder


def pair_rows(count: int, seed: int = 0) -> list[dict]:
    """Pairs with a score from 1 to 5: high for two sentences of one kind."""
    rng, rows = random.Random(seed), []
    for _ in range(count):
        first, second = rng.choice(list(WORDS)), rng.choice(list(WORDS))
        score = round(rng.uniform(4, 5) if first == second else rng.uniform(1, 3), 2)
        texts = [sentence(rng, kind, rng.randint(2, 8)) for kind in (first, second)]
        rows.append({"sentence1": texts[0], "sentence2": texts[1], "score": score})
    return rows


def hub_rows() -> DatasetDict:
    """Pairs with class names in three splits, as a data set of the Hub has them."""
    names = ["neutral", "contradiction", "entailment"]
    label = ClassLabel(names=names)
    rows = Dataset.from_dict({"premise": ["p"] * 9, "hypothesis": ["h"] * 9, "label": [0, 1, 2] * 3})
    return DatasetDict({split: rows.cast_column("label", label) for split in ("train", "validation", "test")})


def write_splits(folder: Path, make_rows, train: int = 56, evaluation: int = 21) -> dict[str, str]:
    """Write three files; returns them as options of a run."""
    counts = {"train": train, "validation": evaluation, "test": evaluation}
    return {
        f"{split}_file": str(write_rows(folder / f"{split}.jsonl", make_rows(count, seed)))
        for seed, (split, count) in enumerate(counts.items())
    }


def write_vectors(path: Path, words: list[str], width: int = 6, seed: int = 0) -> Path:
    rng = random.Random(seed)
    lines = [" ".join([word, *(f"{rng.uniform(-1, 1):.4f}" for _ in range(width))]) for word in words]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_backbone(folder: Path, words: list[str]) -> Path:
    """A BERT of two layers of 16 features, with the special tokens and type ids of BERT and one token per word."""
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words]))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep")}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=300, **names)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=len(vocabulary), max_position_embeddings=320, **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def options(output_dir: Path, data: dict[str, str], **changes) -> RunArguments:
    """Options of a run of a second: a tiny DiSAN with dropout, 7 batches per epoch."""
    defaults = {
        "encoder": "disan",
        "config_overrides": TINY,
        "recipe": "paper",
        "optimizer": "adam",
        "learning_rate": 0.01,
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 8,
        "num_train_epochs": 2,
        "logging_steps": 1,
        "cpu": True,
        "output_dir": str(output_dir),
    }
    return RunArguments(**(defaults | data | changes))


def read_log(output_dir: Path, event: str) -> list[dict]:
    return [entry for entry in read_lines(Path(output_dir) / "log.jsonl") if entry["event"] == event]


def prepared(arguments: RunArguments) -> tuple[RunArguments, Preparation]:
    """The preparation of a run."""
    task = find_task(arguments)
    encoder, saved_config = find_encoder(arguments)
    arguments = arguments.resolved(task, encoder, saved_config)
    return arguments, prepare(arguments, task, encoder, saved_config)


def tagging_rows(count: int, seed: int = 0) -> list[dict]:
    """Words with tags: a colour and an animal, or an animal alone, is a span ANIMAL; a number is a span NUMBER."""
    rng, rows = random.Random(seed), []
    for _ in range(count):
        words = [(word, "O") for word in rng.choices(FILLER, k=rng.randint(0, 3))]
        for _ in range(rng.randint(1, 2)):
            animal = [rng.choice(WORDS["animal"])]
            animal = [rng.choice(WORDS["colour"]), *animal] if rng.random() < 0.5 else animal
            words += zip(animal, ("B-ANIMAL", "I-ANIMAL"), strict=False)
            words += [(rng.choice(FILLER), "O"), (rng.choice(WORDS["number"]), "B-NUMBER")]
        rows.append({"tokens": [word for word, _ in words], "tags": [tag for _, tag in words]})
    return rows


def role_rows(count: int, seed: int = 0) -> list[dict]:
    """Two predicates in a sentence, one of them marked: its ARG0 is the word before it, its ARG1 the word after."""
    rng, rows = random.Random(seed), []
    for _ in range(count):
        words = [rng.choice(WORDS["animal"]), "sees", rng.choice(WORDS["animal"]), "and", "hears"]
        words.append(rng.choice(WORDS["animal"]))
        index = rng.choice((1, 4))
        tags = ["O"] * len(words)
        tags[index - 1 : index + 2] = ["B-ARG0", "B-V", "B-ARG1"]
        rows.append({"tokens": words, "tags": tags, "predicate_index": index})
    return rows


def parquet_file(names):
    """The bytes of a Parquet file with columns of these names."""
    file = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array(["a", "b"])] * len(names), names), file)
    return file.getvalue()
