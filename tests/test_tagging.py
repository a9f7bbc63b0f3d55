"""Tagging: heads, decoding, metrics, rows, and a run from files to a pipeline."""

from __future__ import annotations

import itertools
import json
import random

import pytest
import torch
from cli_models import refused
from datasets import Dataset
from small_data import options, question_rows, read_lines, read_log, role_rows, tagging_rows, write_rows, write_splits
from test_models import MODEL_TYPES, make, sentences
from test_tagging_rows import subword_tokenizer
from torch.nn import functional as F
from transformers import (
    AutoModelForTokenClassification,
    pipeline,
)

from hf_blosan.analysis import explain
from hf_blosan.cli.commands import main
from hf_blosan.errors import InputError
from hf_blosan.tasks import TASKS
from hf_blosan.tasks.kinds import find_kind
from hf_blosan.tasks.metrics import ArgumentScores, SpanScores, TagAccuracy
from hf_blosan.tasks.tags import decode_tags, may_follow, spans
from hf_blosan.text.tokenization import build_tokenizer
from hf_blosan.training import train
from hf_blosan.training.evaluate_model import EvaluateArguments, evaluate

NAMES = ("O", "B-A", "I-A", "B-B", "I-B")
every_encoder = pytest.mark.parametrize("model_type", MODEL_TYPES)


@every_encoder
def test_heads(model_type, tmp_path):
    """A label for every token, whatever the row is batched with; the loss leaves out -100; no pooler is saved."""
    model = make(AutoModelForTokenClassification, model_type, num_labels=5)
    batch = sentences(9, 4, 1)
    labels = torch.randint(0, 5, (3, 9)).masked_fill(batch["attention_mask"] == 0, -100)
    labels[0, 2] = -100
    output = model(**batch, labels=labels, output_attentions=True, output_hidden_states=True)
    assert output.logits.shape == (3, 9, 5)
    torch.testing.assert_close(output.loss, F.cross_entropy(output.logits.flatten(0, 1), labels.flatten()))
    assert len(output.hidden_states) > 1 and output.attentions is not None and output.gates is not None
    for row, length in enumerate((9, 4, 1)):
        alone = model(batch["input_ids"][row : row + 1, :length]).logits[0]
        torch.testing.assert_close(alone, output.logits[row, :length], rtol=0, atol=2e-6)
    model.save_pretrained(tmp_path)
    loaded, report = AutoModelForTokenClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()) and torch.equal(loaded(**batch).logits, model(**batch).logits)
    assert "AutoModelForTokenClassification" in loaded.config.auto_map
    assert not any("pooler" in name for name in model.state_dict()) and not (tmp_path / "modules.json").exists()
    empty = model(torch.zeros(2, 0), attention_mask=torch.zeros(2, 0))
    assert empty.logits.shape == (2, 0, 5)


@every_encoder
def test_predicates(model_type):
    """Their embedding is appended to the word vectors; the same words have other logits with another predicate."""
    fields = {"predicate_size": 2, "embedding_scale": 3.0, "hidden_size": 24 if model_type == "birnn" else 12}
    model = make(AutoModelForTokenClassification, model_type, **fields)
    batch = sentences(9, 4)
    mask = torch.zeros(2, 9, dtype=torch.long)
    mask[:, 1] = 1
    output = model(**batch, predicate_mask=mask, output_hidden_states=True)
    embeddings = model.model.embeddings
    words, predicates = embeddings(batch["input_ids"]), embeddings.predicate_embeddings.weight[mask]
    torch.testing.assert_close(output.hidden_states[0], 3 * torch.cat([words, predicates], dim=-1))
    with torch.no_grad():  # where words repeat, other models compute each of them once
        assert not torch.allclose(model(**batch, predicate_mask=mask.flip(1)).logits[0], output.logits[0])
        torch.testing.assert_close(model(**batch, predicate_mask=mask.bool()).logits, output.logits)


def test_predicate_masks_that_do_not_fit():
    model = make(AutoModelForTokenClassification, "mtsa", predicate_size=2)
    batch, mask = sentences(9, 4), torch.zeros(2, 9, dtype=torch.long)
    with pytest.raises(ValueError, match="this model needs predicate_mask"):
        model(**batch)
    with pytest.raises(ValueError, match=r"predicate_mask has shape \(2, 8\) for tokens \(2, 9\)"):
        model(**batch, predicate_mask=mask[:, 1:])
    with pytest.raises(ValueError, match="predicate_mask has values other than 0 and 1"):
        model(**batch, predicate_mask=mask + 2)
    with pytest.raises(ValueError, match="predicate_mask: this model has no embedding of predicates"):
        make(AutoModelForTokenClassification, "mtsa")(**batch, predicate_mask=mask)


def test_heads_that_do_not_fit_a_configuration():
    from transformers import AutoModelForSequenceClassification

    with pytest.raises(ValueError, match="predicate_size=2: only taggers take predicates"):
        make(AutoModelForSequenceClassification, "disan", predicate_size=2)
    with pytest.raises(ValueError, match="num_sentences=2: tagging takes one sentence a row"):
        make(AutoModelForTokenClassification, "disan", num_sentences=2)


def valid(tags):
    return all(may_follow(before, tag) for before, tag in zip(("O", *tags), tags, strict=False))


def test_decoding_finds_the_best_valid_sequence():
    torch.manual_seed(0)
    logits = 2 * torch.randn(6, 5, len(NAMES))
    mask = torch.rand(6, 5) < 0.8
    mask[0] = True
    mask[1] = False
    decoded = decode_tags(logits, NAMES, mask)
    scores = logits.log_softmax(-1)
    for row in range(6):
        places = mask[row].nonzero()[:, 0].tolist()
        sequences = [s for s in itertools.product(range(5), repeat=len(places)) if valid([NAMES[i] for i in s])]
        best = max(sequences, key=lambda s: sum(scores[row, n, i].item() for n, i in zip(places, s, strict=True)))
        assert decoded[row, places].tolist() == list(best)
        assert (decoded[row, ~mask[row]] == -100).all()
    assert decode_tags(logits[:, :0], NAMES).shape == (6, 0)


def test_tags_without_spans_are_decoded_one_by_one():
    logits = torch.randn(2, 7, 3)
    assert torch.equal(decode_tags(logits, ("NOUN", "VERB", "O")), logits.argmax(-1))
    assert torch.equal(decode_tags(logits, {0: "NOUN", 1: "VERB", 2: "O"}), logits.argmax(-1))
    with pytest.raises(ValueError, match="there are 2 labels for logits of 3 tags; give one for each"):
        decode_tags(logits, ("NOUN", "VERB"))


def test_span_scores_are_those_of_seqeval():
    """Figures of seqeval 1.2.2, whose source distribution does not install beside pinned build tools."""
    rng = random.Random(0)
    predictions, references = ([rng.choices(NAMES, k=length) for length in range(1, 40)] for _ in range(2))
    found = SpanScores(keep_in_memory=True).compute(predictions=predictions, references=references)
    expected = {"precision": 0.2408906882591093, "recall": 0.22796934865900384, "f1": 0.234251968503937}
    assert found == pytest.approx(expected)
    accuracy = TagAccuracy(keep_in_memory=True).compute(predictions=predictions, references=references)
    assert accuracy["accuracy"] == pytest.approx(0.1935897435897436)


def test_argument_scores_leave_out_the_predicate():
    references = [["B-ARG0", "B-V", "B-ARG1", "I-ARG1"], ["B-V", "O"], ["B-V", "B-ARG1"]]
    predictions = [["B-ARG0", "O", "B-ARG1", "O"], ["O", "O"], ["B-V", "B-ARG1"]]
    found = ArgumentScores(keep_in_memory=True).compute(predictions=predictions, references=references)
    assert found == pytest.approx({"precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3, "complete": 2 / 3})
    without = [[["O" if tag == "B-V" else tag for tag in row] for row in rows] for rows in (references, predictions)]
    assert SpanScores(keep_in_memory=True).compute(references=without[0], predictions=without[1])["f1"] == found["f1"]
    nothing = ArgumentScores(keep_in_memory=True).compute(predictions=[["O"]], references=[["O"]])
    assert nothing == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "complete": 1.0}
    assert spans(["I-A", "I-A", "B-A", "I-B"]) == {("A", 0, 2), ("A", 2, 3), ("B", 3, 4)}


@pytest.mark.parametrize("words", [True, False], ids=["words", "subwords"])
@pytest.mark.parametrize("strategy", ["none", "simple", "first", "average", "max"])
@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
def test_pipeline(words, strategy, tmp_path):
    tokenizer = build_tokenizer(["the cats sleep"]) if words else subword_tokenizer()
    fields = {"id2label": dict(enumerate(NAMES)), "label2id": {name: i for i, name in enumerate(NAMES)}}
    model = make(AutoModelForTokenClassification, "disan", **fields)
    tag = pipeline("token-classification", model=model, tokenizer=tokenizer, aggregation_strategy=strategy)
    found = tag("the cats sleep", ignore_labels=[])
    key = "entity" if strategy == "none" else "entity_group"
    assert found and all(entry[key].removeprefix("B-").removeprefix("I-") in ("O", "A", "B") for entry in found)
    if strategy != "none":
        assert "".join(entry["word"] for entry in found).replace(" ", "").replace("##", "") == "thecatssleep"


def test_a_run_on_spans(tmp_path, capsys):
    """From files to a pipeline: training, card, predictions, evaluation, another run from the saved model."""
    data = write_splits(tmp_path, tagging_rows, train=160)
    overrides = "hidden_size=24,embedding_size=16,dropout=0.0"
    settings = {"encoder": "birnn", "config_overrides": overrides, "num_train_epochs": 4, "learning_rate": 0.03}
    run = train(options(tmp_path / "out", data, **settings))
    assert run["figures"]["test_f1"] > 0.9 and run["figures"]["test_accuracy"] > 0.9
    log = [entry["loss"] for entry in read_log(tmp_path / "out", "train")]
    assert log[-1] < log[0] / 2
    rows = tagging_rows(21, 2)
    lines = (tmp_path / "out" / "predict_results_custom.txt").read_text().splitlines()[1:]
    assert [len(line.split("\t")[1].split()) for line in lines] == [len(row["tokens"]) for row in rows]
    card = (tmp_path / "out" / "README.md").read_text()
    assert "pipeline_tag: token-classification" in card and 'pipeline("token-classification"' in card
    figures = evaluate(EvaluateArguments(str(tmp_path / "out"), test_file=data["test_file"], cpu=True))
    assert figures["test_f1"] == pytest.approx(run["figures"]["test_f1"])
    tag = pipeline("token-classification", model=str(tmp_path / "out"), aggregation_strategy="simple")
    assert {entry["entity_group"] for entry in tag("the red cat of two")} == {"ANIMAL", "NUMBER"}
    assert main(["predict", str(tmp_path / "out"), data["test_file"], str(tmp_path / "tags.jsonl"), "--cpu"]) == 0
    predicted = [row["tags"] for row in read_lines(tmp_path / "tags.jsonl")]
    assert [" ".join(tags) for tags in predicted] == [line.split("\t")[1] for line in lines]
    mistakes = {
        "labels.csv": "one that ends in .jsonl, .parquet",
        "labels.jsonl --probabilities": "'tags', which has no probabilities",
        "labels.jsonl --text_column_name words": "has no column 'words'; it has tokens, tags",
    }
    for words, message in mistakes.items():
        assert message in refused(capsys, "predict", tmp_path / "out", data["test_file"], *words.split())
    sentence = refused(capsys, "encode", tmp_path / "out", data["test_file"], tmp_path / "vectors.npy")
    assert "tags words; use it with hf-blosan predict and evaluate" in sentence
    with pytest.raises(InputError, match="BiRNNForTokenClassification has no sentence vectors to explain"):
        explain(tag.model, tag.tokenizer, "the red cat")
    texts = write_rows(tmp_path / "texts.jsonl", question_rows(4))
    with pytest.raises(InputError, match="texts.jsonl has no column 'tags' or 'ner_tags'; it has text, label"):
        evaluate(EvaluateArguments(str(tmp_path / "out"), test_file=str(texts), cpu=True))
    roles = write_rows(tmp_path / "roles.jsonl", role_rows(4))
    with pytest.raises(InputError, match="predicts O, B-ANIMAL|'B-ARG0' is not one of the tags"):
        evaluate(EvaluateArguments(str(tmp_path / "out"), test_file=str(roles), cpu=True))
    saved = {"encoder": None, "model_name_or_path": str(tmp_path / "out"), "ignore_mismatched_sizes": True}
    questions = write_splits(tmp_path / "questions", question_rows)
    with pytest.raises(InputError, match='pooling="none" gives no sentence vector.*; change its configuration by'):
        train(options(tmp_path / "other", questions, **saved, config_overrides="pooling=none"))


def test_a_tagger_of_a_pretrained_encoder_leaves_out_its_pooler_without_a_word(tmp_path, caplog):
    saved = {"encoder": None, "model_name_or_path": "disan-mini-en", "config_overrides": None, "max_train_steps": 1}
    train(options(tmp_path / "out", write_splits(tmp_path, tagging_rows), **saved))
    assert "disan-mini-en gets a new head for DiSANForTokenClassification" in caplog.text
    assert "have no place" not in caplog.text


ROLES = {
    "encoder": "birnn",
    "config_overrides": "hidden_size=24,embedding_size=8,predicate_size=4,dropout=0.0",
    "learning_rate": 0.03,
    "num_train_epochs": 5,  # three are too few for some seeds
    "label_smoothing": 0.1,
}


def test_a_run_on_roles(tmp_path, monkeypatch, capsys):
    """The model must see the predicate to know whose arguments to mark."""
    data = write_splits(tmp_path, role_rows, train=120)
    run = train(options(tmp_path / "out", data, **ROLES))
    assert run["figures"]["test_f1"] > 0.9 and run["figures"]["test_complete"] > 0.8
    assert run["config"]["predicate_size"] == 4
    card, names = (tmp_path / "out" / "README.md").read_text(), {}
    assert "(4 tags: O, B-ARG0, B-ARG1, B-V)" in card and "a sentence and one of its predicates" in card
    assert "widget" not in card
    monkeypatch.chdir(tmp_path)
    exec(card.split("```python\n")[1].split("```")[0], names)
    assert names["tags"].shape == (4,)
    unlabelled = [{name: row[name] for name in ("tokens", "predicate_index")} for row in role_rows(21, 2)]
    command = [
        "predict",
        tmp_path / "out",
        write_rows(tmp_path / "new.jsonl", unlabelled),
        "--cpu",
        "--batch_size",
        "4",
    ]
    capsys.readouterr()
    assert main([*map(str, command), "--max_length", "3"]) == 0
    assert main([str(word) for word in (*command[:3], tmp_path / "tags.parquet", *command[3:])]) == 0
    lines = (tmp_path / "out" / "predict_results_custom.txt").read_text().splitlines()[1:]
    predicted = Dataset.from_parquet(str(tmp_path / "tags.parquet"))["tags"][:]
    assert [" ".join(tags) for tags in predicted] == [line.split("\t")[1] for line in lines]
    cut = [json.loads(line)["tags"] for line in capsys.readouterr().out.splitlines()]
    assert list(map(len, cut)) == list(map(len, predicted)) and all(set(tags[3:]) <= {"O"} for tags in cut)
    wrong = write_rows(tmp_path / "wrong.jsonl", [unlabelled[0], unlabelled[1] | {"predicate_index": 99}])
    assert "row 2: predicate_index is 99, but the row has" in refused(
        capsys, "predict", tmp_path / "out", wrong, "--cpu"
    )
    with pytest.raises(InputError, match="predicate_size is 0, but .* has predicates"):
        train(options(tmp_path / "other", data, **ROLES | {"config_overrides": "predicate_size=0"}))
    without = write_splits(tmp_path / "spans", tagging_rows)
    with pytest.raises(InputError, match="predicate_size is 4, but .* has no column of predicates"):
        train(options(tmp_path / "other", without, **ROLES))


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["disan", "biblosan", "mtsa", "birnn", "textcnn", "multihead", "wordbag"])
def test_every_encoder_trains_and_resumes(encoder, tmp_path):
    data = write_splits(tmp_path, role_rows, train=120)
    overrides = "hidden_size=24,embedding_size=8,predicate_size=4,dropout=0.1"
    settings = ROLES | {"encoder": encoder, "config_overrides": overrides, "learning_rate": 0.01}
    run = train(options(tmp_path / "out", data, **settings, checkpointing_steps="epoch"))
    losses = [entry["loss"] for entry in read_log(tmp_path / "out", "train")]
    assert min(losses[-9:]) < 0.9 * losses[0]
    resumed = settings | {"resume_from_checkpoint": str(tmp_path / "out" / "epoch_1")}
    assert train(options(tmp_path / "out", data, **resumed))["figures"] == run["figures"]


def test_the_recipes_of_the_stacks_have_one_size():
    """The three encoders that are compared have the same number of parameters, within 1 %."""
    from hf_blosan.training.preparation import make_model

    kind = find_kind(TASKS["propbank_srl"])
    sizes = []
    for encoder in ("mtsa", "birnn", "multihead"):
        recipe = kind.task.recipe(encoder)
        fields = {"hidden_size": recipe.hidden_size, "vocab_size": 10} | dict(recipe.config) | kind.config_fields()
        with torch.device("meta"):
            sizes.append(make_model(kind, encoder, fields, None).num_parameters())
    assert max(sizes) < 1.01 * min(sizes)
