"""Model cards, saved models and uploads to the Hugging Face Hub; everything is imported on first use."""

from ..lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
