"""Configuration of MTSA."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .configuration_base import SentenceEncoderConfig

# Defaults of the fields below in each formulation ("paper": Eq. 7, 9, 13; "released": the authors' single-layer
# classification models, and their function for several layers).
FORMULATIONS = {
    "released": {
        "score_function": "sigmoid",
        "scores_from": "values",
        "source2token_layers": 2,
        "value_bias": True,
        "value_activation": True,
        "fusion_gate": True,
        "output_layer": False,
    },
    "released, several layers": {
        "score_function": "exp",
        "scores_from": "input",
        "source2token_layers": 1,
        "value_bias": False,
        "value_activation": False,
        "fusion_gate": False,
        "output_layer": True,
    },
    "paper": {
        "score_function": "sigmoid",
        "scores_from": "keys",
        "source2token_layers": 2,
        "value_bias": False,
        "value_activation": False,
        "fusion_gate": False,
        "output_layer": True,
    },
}


@strict
class MTSAConfig(SentenceEncoderConfig):
    """Multi-mask tensorized self-attention (Shen et al. 2019, arXiv 1805.00912).

    Fields in addition to the common ones. The heads are divided evenly among ``directions``, and among ``windows``, of
    which there may be one per direction or one per head. The defaults of ``score_function`` and all fields after it
    depend on ``formulation`` and, in the released code, on whether the model has several layers. A saved configuration
    contains their values.

    Args:
        num_heads: heads over ``hidden_size`` features; 2 (one per direction) in the authors' classification models.
        attention_dropout: 1 - the authors' attention keep; token2token and source2token weights are each dropped with
            probability 1 - sqrt(keep).
        attend_to_self: let a token see itself.
        distance_decay: let the weight of a key fall with its distance, exp(-a |i - j|), with a learned a for each head
            and feature that starts between 2 and 1/64 (``equations_mtsa.add_decay``; not in the paper). For forward
            and backward heads.
        token2token: weigh a key by its score with the query (E_R of Alg. 1). ``False`` is the ablation: visible
            keys differ only in their source2token weights.
        source2token: weigh each feature of a key (E_S of Alg. 1). ``False`` is the ablation: E_S = 1.
        score_function: weight of a token2token score, ``"sigmoid"`` or ``"exp"``.
        scores_from: what queries, keys and source2token scores are computed from: ``"values"`` (all from v),
            ``"input"`` (all from x), ``"keys"`` (queries and keys from x, source2token scores from the keys; paper).
        source2token_layers: 2, or 1 linear layer without activation.
        value_bias: give the value map a bias.
        value_activation: apply the activation to the values.
        fusion_gate: mix values and attention results by a gate.
        output_layer: add a layer over all heads; linear as printed (Eq. 13), with the activation in the released code.
    """

    model_type = "mtsa"
    stackable = True
    attribute_map = {**SentenceEncoderConfig.attribute_map, "num_attention_heads": "num_heads"}

    num_heads: int = 2
    attention_dropout: float | int = 0.0
    attend_to_self: bool = False
    distance_decay: bool = False
    token2token: bool = True
    source2token: bool = True
    score_function: Literal["sigmoid", "exp"] | None = None
    scores_from: Literal["values", "input", "keys"] | None = None
    source2token_layers: int | None = None
    value_bias: bool | None = None
    value_activation: bool | None = None
    fusion_gate: bool | None = None
    output_layer: bool | None = None

    def __post_init__(self, **kwargs):
        stacked = self.formulation == "released" and self.num_hidden_layers > 1
        defaults = FORMULATIONS.get("released, several layers" if stacked else self.formulation, {})
        for name, value in defaults.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        super().__post_init__(**kwargs)

    @property
    def window_counts(self) -> dict[str, int]:
        return {"direction": len(self.directions), "head": self.num_heads}

    def validate_heads(self):
        super().validate_heads()
        if self.num_heads % len(self.directions):
            raise ValueError(
                f"num_heads={self.num_heads} does not divide evenly among {len(self.directions)} directions; "
                "choose a multiple of their number"
            )
        if self.distance_decay and not {"forward", "backward"}.issuperset(self.directions):
            raise ValueError(f"distance_decay=True needs directions forward and backward; they are {self.directions}")
        if self.source2token_layers not in (1, 2):
            raise ValueError(f"source2token_layers={self.source2token_layers}: choose 1 or 2")

    def validate_ablations(self):
        if not (self.token2token or self.source2token):
            raise ValueError(
                "token2token=False and source2token=False leave no attention; set one of them, or use model type "
                "wordbag with dense_map=True, the paper's ablation without both"
            )
