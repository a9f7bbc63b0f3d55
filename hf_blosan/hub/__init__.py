"""Model cards and uploads to the Hugging Face Hub."""

from importlib import import_module

_LAZY = {"Uploads": "upload", "make_model_card": "model_card", "write_model_card": "model_card"}

__all__ = ["Uploads", "make_model_card", "write_model_card"]


def __getattr__(name: str):
    # Imported on first use, because `python -m hf_blosan.hub.model_card` would otherwise import the module twice.
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_LAZY[name]}", __name__), name)
