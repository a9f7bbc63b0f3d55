"""The table of encoders, and where their classes are defined. Imports neither torch nor transformers."""

from importlib import import_module

# Model type and the stem of the class names: configuration_disan.py holds DiSANConfig, modeling_disan.py DiSANModel.
FAMILIES = {
    "disan": "DiSAN",
    "biblosan": "BiBloSAN",
    "mtsa": "MTSA",
    "birnn": "BiRNN",
    "textcnn": "TextCNN",
    "wordbag": "WordBag",
    "multihead": "MultiHead",
}
DESCRIPTIONS = {
    "disan": "a weight for every feature of every pair of words, apart for the words before and after",
    "biblosan": "the same inside short blocks, then between blocks: for long texts",
    "mtsa": "pairwise scores times feature scores, in several heads",
    "birnn": "bidirectional LSTM, GRU or SRU",
    "textcnn": "convolutions of several widths, or in a hierarchy",
    "wordbag": "word vectors without context",
    "multihead": "multi-head attention with sinusoidal positions",
}
"""What a command line says of an encoder."""

MODULES = {
    stem + suffix: f".models.{kind}_{model_type}"
    for model_type, stem in FAMILIES.items()
    for suffix, kind in (
        ("Config", "configuration"),
        ("Model", "modeling"),
        ("ForSequenceClassification", "modeling"),
        ("ForPairRegression", "modeling"),
        ("ForTokenClassification", "modeling"),
        ("ForSentenceSelection", "modeling"),
    )
}
"""Where each class is defined."""


def load(name: str) -> type:
    """One of the classes in ``MODULES``; its module is imported on first use."""
    return getattr(import_module(MODULES[name], __package__), name)


def register_configs() -> None:
    """Register the configuration of every encoder with ``AutoConfig``."""
    from transformers import AutoConfig

    for model_type, stem in FAMILIES.items():
        AutoConfig.register(model_type, load(f"{stem}Config"), exist_ok=True)
