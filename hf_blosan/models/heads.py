"""Heads on an encoder, written once for every model; here those on sentence vectors, and classification."""

from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_base import SentenceEncoderConfig
from .equations import can_branch_on
from .layers import Highway, Layer


@dataclass
class SentenceClassifierOutput(SequenceClassifierOutput):
    """Output of a head: ``logits`` (B, num_labels), and the encoder's states, maps and gates if requested.

    For pairs, rows 0..B-1 of the encoder's tensors are the first sentences and rows B..2B-1 the second.
    """

    gates: tuple[Tensor, ...] | None = None
    pooler_attentions: Tensor | None = None


class SentenceClassifier(Layer):
    """(B, in) -> (B, num_labels): dense layer with activation, optional highway layer, linear layer."""

    def __init__(self, config: SentenceEncoderConfig):
        options = {"activation": config.activation, "dropout": config.dropout}
        super().__init__(**options)
        self.pair_features = config.pair_features
        vectors = 1 if config.num_sentences == 1 else 5 if config.pair_features == "both" else 4
        size = config.classifier_size
        self.hidden = nn.Linear(config.hidden_size * vectors, size)
        self.highway = Highway(size, **options) if config.classifier_highway else None
        self.output = nn.Linear(size, config.num_labels, bias=config.classifier_bias)

    def forward(self, sentences: list[Tensor]) -> Tensor:
        if len(sentences) == 2:
            u_BH, v_BH = sentences
            # [u; v; u - v; u * v] (DiSAN section 4.1), or with |u - v| (Conneau et al. 2017, arXiv 1705.02364).
            signed, absolute = [u_BH - v_BH], [(u_BH - v_BH).abs()]
            differences = {"released": signed, "absolute": absolute, "both": signed + absolute}[self.pair_features]
            features = torch.cat([u_BH, v_BH, *differences, u_BH * v_BH], dim=-1)
        else:
            (features,) = sentences
        hidden = self.dense(self.hidden, features)
        return self.linear(self.output, hidden if self.highway is None else self.highway(hidden))


def class_ids(labels: Tensor, count: int) -> Tensor:
    """The labels, if they are below ``count`` where Python may look at them; as in torch, -100 means no label.

    Raises:
        ValueError: one is not.
    """
    if can_branch_on(labels):
        wrong = labels[(labels != -100) & ((labels < 0) | (labels >= count))]
        if len(wrong):
            raise ValueError(f"labels hold {wrong[0].item()}; give class ids from 0 to {count - 1}, or -100 for none")
    return labels


class SentenceHeadMixin:
    """Encode one sentence or one pair per row, and apply ``self.classifier``.

    A model names its ``encoder_class``; a kind of head has ``classifier_class`` and ``compute_loss_and_logits``.
    """

    encoder_class: type
    classifier_class: type

    def __init__(self, config: SentenceEncoderConfig):
        if config.predicate_size:
            raise ValueError(f"predicate_size={config.predicate_size}: only taggers take predicates; set it to 0")
        if config.pooling == "none":
            choices = ", ".join(get_args(config.__dataclass_fields__["pooling"].type)[:-1])
            raise ValueError(f'pooling="none" gives no sentence vector; choose from {choices}')
        super().__init__(config)
        self.model = self.encoder_class(config)
        self.classifier = self.make_classifier(config)
        self.post_init()

    def make_classifier(self, config: SentenceEncoderConfig) -> nn.Module:
        return self.classifier_class(config)

    def compute_loss_and_logits(self, sentences: list[Tensor], labels: Tensor | None) -> tuple[Tensor | None, Tensor]:
        """Loss (``None`` without labels) and logits (B, num_labels) of one or two sentence vectors (B, H) per row."""
        raise NotImplementedError(f"{type(self).__name__} must implement compute_loss_and_logits(sentences, labels)")

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        token_mask: Tensor | None = None,
        backbone_hidden_states: Tensor | None = None,
        **kwargs,
    ) -> SentenceClassifierOutput | tuple:
        """Logits (B, num_labels), and the loss if ``labels`` are given. Other arguments are those of the encoder.

        Args:
            token_type_ids: (B, N), 0 and 1 for the two sentences of a pair; required if ``config.num_sentences`` is 2.
            labels: (B,) class ids; scores if ``config.problem_type`` is regression.
            token_mask: for pairs, N counts both sentences, as in ``input_ids``; entries between tokens of different
                sentences are ignored.
            backbone_hidden_states: those of each sentence on its own.

        Raises:
            ValueError: the model compares pairs and token_type_ids are missing or mark none, or they mark pairs and it
                takes one sentence a row.
        """
        options = {"output_attentions": output_attentions, "output_hidden_states": output_hidden_states}
        inputs = (input_ids, attention_mask, token_type_ids, inputs_embeds, token_mask, backbone_hidden_states)
        sentences, encoded = self._encode(*inputs, **options, return_dict=True)
        loss, logits = self.compute_loss_and_logits(sentences, labels)
        return SentenceClassifierOutput(loss, logits, **states_of(encoded))

    def _encode(self, input_ids, attention_mask, token_type_ids, inputs_embeds, token_mask, states, **options):
        """The sentence vectors, (B, H) each, and the encoder's output."""
        pairs = self.config.num_sentences == 2
        if not pairs and token_type_ids is not None and can_branch_on(token_type_ids) and token_type_ids.any():
            raise ValueError(
                "this model takes one sentence a row, but token_type_ids mark a second one; put each sentence in "
                "a row of its own, or use a model with num_sentences=2"
            )
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        inputs |= {"inputs_embeds": inputs_embeds, "token_mask": token_mask, "backbone_hidden_states": states}
        encoded = self.model(**inputs, pairs=pairs, **options)
        vectors = encoded.pooler_output.to(self.dtype)  # those of a word bag have the dtype of the table
        return list(vectors.unflatten(0, (2, -1))) if pairs else [vectors], encoded


def states_of(encoded: ModelOutput) -> dict[str, tuple[Tensor, ...] | Tensor | None]:
    """What the output of a head takes from that of its encoder."""
    return {name: getattr(encoded, name) for name in ("hidden_states", "attentions", "gates", "pooler_attentions")}


class SequenceClassificationMixin(SentenceHeadMixin):
    """Classify one sentence or a pair."""

    classifier_class = SentenceClassifier

    def __init__(self, config: SentenceEncoderConfig):
        super().__init__(config)
        self.loss_type = "ForSequenceClassification"

    def compute_loss_and_logits(self, sentences, labels):
        logits = self.classifier(sentences)
        if labels is None:
            return None, logits
        config, kinds = self.config, (None, "single_label_classification")
        if config.problem_type in kinds and config.num_labels > 1 and not labels.is_floating_point():
            labels = class_ids(labels, config.num_labels)
        return self.loss_function(labels=labels, pooled_logits=logits.float(), config=config), logits
