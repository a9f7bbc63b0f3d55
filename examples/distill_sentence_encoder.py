"""A small, fast sentence encoder from a large one: distils a sentence-transformers model into a DiSAN.

    python examples/distill_sentence_encoder.py --teacher sentence-transformers/all-MiniLM-L6-v2 --data_dir data

Needs sentences and no labels: the student learns to give the vectors that the teacher gives, by sentence-transformers'
own trainer and its EmbedDistillLoss. It has the teacher's tokens, whose vectors start from the teacher's for each
token alone, reduced by principal component analysis. The student has as many features as the teacher and shares its
vector space, so it can search an index that the teacher has built.

The sentences are those of all training splits in --data_dir, without those that also occur in an evaluation split.
Written to --output_dir: the model, a folder that sentence-transformers and transformers both load, and results.json
with Spearman's correlations on STS-B and SICK, sentences a second and megabytes, beside the teacher, the mean of the
student's first token vectors, and model2vec if it is installed (`pip install --no-deps model2vec skeletoken`: the
extra that it names for distilling asks for an older transformers than it works with).
"""

import argparse
import copy
import hashlib
import json
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.losses import EmbedDistillLoss
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from sentence_transformers.sentence_transformer.training_args import SentenceTransformerTrainingArguments
from sklearn.decomposition import PCA
from transformers import PreTrainedTokenizerFast, set_seed

from hf_blosan import DiSANConfig, DiSANModel
from hf_blosan.data import LengthBucketBatchSampler
from hf_blosan.data.tables import read_table
from hf_blosan.errors import InputError
from hf_blosan.files import write_json
from hf_blosan.text.tokenization import prepare_pretrained_tokenizer
from hf_blosan.training.reporting import command_line, git_commit

TEXT_COLUMNS = ("text", "sentence1", "sentence2", "question", "en")
EVALUATION = {"stsb": "STS-B", "sick": "SICK"}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--teacher", required=True, help="a sentence-transformers model: a folder or a name on the Hub"
    )
    parser.add_argument("--teacher_dtype", default="float32", help="in training; bfloat16 is faster where supported")
    parser.add_argument("--data_dir", type=Path, default=Path("data"), help="has NAME/train.jsonl.gz and so on")
    parser.add_argument("--output_dir", type=Path, default=Path("out/distilled"))
    parser.add_argument("--max_train_samples", type=int, help="number of sentences; default: all")
    parser.add_argument("--max_length", type=int, default=128, help="tokens of a sentence")
    parser.add_argument("--embedding_size", type=int, default=384)
    parser.add_argument("--embedding_dtype", default="int8", help="of the saved word table")
    parser.add_argument("--num_train_epochs", type=float, default=3)
    parser.add_argument("--per_device_train_batch_size", type=int, default=128)
    parser.add_argument("--learning_rate", type=float, default=2e-3)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--only_compare", action="store_true", help="with the student that is in --output_dir")
    return parser.parse_args()


def read_columns(data_dir: Path, name: str, split: str, *columns: str) -> list[list]:
    rows = read_table(data_dir / name / f"{split}.jsonl.gz")
    return [list(rows[column]) for column in columns]


def training_sentences(data_dir: Path, limit: int | None, seed: int) -> list[str]:
    """The distinct sentences of all training splits in random order, without those of the evaluation splits."""
    held_out = {
        text
        for name in EVALUATION
        for split in ("validation", "test")
        for texts in read_columns(data_dir, name, split, "sentence1", "sentence2")
        for text in texts
    }
    sentences: dict[str, None] = {}
    for path in sorted(data_dir.glob("*/train*.jsonl.gz")):
        rows = read_table(path)
        for column in TEXT_COLUMNS:
            if column in rows.column_names:
                sentences.update(dict.fromkeys(rows[column]))
    kept = [text for text in sentences if text and text.strip() and text not in held_out]
    return [kept[i] for i in np.random.default_rng(seed).permutation(len(kept))[:limit]]


def vectors_of(teacher: SentenceTransformer, texts: list[str]) -> np.ndarray:
    """The teacher's vectors, (texts, features)."""
    return teacher.encode(texts, batch_size=128, show_progress_bar=True)


def targets_of(
    teacher: SentenceTransformer, sentences: list[str], options: argparse.Namespace
) -> tuple[np.ndarray, float]:
    """The teacher's vectors of all sentences and the minutes they took, kept in a file for runs with other options."""
    made_from = "\n".join([options.teacher, options.teacher_dtype, *sentences])
    path = options.output_dir / f"teacher-{hashlib.sha256(made_from.encode()).hexdigest()[:12]}.npz"
    if not path.exists():
        print(f"The teacher encodes {len(sentences)} sentences.")
        start = time.perf_counter()
        vectors = vectors_of(teacher, sentences).astype(np.float16)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished.npz")
        np.savez(unfinished, vectors=vectors, minutes=(time.perf_counter() - start) / 60)
        unfinished.replace(path)
    with np.load(path) as file:
        return file["vectors"].astype(np.float32), float(file["minutes"])


def token_vectors(
    teacher: SentenceTransformer, tokenizer: PreTrainedTokenizerFast, size: int, seed: int
) -> np.ndarray:
    """A word table (tokens, size): the teacher's vector of each token alone, by principal component analysis."""
    tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    vectors = vectors_of(teacher, [token.removeprefix("##").removeprefix("▁").removeprefix("Ġ") for token in tokens])
    reduced = PCA(min(size, *vectors.shape), random_state=seed).fit_transform(vectors).astype(np.float32)
    reduced[tokenizer.all_special_ids] = 0
    return 0.4 * reduced / reduced.std()  # as large as GloVe's


def train(student: SentenceTransformer, dataset: Dataset, validation, options: argparse.Namespace) -> None:
    """Bring the student's vectors close to the dataset's "label" by cosine distance."""
    lengths = [len(ids) for ids in student.tokenizer(list(dataset["sentence"]), truncation=True)["input_ids"]]

    def of_similar_length(dataset, batch_size, drop_last=False, seed=0, **others):
        return LengthBucketBatchSampler(lengths, batch_size, seed=seed, drop_last=drop_last)

    arguments = SentenceTransformerTrainingArguments(
        str(options.output_dir / "log"),
        num_train_epochs=options.num_train_epochs,
        per_device_train_batch_size=options.per_device_train_batch_size,
        learning_rate=options.learning_rate,
        warmup_steps=0.05,
        batch_sampler=of_similar_length,
        eval_strategy="steps",
        eval_steps=0.1,
        logging_steps=0.02,
        save_strategy="no",
        report_to="none",
        seed=options.seed,
        use_cpu=not torch.cuda.is_available(),
    )
    loss = EmbedDistillLoss(student, distance_metric="cosine")
    dataset = dataset.with_format("torch")
    SentenceTransformerTrainer(student, arguments, train_dataset=dataset, loss=loss, evaluator=validation).train()


def evaluate(models: dict[str, SentenceTransformer], options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """For each model Spearman's correlation on the test sets, megabytes, and sentences a second.

    Models take turns in encoding 2,000 of SICK's sentences in batches of 128, and the fastest of five rounds counts.
    """
    found = {}
    for name, model in models.items():
        folder = options.output_dir / "compared" / name.replace(" ", "_")
        model.save(str(folder), create_model_card=False)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        found[name] = {"megabytes": size / 1e6, "sentences_per_second": 0.0}
        for task in EVALUATION:
            found[name][f"{task}_spearman"] = similarity(options.data_dir, task, "test")(model)[
                f"{task}_spearman_cosine"
            ]
    sentences = read_columns(options.data_dir, "sick", "test", "sentence1")[0][:2000]
    for _ in range(5):
        for name, model in models.items():
            start = time.perf_counter()
            model.encode(sentences, batch_size=128)
            speed = len(sentences) / (time.perf_counter() - start)
            found[name]["sentences_per_second"] = max(found[name]["sentences_per_second"], speed)
    return found


def similarity(data_dir: Path, task: str, split: str) -> EmbeddingSimilarityEvaluator:
    columns = read_columns(data_dir, task, split, "sentence1", "sentence2", "score")
    return EmbeddingSimilarityEvaluator(*columns, name=task, write_csv=False, main_similarity="cosine")


def new_student(teacher: SentenceTransformer, options: argparse.Namespace) -> SentenceTransformer:
    """A DiSAN with tokens and vectors of the teacher, saved to --output_dir and loaded from there."""
    tokenizer = prepare_pretrained_tokenizer(copy.deepcopy(teacher.tokenizer))
    tokenizer.model_max_length = options.max_length
    table = token_vectors(teacher, tokenizer, options.embedding_size, options.seed)
    config = DiSANConfig(
        vocab_size=len(tokenizer),
        embedding_size=table.shape[1],
        hidden_size=teacher.get_embedding_dimension(),
        dropout=options.dropout,
        pad_token_id=tokenizer.pad_token_id,
        unk_token_id=tokenizer.unk_token_id,
    )
    model = DiSANModel(config)
    model.load_word_vectors(table)
    model.save_pretrained(options.output_dir / "model")
    tokenizer.save_pretrained(options.output_dir / "model")
    return SentenceTransformer(str(options.output_dir / "model"))


def distill(options: argparse.Namespace) -> dict[str, Any]:
    """Train a student and save it to --output_dir; what is to be recorded of it."""
    set_seed(options.seed)
    commit = git_commit()
    validation = similarity(options.data_dir, "stsb", "validation")
    sentences = training_sentences(options.data_dir, options.max_train_samples, options.seed)
    teacher = SentenceTransformer(options.teacher, model_kwargs={"dtype": options.teacher_dtype})
    vectors, teacher_minutes = targets_of(teacher, sentences, options)
    start = time.perf_counter()
    student = new_student(teacher, options)
    train(student, Dataset.from_dict({"sentence": sentences, "label": vectors}), validation, options)
    student[0].auto_model.set_embedding_dtype(options.embedding_dtype)
    student.save(str(options.output_dir / "model"))
    return {
        "command": command_line(),
        "commit": commit,
        "minutes": {"teacher": teacher_minutes, "student": (time.perf_counter() - start) / 60},
        "threads": torch.get_num_threads(),
        "sentences": len(sentences),
        "validation_stsb_spearman": validation(student)["stsb_spearman_cosine"],
    }


def compare(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Figures of the student and of what it could be replaced by: see :func:`evaluate`."""
    teacher = SentenceTransformer(options.teacher)
    student = SentenceTransformer(str(options.output_dir / "model"))
    tokens = token_vectors(teacher, student.tokenizer, options.embedding_size, options.seed)
    static = {"mean of the first token vectors": StaticEmbedding(student.tokenizer, tokens)}
    if find_spec("model2vec"):
        static["model2vec"] = StaticEmbedding.from_distillation(options.teacher)
    for table in static.values():  # safetensors does not save other tensors
        table.embedding.weight.data = table.embedding.weight.data.contiguous()
    models = {"teacher": teacher, "DiSAN": student}
    return evaluate(models | {name: SentenceTransformer(modules=[table]) for name, table in static.items()}, options)


def main() -> None:
    options = parse()
    path = options.output_dir / "results.json"
    try:
        if options.only_compare and not path.exists():
            raise InputError(f"there is no {path}; leave out --only_compare to train a student first")
        results = json.loads(path.read_text()) if options.only_compare else {"training": distill(options)}
        write_json(path, results)
        results |= {"command": command_line(), "commit": git_commit(), "models": compare(options)}
    except InputError as error:
        raise SystemExit(f"error: {error}") from error
    write_json(path, results)
    minutes = results["training"]["minutes"]
    print(f"\nThe teacher took {minutes['teacher']:.0f} minutes, the student {minutes['student']:.0f}.\n")
    print(f"{'model':32}" + "".join(f"{name:>8}" for name in EVALUATION.values()) + f"{'MB':>8}{'per second':>12}")
    for name, row in results["models"].items():
        scores = "".join(f"{row[f'{task}_spearman']:8.4f}" for task in EVALUATION)
        print(f"{name:32}{scores}{row['megabytes']:8.1f}{row['sentences_per_second']:12.0f}")


if __name__ == "__main__":
    main()
