"""Configuration of MTSA."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .configuration_blosan import SentenceEncoderConfig

# What each formulation says of the choices below when the user does not (PAPER: Eq. 7, 9, 13; RELEASED: the authors'
# single-layer classification models).
FORMULATIONS = {
    "released": {"scores_from": "values", "value_activation": True, "fusion_gate": True, "output_layer": False},
    "paper": {"scores_from": "keys", "value_activation": False, "fusion_gate": False, "output_layer": True},
}


@strict
class MTSAConfig(SentenceEncoderConfig):
    """Multi-mask tensorized self-attention (Shen et al. 2019, arXiv 1805.00912).

    Fields beside the common ones; the heads are dealt out evenly to ``directions``. The last four follow
    ``formulation`` unless they are given.

    Args:
        num_heads: heads over ``hidden_size`` features; 2 (one a direction) in the authors' classification models.
        attention_dropout: the authors' 1 - attention keep; token2token and source2token weights are each dropped with
            probability 1 - sqrt(keep).
        score_function: weight of a token2token score, ``"sigmoid"`` or ``"exp"``.
        attend_to_self: let a token see itself.
        source2token_layers: 2, or 1 linear layer without activation.
        scores_from: what queries, keys and source2token scores are computed from: ``"values"`` (all from v),
            ``"input"`` (all from x), ``"keys"`` (queries and keys from x, source2token scores from the keys; paper).
        value_activation: apply the activation to the values.
        fusion_gate: mix values and attention results with a gate.
        output_layer: put a linear layer over all heads (Eq. 13).
    """

    model_type = "mtsa"
    attribute_map = {**SentenceEncoderConfig.attribute_map, "num_attention_heads": "num_heads"}

    num_heads: int = 2
    attention_dropout: float | int = 0.0
    score_function: Literal["sigmoid", "exp"] = "sigmoid"
    attend_to_self: bool = False
    source2token_layers: int = 2
    scores_from: Literal["values", "input", "keys"] | None = None
    value_activation: bool | None = None
    fusion_gate: bool | None = None
    output_layer: bool | None = None

    def __post_init__(self, **kwargs):
        for name, value in FORMULATIONS.get(self.formulation, {}).items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        super().__post_init__(**kwargs)

    def validate_heads(self):
        if self.num_heads < 1 or self.hidden_size % self.num_heads:
            raise ValueError(
                f"num_heads={self.num_heads} does not divide hidden_size={self.hidden_size}; choose a divisor"
            )
        if self.num_heads % len(self.directions):
            raise ValueError(
                f"num_heads={self.num_heads} cannot be dealt out evenly to {len(self.directions)} directions; "
                "choose a multiple of their number"
            )
        if self.source2token_layers not in (1, 2):
            raise ValueError(f"source2token_layers={self.source2token_layers}: choose 1 or 2")


__all__ = ["MTSAConfig"]
