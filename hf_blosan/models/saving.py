"""A checkpoint carries the code of its model, so that it also loads where the package is not installed."""

import shutil
import sys
from contextlib import suppress
from pathlib import Path

from transformers.dynamic_module_utils import get_relative_import_files

# What the Auto classes load: DiSANModel, DiSANForSequenceClassification, ...
AUTO_CLASSES = {
    "AutoModel": "Model",
    "AutoModelForTextEncoding": "Model",
    "AutoModelForSequenceClassification": "ForSequenceClassification",
    "AutoModelForPairRegression": "ForPairRegression",
}


def code_of(model_class: type) -> tuple[dict[str, str], list[Path]]:
    """``auto_map`` and files of a model class, or of the class of the bundle that it derives from; else empty ones."""
    model_type = model_class.config_class.model_type
    for cls in model_class.__mro__:
        name = cls.__module__.rpartition(".")[2]
        if name == f"modeling_{model_type}":
            module, config = sys.modules[cls.__module__], cls.config_class.__name__
            classes = {auto: config.removesuffix("Config") + suffix for auto, suffix in AUTO_CLASSES.items()}
            if cls.__name__ == classes["AutoModelForPairRegression"]:
                classes["AutoModelForSequenceClassification"] = cls.__name__  # as pipelines load it
            auto_map = {auto: f"{name}.{found}" for auto, found in classes.items() if hasattr(module, found)}
            files = {module.__file__, *get_relative_import_files(module.__file__)}
            return {"AutoConfig": f"configuration_{model_type}.{config}"} | auto_map, sorted(map(Path, files))
    return {}, []


def code_in(folder: Path) -> set[Path]:
    """The files of code that models were saved with in a folder."""
    found = set()
    for entry in folder.glob("modeling_*.py"):
        with suppress(OSError):  # an import that is not there: not a model of this kind
            files = {entry, *map(Path, get_relative_import_files(entry))}
            found |= files if folder / Path(__file__).name in files else set()
    return {path for path in found if path.parent == folder}


class CarriesCode:
    """The part of a model that saves its code with it."""

    def save_pretrained(self, save_directory, is_main_process=True, *args, include_code=True, **kwargs) -> None:
        """As in transformers. The folder also gets the model's code, for ``trust_remote_code=True``; without
        ``include_code`` it does not, and loading the checkpoint requires the package."""
        folder, args = Path(save_directory), (save_directory, is_main_process, *args)
        if not self.should_save_on_this_rank(is_main_process) or folder.is_file():
            return super().save_pretrained(*args, **kwargs)
        folder.mkdir(parents=True, exist_ok=True)
        auto_map, files = code_of(type(self)) if include_code else ({}, [])
        written = [Path(shutil.copyfile(file, folder / file.name)) for file in files]
        for path in code_in(folder).difference(written):
            path.unlink()
        if auto_map:
            self.config.auto_map = auto_map
        before = type(self)._auto_class, type(self.config)._auto_class, self.model_tags
        try:
            if not include_code:  # nor may transformers save it, as it does for classes of remote code
                vars(self.config).pop("auto_map", None)
                type(self)._auto_class = type(self.config)._auto_class = None
                self.model_tags = [tag for tag in self.model_tags if tag != "custom_code"]
            super().save_pretrained(*args, **kwargs)
        finally:
            type(self)._auto_class, type(self.config)._auto_class, self.model_tags = before
        # Of weights in one file and in several, loading would take the one file, even if it was there before.
        weights = folder / "model.safetensors", folder / "model.safetensors.index.json"
        if all(path.exists() for path in weights):
            min(weights, key=lambda path: path.stat().st_mtime_ns).unlink()

    def _get_files_timestamps(self, working_dir):
        """Without the code, so that it is uploaded although it is written before transformers looks for new files."""
        times, written = super()._get_files_timestamps(working_dir), {file.name for file in code_of(type(self))[1]}
        return {name: time for name, time in times.items() if name not in written}
