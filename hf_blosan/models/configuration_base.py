"""What every encoder of the package can be told: the common configuration, and its checks."""

from dataclasses import field
from typing import Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

Direction = Literal["forward", "backward", "diagonal", "full"]


@strict
class SentenceEncoderConfig(PreTrainedConfig):
    """Fields shared by DiSAN, Bi-BloSAN and MTSA; the defaults are the papers' SNLI setting where they agree.

    Args:
        vocab_size: rows of the word table, fixed ones included.
        embedding_size: width of a word vector.
        hidden_size: width of a token representation and of the sentence vector, all directions together.
        activation: of the dense maps, of source2token and of the classifier.
        dropout: probability of dropping an element of a dense layer's input (the papers' 1 - keep).
        directions: the order masks, one for each copy of the attention; ``["diagonal", "diagonal"]`` knows no
            word order.
        windows: for each of ``directions``, see only tokens at most that many positions away, or ``None`` for all
            (DiSAN; MTSA takes one for each head as well).
        formulation: ``"released"`` computes what the authors' code computes, ``"paper"`` the equations as printed.
        pooling: ``"source2token"`` (a weight for each feature) or ``"additive"`` (one weight for each token).
        num_hidden_layers: context-fusion layers; one in the papers' classification models. Several have residuals,
            see ``stack.StackableLayer``.
        embedding_trainable: ``"all"`` rows but [PAD]; ``"train_words"`` as in the papers: [PAD] and [UNK] are constant
            zero vectors, the last ``num_fixed_embeddings`` rows keep their word vectors, the others are trained;
            ``"none"``.
        num_fixed_embeddings: see ``embedding_trainable``.
        num_sentences: 1, or 2 for pairs, which are told apart by ``token_type_ids``.
        classifier_size: width of the classifier's hidden layer.
        classifier_highway: put a highway layer in front of the last layer (SNLI models of Bi-BloSAN and MTSA).
        classifier_bias: give the last layer a bias (the authors' single-sentence classifiers have none).
        score_min, score_max, num_score_classes: pair regression spreads a score over that many evenly spaced classes.
        initializer_range: half the width of the uniform distribution untrained word vectors start from.
        unk_token_id: row of unknown words.

    Raises:
        huggingface_hub.errors.StrictDataclassError: a value of the wrong type or an impossible combination.
    """

    attribute_map = {"hidden_act": "activation", "hidden_dropout_prob": "dropout"}
    keys_to_ignore_at_inference = ["hidden_states", "attentions", "gates", "pooler_attentions"]
    stackable = False  # whether one layer may follow upon another

    # Not None: the Auto classes look through it where several classes stand behind one config.
    architectures: list[str] | None = field(default_factory=list)
    vocab_size: int = 30522
    embedding_size: int = 300
    hidden_size: int = 600
    activation: Literal["elu", "relu", "tanh", "gelu", "silu", "selu", "linear"] = "elu"
    dropout: float | int = 0.0
    directions: list[Direction] = field(default_factory=lambda: ["forward", "backward"])
    windows: list[int | None] | None = None
    formulation: Literal["released", "paper"] = "released"
    pooling: Literal["source2token", "additive"] = "source2token"
    num_hidden_layers: int = 1
    embedding_trainable: Literal["all", "train_words", "none"] = "all"
    num_fixed_embeddings: int = 0
    num_sentences: int = 1
    classifier_size: int = 300
    classifier_highway: bool = False
    classifier_bias: bool = True
    score_min: float | int = 1.0
    score_max: float | int = 5.0
    num_score_classes: int = 5
    initializer_range: float = 0.05
    pad_token_id: int | None = 0
    unk_token_id: int | None = 1

    # PreTrainedConfig grants attention weights to attn_implementation="eager" alone; here all of them have weights.
    @property
    def output_attentions(self):
        return self._output_attentions

    @output_attentions.setter
    def output_attentions(self, value: bool):
        self._output_attentions = value

    def validate_output_attentions(self):
        pass

    def validate_sizes(self):
        for name in ("vocab_size", "embedding_size", "hidden_size", "classifier_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: it must be at least 1")
        if self.num_sentences not in (1, 2):
            raise ValueError(f"num_sentences={self.num_sentences}: a row holds 1 sentence or 2; set one of these")

    def validate_directions(self):
        if not self.directions or self.hidden_size % len(self.directions):
            raise ValueError(
                f"hidden_size={self.hidden_size} does not divide into {len(self.directions)} directions; "
                "choose a multiple of their number"
            )

    @property
    def window_counts(self) -> dict[str, int]:
        """What ``windows`` may be given for, and how many of it there are."""
        return {}

    def validate_windows(self):
        counts = self.window_counts
        if self.windows is None:
            return
        if not counts:
            raise ValueError(
                f"windows={self.windows}: only DiSAN and MTSA have windows; leave them out of a {self.model_type}"
            )
        if len(self.windows) not in counts.values():
            choices = " or ".join(f"one for each {name} ({count})" for name, count in counts.items())
            raise ValueError(f"windows={self.windows}: give {choices}")
        if any(window is not None and window < 0 for window in self.windows):
            raise ValueError(
                f"windows={self.windows}: a window is the number of tokens seen on each side, 0 or more, or None"
            )

    def validate_layers(self):
        if self.num_hidden_layers < 1:
            raise ValueError(f"num_hidden_layers={self.num_hidden_layers}: it must be at least 1")
        if self.num_hidden_layers > 1 and not self.stackable:
            raise ValueError(
                f"num_hidden_layers={self.num_hidden_layers}: {self.model_type} has one layer; set it to 1"
            )

    def validate_dropout(self):
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name, 0.0) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: it is a probability to drop, at least 0 and below 1")

    def validate_embeddings(self):
        if self.num_fixed_embeddings and self.embedding_trainable != "train_words":
            raise ValueError(
                f"num_fixed_embeddings={self.num_fixed_embeddings} with embedding_trainable="
                f'"{self.embedding_trainable}"; fixed rows need embedding_trainable="train_words"'
            )
        if not 0 <= self.num_fixed_embeddings < self.vocab_size:
            raise ValueError(
                f"num_fixed_embeddings={self.num_fixed_embeddings} of vocab_size={self.vocab_size} rows: "
                "it must leave at least one row to train"
            )

    def validate_scores(self):
        if not self.score_min < self.score_max:
            raise ValueError(f"score_min={self.score_min} is not below score_max={self.score_max}; swap or mend them")
        if self.num_score_classes < 2:
            raise ValueError(
                f"num_score_classes={self.num_score_classes}: scores need at least 2 classes to lie between"
            )
