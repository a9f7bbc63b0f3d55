"""Tagging: heads, decoding, metrics, rows, and a run from files to a pipeline."""

from __future__ import annotations

import itertools
import json
import random

import numpy as np
import pytest
import torch
from cli_models import refused
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value
from small_data import options, question_rows, read_lines, read_log, role_rows, tagging_rows, write_rows, write_splits
from test_models import MODEL_TYPES, make, sentences
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch.nn import functional as F
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    DebertaTokenizer,
    PreTrainedTokenizerFast,
    pipeline,
)

from hf_blosan.analysis import explain
from hf_blosan.cli import main
from hf_blosan.data import custom_task, load_task
from hf_blosan.data.tagging import TaggingCollator, encode_tags
from hf_blosan.errors import InputError
from hf_blosan.metrics import ArgumentScores, SpanScores, TagAccuracy
from hf_blosan.tagging import decode_tags, may_follow, spans
from hf_blosan.tasks import TASKS
from hf_blosan.tokenization import build_tokenizer
from hf_blosan.training import train
from hf_blosan.training.evaluate_model import EvaluateArguments, evaluate
from hf_blosan.training.loop import fingerprint
from hf_blosan.training.problems import find_problem

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

    with pytest.raises(ValueError, match="predicate_size=2: heads on sentence vectors take no predicates"):
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


def test_the_predicates_of_a_sentence_are_never_in_two_splits(tmp_path):
    rows = [{"tokens": [f"w{i}", "goes"], "tags": ["B-ARG0", "B-V"], "predicate_index": 1} for i in range(20)]
    rows += [{"tokens": row["tokens"], "tags": ["B-V", "O"], "predicate_index": 0} for row in rows]
    file = write_rows(tmp_path / "a.jsonl", rows)
    splits = load_task("propbank_srl", train_file=file, num_folds=4, validation_fraction=0.2, seed=0)
    assert [len(rows) for rows in splits.values()] == [24, 6, 10]
    assert sum(len({tuple(words) for words in rows["tokens"]}) for rows in splits.values()) == 20


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"tokens": ["a", "b"], "tags": ["O"]}, "row 2 has 2 words and 1 tags; give one tag for each word"),
        ({"tokens": [], "tags": []}, "row 2: tokens is empty"),
        ({"tokens": ["a", " "], "tags": ["O", "O"]}, "row 2: word 2 of tokens is empty"),
        ({"tokens": ["a", None], "tags": ["O", "O"]}, "row 2: word 2 of tokens is null"),
        ({"tokens": ["a"], "tags": ["B-ARG9"]}, "row 2: 'B-ARG9' is not one of the tags of propbank_srl"),
        ({"tokens": ["a"], "tags": ["B-V"], "predicate_index": 1}, "row 2: predicate_index is 1, but the row has 1"),
        ({"tokens": ["a"], "tags": ["B-V"], "predicate_index": -1}, "row 2: predicate_index is -1"),
        ({"tokens": ["a"], "tags": ["B-V"], "predicate_index": None}, "row 2: predicate_index is None"),
    ],
)
def test_bad_rows_are_named(tmp_path, row, message):
    rows = [{"tokens": ["he", "goes"], "tags": ["B-ARG0", "B-V"], "predicate_index": 1}, {"predicate_index": 0} | row]
    path = write_rows(tmp_path / "a.jsonl", rows)
    with pytest.raises(InputError, match=message) as caught:
        load_task("propbank_srl", train_file=path, validation_file=path, seed=0)
    assert str(path) in str(caught.value)


def test_files_that_are_no_tagging_data(tmp_path):
    def task_of(*rows, name="a.jsonl", **columns):
        return custom_task(write_rows(tmp_path / name, list(rows)), **columns)

    with pytest.raises(InputError, match="has no column 'tags' or 'ner_tags'; it has tokens, kinds; name"):
        task_of({"tokens": ["a"], "kinds": ["O"]})
    with pytest.raises(InputError, match="every tag is 'O'; tagging needs two or more"):
        task_of({"tokens": ["a"], "tags": ["O"]})
    for tags, end in ((["B-A", "E-A", "O"], "E-A"), (["O", "I-A", "U-B"], "U-B")):
        with pytest.raises(InputError, match=f"a.jsonl: tag '{end}' is of the form IOBES or BILOU; convert the tags"):
            task_of({"tokens": ["a", "b", "c"], "tags": tags})
    with pytest.raises(InputError, match="row 1: tags is not a list"):
        task_of({"tokens": ["a"], "tags": "O"})
    with pytest.raises(InputError, match="row 1: tag 2 of tags is null"):
        task_of({"tokens": ["a", "b"], "tags": ["O", None]})
    with pytest.raises(InputError, match="has no column 'kinds'; it has tokens, tags$"):
        task_of({"tokens": ["a"], "tags": ["O"]}, label_column_name="kinds")
    with pytest.raises(InputError, match="not a list; give a list of words"):
        path = write_rows(tmp_path / "b.csv", [{"tokens": "a", "tags": "O", "predicate_index": 0}])
        load_task("propbank_srl", train_file=path, validation_file=path, seed=0)
    with pytest.raises(InputError, match="--text_pair_column_name is 'b', but tagging takes one text a row; leave it"):
        task_of({"tokens": ["a", "b"], "tags": ["X", "Y"]}, text_column_name="tokens", text_pair_column_name="b")
    own = task_of({"words": ["a", "b"], "pos": ["X", "Y"]}, text_column_name="words", label_column_name="pos")
    assert own.problem == "tagging" and own.labels == ("X", "Y") and own.metrics == ("TagAccuracy",)


def test_rows_of_the_hub(tmp_path):
    """Class ids with names, as CoNLL-2003 has them; an I-X that continues nothing begins a span."""
    names = ["O", "I-PER", "B-PER", "I-LOC"]
    rows = Dataset.from_dict({"tokens": [["Ann", "Lee", "in", "Rome"]], "ner_tags": [[1, 1, 0, 3]]})
    rows = rows.cast_column("ner_tags", List(ClassLabel(names=names))).cast_column("tokens", List(Value("string")))
    DatasetDict(train=rows, validation=rows).save_to_disk(tmp_path / "own")
    task = custom_task(dataset_name=str(tmp_path / "own"))
    assert task.labels == (*names, "B-LOC") and task.metrics == ("SpanScores", "TagAccuracy")
    loaded = load_task(task, seed=0)["train"]
    assert [task.labels[i] for i in loaded[0]["tags"]] == ["B-PER", "I-PER", "O", "B-LOC"]
    held_out = load_task(task, seed=0, num_folds=0, validation_fraction=None)
    assert len(held_out["validation"]) == 1


def subword_tokenizer():
    """WordPiece with special tokens; every letter is a token, and words it knows are one."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "cat", "##s", *"abcdefghijklmnopqrstuvwxyz"]
    words += [f"##{letter}" for letter in "abcdefghijklmnopqrtuvwxyz"]
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def encoded_rows(tokenizer, max_length=64):
    rows = {"tokens": [["Cats", "don't", "go"], ["cat"]], "tags": [[1, 2, 3], [4]], "predicate_index": [1, 0]}
    return encode_tags(Dataset.from_dict(rows), tokenizer, max_length)


def test_tags_are_aligned_with_tokens(caplog):
    """The first token of a word has its tag, for tokenizers of words and of parts of words; -100 everywhere else."""
    words = encoded_rows(build_tokenizer(["cats don't go", "cat"]))
    assert words["labels"] == [[1, 2, -100, 3], [4]]  # cats do n't go
    assert words["word_mask"] == [[1, 1, 0, 1], [1]] and words["predicate_mask"] == [[0, 1, 1, 0], [1]]
    tokenizer = subword_tokenizer()
    parts = encoded_rows(tokenizer)
    assert parts["labels"][0] == [-100, 1, -100, 2, -100, -100, -100, -100, 3, -100, -100]  # cat s d o n ' t g o
    assert not caplog.records
    cut = encoded_rows(tokenizer, max_length=5)
    assert cut["labels"][0] == [-100, 1, -100, 2, -100] and "1 words of 1 rows have no token" in caplog.text
    assert cut["gold"][0] == {"tags": [1, 2, 3], "words": [0, 1]}
    for side in ("right", "left"):
        tokenizer.padding_side = side
        batch = TaggingCollator(tokenizer)([parts[0], parts[1]])
        order = slice(None) if side == "right" else slice(None, None, -1)
        assert batch["labels"][1].tolist()[order] == [-100, 4, *[-100] * 9]
        assert batch["predicate_mask"][1].tolist()[order] == batch["word_mask"][1].tolist()[order] == [0, 1, *[0] * 9]
        assert torch.equal(batch["attention_mask"].sum(1), torch.tensor([11, 3]))


def test_words_without_a_token_count_in_figures(tmp_path):
    """Behind the limit a word is predicted to be outside of every span; the gold tags are those of all words."""
    rows = [{"tokens": "a b c d".split(), "tags": "B-X O B-Y I-Y".split()}, {"tokens": ["a"], "tags": ["B-X"]}]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    problem = find_problem(custom_task(path))
    dataset = DatasetDict(test=load_task(problem.task, validation_fraction=0.5, seed=0, test_file=path)["test"])
    encoded = problem.encode(dataset, build_tokenizer(["a b c d"]), max_length=2)["test"]
    labels = np.array([row + [-100] * (2 - len(row)) for row in encoded["labels"][:]])
    predictions = problem.complete(labels, encoded["gold"][:])
    assert list(problem.lines(predictions)) == ["B-X O O O", "B-X"]
    figures = problem.figures(predictions, encoded["gold"][:])
    assert (figures["precision"], figures["recall"]) == (1, pytest.approx(2 / 3))
    assert figures["accuracy"] == pytest.approx(3 / 5)


def test_training_rows_that_teach_nothing_are_left_out(caplog):
    """One whose predicate is behind the limit, and one whose only word has no token."""
    rows = {"tokens": [["cat", "cat", "cat"], ["cat"], ["\u200d"]], "tags": [[1, 2, 3], [4], [1]]}
    dataset = Dataset.from_dict(rows | {"predicate_index": [2, 0, 0]})
    tokenizer = subword_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.BertNormalizer()
    options = {"where": "train: ", "for_training": True}
    assert encode_tags(dataset, tokenizer, 3)["labels"] == [[-100, 1, -100], [-100, 4, -100], [-100, -100]]
    assert encode_tags(dataset, tokenizer, 3, **options)["labels"] == [[-100, 4, -100]]
    assert "train: 2 rows have no token for a word or the predicate and are left out" in caplog.text
    with pytest.raises(InputError, match="train: no row has a token for a word and for its predicate"):
        encode_tags(dataset.select([0, 2]), tokenizer, 3, **options)


def test_rows_and_splits_without_gold_tags(tmp_path, caplog):
    """Class ids of -1 are no tags; a test split of them is none, as of sentences without labels."""
    features = Features({"tokens": List(Value("string")), "ner_tags": List(ClassLabel(names=["O", "B-X", "I-X"]))})
    tags = [[0, 1, 2], [-1, -1, -1], [1, 0, 0]]

    def table(tags):
        return Dataset.from_dict({"tokens": [["a", "b", "c"]] * len(tags), "ner_tags": tags}, features=features)

    DatasetDict(train=table(tags * 5), test=table(tags[1:2])).save_to_disk(tmp_path / "names")
    with caplog.at_level("INFO"):
        data = load_task(custom_task(dataset_name=str(tmp_path / "names")), validation_fraction=0.2, seed=0)
    assert set(data) == {"train", "validation"} and len(data["train"]) + len(data["validation"]) == 10
    assert "test has no gold labels and is not used" in caplog.text
    assert "5 rows have no gold tags and are left out" in caplog.text
    table([[0, -1, 1]]).to_parquet(tmp_path / "mixed.parquet")
    task = custom_task(tmp_path / "mixed.parquet", tmp_path / "mixed.parquet")
    with pytest.raises(InputError, match="row 1: tag -1 is not from 0 to 2; correct the row"):
        load_task(task, seed=0)
    # Names in one file, class ids in the other.
    named = write_rows(tmp_path / "named.jsonl", [{"tokens": ["a", "b"], "ner_tags": ["O", "B-X"]}])
    table(tags).to_parquet(tmp_path / "ids.parquet")
    task = custom_task(named, tmp_path / "ids.parquet")
    assert task.labels == ("O", "B-X", "I-X")
    assert load_task(task, seed=0)["validation"]["tags"] == [[0, 1, 2], [1, 0, 0]]


def byte_level(pre_tokenizer=None):
    """A tokenizer like RoBERTa's, with one token for " cat" after a space."""
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "ca", "cat", "Ġcat"]
    ids = {token: i for i, token in enumerate(vocabulary)}
    backend = Tokenizer(models.BPE(ids, [("c", "a"), ("ca", "t"), ("Ġ", "cat")], unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizer or pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    names = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


@pytest.mark.parametrize("kind", ["plain", "sequence", "class"])
def test_words_have_the_same_tokens_as_in_a_text(kind, tmp_path):
    """Before and after saving; byte-level tokenizers have other tokens without the space."""
    tokenizer = byte_level()
    if kind == "sequence":
        step = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer = byte_level(pre_tokenizers.Sequence([step, pre_tokenizers.Digits()]))
    if kind == "class":  # it marks pairs, and is built anew when it is loaded
        backend = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
        names = {name: tokenizer.special_tokens_map[name] for name in tokenizer.special_tokens_map}
        merges = [tuple(merge) for merge in backend["merges"]]
        tokenizer = DebertaTokenizer(vocab=backend["vocab"], merges=merges, **names)
    problem = find_problem(TASKS["propbank_srl"])
    tokenizer = problem.prepare_tokenizer(tokenizer, for_backbone=False)
    tokenizer.save_pretrained(tmp_path)
    text = tokenizer("cat cat")["input_ids"]
    cat = tokenizer.convert_tokens_to_ids("Ġcat")
    assert text.count(cat) == 2
    for found in (tokenizer, AutoTokenizer.from_pretrained(tmp_path)):
        assert encode_tags(Dataset.from_dict({"tokens": [["cat", "cat"]], "tags": [[0, 1]]}), found)["input_ids"] == [
            text
        ]
        assert found("cat cat")["input_ids"] == text


def test_tokenizers_that_divide_texts_before_bytes_are_refused():
    steps = [pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer = byte_level(pre_tokenizers.Sequence(steps))
    with pytest.raises(InputError, match="has other tokens for a word by itself .*; choose another one for tagging"):
        find_problem(TASKS["propbank_srl"]).prepare_tokenizer(tokenizer, for_backbone=True)


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
        "labels.jsonl --probabilities": "'tags', which has none",
        "labels.jsonl --text_column_name words": "has no column 'words'; it has tokens, tags",
    }
    for words, message in mistakes.items():
        assert message in refused(capsys, "predict", tmp_path / "out", data["test_file"], *words.split())
    sentence = refused(capsys, "encode", tmp_path / "out", data["test_file"], tmp_path / "vectors.npy")
    assert "tags words; use it with hf-blosan predict and evaluate" in sentence
    with pytest.raises(InputError, match="BiRNNForTokenClassification has no sentence vectors to explain"):
        explain(tag.model, tag.tokenizer, "the red cat")
    texts = write_rows(tmp_path / "texts.jsonl", question_rows(4))
    with pytest.raises(
        InputError, match="is of class BiRNNForTokenClassification, texts.jsonl needs BiRNNForSequence"
    ):
        evaluate(EvaluateArguments(str(tmp_path / "out"), test_file=str(texts), cpu=True))
    roles = write_rows(tmp_path / "roles.jsonl", role_rows(4))
    with pytest.raises(InputError, match="predicts O, B-ANIMAL|'B-ARG0' is not one of the tags"):
        evaluate(EvaluateArguments(str(tmp_path / "out"), test_file=str(roles), cpu=True))
    saved = {"encoder": None, "model_name_or_path": str(tmp_path / "out"), "ignore_mismatched_sizes": True}
    questions = write_splits(tmp_path / "questions", question_rows)
    with pytest.raises(InputError, match='pooling="none" gives no sentence vector.*; change its configuration by'):
        train(options(tmp_path / "other", questions, **saved, config_overrides=None))


ROLES = {
    "encoder": "birnn",
    "config_overrides": "hidden_size=24,embedding_size=8,predicate_size=4,dropout=0.0",
    "learning_rate": 0.03,
    "num_train_epochs": 3,
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


def test_encoded_rows_can_be_told_apart_for_resuming():
    """The hash is that of the rows, whichever process encodes them."""
    tokenizer = subword_tokenizer()
    first, again, cut = encoded_rows(tokenizer), encoded_rows(tokenizer), encoded_rows(tokenizer, max_length=5)
    assert fingerprint(first) == fingerprint(again) != fingerprint(cut)


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
    from hf_blosan.training.problems import find_problem

    problem = find_problem(TASKS["propbank_srl"])
    sizes = []
    for encoder in ("mtsa", "birnn", "multihead"):
        recipe = problem.task.recipe(encoder)
        fields = {"hidden_size": recipe.hidden_size, "vocab_size": 10} | dict(recipe.config) | problem.config_fields()
        with torch.device("meta"):
            sizes.append(make_model(problem, encoder, fields).num_parameters())
    assert max(sizes) < 1.01 * min(sizes)
