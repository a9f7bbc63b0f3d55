"""Model cards, and the way to the Hugging Face Hub."""

from .model_card import make_model_card, write_model_card
from .upload import start_upload

__all__ = ["make_model_card", "start_upload", "write_model_card"]
