"""The card of an encoder that comes with the package: `python -m pretraining.card NAME`.

It is made of records: of the training, and of `benchmarks.order` and `benchmarks.similarity`, where the teacher is
beside it. A record is REPORT_NAME.json where there is one, else REPORT.json. Written are README.md and .eval_results/
in the encoder's folder, and model_cards/NAME.md.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import (
    EvalResult,
    EvalResultEntry,
    ModelCard,
    ModelCardData,
    eval_result_entries_to_yaml,
)

from benchmarks import order, similarity
from hf_blosan.cli.options import Parser, exit_status, positional
from hf_blosan.errors import InputError
from hf_blosan.files import write_text
from hf_blosan.registry import PRETRAINED

ROOT = Path(__file__).resolve().parents[1]
REPORTS, CARDS = ROOT / "benchmarks" / "reports", ROOT / "model_cards"
TEMPLATE = Path(__file__).with_name("card.md.jinja")
TEACHER = "all-MiniLM-L6-v2"
HUB_SETS = {
    "sts13": "sts13-sts",
    "sts14": "sts14-sts",
    "sts15": "sts15-sts",
    "stsb": "stsbenchmark-sts",
    "sick": "sickr-sts",
}
"""Sets of benchmarks.similarity -> their names on the Hub, where MTEB keeps them."""


def record(report: str, encoder: str) -> dict[str, Any]:
    """A report of benchmarks/: that of an encoder alone, or that of all."""
    return json.loads(record_file(report, encoder).read_text(encoding="utf-8"))


def record_file(report: str, encoder: str) -> Path:
    own = REPORTS / f"{report}_{encoder}.json"
    return own if own.exists() else REPORTS / f"{report}.json"


def rows_of(name: str, report: str, encoder: str) -> list[dict[str, Any]]:
    """The rows of a model in a report of benchmarks/ with this encoder.

    Raises:
        InputError: there are none.
    """
    if found := [row for row in record(report, encoder)["rows"] if row["model"] == name]:
        return found
    file = record_file(report, encoder).name
    raise InputError(f"benchmarks/reports/{file} has no model {name}; measure it with `python -m benchmarks.{report}`")


def figures(name: str, encoder: str | None = None, part: str = "") -> dict[str, Any]:
    """What the card shows of a model: its row of similarity, and of each column of order the row.

    Args:
        name: the model.
        encoder: beside which it was measured; by default itself.
        part: the end of the reports' names: "_seeds" for those of other seeds.
    """
    encoder = encoder or name
    return {
        "similarity": rows_of(name, f"similarity{part}", encoder)[0],
        "order": {(row["kind"], row["setting"]): row for row in rows_of(name, f"order{part}", encoder)},
    }


def seeds(name: str) -> dict[str, str]:
    """What other seeds gave, as text, if the reports of seeds have them beside this encoder."""
    models = list(dict.fromkeys(row["model"] for row in record("order_seeds", name)["rows"]))
    found = [figures(model, name, "_seeds") for model in models if model != name] if name in models else []
    columns = {"mean": [each["similarity"]["mean"] for each in found]}
    for form in ("same_form", "paraphrase_form"):
        columns[form] = [each["order"]["roles", form]["percent"] for each in found]
    return {column: " and ".join(f"{value:.1f}" for value in values) for column, values in columns.items() if found}


def metadata(name: str, row: dict[str, Any]) -> ModelCardData:
    """The front matter, with the figures of similarity."""
    results = [
        EvalResult(
            task_type="sentence-similarity",
            dataset_type=f"mteb/{HUB_SETS[key]}",
            dataset_name=title,
            dataset_split="test",
            metric_type="cosine_spearman",
            metric_name="Spearman's correlation of cosines, x 100",
            metric_value=row[key],
        )
        for key, title in similarity.SETS.items()
    ]
    return ModelCardData(
        language="en",
        license="apache-2.0",
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=["hf_blosan", "disan", "sentence-transformers", "sentence-encoder", "feature-extraction"],
        base_model=f"sentence-transformers/{TEACHER}",
        model_name=name,
        eval_results=results,
    )


def card(name: str) -> ModelCard:
    """The card of an encoder."""
    found = figures(name)
    return ModelCard.from_template(
        metadata(name, found["similarity"]),
        template_path=str(TEMPLATE),
        name=name,
        teacher_name=TEACHER,
        encoder=found,
        teacher=figures(TEACHER, name),
        seeds=seeds(name),
        training=record("pretraining", name),
        sets=similarity.SETS,
        columns=order.COLUMNS,
        probe=similarity.BANKING,
    )


def hub_results(name: str) -> dict[str, str]:
    """The files of ``.eval_results``, one for each set."""
    row = figures(name)["similarity"]
    return {
        f"{key}.yaml": yaml.safe_dump(
            eval_result_entries_to_yaml(
                [EvalResultEntry(dataset_id=f"mteb/{dataset}", task_id="default", value=row[key])]
            ),
            sort_keys=False,
        )
        for key, dataset in HUB_SETS.items()
    }


def write(name: str) -> None:
    """Write the card and the results for the Hub."""
    text = str(card(name))
    for path in (PRETRAINED / name / "README.md", CARDS / f"{name}.md"):
        write_text(path, text)
    folder = PRETRAINED / name / ".eval_results"
    folder.mkdir(exist_ok=True)
    for file, content in hub_results(name).items():
        write_text(folder / file, content)


@dataclass
class CardOptions:
    """Options of ``python -m pretraining.card``."""

    names: list[str] = positional("Encoders, such as disan-mini-en.")


def command(argv: list[str] | None) -> None:
    """Write those of the encoders that are named."""
    for name in Parser(prog="python -m pretraining.card", description=__doc__).read(CardOptions, argv).names:
        write(name)


if __name__ == "__main__":
    sys.exit(exit_status(command, None))
