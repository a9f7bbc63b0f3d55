"""Model cards from recorded runs."""

import copy
import json
from importlib.metadata import version

import pytest
from huggingface_hub import ModelCard
from loopback_hub import BAD_LICENSE, LoopbackHub
from packaging.version import Version

from hf_blosan.cli.commands import main
from hf_blosan.errors import InputError
from hf_blosan.hub import make_model_card, write_model_card
from hf_blosan.hub.model_card import figure_table

RUN = {
    "name": "biblosan-sick_relatedness",
    "encoder": "biblosan",
    "task": {
        "name": "sick_relatedness",
        "title": "SICK relatedness",
        "problem": "regression",
        "num_sentences": 2,
        "labels": [],
        "best_metric": "pearson",
    },
    "data": {
        "source": "Hugging Face Hub",
        "hub_id": "RobZamp/sick",
        "hub_config": "default",
        "rows": {"train": 4439, "validation": 495, "test": 4906},
        "held_out": {},
    },
    "figures": {
        "validation_pearson": 0.87654321,
        "validation_mse": 0.31,
        "test_pearson": 0.86912345,
        "test_spearmanr": None,
        "test_mse": 0.33,
    },
    "command": "python run_glue_style.py --task_name sick_relatedness --encoder biblosan --output_dir out/sick",
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "versions": {"python": "3.11.7", "torch": "2.13.0"},
    "hardware": {"device": "cpu", "name": "x86_64", "processes": 1, "threads": 2, "mixed_precision": "no"},
    "date": "2026-01-31",
    "seed": 7,
    "settings": {"optimizer": "adam", "learning_rate": 0.001, "max_grad_norm": None},
    "config": {"vocab_size": 2000, "hidden_size": 480, "block_length": 5, "score_min": 1.0, "score_max": 5.0},
    "tokenizer": "word level",
    "continued_from": None,
    "word_vectors": {
        "file": "minilm.static.300d.txt.gz",
        "width": 300,
        "coverage": {
            "training_words": 2160,
            "with_vector": 2158,
            "without_vector": 2,
            "type_coverage": 0.999,
            "token_coverage": 0.9995,
            "fixed_words": 47842,
            "examples": [],
        },
    },
    "parameters": {"total": 17000000, "trained": 2600000, "without_embeddings": 2456789},
    "training": {"steps": 1400, "epochs": 10.0, "best_step": 980, "seconds": 512.3, "seconds_in_all": 530.0},
}


def changed(**entries) -> dict:
    return copy.deepcopy(RUN) | entries


def test_metadata_is_a_model_index():
    card = ModelCard(make_model_card(RUN).content)  # read back from the text
    data = card.data.to_dict()
    assert data["pipeline_tag"] == "text-classification" and data["library_name"] == "transformers"
    assert "license" not in data and {"biblosan", "custom_code"} <= set(data["tags"])
    assert data["datasets"] == "RobZamp/sick" and data["widget"][0].keys() == {"text", "text_pair"}
    assert data["metrics"] == ["pearsonr", "mse"]
    found = {(r.dataset_split, r.metric_type): r.metric_value for r in card.data.eval_results}
    assert found == {
        ("validation", "pearsonr"): 0.8765,
        ("validation", "mse"): 0.31,
        ("test", "pearsonr"): 0.8691,
        ("test", "mse"): 0.33,
    }
    assert {(r.dataset_type, r.dataset_config) for r in card.data.eval_results} == {("RobZamp/sick", "default")}
    assert card.data.model_name == "biblosan-sick_relatedness"


def test_many_tags_are_counted():
    task = RUN["task"] | {"problem": "tagging", "labels": [f"B-{n}" for n in range(51)]}
    assert "(51 tags)." in make_model_card(changed(task=task)).content


def test_text_says_how_it_was_made():
    text = make_model_card(RUN, location="me/sick").content
    for part in (
        "# Bi-BloSAN for SICK relatedness",
        "(a score from 1.0 to 5.0)",
        "https://arxiv.org/abs/1804.00857",
        "| test | 4,906 | 0.8691 | 0.3300 |",
        'pipeline("text-classification", model="me/sick", trust_remote_code=True)',
        '"text_pair"',
        "`RobZamp/sick` from the Hugging Face Hub; rows: train 4,439, validation 495, test 4,906.",
        "`minilm.static.300d.txt.gz` (width 300), which covers 2,158 of the 2,160 training words",
        "published figures use GloVe 6B instead",
        "2,456,789 without word embeddings",
        "10.0 epochs, 1400 updates, 512 s on 2 CPU threads",
        "commit `0123456789abcdef0123456789abcdef01234567`",
        RUN["command"],
        "| block_length | 5 |",
        "(update 980 of 1400)",
    ):
        assert part in text, part
    assert "max_grad_norm" not in text and "\n\n\n" not in text and "classes:" not in text


def test_classification_of_single_sentences():
    task = RUN["task"] | {"problem": "classification", "labels": ["negative", "positive"], "num_sentences": 1}
    task |= {"title": "customer reviews"}
    data = RUN["data"] | {"hub_id": None, "held_out": {"test": "fold 0 of 10"}}
    text = make_model_card(
        changed(task=task, data=data, word_vectors=None, commit=None, encoder="own", continued_from="base")
    ).content
    assert "(2 classes: negative, positive)" in text and 'classify("Who wrote Hamlet?")' in text
    assert "the test split is fold 0 of 10, held out" in text
    assert "the tokenizer of `base`, 2,000 entries; their vectors start from its own." in text
    own = make_model_card(changed(task=task, data=data, word_vectors=None)).content
    assert "word level tokenizer, 2,000 entries; their vectors start at random." in own
    assert "own sentence encoder, trained further from `base`" in text
    assert "commit" not in text and "arxiv" not in text and "score_min" not in text
    assert "datasets" not in ModelCard(text).data.to_dict()


@pytest.mark.parametrize(
    ("num_sentences", "example"),
    [(1, 'classify("Your text")'), (2, 'classify({"text": "Your text", "text_pair": "Your other text"})')],
)
def test_rows_of_a_user_have_no_examples_about_something_else(num_sentences, example):
    task = {"name": "custom", "title": "custom (mine.csv)", "problem": "classification", "labels": ["a", "b"]}
    text = make_model_card(changed(task=RUN["task"] | task | {"num_sentences": num_sentences})).content
    assert example in text and "widget" not in ModelCard(text).data.to_dict()


def test_macro_f1_is_f1_on_the_hub():
    figures = {"validation_accuracy": 0.9, "validation_f1_macro": 0.8}
    data = ModelCard(make_model_card(changed(figures=figures)).content).data
    assert data.metrics == ["accuracy", "f1"] and data.eval_results[1].metric_name == "validation f1_macro"


def test_selection_on_the_test_rows_is_named():
    sentence = "the validation rows are the test rows, so that the figures are optimistic"
    assert sentence not in make_model_card(RUN).content
    card = make_model_card(changed(settings=RUN["settings"] | {"select_on_test": True})).content
    assert sentence in card and "the validation split is the test split, so that" in card
    assert "evaluated once" not in card and "took no part" not in card


def test_matched_and_mismatched_splits():
    figures = {"validation_matched_accuracy": 0.7, "validation_mismatched_accuracy": 0.71}
    rows = {"train": 100, "validation": 20, "validation_mismatched": 30}
    assert figure_table(changed(figures=figures)) == {
        "validation_matched": {"accuracy": 0.7},
        "validation_mismatched": {"accuracy": 0.71},
    }
    text = make_model_card(changed(figures=figures, data=RUN["data"] | {"rows": rows})).content
    assert "| validation_matched | 20 | 0.7000 |" in text and "| validation_mismatched | 30 | 0.7100 |" in text


def test_incomplete_record_is_refused():
    run = changed()
    del run["parameters"]
    with pytest.raises(InputError, match="parameters"):
        make_model_card(run)
    with pytest.raises(InputError, match="'accuracy' is not the figure of a split"):
        make_model_card(changed(figures={"accuracy": 1.0}))


def test_written_card_names_its_folder(tmp_path):
    path = write_model_card(tmp_path / "out", RUN)
    assert path == tmp_path / "out" / "README.md"
    assert 'model="out"' in path.read_text() and str(tmp_path) not in path.read_text()
    assert 'model="me/sick"' in write_model_card(tmp_path / "out", RUN, location="me/sick").read_text()
    assert [file.name for file in path.parent.iterdir()] == ["README.md"]


def test_data_that_was_used_is_named():
    """A data set on the Hub only if the rows came from it; a file where there was one."""
    data = RUN["data"] | {"source": "local files", "held_out": {"validation": "10% of the training rows"}}
    card = make_model_card(changed(data=data))
    assert "datasets" not in card.data.to_dict() and "**Data**: local files; rows" in card.content
    assert {(r.dataset_type, r.dataset_name) for r in card.data.eval_results} == {
        ("sick_relatedness", "SICK relatedness")
    }
    card = make_model_card(changed(data=data | {"files": {"train": "mine.csv"}}))
    found = {r.dataset_split: (r.dataset_type, r.dataset_name) for r in card.data.eval_results}
    assert found == {"train": ("sick_relatedness", "mine.csv"), "test": ("sick_relatedness", "SICK relatedness")}
    assert "**Data**: `mine.csv` (train), local files (test); rows" in card.content
    data = RUN["data"] | {"files": {"validation": "dev.tsv"}}
    card = make_model_card(changed(data=data))
    found = {r.dataset_split: (r.dataset_type, r.dataset_name, r.dataset_config) for r in card.data.eval_results}
    assert found["validation"] == ("sick_relatedness", "dev.tsv", None)
    assert found["test"] == ("RobZamp/sick", "SICK relatedness", "default")
    assert "`dev.tsv` (validation), `RobZamp/sick` from the Hugging Face Hub (train, test); rows" in card.content


def test_no_local_path():
    command = (
        "python run_glue_style.py --train_file /home/ann/a.csv --word_vectors=~/glove.txt.gz --data_dir ../data "
        "--output_dir out/sick"
    )
    text = make_model_card(changed(command=command)).content
    expected = "--train_file a.csv --word_vectors=glove.txt.gz --data_dir data --output_dir out/sick"
    assert expected in text and "/home" not in text


def test_card_of_a_run_in_progress():
    text = make_model_card(RUN, in_progress=True).content
    assert "**Training continues; this is the best model so far.**\nOne run with seed 7." in text
    assert "\n\n\n" not in text and "continues" not in make_model_card(RUN).content


@pytest.mark.skipif(
    Version(version("huggingface_hub")) < Version("2"), reason="before version 2 the client asks huggingface.co alone"
)
@pytest.mark.parametrize("num_sentences", [1, 2])
def test_the_hub_accepts_the_metadata(num_sentences, monkeypatch, tmp_path):
    with LoopbackHub() as hub:
        hub.use_here(monkeypatch, tmp_path)
        make_model_card(changed(task=RUN["task"] | {"num_sentences": num_sentences})).validate()
        card = make_model_card(RUN)
        card.data.license = "free"
        with pytest.raises(ValueError, match=BAD_LICENSE):
            card.validate()


def test_command_renders_cards(tmp_path, capsys):
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(RUN))
    arguments = ["card", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--output_dir", str(tmp_path / "cards")]
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "cards" / f"{name}.md") for name in ("a", "b")]
    assert ModelCard.load(tmp_path / "cards" / "a.md").data.model_name == "biblosan-sick_relatedness"


def test_command_refuses_two_cards_of_one_name(tmp_path, capsys):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "r.json").write_text(json.dumps(RUN))
    records = [str(tmp_path / folder / "r.json") for folder in ("a", "b")]
    assert main(["card", *records, "--output_dir", str(tmp_path / "o")]) == 2
    assert "b/r.json would have one card, r.md" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


NO_RECORDS = (
    *({"hardware": "cpu"}, {"data": {name: value for name, value in RUN["data"].items() if name != "held_out"}}),
    *({"training": "long"}, {"task": {}}),
)


@pytest.mark.parametrize("content", [None, "{", "[]", "{}", "1", *(json.dumps(RUN | new) for new in NO_RECORDS)])
def test_command_refuses_other_files(tmp_path, capsys, content):
    path = tmp_path / "run.json"
    if content is not None:
        path.write_text(content)
    assert main(["card", str(path), "--output_dir", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"error: {path}") and message.count("\n") == 1
    if content == "{":
        (tmp_path / "file").touch()
        assert main(["card", str(path), "--output_dir", str(tmp_path / "file")]) == 2
        messages = capsys.readouterr().err
        assert "file is a file; give a folder" in messages
        assert main(["card", str(tmp_path), "--output_dir", str(tmp_path)]) == 2
        assert "is a folder; give the file in it that --results_file wrote" in capsys.readouterr().err
        assert main(["card", str(path), "--output_dir", str(tmp_path)]) == 2
        assert "give a file written by --results_file" in capsys.readouterr().err


def test_what_was_watched_and_repeated():
    watched = changed(settings=RUN["settings"] | {"watch_test": True, "max_length": 256})
    assert "the test split was evaluated as often, but took no part in the choice" in make_model_card(watched).content
    assert "Training rows were cut off after 256 tokens" in make_model_card(watched).content
    again = changed(seed=3, figures=RUN["figures"] | {"test_pearson": 0.85912345})
    card = make_model_card(RUN, repeated=[RUN, again]).content
    assert "Of the runs with seeds 3, 7 it is the best on the validation split" in card
    assert "test pearson is 0.8641 ± 0.0071" in card
    untested = changed(figures={"validation_pearson": 0.8})
    assert "Of the runs" not in make_model_card(RUN, repeated=[RUN, untested]).content
    assert "test split" not in make_model_card(untested | {"settings": watched["settings"]}).content
    once = make_model_card(RUN).content
    assert "Of the runs" not in once and "evaluated once" in once and "## Intended use and limits" in once
    assert "For scoring pairs of sentences like those of SICK relatedness" in once
