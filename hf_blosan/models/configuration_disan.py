"""Configuration of DiSAN."""

from huggingface_hub.dataclasses import strict

from .configuration_base import SentenceEncoderConfig


@strict
class DiSANConfig(SentenceEncoderConfig):
    """Directional self-attention network (Shen et al. 2017, arXiv 1709.04696).

    All fields are those of the common configuration: 300 features in each of two directions are ``hidden_size=600``.
    """

    model_type = "disan"
    stackable = True

    @property
    def window_counts(self) -> dict[str, int]:
        return {"direction": len(self.directions)}
