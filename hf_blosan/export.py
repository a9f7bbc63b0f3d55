"""Writes a model as an ONNX graph, which runs without torch: in onnxruntime, in a browser, in other languages.

    hf-blosan export out/disan disan.onnx

One graph serves every batch size and length. Its inputs have the tokenizer's names, so
``session.run(None, dict(tokenizer(texts, padding=True, return_tensors="np")))`` runs it. The output of a head is
``logits``; the outputs of an encoder have the names that other programs expect: ``sentence_embedding`` first, then
``token_embeddings``, and the same again as ``last_hidden_state``. An output that does not end in ``.onnx`` is a folder
in the layout that transformers.js and optimum expect: ``onnx/model.onnx`` and, with weights in int8,
``onnx/model_quantized.onnx``, next to the configuration and the tokenizer. It may be the model's own folder.
"""

import copy
import logging
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase
from transformers.utils import cached_file

from . import kernels
from .cli.arguments import ExportArguments
from .errors import InputError, loading, require
from .files import check_writable
from .hub.configs import read_config
from .hub.finite import check_weights, refuse_not_finite
from .hub.saved import LOADED_WITH_REPORT, check_complete, is_normalized, quiet_transformers
from .models.attention import Tokens, selected
from .models.encoder import ContextFusion, SentenceEncoderModel, needs_rows
from .models.layers import Pooler
from .registry import FAMILIES, MODULES, load, locate
from .tasks.kinds import kind_of
from .text.tokenization import MODEL_INPUT_NAMES, check_type_ids, load_tokenizer, positions_of

logger = logging.getLogger(__name__)

OPSET = 18
LARGEST_TABLE = 4096
"""Numbers of a table of constants; weights can be larger and are not compared."""
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
TOLERANCE = 1e-4
"""Allowed difference between graph and model on random sentences, relative to the largest output."""


# What the outputs of a graph are called in the model's output.
NAMES = {
    "sentence_embedding": "pooler_output",
    "token_embeddings": "last_hidden_state",
    "last_hidden_state": "last_hidden_state",
    "logits": "logits",
}


class Outputs(nn.Module):
    """A model that returns its outputs as a plain tuple, with sentence vectors of length 1 if `normalized` is set."""

    def __init__(self, model: nn.Module, *, normalized: bool = False):
        super().__init__()
        self.model, self.names, self.normalized = model, output_names(model), normalized

    def forward(self, input_ids=None, token_type_ids=None, attention_mask=None) -> tuple[Tensor, ...]:
        # Tells the graph that all inputs have the same shape.
        others = (x if x is None else x.view(input_ids.shape) for x in (attention_mask, token_type_ids))
        output = self.model(input_ids, *others, return_dict=True)
        found = {name: output[NAMES[name]] for name in self.names}
        if self.normalized:
            found["sentence_embedding"] = F.normalize(found["sentence_embedding"], dim=-1)
        return tuple(found.values())


class RealTokens(Tokens):
    """The real tokens of a batch, which layers map without the padding; the last vector is the padding's, of zeros."""

    @classmethod
    def of(cls, module: nn.Module, inputs: tuple) -> tuple | None:
        """The inputs of a context or a pooler, tokens (B, N, D) and their mask first, in this form in a graph."""
        if not torch.compiler.is_exporting():
            return None
        tokens_BND, mask_BN, *others = inputs
        vectors = F.pad(selected(tokens_BND, mask_BN), (0, 0, 0, 1))
        places_BN = mask_BN.flatten().cumsum(0).view(mask_BN.shape) - 1
        packed = cls(vectors, torch.where(mask_BN, places_BN, vectors.shape[1] - 1))
        if isinstance(module, Pooler):
            packed.rows = tokens_BND
        return packed, mask_BN, *others


def map_fewer_rows(model: nn.Module) -> None:
    """Let a graph map distinct words, or real tokens alone, in the layer and the pooler of an encoder with one layer,
    as the kernels do.

    The copies that this needs pay where words repeat and where there is padding. Of a stack only the first layer could
    do so, which does not pay for single sentences: they take 2 % more, in int8 7 %; batches of 64 take 13 % less, in
    int8 8 % (disan-mini-en on SICK, by hand).
    """
    for encoder in model.modules():
        if not (isinstance(encoder, SentenceEncoderModel) and encoder.config.num_hidden_layers == 1):
            continue
        parts, config = [encoder.pooler], encoder.config
        of_words = encoder.takes_words and not config.predicate_size and config.backbone_config is None
        if of_words and not any(map(needs_rows, encoder.children())):
            encoder.distinct_words = partial(distinct_words, encoder.distinct_words)
        elif encoder.takes_words:
            parts.append(encoder.context)
        for part in parts:
            if isinstance(part, (ContextFusion, Pooler)):
                part.register_forward_pre_hook(RealTokens.of)


def distinct_words(by_default: Callable, input_ids: Tensor, mask_BN: Tensor) -> tuple[Tensor, Tensor | None]:
    """``SentenceEncoderModel.distinct_words``; in a graph the distinct ids, even where few repeat."""
    if not torch.compiler.is_exporting():
        return by_default(input_ids, mask_BN)
    words_V, places_BN = torch.unique(input_ids * mask_BN, return_inverse=True)
    return words_V[None], places_BN


def output_names(model: nn.Module) -> tuple[str, ...]:
    """The outputs of a model's graph, keys of NAMES.

    Programs that take the first output of a graph, such as fastembed, thus get sentence vectors. optimum knows the
    token vectors only as ``last_hidden_state``.
    """
    if hasattr(model, "classifier"):
        return ("logits",)
    tokens = ("token_embeddings", "last_hidden_state")
    return tokens if model.pooler is None else ("sentence_embedding", *tokens)


def input_names(model: nn.Module, tokenizer: PreTrainedTokenizerBase | None) -> tuple[str, ...]:
    """The inputs of a model's graph: what the tokenizer returns, if there is one."""
    if tokenizer is None:
        needed = ("input_ids", "attention_mask")
        return (*needed, "token_type_ids") if model.config.num_sentences == 2 else needed
    if unknown := [name for name in tokenizer.model_input_names if name not in MODEL_INPUT_NAMES]:
        raise InputError(
            f"model_input_names of the tokenizer has {unknown[0]!r}, which no model takes; give "
            f"{', '.join(MODEL_INPUT_NAMES)}"
        )
    return tuple(tokenizer.model_input_names)


def random_inputs(model: nn.Module, names: tuple[str, ...], batch: int, length: int) -> dict[str, Tensor]:
    """Sentences or pairs of different lengths, the longest without padding."""
    generator = torch.Generator().manual_seed(batch * length)
    lengths_B1 = torch.randint(1, length + 1, (batch, 1), generator=generator)
    lengths_B1[0] = length
    positions_N = torch.arange(length)
    ids_BN = torch.randint(model.config.vocab_size, (batch, length), generator=generator)
    inputs = {
        "input_ids": ids_BN,
        "attention_mask": (positions_N < lengths_B1).long(),
        "token_type_ids": (positions_N >= lengths_B1 // 2).long() * (model.config.num_sentences == 2),
    }
    return {name: inputs[name] for name in names}


def example_length(model: nn.Module) -> int:
    """A length at which every loop of the graph has at least two steps: torch.export treats one step as a constant."""
    block_length = getattr(model.config, "block_length", None)
    return min(23 * (block_length if isinstance(block_length, int) else 1), most_tokens(model))


def most_tokens(model: nn.Module) -> int:
    """The number of positions of a model's backbone; unlimited without one."""
    return positions_of(model.config) or sys.maxsize


def export_onnx(
    model: nn.Module,
    path: str | Path,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    normalized: bool = False,
) -> float:
    """Write a model as an ONNX graph with inputs (batch, length), and compare the two in onnxruntime.

    Args:
        model: an encoder of this package, or one with a head.
        path: the file. Weights of more than 2 GB are stored next to it in a file with ``.data`` added to the name.
        tokenizer: names the inputs; without one they are ``input_ids``, ``attention_mask`` and, for pairs,
            ``token_type_ids``.
        normalized: give the sentence vectors of an encoder length 1.

    Returns:
        The largest difference between the outputs of the graph and of the model on random sentences, as in
        :func:`largest_difference`.

    Raises:
        InputError: the packages of the extra ``export`` are missing, or an output of the model is not finite.
        RuntimeError: the graph does not compute what the model computes.
    """
    require("export needs", "export", *PACKAGES)
    from onnxscript.optimizer import fold_constants

    from .kernels.directional.graph_functions import add_functions

    path = Path(path)
    model = copy.deepcopy(model).eval().cpu()
    if model.dtype != torch.float32:  # onnxruntime lacks many operators for fewer bits
        model.float()
    if getattr(model.config, "layers_dtype", "float32") != "float32":  # onnxruntime has its own form of int8
        model.set_layers_dtype("float32")
    map_fewer_rows(model)
    names, outputs = input_names(model, tokenizer), Outputs(model, normalized=normalized)
    # The exporter logs about itself and about torchvision, whose operators no model here uses.
    logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)
    with torch.no_grad(), warnings.catch_warnings(), kernels.operators_of_graphs():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            outputs,
            kwargs=random_inputs(model, names, 3, example_length(model)),
            dynamic_shapes={name: {0: "batch", 1: "length"} for name in names},
            output_names=outputs.names,
            opset_version=OPSET,
            dynamo=True,
            custom_translation_table=translations(),
            optimize=False,
            verbose=False,
        )
    refuse_not_finite(model)
    add_functions(program.model)
    # Parts of weights: by itself the exporter keeps large ones as operators, which no quantiser takes for weights.
    fold_constants(
        program.model, output_size_limit=sys.maxsize, should_fold=lambda node: node.op_type == "Slice" or None
    )
    program.optimize()
    for value, name in zip(program.model.graph.outputs, outputs.names, strict=True):
        value.name = name  # an output that is given twice has got a new one
    forget_shapes(program.model.graph)
    forget_origins(program.model)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written in a temporary folder: the graph contains the name of its file with external data.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        temporary = Path(folder, path.name)
        program.save(temporary)
        forget_weights(temporary)
        difference = largest_difference(outputs, temporary, names)
        for file in sorted(Path(folder).iterdir(), reverse=True):  # the graph after its data
            os.replace(file, path.with_name(file.name))
    return difference


def translations() -> dict:
    """Replacements for translations of the exporter, by torch operator.

    The exporter writes ``torch.lerp``, which gates use, as eight operators, and a GELU in an order that onnxruntime
    does not fuse into one. onnxruntime has a softmax for the last dimension, before which it transposes others, and
    computes Elu without vector instructions and in one thread. The exporter does not know ``torch.unique``.
    """
    from onnxscript import opset18 as op
    from onnxscript.function_libs.torch_lib.ops.nn import aten_elu, aten_gelu

    def lerp(start, end, weight):
        return start + weight * (end - start)

    def gelu(x, approximate="none"):
        exact = approximate == "none"
        return x * (op.Erf(x / math.sqrt(2)) + 1.0) * 0.5 if exact else aten_gelu(x, approximate)

    def softmax(x, dim, dtype=None):
        if dim == -1:
            return op.Softmax(x, axis=dim)
        weights = op.Exp(x - op.ReduceMax(x, [dim]))
        return weights / op.ReduceSum(weights, [dim])

    def elu(x, *scales):
        if any(scale != 1.0 for scale in scales):
            return aten_elu(x, *scales)
        return op.Max(x, op.Exp(op.Min(x, 0.0)) - 1.0)  # exp(x) - 1 is never below x

    def unique(x, *options):
        found, _, places, counts = op.Unique(op.Reshape(x, [-1]))
        return found, op.Reshape(places, op.Shape(x)), counts

    aten = torch.ops.aten
    own = {aten.lerp.Tensor: lerp, aten.gelu.default: gelu, aten.softmax.int: softmax, aten.elu.default: elu}
    return own | {aten._unique2.default: unique}


def forget_shapes(graph) -> None:
    """Remove the shapes of intermediate tensors from a graph.

    The exporter names a size by its symbol, and a branch or a loop has its own symbols with the same names:
    onnxruntime would let a tensor reuse the memory of another one, taking their sizes to be the same.
    """
    outputs = set(graph.outputs)
    for node in graph.all_nodes():
        inner = [attribute.as_graph() for attribute in node.attributes.values() if attribute.type.name == "GRAPH"]
        for value in (*node.outputs, *(x for part in inner for x in part.inputs)):
            if value not in outputs:
                value.shape = None


def forget_origins(model) -> None:
    """Remove from a graph what the exporter notes on each node, and repeated tables of constants.

    The notes name the files on this machine that a node comes from: 3 MB in an encoder of two layers.
    """
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass, DeduplicateInitializersPass

    ClearMetadataAndDocStringPass()(model)
    DeduplicateInitializersPass(size_limit=LARGEST_TABLE)(model)


def forget_weights(path: Path) -> None:
    """Remove the shapes that a saved graph repeats for its weights.

    A quantiser transposes weights, and then meets the former shape of a matrix that is not square.
    """
    import onnx

    model = onnx.load(path, load_external_data=False)
    weights = {weight.name for weight in model.graph.initializer}
    others = [value for value in model.graph.value_info if value.name not in weights]
    del model.graph.value_info[:]
    model.graph.value_info.extend(others)
    path.write_bytes(model.SerializeToString())


@torch.no_grad()
def largest_difference(outputs: Outputs, path: Path, names: tuple[str, ...]) -> float:
    """The largest difference between the outputs of a graph in onnxruntime and those of its model, in units of the
    largest output of the model where that is more than 1.

    onnxruntime computes an ELU as exp(x) - 1. Near zero that is off by 6e-8, a relative error which layer norms pass
    on: the outputs of a DiSAN stack differ by 1e-5 at values around 3.

    Raises:
        RuntimeError: it is too large.
    """
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.log_severity_level = 3  # errors; the exporter leaves unused constants behind
    session = InferenceSession(path, options, providers=["CPUExecutionProvider"])
    model, largest = outputs.model, 0.0
    for shape in ((2, 9), (5, 40), (1, 1), (2, min(3 * example_length(model) + 1, most_tokens(model)))):
        inputs = random_inputs(model, names, *shape)
        found = session.run(None, {name: value.numpy() for name, value in inputs.items()})
        for name, value, expected in zip(outputs.names, found, outputs(**inputs), strict=True):
            difference = float((torch.from_numpy(value) - expected).abs().max()) / max(
                1.0, float(expected.abs().max())
            )
            if not difference <= TOLERANCE:
                raise RuntimeError(
                    f"{name} of the graph differs by {difference} from the model's for inputs of shape {shape}, so it "
                    "was not written; please report it with the model's config.json"
                )
            largest = max(largest, difference)
    return largest


def quantize(path: Path) -> Path:
    """Write a graph again with its weights in int8, as NAME_quantized.onnx next to it, and return the new path.

    Activations are quantised when the graph runs, each tensor by its range (onnxruntime's dynamic quantisation).
    """
    from onnxruntime.quantization import quantize_dynamic

    quantized = path.with_stem(f"{path.stem}_quantized")
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{quantized.name}.") as folder:
        temporary = Path(folder, quantized.name)
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)  # it names each tensor that it leaves as it is
        try:
            large = path.with_name(f"{path.name}.data").exists()
            quantize_dynamic(path, temporary, use_external_data_format=large)
        finally:
            logging.disable(before)
        for file in sorted(Path(folder).iterdir(), reverse=True):  # the graph after its data
            os.replace(file, quantized.with_name(file.name))
    return quantized


def load_exportable(name: str) -> nn.Module:
    """A saved model in the class that it was saved from, with its head.

    Raises:
        InputError: there is no model, it lacks weights, it is not one of this package, or a graph lacks one of its
            inputs.
    """
    config = read_config(name)
    if config.model_type not in FAMILIES:
        raise InputError(f"the model at {name!r} is of type {config.model_type}; choose one of {', '.join(FAMILIES)}")
    architecture = (config.architectures or [f"{FAMILIES[config.model_type]}Model"])[0]
    if architecture not in MODULES:
        raise InputError(f"the model at {name!r} is of class {architecture}; choose one of {', '.join(MODULES)}")
    if not kind_of(config).has_graph:
        raise InputError(
            f"the model at {name!r} is of class {architecture}, whose inputs have three dimensions; export an "
            "encoder, a classification, a pair regression or a tagger"
        )
    if config.predicate_size:
        raise InputError(f"the model at {name!r} takes a predicate_mask, which graphs lack; export another model")
    with quiet_transformers(), loading(name):
        model, report = load(architecture).from_pretrained(locate(name), config=config, **LOADED_WITH_REPORT)
    check_complete(name, config, report)
    return model


def export(name: str, output: str | Path) -> str:
    """Write a saved model as an ONNX graph, and return a sentence that says what was done.

    Args:
        name: a folder, an encoder that comes with the package, or a name on the Hub.
        output: a file that ends in .onnx; or a folder, which gets onnx/model.onnx, onnx/model_quantized.onnx, the
            configuration and the tokenizer. The folder of the model itself keeps its configuration and tokenizer.

    Raises:
        InputError: there is no such model, its weights or outputs are not finite, its vectors go through other modules
            of sentence-transformers, the output is a misspelt file or the folder of another model, or the packages of
            the extra ``export`` are missing.
        RuntimeError: the graph does not compute what the model computes.
    """
    output = Path(output)
    to_folder = output.is_dir() or output.suffix != ".onnx"
    path = output / "onnx" / "model.onnx" if to_folder else output
    require("export needs", "export", *PACKAGES)
    if to_folder and not output.exists() and get_close_matches(output.suffix.lower(), [".onnx"]):
        remedy = "give a file that ends in .onnx, or a folder of another name"
        raise InputError(f"output {output} ends in {output.suffix}; {remedy}")
    check_writable("output", output if to_folder else path, folder=to_folder)
    beside = to_folder and output.resolve() != Path(locate(name)).resolve()  # gets a configuration and a tokenizer
    others = [*output.glob("*.safetensors"), *output.glob("*.bin"), *output.glob("config.json")]
    if beside and others and not (path.exists() and others == [output / "config.json"]):
        raise InputError(
            f"output folder {output} has another model, whose configuration would be lost; give another folder"
        )
    model, tokenizer = load_exportable(name), None
    if cached_file(locate(name), "tokenizer_config.json", _raise_exceptions_for_missing_entries=False):
        tokenizer = load_tokenizer(name, model.config)
        check_type_ids(tokenizer, model.config, name)
    check_weights(model)
    normalized = "sentence_embedding" in output_names(model) and is_normalized(name)
    logger.info("tracing and converting %s, which takes ten seconds or more", type(model).__name__)
    difference = export_onnx(model, path, tokenizer, normalized=normalized)
    done = f"{type(model).__name__} as ONNX, opset {OPSET}, in {path}"
    done += f"; its outputs differ from the model's by at most {difference:.1g}"
    if not to_folder:
        return done
    if beside:
        config = copy.deepcopy(model.config)
        for entry in ("auto_map", "custom_pipelines"):  # these name the model's code, which is not there
            vars(config).pop(entry, None)
        config.save_pretrained(output)
        if tokenizer is not None:
            tokenizer.save_pretrained(output)
    return f"{done}\nthe same with weights in int8, in {quantize(path)}"


def run_command(options: ExportArguments) -> None:
    """``hf-blosan export``."""
    print(export(options.model, options.output))
