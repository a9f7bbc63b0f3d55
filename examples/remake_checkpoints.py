"""Train the best recorded models again: `python examples/remake_checkpoints.py --data_dir DIR --word_vectors FILE`.

The records of the tables in `results` say how each of their models was trained. For every encoder and each of TREC,
SST-2, SICK relatedness, semantic roles, sentence selection and translation, and for TREC and SICK on top of a
pretrained transformer, the seed with the best validation figure is trained again with the recorded command; its folder
is the checkpoint, with the card of the new run. `--cards model_cards` writes only those of the records.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard

from hf_blosan.errors import InputError
from hf_blosan.hub.model_card import make_model_card
from hf_blosan.training import train
from hf_blosan.training.reporting import arguments_of

TASKS = ("trec", "sst2_phrases", "sick_relatedness", "propbank_srl", "squad_sentences", "multi30k_en_de")
RESULTS = Path(__file__).resolve().parents[1] / "results"
RECORDS = [
    RESULTS / folder for folder in ("trec_and_sick", "sst2", "mtsa_srl", "squad", "mtsa_translation", "backbone")
]


def runs_by_model(folders: list[Path]) -> dict[str, list[dict[str, Any]]]:
    """The records of each model, ``disan-trec`` or ``disan-trec-on-BACKBONE``; the best on validation data first."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(path for folder in folders for path in folder.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        backbone = record.get("backbone")
        if record["task"]["name"] not in TASKS or backbone and record["encoder"] == "wordbag":
            continue  # the word bags on a backbone are the yardsticks
        name = f"{record['name']}-on-{backbone}" if backbone else record["name"]
        runs.setdefault(name, []).append(record)
    return {name: sorted(found, key=validation_figure, reverse=True) for name, found in sorted(runs.items())}


def validation_figure(record: dict[str, Any]) -> float:
    return record["figures"][f"validation_{record['task']['best_metric']}"]


def remake(record: dict[str, Any], output_dir: Path, **paths: str | None) -> dict[str, tuple[float, float]]:
    """Repeat the recorded command with other paths; the figures then and now.

    Paths of word vectors and of a backbone count only where the run has some.
    """
    recorded = arguments_of(record)
    given = {name: path for name, path in paths.items() if path}
    for name in ("word_vectors", "backbone"):
        if not getattr(recorded, name):
            given.pop(name, None)
    arguments = replace(recorded, output_dir=str(output_dir), results_file=None, **given)
    figures = train(arguments, command=record["command"])["figures"]
    return {name: (value, figures[name]) for name, value in record["figures"].items()}


def card_of(name: str, runs: list[dict[str, Any]]) -> ModelCard:
    """The card of the best of the runs."""
    return make_model_card(runs[0], location=name, repeated=runs)


def main(argv: list[str] | None = None) -> int:
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="models, such as disan-trec (all)")
    parser.add_argument("--records", type=Path, nargs="+", default=RECORDS, help="folders of the records (in results)")
    parser.add_argument("--data_dir", help="folder of the data, in place of the recorded one")
    parser.add_argument("--backbone", help="the pretrained transformer, where one is recorded")
    parser.add_argument("--word_vectors", help="file of the word vectors, where a file is recorded")
    parser.add_argument("--output_dir", type=Path, default=Path("out/checkpoints"), help="one folder for each model")
    parser.add_argument("--cards", type=Path, metavar="DIR", help="write only the cards, to this folder")
    options = parser.parse_args(argv)
    try:
        runs = runs_by_model(options.records)
        if unknown := set(options.names) - set(runs):
            folders = ", ".join(map(str, options.records))
            raise InputError(f"no record of {min(unknown)} in {folders}; choose from {', '.join(runs)}")
        for name in options.names or runs:
            if options.cards:
                card_of(name, runs[name]).save(options.cards / f"{name}.md")
                continue
            folder, paths = options.output_dir / name, {"data_dir": options.data_dir}
            paths |= {"word_vectors": options.word_vectors, "backbone": options.backbone}
            for figure, (then, now) in remake(runs[name][0], folder, **paths).items():
                print(f"{name} {figure}: recorded {then:.4f}, now {now:.4f}")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
