"""Models as ONNX graphs in onnxruntime, and the command that writes them."""

import json
import shutil
import sys
from functools import partial
from unittest.mock import patch

import numpy as np
import onnx
import onnx_ir
import pytest
import torch
from onnx import helper
from onnxruntime import InferenceSession, SessionOptions
from safetensors.torch import load_file, save_file
from small_data import write_backbone
from test_graphs import ENCODERS, TASKS, build, inputs
from test_models import make
from torch.nn import functional as F
from transformers import AutoModel, AutoModelForSequenceClassification

from benchmarks import onnx as benchmark
from hf_blosan import BiBloSANConfig, BiBloSANModel, export
from hf_blosan.cli.commands import main
from hf_blosan.errors import install
from hf_blosan.export import example_length, most_tokens
from hf_blosan.kernels import directional_attention_graph, operators_of_graphs
from hf_blosan.kernels.directional.graph_functions import add_functions
from hf_blosan.models.equations import directional_attention
from hf_blosan.models.layers import Pooler
from hf_blosan.text.tokenization import build_tokenizer

TEN_SHAPES = ((1, 1), (1, 2), (2, 1), (2, 5), (3, 23), (5, 9), (7, 4), (1, 64), (4, 40), (9, 16))
TEXTS = ["the cat sat on the mat", "dogs bark"]


def nodes(graph):
    """All nodes of a graph, those of loops included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from nodes(attribute.g)


def check(session, model, batch):
    found = session.run(None, {name: value.numpy() for name, value in batch.items()})
    output = model(**batch)
    for name, value in zip(export.output_names(model), found, strict=True):
        torch.testing.assert_close(torch.from_numpy(value), output[export.NAMES[name]], rtol=1e-5, atol=1e-5)


@pytest.mark.slow  # the command, below, compares a graph with its model too
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_the_graph_computes_what_the_model_computes(encoder, task, tmp_path):
    model, path = build(encoder, task), tmp_path / "model.onnx"
    assert export.export_onnx(model, path) < 1e-5
    session = InferenceSession(path)
    assert [x.name for x in session.get_outputs()] == list(export.output_names(model))
    assert all(x.shape == ["batch", "length"] for x in session.get_inputs())
    for shape in TEN_SHAPES:
        batch = inputs(task, *shape)
        check(session, model, batch)
        check(session, model, {name: F.pad(value, (3, 2)) for name, value in batch.items()})
    graph = onnx.load(path)
    encoder = model.base_model
    kinds, single = {node.op_type for node in graph.graph.node}, encoder.config.num_hidden_layers == 1
    assert ("Unique" in kinds) == (single and encoder.takes_words)
    assert ("NonZero" in kinds) == (single and isinstance(encoder.pooler, Pooler))
    assert [(opset.domain, opset.version) for opset in graph.opset_import if not opset.domain] == [("", export.OPSET)]
    called = {node.op_type for node in nodes(graph.graph)} | {
        node.op_type for function in graph.functions for node in function.node
    }
    known = {schema.name for schema in onnx.defs.get_all_schemas()} | {function.name for function in graph.functions}
    assert called <= known


@torch.no_grad()
def test_hooks_see_the_tokens_of_every_row(tmp_path):
    """As they do in the model: not the distinct words, which have no order."""
    model, path = make(AutoModel, "disan"), tmp_path / "model.onnx"

    def add_positions(module, inputs, embedded):
        return embedded + torch.arange(embedded.shape[1])[:, None] / 10

    model.embeddings.register_forward_hook(add_positions)
    assert export.export_onnx(model, path) < 1e-5
    check(InferenceSession(path), model, inputs("encoder", 3, 9))


@pytest.mark.slow
@torch.no_grad()
def test_parts_of_weights_are_constants(tmp_path):
    """A quantiser leaves weights alone that are computed when the graph runs."""
    config = BiBloSANConfig(vocab_size=50, embedding_size=200, hidden_size=400, block_length=3)
    export.export_onnx(BiBloSANModel(config), tmp_path / "model.onnx")
    graph = onnx.load(tmp_path / "model.onnx").graph
    weights = {weight.name: tuple(weight.dims) for weight in graph.initializer}
    shapes = [weights.get(node.input[1]) for node in graph.node if node.op_type == "MatMul"]
    # Of the pooler; of keys and queries, and of mapped, local and block in the fusion, in two directions.
    assert (shapes.count((400, 400)), shapes.count((200, 400))) == (2, 8) and None not in shapes


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@torch.no_grad()
def test_a_model_in_half_precision(dtype, tmp_path):
    """Its graph computes in float32, for which onnxruntime has every operator."""
    model = build("wordbag", "encoder").to(dtype)
    assert export.export_onnx(model, tmp_path / "model.onnx") < 1e-5 and model.dtype == dtype
    check(InferenceSession(tmp_path / "model.onnx"), model.float(), inputs("encoder", 3, 9))


@torch.no_grad()
def test_mtsa_with_low_scores(tmp_path):
    """As trained models have them, down to where onnxruntime's sigmoid is 0."""
    model = build("mtsa", "encoder")
    for parameter in model.parameters():
        parameter *= 6
    scores = []
    sigmoid = torch.nn.functional.logsigmoid
    with patch.object(torch.nn.functional, "logsigmoid", lambda x: scores.append(x.min()) or sigmoid(x)):
        model.set_attn_implementation("eager")
        model(**inputs("encoder", 3, 23))
    assert min(scores) < -25
    model.set_attn_implementation("auto")
    export.export_onnx(model, tmp_path / "model.onnx")
    check(InferenceSession(tmp_path / "model.onnx"), model, inputs("encoder", 3, 23))


class Translated(torch.nn.Module):
    def forward(self, x, y, gate):
        others = x.softmax(0), x.softmax(-1), F.elu(x), F.elu(x, alpha=0.5), F.selu(x)
        return torch.lerp(x, y, gate), F.gelu(x), F.gelu(y, approximate="tanh"), *others


def test_translations_of_operators(tmp_path):
    inputs = tuple(torch.randn(3, 2, 5, generator=torch.Generator().manual_seed(0)))
    program = torch.onnx.export(
        Translated().eval(), inputs, custom_translation_table=export.translations(), dynamo=True, verbose=False
    )
    program.save(tmp_path / "model.onnx")
    options = SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(tmp_path / "optimized.onnx"), 3
    session = InferenceSession(tmp_path / "model.onnx", options)
    found = session.run(None, {x.name: y.numpy() for x, y in zip(session.get_inputs(), inputs, strict=True)})
    for value, expected in zip(found, Translated()(*inputs), strict=True):
        torch.testing.assert_close(torch.from_numpy(value), expected, rtol=0, atol=1e-6)
    operators = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert operators.count("Gelu") == 1 and "Erf" not in operators and "Where" not in operators
    assert operators.count("Softmax") == 1 and operators.count("Elu") == 1


@pytest.mark.slow
@torch.no_grad()
def test_long_sentences_take_time_in_proportion(tmp_path):
    """Each attention has loops for long sentences, for their wide features, for all of wide ranges and for short
    sentences, and asks for the ranges of those that are not short, whether pairs are few, and terms few or many."""
    model = make(AutoModel, "disan")
    export.export_onnx(model, tmp_path / "model.onnx")
    operators = [node.op_type for node in nodes(onnx.load(tmp_path / "model.onnx").graph)]
    assert operators.count("If") == 16 and operators.count("Scan") == 8
    # onnxruntime before 1.24 runs the loops of terms only if it knows how many dimensions their results have.
    loops = [node for node in nodes(onnx.load(tmp_path / "model.onnx").graph) if node.op_type == "Scan"]
    bodies = [attribute.g for loop in loops for attribute in loop.attribute if attribute.name == "body"]
    made_by = [{name: node.op_type for node in body.node for name in node.output} for body in bodies]
    results = [[made[x.name] for x in body.output] for made, body in zip(made_by, bodies, strict=True)]
    assert results.count(["Reshape", "Pad"]) == 2  # the first, and what is padded, to a constant shape
    session = InferenceSession(tmp_path / "model.onnx")
    for length in (8, 30, 500):
        check(session, model, inputs("encoder", 2, length))


HALF_RANGES = (0.1, 2.0, 6.0, 12.0, 30.0, torch.tensor([6.0, 30.0, 0.1, 2.0, 20.0]))
"""Of all features, or of each; the expansion is left where it is wider than 13.7."""


def attention_of_graphs(direction, windows=(None,), scale=5.0):
    """The operators that attention is traced as, in onnxruntime: functions of keys, queries, values, bias and mask."""
    nodes = []
    for window in windows:
        name = "attention" if window is None else "window"
        attributes = {"scale": scale} | ({} if window is None else {"window": window})
        place = {"outputs": [f"y{len(nodes)}"], "domain": f"hf_blosan.{direction}"}
        nodes.append(helper.make_node(name, ["k", "q", "v", "r"], **place, **attributes))
    names = [*"kqv", *(node.output[0] for node in nodes)]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["b", "n", "d"]) for name in names]
    real = helper.make_tensor_value_info("r", onnx.TensorProto.BOOL, ["b", "n"])
    graph = helper.make_graph(nodes, "attention", [*values[:3], real], values[3:])
    opsets = [helper.make_opsetid("", export.OPSET), helper.make_opsetid(f"hf_blosan.{direction}", 1)]
    model = onnx_ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    add_functions(model)
    export.forget_shapes(model.graph)
    session = InferenceSession(onnx_ir.to_proto(model).SerializeToString())

    def attend(output, keys, queries, values, bias, key_mask):
        tensors = {"k": keys, "q": queries + bias, "v": values, "r": key_mask}
        return torch.from_numpy(session.run([output], {name: x.numpy() for name, x in tensors.items()})[0])

    return [partial(attend, node.output[0]) for node in nodes]


@pytest.mark.parametrize("direction", ("forward", "backward", "diagonal", "full"))
@torch.no_grad()
def test_attention_of_graphs_computes_the_equation(direction):
    """Within the errors that it states, for every range of keys and queries, and rows of any length in any order, some
    without tokens or with padding on both sides."""
    windows = (None, 5, 70)
    forms = dict(zip(windows, attention_of_graphs(direction, windows), strict=True))
    for window in (0, 3):  # without a loop, in operators of torch
        forms[window] = partial(directional_attention_graph, direction=direction, window=window)
    generator = torch.Generator().manual_seed(0)
    for length in (420, 150, 31, 11, 1):  # the first has too many pairs for one step
        starts, ends = torch.tensor([[0, length // 4, 0], [(length + 1) // 2, length, 0]])[:, :, None]
        mask = (torch.arange(length) >= starts) & (torch.arange(length) < ends)
        for half_range in HALF_RANGES:
            keys, queries, values, bias = torch.rand(4, 3, length, 5, generator=generator).mul(2).sub(1)
            keys, queries, bias = keys * half_range + 3, queries * half_range - 3, bias[0, 0]
            keys[~mask], queries[~mask] = 1e4, -1e4
            tensors = [x.double() for x in (keys, queries, values)]
            for window, attend in forms.items():
                found = attend(keys, queries, values, bias=bias, key_mask=mask)
                options = {"direction": direction, "window": window, "key_mask": mask}
                expected = directional_attention(*tensors, bias=bias.double(), **options)
                error, most = (found - expected)[mask].abs().max(), 5e-6
                if window is None and half_range is HALF_RANGES[3]:
                    most = 1e-4
                assert error < most, (window, length, half_range)


@torch.no_grad()
def test_attention_of_graphs_takes_other_scales_masks_of_pairs_and_short_rows():
    keys, queries, values = torch.rand(3, 2, 90, 5, generator=torch.Generator().manual_seed(0))
    token_mask, real = torch.rand(2, 90, 90) < 0.5, torch.ones(2, 90, dtype=torch.bool)

    def expected(length=90, **options):
        tensors = [x[:, :length].double() for x in (keys, queries, values)]
        return directional_attention(*tensors, direction="forward", **options)

    def check(found, **options):
        torch.testing.assert_close(found.double(), expected(**options), rtol=0, atol=5e-6)

    for scale in (0.5, 20.0):
        (attend,) = attention_of_graphs("forward", scale=scale)
        check(attend(keys, queries, values, 0.0, real), scale=scale)
    options = {"direction": "forward", "token_mask": token_mask}
    check(directional_attention_graph(keys, queries, values, **options), token_mask=token_mask)
    for length in (1, 4, 9):
        tensors = [x[:, :length] for x in (keys, queries, values)]
        with operators_of_graphs():
            check(directional_attention_graph(*tensors, direction="forward"), length=length)


@torch.no_grad()
def test_a_graph_by_torch_itself(tmp_path):
    """It computes all pairs at once, in operators of torch."""
    model, batch = make(AutoModel, "disan"), inputs("encoder", 3, 23)
    shapes = {name: {0: "batch", 1: "length"} for name in batch}
    outputs, path = export.Outputs(model).eval(), tmp_path / "model.onnx"
    torch.onnx.export(outputs, kwargs=batch, f=path, dynamic_shapes=shapes, dynamo=True, verbose=False)
    check(InferenceSession(path), model, inputs("encoder", 2, 40))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model of pairs with its tokenizer."""
    folder = tmp_path_factory.mktemp("saved")
    tokenizer = build_tokenizer(TEXTS)
    head = {"num_sentences": 2, "classifier_size": 20}  # its maps are not square
    make(AutoModelForSequenceClassification, "wordbag", **head).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, tokenizer


def test_the_command_writes_a_file(saved, tmp_path, capsys):
    folder, tokenizer = saved
    path = tmp_path / "new" / "pairs.onnx"
    assert main(["export", str(folder), str(path)]) == 0
    assert [file.name for file in path.parent.iterdir()] == ["pairs.onnx"]
    assert "opset 18" in capsys.readouterr().out
    graph = onnx.load(path).graph  # it says nothing about the machine that wrote it
    assert not any(node.metadata_props or node.doc_string for node in nodes(graph)) and not graph.metadata_props
    tables = [weight.raw_data for weight in graph.initializer if weight.data_type == onnx.TensorProto.DOUBLE]
    assert len(tables) == len(set(tables))
    encoded = tokenizer(TEXTS, TEXTS[::-1], padding=True, return_tensors="np")
    (logits,) = InferenceSession(path).run(None, dict(encoded))
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    expected = model(**tokenizer(TEXTS, TEXTS[::-1], padding=True, return_tensors="pt")).logits
    np.testing.assert_allclose(logits, expected.detach(), atol=1e-5)


@pytest.mark.slow
def test_the_command_writes_a_folder(saved, tmp_path, capsys):
    """Of the layout that other programs read, with weights in int8 too; into the model's own folder as well."""
    folder, tokenizer = saved
    assert main(["export", str(folder), str(tmp_path / "new")]) == 0
    own = shutil.copytree(folder, tmp_path / "own")
    before = {path.name: path.read_bytes() for path in own.iterdir()}
    assert main(["export", str(own), str(own)]) == 0
    assert {path.name: path.read_bytes() for path in own.iterdir() if path.is_file()} == before
    assert "in int8, in" in capsys.readouterr().out
    encoded = dict(tokenizer(TEXTS, TEXTS[::-1], padding=True, return_tensors="np"))
    for written in (tmp_path / "new", own):
        assert {"config.json", "tokenizer.json", "onnx"} <= {path.name for path in written.iterdir()}
        config = json.loads((written / "config.json").read_text())
        assert ("auto_map" in config) == any(written.glob("modeling_*.py")) == (written == own)
        assert sorted(path.name for path in (written / "onnx").iterdir()) == ["model.onnx", "model_quantized.onnx"]
        graphs = [written / "onnx" / name for name in ("model.onnx", "model_quantized.onnx")]
        (exact,), (rounded,) = (InferenceSession(path).run(None, encoded) for path in graphs)
        np.testing.assert_allclose(rounded, exact, atol=0.05)
        weights = onnx.load(graphs[1]).graph.initializer
        assert any(weight.data_type == onnx.TensorProto.INT8 for weight in weights)


@pytest.mark.slow
@pytest.mark.parametrize("normalized", [False, True])
def test_outputs_have_the_names_that_other_programs_know(normalized, tmp_path):
    """Sentence vectors first, for those that take the first output."""
    model = make(AutoModel, "wordbag")
    export.export_onnx(model, tmp_path / "model.onnx", normalized=normalized)
    session = InferenceSession(tmp_path / "model.onnx")
    assert [output.name for output in session.get_outputs()] == [
        "sentence_embedding",
        "token_embeddings",
        "last_hidden_state",
    ]
    assert {x.type for x in session.get_inputs()} == {"tensor(int64)"}
    batch = inputs("encoder", 3, 7)
    vectors, *tokens = session.run(None, {name: value.numpy() for name, value in batch.items()})
    output = model(**batch)
    expected = output.pooler_output.detach()
    np.testing.assert_allclose(vectors, F.normalize(expected) if normalized else expected, atol=1e-5)
    for found in tokens:
        np.testing.assert_allclose(found, output.last_hidden_state.detach(), atol=1e-5)


def test_modules_after_the_encoder(tmp_path, monkeypatch, capsys):
    """As in ``encode`` and ``serve``: a Normalize is applied, others are refused."""
    given = []
    monkeypatch.setattr(export, "export_onnx", lambda *_, normalized: given.append(normalized) or 0.0)
    folder = tmp_path / "encoder"
    make(AutoModel, "wordbag").save_pretrained(folder)
    modules = json.loads((folder / "modules.json").read_text())
    for added in ("Normalize", "Dense"):
        (folder / "modules.json").write_text(json.dumps([*modules, {"type": f"sentence_transformers.models.{added}"}]))
        assert main(["export", str(folder), str(tmp_path / "x.onnx")]) == (0 if added == "Normalize" else 2)
    assert given == [True] and "need Dense (modules.json) of sentence-transformers" in capsys.readouterr().err


def test_no_sentence_is_longer_than_the_backbone(tmp_path):
    bert = str(write_backbone(tmp_path / "bert", ["a", "cat"]))
    for block_length, length in ((8, 184), (30, 320)):
        model = BiBloSANModel(BiBloSANConfig(backbone=bert, block_length=block_length, hidden_size=8))
        assert example_length(model) == length and most_tokens(model) == 320


@pytest.mark.slow
def test_a_failure_leaves_no_file(saved, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "TOLERANCE", -1.0)
    with pytest.raises(RuntimeError, match="logits of the graph differs"):
        main(["export", str(saved[0]), str(tmp_path / "pairs.onnx")])
    assert not list(tmp_path.iterdir())


def test_bad_input_is_one_sentence(saved, tmp_path, capsys, monkeypatch):
    def error(model):
        capsys.readouterr()
        assert main(["export", str(model), str(tmp_path / "x.onnx")]) == 2
        captured = capsys.readouterr().err
        assert captured.startswith("error: ") and captured.count("\n") == 1
        return captured

    assert "no saved model at" in error(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    assert main(["export", "nowhere", str(tmp_path / "file" / "e.onnx")]) == 2
    assert "file is a file; give another path" in capsys.readouterr().err
    assert main(["export", str(saved[0]), str(tmp_path / "x.onxx")]) == 2
    assert "x.onxx ends in .onxx; give a file that ends in .onnx" in capsys.readouterr().err
    other = shutil.copytree(saved[0], tmp_path / "other")
    weights = load_file(other / "model.safetensors")
    encoder = {name: weight for name, weight in weights.items() if not name.startswith("classifier")}
    save_file(encoder, other / "model.safetensors", {"format": "pt"})
    assert "has no weights classifier." in error(other)
    (other / "config.json").write_text('{"model_type": "bert"}')
    assert "is of type bert; choose one of disan" in error(other)
    (other / "config.json").write_text('{"model_type": "disan", "architectures": ["DiSANForMaskedLM"]}')
    assert "is of class DiSANForMaskedLM; choose one of" in error(other)
    capsys.readouterr()
    for _ in range(2):  # would overwrite its config.json; then without weights
        assert main(["export", str(saved[0]), str(other)]) == 2
        assert f"output folder {other} has another model, whose configuration would be lost" in capsys.readouterr().err
        (other / "model.safetensors").unlink(missing_ok=True)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert f"export needs onnxscript; {install('export')}" in error(saved[0])
    assert not (tmp_path / "x.onnx").exists()


@pytest.mark.slow
def test_the_benchmark_from_command_to_table(tmp_path, capsys):
    path = tmp_path / "onnx.json"
    options = ("--models", "wordbag", "--shapes", "1x3,2x5", "--threads", "1", "--repeats", "1")
    assert benchmark.main(["--output", str(path), *options]) == 0
    report = json.loads(path.read_text())
    assert report["header"]["versions"]["onnxruntime"] and len(report["rows"]) == 3
    for row in report["rows"]:
        assert row["ratio"] > 0 and row["difference"] < 1e-5
    assert "| wordbag | " in path.with_suffix(".md").read_text()
    assert benchmark.main(["--output", str(path), "--models", "bert"]) == 2
    assert "--models bert: there is no such choice" in capsys.readouterr().err
