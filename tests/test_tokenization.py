"""Word-level tokenizers and word vectors."""

from __future__ import annotations

import gzip
from dataclasses import asdict

import numpy as np
import pytest
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoTokenizer,
    BertConfig,
    DebertaV2Config,
    EncoderDecoderConfig,
    MarianConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaTokenizer,
    T5Config,
    XLNetConfig,
)

from hf_blosan import DiSANConfig
from hf_blosan.data import encode_dataset
from hf_blosan.errors import InputError
from hf_blosan.text.tokenization import (
    build_tokenizer,
    count_words,
    limit_length,
    load_tokenizer,
    num_fixed_words,
    num_training_words,
    prepare_pretrained_tokenizer,
)
from hf_blosan.text.word_vectors import embedding_matrix, read_word_vectors

TEXTS = ["Who wrote Hamlet ?", "The dog doesn't bite.", "the cat"]


def split(text: str, **options) -> list[str]:
    """Tokens of a text from a tokenizer built from it, so that no word is unknown."""
    tokenizer = build_tokenizer([text], **options)
    return tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])


@pytest.mark.parametrize(
    ("raw", "treebank"),
    [
        ("Who wrote Hamlet?", "Who wrote Hamlet ?"),
        ("It doesn't work, I can't wait.", "It does n't work , I ca n't wait ."),
        ("It doesn't work.", "it does n 't work ."),
        ("The dog's bone isn’t here; they're gone...", "The dog 's bone is n't here ; they 're gone ..."),
        ('She said "no" (twice)!', "She said `` no '' ( twice ) !"),
        ("It costs $5.50, or 1,000 in the U.S.", "It costs $ 5.50 , or 1,000 in the U.S."),
        ("the boys' toys -- 'old' ones", "the boys ' toys -- ' old ' ones"),
    ],
)
def test_raw_and_treebank_text_give_the_same_tokens(raw, treebank):
    assert split(raw) == split(treebank)


def test_tokens_are_those_that_word_vectors_have():
    assert split("The t-shirt isn't Mary's, we'd say '70s and/or O'Neill...") == (
        "the t-shirt is n't mary 's , we 'd say '70s and/or o'neill ...".split()
    )


def test_words_that_are_separated_by_spaces_stay_words(tmp_path):
    texts = ["我 喜欢 这个 电影 ， 很 好看", "他 说 don't", "ฉัน ชอบ หนัง เรื่อง นี้", "well-known"]
    tokenizer = build_tokenizer(texts)
    assert tokenizer.tokenize(texts[0]) == texts[0].split() and tokenizer.tokenize(texts[2]) == texts[2].split()
    assert tokenizer.tokenize(texts[1])[2:] == ["do", "n't"] and tokenizer.tokenize("well-known") == ["well-known"]
    vectors = read_word_vectors(write(tmp_path / "v.txt", "喜欢 1 2\n电影 3 4\ncafe\u0301 5 6\n"))
    assert vectors.words == ["喜欢", "电影", "café"]
    assert embedding_matrix(tokenizer, vectors, seed=0)[1].with_vector == 2
    apart = ["我喜欢这个电影，很好看。 他说", "ฉันชอบหนังเรื่องนี้ สวัสดีครับทุกคน"]  # spaces between sentences alone
    assert "我" in build_tokenizer(apart).get_vocab()


def test_composed_and_decomposed_characters_are_the_same():
    tokenizer = build_tokenizer(["un café"])
    assert tokenizer("un cafe\u0301")["input_ids"] == tokenizer("un café")["input_ids"]
    assert tokenizer.unk_token_id not in tokenizer("un cafe\u0301")["input_ids"]


def test_characters_are_words_where_no_spaces_are_written():
    assert split("我喜欢 BERT模型，don't 100个! 東京タワー ที่นี่ 안녕하세요 세계") == (
        "我 喜 欢 bert 模 型 ， do n't 100 个 ! 東 京 タ ワ ー ที่ นี่ 안녕하세요 세계".split()
    )


def test_compounds_are_split_with_the_separators_kept_and_no_empty_token():
    assert split("a well-made and/or 90~ °C -thing-", split_compounds=True) == (
        "a well - made and / or 90 ~ ° c - thing -".split()
    )


def test_pretokenized_text_is_split_on_blanks_only():
    assert split("Don't split: this  (ever)", pretokenized=True, lower_case=False) == [
        "Don't",
        "split:",
        "this",
        "(ever)",
    ]


def test_vocabulary_order_and_extra_words():
    tokenizer = build_tokenizer(["b b a", "a c B"], extra_words=["zebra", "a", "apple", "zebra"])
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == [
        "[PAD]",
        "[UNK]",
        "b",
        "a",
        "c",
        "zebra",
        "apple",
    ]
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id) == (0, 1)
    assert (num_training_words(tokenizer), num_fixed_words(tokenizer)) == (3, 2)
    assert tokenizer("never a apple")["input_ids"] == [1, 3, 6]


def test_vocabulary_limits():
    texts = ["a a a b b c"]
    assert num_training_words(build_tokenizer(texts, max_vocab_size=2)) == 2
    assert num_training_words(build_tokenizer(texts, min_frequency=2)) == 2


@pytest.mark.parametrize("options", [{}, {"split_compounds": True}, {"pretokenized": True}, {"lower_case": False}])
def test_round_trip_through_auto_tokenizer(tmp_path, options):
    tokenizer = build_tokenizer(TEXTS, extra_words=["zebra"], model_max_length=7, **options)
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    pairs = (["Who's the well-known dog?", ""], ["the “cat” can't", "zebra"])
    assert loaded(*pairs).data == tokenizer(*pairs).data
    assert loaded.get_vocab() == tokenizer.get_vocab()
    assert loaded.model_max_length == 7
    assert num_fixed_words(loaded) == 1


def test_pairs_carry_type_ids_and_empty_texts_no_token():
    encoded = build_tokenizer(TEXTS)("the dog", "the cat")
    assert encoded["token_type_ids"] == [0, 0, 1, 1]
    assert encoded["attention_mask"] == [1, 1, 1, 1]
    assert build_tokenizer(TEXTS)("")["input_ids"] == []


@pytest.mark.parametrize(("texts", "options"), [(["", "  "], {}), (TEXTS, {"min_frequency": 0})])
def test_unusable_arguments(texts, options):
    with pytest.raises(InputError, match="no words|min_frequency is 0"):
        build_tokenizer(texts, **options)


def zero_type_tokenizer(pad_token: str | None = "<pad>") -> PreTrainedTokenizerFast:
    """A tokenizer like RoBERTa's: special tokens around and between sentences, all type ids 0."""
    words = ["<s>", "<pad>", "</s>", "a", "b", "c"]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<s>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, cls_token="<s>", sep_token="</s>", pad_token=pad_token, bos_token="<s>"
    )


def test_pretrained_tokenizer_without_pair_types_learns_them(tmp_path):
    ids = zero_type_tokenizer()("a b", "c")["input_ids"]
    prepare_pretrained_tokenizer(zero_type_tokenizer()).save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    encoded = loaded("a b", "c")
    assert encoded["input_ids"] == ids == [0, 3, 4, 2, 2, 5, 2]
    assert encoded["token_type_ids"] == [0, 0, 0, 0, 0, 1, 1]
    assert loaded("a b")["input_ids"] == [0, 3, 4, 2]


def test_a_class_with_a_post_processor_of_its_own_keeps_the_pair_types(tmp_path):
    """RoBERTa's class puts its own back when it is loaded."""
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "b", "Ġ"]
    roberta = RobertaTokenizer(vocab={word: i for i, word in enumerate(vocabulary)}, merges=[], model_max_length=64)
    prepare_pretrained_tokenizer(roberta).save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    encoded = loaded("a", "b")
    assert encoded["input_ids"] == roberta("a", "b")["input_ids"] == [0, 5, 2, 2, 6, 2]
    assert encoded["token_type_ids"] == [0, 0, 0, 0, 1, 1]
    assert loaded.model_max_length == 64 and loaded.pad_token == "<pad>" and loaded.mask_token == "<mask>"


def test_pretrained_tokenizer_without_padding_is_refused():
    with pytest.raises(InputError, match="no padding token"):
        prepare_pretrained_tokenizer(zero_type_tokenizer(pad_token=None))


def test_a_folder_without_a_tokenizer_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(
        InputError, match="^the folder .* has no tokenizer; save it there with tokenizer.save_pretrained$"
    ):
        load_tokenizer(str(tmp_path))


def write(path, text: str):
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.txt.gz"])
@pytest.mark.parametrize("header", ["", "3 2\n"])
def test_read_word_vectors(tmp_path, name, header):
    path = write(tmp_path / name, header + "the 1 -2.5\n\u00a0 0.25 1e-3\ncat 3 4 \n")
    vectors = read_word_vectors(path)
    assert vectors.words == ["the", "\u00a0", "cat"]
    assert vectors.matrix.dtype == np.float32
    np.testing.assert_array_equal(vectors.matrix, np.float32([[1, -2.5], [0.25, 1e-3], [3, 4]]))
    assert read_word_vectors(path, words={"cat", "dog"}, width=2).words == ["cat"]


def test_words_with_blanks_are_kept_apart_from_broken_lines(tmp_path):
    assert read_word_vectors(write(tmp_path / "v.txt", "a 1 2\n. . . 3 4\n")).words == ["a", ". . ."]


@pytest.mark.parametrize("header", ["", "2 3\n"])
def test_a_byte_order_mark_belongs_to_no_word(tmp_path, header):
    vectors = read_word_vectors(write(tmp_path / "v.txt", f"\ufeff{header}the 1 2 3\ncat 4 5 6\n"))
    assert vectors.words == ["the", "cat"] and vectors.width == 3


def test_first_of_duplicate_words_wins_and_is_reported(tmp_path, caplog):
    vectors = read_word_vectors(write(tmp_path / "v.txt", "a 1 2\na 3 4\nb 5 6\n"))
    assert vectors.matrix.tolist() == [[1, 2], [5, 6]]
    assert "1 duplicate words" in caplog.text


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a 1 2\nb 1 2\nc 1\n", {}, "line 3: 1 numbers where 2 are expected"),
        ("a 1 2\nb 1 2 3\n", {}, "line 2: 3 numbers where 2 are expected"),
        ("a 1 2\nb\n", {}, "line 2: 0 numbers"),
        ("a 1 2\nb 1 x\n", {}, "line 2: a number is malformed"),
        ("a 1 nan\n", {}, "line 1: a number is malformed or not finite"),
        ("a 1 2\n", {"width": 3}, "line 1: 2 numbers where 3 are expected"),
        ("a 1 2\nb 1\n", {"words": {"a"}}, "line 2: 1 numbers"),
        ("", {}, "is empty"),
    ],
)
def test_broken_vector_files_name_the_line(tmp_path, text, options, message):
    path = write(tmp_path / "v.txt", text)
    with pytest.raises(InputError, match=message) as caught:
        read_word_vectors(path, **options)
    assert str(path) in str(caught.value)


def test_numbers_may_be_separated_by_tabs(tmp_path):
    vectors = read_word_vectors(write(tmp_path / "v.txt", "2\t2\na\t1\t2\t\nb\t3\t4\n"))
    assert vectors.words == ["a", "b"] and vectors.matrix.tolist() == [[1, 2], [3, 4]]


def test_missing_and_cut_off_vector_files(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_word_vectors(tmp_path / "nothing.txt")
    whole = gzip.compress(b"a 1 2\n" * 1000)
    (tmp_path / "v.txt.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="is a damaged gzip file"):
        read_word_vectors(tmp_path / "v.txt.gz")
    compressed = whole[:15] + b"\xff" * 9
    (tmp_path / "v.txt.gz").write_bytes(compressed)
    with pytest.raises(InputError, match="is a damaged gzip file .*; download it again"):
        read_word_vectors(tmp_path / "v.txt.gz")
    (tmp_path / "second.txt").write_bytes(b"a 1 2\n. \xff 1 2\n")
    with pytest.raises(InputError, match="line 2: the word is not UTF-8"):
        read_word_vectors(tmp_path / "second.txt")
    (tmp_path / "latin.txt").write_bytes(b"a 1 2\n\xe9t\xe9 1 2\n")
    with pytest.raises(InputError, match="line 2: the word is not UTF-8"):
        read_word_vectors(tmp_path / "latin.txt")


def test_embedding_matrix_and_coverage(tmp_path):
    vectors = read_word_vectors(write(tmp_path / "v.txt", "the 1 2\n[UNK] 7 7\ncat 3 4\nzebra 5 6\n"))
    texts = ["the the the dog", "a cat"]
    tokenizer = build_tokenizer(texts, extra_words=vectors.words[2:])
    matrix, report = embedding_matrix(tokenizer, vectors, counts=count_words(tokenizer, texts), seed=3)
    words = tokenizer.get_vocab()
    assert matrix.shape == (len(tokenizer), 2)
    assert matrix.dtype == np.float32
    assert not matrix[:2].any()
    assert matrix[words["cat"]].tolist() == [3, 4]
    assert matrix[words["zebra"]].tolist() == [5, 6]
    drawn = matrix[[words["dog"], words["a"]]]
    assert (np.abs(drawn) <= 0.05).all() and drawn.all()
    again, _ = embedding_matrix(tokenizer, vectors, seed=3)
    other, _ = embedding_matrix(tokenizer, vectors, seed=4)
    np.testing.assert_array_equal(matrix, again)
    assert (matrix != other).any()
    assert asdict(report) == {
        "training_words": 4,
        "with_vector": 2,
        "without_vector": 2,
        "type_coverage": 0.5,
        "token_coverage": pytest.approx(4 / 6),
        "fixed_words": 1,
        "examples": ("a", "dog"),
    }
    assert str(report) == (
        "2 of 4 training words have a vector (50.00%, 66.67% of the running words); 2 start at random: a dog; "
        "1 other words of the file have fixed vectors"
    )


def test_embedding_matrix_refuses_subword_tokenizers(tmp_path):
    vectors = read_word_vectors(write(tmp_path / "v.txt", "a 1 2\n"))
    with pytest.raises(InputError, match="word-level tokenizer"):
        embedding_matrix(zero_type_tokenizer(), vectors, seed=0)


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        (BertConfig(max_position_embeddings=30), 30),
        (RobertaConfig(max_position_embeddings=34, pad_token_id=1), 32),
        (DebertaV2Config(max_position_embeddings=30, position_biased_input=False), 30),
        (T5Config(), 10**30),
        (XLNetConfig(), 10**30),
        (DiSANConfig(), 10**30),
        (DiSANConfig(backbone_config=BertConfig(max_position_embeddings=30)), 30),
        (EncoderDecoderConfig(encoder=DiSANConfig(), decoder=MarianConfig(max_position_embeddings=20)), 20),
    ],
    ids=["bert", "roberta", "deberta", "t5", "xlnet", "disan", "with a backbone", "translator"],
)
def test_a_tokenizer_without_a_limit_gets_that_of_the_positions(config, limit):
    tokenizer = zero_type_tokenizer()
    tokenizer.model_max_length = 10**30
    limit_length(tokenizer, config)
    assert tokenizer.model_max_length == limit
    encoded = encode_dataset(Dataset.from_dict({"sentence1": ["a " * 40], "label": [0]}), tokenizer)
    assert len(encoded["input_ids"][0]) == min(limit, 42)
    for given in (8, 35):  # relative positions may be more than in the transformer's training
        tokenizer.model_max_length = given
        limit_length(tokenizer, config)
        assert tokenizer.model_max_length == (given if config.model_type == "deberta-v2" else min(limit, given))


def test_offsets_of_negations():
    tokenizer = build_tokenizer(["it does n't work"])
    found = tokenizer("It doesn't does n 't", return_offsets_mapping=True, add_special_tokens=False)
    assert found["offset_mapping"] == [(0, 2), (3, 7), (7, 10), (11, 15), (16, 20)]


def test_word_counts_without_a_word_of_the_vocabulary(tmp_path):
    (tmp_path / "v.txt").write_text("a 1 2\n")
    vectors = read_word_vectors(tmp_path / "v.txt")
    _, report = embedding_matrix(build_tokenizer(["a b"]), vectors, counts={"zzz": 4}, seed=0)
    assert report.token_coverage is None
