"""Word-level tokenizers built from texts, and subword tokenizers prepared for sentence pairs.

A word-level tokenizer has [PAD] = 0 and [UNK] = 1, then the words of the training texts, most frequent first, then
extra words (in the papers the remaining words of the vector file, with fixed vectors). It is a plain
``PreTrainedTokenizerFast``: ``tokenizer.json`` is complete, and ``AutoTokenizer`` loads it without this package.
"""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.tokenization_utils_base import LARGE_INTEGER

from ..errors import InputError, loading
from ..registry import locate

PAD_TOKEN, UNK_TOKEN, BOS_TOKEN, EOS_TOKEN = "[PAD]", "[UNK]", "[BOS]", "[EOS]"
TOKENIZER_FILES = ("tokenizer*", "*vocab*", "*.model")
"""Files of which a folder with a tokenizer has at least one."""
MODEL_INPUT_NAMES = ["input_ids", "token_type_ids", "attention_mask"]
UNKNOWN_WORD = 9 * "\U0002a6a5"
"""A word outside every vocabulary: a rare Chinese character, repeated."""

_POSITIONS_AFTER_PADDING = (
    *("camembert", "data2vec-text", "longformer", "mpnet", "roberta", "roberta-prelayernorm"),
    *("xlm-roberta", "xlm-roberta-xl", "xmod"),
)
"""Transformers that count positions from ``pad_token_id + 1``."""

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
"""Scripts without spaces between words, whose characters are tokens: a sentence would be one unknown word."""
_WORD = rf"[\p{{L}}\p{{M}}\p{{N}}_&&[^{_UNSPACED}]]"
_ANY_WORD = r"[\p{L}\p{M}\p{N}_]"
_SEGMENTED = 1 / 8
"""Spaces between characters of these scripts, for each character, above which words are separated by spaces."""
_TEXTS_TO_LOOK_AT = 1000


def _any_case(text: str) -> str:
    """A case-insensitive pattern. The flag (?i) would make the whole expression ten times slower."""
    return "".join(f"[{letter}{letter.upper()}]" if letter.isalpha() else letter for letter in text)


_CLITIC = rf"'(?:{'|'.join(map(_any_case, ('s', 're', 've', 'll', 'd', 'm', 'em')))})(?!{_WORD})"
_NOT = _any_case("n't")
_CHARACTER = rf"[{_UNSPACED}]\p{{M}}*|"
_TOKEN = _CHARACTER + "|".join(
    (
        rf"{_WORD}+?(?={_NOT}(?!{_WORD}))",  # "does" of "doesn't"
        rf"{_NOT}(?!{_WORD})",
        _CLITIC,
        rf"'\d0[sS](?!{_WORD})",  # "'70s"
        rf"(?<!{_WORD})(?:\p{{L}}\.){{2,}}",  # "u.s."
        r"\d+(?:[.,:/]\d+)+",
        rf"{_WORD}+(?:(?:[-/&.@]|(?!{_CLITIC})'){_WORD}+)*",  # words with inner hyphens, slashes, apostrophes
        r"\.{2,}|-{2,}",
        r"\S",
    )
)
# Spellings that differ between raw and treebank-tokenised text; "does n 't" occurs in customer reviews.
_SAME_SPELLING = (
    (Regex("[‘’]"), "'"),
    (Regex("``|''|[“”]"), '"'),
    (Regex(r"(?<=n) (?='[tT](?![\p{L}\p{N}]))"), ""),
)
_COMPOUND_SEPARATOR = "[-−—–/~\"'“’”‘°]"


def build_tokenizer(
    texts: Iterable[str],
    *,
    lower_case: bool = True,
    split_compounds: bool = False,
    pretokenized: bool = False,
    min_frequency: int = 1,
    max_vocab_size: int | None = None,
    extra_words: Iterable[str] = (),
    model_max_length: int = 512,
) -> PreTrainedTokenizerFast:
    """Build a word-level tokenizer from training texts.

    Punctuation and English contractions are split off as in the Penn treebank ("does n't", "dog 's"), so that
    raw and treebank-tokenised text give the same tokens. Pairs have type ids 0 and 1.

    Args:
        texts: training sentences; for pairs both sentences.
        lower_case: whether to lower-case the text.
        split_compounds: also split at hyphen, dash, slash, tilde, quote, apostrophe and degree sign, as in the papers;
            each separator becomes a token. Unlike the released code, separators at the edge of a word produce no empty
            token.
        pretokenized: split at whitespace only, for texts that are already tokenized.
        min_frequency: less frequent words become [UNK].
        max_vocab_size: maximum number of training words, the most frequent; ``None`` keeps all.
        extra_words: further words, appended in this order; words already in the vocabulary are skipped.
        model_max_length: tokens per row when truncating.

    Raises:
        InputError: the texts contain no words, or an option is below 1.
    """
    for name, value in (("min_frequency", min_frequency), ("max_vocab_size", max_vocab_size)):
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}; use 1 or more")
    first = list(islice(texts := iter(texts), _TEXTS_TO_LOOK_AT))
    texts = chain(first, texts)
    tokenizer = Tokenizer(models.WordLevel(unk_token=UNK_TOKEN))
    tokenizer.normalizer = _normalizer(lower_case, pretokenized)
    tokenizer.pre_tokenizer = _pre_tokenizer(split_compounds, pretokenized, _are_segmented(first))
    special_tokens = [PAD_TOKEN, UNK_TOKEN]
    trainer = trainers.WordLevelTrainer(
        vocab_size=2**31 if max_vocab_size is None else max_vocab_size + len(special_tokens),
        min_frequency=min_frequency,
        special_tokens=special_tokens,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    vocabulary = sorted(tokenizer.get_vocab(), key=tokenizer.token_to_id)
    num_training = len(vocabulary) - len(special_tokens)
    if not num_training:
        raise InputError("the training texts contain no words; check the text columns")
    words = dict.fromkeys([*vocabulary, *extra_words])
    tokenizer.model = models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=UNK_TOKEN)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A:0", pair="$A:0 $B:1", special_tokens=[])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD_TOKEN,
        unk_token=UNK_TOKEN,
        model_input_names=MODEL_INPUT_NAMES,
        model_max_length=model_max_length,
        num_training_words=num_training,
    )


def build_subword_tokenizer(
    texts: Iterable[str], *, vocab_size: int = 8000, model_max_length: int = 512
) -> PreTrainedTokenizerFast:
    """Build a subword tokenizer for an encoder-decoder from the texts of both languages.

    Byte-pair encoding of the UTF-8 bytes, case included: no text has an unknown token, and decoding returns exactly
    the text. Ids 0 to 3 are [PAD], [UNK], [BOS] and [EOS]; every text ends with [EOS].

    Args:
        texts: training sentences in both languages.
        vocab_size: maximum number of entries.
        model_max_length: tokens per row when truncating.

    Raises:
        InputError: ``vocab_size`` has no room for the special tokens and the 256 bytes.
    """
    special_tokens, alphabet = [PAD_TOKEN, UNK_TOKEN, BOS_TOKEN, EOS_TOKEN], pre_tokenizers.ByteLevel.alphabet()
    if vocab_size < (least := len(special_tokens) + len(alphabet)):
        raise InputError(f"vocab_size is {vocab_size}; a tokenizer of bytes and pairs needs {least} or more")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=special_tokens,
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    end = (EOS_TOKEN, tokenizer.token_to_id(EOS_TOKEN))
    tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {EOS_TOKEN}", special_tokens=[end])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD_TOKEN,
        unk_token=UNK_TOKEN,
        bos_token=BOS_TOKEN,
        eos_token=EOS_TOKEN,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=model_max_length,
    )


def count_words(tokenizer: PreTrainedTokenizerFast, texts: Iterable[str]) -> Counter[str]:
    """Occurrences of each word in the texts, as split by the tokenizer; includes words outside its vocabulary."""
    backend = tokenizer.backend_tokenizer
    normalize = backend.normalizer.normalize_str if backend.normalizer else str
    split = backend.pre_tokenizer.pre_tokenize_str
    return Counter(word for text in texts for word, _ in split(normalize(text)))


def is_word_level(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a tokenizer comes from :func:`build_tokenizer`."""
    return "num_training_words" in tokenizer.init_kwargs


def num_training_words(tokenizer: PreTrainedTokenizerBase) -> int:
    """Number of words from a tokenizer's training texts, without [PAD] and [UNK]; stored with the tokenizer."""
    return tokenizer.init_kwargs.get("num_training_words", len(tokenizer) - 2)


def num_fixed_words(tokenizer: PreTrainedTokenizerBase) -> int:
    """Number of words from ``extra_words``, the last ids; the value of ``config.num_fixed_embeddings``."""
    return len(tokenizer) - 2 - num_training_words(tokenizer)


def load_tokenizer(
    name: str, config: PreTrainedConfig | None = None, *, trust_remote_code: bool = False
) -> PreTrainedTokenizerBase:
    """The saved tokenizer of a folder, an encoder that comes with the package, or a name on the Hub.

    ``config`` is that of its model or backbone, which limits ids and length. Raises InputError if the tokenizer is
    missing, cannot tokenize and pad, or has ids beyond the word table.
    """
    from transformers import AutoTokenizer  # here, because it takes a third of a second to import

    place = locate(name)
    if os.path.isdir(place) and not any(any(Path(place).glob(pattern)) for pattern in TOKENIZER_FILES):
        raise InputError(f"the folder {name!r} has no tokenizer; save it there with tokenizer.save_pretrained")
    with loading(name, "tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=trust_remote_code)
        length, names = tokenizer.model_max_length, tokenizer.model_input_names
        if not isinstance(length, int | float) or not length >= 1 or length % 1:
            raise InputError(
                f"model_max_length in tokenizer_config.json of {name!r} is {length!r}; give a number of tokens, 1 or "
                "more, or remove it"
            )
        tokenizer.model_max_length = int(length)
        check_padding_token(tokenizer)
        if list(names)[:1] != MODEL_INPUT_NAMES[:1]:
            raise InputError(
                f"model_input_names in tokenizer_config.json of {name!r} are {names!r}; give "
                f"{', '.join(MODEL_INPUT_NAMES)}"
            )
        ids_of_unknown(tokenizer)  # fails if the vocabulary lacks a token for unknown words
    if config is not None:
        check_vocabulary(tokenizer, config.vocab_size, name)
        limit_length(tokenizer, config)
    return tokenizer


def check_padding_token(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise InputError if a tokenizer cannot pad."""
    if tokenizer.pad_token_id is None:
        name = tokenizer.name_or_path or type(tokenizer).__name__
        raise InputError(
            f"tokenizer {name} has no padding token; choose the tokenizer of an encoder such as BERT, or name a "
            "pad_token in its tokenizer_config.json"
        )


def ids_of_unknown(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The ids of an unknown word as a text and as a pair, including special tokens."""
    texts = (UNKNOWN_WORD,), (UNKNOWN_WORD, UNKNOWN_WORD)
    return [i for text in texts for i in tokenizer(*text, verbose=False)["input_ids"]]


def prepare_pretrained_tokenizer(
    tokenizer: PreTrainedTokenizerBase, *, for_backbone: bool = False
) -> PreTrainedTokenizerBase:
    """A fast pretrained tokenizer that marks sentence pairs by type ids 0 and 1.

    The models of this package distinguish the sentences of a pair by type ids. Tokenizers of the BERT family produce
    them; those of the RoBERTa and T5 families produce only zeros. For these the result is a plain
    ``PreTrainedTokenizerFast`` with the same special tokens in the same places and type ids 0 and 1; their own classes
    would restore their post-processor when loaded.

    Args:
        tokenizer: the pretrained tokenizer.
        for_backbone: each sentence of a pair is encoded separately by a backbone, so each gets the special
            tokens of a single text: ``[CLS] a [SEP] [CLS] b [SEP]`` instead of ``[CLS] a [SEP] b [SEP]``.

    Raises:
        InputError: the tokenizer has no padding token, or is not fast.
    """
    check_padding_token(tokenizer)
    if not tokenizer.is_fast:
        name = tokenizer.name_or_path or type(tokenizer).__name__
        raise InputError(f"tokenizer {name} is not fast; choose one with a tokenizer.json")
    tokenizer.model_input_names = MODEL_INPUT_NAMES
    tokenizer.init_kwargs["model_input_names"] = MODEL_INPUT_NAMES
    if for_backbone or 1 not in tokenizer("a", "b")["token_type_ids"]:
        backend = copy.deepcopy(tokenizer.backend_tokenizer)
        single, pair = _template(tokenizer, tokenizer("a")), _template(tokenizer, tokenizer("a", "b"))
        if for_backbone:
            pair = [*single, *(piece.replace("$A", "$B").removesuffix("0") + "1" for piece in single)]
        backend.post_processor = processors.TemplateProcessing(
            single=single,
            pair=pair,
            special_tokens=list(zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True)),
        )
        return PreTrainedTokenizerFast(
            tokenizer_object=backend,
            model_input_names=MODEL_INPUT_NAMES,
            model_max_length=tokenizer.model_max_length,
            # Many backbones count positions from the first column, so left padding would change their results.
            padding_side="right" if for_backbone else tokenizer.padding_side,
            truncation_side=tokenizer.truncation_side,
            **tokenizer.special_tokens_map,
        )
    return tokenizer


def put_spaces_before_words(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Make a byte-level tokenizer encode a single word as it does in a text, with a space before it. Raises InputError
    if it splits texts before the byte-level step, which would add a space before every part of a word.
    """
    whole = tokenizer.backend_tokenizer.pre_tokenizer
    steps = list(whole) if isinstance(whole, pre_tokenizers.Sequence) else [whole]
    for position, step in enumerate(steps):
        if isinstance(step, pre_tokenizers.ByteLevel) and not step.add_prefix_space:
            if position:
                name = tokenizer.name_or_path or type(tokenizer).__name__
                raise InputError(
                    f"tokenizer {name} splits a word alone differently than in a text; choose "
                    "another one for tagging, such as BERT's or RoBERTa's"
                )
            step.add_prefix_space = True
            tokenizer.add_prefix_space = tokenizer.init_kwargs["add_prefix_space"] = True  # saved for its own class
    return tokenizer


def vocabulary_size(tokenizer: PreTrainedTokenizerBase) -> int:
    """Rows that a word table needs: the largest id plus 1, which may be more than the number of tokens."""
    return 1 + max((*tokenizer.get_vocab().values(), *ids_of_unknown(tokenizer)), default=-1)


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, vocab_size: int, name: str) -> None:
    """Raise InputError if a tokenizer has ids beyond the word table of its model."""
    if (size := vocabulary_size(tokenizer)) > vocab_size:
        raise InputError(
            f"the tokenizer at {name!r} has ids up to {size - 1}, but vocab_size is "
            f"{vocab_size} in its model; give the tokenizer that the model was trained with"
        )


def check_type_ids(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig, name: str) -> None:
    """Raise InputError if the tokenizer of a model of pairs gives no token type ids."""
    if getattr(config, "num_sentences", 1) == 2 and "token_type_ids" not in tokenizer.model_input_names:
        raise InputError(
            f"model_input_names in tokenizer_config.json of {name!r} lack token_type_ids, which a model of pairs "
            "needs to separate the sentences; add them"
        )


def check_max_length(max_length: int | None, config: PreTrainedConfig | None, option: str = "--max_length") -> None:
    """Raise InputError if rows may exceed the positions of a model or its backbone, unless these are relative."""
    if (positions := positions_of(config)) is not None and (max_length or 0) > positions:
        raise InputError(f"{option} is {max_length}, but the model has {positions} positions; use that.")


def limit_length(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> None:
    """Limit a tokenizer's length to the positions in the configuration of a backbone, or of a model's decoder.

    With relative positions it may exceed the length the transformer was trained with, which is used only for
    tokenizers without a limit.
    """
    without_limit = tokenizer.model_max_length > LARGE_INTEGER
    if (positions := positions_of(getattr(config, "decoder", config), relative=without_limit)) is not None:
        tokenizer.model_max_length = min(tokenizer.model_max_length, positions)


def positions_of(config: PreTrainedConfig | None, *, relative: bool = False) -> int | None:
    """The tokens that a model, or its backbone, has positions for; ``None`` if it takes any number.

    Relative positions have no limit, or with ``relative`` the length the transformer was trained with.
    """
    config = getattr(config, "backbone_config", config)
    positions = getattr(config, "max_position_embeddings", None) or 0
    is_relative = getattr(config, "rope_parameters", None) or not getattr(config, "position_biased_input", True)
    if positions <= 0 or (is_relative and not relative):  # XLNet's are -1
        return None
    return positions - ((config.pad_token_id or 0) + 1 if config.model_type in _POSITIONS_AFTER_PADDING else 0)


def decoder_positions(tokenizer: PreTrainedTokenizerBase) -> int:
    """The positions of a new decoder: maximum tokens of a translation."""
    return min(tokenizer.model_max_length, 1024)


def _template(tokenizer: PreTrainedTokenizerBase, encoding) -> list[str]:
    """Pieces of a TemplateProcessing with the special tokens of an example."""
    pieces, sentence = [], 0
    for token_id, sequence in zip(encoding["input_ids"], encoding.sequence_ids(0), strict=True):
        if sequence is None:
            pieces.append(f"{tokenizer.convert_ids_to_tokens(token_id)}:{sentence}")
        else:
            sentence = sequence
            piece = f"${'AB'[sequence]}:{sequence}"
            pieces += [piece] if piece not in pieces else []
    return pieces


def _normalizer(lower_case: bool, pretokenized: bool) -> normalizers.Normalizer:
    steps = [] if pretokenized else [normalizers.Replace(pattern, text) for pattern, text in _SAME_SPELLING]
    return normalizers.Sequence([normalizers.NFC()] + ([normalizers.Lowercase()] if lower_case else []) + steps)


def _are_segmented(texts: Iterable[str]) -> bool:
    """Whether words of scripts without spaces are separated by spaces all the same."""
    characters, spaces = (
        pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True).pre_tokenize_str
        for pattern in (f"[{_UNSPACED}]", rf"(?<=[{_UNSPACED}])\s+(?=[{_UNSPACED}])")
    )
    counts = [(len(characters(text)), len(spaces(text))) for text in texts]
    return sum(n for _, n in counts) > _SEGMENTED * sum(n for n, _ in counts)


def _pre_tokenizer(split_compounds: bool, pretokenized: bool, segmented: bool) -> pre_tokenizers.PreTokenizer:
    pattern = _TOKEN.replace(_WORD, _ANY_WORD).removeprefix(_CHARACTER) if segmented else _TOKEN
    words = pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True)
    steps = [pre_tokenizers.WhitespaceSplit() if pretokenized else words]
    if split_compounds:
        steps.append(pre_tokenizers.Split(Regex(_COMPOUND_SEPARATOR), behavior="isolated"))
    return pre_tokenizers.Sequence(steps)
