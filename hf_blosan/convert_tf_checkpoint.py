"""Weights of the authors' TensorFlow code -> a model of this package.

The authors' checkpoints hold variables such as ``disan/sent_enc/DiSAN/ct_attn/dir_attn_fw/attention/f_bias``. Export
them to a file of named arrays (``tf.train.load_checkpoint`` reads them, ``numpy.savez`` writes them), then::

    python -m hf_blosan.convert_tf_checkpoint --weights variables.npz --model_type disan --output_dir out/disan

Sizes are read off the arrays. What they do not show is given by ``--config_overrides activation=relu,block_length=4``.
"""

import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, HfArgumentParser

from .auto import AutoModelForPairRegression
from .errors import InputError
from .overrides import check_field_names, parse_config_overrides

# What optimisers and TensorFlow itself leave in a checkpoint beside the weights.
BOOKKEEPING = re.compile(r"(^|/)(global_step|beta[12]_power)$|/(Adadelta|Adam)(_\d+)?$|/ExponentialMovingAverage$")

# Tails of the authors' names and what they are here, component by component. The leaf (W, bias, W_1_0 ...) follows.
DISA = {
    "bn_dense_map/linear_map": "dense_map",
    "attention/linear_dependent": "attention.key_map",
    "attention/linear_head": "attention.query_map",
    "attention/f_bias": "attention.bias",
    "output/linear_fusion_i": "gate.first",
    "output/linear_fusion_a": "gate.second",
    "output/o_bias": "gate.bias",
}
MBLOSA = {
    "split_seq/bn_dense_map/linear_map": "dense_map",
    "self_attention/linear_dependent_head": "block_attention.alignment_map",
    "self_attention/f_bias": "block_attention.bias",
    "source2token_self_attn/bn_dense_map/linear_map": "block_pooling",
    "combination/linear_new_context_and_gate": "fusion",
    **{f"self_attn_inter_block/disa/{tail}": f"global_attention.{name}" for tail, name in DISA.items()},
}
TENSORIZED = {
    "input_non_linearity/linear_input": "input_layer",
    "v_transform": "value_map",
    "q_transform": "query_map",
    "k_transform": "key_map",
    "s2t_multi_dim_attention/tensor4multi": "source_scores.0",
    "s2t_multi_dim_attention/multi_logits": "source_scores.1",
    "context_fusion_gate/linear_fusion_gate": "gate",
    "output_non_linearity/linear_output": "output_layer",
}
SOURCE2TOKEN = {"bn_dense_map1(?:/linear_map)?": "hidden", "bn_dense_map2(?:/linear_map)?": "scores"}
ADDITIVE = {"bn_dense_map/linear_map": "hidden", "self_attn_logits/first": "scores"}
CLASSIFIER = {
    "output/pre_output": "hidden",
    "output/pre_output1/map/linear_map": "highway.map",
    "output/pre_output1/gate/linear_map": "highway.gate",
    "output/pre_logits_linear": "hidden",
    "output/(?:logits|get_output)": "output",
    "output/linear_h1": "product",
    "output/linear_h2": "difference",
}


def _within(scope: str, prefix: str, component: dict[str, str]) -> dict[str, str]:
    return {f"{scope}/{tail}": f"{prefix}.{name}" for tail, name in component.items()}


ANY_SCOPE = "(?:.*/)?[^/]+"
FORWARD = "(?:.*/)?(?:dir_attn_fw|fw_disa|forward_attn)"
BACKWARD = "(?:.*/)?(?:dir_attn_bw|bw_disa|backward_attn)"
CONTEXTS = {
    "disan": {
        **_within(FORWARD, "context.layers.0.directions.0", DISA),
        **_within(BACKWARD, "context.layers.0.directions.1", DISA),
    },
    "biblosan": {
        **_within(FORWARD, "context.layers.0.directions.0", MBLOSA),
        **_within(BACKWARD, "context.layers.0.directions.1", MBLOSA),
    },
    "mtsa": _within(ANY_SCOPE, "context.layers.0.attention", TENSORIZED),
}
POOLER = {**_within(ANY_SCOPE, "pooler", SOURCE2TOKEN), **_within("(?:.*/)?[^/]*trad[^/]*", "pooler", ADDITIVE)}


def model_rules(model_type: str) -> dict[str, str]:
    """Patterns of the authors' variable scopes -> module names of a model with a head."""
    encoder = {**CONTEXTS[model_type], **POOLER}
    return {
        **{scope: f"model.{name}" for scope, name in encoder.items()},
        "(?:.*/)?emb_mat": "model.embeddings.word_embeddings.weight",
        "(?:constant/)?glove_only_embedding": "model.embeddings.fixed_embeddings",
        **_within(ANY_SCOPE, "classifier", CLASSIFIER),
    }


def convert_variables(variables: dict[str, Tensor], rules: dict[str, str], targets: dict[str, Tensor]) -> dict:
    """Arrange the authors' variables as a state dict.

    Args:
        variables: arrays under the authors' names; also gradients of them, the arrangement is linear.
        rules: pattern of a variable's scope -> module name, see :func:`model_rules`.
        targets: the state dict to fill, for its names and shapes.

    Returns:
        name in ``targets`` -> float32 tensor. Names that the authors' code has no variable for (a bias of a map that
        it makes without) are absent.

    Raises:
        InputError: a variable that nothing asks for, one that is missing, or one of a wrong shape, by name.
    """
    sources: dict[str, dict[str, Tensor]] = defaultdict(dict)
    surplus = []
    for name, array in _separate_products(variables).items():
        if BOOKKEEPING.search(name):
            continue
        target, leaf = _target_of(name, rules)
        if target is None or target not in targets:
            surplus.append(name)
        else:
            sources[target][leaf] = array
    if surplus:
        raise InputError(
            f"{len(surplus)} variable(s) have no place in this model: {', '.join(sorted(surplus))}; "
            "check the model type and the configuration"
        )
    # Values computed in one product with queries and keys have no bias in the authors' code.
    optional = "value_map.bias" if any("/qkv_combine/" in name for name in variables) else ()
    missing = sorted(target for target in set(targets) - set(sources) if not target.endswith(optional))
    if missing:
        raise InputError(f"variables are missing for {', '.join(missing)}; the file holds only part of the model")
    return {target: _assemble(target, leaves, targets[target].shape) for target, leaves in sources.items()}


def _separate_products(variables: dict[str, Tensor]) -> dict[str, Tensor]:
    """Queries, keys (and values) that the authors compute in one product, as variables of their own."""
    separated = {}
    for name, array in variables.items():
        scope, _, leaf = name.rpartition("/")
        scope, _, product = scope.rpartition("/")
        parts = {"qkv_combine": "qkv", "qk_combine": "qk"}.get(product)
        if parts is None:
            separated[name] = array
        elif leaf == "W":
            for part, matrix in zip(parts, array.chunk(len(parts), dim=-1), strict=True):
                separated[f"{scope}/{part}_transform/W"] = matrix
        else:  # W_<part>, or W_<head>_<part>
            *head, part = leaf.split("_")[1:]
            separated[f"{scope}/{parts[int(part)]}_transform/" + "_".join(["W", *head, "0"])] = array
    return separated


def _target_of(name: str, rules: dict[str, str]) -> tuple[str | None, str]:
    """The parameter a variable belongs to, and the variable's leaf (``W``, ``bias``, ``W_1_0``, ...)."""
    scope, _, leaf = name.rpartition("/")
    for pattern, module in rules.items():
        if re.fullmatch(pattern, name):
            return module, ""
        if re.fullmatch(pattern, scope):
            kind = {"W": "weight", "bias": "bias"}.get(leaf.split("_")[0])
            return (None, leaf) if kind is None else (f"{module}.{kind}", leaf)
    return None, leaf


def _assemble(target: str, leaves: dict[str, Tensor], shape: torch.Size) -> Tensor:
    """One parameter from its variables: dense weights are (in, out) there; heads apart, stacked or side by side."""
    arrays = [
        leaves[leaf].float() for leaf in sorted(leaves, key=lambda leaf: [int(i) for i in re.findall(r"\d+", leaf)])
    ]
    if target.endswith("word_embeddings.weight"):
        result = torch.cat(
            [arrays[0].new_zeros(2, arrays[0].shape[1]), arrays[0]]
        )  # [PAD] and [UNK] are not variables
    elif len(shape) == 3:
        if len(arrays) > 1:
            result = torch.stack(arrays)
        elif arrays[0].dim() == 3:
            result = arrays[0]
        else:
            result = (
                arrays[0].unflatten(1, (shape[0], -1)).transpose(0, 1)
                if arrays[0].shape[1] % shape[0] == 0
                else arrays[0]
            )
    elif target.endswith(".bias"):
        flat = torch.cat([array.flatten() for array in arrays])
        result = flat.view(shape) if flat.numel() == shape.numel() else flat
    elif target.endswith(".weight") and arrays[0].dim() == 2:
        result = arrays[0].T
    else:
        result = arrays[0]
    if result.shape != shape:
        raise InputError(
            f"{target} has shape {tuple(shape)}, but its variable(s) {', '.join(leaves) or target} "
            f"give {tuple(result.shape)}"
        )
    return result.contiguous()


def read_arrays(path: str | Path) -> dict[str, Tensor]:
    """Named arrays of a .npz or .safetensors file.

    Raises:
        InputError: no such file, another kind of file, or a broken one.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"weights file {path} does not exist; give a .npz or .safetensors file of named arrays")
    try:
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as arrays:
                return {name: arrays.get_tensor(name) for name in arrays.keys()}
    except (OSError, ValueError, BadZipFile, SafetensorError) as error:
        raise InputError(f"weights file {path} cannot be read ({error}); export it again") from error
    raise InputError(f"weights file {path} ends in {path.suffix!r}; give a .npz or .safetensors file of named arrays")


def infer_config(model_type: str, variables: dict[str, Tensor], **overrides):
    """The configuration that the arrays' shapes imply, and the class of head.

    Raises:
        InputError: variables without which the sizes cannot be known, or an unknown model type.
    """
    if model_type not in CONTEXTS:
        raise InputError(f"model type {model_type!r} is unknown; choose one of {', '.join(CONTEXTS)}")
    check_field_names(overrides, type(AutoConfig.for_model(model_type)))
    shapes: dict[str, list[torch.Size]] = defaultdict(list)
    for name, array in _separate_products(variables).items():
        target, _ = _target_of(name, model_rules(model_type))
        if target is not None and not BOOKKEEPING.search(name):
            shapes[target].append(array.shape)

    def size(target: str, axis: int) -> int:
        if target not in shapes:
            raise InputError(
                f"no variable for {target} among the {len(variables)} arrays; is this a {model_type} model?"
            )
        return shapes[target][0][axis]

    hidden_size = size("model.pooler.hidden.weight", 0)
    table, fixed = "model.embeddings.word_embeddings.weight", "model.embeddings.fixed_embeddings"
    config = {"hidden_size": hidden_size, "embedding_size": size(table, 1), "embedding_trainable": "train_words"}
    config["num_fixed_embeddings"] = shapes[fixed][0][0] if fixed in shapes else 0
    config["vocab_size"] = 2 + size(table, 0) + config["num_fixed_embeddings"]
    if "model.pooler.scores.weight" in shapes and size("model.pooler.scores.weight", 1) == 1:
        config["pooling"] = "additive"
    if model_type == "mtsa":
        values = shapes["model.context.layers.0.attention.value_map.weight"]
        config["num_heads"] = values[0][0] if len(values[0]) == 3 else len(values)
        config["fusion_gate"] = "model.context.layers.0.attention.gate.weight" in shapes
    if "classifier.product.weight" in shapes:
        config |= {"num_sentences": 2, "num_score_classes": size("classifier.output.weight", 1)}
        config["classifier_size"] = size("classifier.product.weight", 1)
        head = AutoModelForPairRegression
    elif "classifier.output.weight" in shapes:
        config |= {
            "num_labels": size("classifier.output.weight", 1),
            "classifier_size": size("classifier.hidden.weight", 1),
        }
        config["num_sentences"] = 2 if size("classifier.hidden.weight", 0) == 4 * hidden_size else 1
        config["classifier_bias"] = "classifier.output.bias" in shapes
        config["classifier_highway"] = "classifier.highway.gate.weight" in shapes
        head = AutoModelForSequenceClassification
    else:
        head = AutoModel
    try:
        return AutoConfig.for_model(model_type, **(config | overrides)), head
    except StrictDataclassError as error:
        raise InputError(f"the configuration is impossible: {str(error).splitlines()[-1].strip()}") from error


def convert_model(model_type: str, variables: dict[str, Tensor], **overrides):
    """A model of this package with the authors' weights, in evaluation mode.

    Args:
        model_type: ``"disan"``, ``"biblosan"`` or ``"mtsa"``.
        variables: arrays under the authors' names; ``glove_only_embedding`` may hold the words that were not trained.
        overrides: configuration fields that shapes do not show (``activation``, ``block_length``, ...).

    Raises:
        InputError: missing, surplus or misshapen variables, by name.
    """
    config, head = infer_config(model_type, variables, **overrides)
    model = head.from_config(config)
    targets, rules = model.state_dict(), model_rules(model_type)
    if head is AutoModel:
        targets = {f"model.{name}": tensor for name, tensor in targets.items()}
    if not config.num_fixed_embeddings:
        targets.pop("model.embeddings.fixed_embeddings")
    state = convert_variables(variables, rules, targets)
    if head is AutoModel:
        state = {name.removeprefix("model."): tensor for name, tensor in state.items()}
    model.load_state_dict(state, strict=False)  # convert_variables has checked the names
    return model.eval()


@dataclass
class ConversionArguments:
    """Convert weights of the authors' TensorFlow code."""

    weights: str = field(metadata={"help": "File of named arrays, .npz or .safetensors."})
    model_type: str = field(metadata={"help": "disan, biblosan or mtsa."})
    output_dir: str = field(metadata={"help": "Folder for the converted model."})
    config_overrides: str | None = field(
        default=None, metadata={"help": 'Fields that shapes do not show: "activation=relu,block_length=4".'}
    )


def main(argv: list[str] | None = None) -> int:
    (arguments,) = HfArgumentParser(ConversionArguments).parse_args_into_dataclasses(argv)
    try:
        overrides = parse_config_overrides(arguments.config_overrides)
        model = convert_model(arguments.model_type, read_arrays(arguments.weights), **overrides)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    model.save_pretrained(arguments.output_dir)
    print(f"{type(model).__name__} with {model.num_parameters():,} parameters saved in {arguments.output_dir}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
