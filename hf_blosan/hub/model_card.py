"""Model cards, made from the record of a run: for its output folder, and for the recorded runs in results/."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ..cli.arguments import CardArguments
from ..errors import InputError, first_line
from ..files import check_writable, write_text
from ..registry import encoder_name
from ..tasks.kinds import kind_class
from ..tasks.table import TASKS

TEMPLATE = Path(__file__).with_name("model_card.md.jinja")
PAPERS = {
    "disan": "[DiSAN: Directional Self-Attention Network for RNN/CNN-Free Language Understanding]"
    "(https://arxiv.org/abs/1709.04696) (Shen et al., AAAI 2018)",
    "biblosan": "[Bi-Directional Block Self-Attention for Fast and Memory-Efficient Sequence Modeling]"
    "(https://arxiv.org/abs/1804.00857) (Shen et al., ICLR 2018)",
    "mtsa": "[Tensorized Self-Attention: Efficiently Modeling Pairwise and Global Dependencies Together]"
    "(https://arxiv.org/abs/1805.00912) (Shen et al., NAACL 2019)",
}
RECORD_ENTRIES = frozenset(
    "name encoder task data figures command commit versions hardware seed settings config tokenizer continued_from "
    "word_vectors parameters training".split()
)
"""Entries of a record that a card shows."""

GENERATED_EXAMPLES = [
    {"text": "the man pushes the cat", "text_pair": "the cat is pushed by the man"},
    {"text": "the cat pushes the man", "text_pair": "the cat is pushed by the man"},
    {"text": "the nurse does not follow the dog", "text_pair": "the nurse is followed by the dog"},
    {"text": "some boys are happy", "text_pair": "all boys are not happy"},
]
"""Example inputs on the page and in the snippet of models of the demo corpus."""
HUB = "Hugging Face Hub"
SPLITS = ("validation_matched", "validation_mismatched", "validation", "test")
HUB_METRICS = {"pearson": "pearsonr", "f1_macro": "f1"}
"""Names of metrics on the Hub that differ from those of the figures."""


def make_model_card(
    run: dict[str, Any],
    *,
    location: str | None = None,
    in_progress: bool = False,
    repeated: Sequence[dict[str, Any]] = (),
) -> ModelCard:
    """The card of a recorded run.

    Args:
        run: record of the run, from `hf_blosan.training.train` or a results file.
        location: repository or folder from which the model is loaded; the record's name by default.
        in_progress: the model is the best one so far.
        repeated: records of the same training with several seeds, including this one, the best of them.

    Raises:
        InputError: the record lacks an entry.
    """
    for entry in sorted(RECORD_ENTRIES):
        if entry not in run:
            raise InputError(f"not the record of a run: it has no entry {entry!r}; record the run with --results_file")
    table, task, machine = figure_table(run), run["task"], run["hardware"]
    kind, pair = kind_class(task["problem"]), task["num_sentences"] == 2
    threads = machine["processes"] * machine["threads"]
    cpu = f"{threads} CPU thread{'s' if threads > 1 else ''} ({machine['name']})"
    unused = {*kind.unused_fields, "backbone_config", *(() if pair else ("pair_features",))}
    settings = {name: value for name, value in (run["settings"] | run["config"]).items() if name not in unused}
    entries = {
        "encoder": encoder_name(run["encoder"]),
        "paper": PAPERS.get(run["encoder"]),
        "location": location or run["name"],
        "in_progress": in_progress,
        "over_seeds": over_seeds(repeated),
        "use": kind.use.format("pairs of sentences" if pair else "sentences"),
        "kind": kind,
        "snippet": kind.snippet(run, location or run["name"], (examples(run) or [None])[0]),
        "command": command_without_paths(run["command"]),
        "figures": table,
        "metrics": list(dict.fromkeys(metric for row in table.values() for metric in row)),
        "data_sentence": data_sentence(run),
        "hardware": cpu if machine["device"] == "cpu" else f"{machine['processes']} x {machine['name']}",
        "settings": {name: value for name, value in settings.items() if value is not None},
    }
    return ModelCard.from_template(card_metadata(run), str(TEMPLATE), run=run, **entries)


def over_seeds(runs: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Seeds, mean and standard deviation of the test metric that selects models; None for fewer than two."""
    values = {run["seed"]: run["figures"].get(f"test_{run['task']['best_metric']}") for run in runs}
    if len(values) < 2 or None in values.values():
        return None
    return {"seeds": sorted(values), "mean": mean(values.values()), "deviation": stdev(values.values())}


def examples(run: dict[str, Any]) -> list[dict[str, str]] | None:
    """Example inputs; ``None`` for a user's own rows, which may be about anything."""
    if run["data"]["source"] == "generated":
        return GENERATED_EXAMPLES
    return kind_class(run["task"]["problem"]).examples(run["task"]) if run["task"]["name"] in TASKS else None


def write_model_card(output_dir: str | Path, run: dict[str, Any], **options: Any) -> Path:
    """Write the card of a run to `output_dir/README.md`; return its path.

    The location is the name of the folder unless the options (see :func:`make_model_card`) set another.
    """
    path = Path(output_dir) / "README.md"
    location = options.pop("location", None) or path.resolve().parent.name
    card = make_model_card(run, location=location, **options)
    write_text(path, str(card))
    return path


def command_without_paths(command: str) -> str:
    """A command line with paths outside the working directory shortened to file names."""
    words = []
    for word in shlex.split(command):
        option, separator, value = word.rpartition("=")
        outside = os.path.isabs(value) or value.startswith(("~", os.pardir))
        words.append(option + separator + (os.path.basename(value.rstrip("/")) if outside else value))
    return shlex.join(words)


def card_metadata(run: dict[str, Any]) -> ModelCardData:
    """The YAML metadata of a card, with the figures as `model-index`."""
    task, data = run["task"], run["data"]
    files = data.get("files", {})
    from_hub = data["source"] == HUB and data["hub_id"]
    kind = kind_class(task["problem"])
    own_code = ["sentence-encoder", "custom_code"] if kind.own_code else []
    results = [
        EvalResult(
            task_type=kind.pipeline,
            task_name=task["title"],
            dataset_type=data["hub_id"] if from_hub and read_from not in files else task["name"],
            dataset_name=files.get(read_from, task["title"]),
            dataset_config=data["hub_config"] if from_hub and read_from not in files else None,
            dataset_split=read_from,
            metric_type=HUB_METRICS.get(metric, metric),
            metric_name=f"{split} {metric}",
            metric_value=round(value, 4),
        )
        for split, row in figure_table(run).items()
        for read_from in ["train" if split in data["held_out"] else rows_of(split)]
        for metric, value in row.items()
    ]
    return ModelCardData(
        language=task.get("languages", "en") or None,
        library_name="transformers",
        pipeline_tag=kind.pipeline,
        base_model=backbone if "/" in (backbone := run.get("backbone") or "") else None,
        tags=["hf_blosan", run["encoder"], *own_code],
        # The Hub's widget has no place for a predicate.
        widget=None if run["config"].get("predicate_size") else examples(run),
        datasets=data["hub_id"] if from_hub else None,
        metrics=list(dict.fromkeys(result.metric_type for result in results)),
        model_name=run["name"],
        eval_results=results or None,
    )


def rows_of(split: str) -> str:
    """The key of a split's row count: with two validation splits, `validation` is the matched one."""
    return split.removesuffix("_matched")


def figure_table(run: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Figures by split and metric, as in `{"test": {"accuracy": 0.92}}`, without undefined correlations (null). Raises
    InputError if a figure is not named `<split>_<metric>`.
    """
    table: dict[str, dict[str, float]] = {}
    for name, value in run["figures"].items():
        split = next((split for split in SPLITS if name.startswith(f"{split}_")), None)
        if split is None:
            raise InputError(f"{name!r} is not the figure of a split; name it validation_<metric> or test_<metric>")
        row = table.setdefault(split, {})
        if value is not None:
            row[name.removeprefix(f"{split}_")] = value
    return table


def data_sentence(run: dict[str, Any]) -> str:
    """The source of the rows, their number, and the held-out splits."""
    data = run["data"]
    files, held_out = data.get("files", {}), data["held_out"]
    sources = [f"`{file}` ({split})" for split, file in files.items()]
    others = [split for split in data["rows"] if split not in files and split not in held_out]
    if others:
        kinds = {"generated": "generated by the package", HUB: f"`{data['hub_id']}` from the {HUB}"}
        sources.append(kinds.get(data["source"], data["source"]) + (f" ({', '.join(others)})" if files else ""))
    rows = ", ".join(f"{split} {count:,}" for split, count in data["rows"].items())
    if taught := run.get("distillation"):
        rows += (
            f"; {taught['rows']:,} training rows are texts of `{taught['file']}`, labelled by `{taught['teacher']}`"
        )
    parts = "".join(f"; the {split} split is {part}, held out" for split, part in held_out.items())
    if run["settings"].get("select_on_test"):
        parts += "; the validation rows are the test rows, so that the figures are optimistic"
    return f"{', '.join(sources)}; rows: {rows}{parts}."


def write_cards(options: CardArguments) -> None:
    """Write the cards of recorded runs, one NAME.md for each NAME.json; raises InputError if a file is not a record,
    two cards have the same name, or a card cannot be written.
    """
    from jinja2 import TemplateError  # here, because it comes with an extra

    sources: dict[str, Path] = {}
    for path in map(Path, options.results):
        if (other := sources.setdefault(path.stem, path)) != path:
            raise InputError(f"{other} and {path} would have one card, {path.stem}.md; give one another --output_dir")
    for path in sources.values():
        check_writable("--output_dir", options.output_dir, folder=True)
        if path.is_dir():
            raise InputError(f"{path} is a folder; give the file in it that --results_file wrote")
        if not path.exists():
            raise InputError(f"{path} does not exist; give a file written by --results_file")
        try:
            card = make_model_card(json.loads(path.read_text(encoding="utf-8")), location=path.stem)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: not JSON ({error}); give a file written by --results_file") from error
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: {error}") from error
        except (AttributeError, LookupError, TypeError, TemplateError) as error:
            raise InputError(
                f"{path}: not the record of a run ({first_line(error)}); give a file written by --results_file"
            ) from error
        target = Path(options.output_dir, f"{path.stem}.md")
        check_writable("--output_dir", target, folder=False)
        write_text(target, str(card))
        print(target)
