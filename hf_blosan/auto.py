"""Registers the encoders with transformers' Auto classes, on import; and the Auto class that transformers lacks."""

from collections import OrderedDict
from collections.abc import Sequence

from transformers import (
    AutoModel,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    AutoModelForTextEncoding,
    AutoModelForTokenClassification,
)
from transformers.models import auto as auto_classes
from transformers.models.auto.auto_factory import _BaseAutoModelClass, _LazyAutoMapping
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from .families import FAMILIES, load, register_configs


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


class AutoModelForPairRegression(_BaseAutoModelClass):
    """Scores for pairs of sentences, (B, 1), as in SICK relatedness; used like any other Auto class."""

    _model_mapping = _LazyAutoMapping(CONFIG_MAPPING_NAMES, OrderedDict())


def register() -> None:
    """Register every encoder with ``AutoConfig`` and the Auto classes of models; runs when these are imported.

    Configs, which are the keys of the mappings, are imported; models are not.
    """
    # Where transformers looks for the Auto classes to which a checkpoint with code may refer.
    auto_classes.AutoModelForPairRegression = AutoModelForPairRegression
    register_configs()
    for stem in FAMILIES.values():
        config = load(f"{stem}Config")
        classifier, regressor = f"{stem}ForSequenceClassification", f"{stem}ForPairRegression"
        AutoModel.register(config, LazyClasses(f"{stem}Model"), exist_ok=True)
        AutoModelForTextEncoding.register(config, LazyClasses(f"{stem}Model"), exist_ok=True)
        # Of several classes for a config, the Auto class picks the one named in config.architectures, so pipelines and
        # AutoModelForSequenceClassification also load a saved pair regression.
        AutoModelForSequenceClassification.register(config, LazyClasses(classifier, regressor), exist_ok=True)
        AutoModelForPairRegression.register(config, LazyClasses(regressor), exist_ok=True)
        AutoModelForTokenClassification.register(config, LazyClasses(f"{stem}ForTokenClassification"), exist_ok=True)
        AutoModelForMultipleChoice.register(config, LazyClasses(f"{stem}ForSentenceSelection"), exist_ok=True)


def register_pipeline() -> None:
    """Register ``pipeline("sentence-embedding")``; runs when transformers' pipelines are imported."""
    from transformers.pipelines import PIPELINE_REGISTRY

    from .models.pretrained import sentence_embedding_pipeline

    PIPELINE_REGISTRY.register_pipeline("sentence-embedding", sentence_embedding_pipeline(), pt_model=AutoModel)


register()
