"""Checkpoints of earlier versions: how ``from_pretrained`` reads what was stored in another form.

Models are saved in the present form. The mapping belongs to the class that loads, not to a registry of transformers,
so that code that comes with different checkpoints can be loaded side by side.
"""

from safetensors import safe_open
from torch import Tensor, nn
from transformers.core_model_loading import ConversionOps, WeightConverter, WeightRenaming, WeightTransform

from .layers import HeadLinear


class SplitHeads(ConversionOps):
    """One tensor for all heads -> the tensors of each."""

    def convert(self, input_dict: dict, source_patterns: list[str], target_patterns: list[str], **kwargs) -> dict:
        (tensors,) = input_dict.values()
        stacked: Tensor = tensors[0] if isinstance(tensors, list) else tensors
        return dict(zip(target_patterns, HeadLinear.split(stacked), strict=True))


class HeadConverter(WeightConverter):
    """Divides a tensor among heads; a quantiser, which expects one tensor from a converter, gets one after another."""

    def convert(self, layer_name: str, model=None, config=None, hf_quantizer=None, loading_info=None) -> dict:
        quantization, self.quantization_operation = self.quantization_operation, None
        tensors = super().convert(layer_name, model, config, hf_quantizer, loading_info)
        if quantization is None:
            return tensors
        options = {"model": model, "config": config, "missing_keys": loading_info.missing_keys}
        converted = {}
        for name, tensor in tensors.items():
            converted |= quantization.convert({name: tensor}, full_layer_name=name, **options)
        return converted


EARLIER_NAMES = {r"embeddings\.fixed_embeddings": "embeddings.word_embeddings.fixed_weight"}


def conversions_from_earlier_forms(model: nn.Module) -> list[WeightTransform]:
    """For a model with or without a head, and checkpoints with or without one."""
    base = getattr(model, model.base_model_prefix, model)
    return [WeightRenaming(earlier, name) for earlier, name in EARLIER_NAMES.items()] + [
        HeadConverter(f"{name}.{part}", [f"{name}.{h}.{part}" for h in range(len(heads))], [SplitHeads()])
        for name, heads in base.named_modules()
        if isinstance(heads, HeadLinear)
        for part in ("weight", "bias")
    ]


def has_int8_table(state_dict: dict | None, checkpoint_files: list[str] | None) -> bool:
    """Whether a checkpoint stores the word table as int8: it then has scales."""
    names = set(state_dict or ())
    for path in () if state_dict else checkpoint_files or ():
        if str(path).endswith(".safetensors"):
            with safe_open(path, framework="pt") as tensors:
                names.update(tensors.keys())
    return any(name.endswith("word_embeddings.scale") for name in names)
