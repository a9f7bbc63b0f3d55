"""The vocabulary, the word vectors and the tokenizer of a run, on generated data."""

import pytest
import torch
from small_data import (
    options,
    prepared,
    question_rows,
    squad_rows,
    write_rows,
    write_vectors,
)
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from hf_blosan.errors import InputError
from hf_blosan.training import train


def test_word_vectors_start_the_embedding(tmp_path, questions):
    path = write_vectors(tmp_path / "vectors.txt", ["cat", "unseen", "red"])
    cat = torch.tensor([float(number) for number in path.read_text().splitlines()[0].split()[1:]])
    _, preparation = prepared(options(tmp_path, questions, word_vectors=str(path)))
    config, tokenizer = preparation.model.config, preparation.tokenizer
    assert (config.num_fixed_embeddings, config.embedding_trainable) == (1, "train_words")
    assert tokenizer.convert_tokens_to_ids("unseen") == config.vocab_size - 1
    vectors = preparation.model.model.embeddings(torch.tensor([[tokenizer.convert_tokens_to_ids("cat"), 1]]))
    torch.testing.assert_close(vectors[0, 0], cat)
    assert not vectors[0, 1].any()
    coverage = preparation.word_vectors["coverage"]
    assert preparation.word_vectors["file"] == "vectors.txt" and coverage["with_vector"] == 2

    _, preparation = prepared(options(tmp_path, questions, word_vectors=str(path), vocabulary="train"))
    assert preparation.model.config.num_fixed_embeddings == 0
    assert "unseen" not in preparation.tokenizer.get_vocab()

    arguments = options(tmp_path, questions, word_vectors=str(path), config_overrides="embedding_size=7")
    with pytest.raises(InputError, match="vectors.txt, line 1"):
        prepared(arguments)


def test_vectors_of_no_training_word_are_warned_of(tmp_path, questions, caplog):
    for words, warned in ((["katze", "rot"], True), (["cat"], False)):
        caplog.clear()
        prepared(options(tmp_path, questions, word_vectors=str(write_vectors(tmp_path / "vectors.txt", words))))
        messages = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        assert any("vectors.txt: 0 of" in message for message in messages) == warned


def test_words_without_vectors_are_trained(tmp_path, questions):
    """The tokenizer of a model with fixed vectors, without its vectors."""
    path = write_vectors(tmp_path / "vectors.txt", ["cat", "unseen"])
    _, preparation = prepared(options(tmp_path, questions, word_vectors=str(path)))
    assert preparation.model.config.num_fixed_embeddings == 1
    preparation.tokenizer.save_pretrained(tmp_path / "words")
    changes = {"tokenizer_name": str(tmp_path / "words"), "embedding_trainable": "train_words"}
    _, preparation = prepared(options(tmp_path, questions, **changes))
    config, table = preparation.model.config, preparation.model.model.embeddings.word_embeddings.weight
    assert config.num_fixed_embeddings == 0 and len(table) == config.vocab_size and table[-1].any()


def test_many_unknown_tokens_are_warned_of(tmp_path, questions, caplog):
    other = [row | {"text": f"{row['text']} {'uusi sana ' * 20}"} for row in question_rows(30)]
    passages = squad_rows(20, form="listed")
    others = [row | {"sentences": [s.replace(" ", "x ") for s in row["sentences"]]} for row in passages]
    cases = {"others": (passages, others), "known": (passages, passages), "other": (question_rows(30), other)}
    for name, splits in cases.items():
        files = zip(("train_file", "validation_file"), splits, strict=True)
        files = {file: str(write_rows(tmp_path / f"{file}.jsonl", rows)) for file, rows in files}
        caplog.clear()
        prepared(options(tmp_path, files))
        warned = "% of the tokens of the validation rows are unknown to the tokenizer" in caplog.text
        assert warned == (name != "known"), name


def test_capitals_are_kept_on_request(tmp_path, caplog):
    rows = [{"text": f"{word} it {number}", "label": word} for number in range(8) for word in ("Polish", "polish")]
    files = {"train_file": str(write_rows(tmp_path / "train.jsonl", rows))}
    files["word_vectors"] = str(write_vectors(tmp_path / "vectors.txt", ["Polish", "it", "Other"]))
    files["validation_fraction"] = 0.25
    words = prepared(options(tmp_path, files))[1].tokenizer.get_vocab()
    assert "polish" in words and not {"Polish", "Other"} & words.keys()
    assert "2 words have capitals and are left out, as texts are read in lower case; --no_lower_case" in caplog.text
    caplog.clear()
    words = prepared(options(tmp_path, files, lower_case=False))[1].tokenizer.get_vocab()
    assert {"polish", "Polish", "Other"} <= words.keys() and "words have capitals" not in caplog.text
    with pytest.raises(InputError, match="--no_lower_case is for a vocabulary built from the training data"):
        options(tmp_path, {**files, "word_vectors": None}, lower_case=False, tokenizer_name="somewhere")


@pytest.mark.parametrize("recipe", ["modern", "paper"])
def test_the_modern_recipe_scales_word_vectors_that_start_at_random(tmp_path, questions, recipe):
    path = write_vectors(tmp_path / "vectors.txt", ["cat", "unseen", "red"])
    random, from_file = (
        prepared(options(tmp_path, questions, recipe=recipe, word_vectors=vectors))[1].model.config
        for vectors in (None, str(path))
    )
    assert (random.embedding_scale, from_file.embedding_scale) == (10.0 if recipe == "modern" else 1.0, 1.0)


@pytest.mark.parametrize("given", [{"embedding_trainable": "none"}, {"config_overrides": "embedding_trainable=none"}])
def test_word_vectors_may_be_fixed(tmp_path, questions, given):
    path = write_vectors(tmp_path / "vectors.txt", ["cat", "unseen"])
    arguments, preparation = prepared(options(tmp_path, questions, word_vectors=str(path), **given))
    config = preparation.model.config
    assert (config.num_fixed_embeddings, config.embedding_trainable) == (0, "none")
    assert arguments.embedding_trainable == "none"


def test_which_word_vectors_are_trained_is_checked(tmp_path, questions):
    with pytest.raises(InputError, match="embedding_trainable is 'some'; choose from all, train_words, none"):
        prepared(options(tmp_path, questions, config_overrides="embedding_trainable=some"))


def test_word_vectors_give_the_width(tmp_path, questions):
    path = write_vectors(tmp_path / "vectors.txt", ["cat"], width=5)
    arguments = options(tmp_path, questions, word_vectors=str(path), config_overrides="hidden_size=8")
    assert prepared(arguments)[1].model.config.embedding_size == 5


@pytest.mark.parametrize("marks_pairs", [True, False])
def test_pretrained_tokenizer(tmp_path, pairs, marks_pairs):
    """Subword tokenizers with their own special tokens, with and without type ids for pairs."""
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "c": 4, "##a": 5, "##t": 6, "red": 7, "one": 8}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    second = 1 if marks_pairs else 0
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair=f"[CLS]:0 $A:0 [SEP]:0 $B:{second} [SEP]:{second}",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=backend, **special).save_pretrained(tmp_path / "tokenizer")
    run = train(options(tmp_path / "out", pairs, tokenizer_name=str(tmp_path / "tokenizer"), max_train_steps=2))
    assert run["tokenizer"] == "tokenizer" and run["config"]["embedding_trainable"] == "all"
    saved = AutoTokenizer.from_pretrained(tmp_path / "out")
    encoded = saved("cat red", "one")
    assert saved.convert_ids_to_tokens(encoded["input_ids"]) == "[CLS] c ##a ##t red [SEP] one [SEP]".split()
    assert encoded["token_type_ids"] == [0] * 6 + [1] * 2


def test_tokenizer_without_padding_is_refused(tmp_path, pairs):
    backend = Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(tmp_path / "tokenizer")
    with pytest.raises(InputError, match="no padding token"):
        prepared(options(tmp_path, pairs, tokenizer_name=str(tmp_path / "tokenizer")))
