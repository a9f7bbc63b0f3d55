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
STACKED = {
    "ffn": "feed_forward",
    "res_con_1/layer_norm": "feed_forward_norm",
    "res_con_2/layer_norm": "fusion_norm",
    **{f"[^/]+/{tail}": f"attention.{name}" for tail, name in TENSORIZED.items()},
}
MULTI_HEAD = {
    "(?:q_transform|dense)": "query_map",
    "(?:k_transform|dense_1)": "key_map",
    "(?:v_transform|dense_2)": "value_map",
}
RECURRENT = {
    r"lstm_cell(|\.\w+)": r"gates\1",
    r"gru_cell/(gates|candidate)(|\.\w+)": r"\1\2",
    "(?:SRU_cell/get_frc|get_frc_[fb]w)/linear_map": "map",
    "(?:SRU_cell|(?:forward|backward)_sru)/b_f": "forget_bias",
    "(?:SRU_cell|(?:forward|backward)_sru)/b_r": "reset_bias",
    "SRU_cell/get_frc/bn/gamma": "norm.weight",
    "SRU_cell/get_frc/bn/beta": "norm.bias",
    "SRU_cell/get_frc/bn/moving_mean": "norm.mean",
    "SRU_cell/get_frc/bn/moving_variance": "norm.variance",
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
    "mtsa": {
        **_within(r"(?:.*/)?layer_(\d+)", r"context.layers.\1", STACKED),
        **_within(ANY_SCOPE, "context.layers.0.attention", TENSORIZED),
    },
    "textcnn": {
        r"(?:.*/)?conv-maxpool-(\d+)": r"context.layers.0.convolutions.\1",
        r"(?:.*/)?conv_maxpool_(\d+)": r"context.layers.\1.convolution",
    },
    "birnn": {
        **_within("(?:.*/)?(?:fw|forward)", "context.layers.0.directions.0", RECURRENT),
        **_within("(?:.*/)?(?:bw|backward)", "context.layers.0.directions.1", RECURRENT),
    },
    "wordbag": {"(?:.*/)?no_ct/linear_map": "context.layers.0.dense_map"},
    "multihead": _within(ANY_SCOPE, "context.layers.0", MULTI_HEAD),
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
        rules: pattern of a variable's scope -> module name, which may hold the pattern's groups as ``\\1``; see
            :func:`model_rules`.
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
    missing = sorted(set(targets) - set(sources))
    if missing:
        raise InputError(f"variables are missing for {', '.join(missing)}; the file holds only part of the model")
    return {target: _assemble(target, leaves, targets[target].shape) for target, leaves in sources.items()}


def _separate_products(variables: dict[str, Tensor]) -> dict[str, Tensor]:
    """What the authors compute in one product, as variables of their own: queries, keys (and values), recurrent cells'
    maps of [input; state].
    """
    separated = {}
    for name, array in variables.items():
        scope, _, leaf = name.rpartition("/")
        if cell := RECURRENT_KERNEL.search(scope):
            separated |= _separate_states(scope, leaf, array, GATES[cell[0]])
            continue
        scope, _, product = scope.rpartition("/")
        parts = {"qkv_combine": "qkv", "qk_combine": "qk", "multi_head_attention": "qkv"}.get(product)
        if parts is None:
            separated[name] = array
        elif leaf == "W":
            matrices = array.unbind() if array.dim() == 4 else array.chunk(len(parts), dim=-1)
            for part, matrix in zip(parts, matrices, strict=True):
                separated[f"{scope}/{part}_transform/W"] = matrix
        else:  # W_<part>, or W_<head>_<part>
            *head, part = leaf.split("_")[1:]
            separated[f"{scope}/{parts[int(part)]}_transform/" + "_".join(["W", *head, "0"])] = array
    return separated


# Gates side by side in the kernels of recurrent cells.
GATES = {"lstm_cell": 4, "gru_cell/gates": 2, "gru_cell/candidate": 1}
RECURRENT_KERNEL = re.compile(f"(?:{'|'.join(GATES)})$")


def _separate_states(scope: str, leaf: str, array: Tensor, num_gates: int) -> dict[str, Tensor]:
    """Kernel on [input; state] or bias of a recurrent cell; the gates i, g, f, o of an LSTM in torch's order."""
    gates = array.chunk(num_gates, dim=-1)
    if num_gates == 4:
        array = torch.cat([gates[i] for i in (0, 2, 1, 3)], dim=-1)
    if leaf != "kernel":
        return {f"{scope}/{leaf}": array}
    size = gates[0].shape[-1]
    return {f"{scope}.from_input/W": array[:-size], f"{scope}.from_state/W": array[-size:]}


LEAVES = {"W": "weight", "kernel": "weight", "scale": "weight", "b": "bias", "bias": "bias", "offset": "bias"}


def _target_of(name: str, rules: dict[str, str]) -> tuple[str | None, str]:
    """The parameter a variable belongs to, and the variable's leaf (``W``, ``bias``, ``W_1_0``, ...)."""
    scope, _, leaf = name.rpartition("/")
    for pattern, module in rules.items():
        if re.fullmatch(pattern, name):
            return module, ""
        if match := re.fullmatch(pattern, scope):
            kind = LEAVES.get(leaf.split("_")[0])
            return (None, leaf) if kind is None else (f"{match.expand(module)}.{kind}", leaf)
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
    elif ".convolution" in target and arrays[0].dim() == 4:  # kernels are (window, in, 1, out) there
        result = arrays[0].squeeze(2).permute(2, 1, 0)
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


def _mtsa_fields(shapes: dict[str, list[torch.Size]]) -> dict:
    values = shapes.get("model.context.layers.0.attention.value_map.weight")
    if values is None:
        return {}
    indices = [int(found[1]) for name in shapes if (found := re.match(r"model\.context\.layers\.(\d+)\.", name))]
    fields = {"num_hidden_layers": 1 + max(indices)} | _heads_that_show(values)
    for field_name, part in (("fusion_gate", "gate"), ("output_layer", "output_layer")):
        fields[field_name] = f"model.context.layers.0.attention.{part}.weight" in shapes
    return fields


def _multihead_fields(shapes: dict[str, list[torch.Size]]) -> dict:
    values = shapes.get("model.context.layers.0.value_map.weight")
    if values is None:
        return {}
    variant = "relu" if "model.context.layers.0.value_map.bias" in shapes else "sinusoidal"
    return {"variant": variant} | _heads_that_show(values)


def _heads_that_show(matrices: list[torch.Size]) -> dict:
    """The number of heads, where they have matrices apart or stacked; side by side in one matrix they do not show."""
    if len(matrices) == 1 and len(matrices[0]) == 2:
        return {}
    return {"num_heads": matrices[0][0] if len(matrices[0]) == 3 else len(matrices)}


def _textcnn_fields(shapes: dict[str, list[torch.Size]]) -> dict:
    kernels = [found[0] for name, found in shapes.items() if re.search(r"\.convolutions?\b.*weight$", name)]
    if not kernels:
        return {}
    fields = {"filter_sizes": sorted({window for window, *_ in kernels})}
    if "model.context.layers.0.convolution.weight" in shapes:
        return fields | {"architecture": "hierarchical", "num_hidden_layers": len(kernels)}
    if "model.pooler.hidden.weight" not in shapes:  # the maximum over time has no weights
        fields |= {"pooling": "max", "hidden_size": sum(filters for *_, filters in kernels)}
    return fields


def _birnn_fields(shapes: dict[str, list[torch.Size]]) -> dict:
    """Each cell is known by what only it has."""
    marks = {"gru": "candidate.from_input.weight", "sru_normal": "norm.weight", "sru": "map.weight"}
    found = (cell for cell, name in marks.items() if f"model.context.layers.0.directions.0.{name}" in shapes)
    return {"cell": next(found, "lstm")}


def _wordbag_fields(shapes: dict[str, list[torch.Size]]) -> dict:
    return {"dense_map": "model.context.layers.0.dense_map.weight" in shapes}


# What the shapes of a model's own variables say of its configuration.
FAMILY_FIELDS = {
    "mtsa": _mtsa_fields,
    "textcnn": _textcnn_fields,
    "birnn": _birnn_fields,
    "wordbag": _wordbag_fields,
    "multihead": _multihead_fields,
}


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

    family = FAMILY_FIELDS.get(model_type, lambda shapes: {})(shapes)
    hidden_size = family.get("hidden_size") or size("model.pooler.hidden.weight", 0)
    table, fixed = "model.embeddings.word_embeddings.weight", "model.embeddings.fixed_embeddings"
    config = {"hidden_size": hidden_size, "embedding_size": size(table, 1), "embedding_trainable": "train_words"}
    config["num_fixed_embeddings"] = shapes[fixed][0][0] if fixed in shapes else 0
    config["vocab_size"] = 2 + size(table, 0) + config["num_fixed_embeddings"]
    if "model.pooler.scores.weight" in shapes and size("model.pooler.scores.weight", 1) == 1:
        config["pooling"] = "additive"
    config |= family
    if model_type in ("mtsa", "multihead") and "num_heads" not in config | overrides:
        raise InputError("the arrays do not show how many heads stand side by side in a matrix; give num_heads")
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
        model_type: a key of ``CONTEXTS``: ``"disan"``, ``"biblosan"``, ``"mtsa"``, or a baseline.
        variables: arrays under the authors' names; ``glove_only_embedding`` may hold the words that were not trained.
        overrides: configuration fields that shapes do not show (``activation``, ``block_length``, ...).

    Raises:
        InputError: missing, surplus or misshapen variables, by name.
    """
    config, head = infer_config(model_type, variables, **overrides)
    try:
        model = head.from_config(config)
    except ValueError as error:
        raise InputError(str(error)) from error
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
    model_type: str = field(metadata={"help": f"One of {', '.join(CONTEXTS)}."})
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
