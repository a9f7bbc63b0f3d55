"""Models whose output is not finite: every command says so, and names the row, in place of a class."""

import copy

import pytest
import torch
import transformers
from cli_models import refused, save
from small_data import pair_rows, question_rows, write_rows
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

import hf_blosan
from hf_blosan.hub.configs import read_config
from hf_blosan.hub.finite import NotFinite, refuse_not_finite
from hf_blosan.tasks.kinds import kind_of
from hf_blosan.tasks.translation import make_encoder_decoder
from hf_blosan.text.tokenization import build_subword_tokenizer

LABELS = {"id2label": {0: "B-X", 1: "O"}, "label2id": {"B-X": 0, "O": 1}}
ROWS = question_rows(50)
WORD = "horse"
FIRST = next(number for number, row in enumerate(ROWS, 1) if WORD in row["text"])


def spoil(source: str, folder, word: str | None, value: float = float("nan"), dtype=torch.float32) -> str:
    """A copy of a saved model with that value in the vector of a word, or in all its last biases."""
    names = AutoConfig.from_pretrained(source).architectures[0]
    model, tokenizer = getattr(hf_blosan, names).from_pretrained(source), AutoTokenizer.from_pretrained(source)
    with torch.no_grad():
        if word:
            model.get_input_embeddings().weight[tokenizer(word)["input_ids"][0]] = value
        else:
            model.classifier.output.bias.fill_(value)
    model.to(dtype).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("size", ["1", "8", "64"])
@pytest.mark.parametrize("command", ["predict", "encode", "evaluate"])
def test_the_first_row_is_named(command, size, classifier, tmp_path, capsys):
    model = spoil(classifier, tmp_path / "model", WORD)
    rows, output = write_rows(tmp_path / "rows.jsonl", ROWS), tmp_path / "o.jsonl"
    if command == "evaluate":
        words = ["--test_file", rows, "--cpu", "--per_device_eval_batch_size", size, "--predictions_file", output]
    else:
        words = [rows, output, "--batch_size", size]
    message = refused(capsys, command, model, *words)
    numbers = {number for number, row in enumerate(ROWS, 1) if WORD in row["text"]}
    where, _, reason = message.removeprefix("error: ").partition(": ")
    name, _, number = where.partition(", row ")
    assert name == ("test" if command == "evaluate" else str(rows)) and int(number) in numbers
    assert reason == (
        f"the output of the model at {model!r} is nan; give a model whose weights are not damaged and whose training "
        "did not diverge"
    )
    assert not output.exists() and not list(tmp_path.glob(".*"))


def test_rows_are_numbered_as_in_the_file(classifier, tmp_path, capsys):
    """Blank lines count, and so do rows without a gold label."""
    model = spoil(classifier, tmp_path / "model", WORD)
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\nthe cat,animal\n\nthe old cat,-1\n\nthe horse,animal\nred,colour\n")
    assert ", row 5: the output" in refused(capsys, "predict", model, rows, tmp_path / "o.csv")
    assert "error: test, row 5: the output" in refused(capsys, "evaluate", model, "--test_file", rows, "--cpu")


def test_both_texts_of_a_pair(scorer, tmp_path, capsys):
    model = spoil(scorer, tmp_path / "model", WORD)
    rows = pair_rows(40)
    first = next(number for number, row in enumerate(rows, 1) if WORD in row["sentence2"] + row["sentence1"])
    path, columns = write_rows(tmp_path / "r.jsonl", rows), ["--text_column_name", "sentence1"]
    columns += ["--text_pair_column_name", "sentence2", "--batch_size", "1"]
    for command in ("predict", "encode"):
        message = refused(capsys, command, model, path, tmp_path / "o.jsonl", *columns)
        assert int(message.partition(", row ")[2].partition(":")[0]) >= first
        assert WORD in str(rows[int(message.partition(", row ")[2].partition(":")[0]) - 1])


@pytest.mark.parametrize(
    ("value", "dtype", "said"),
    [
        (float("inf"), torch.float32, "is inf; give a model whose weights are not damaged and whose training did not"),
        (float("-inf"), torch.float16, "did not diverge, saved in float32, because float16 overflows"),
    ],
)
def test_infinity(value, dtype, said, classifier, tmp_path, capsys):
    model = spoil(classifier, tmp_path / "model", None, value, dtype)
    rows = write_rows(tmp_path / "rows.jsonl", ROWS)
    assert said in refused(capsys, "predict", model, rows, tmp_path / "o.csv")


def test_taggers_selectors_and_translators(tmp_path, capsys):
    tagged = [{"tokens": ["the", "cat"], "text": "the cat", "tags": ["O", "B-X"]}]
    tagger = save(tmp_path / "t", tagged, hf_blosan.DiSANForTokenClassification, pooling="none", **LABELS)
    passages = [{"question": "the cat", "sentences": ["the dog", "a cat"], "text": "the dog a cat", "label": 1}]
    selector = save(tmp_path / "s", passages, hf_blosan.DiSANForSentenceSelection, num_labels=1, num_sentences=2)
    tokenizer = build_subword_tokenizer(["the cat", "a dog"], vocab_size=300)
    config = AutoConfig.for_model("disan", vocab_size=len(tokenizer), hidden_size=8, embedding_size=6)
    make_encoder_decoder(config, tokenizer).save_pretrained(tmp_path / "e")
    tokenizer.save_pretrained(tmp_path / "e")
    for name, rows in ((tagger, tagged), (selector, passages), (str(tmp_path / "e"), [{"text": "the cat"}])):
        model = getattr(transformers, kind_of(read_config(name)).auto_class).from_pretrained(name)
        with torch.no_grad():
            for weight in model.parameters():
                weight.fill_(float("nan"))
        model.save_pretrained(name)
        path = write_rows(tmp_path / "rows.jsonl", rows)
        assert ", row 1: the output of the model at" in refused(capsys, "predict", name, path, tmp_path / "o.jsonl")
        if "tags" in rows[0] or "label" in rows[0]:
            assert "error: test, row 1: the output" in refused(capsys, "evaluate", name, "--test_file", path, "--cpu")


def test_serve(classifier, tmp_path, capsys):
    """A model that computes nothing finite is not served."""
    pytest.importorskip("uvicorn", reason="needs the extra hf_blosan[serve]")
    model = spoil(classifier, tmp_path / "model", None)
    message = refused(capsys, "serve", model, "--port", "0", "--cpu")
    assert message.startswith(f"error: the output of the model at {model!r} is nan; give a model")


def test_export(classifier, tmp_path, capsys):
    pytest.importorskip("onnxruntime", reason="needs the extra hf_blosan[export]")
    model = spoil(classifier, tmp_path / "model", WORD)
    message = refused(capsys, "export", model, tmp_path / "m.onnx")
    assert "the weight " in message and f"of the model at {model!r} is nan; give a model" in message
    assert not (tmp_path / "m.onnx").exists()


def test_finite_outputs_are_those_of_before(classifier):
    model, tokenizer = AutoModel.from_pretrained(classifier), AutoTokenizer.from_pretrained(classifier)
    checked = copy.deepcopy(model)
    refuse_not_finite(checked)
    batch = tokenizer([row["text"] for row in ROWS], padding=True, return_tensors="pt")
    assert torch.equal(checked(**batch).pooler_output, model(**batch).pooler_output)
    head = AutoModelForSequenceClassification.from_pretrained(classifier)
    refuse_not_finite(head)
    head.classifier.output.weight.data[1] = float("nan")
    with pytest.raises(NotFinite) as caught:
        head(**batch)
    assert (caught.value.row, caught.value.rows, caught.value.of(25)) == (0, 50, 0)
