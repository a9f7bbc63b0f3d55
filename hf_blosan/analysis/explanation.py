"""``explain``: what a model predicts for a sentence or a pair, and its attention, gates and pooling weights."""

from __future__ import annotations

import io
import logging
import warnings
from copy import copy
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..errors import InputError, unpaired_surrogate
from ..files import write_bytes, write_json
from ..registry import ENCODERS
from ..tasks.classification import probabilities_of
from ..tasks.kinds import kind_of
from ..text.tokenization import check_max_length
from .arguments import FIGURE_FORMATS, MAX_TOKENS
from .maps import Map, read_maps, word_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

MAP_KINDS = {"attention": "attention between tokens", "gate": "gates", "pooling": "weights in the sentence vector"}
"""The kinds of maps and their names; each kind is one figure."""


@dataclass(frozen=True, eq=False)
class Sentence:
    """A sentence as the model saw it.

    Attributes:
        text: as given.
        tokens: N tokens as written in the text; an unknown word is ``word [UNK]``.
        maps: by name, context layers first, pooler last.
    """

    text: str
    tokens: list[str]
    maps: dict[str, Map]

    @property
    def pooling(self) -> Map:
        """The weights of the tokens in the sentence vector, (N, hidden_size) or (N, 1)."""
        return next(reversed(self.maps.values()))

    @property
    def weights(self) -> np.ndarray:
        """The weights of the tokens in the sentence vector, averaged over its features, (N,)."""
        return self.pooling.mean

    def of_kind(self, kind: str) -> list[Map]:
        """The maps of a kind."""
        return [map_ for map_ in self.maps.values() if map_.kind == kind]

    def find(self, word: str) -> int:
        """The first index of a word.

        Raises:
            InputError: the word is not a token of the sentence.
        """
        tokens = [word_of(token).lower() for token in self.tokens]
        if word.lower() not in tokens:
            raise InputError(f"{word!r} is not a token of {self.text!r}; choose one of {', '.join(self.tokens)}")
        return tokens.index(word.lower())

    def word_weights(self, word: str) -> np.ndarray:
        """The weights of a word in the features of the sentence vector (DiSAN Fig. 8), (hidden_size,) or (1,).

        Raises:
            InputError: the word is not a token of the sentence.
        """
        return self.pooling.values[self.find(word)]


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a model predicts for a sentence or a pair, and its attention, gates and pooling weights.

    Attributes:
        model_type: the encoder, as in ``"disan"``.
        probabilities: of the labels, most probable first; ``None`` for regressions and encoders.
        score: of a regression, else ``None``.
        sentences: one, or the two of a pair.
    """

    model_type: str
    probabilities: dict[str, float] | None
    score: float | None
    sentences: tuple[Sentence, ...]

    @property
    def note(self) -> str:
        """A sentence naming the kinds of maps that the encoder lacks; empty if none."""
        kinds = {map_.kind for map_ in self.sentences[0].maps.values()}
        missing = [name for kind, name in MAP_KINDS.items() if kind not in kinds]
        if not missing:
            return ""
        shown = [name for kind, name in MAP_KINDS.items() if kind in kinds]
        known = ENCODERS.get(self.model_type)
        encoder = f"{self.model_type} ({known.description if known else 'your own encoder'})"
        return f"{encoder} has no {' and no '.join(missing)}; it has {' and '.join(shown)}."

    def figures(self, *, columns: int = 2) -> dict[str, Figure]:
        """matplotlib figures of the feature means, by names such as ``"sentence1_attention"``.

        Args:
            columns: attention maps per row.

        Raises:
            InputError: there are no columns, or matplotlib is not installed.
        """
        from .figures import DRAW

        return {
            f"sentence{number}_{kind}": DRAW[kind](maps, **({"columns": columns} if kind == "attention" else {}))
            for number, sentence in enumerate(self.sentences, 1)
            for kind in MAP_KINDS
            if (maps := sentence.of_kind(kind))
        }

    def to_dict(self) -> dict[str, Any]:
        """Prediction, tokens and feature means as JSON types."""
        return {
            "model_type": self.model_type,
            "probabilities": self.probabilities,
            "score": self.score,
            "note": self.note,
            "sentences": [
                {
                    "text": sentence.text,
                    "tokens": sentence.tokens,
                    "maps": {
                        name: {entry: getattr(map_, entry) for entry in ("kind", "title", "meaning", "labels")}
                        | {"mean": map_.mean.tolist()}
                        for name, map_ in sentence.maps.items()
                    },
                }
                for sentence in self.sentences
            ],
        }

    def save(self, folder: str | Path, *, figure_format: str = "png") -> list[Path]:
        """Write the figures, ``explanation.json`` (:meth:`to_dict`) and ``arrays.npz``; return the paths.

        The arrays have names such as ``sentence1_attention_forward`` and keep all features. Figures of an explanation
        that was saved there before are replaced or removed.

        Raises:
            InputError: the format is unknown, matplotlib is not installed, or the folder cannot be written.
        """
        if figure_format not in FIGURE_FORMATS:
            raise InputError(f"figure_format is {figure_format!r}; choose from {', '.join(FIGURE_FORMATS)}")
        arrays = {
            f"sentence{number}_{name}": map_.values
            for number, sentence in enumerate(self.sentences, 1)
            for name, map_ in sentence.maps.items()
        }
        with warnings.catch_warnings(record=True) as caught:
            files = {f"{name}.{figure_format}": draw(figure, figure_format) for name, figure in self.figures().items()}
        # matplotlib warns of each letter.
        of_letters = [warning for warning in caught if str(warning.message).startswith("Glyph ")]
        if of_letters:
            logger.warning("figures show boxes for letters that their font lacks; set font.family in matplotlibrc")
        for warning in caught:
            if warning not in of_letters:
                warnings.warn(warning.message, warning.category, stacklevel=2)
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)
        files["arrays.npz"] = content.getvalue()
        try:
            for name, content in files.items():
                write_bytes(Path(folder) / name, content)
            write_json(Path(folder) / "explanation.json", self.to_dict())
            for number, kind, suffix in product((1, 2), MAP_KINDS, FIGURE_FORMATS):
                if (name := f"sentence{number}_{kind}.{suffix}") not in files:
                    (Path(folder) / name).unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f"{folder} cannot be written ({error.strerror}); give another folder") from error
        return [Path(folder) / name for name in (*files, "explanation.json")]


def draw(figure: Figure, figure_format: str) -> bytes:
    """A figure as a file."""
    content = io.BytesIO()
    figure.savefig(content, format=figure_format)
    return content.getvalue()


def explain(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    pair: str | None = None,
    *,
    max_tokens: int = MAX_TOKENS,
) -> Explanation:
    """What a model predicts for a sentence or a pair, and its attention, gates and pooling weights, without dropout.

    Args:
        model: any model of this package, with or without a head.
        tokenizer: its tokenizer.
        text: a sentence.
        pair: the second sentence, for a model of pairs.
        max_tokens: refuse longer sentences, because attention maps grow with the square of the length.

    Raises:
        InputError: a text is empty or too long, the number of texts is wrong, or the model is not from this
            package.
    """
    texts = check_texts(model, text, pair)
    encoding = tokenizer(*texts, return_tensors="pt", padding=False, verbose=False)
    sentences = tokens_of(tokenizer, encoding, texts)
    for text, tokens in zip(texts, sentences, strict=True):
        if not tokens:
            raise InputError(f"{text!r} has no tokens; give a sentence with words")
        if len(tokens) > max_tokens:
            raise InputError(
                f"the sentence {' '.join(text.split())[:30]!r}... has {len(tokens)} tokens, {max_tokens} are allowed "
                "(max_tokens); shorten it"
            )
    if (length := encoding["input_ids"].shape[1]) > tokenizer.model_max_length:
        raise InputError(
            f"there are {length} tokens, but predictions are made from {tokenizer.model_max_length}, the limit of the "
            f"tokenizer (model_max_length); shorten {'the text' if pair is None else 'the texts'}"
        )
    check_max_length(length, model.config, "the number of tokens")
    was_training = model.training
    try:
        with torch.no_grad():
            options = {"output_attentions": True, "return_dict": True}
            inputs = encoding if model.device.type == "meta" else encoding.to(model.device)  # meta: all is offloaded
            output = model.eval()(**inputs, **options)
    finally:
        model.train(was_training)
    probabilities = score = None
    if "logits" in output:
        logits = output.logits.float().cpu().numpy()
        values = probabilities_of(model.config, logits)
        if values is None:
            score = float(logits[0, 0])
        else:
            labels = model.config.id2label
            probabilities = {labels[int(i)]: float(values[0, i]) for i in values[0].argsort()[::-1]}
    explained = (
        Sentence(text, tokens, {map_.name: map_ for map_ in read_maps(model.config, output, row, tokens)})
        for row, (text, tokens) in enumerate(zip(texts, sentences, strict=True))
    )
    return Explanation(model.config.model_type, probabilities, score, tuple(explained))


def num_sentences(model: PreTrainedModel) -> int:
    """Number of sentences the model takes; one for an encoder without a head."""
    return getattr(model.config, "num_sentences", 1) if hasattr(model, "classifier") else 1


def check_texts(model: PreTrainedModel, text: str, pair: str | None) -> list[str]:
    """The texts; raises InputError unless they are as many as the model takes."""
    if not hasattr(model.config, "embedding_trainable"):
        raise InputError(f"{type(model).__name__} is not a model of this package; give one of {', '.join(ENCODERS)}")
    if getattr(model.base_model, "pooler", model) is None:
        raise InputError(
            f"{type(model).__name__} has no sentence vectors to explain; give a model of sentences or pairs, or call "
            "this one with output_attentions=True"
        )
    config = copy(model.config)
    config.architectures = [type(model).__name__]
    if (kind := kind_of(config)).other_uses:
        raise InputError(f"the model {kind.other_uses}")
    texts, count = [text] if pair is None else [text, pair], num_sentences(model)
    for given in texts:
        if not isinstance(given, str):
            raise InputError(f"a text is {given!r}; give one sentence as a string")
        if half := unpaired_surrogate(given):
            raise InputError(f"a text has an unpaired surrogate, {half!r}; correct the text")
    if len(texts) != count:
        takes = "takes one sentence, but two are given; leave out" if count == 1 else "compares two sentences; give"
        raise InputError(f"the model {takes} the second one")
    for number, given in enumerate(texts, 1):
        if not given.strip():
            raise InputError(f"{'the text' if count == 1 else f'sentence {number}'} is empty; give some words")
    return texts


def tokens_of(tokenizer: PreTrainedTokenizerBase, encoding: Any, texts: list[str]) -> list[list[str]]:
    """The tokens of each text as written in it; special tokens by name."""
    ids = encoding["input_ids"][0].long().tolist()
    names = [str(name) for name in tokenizer.convert_ids_to_tokens(ids)]
    if tokenizer.is_fast:
        places = zip(encoding.encodings[0].sequence_ids, encoding.encodings[0].offsets, strict=True)
        for i, (sentence, (start, end)) in enumerate(places):
            written = "" if sentence is None else texts[sentence][start:end].strip()
            unknown = f" {names[i]}" if ids[i] == tokenizer.unk_token_id else ""
            names[i] = written + unknown if written else names[i]
    if len(texts) == 1:
        return [names]
    types = encoding["token_type_ids"][0].long().tolist()
    return [[name for name, type_ in zip(names, types, strict=True) if type_ == row] for row in (0, 1)]
