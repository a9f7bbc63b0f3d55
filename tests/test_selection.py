"""Sentence selection: both layouts of a batch, rows, training."""

import json
from dataclasses import replace

import pytest
import torch
from cli_models import refused
from datasets import Dataset, DatasetDict
from small_data import options, prepared, read_lines, read_log, squad_rows, write_backbone, write_rows, write_vectors
from test_models import MODEL_TYPES, SMALL, make
from transformers import AutoModelForMultipleChoice, AutoModelForSequenceClassification, AutoTokenizer

from hf_blosan.cli.commands import main
from hf_blosan.errors import InputError
from hf_blosan.export import load_exportable
from hf_blosan.hub.saved import load
from hf_blosan.registry import FAMILIES
from hf_blosan.tasks import TASKS, custom_task, get_task, load_task
from hf_blosan.tasks.kinds import find_kind
from hf_blosan.tasks.passages import as_passage, sentence_spans
from hf_blosan.tasks.recipes import find_recipe
from hf_blosan.text.tokenization import prepare_pretrained_tokenizer
from hf_blosan.training import train
from hf_blosan.training.arguments import EvaluateArguments
from hf_blosan.training.evaluate_model import evaluate
from reproduce.tables import get_table

LENGTHS = [[7, 3, 5], [4], [2, 9, 1, 6, 3, 8]]  # tokens of the sentences of three passages


def packed(questions=(4, 2, 6), passages=(0, 1, 2), seed=0):
    """Packed inputs: questions of these lengths about these passages."""
    torch.manual_seed(seed)

    def rows(lengths):
        mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        return torch.randint(2, SMALL["vocab_size"], mask.shape) * mask, mask.long()

    sentences, mask = rows([length for passage in LENGTHS for length in passage])
    asked, question_mask = rows(list(questions))
    return {
        "input_ids": sentences,
        "attention_mask": mask,
        "question_input_ids": asked,
        "question_attention_mask": question_mask,
        "passage_lengths": torch.tensor(list(map(len, LENGTHS))),
        "question_passages": torch.tensor(passages),
    }


def as_multiple_choice(batch):
    """The same in the layout of transformers: (B, C, N), choices and tokens filled up."""
    lengths, rows = batch["passage_lengths"].tolist(), []
    sentences = batch["input_ids"].split(lengths)
    for question, passage in zip(batch["question_input_ids"], batch["question_passages"].tolist(), strict=True):
        pairs = [[*question[question > 0].tolist()], 0], [s[s > 0].tolist() for s in sentences[passage]]
        rows.append([(pairs[0][0], sentence) for sentence in pairs[1]])
    width = max(len(q) + len(s) for row in rows for q, s in row)
    shape = (len(rows), max(map(len, rows)), width)
    ids, mask, types = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
    for b, row in enumerate(rows):
        for c, (question, sentence) in enumerate(row):
            size = len(question) + len(sentence)
            ids[b, c, :size] = torch.tensor(question + sentence)
            mask[b, c, :size], types[b, c, len(question) : size] = 1, 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}


@pytest.mark.parametrize("name", ["token_mask", "predicate_mask"])
def test_masks_that_it_does_not_read_are_refused(name):
    with pytest.raises(ValueError, match=f"a model that selects sentences takes no {name}; leave it out"):
        make(AutoModelForMultipleChoice, "disan")(**packed(), **{name: torch.eye(9)})


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_both_layouts_give_the_same(model_type):
    """And a question's scores depend neither on other questions and passages nor on padding."""
    model = make(AutoModelForMultipleChoice, model_type)
    batch = packed(questions=(4, 2, 6, 3), passages=(2, 1, 2, 0))
    logits = model(**batch, labels=torch.tensor([5, 0, 1, 2])).logits
    other = model(**as_multiple_choice(batch), labels=torch.tensor([5, 0, 1, 2]))
    lowest = torch.finfo(torch.float32).min
    for found in (logits, other.logits):
        assert found.shape == (4, 6) and (found > lowest).sum(1).tolist() == [6, 1, 6, 3]
    torch.testing.assert_close(logits, other.logits, rtol=1e-4, atol=1e-5)
    alone = {name: tensor[3:] for name, tensor in as_multiple_choice(batch).items()}
    torch.testing.assert_close(model(**alone).logits, other.logits[3:], rtol=1e-4, atol=1e-5)
    assert len(set(logits[0].tolist())) == 6 and torch.isfinite(other.loss)
    assert other.loss > 0


def test_bi_sru_relates_sentences_by_an_lstm():
    """An SRU is as wide as its input, which the second fusion is not."""
    model = make(AutoModelForMultipleChoice, "birnn", cell="sru", embedding_size=6)
    assert model.config.cell == "sru" and type(model.classifier.context.layers[0].directions[0]).__name__ == "LSTM"
    assert model(**packed()).logits.shape == (3, 6)


def test_sentences_are_encoded_once(monkeypatch):
    model, rows = make(AutoModelForMultipleChoice, "disan"), []
    model.model.register_forward_hook(lambda _, args, kwargs, output: rows.append(len(output[1])), with_kwargs=True)
    batch = packed(questions=(4, 2, 6, 3), passages=(2, 1, 2, 0))
    model(**batch)
    model(**as_multiple_choice(packed()))
    assert rows == [10, 10]  # without a row for padding


def test_gradients_reach_every_parameter():
    model = make(AutoModelForMultipleChoice, "biblosan", block_length=3)
    model(**packed(), labels=torch.tensor([1, 0, 3])).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_bad_inputs():
    model, batch = make(AutoModelForMultipleChoice, "disan"), packed()
    pairs = as_multiple_choice(batch)
    for inputs, message in (
        (batch | {"passage_lengths": torch.tensor([3, 1, 5])}, "passage_lengths are \\[3, 1, 5\\], of 10 sentences"),
        (batch | {"passage_lengths": None}, "passage_lengths are missing"),
        (batch | {"question_passages": torch.tensor([0, 1])}, "3 questions, of which 2 have a passage"),
        (batch | {"question_passages": torch.tensor([0, 3, 1])}, "\\[0, 3, 1\\]; number the 3 passages from 0"),
        (pairs | {"token_type_ids": None}, "needs token_type_ids"),
        ({"input_ids": batch["input_ids"]}, "give input_ids \\(B, C, N\\).*shape \\(10, 9\\)"),
        ({}, "they are None"),
    ):
        with pytest.raises(ValueError, match=message):
            model(**inputs)


def test_save_and_load(tmp_path):
    model = make(AutoModelForMultipleChoice, "biblosan", passage_block_length=2, block_length=3)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForMultipleChoice.from_pretrained(tmp_path)
    assert torch.equal(loaded(**packed()).logits, model(**packed()).logits)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["BiBloSANForSentenceSelection"] and config["passage_block_length"] == 2
    assert (
        config["auto_map"]["AutoModelForMultipleChoice"] == "modeling_biblosan_selection.BiBloSANForSentenceSelection"
    )


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["disan", "biblosan", "mtsa"])
def test_compiled(model_type):
    model = make(AutoModelForMultipleChoice, model_type)
    batch = as_multiple_choice(packed())
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, backend="eager", dynamic=True)
        torch.testing.assert_close(compiled(**batch).logits, model(**batch).logits, rtol=1e-4, atol=1e-5)


# --- Rows ---------------------------------------------------------------------------------------------------------


def read(rows):
    task = get_task("squad_sentences")
    return find_kind(task).normalise(Dataset.from_list(rows), task.local, "rows.jsonl")


def test_squad_rows_become_sentences(caplog):
    caplog.set_level("INFO")
    rows = read(squad_rows(20))
    listed = read(squad_rows(20, form="listed"))
    assert rows[:] == listed[:] and rows["passage"][:4] == [0, 0, 1, 1]
    assert "10 distinct passages" in caplog.text


def test_answers_across_sentences_and_missing_ones_are_counted(caplog):
    caplog.set_level("INFO")
    context = "He came home. Ann was there. It rained."
    answers = [("home. Ann", 8), ("Ann", 14), ("there", 0), ("snow", 3), (None, 0)]
    rows = read(
        [
            {"question": "?", "context": context, "answers": {"text": [text] if text else [], "answer_start": [start]}}
            for text, start in answers
        ]
    )
    assert rows["label"][:] == [0, 1, 1]
    assert "1 answers continue in the next sentence" in caplog.text and "2 of 5 rows have no answer" in caplog.text


def test_spans_are_characters():
    text = " Ünïcode 😀 here.  Mr. Smith came.\n\nReally?"
    assert [text[start:end] for start, end in sentence_spans(text)] == [
        "Ünïcode 😀 here.",
        "Mr. Smith came.",
        "Really?",
    ]
    assert sentence_spans(" \n ") == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sentences": []}, "row 3: the passage has no sentences; fill it in or remove the row"),
        ({"question": " "}, "row 3: question is empty; fill it in or remove the row"),
        ({"sentences": ["One.", " "]}, "row 3: sentence 2 is empty"),
        ({"sentences": ["One.", None]}, "row 3: sentence 2 is null"),
        ({"label": 5}, "row 3: label 5 is not the index of one of its 2 sentence"),
        ({"label": -1}, "row 3: label -1 is not the index"),
        ({"label": 0.5}, "row 3: label 0.5 is not the index"),
    ],
)
def test_bad_rows(change, message):
    good = {"question": "Who?", "sentences": ["Ann came.", "Bob left."], "label": 1}
    with pytest.raises(InputError, match=f"^rows.jsonl, {message}"):
        read([good, good, good | change])


@pytest.mark.parametrize("label", [1, 1.0, "1"])
def test_labels_as_users_write_them(label):
    good = {"question": "Who?", "sentences": ["Ann came.", "Bob left."], "label": label}
    assert read([good])["label"][:] == [1]


def test_passages_without_the_name_of_the_task(tmp_path):
    for form in ("squad", "listed"):
        rows = squad_rows(40, form=form)
        file = write_rows(tmp_path / f"{form}.jsonl", rows)
        task = custom_task(file, file)
        loaded = load_task(task, seed=0)["train"]
        assert task.kind == "selection" and loaded[:] == read(rows)[:]
    assert custom_task(file, text_column_name="question", label_column_name="label").kind == "classification"


@pytest.mark.parametrize("form", ["squad", "listed"])
def test_a_split_with_hidden_answers_is_not_used(form, tmp_path, caplog):
    caplog.set_level("INFO")
    rows = Dataset.from_list(squad_rows(40, form=form))
    hidden = {"answers": {"text": [], "answer_start": []}} if form == "squad" else {"label": -1}
    splits = DatasetDict(train=rows, validation=rows, test=Dataset.from_list([row | hidden for row in rows]))
    splits.save_to_disk(str(tmp_path / "own"))
    assert custom_task(dataset_name=str(tmp_path / "own")).tables.keys() == {"train", "validation"}
    assert "test has no gold labels and is not used" in caplog.text


def test_own_passages_have_the_recipe_of_squad_and_the_patience_of_own_rows():
    for encoder in FAMILIES:
        own, squad = (find_recipe(family, encoder) for family in ("own_passages", "squad"))
        assert replace(own, patient_epochs=0, patient_updates=0) == squad and own.patience(10) == 10


def test_other_bad_tables():
    with pytest.raises(InputError, match="has no columns question, sentences, label, nor question, context, answers"):
        read([{"text": "a", "label": 0}])
    with pytest.raises(InputError, match="row 1: sentences is of type str; write a list"):
        read([{"question": "a", "sentences": "b", "label": 0}])
    with pytest.raises(InputError, match="row 1: the passage has no sentences"):
        read([{"question": "a", "context": " ", "answers": {"text": ["b"], "answer_start": [0]}}])
    with pytest.raises(InputError, match="row 1: context is of type list; write it as text"):
        read([{"question": "a", "context": ["b."], "answers": {"text": ["b"], "answer_start": [0]}}])
    with pytest.raises(InputError, match="row 1: answers is .* write lists of equal length"):
        read([{"question": "a", "context": "b.", "answers": {"text": ["b"], "answer_start": []}}])
    with pytest.raises(InputError, match="no question with an answer in its context"):
        read([{"question": "a", "context": "b.", "answers": {"text": ["c"], "answer_start": [0]}}])


def test_sentences_that_are_text_are_not_taken_for_pairs(tmp_path):
    (tmp_path / "a.csv").write_text("question,sentences,label\nwho,a b.,0\nwhere,c d.,1\n")
    with pytest.raises(InputError, match="a.csv: sentences is not a list; give a list of sentences in each row"):
        custom_task(tmp_path / "a.csv")
    names = {"text_column_name": "question", "text_pair_column_name": "sentences", "label_column_name": "label"}
    assert custom_task(tmp_path / "a.csv", **names).num_sentences == 2


def test_a_passage_is_never_in_two_splits(tmp_path):
    file = write_rows(tmp_path / "train.jsonl", squad_rows(60))
    splits = load_task("squad_sentences", train_file=file, validation_fraction=0.2, seed=1)
    train, held_out = ({tuple(row) for row in splits[split]["sentences"]} for split in ("train", "validation"))
    assert len(splits["validation"]) == 12 and not train & held_out
    folds = []
    for fold in range(3):
        splits = load_task(
            "squad_sentences", train_file=file, validation_fraction=0.2, seed=1, num_folds=3, fold=fold
        ).values()
        passages = [{tuple(row) for row in rows["sentences"]} for rows in splits]
        assert len(set.union(*passages)) == sum(map(len, passages)) == 30
        folds.append(passages[-1])
    assert [len(rows) for rows in splits] == [32, 8, 20] and len(set.union(*folds)) == 30
    file = write_rows(tmp_path / "one.jsonl", squad_rows(2))
    with pytest.raises(InputError, match="1 training passages are too few to hold out"):
        load_task("squad_sentences", train_file=file, validation_fraction=0.5, seed=1)
    with pytest.raises(InputError, match="training split has 1 passages, too few for 2 folds"):
        load_task("squad_sentences", train_file=file, num_folds=2, validation_fraction=0.5, seed=1)


# --- Training -----------------------------------------------------------------------------------------------------


def files(folder):
    return {
        "task_name": "squad_sentences",
        "train_file": str(write_rows(folder / "train.jsonl", squad_rows(96))),
        "validation_file": str(write_rows(folder / "validation.jsonl", squad_rows(20, 1, "listed"))),
        "test_file": str(write_rows(folder / "test.jsonl", squad_rows(20, 2))),
    }


def test_batches_share_passages(tmp_path):
    arguments, preparation = prepared(options(tmp_path / "out", files(tmp_path)))
    rows, batches = preparation.data["train"], list(preparation.batch_sampler(arguments))
    collated = [preparation.collate([rows[i] for i in batch]) for batch in batches]
    assert sorted(sum(batches, [])) == list(range(96))
    assert sum(len(batch["passage_lengths"]) for batch in collated) <= 48 + len(batches)
    for batch, indices in zip(collated, batches, strict=True):
        sentences = batch["input_ids"].split(batch["passage_lengths"].tolist())
        for i, passage in zip(indices, batch["question_passages"].tolist(), strict=True):
            assert [s[s > 0].tolist() for s in sentences[passage]] == rows[i]["input_ids"]


def test_a_truncated_sentence_keeps_its_last_special_token(tmp_path):
    words = "where does ann live in rome now".split()
    tokenizer = AutoTokenizer.from_pretrained(write_backbone(tmp_path / "backbone", words))
    tokenizer = prepare_pretrained_tokenizer(tokenizer, for_backbone=True)
    rows = [{"question": "where does ann live now", "sentences": ["ann", "ann live in rome now"], "label": 1}]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    files = {f"{split}_file": path for split in ("train", "validation", "test")}
    dataset = DatasetDict(test=load_task(get_task("squad_sentences"), **files, seed=0)["test"])
    row = find_kind(get_task("squad_sentences")).encode(dataset, tokenizer, 4)["test"][0]
    shown = [" ".join(tokenizer.convert_ids_to_tokens(ids)) for ids in (*row["input_ids"], row["question_input_ids"])]
    assert shown == ["[CLS] ann [SEP]", "[CLS] ann live [SEP]", "[CLS] where does [SEP]"]


def test_the_modern_recipe_keeps_word_vectors_from_a_file(tmp_path):
    """And trains those that start at random, as the papers' recipe trains all of the training words."""
    vectors = str(write_vectors(tmp_path / "vectors.txt", ["the", "cat", "unseen"]))
    given = {"word_vectors": vectors, "config_overrides": "hidden_size=8"}
    for changes, expected in (
        ({"recipe": "modern", **given}, "none"),
        ({"recipe": "modern"}, "train_words"),
        ({"recipe": "modern", "embedding_trainable": "train_words", **given}, "train_words"),
        ({"recipe": "paper", **given}, "train_words"),
    ):
        model = prepared(options(tmp_path / "out", files(tmp_path), **changes))[1].model
        assert model.config.embedding_trainable == expected
        assert model.model.embeddings.word_embeddings.weight.requires_grad == (expected != "none")


def test_training_evaluation_and_predictions(tmp_path, capsys):
    """A run learns what questions ask for, resumes exactly, and its model is evaluated on other rows."""
    sizes = "hidden_size=24,embedding_size=16,classifier_size=16,dropout=0,initializer_range=0.5"
    changes = {"num_train_epochs": 7, "checkpointing_steps": "60", "label_smoothing": 0.1, "config_overrides": sizes}
    arguments = options(tmp_path / "out", files(tmp_path), **changes)
    record = train(arguments)
    assert record["figures"]["test_accuracy"] >= 0.9
    lines = (tmp_path / "out" / "predict_results_squad_sentences.txt").read_text().splitlines()
    assert lines[0] == "index\tprediction" and len(lines) == 21 and set(lines[1].split("\t")[1]) <= set("01234")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "pipeline_tag: multiple-choice" in card and "AutoModelForMultipleChoice.from_pretrained" in card

    resumed = options(
        tmp_path / "out", files(tmp_path), **changes, resume_from_checkpoint=str(tmp_path / "out" / "step_60")
    )
    assert train(resumed)["figures"] == record["figures"]
    assert [entry["loss"] for entry in read_log(tmp_path / "out", "train")]

    own = {"model_name_or_path": str(tmp_path / "out"), "cpu": True, "predictions_file": str(tmp_path / "chosen.txt")}
    figures = evaluate(EvaluateArguments(**own, test_file=str(tmp_path / "test.jsonl")))
    assert figures["test_accuracy"] == record["figures"]["test_accuracy"]
    assert (tmp_path / "chosen.txt").read_text().splitlines() == lines
    with pytest.raises(InputError, match="--text_column_name: the columns of passages have fixed names"):
        evaluate(EvaluateArguments(**own, test_file=str(tmp_path / "test.jsonl"), text_column_name="question"))
    # Without answers, as SQuAD's rows and as lists of sentences.
    rows = read_lines(tmp_path / "test.jsonl")
    unlabelled = [{name: row[name] for name in ("question", "context")} for row in rows]
    listed = [{"question": row["question"], "sentences": list(as_passage(row, "", 1)[1])} for row in rows]
    for name, given in (("contexts", unlabelled), ("lists", listed)):
        path = write_rows(tmp_path / f"{name}.jsonl", given)
        words = ["predict", str(tmp_path / "out"), str(path), str(tmp_path / "chosen.jsonl"), "--cpu"]
        assert main([*words, "--batch_size", "3"]) == 0
        found = read_lines(tmp_path / "chosen.jsonl")
        assert [f"{i}\t{row['sentence']}" for i, row in enumerate(found)] == lines[1:]
        assert [row["text"] for row in found] == [
            row["sentences"][answer["sentence"]] for row, answer in zip(listed, found, strict=True)
        ]
        assert all(1 / 6 < row["score"] <= 1 for row in found)
    for change, message in (
        ({"sentences": ["a", " "]}, "row 2: sentence 2 is empty; fill it in or remove the row"),
        ({"question": None}, "row 2: question is null"),
        ({"sentences": "a. b."}, "row 2: sentences is of type str; write a list"),
    ):
        path = write_rows(tmp_path / "bad.jsonl", [listed[0], listed[1] | change])
        assert message in refused(capsys, "predict", tmp_path / "out", path, tmp_path / "bad_out.jsonl")
    path = write_rows(tmp_path / "bad.jsonl", [{"question": "who"}])
    message = refused(capsys, "predict", tmp_path / "out", path, tmp_path / "bad_out.jsonl")
    assert "has no column 'context'; it has question" in message
    message = refused(capsys, "predict", tmp_path / "out", path, "--text_column_name", "question")
    assert "--text_column_name: the columns of passages have fixed names" in message
    for auto_class in (None, AutoModelForSequenceClassification):
        with pytest.raises(InputError, match="chooses sentences from passages, which this command does not support"):
            load(str(tmp_path / "out"), auto_class)
    with pytest.raises(InputError, match="is of class DiSANForSentenceSelection, whose inputs have three dimensions"):
        load_exportable(str(tmp_path / "out"))


def test_table_5_has_time_and_memory():
    training = {"seconds": 30.0, "steps": 120, "peak_memory_mib": 812.4}
    record = {"figures": {"test_accuracy": 0.6838}, "parameters": {"without_embeddings": 1_230_000}}
    columns = get_table("biblosan_table5").columns
    found = [column.text(column.figure_of(record | {"training": training})) for column in columns]
    assert found == ["68.38", "1.23m", "250 ms", "812 MiB"]


def test_label_smoothing_leaves_padding_out(tmp_path):
    _, preparation = prepared(options(tmp_path / "out", files(tmp_path)))
    kind, model, labels = preparation.kind, make(AutoModelForMultipleChoice, "disan"), torch.tensor([1, 0, 3])
    output = model(**packed(), labels=labels)
    wide, narrow = kind.loss(output, labels, 0.1), []
    for row, size in enumerate((3, 1, 6)):
        logits = output.logits[row : row + 1, :size]
        narrow.append(torch.nn.functional.cross_entropy(logits, labels[row : row + 1], label_smoothing=0.1))
    torch.testing.assert_close(wide, torch.stack(narrow).mean())
    for dtype in (torch.bfloat16, torch.float16):  # accelerate converts what a model returns in mixed precision
        half = model.to(dtype)(**packed(), labels=labels)
        half.loss, half.logits = half.loss.float(), half.logits.float()
        torch.testing.assert_close(kind.loss(half, labels, 0.1), wide, rtol=0.05, atol=0.05)
    assert TASKS["squad_sentences"].local.splits["test"] == ("validation",)
