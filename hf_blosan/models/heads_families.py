"""Heads that travel only with the models that have them; the class for each family is made on first use."""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar


class FamilyHead:
    """A head whose classes no modeling file defines. A checkpoint carries a file that defines its own.

    In the package, the module of a head has a class of every family: ``heads_tagging.DiSANForTokenClassification``.
    """

    suffix: ClassVar[str]
    encoder_class: ClassVar[type]

    @classmethod
    def of_family(cls, name: str) -> Any:
        """The class of that name, whose part before the suffix is the family; used as a module's ``__getattr__``."""
        stem, module = name.removesuffix(cls.suffix), sys.modules[cls.__module__]
        if stem == name or not find_spec(entry := f"{module.__package__}.modeling_{stem.lower()}"):
            raise AttributeError(f"module {cls.__module__!r} has no attribute {name!r}")
        modeling = import_module(entry)
        fields = {"encoder_class": getattr(modeling, f"{stem}Model"), "__module__": cls.__module__}
        setattr(module, name, type(name, (cls, getattr(modeling, f"{stem}PreTrainedModel")), fields))
        return vars(module)[name]

    @classmethod
    def code(cls) -> tuple[str, str, str, str]:
        """What a checkpoint carries for the class of a model's family: its name, and the entry file's name and text;
        and the file of the head."""
        mixin = next(base for base in cls.__mro__ if "suffix" in vars(base))
        stem, head = cls.config_class.__name__.removesuffix("Config"), mixin.__module__.rpartition(".")[2]
        model_type = cls.config_class.model_type
        made_of = f"{mixin.__name__}, {stem}PreTrainedModel"
        text = [
            f'"""{stem} with a head that not every checkpoint carries."""',
            "",
            f"from .{head} import {mixin.__name__}",
            f"from .modeling_{model_type} import {stem}Model, {stem}PreTrainedModel",
            *("", ""),
            f"class {stem}{cls.suffix}({made_of}):",
            f"    encoder_class = {stem}Model",
            "",
        ]
        entry = f"modeling_{model_type}_{head.removeprefix('heads_')}"
        return stem + cls.suffix, entry, "\n".join(text), sys.modules[mixin.__module__].__file__
