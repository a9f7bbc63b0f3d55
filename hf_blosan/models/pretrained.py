"""What all models share with ``PreTrainedModel``: initialisation, loading, and saving together with their code."""

import copy
import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import torch
from safetensors import safe_open
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.dynamic_module_utils import get_relative_import_files

from .configuration_base import AUTO_CLASSES, EMBEDDING_DTYPES, LAYERS_DTYPES, SentenceEncoderConfig
from .embeddings import PredicateEmbeddings, WordEmbeddings
from .equations import IMPLEMENTATIONS
from .layers import FeatureAttention, FusionGate
from .masks import check_choice

# What sentence-transformers reads: its vectors are the model's pooler_output.
SENTENCE_TRANSFORMER = {
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
    ],
    "sentence_bert_config.json": {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}},
        "module_output_name": "sentence_embedding",
    },
}

# How transformers finds the pipeline of a saved encoder. Not written for a model with a head, for which a pipeline
# without a task would otherwise take this one.
PIPELINES = {"sentence-embedding": {"impl": "pipeline.SentenceEmbeddingPipeline", "pt": ["AutoModel"]}}


def code_of(model: PreTrainedModel) -> tuple[dict[str, str], dict[str, str]]:
    """``auto_map``, and the texts of the files by name, for a model's class or one that it derives from, if any."""
    model_class, model_type = type(model), type(model).config_class.model_type
    for cls in model_class.__mro__:
        name = cls.__module__.rpartition(".")[2]
        if name == f"modeling_{model_type}":
            module, config = sys.modules[cls.__module__], cls.config_class.__name__
            classes = {auto: config.removesuffix("Config") + suffix for auto, suffix in AUTO_CLASSES.items()}
            auto_map = {auto: f"{name}.{found}" for auto, found in classes.items() if hasattr(module, found)}
            auto_map["AutoConfig"], files, texts = f"configuration_{model_type}.{config}", {module.__file__}, {}
            if hasattr(model_class, "suffix"):  # a head that modeling files do without
                class_name, entry, text, head = model_class.code()
                if class_name == classes["AutoModelForPairRegression"]:
                    classes["AutoModelForSequenceClassification"] = class_name  # as pipelines load it
                auto_map |= {auto: f"{entry}.{class_name}" for auto in classes if classes[auto] == class_name}
                files, texts = files | {head}, {f"{entry}.py": text}
            if is_int8 := model.config.layers_dtype == "int8":
                files.add(int8_layers().__file__)
            files = files.union(*map(get_relative_import_files, files))
            texts |= {Path(file).name: Path(file).read_text(encoding="utf-8") for file in files}
            # Transformers tells configurations of folders of one name apart by their code, and has one class for each.
            head, _, class_name = auto_map.get("AutoModelForSequenceClassification", name).partition(".")
            text = texts[f"configuration_{model_type}.py"].partition("\n# Of ")[0]
            texts[f"configuration_{model_type}.py"] = text if head == name else f"{text}\n# Of {class_name}.\n"
            if is_int8 and "from .layers_int8" not in texts[f"{name}.py"]:  # transformers copies what is imported
                texts[f"{name}.py"] += "\n\nfrom .layers_int8 import Int8Linear  # noqa: E402, F401\n"
            return auto_map, texts
    return {}, {}


def sentence_embedding_pipeline() -> type:
    """The class of ``pipeline("sentence-embedding")``. Pipelines are slow to import, so it is imported late."""
    from .pipeline import SentenceEmbeddingPipeline

    return SentenceEmbeddingPipeline


def code_in(folder: Path) -> set[Path]:
    """The code files that models were saved with in a folder."""
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
        auto_map, files = code_of(self) if include_code else ({}, {})
        for path in code_in(folder).difference(folder / name for name in files):
            path.unlink()
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        for name, content in SENTENCE_TRANSFORMER.items():
            if self.base_model.pooler is None:  # no sentence vectors
                (folder / name).unlink(missing_ok=True)
            else:
                (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        if auto_map:
            self.config.auto_map = auto_map
            vars(self.config).pop("custom_pipelines", None)  # of an encoder to which this model added a head
            if self.base_model is self:
                self.config.custom_pipelines = PIPELINES
        before = type(self)._auto_class, type(self.config)._auto_class, self.model_tags
        try:
            if not include_code:  # nor may transformers save it, as it does for classes of remote code
                for name in ("auto_map", "custom_pipelines"):
                    vars(self.config).pop(name, None)
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
        times, written = super()._get_files_timestamps(working_dir), code_of(self)[1]
        return {name: time for name, time in times.items() if name not in written}


def int8_layers():
    """The module of int8 layers, which only checkpoints that have them carry."""
    try:
        return import_module(".layers_int8", __package__)
    except ModuleNotFoundError as error:
        raise ImportError("the code of this checkpoint has no int8 layers; install hf_blosan for them") from error


def check_inside(folder: str | Path, files: Iterable[str]) -> None:
    """Refuse weight files outside a model's folder, which an index of several can name."""
    for file in files:
        if not Path(os.path.abspath(Path(folder, file))).is_relative_to(os.path.abspath(folder)):
            raise ValueError(f"the weights {file!r} are not in the folder of the model")


def int8_parts(state_dict: dict | None, checkpoint_files: list[str] | None) -> set[str]:
    """What a checkpoint stores as int8: the word table or layers, known by scales, which a backbone may have, too."""
    names = set(state_dict or ())
    for path in () if state_dict else checkpoint_files or ():
        if str(path).endswith(".safetensors"):
            with safe_open(path, framework="pt") as tensors:
                names.update(tensors.keys())
        else:
            names.update(torch.load(path, map_location="meta", weights_only=True))
    return {x[:-6].removeprefix("model.") for x in names if x.endswith(".scale") and "backbone." not in x}


class SentenceEncoderPreTrainedModel(CarriesCode, PreTrainedModel):
    """Loading, saving and initialisation: Glorot uniform matrices, zero biases, word vectors from U(-0.05, 0.05)."""

    config: SentenceEncoderConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    # The heads take **kwargs; without this, Trainer assumes that they divide by num_items_in_batch themselves.
    accepts_loss_kwargs = False
    _can_compile_fullgraph = True

    @torch.no_grad()
    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.LayerNorm, FeatureAttention, FusionGate)) and module.bias is not None:
            init.zeros_(module.bias)
        if isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
        elif isinstance(module, (nn.Linear, PredicateEmbeddings)):
            init.xavier_uniform_(module.weight)
        elif hasattr(module, "to_float"):  # int8; not loaded if the checkpoint's has another size
            if not getattr(module.weight, "_is_hf_initialized", False):
                self._init_weights(map_ := module.to_float())
                module.load_map(map_)
        elif isinstance(module, nn.Embedding):
            bound = self.config.initializer_range
            if getattr(module, "is_int8", False):
                if not getattr(module.weight, "_is_hf_initialized", False):
                    module.load_vectors(torch.empty_like(module.vectors()).uniform_(-bound, bound))
                return
            init.uniform_(module.weight, -bound, bound)
            if module.padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                module.weight[module.padding_idx].zero_()
            if getattr(module, "fixed_weight", None) is not None:
                init.zeros_(module.fixed_weight)

    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        """As in transformers, with two more arguments.

        Args:
            embedding_dtype: what the word table is kept in, whatever the checkpoint has: ``"float32"`` (the dtype of
                the layers), ``"float16"``, ``"bfloat16"`` or ``"int8"``; by default as in the checkpoint.
            layers_dtype: ``"float32"`` or ``"int8"``, likewise; see ``set_layers_dtype``.

        Weights are copied to aligned memory: as mapped from the file they may be unaligned, and matrix products would
        differ in the last bit.
        """
        if hasattr(config := kwargs.get("config"), "embedding_dtype"):  # transformers would leave it as it is
            kwargs["config"] = config = copy.deepcopy(config)
            for name in {"embedding_dtype", "layers_dtype"} & kwargs.keys():
                setattr(config, name, kwargs.pop(name))
        loaded = super().from_pretrained(*args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        if getattr(model.get_input_embeddings(), "is_int8", False) != (model.config.embedding_dtype == "int8"):
            model.set_embedding_dtype(model.config.embedding_dtype)
        model.set_layers_dtype(model.config.layers_dtype)
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.device.type == "cpu" and tensor.data_ptr() % 64:
                tensor.data = tensor.data.clone()
        if model.config.embedding_trainable == "none":  # loading makes every parameter trainable
            model.base_model.embeddings.source.requires_grad_(False)
        return loaded

    @staticmethod
    def _load_pretrained_model(model, state_dict, checkpoint_files, load_config, *args, **kwargs):
        """As in transformers, but also for a word table and layers in another dtype than the model's."""
        if os.path.isdir(folder := load_config.pretrained_model_name_or_path or ""):
            check_inside(folder, map(os.path.abspath, checkpoint_files or ()))
        given = model, state_dict, checkpoint_files, load_config
        if model._hf_peft_config_loaded:  # the weights are those of an adapter alone
            return PreTrainedModel._load_pretrained_model(*given, *args, **kwargs)
        if model.base_model is model:  # an encoder does without the head that its checkpoint may have
            model._keys_to_ignore_on_load_unexpected = {r"^classifier\."}
        stored = int8_parts(state_dict, checkpoint_files)
        layers = {name for name in stored if not name.endswith("word_embeddings")}
        stored_as_int8 = len(layers) < len(stored)
        if layers or model.config.layers_dtype == "int8":  # all is read as it is stored, and converted afterwards
            int8_layers().convert_layers(model, lambda name: name.removeprefix("model.") in layers)
        if getattr(model.get_input_embeddings(), "is_int8", False) != stored_as_int8:
            config = copy.deepcopy(model.config)
            config.embedding_dtype = "int8" if stored_as_int8 else "float32"
            with torch.device(model.get_input_embeddings().weight.device):
                model.set_input_embeddings(WordEmbeddings(config))
        return PreTrainedModel._load_pretrained_model(*given, *args, **kwargs)

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        check_choice("attn_implementation", requested_attention or "auto", IMPLEMENTATIONS)
        return requested_attention or "auto"

    def set_attn_implementation(self, attn_implementation: str | dict, allow_all_kernels: bool = False) -> None:
        """Choose how attention is computed: ``"auto"``, ``"eager"``, ``"fused"`` or ``"linear"``.

        They compute the same function at different speeds and memory; see ``hf_blosan.functional``. With ``"eager"``,
        dense layers and gates also use only torch's operators, as ``torch.func`` and higher derivatives require.

        A backbone keeps its own, which ``model.embeddings.backbone.set_attn_implementation`` changes.

        Raises:
            ValueError: the name is unknown.
        """
        own = attn_implementation.get("") if isinstance(attn_implementation, dict) else attn_implementation
        self.config._attn_implementation = self.get_correct_attn_implementation(own)
        self.pass_on_attn_implementation()

    def pass_on_attn_implementation(self) -> None:
        """Pass the configuration's choice to the layers, which do not know the configuration."""
        for module in self.modules():
            if hasattr(module, "implementation"):
                module.implementation = self.config._attn_implementation

    def post_init(self):
        self.pass_on_attn_implementation()
        self.add_model_tags([self.config.model_type, "custom_code"])
        super().post_init()
        self.set_layers_dtype(self.config.layers_dtype)

    def load_word_vectors(self, matrix) -> None:
        """Set the word table from an array of shape (vocab_size, embedding_size); see ``WordEmbeddings``."""
        self.own_word_table().load_vectors(matrix)

    def own_word_table(self) -> WordEmbeddings:
        if self.config.backbone_config is not None or not isinstance(self.get_input_embeddings(), WordEmbeddings):
            raise ValueError("the model has no word table of its own; choose a dtype for all of it")
        return self.get_input_embeddings()

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the layers; the word table may have its own, see ``config.embedding_dtype``."""
        table = self.get_input_embeddings()
        # Replicas of torch.nn.DataParallel have no parameters, layers in int8 scales alone, which are buffers.
        kinds = ("_parameters", "_former_parameters", "_buffers")
        parts = (vars(module).get(kind, {}) for kind in kinds for module in self.modules() if module is not table)
        floats = (x.dtype for part in parts for x in part.values() if x is not None and x.is_floating_point())
        return next(floats, (table.scale if getattr(table, "is_int8", False) else table.weight).dtype)

    def set_embedding_dtype(self, embedding_dtype: str) -> None:
        """Convert the word table: ``"float32"`` (the dtype of the layers), ``"float16"``, ``"bfloat16"``, ``"int8"``.

        Raises:
            ValueError: the name is unknown.
        """
        check_choice("embedding_dtype", embedding_dtype, EMBEDDING_DTYPES)
        table, dtype = self.own_word_table(), self.dtype
        self.config.embedding_dtype = embedding_dtype
        converted = WordEmbeddings(self.config).to(table.weight.device).train(table.training)
        converted = converted.to(dtype) if embedding_dtype in ("float32", "int8") else converted
        converted.frozen |= table.frozen if table.is_int8 else not table.weight.requires_grad
        converted.requires_grad_(not converted.frozen)
        converted.load_vectors(table.vectors())
        self.set_input_embeddings(converted)

    def set_layers_dtype(self, layers_dtype: str) -> None:
        """Convert the weights of linear maps: ``"float32"`` (the model's dtype), or ``"int8"``, for inference.

        Raises:
            ValueError: the name is unknown, or a map has adapters, which int8 would leave out.
        """
        check_choice("layers_dtype", layers_dtype, LAYERS_DTYPES)
        if layers_dtype == "int8" or any(hasattr(module, "to_float") for module in self.modules()):
            int8_layers().convert_layers(self, lambda _: layers_dtype == "int8")
            self.pass_on_attn_implementation()
        self.config.layers_dtype = layers_dtype

    def save_pretrained(
        self, save_directory, *args, embedding_dtype: str | None = None, layers_dtype: str | None = None, **kwargs
    ):
        """As in transformers, with two more arguments; the model itself stays as it is.

        Args:
            embedding_dtype, layers_dtype: what the word table and the weights of linear maps are stored in, see
                ``set_embedding_dtype`` and ``set_layers_dtype``. By default as in the model.

        Raises:
            ValueError: a dtype is unknown, or is given together with a state_dict.
        """
        if embedding_dtype is layers_dtype is None:
            return super().save_pretrained(save_directory, *args, **kwargs)
        if kwargs.get("state_dict") is not None:
            raise ValueError("embedding_dtype and layers_dtype convert the model's own weights; leave out state_dict")
        converted = copy.deepcopy(self)
        if embedding_dtype:
            converted.set_embedding_dtype(embedding_dtype)
        converted.set_layers_dtype(layers_dtype or converted.config.layers_dtype)
        return converted.save_pretrained(save_directory, *args, **kwargs)

    def resize_token_embeddings(self, *args, **kwargs):
        if self.config.embedding_dtype == "int8":
            raise ValueError('the word table is int8; load the model with embedding_dtype="float32" to resize it')
        if self.config.num_fixed_embeddings:
            raise ValueError(
                f"the last {self.config.num_fixed_embeddings} rows of the vocabulary hold fixed word vectors, so no "
                'rows can be added after them; train with embedding_trainable="all" to resize the vocabulary'
            )
        resized = super().resize_token_embeddings(*args, **kwargs)
        if self.config.backbone_config is not None:
            self.config.backbone_config.vocab_size = self.config.vocab_size
        return resized
