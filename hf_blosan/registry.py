"""The table of encoders, their registration with transformers' Auto classes, and the trained ones in the package.

Importing it imports neither torch nor transformers: post-import hooks register the encoders when the Auto classes are
imported.
"""

import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from .errors import InputError


class Encoder(NamedTuple):
    """Names and description of an encoder.

    Attributes:
        stem: stem of its class names: configuration_disan.py holds DiSANConfig, modeling_disan.py DiSANModel.
        name: as shown in texts.
        description: as shown on the command line.
    """

    stem: str
    name: str
    description: str


ENCODERS = {
    "disan": Encoder("DiSAN", "DiSAN", "a weight for every feature of every pair of words, for each direction"),
    "biblosan": Encoder("BiBloSAN", "Bi-BloSAN", "the same within short blocks, then between blocks: for long texts"),
    "mtsa": Encoder("MTSA", "MTSA", "pairwise scores times feature scores, in several heads"),
    "birnn": Encoder("BiRNN", "Bi-RNN", "bidirectional LSTM, GRU or SRU"),
    "textcnn": Encoder("TextCNN", "CNN", "convolutions of several widths, or in a hierarchy"),
    "wordbag": Encoder("WordBag", "Bag of word vectors", "word vectors without context"),
    "multihead": Encoder("MultiHead", "Multi-head attention", "multi-head attention with sinusoidal positions"),
}
"""The encoders by model type."""

FAMILIES = {model_type: encoder.stem for model_type, encoder in ENCODERS.items()}
"""The stem of the class names, by model type."""

SUFFIXES = {
    "Config": "configuration_{}",
    "Model": "modeling_{}",
    "ForSequenceClassification": "modeling_{}",
    "ForPairRegression": "heads_regression",
    "ForTokenClassification": "heads_tagging",
    "ForSentenceSelection": "heads_selection",
}
"""Suffixes of an encoder's class names, and the modules of these classes."""

MODULES = {
    stem + suffix: f".models.{module.format(model_type)}"
    for model_type, stem in FAMILIES.items()
    for suffix, module in SUFFIXES.items()
}
"""The module of each class."""


PRETRAINED = Path(__file__).with_name("pretrained")
"""A folder for each trained encoder that comes with the package."""
MODEL = "Saved model: a folder, the name of an encoder that comes with the package, or a name on the Hub."
"""Help of the options that take a model."""


def encoder_name(model_type: str) -> str:
    """The name of an encoder as shown in texts; for an unknown one, its model type."""
    return ENCODERS[model_type].name if model_type in ENCODERS else model_type


def load(name: str) -> type:
    """One of the classes in ``MODULES``; its module is imported on first use."""
    return getattr(import_module(MODULES[name], __package__), name)


def pretrained_names() -> list[str]:
    """The names of the trained encoders that come with the package."""
    return sorted(config.parent.name for config in PRETRAINED.glob("*/config.json"))


def pretrained(name: str) -> str:
    """The folder of a trained encoder that comes with the package.

    ``SentenceTransformer`` and ``from_pretrained`` of the Auto classes take it; the commands and functions of this
    package that load a model also take the name itself.

    Raises:
        InputError: no encoder of that name comes with the package.
    """
    if name not in (names := pretrained_names()):
        remedy = f"choose one of {', '.join(names)}" if names else "this copy has none, install the package's wheel"
        raise InputError(f"no encoder {name!r} comes with hf_blosan; {remedy}")
    return str(PRETRAINED / name)


def locate(name: str) -> str:
    """What transformers loads for the name of a model or tokenizer: a folder, an encoder that comes with the package,
    or a name on the Hub, whichever comes first.

    A folder without JSON files is not a model: it may be the output folder of the current run.
    """
    comes_with_package = name in pretrained_names() and not any(Path(name).glob("*.json"))
    return pretrained(name) if comes_with_package else name


def register_configs() -> None:
    """Register the configuration of every encoder with ``AutoConfig``."""
    from transformers import AutoConfig

    for model_type, stem in FAMILIES.items():
        AutoConfig.register(model_type, load(f"{stem}Config"), exist_ok=True)


class LazyClasses(Sequence, tuple):
    """A tuple of classes given by name, whose modules are imported when an item is accessed.

    The mappings of the Auto classes hold a class or a tuple of classes for each config and resolve a tuple by
    iterating over it. So the public ``register`` works without importing the models.
    """

    def __len__(self) -> int:
        return tuple.__len__(self)

    def __getitem__(self, index):
        return tuple(map(load, tuple.__iter__(self)))[index]

    def __eq__(self, other: object) -> bool:
        return self[:] == (other[:] if isinstance(other, LazyClasses) else other)

    def __hash__(self) -> int:
        return hash(self[:])


@cache
def pair_regression_class() -> type:
    """``AutoModelForPairRegression``, the Auto class that transformers lacks, without its entries."""
    from transformers.models import auto as auto_classes
    from transformers.models.auto.auto_factory import _BaseAutoModelClass, _LazyAutoMapping
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    class AutoModelForPairRegression(_BaseAutoModelClass):
        """Scores for pairs of sentences, (B, 1), as in SICK relatedness; like any other Auto class."""

        __module__, __qualname__ = __package__, "AutoModelForPairRegression"
        _model_mapping = _LazyAutoMapping(CONFIG_MAPPING_NAMES, OrderedDict())

    # transformers looks up the Auto classes of a checkpoint's auto_map here.
    auto_classes.AutoModelForPairRegression = AutoModelForPairRegression
    return AutoModelForPairRegression


def register_models() -> None:
    """Register every encoder with ``AutoConfig`` and the Auto classes of models; runs when these are imported.

    Configs, which are the keys of the mappings, are imported; models are not.
    """
    import transformers

    from .models.configuration_base import AUTO_CLASSES

    register_configs()
    # Among several classes for a config, the Auto class picks the one in config.architectures, so pipelines and
    # AutoModelForSequenceClassification also load a saved pair regression.
    also = {"AutoModelForSequenceClassification": ["ForPairRegression"]}
    own = {"AutoModelForPairRegression": pair_regression_class()}
    for name, suffix in AUTO_CLASSES.items():
        auto_class = own.get(name) or getattr(transformers, name)
        for stem in FAMILIES.values():
            classes = LazyClasses(stem + suffix for suffix in (suffix, *also.get(name, ())))
            auto_class.register(load(f"{stem}Config"), classes, exist_ok=True)


def register_pipeline() -> None:
    """Register ``pipeline("sentence-embedding")``; runs when transformers' pipelines are imported."""
    from transformers import AutoModel
    from transformers.pipelines import PIPELINE_REGISTRY

    from .models.pretrained import sentence_embedding_pipeline

    PIPELINE_REGISTRY.register_pipeline("sentence-embedding", sentence_embedding_pipeline(), pt_model=AutoModel)


def register() -> None:
    """Register everything as soon as the modules of transformers that it needs are imported."""
    # Models are registered after configs, because modeling_auto is still being imported when configs are available.
    after_import("transformers.models.auto.configuration_auto", register_configs)
    after_import("transformers.models.auto.modeling_auto", register_models)
    after_import("transformers.pipelines", register_pipeline)


class AfterImport:
    """A post-import hook: finds a module like the finders after it and calls ``function`` once it has run."""

    def __init__(self, name: str, function: Callable[[], object]):
        self.name, self.function = name, function

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        others = sys.meta_path[sys.meta_path.index(self) + 1 :]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_call(module) -> None:
            execute(module)
            if self in sys.meta_path:  # kept until now so that a failed import can be retried
                sys.meta_path.remove(self)
            self.function()

        spec.loader.exec_module = execute_and_call
        return spec


def after_import(name: str, function: Callable[[], object]) -> None:
    """Call ``function`` once the module ``name`` is imported, or now if it already is."""
    if name in sys.modules:
        function()
    else:
        sys.meta_path.insert(0, AfterImport(name, function))


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The ``__getattr__``, ``__dir__`` and ``__all__`` of a package whose names are imported on first use.

    The names are those that its ``__init__.pyi`` imports; ``file`` is its ``__file__``.
    """
    stub = Path(file).with_suffix(".pyi").read_text(encoding="utf-8")
    modules = {name: module for module, name in re.findall(r"^from (\.\w+) import (\w+)", stub, re.MULTILINE)}

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name], package), name)

    return get, lambda: sorted(modules), list(modules)
