"""A small, fast sentence encoder from a large one: distils a sentence-transformers model into a DiSAN.

    python examples/distill_sentence_encoder.py --teacher sentence-transformers/all-MiniLM-L6-v2 --data_dir data

Needs sentences and no labels: the student learns to give the vectors that the teacher gives, by sentence-transformers'
own trainer and its EmbedDistillLoss. Its word vectors start from the teacher's too: the vector of each word alone,
reduced by principal component analysis. The student has as many features as the teacher and shares its vector space,
so it can search an index that the teacher has built.

The sentences are those of all training splits in --data_dir, without those that also occur in an evaluation split.
Written to --output_dir: the model, a folder that sentence-transformers and transformers both load, and results.json
with Spearman's correlations on STS-B and SICK, sentences a second and megabytes, beside the teacher, the mean of the
student's first word vectors, and model2vec.
"""

import argparse
import time
from pathlib import Path

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
from hf_blosan.tokenization import WordVectors, build_tokenizer, embedding_matrix
from hf_blosan.training.files import write_json
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
    parser.add_argument("--max_vocab_size", type=int, default=30000)
    parser.add_argument("--max_length", type=int, default=64, help="words of a sentence")
    parser.add_argument("--embedding_size", type=int, default=256)
    parser.add_argument("--embedding_dtype", default="int8", help="of the saved word table")
    parser.add_argument("--num_train_epochs", type=float, default=4)
    parser.add_argument("--per_device_train_batch_size", type=int, default=128)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=42)
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
    kept = [text for text in sentences if text.strip() and text not in held_out]
    return [kept[i] for i in np.random.default_rng(seed).permutation(len(kept))[:limit]]


def vectors_of(teacher: SentenceTransformer, texts: list[str]) -> np.ndarray:
    """The teacher's vectors, (texts, features)."""
    return teacher.encode(texts, batch_size=128, show_progress_bar=True)


def word_vectors(teacher: SentenceTransformer, tokenizer: PreTrainedTokenizerFast, size: int, seed: int) -> np.ndarray:
    """A word table (words, size): the teacher's vector of each word alone, reduced by principal component analysis."""
    words = tokenizer.convert_ids_to_tokens(range(2, len(tokenizer)))
    reduced = PCA(size, random_state=seed).fit_transform(vectors_of(teacher, words))
    vectors = WordVectors(words, (0.4 * reduced / reduced.std()).astype(np.float32))  # as large as GloVe's
    return embedding_matrix(tokenizer, vectors, seed=seed)[0]


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

    Models take turns in encoding SICK's sentences, and the fastest of five rounds counts.
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
            model.encode(sentences)
            speed = len(sentences) / (time.perf_counter() - start)
            found[name]["sentences_per_second"] = max(found[name]["sentences_per_second"], speed)
    return found


def similarity(data_dir: Path, task: str, split: str) -> EmbeddingSimilarityEvaluator:
    columns = read_columns(data_dir, task, split, "sentence1", "sentence2", "score")
    return EmbeddingSimilarityEvaluator(*columns, name=task, write_csv=False, main_similarity="cosine")


def new_student(
    teacher: SentenceTransformer, sentences: list[str], options: argparse.Namespace
) -> SentenceTransformer:
    """A DiSAN with words of the sentences and vectors of the teacher, saved to --output_dir and loaded from there."""
    tokenizer = build_tokenizer(
        sentences, min_frequency=2, max_vocab_size=options.max_vocab_size, model_max_length=options.max_length
    )
    config = DiSANConfig(
        vocab_size=len(tokenizer),
        embedding_size=options.embedding_size,
        hidden_size=teacher.get_embedding_dimension(),
        dropout=options.dropout,
    )
    model = DiSANModel(config)
    model.load_word_vectors(word_vectors(teacher, tokenizer, options.embedding_size, options.seed))
    model.save_pretrained(options.output_dir / "model")
    tokenizer.save_pretrained(options.output_dir / "model")
    return SentenceTransformer(str(options.output_dir / "model"))


def distill(options: argparse.Namespace) -> dict:
    """Train a student and compare it; the content of results.json."""
    start = time.perf_counter()
    set_seed(options.seed)
    validation = similarity(options.data_dir, "stsb", "validation")
    sentences = training_sentences(options.data_dir, options.max_train_samples, options.seed)
    teacher = SentenceTransformer(options.teacher, model_kwargs={"dtype": options.teacher_dtype})
    student = new_student(teacher, sentences, options)
    encoder = student[0].auto_model
    first_vectors = encoder.get_input_embeddings().weight.detach().numpy().copy()

    print(f"The teacher encodes {len(sentences)} sentences.")
    dataset = Dataset.from_dict({"sentence": sentences, "label": vectors_of(teacher, sentences)})
    train(student, dataset, validation, options)
    encoder.set_embedding_dtype(options.embedding_dtype)
    student.save(str(options.output_dir / "model"))
    minutes = (time.perf_counter() - start) / 60

    models = {
        "teacher": SentenceTransformer(options.teacher),
        "DiSAN": student,
        "mean of the first word vectors": StaticEmbedding(student.tokenizer, first_vectors),
        "model2vec": StaticEmbedding.from_distillation(options.teacher),
    }
    for name, model in models.items():
        if isinstance(model, StaticEmbedding):
            models[name] = SentenceTransformer(modules=[model])
    return {
        "command": command_line(),
        "commit": git_commit(),
        "minutes": minutes,
        "threads": torch.get_num_threads(),
        "sentences": len(sentences),
        "validation": {"stsb_spearman": validation(student)["stsb_spearman_cosine"]},
        "models": evaluate(models, options),
    }


def main() -> None:
    options = parse()
    try:
        results = distill(options)
    except InputError as error:
        raise SystemExit(f"error: {error}") from error
    write_json(options.output_dir / "results.json", results)
    print(f"\nDistilled in {results['minutes']:.0f} minutes\n")
    print(f"{'model':32}" + "".join(f"{name:>10}" for name in (*EVALUATION.values(), "MB", "per second")))
    for name, row in results["models"].items():
        scores = "".join(f"{row[f'{task}_spearman']:10.4f}" for task in EVALUATION)
        print(f"{name:32}{scores}{row['megabytes']:10.1f}{row['sentences_per_second']:11.0f}")


if __name__ == "__main__":
    main()
