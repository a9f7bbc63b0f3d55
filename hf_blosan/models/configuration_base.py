"""The configuration common to all encoders, and its checks."""

import copy
from dataclasses import field
from typing import Literal, get_args

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from .masks import DIRECTIONS, check_choice

EmbeddingDtype = Literal["float32", "float16", "bfloat16", "int8"]
LayersDtype = Literal["float32", "int8"]
EMBEDDING_DTYPES, LAYERS_DTYPES = get_args(EmbeddingDtype), get_args(LayersDtype)

# What the Auto classes load: DiSANModel, DiSANForSequenceClassification, ...
AUTO_CLASSES = {
    "AutoModel": "Model",
    "AutoModelForTextEncoding": "Model",
    "AutoModelForSequenceClassification": "ForSequenceClassification",
    "AutoModelForPairRegression": "ForPairRegression",
    "AutoModelForTokenClassification": "ForTokenClassification",
    "AutoModelForMultipleChoice": "ForSentenceSelection",
}


@strict
class SentenceEncoderConfig(PreTrainedConfig):
    """Fields of all encoders; the defaults are the papers' SNLI settings where these agree.

    Args:
        backbone: a pretrained transformer, by its name on the Hub or its folder, whose last hidden states replace word
            vectors. A new model starts from its weights; a saved one contains them and has only ``backbone_config``.
        backbone_config: configuration of the backbone, by default its own. It determines vocab_size and pad_token_id.
        vocab_size: rows of the word table, including fixed ones.
        embedding_size: width of a word vector, by default 300 or the backbone's hidden size.
        hidden_size: width of a token representation and of the sentence vector, all directions together.
        activation: activation function of dense maps, source2token and classifier.
        dropout: probability of dropping an element of a dense layer's input (1 - the papers' keep).
        map_dropout: the same for the maps inside context-fusion layers, by default ``dropout``. With 0, the layers of
            a stack drop only what is added to a token, and weights of attention.
        directions: the order masks, one for each copy of the attention; ``["diagonal", "diagonal"]``: no order.
        windows: for each of ``directions``, see only tokens at most that many positions away, or ``None`` for all
            (DiSAN and MTSA; MTSA also accepts one per head).
        formulation: ``"released"`` computes what the authors' code computes, ``"paper"`` the equations as printed.
        pooling: ``"source2token"`` (a weight per feature), ``"additive"`` (one weight per token), ``"mean"`` of the
            tokens, ``"cls"``, the first token, or ``"none"``: no sentence vector, as in tagging and translation.
        num_hidden_layers: context-fusion layers; one in the papers' classification models. A stack has residual
            connections, see ``encoder.StackableLayer``.
        feed_forward_size: width between the two matrices of a stacked layer's feed-forward part; ``None``: one matrix.
        predicate_size: width of the embedding of "is this token the predicate", which is appended to each word vector
            (semantic role labelling); 0: none.
        embedding_scale: factor applied to what enters the first layer, word vectors and predicate embedding alike.
        embedding_trainable: ``"all"`` rows except [PAD]; ``"train_words"`` as in the papers: [PAD] and [UNK] are
            constant zero vectors, the last ``num_fixed_embeddings`` rows keep their word vectors, the others are
            trained; or ``"none"``, the default with a backbone, which is then always in eval mode.
        num_fixed_embeddings: see ``embedding_trainable``.
        embedding_dropout: probability of dropping a whole word vector in training.
        embedding_dtype: dtype of the word table: ``"float32"`` (the dtype of the layers, whichever it is),
            ``"float16"``, ``"bfloat16"`` or ``"int8"`` (a scale per row). Only ``"float32"`` can be trained.
        layers_dtype: dtype of the weights of linear maps: ``"float32"`` (the dtype of the model, whichever it is), or,
            for inference, ``"int8"`` (a scale per row; inputs are rounded to int8, too).
        num_sentences: 1, or 2 for pairs, whose sentences are distinguished by ``token_type_ids``.
        pair_features: how a classifier compares the vectors u and v of a pair: ``"released"``, [u; v; u - v; u * v] as
            in the authors' code, ``"absolute"``, [u; v; |u - v|; u * v], or ``"both"``, with both differences.
        classifier_size: width of the classifier's hidden layer.
        classifier_highway: put a highway layer before the last layer (SNLI models of Bi-BloSAN and MTSA).
        classifier_bias: give the last layer a bias (the authors' single-sentence classifiers have none).
        score_min, score_max, num_score_classes: range of the scores in pair regression, and the number of evenly
            spaced classes over which a score is spread.
        initializer_range: word vectors are initialised uniformly between minus and plus this value.
        unk_token_id: row for unknown words.

    Raises:
        huggingface_hub.errors.StrictDataclassError: a value has the wrong type, or a combination is impossible.
    """

    attribute_map = {"hidden_act": "activation", "hidden_dropout_prob": "dropout"}
    keys_to_ignore_at_inference = ["hidden_states", "attentions", "gates", "pooler_attentions"]
    stackable = False  # whether num_hidden_layers may exceed 1
    undirected = None  # why an encoder has no directions

    # Not None: where several model classes share one config class, the Auto classes search this list.
    architectures: list[str] | None = field(default_factory=list)
    backbone: str | None = None
    backbone_config: PreTrainedConfig | dict | None = None
    vocab_size: int = 30522
    embedding_size: int | None = None
    hidden_size: int = 600
    activation: Literal["elu", "relu", "tanh", "gelu", "silu", "selu", "linear"] = "elu"
    dropout: float | int = 0.0
    map_dropout: float | int | None = None
    directions: list[str] = field(default_factory=lambda: ["forward", "backward"])
    windows: list[int | None] | None = None
    formulation: Literal["released", "paper"] = "released"
    pooling: Literal["source2token", "additive", "mean", "cls", "none"] = "source2token"
    num_hidden_layers: int = 1
    feed_forward_size: int | None = None
    predicate_size: int = 0
    embedding_scale: float | int = 1.0
    embedding_trainable: Literal["all", "train_words", "none"] | None = None
    num_fixed_embeddings: int = 0
    embedding_dropout: float | int = 0.0
    embedding_dtype: EmbeddingDtype = "float32"
    layers_dtype: LayersDtype = "float32"
    num_sentences: int = 1
    pair_features: Literal["released", "absolute", "both"] = "released"
    classifier_size: int = 300
    classifier_highway: bool = False
    classifier_bias: bool = True
    score_min: float | int = 1.0
    score_max: float | int = 5.0
    num_score_classes: int = 5
    initializer_range: float | int = 0.05
    pad_token_id: int | None = 0
    unk_token_id: int | None = 1

    def __post_init__(self, **kwargs):
        from transformers import AutoConfig  # late: its import registers these configurations

        self.architectures = self.architectures or []
        if self.backbone and self.backbone_config is None:
            self.backbone_config = AutoConfig.from_pretrained(self.backbone)
        elif isinstance(self.backbone_config, dict):
            saved = {name: value for name, value in self.backbone_config.items() if name != "backbone"}
            self.backbone_config = AutoConfig.for_model(**saved)
        backbone = self.backbone_config
        if backbone is not None:
            if backbone.is_encoder_decoder or not hasattr(backbone, "vocab_size"):
                raise ValueError(f"a {backbone.model_type} cannot be a backbone; give a text encoder such as BERT")
            self.vocab_size, self.pad_token_id = backbone.vocab_size, backbone.pad_token_id
        if self.embedding_size is None:
            self.embedding_size = 300 if backbone is None else backbone.hidden_size
        self.embedding_trainable = self.embedding_trainable or ("all" if backbone is None else "none")
        super().__post_init__(**kwargs)

    @classmethod
    def from_dict(cls, config_dict: dict, **kwargs):
        """As in transformers, but a saved model contains its backbone, so the original one is not looked up."""
        return super().from_dict({name: x for name, x in config_dict.items() if name != "backbone"}, **kwargs)

    def to_dict(self) -> dict:
        """As in transformers, but without the location of the backbone: a checkpoint has its weights."""
        fields = super().to_dict()
        (fields["backbone_config"] or {}).pop("_name_or_path", None)
        return {name: value for name, value in fields.items() if name != "backbone"}

    def for_passages(self) -> "SentenceEncoderConfig":
        """The configuration of the context fusion over the sentences of a passage, in sentence selection."""
        config = copy.deepcopy(self)
        config.embedding_size, config.windows, config.backbone_config = 4 * self.classifier_size, None, None
        return config

    # PreTrainedConfig allows attention weights only with attn_implementation="eager"; here every one returns them.
    @PreTrainedConfig.output_attentions.setter
    def output_attentions(self, value: bool):
        self._output_attentions = value

    def validate_output_attentions(self):
        pass

    @property
    def input_size(self) -> int:
        """Width of what enters the first layer."""
        return self.embedding_size + self.predicate_size

    @property
    def fusion_dropout(self) -> float:
        """Dropout of the maps inside context-fusion layers."""
        return self.dropout if self.map_dropout is None else self.map_dropout

    def validate_sizes(self):
        sizes = ("vocab_size", "embedding_size", "hidden_size", "classifier_size", "num_hidden_layers")
        sizes = dict.fromkeys((*sizes, "feed_forward_size"), 1)
        for name, least in (sizes | {"num_score_classes": 2, "pad_token_id": 0, "predicate_size": 0}).items():
            if getattr(self, name) is not None and getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)}: it must be at least {least}")
        if self.num_sentences not in (1, 2):
            raise ValueError(f"num_sentences={self.num_sentences}: a row holds 1 sentence or 2; set it to 1 or 2")

    def validate_directions(self):
        if self.undirected and self.directions:
            raise ValueError(f"directions={self.directions}: {self.undirected}; leave the list empty")
        for direction in self.directions:
            check_choice("an entry of directions", direction, DIRECTIONS)
        if not self.undirected and (not self.directions or self.hidden_size % len(self.directions)):
            raise ValueError(
                f"hidden_size={self.hidden_size} does not divide into {len(self.directions)} directions; "
                "choose a multiple of their number"
            )

    def validate_heads(self):
        if (heads := getattr(self, "num_heads", 1)) < 1 or self.hidden_size % heads:
            raise ValueError(f"num_heads={heads} does not divide hidden_size={self.hidden_size}; choose a divisor")

    @property
    def window_counts(self) -> dict[str, int]:
        """What may have a window of its own, with the number of each."""
        return {}

    def validate_windows(self):
        counts = self.window_counts
        if self.windows is None:
            return
        if not counts:
            raise ValueError(f"windows={self.windows}: only DiSAN and MTSA have windows; leave them out")
        if len(self.windows) not in counts.values():
            choices = " or ".join(f"one for each {name} ({count})" for name, count in counts.items())
            raise ValueError(f"windows={self.windows}: give {choices}")
        if any(window is not None and not 0 <= window < 2**63 for window in self.windows):
            side = "a window is the number of tokens seen on each side"
            raise ValueError(f"windows={self.windows}: {side}, 0 or more and below 2^63, or None")

    def validate_layers(self):
        if self.num_hidden_layers > 1 and not self.stackable:
            raise ValueError(f"num_hidden_layers={self.num_hidden_layers}: {self.model_type} has 1 layer; set it to 1")
        if self.feed_forward_size is not None and (self.num_hidden_layers == 1 or not self.stackable):
            raise ValueError(
                f"feed_forward_size={self.feed_forward_size}: only the layers of a stack have a feed-forward part; "
                "leave it out, or set num_hidden_layers above 1"
            )

    def validate_dropout(self):
        for name in ("dropout", "map_dropout", "attention_dropout", "embedding_dropout"):
            if not 0 <= (getattr(self, name, None) or 0) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: it is a probability to drop, at least 0 and below 1")

    def validate_embeddings(self):
        if not 0 < self.embedding_scale < float("inf"):
            raise ValueError(f"embedding_scale={self.embedding_scale}: it must be a finite number above 0")
        if not 0 <= self.initializer_range < float("inf"):
            raise ValueError(f"initializer_range={self.initializer_range}: it must be a finite number, 0 or more")
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

    def validate_backbone(self):
        if self.backbone_config is None:
            return
        size = getattr(self.backbone_config, "hidden_size", None)
        takes = {"embedding_size": [size], "embedding_trainable": ["all", "none"], "embedding_dtype": ["float32"]}
        for name, values in {**takes, "embedding_dropout": [0]}.items():
            if getattr(self, name) not in values:
                choices = " or ".join(map(str, values))
                raise ValueError(f"{name}={getattr(self, name)}: with this backbone it is {choices}; leave it out")

    def validate_scores(self):
        if not -1e30 < self.score_min < self.score_max < 1e30:
            scores = f"score_min={self.score_min}, score_max={self.score_max}"
            raise ValueError(f"{scores}: give a range within +-1e30, its lower end first")
