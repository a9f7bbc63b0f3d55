"""Model cards, made from the record of a run: the same code for a run's own folder and for cards of recorded runs.

`python -m hf_blosan.hub.model_card results/*.json --output_dir model_cards` renders the cards of recorded runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ..errors import InputError

TEMPLATE = Path(__file__).with_name("model_card.md.jinja")
ENCODER_NAMES = {
    "disan": "DiSAN",
    "biblosan": "Bi-BloSAN",
    "mtsa": "MTSA",
    "birnn": "Bi-RNN",
    "textcnn": "CNN",
    "multihead": "Multi-head attention",
    "wordbag": "Word vector",
}
PAPERS = {
    "disan": {
        "title": "DiSAN: Directional Self-Attention Network for RNN/CNN-Free Language Understanding",
        "authors": "Shen et al., AAAI 2018",
        "url": "https://arxiv.org/abs/1709.04696",
    },
    "biblosan": {
        "title": "Bi-Directional Block Self-Attention for Fast and Memory-Efficient Sequence Modeling",
        "authors": "Shen et al., ICLR 2018",
        "url": "https://arxiv.org/abs/1804.00857",
    },
    "mtsa": {
        "title": "Tensorized Self-Attention: Efficiently Modeling Pairwise and Global Dependencies Together",
        "authors": "Shen et al., NAACL 2019",
        "url": "https://arxiv.org/abs/1805.00912",
    },
}
RECORD_ENTRIES = (
    "name",
    "encoder",
    "task",
    "data",
    "figures",
    "command",
    "commit",
    "versions",
    "hardware",
    "seed",
    "settings",
    "config",
    "tokenizer",
    "continued_from",
    "word_vectors",
    "parameters",
    "training",
)
"""Entries of a record that a card shows."""

HUB_METRICS = {"pearson": "pearsonr"}
"""Names of metrics on the Hub, where they are not those of the figures."""


def make_model_card(run: dict[str, Any], *, location: str | None = None) -> ModelCard:
    """The card of a recorded run.

    Args:
        run: record of the run, as `hf_blosan.training.train` returns it or as it stands in a results file.
        location: folder or repository that the model is loaded from; the record's name by default.

    Raises:
        InputError: an entry of the record is missing.
    """
    missing = [entry for entry in RECORD_ENTRIES if entry not in run]
    if missing:
        raise InputError(
            f"this is no record of a run: it has no entry {missing[0]!r}; record the run with --results_file"
        )
    return ModelCard.from_template(card_metadata(run), str(TEMPLATE), **card_entries(run, location or run["name"]))


def write_model_card(output_dir: str | Path, run: dict[str, Any], *, location: str | None = None) -> Path:
    """Write the card of a run as `output_dir/README.md`, and return its path."""
    path = Path(output_dir) / "README.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    make_model_card(run, location=location or str(output_dir)).save(path)
    return path


def card_metadata(run: dict[str, Any]) -> ModelCardData:
    """The YAML head of a card, with the figures as `model-index`."""
    task, data = run["task"], run["data"]
    results = [
        EvalResult(
            task_type="text-classification",
            task_name=task["title"],
            dataset_type=data["hub_id"] or task["name"],
            dataset_name=task["title"],
            dataset_config=data["hub_config"],
            dataset_split="train" if split in data["held_out"] else split,
            metric_type=HUB_METRICS.get(metric, metric),
            metric_name=f"{split} {metric}",
            metric_value=round(value, 4),
        )
        for split, row in figure_table(run).items()
        for metric, value in row.items()
    ]
    return ModelCardData(
        language="en",
        library_name="transformers",
        pipeline_tag="text-classification",
        tags=["hf_blosan", run["encoder"], "sentence-encoder"],
        datasets=data["hub_id"],
        metrics=list(dict.fromkeys(result.metric_type for result in results)),
        model_name=run["name"],
        eval_results=results or None,
    )


def card_entries(run: dict[str, Any], location: str) -> dict[str, Any]:
    """What the template needs beside the record itself."""
    table = figure_table(run)
    rows = run["data"]["rows"]
    encoder_name = ENCODER_NAMES.get(run["encoder"], run["encoder"])
    return {
        "run": run,
        "title": f"{encoder_name} for {run['task']['title']}",
        "encoder_name": encoder_name,
        "paper": PAPERS.get(run["encoder"]),
        "location": location,
        "table": {split: {metric: f"{value:.4f}" for metric, value in row.items()} for split, row in table.items()},
        "metrics": list(dict.fromkeys(metric for row in table.values() for metric in row)),
        "rows": {split: f"{rows[split.removesuffix('_matched')]:,}" for split in table},
        "data_sentence": data_sentence(run),
        "words_sentence": words_sentence(run),
        "hardware_sentence": hardware_sentence(run["hardware"]),
        "settings": shown_settings(run),
    }


def shown_settings(run: dict[str, Any]) -> dict[str, Any]:
    """Options and configuration fields that are set and that the task uses."""
    unused = ("score_min", "score_max", "num_score_classes") if run["task"]["labels"] else ("classifier_highway",)
    settings = run["settings"] | run["config"]
    return {name: value for name, value in settings.items() if value is not None and name not in unused}


def figure_table(run: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Figures by split and metric: `{"test": {"accuracy": 0.92}}`. An undefined correlation (null) is left out."""
    table: dict[str, dict[str, float]] = {}
    for name, value in run["figures"].items():
        split, metric = split_figure(name)
        row = table.setdefault(split, {})
        if value is not None:
            row[metric] = value
    return table


def split_figure(name: str) -> tuple[str, str]:
    """`validation_mismatched_accuracy` -> (`validation_mismatched`, `accuracy`)."""
    for split in ("validation_matched", "validation_mismatched", "validation", "test"):
        if name.startswith(f"{split}_"):
            return split, name.removeprefix(f"{split}_")
    raise InputError(f"{name!r} is no figure of a split; figures are named validation_<metric> and test_<metric>")


def data_sentence(run: dict[str, Any]) -> str:
    """Where the rows come from, how many there are, and which were held out."""
    data = run["data"]
    source = {
        "generated": "generated by the package",
        "Hugging Face Hub": f"`{data['hub_id']}` from the Hugging Face Hub",
    }.get(data["source"], data["source"])
    rows = ", ".join(f"{split} {count:,}" for split, count in data["rows"].items())
    held_out = "".join(
        f"; the {split} split is {part}, held out with seed {run['seed']}" for split, part in data["held_out"].items()
    )
    return f"{source}; rows: {rows}{held_out}."


def words_sentence(run: dict[str, Any]) -> str:
    """How the words come to their vectors."""
    vectors = run["word_vectors"]
    if not vectors:
        return f"{run['tokenizer']} tokenizer, {run['config']['vocab_size']:,} entries; their vectors start at random."
    coverage = vectors["coverage"]
    sentence = (
        f"vectors start from `{vectors['file']}` (width {vectors['width']}), which has "
        f"{coverage['with_vector']:,} of the {coverage['training_words']:,} training words"
    )
    if coverage["token_coverage"] is not None:
        sentence += f", {coverage['token_coverage']:.1%} of the running words"
    if coverage["fixed_words"]:
        sentence += f"; {coverage['fixed_words']:,} further words keep their vectors"
    if "glove" not in vectors["file"].lower():
        sentence += ". The published figures use GloVe 6B instead, so compare with care"
    return sentence + "."


def hardware_sentence(hardware: dict[str, Any]) -> str:
    if hardware["device"] != "cpu":
        return f"{hardware['processes']} x {hardware['name']}"
    threads = hardware["processes"] * hardware["threads"]
    return f"{threads} CPU thread{'s' if threads > 1 else ''} ({hardware['name']})"


def main(argv: list[str] | None = None) -> int:
    """Render cards of recorded runs; the exit code is 2 for a file that is no record."""
    parser = argparse.ArgumentParser(prog="python -m hf_blosan.hub.model_card", description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path, help="JSON files that --results_file wrote")
    parser.add_argument(
        "--output_dir", type=Path, required=True, help="folder for the cards, one <name>.md for each file"
    )
    arguments = parser.parse_args(argv)
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    for path in arguments.results:
        try:
            run = json.loads(path.read_text(encoding="utf-8"))
            card = make_model_card(run, location=path.stem)
        except (OSError, ValueError) as error:
            print(f"error: {path}: {error}", file=sys.stderr)
            return 2
        target = arguments.output_dir / f"{path.stem}.md"
        card.save(target)
        print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
