"""Converts weights of the authors' TensorFlow code into a model of this package.

The authors' checkpoints hold variables such as ``disan/sent_enc/DiSAN/ct_attn/dir_attn_fw/attention/f_bias``. Export
them to a file of named arrays (``tf.train.load_checkpoint`` reads them, ``numpy.savez`` writes them), then::

    python -m reproduce.convert_tf_checkpoint --weights variables.npz --model_type disan --output_dir out/disan

Sizes are inferred from the arrays; ``--config_overrides activation=relu,block_length=4`` sets the others. The word
vectors that the authors do not train are a constant of their graph, not a variable: add them to the file as
``glove_only_embedding``, or the converted model lacks the last rows of their vocabulary.
"""

import re
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import MISSING, dataclass
from itertools import count, takewhile
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoModelForMultipleChoice, AutoModelForSequenceClassification

from hf_blosan import AutoModelForPairRegression
from hf_blosan.cli.options import Parser, exit_status, option
from hf_blosan.cli.overrides import check_field_names, format_config_overrides, parse_config_overrides
from hf_blosan.errors import InputError, first_line
from hf_blosan.files import check_writable
from hf_blosan.hub.configs import config_problem

from .tf_variable_names import CONTEXTS, model_rules

# What torch and numpy raise for arrays of impossible shapes or types.
UNREADABLE = (ValueError, TypeError, LookupError, RuntimeError)

# Fields that no array tells, and in which the authors' models differ.
UNKNOWN = ("activation", "block_length")

# Variables of optimisers and of TensorFlow itself.
BOOKKEEPING = re.compile(r"(^|/)(global_step|beta[12]_power)$|/(Adadelta|Adam)(_\d+)?$|/ExponentialMovingAverage$")


def convert_variables(variables: dict[str, Tensor], rules: dict[str, str], targets: dict[str, Tensor]) -> dict:
    """Convert the authors' variables to a state dict.

    Args:
        variables: arrays under the authors' names, or gradients of them, since the conversion is linear.
        rules: pattern of a variable's scope -> module name, which may refer to groups of the pattern as ``\\1``; see
            :func:`model_rules`.
        targets: the model's state dict, for its names and shapes.

    Returns:
        name in ``targets`` -> float32 tensor.

    Raises:
        InputError: a variable is unexpected, missing or has the wrong shape; the message names it.
    """
    sources: dict[str, dict[str, Tensor]] = defaultdict(dict)
    surplus = []
    for name, array in _separate_products(variables).items():
        if BOOKKEEPING.search(name):
            continue
        target, leaf = _target_of(name, rules)
        if target is None or not (target in targets or _names_of_heads(target, targets)):
            surplus.append(name)
        else:
            sources[target][leaf] = array
    if surplus:
        raise InputError(
            f"{len(surplus)} variable(s) do not belong to this model: {', '.join(sorted(surplus))}; "
            "check the model type and the configuration"
        )
    state = {}
    for target, leaves in sources.items():
        if names := _names_of_heads(target, targets):
            shape = torch.Size([len(names), *reversed(targets[names[0]].shape)])
            parts = _assemble(target, leaves, shape)  # weights (H, in, out) or biases (H, out)
            parts = [part.T.contiguous() if part.dim() == 2 else part for part in parts]
            state |= zip(names, parts, strict=True)
        else:
            state[target] = _assemble(target, leaves, targets[target].shape)
    missing = sorted(set(targets) - set(state))
    if missing:
        raise InputError(f"variables are missing for {', '.join(missing)}; the file holds only part of the model")
    return state


def _names_of_heads(target: str, targets: dict[str, Tensor]) -> list[str]:
    """The names of each head's parameter, if heads have separate ones."""
    module, _, part = target.rpartition(".")
    names = (f"{module}.{h}.{part}" for h in count())
    return list(takewhile(targets.__contains__, names))


def _separate_products(variables: dict[str, Tensor]) -> dict[str, Tensor]:
    """Split variables that the authors concatenate: queries, keys and values; maps of [input; state]."""
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


# Number of gates concatenated in the kernels of recurrent cells.
GATES = {"lstm_cell": 4, "gru_cell/gates": 2, "gru_cell/candidate": 1}
RECURRENT_KERNEL = re.compile(f"(?:{'|'.join(GATES)})$")


def _separate_states(scope: str, leaf: str, array: Tensor, num_gates: int) -> dict[str, Tensor]:
    """Kernel on [input; state] or bias of a recurrent cell, with the gates i, g, f, o of an LSTM in torch's order."""
    gates = array.chunk(num_gates, dim=-1)
    if num_gates == 4:
        array = torch.cat([gates[i] for i in (0, 2, 1, 3)], dim=-1)
    if leaf != "kernel":
        return {f"{scope}/{leaf}": array}
    size = gates[0].shape[-1]
    return {f"{scope}.from_input/W": array[:-size], f"{scope}.from_state/W": array[-size:]}


LEAVES = {"W": "weight", "kernel": "weight", "scale": "weight", "b": "bias", "bias": "bias", "offset": "bias"}


def _target_of(name: str, rules: dict[str, str]) -> tuple[str | None, str]:
    """The parameter of a variable, and the variable's leaf (``W``, ``bias``, ``W_1_0``, ...)."""
    scope, _, leaf = name.rpartition("/")
    for pattern, module in rules.items():
        if re.fullmatch(pattern, name):
            return module, ""
        if match := re.fullmatch(pattern, scope):
            kind = LEAVES.get(leaf.split("_")[0])
            return (None, leaf) if kind is None else (f"{match.expand(module)}.{kind}", leaf)
    return None, leaf


def _assemble(target: str, leaves: dict[str, Tensor], shape: torch.Size) -> Tensor:
    """One parameter from its variables: dense weights are (in, out); heads are separate, stacked or concatenated."""
    ordered = sorted(leaves, key=lambda leaf: [int(i) for i in re.findall(r"\d+", leaf)])
    arrays = [leaves[leaf].float() for leaf in ordered]
    result = arrays[0]
    if target.endswith("word_embeddings.weight"):  # [PAD] and [UNK] are not variables
        result = torch.cat([result.new_zeros(2, result.shape[1]), result])
    elif ".convolution" in target and result.dim() == 4:  # (window, in, 1, out)
        result = result.squeeze(2).permute(2, 1, 0)
    elif len(shape) == 3 and len(arrays) > 1:
        result = torch.stack(arrays)
    elif len(shape) == 3:
        if result.dim() == 2 and result.shape[1] % shape[0] == 0:
            result = result.unflatten(1, (shape[0], -1)).transpose(0, 1)
    elif target.endswith(".bias"):
        flat = torch.cat([array.flatten() for array in arrays])
        result = flat.view(shape) if flat.numel() == shape.numel() else flat
    elif target.endswith(".weight") and result.dim() == 2:
        result = result.T
    if result.shape != shape:
        raise InputError(
            f"{target} has shape {tuple(shape)}, but its variable(s) {', '.join(leaves) or target} "
            f"give {tuple(result.shape)}"
        )
    return result.contiguous()


def read_arrays(path: str | Path) -> dict[str, Tensor]:
    """Named arrays from a .npz or .safetensors file.

    Raises:
        InputError: the file does not exist, has another type, or is damaged.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"weights file {path} does not exist; give a .npz or .safetensors file of named arrays")
    try:
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        if path.suffix == ".safetensors":
            return load_file(path)
    except (*UNREADABLE, OSError, EOFError, SyntaxError, BadZipFile, SafetensorError, zlib.error) as error:
        raise InputError(f"weights file {path} cannot be read ({first_line(error)}); export it again") from error
    raise InputError(f"weights file {path} ends in {path.suffix!r}; give a .npz or .safetensors file of named arrays")


def _heads_that_show(matrices: list[torch.Size]) -> dict:
    """The number of heads if their matrices are separate or stacked; unknown if they are concatenated."""
    if len(matrices) == 1 and len(matrices[0]) == 2:
        return {}
    return {"num_heads": matrices[0][0] if len(matrices[0]) == 3 else len(matrices)}


def _mtsa_fields(shapes: dict[str, list[torch.Size]]) -> dict:
    attention = "model.context.layers.0.attention"
    if (values := shapes.get(f"{attention}.value_map.weight")) is None:
        return {}
    indices = [int(found[1]) for name in shapes if (found := re.match(r"model\.context\.layers\.(\d+)\.", name))]
    parts = {"fusion_gate": "gate", "output_layer": "output_layer"}
    fields = {field: f"{attention}.{part}.weight" in shapes for field, part in parts.items()}
    return {"num_hidden_layers": 1 + max(indices)} | _heads_that_show(values) | fields


def _multihead_fields(shapes: dict[str, list[torch.Size]]) -> dict:
    if (values := shapes.get("model.context.layers.0.value_map.weight")) is None:
        return {}
    variant = "relu" if "model.context.layers.0.value_map.bias" in shapes else "sinusoidal"
    return {"variant": variant} | _heads_that_show(values)


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
    """The cell, recognised by a parameter that only it has."""
    marks = {"gru": "candidate.from_input.weight", "sru_normal": "norm.weight", "sru": "map.weight"}
    found = (cell for cell, name in marks.items() if f"model.context.layers.0.directions.0.{name}" in shapes)
    return {"cell": next(found, "lstm")}


# Configuration fields that the shapes of an encoder's variables imply.
FAMILY_FIELDS = {
    "mtsa": _mtsa_fields,
    "textcnn": _textcnn_fields,
    "birnn": _birnn_fields,
    "wordbag": lambda shapes: {"dense_map": "model.context.layers.0.dense_map.weight" in shapes},
    "multihead": _multihead_fields,
}


def infer_config(model_type: str, variables: dict[str, Tensor], **overrides):
    """The configuration that the arrays' shapes imply, and the Auto class of the head; raises InputError if the model
    type is unknown, or variables that determine the sizes are missing.
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
            count = len(variables)
            raise InputError(f"no variable for {target} among the {count} arrays; is this a {model_type} model?")
        return shapes[target][0][axis]

    family = FAMILY_FIELDS.get(model_type, lambda shapes: {})(shapes)
    hidden_size = family.get("hidden_size") or size("model.pooler.hidden.weight", 0)
    table, fixed = "model.embeddings.word_embeddings.weight", "model.embeddings.word_embeddings.fixed_weight"
    config = {"hidden_size": hidden_size, "embedding_size": size(table, 1), "embedding_trainable": "train_words"}
    config["num_fixed_embeddings"] = shapes[fixed][0][0] if fixed in shapes else 0
    config["vocab_size"] = 2 + size(table, 0) + config["num_fixed_embeddings"]
    if "model.pooler.scores.weight" in shapes and size("model.pooler.scores.weight", 1) == 1:
        config["pooling"] = "additive"
    config |= family
    if model_type in ("mtsa", "multihead") and "num_heads" not in config | overrides:
        raise InputError("the arrays do not determine the number of concatenated heads; give num_heads")
    head_fields, head = _head(shapes, size, hidden_size)
    given = config | head_fields | overrides
    try:
        return AutoConfig.for_model(model_type, **given), head
    except StrictDataclassError as error:
        problem = config_problem(error, given, type(AutoConfig.for_model(model_type)))
        raise InputError(f"the configuration is impossible: {problem}") from error


def _head(shapes: dict[str, list[torch.Size]], size: Callable[[str, int], int], hidden_size: int) -> tuple[dict, type]:
    """Configuration fields of the head, and its Auto class."""
    if "classifier.product.weight" in shapes:
        classes, width = size("classifier.output.weight", 1), size("classifier.product.weight", 1)
        fields = {"num_sentences": 2, "num_score_classes": classes, "classifier_size": width}
        return fields, AutoModelForPairRegression
    if "classifier.question_map.weight" in shapes:
        return {"classifier_size": size("classifier.question_map.weight", 1)}, AutoModelForMultipleChoice
    if "classifier.output.weight" not in shapes:
        return {}, AutoModel
    return {
        "num_labels": size("classifier.output.weight", 1),
        "classifier_size": size("classifier.hidden.weight", 1),
        "num_sentences": 2 if size("classifier.hidden.weight", 0) == 4 * hidden_size else 1,
        "classifier_bias": "classifier.output.bias" in shapes,
        "classifier_highway": "classifier.highway.gate.weight" in shapes,
    }, AutoModelForSequenceClassification


def convert_model(model_type: str, variables: dict[str, Tensor], **overrides):
    """A model with the authors' weights, in eval mode.

    Args:
        model_type: a key of ``CONTEXTS``: ``"disan"``, ``"biblosan"``, ``"mtsa"``, or a baseline.
        variables: arrays under the authors' names; ``glove_only_embedding`` may have the untrained words.
        overrides: configuration fields that the shapes do not determine (``activation``, ``block_length``, ...).

    Raises:
        InputError: variables are missing, unexpected or have the wrong shape; the message names them.
    """
    try:
        config, head = infer_config(model_type, variables, **overrides)
        try:
            model = head.from_config(config)
        except ValueError as error:
            raise InputError(str(error)) from error
        prefix = "model." if head is AutoModel else ""
        targets = {f"{prefix}{name}": tensor for name, tensor in model.state_dict().items()}
        state = convert_variables(variables, model_rules(model_type), targets)
    except InputError:
        raise
    except UNREADABLE as error:
        raise InputError(
            f"the {len(variables)} variables do not have the shapes of a {model_type} ({first_line(error)}); check "
            "the model type, and export them again"
        ) from error
    # convert_variables has checked the names.
    model.load_state_dict({name.removeprefix(prefix): tensor for name, tensor in state.items()}, strict=False)
    return model.eval()


@dataclass
class ConversionArguments:
    """Options of ``python -m reproduce.convert_tf_checkpoint``."""

    weights: str = option("File of named arrays, .npz or .safetensors.", MISSING)
    model_type: str = option(f"One of {', '.join(CONTEXTS)}.", MISSING)
    output_dir: str = option("Folder for the converted model.", MISSING)
    config_overrides: str | None = option('Fields that the arrays do not determine: "activation=relu,block_length=4".')


def convert(argv: list[str] | None) -> None:
    """Convert a file."""
    description = "Convert weights of the authors' TensorFlow code."
    parser = Parser(prog="python -m reproduce.convert_tf_checkpoint", description=description)
    arguments = parser.read(ConversionArguments, argv)
    overrides = parse_config_overrides(arguments.config_overrides)
    check_writable("--output_dir", arguments.output_dir, folder=True)
    model = convert_model(arguments.model_type, read_arrays(arguments.weights), **overrides)
    model.save_pretrained(arguments.output_dir)
    config = model.config
    print(
        f"{type(model).__name__} with {model.num_parameters():,} parameters and a vocabulary of {config.vocab_size:,} "
        f"words, {config.num_fixed_embeddings:,} of them from glove_only_embedding, saved in {arguments.output_dir}"
    )
    assumed = {name: getattr(config, name) for name in UNKNOWN if hasattr(config, name) and name not in overrides}
    if assumed:
        text = format_config_overrides(assumed)
        print(f"not in the arrays, so as in a new configuration: {text}; --config_overrides sets others")


def main(argv: list[str] | None = None) -> int:
    return exit_status(convert, argv)


if __name__ == "__main__":
    sys.exit(main())
