"""The table of encoders, their registration with transformers' Auto classes, and the Auto class transformers lacks."""

from collections import OrderedDict
from collections.abc import Sequence
from importlib import import_module

from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoModelForTextEncoding
from transformers.models import auto as auto_classes
from transformers.models.auto.auto_factory import _BaseAutoModelClass, _LazyAutoMapping
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

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
MODULES = {
    stem + suffix: f".models.{kind}_{model_type}"
    for model_type, stem in FAMILIES.items()
    for suffix, kind in (
        ("Config", "configuration"),
        ("Model", "modeling"),
        ("ForSequenceClassification", "modeling"),
        ("ForPairRegression", "modeling"),
    )
}
"""Where each class is defined."""


def load(name: str) -> type:
    """One of the classes in ``MODULES``; its module is imported on first use."""
    return getattr(import_module(MODULES[name], __package__), name)


class LazyClasses(Sequence, tuple):
    """A tuple of classes whose modules are imported when one of its items is taken.

    The mappings of the Auto classes hold a class or a tuple of classes for each config and resolve a tuple by
    iterating over it. So models can be registered by the public ``register`` without importing them.
    """

    def __new__(cls, *names: str) -> "LazyClasses":
        return tuple.__new__(cls, names)

    def __len__(self) -> int:
        return tuple.__len__(self)

    def __getitem__(self, index):
        return tuple(map(load, tuple.__iter__(self)))[index]

    def __eq__(self, other: object) -> bool:
        return self[:] == (other[:] if isinstance(other, LazyClasses) else other)

    def __hash__(self) -> int:
        return hash(self[:])

    def __repr__(self) -> str:
        return f"LazyClasses{tuple.__repr__(self)}"

    def __reduce__(self):
        return tuple, (self[:],)


ENCODERS = tuple(
    LazyClasses(f"{stem}Config", f"{stem}Model", f"{stem}ForSequenceClassification", f"{stem}ForPairRegression")
    for stem in FAMILIES.values()
)
"""Config, encoder, classification head and pair regression head of each family."""


class AutoModelForPairRegression(_BaseAutoModelClass):
    """Scores for pairs of sentences, (B, 1), as in SICK relatedness; used like any other Auto class."""

    _model_mapping = _LazyAutoMapping(CONFIG_MAPPING_NAMES, OrderedDict())


def register() -> None:
    """Register every encoder with ``AutoConfig`` and the Auto classes of models; runs on ``import hf_blosan``.

    Configs, which are the keys of the mappings, are imported; models are not.
    """
    # Where transformers looks for the Auto classes to which a checkpoint with code may refer.
    auto_classes.AutoModelForPairRegression = AutoModelForPairRegression
    for model_type, stem in FAMILIES.items():
        config = load(f"{stem}Config")
        classifier, regressor = f"{stem}ForSequenceClassification", f"{stem}ForPairRegression"
        AutoConfig.register(model_type, config, exist_ok=True)
        AutoModel.register(config, LazyClasses(f"{stem}Model"), exist_ok=True)
        AutoModelForTextEncoding.register(config, LazyClasses(f"{stem}Model"), exist_ok=True)
        # Of several classes for a config, the Auto class picks the one named in config.architectures, so pipelines and
        # AutoModelForSequenceClassification also load a saved pair regression.
        AutoModelForSequenceClassification.register(config, LazyClasses(classifier, regressor), exist_ok=True)
        AutoModelForPairRegression.register(config, LazyClasses(regressor), exist_ok=True)
