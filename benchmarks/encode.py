"""From texts to sentence vectors: `python -m benchmarks.encode --data_dir DIR --output NAME.json [--peer FOLDER]`.

Encoders of the default size with random weights and word vectors, in float32 and int8, encode the sentences of a task
in batches sorted by length. All systems take turns, so that their ratios hold on a busy machine too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from hf_blosan.errors import InputError
from hf_blosan.inference.arguments import StreamArguments
from hf_blosan.inference.batches import Batches
from hf_blosan.registry import FAMILIES
from hf_blosan.tasks import get_task, load_task
from hf_blosan.tasks.kinds import find_problem
from hf_blosan.text.tokenization import build_tokenizer, num_fixed_words

from .command import check_positive, choose, cpu_header, exit_code, make_parser, surroundings_lines, write_report
from .int8 import FORMS
from .measure import times

FORM_NAMES = {
    "float32": "float32",
    "int8": "torch.ao, int8 weights and activations",
    "torchao-int8": "torchao, int8 weights and activations",
}
"""What the forms of int8.py are called here."""
STAGES = ("tokenizer", "padding", "embeddings", "context", "pooler", "others")


def mean_pooled(output: Any, mask_BN: Tensor) -> Tensor:
    """The sentence vectors of sentence-transformers' models: the mean of the tokens, normalised."""
    weights_BN1 = mask_BN[..., None].float()
    return nn.functional.normalize((output.last_hidden_state * weights_BN1).sum(1) / weights_BN1.sum(1), dim=-1)


class System:
    """A tokenizer and a model that encode texts, from text to batch as in `hf-blosan encode`.

    Args:
        tokenizer, model: as in transformers.
        pool: from the model's output and the mask (B, N) to sentence vectors.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, model: nn.Module, pool: Callable[[Any, Tensor], Tensor]):
        self.model, self.pool = model.eval(), pool
        self.batches = Batches(model, tokenizer, StreamArguments(""), lambda output: output)

    @torch.no_grad()
    def encode(self, batches: list[list[str]]) -> list[Tensor]:
        """Sentence vectors of every batch."""
        vectors = []
        for texts in batches:
            inputs = self.batches.collate(self.batches.tokenize([(text,) for text in texts]))
            vectors.append(self.pool(self.model(**inputs), inputs["attention_mask"]))
        return vectors

    @torch.no_grad()
    def shares(self, batches: list[list[str]], repeats: int) -> dict[str, float]:
        """The fraction of the time that each stage takes."""
        spent = dict.fromkeys(STAGES, 0.0)

        def timed(stage, function, *arguments, **options):
            begun = time.perf_counter()
            result = function(*arguments, **options)
            spent[stage] += time.perf_counter() - begun
            return result

        parts = {stage: getattr(self.model, stage) for stage in ("embeddings", "context", "pooler")}
        for stage, module in parts.items():  # with a hook the model would take another path
            module.forward = partial(timed, stage, module.forward)
        for _ in range(repeats):
            for texts in batches:
                rows = timed("tokenizer", self.batches.tokenize, [(text,) for text in texts])
                inputs = timed("padding", self.batches.collate, rows)
                timed("others", self.model, **inputs)
        for module in parts.values():
            del module.forward
        spent["others"] -= spent["embeddings"] + spent["context"] + spent["pooler"]
        return {stage: round(seconds / sum(spent.values()), 3) for stage, seconds in spent.items()}


def texts_and_tokenizer(arguments: argparse.Namespace) -> tuple[list[list[str]], PreTrainedTokenizerBase]:
    """Batches of test sentences sorted by length, and a tokenizer that knows their words.

    Words of the training data come first; words of the test data only have fixed vectors, as those of a vector file.
    """
    task = get_task(arguments.task)
    data = load_task(task, data_dir=arguments.data_dir, seed=arguments.seed)
    texts_of = find_problem(task).texts
    texts = list(texts_of(data["test"]))[: arguments.sentences]
    if len(texts) < arguments.batch_size:
        raise InputError(f"--batch_size {arguments.batch_size}: there are only {len(texts)} sentences; give fewer")
    options = {"split_compounds": task.split_compounds, "pretokenized": task.pretokenized}
    words = build_tokenizer(texts, **options).get_vocab()
    tokenizer = build_tokenizer(texts_of(data["train"]), extra_words=words, **options)
    texts.sort(key=len)
    size = arguments.batch_size
    return [texts[start : start + size] for start in range(0, len(texts) - size + 1, size)], tokenizer


def random_model(model_type: str, tokenizer: PreTrainedTokenizerBase, seed: int) -> PreTrainedModel:
    """An encoder of the default size with random weights and word vectors."""
    torch.manual_seed(seed)
    fields = {"vocab_size": len(tokenizer), "num_fixed_embeddings": num_fixed_words(tokenizer)}
    config = AutoConfig.for_model(model_type, embedding_trainable="train_words", **fields)
    model = AutoModel.from_config(config)
    model.load_word_vectors(torch.rand(len(tokenizer), config.embedding_size) - 0.5)
    return model


def make_systems(arguments: argparse.Namespace, tokenizer: PreTrainedTokenizerBase) -> dict[str, System]:
    """All systems by name; encoders of this package are saved and loaded, as users get them."""
    systems = {}
    for model_type in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            random_model(model_type, tokenizer, arguments.seed).save_pretrained(folder)
            for form in arguments.forms:
                make, options = FORMS[FORM_NAMES[form]]
                for name in (f"{model_type} {form}", *[f"{model_type} {form}, padded"] * arguments.keep_padding):
                    loaded = make(Path(folder), AutoModel, **options)
                    if name.endswith("padded"):  # which a hook sees to
                        loaded.context.register_forward_hook(lambda *_: None)
                    systems[name] = System(tokenizer, loaded, lambda output, _: output.pooler_output)
    if arguments.peer:
        peer = AutoModel.from_pretrained(arguments.peer), AutoTokenizer.from_pretrained(arguments.peer)
        systems["peer"] = System(peer[1], peer[0], mean_pooled)
    return systems


def measured(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each system."""
    batches, tokenizer = texts_and_tokenizer(arguments)
    systems = make_systems(arguments, tokenizer)
    calls = {name: partial(system.encode, batches) for name, system in systems.items()}
    rows, summaries = [], times(calls, arguments.repeats, "cpu")
    for name, system in systems.items():
        row = {
            "system": name,
            "sentences_per_second": round(1e3 * sum(map(len, batches)) / summaries[name]["median_ms"]),
        }
        if arguments.peer:
            row["speed"] = round(summaries["peer"]["median_ms"] / summaries[name]["median_ms"], 2)
        if name != "peer":
            row["shares"] = system.shares(batches, arguments.repeats)
        rows.append(row | summaries[name])
    return rows


def markdown(report: dict[str, Any]) -> str:
    """Speeds and shares as a table."""
    header, rows = report["header"], report["rows"]
    lines = ["# From texts to sentence vectors", "", *surroundings_lines(header)]
    lines += [f"- Sentences: {header['sentences']} of {header['task']}, in batches of {header['batch_size']}", ""]
    lines += [
        "Speed: sentences a second, in units of the peer. Shares of the time, in percent: tokenizer, padding, and"
    ]
    padded = " A padded system does not leave padding out." if any("padded" in row["system"] for row in rows) else ""
    lines += [f"the parts of the model.{padded}", ""]
    lines += [f"| system | sentences / s | speed | {' | '.join(STAGES)} |", f"| --- |{' ---: |' * (2 + len(STAGES))}"]
    for row in rows:
        cells = [row["system"], row["sentences_per_second"], row.get("speed", "")]
        cells += [f"{100 * row['shares'][stage]:.0f}" if "shares" in row else "" for stage in STAGES]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def add_text_options(parser: argparse.ArgumentParser) -> None:
    """The options that say which sentences are encoded, and which model ours are compared with."""
    parser.add_argument("--peer", help="folder of a sentence-transformers model with mean pooling, to compare with")
    parser.add_argument("--task", default="sick_relatedness", help="default: sick_relatedness")
    parser.add_argument("--data_dir", help="folder with DIR/<task>/<split>.jsonl.gz; default: the data set on the Hub")
    parser.add_argument("--sentences", type=int, default=1280, help="of the test split; default: 1280")


def check_text_options(arguments: argparse.Namespace) -> None:
    """Raises InputError if there are no sentences, or no peer."""
    check_positive(arguments, "sentences")
    if arguments.peer and not Path(arguments.peer, "config.json").is_file():
        raise InputError(f"--peer {arguments.peer}: there is no saved model; give the folder of one")


def parse(argv: list[str]) -> argparse.Namespace:
    parser = make_parser("benchmarks.encode", __doc__, repeats=7)
    add_text_options(parser)
    parser.add_argument("--models", default="disan,biblosan,mtsa", help="default: disan,biblosan,mtsa")
    parser.add_argument("--keep_padding", action="store_true", help="measure models with their padding, too")
    parser.add_argument("--forms", default="float32,int8", help=f"of {','.join(FORM_NAMES)}; default: float32,int8")
    parser.add_argument("--batch_size", type=int, default=64, help="default: 64")
    arguments = parser.parse_args(argv)
    check_positive(arguments, "batch_size", "threads", "repeats")
    arguments.models = choose("--models", arguments.models, FAMILIES)
    arguments.forms = choose("--forms", arguments.forms, FORM_NAMES)
    check_text_options(arguments)
    return arguments


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure and write the report.

    Raises:
        InputError: an option that cannot be used.
    """
    argv = sys.argv[1:] if argv is None else argv
    arguments = parse(argv)
    torch.set_num_threads(arguments.threads)
    head = cpu_header("benchmarks.encode", arguments, argv, ("task", "sentences", "batch_size", "repeats"))
    report = {"header": head, "rows": measured(arguments)}
    write_report(arguments.output, report, markdown(report))
    return report


def main(argv: list[str] | None = None) -> int:
    """The command; bad input is one sentence on standard error and exit code 2."""
    return exit_code(run, argv)


if __name__ == "__main__":
    sys.exit(main())
