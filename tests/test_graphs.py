"""Graphs of whole models serve every batch size and length: torch.compile, torch.export, torch.jit.trace."""

import io
import random

import pytest
import torch
from test_masks import MASKABLE, random_pairs
from test_models import MODEL_TYPES, make, pairs, sentences
from torch._dynamo.testing import CompileCounterWithBackend
from torch.export import Dim
from transformers import AutoModel, AutoModelForSequenceClassification

from hf_blosan import AutoModelForPairRegression
from hf_blosan.registry import FAMILIES

TASKS = {
    "encoder": (AutoModel, 1),
    "classifier": (AutoModelForSequenceClassification, 1),
    "pairs": (AutoModelForSequenceClassification, 2),
    "regression": (AutoModelForPairRegression, 2),
}
# Encoders with another path through the code than their family's default.
VARIANTS = {
    "disan-stack": ("disan", {"num_hidden_layers": 3}),
    "biblosan-stack": ("biblosan", {"num_hidden_layers": 2, "formulation": "paper"}),
    "mtsa-stack": ("mtsa", {"num_hidden_layers": 3, "distance_decay": True, "fusion_gate": True}),
    "gru": ("birnn", {"cell": "gru"}),
    "sru": ("birnn", {"cell": "sru", "embedding_size": 6}),
    "sru_normal": ("birnn", {"cell": "sru_normal", "embedding_size": 6}),
    "wordbag-plain": ("wordbag", {"dense_map": False, "hidden_size": 10}),
}
ENCODERS = {name: (name, {}) for name in MODEL_TYPES} | VARIANTS
# Every encoder in both forms on pairs, and every family with the other heads. Heads do not know the form.
CASES = [(encoder, "pairs", form) for encoder in ENCODERS for form in ("auto", "eager")]
CASES += [(encoder, task, "auto") for encoder in FAMILIES for task in TASKS if task != "pairs"]
# Batch size and length. torch specialises sizes of 0 and 1, so sentences that come alone are a graph of their own.
SHAPES = ((4, 9), (3, 7), (6, 12), (2, 5), (5, 31), (1, 8), (1, 17), (7, 3), (9, 40), (3, 2), (2, 64), (8, 20))


# torch has another convolution for 16 rows and more, which is a graph of its own: no batch of 1 beside it.
CONVOLUTIONS = ("textcnn", "textcnn-max", "textcnn-hierarchical")


def shapes_of(encoder):
    return [(2, length) if batch == 1 and encoder in CONVOLUTIONS else (batch, length) for batch, length in SHAPES]


def build(encoder, task, implementation="auto"):
    name, fields = ENCODERS[encoder]
    auto_class, num_sentences = TASKS[task]
    model = make(auto_class, name, num_sentences=num_sentences, **fields)
    model.set_attn_implementation(implementation)
    return model


def inputs(task, batch, length, seed=0):
    """A padded batch of random sentences or pairs of different lengths; the first fills its row."""
    rng = random.Random(seed)
    lengths = [length, *(rng.randint(1, length) for _ in range(batch - 1))]
    if TASKS[task][1] == 1:
        return sentences(*lengths, seed=seed)
    return pairs(*((first := rng.randint(0, n - 1), n - first) for n in lengths), seed=seed)


def every(fast):
    """All cases, only some of them in the fast tests."""
    cases = (pytest.param(*case, marks=[] if fast(*case) else pytest.mark.slow) for case in CASES)
    return pytest.mark.parametrize("encoder, task, implementation", cases)


def compile_and_count(model, backend="eager", **options):
    torch.compiler.reset()
    counter = CompileCounterWithBackend(backend)
    return torch.compile(model, backend=counter, fullgraph=True, **options), counter


def same(found, expected, **tolerance):
    """Whether two outputs of a model agree."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, **tolerance)


@every(lambda encoder, task, form: task == "pairs" and form == "auto" and encoder == "disan")
def test_torch_compile_needs_few_graphs(encoder, task, implementation):
    model = build(encoder, task, implementation)
    compiled, counter = compile_and_count(model)
    for shape in shapes_of(encoder):
        batch = inputs(task, *shape)
        same(compiled(**batch), model(**batch))
    assert counter.frame_count <= 3, counter.graphs


@pytest.mark.parametrize(
    "encoder, fields",
    [
        ("biblosan", {"block_length": 3, "mask_padding_blocks": False}),
        ("textcnn", {"pooling": "max", "mask_padding": False}),
        ("textcnn", {"architecture": "hierarchical", "mask_padding": False}),
    ],
)
def test_pairs_whose_vectors_depend_on_padding_have_no_graph(encoder, fields):
    model = make(AutoModelForSequenceClassification, encoder, num_sentences=2, **fields)
    batch, message = inputs("pairs", 3, 9), "num_sentences=2: vectors of pairs depend on the longest sentence"
    with pytest.raises(ValueError, match=message):
        torch.export.export(model, (), batch, strict=False)
    with pytest.raises(ValueError, match=message):
        torch.compile(model, backend="eager")(**batch)
    encoder_of_pairs = make(AutoModel, encoder, num_sentences=1, **fields)
    torch.export.export(encoder_of_pairs, (), inputs("encoder", 3, 9), strict=False)
    single = make(AutoModelForSequenceClassification, encoder, **fields)
    torch.export.export(single, (), inputs("classifier", 3, 9), strict=False)


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ENCODERS)
def test_sentences_of_one_word(encoder):
    """With dynamic=True a graph for sizes from 2 on, one for batches of 1 and one for lengths of 1 are all."""
    model = build(encoder, "classifier")
    compiled, counter = compile_and_count(model, dynamic=True)
    for shape in ((4, 9), (1, 7), (5, 1), (1, 31), (9, 1), (2, 64)):
        batch = inputs("classifier", *shape)
        same(compiled(**batch), model(**batch))
    assert counter.frame_count == 3


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("implementation", ["auto", "eager"])
def test_training_needs_few_graphs(encoder, implementation):
    model = build(encoder, "pairs", implementation).train()
    model.config.problem_type = "single_label_classification"  # a graph with a scan cannot set it
    compiled, counter = compile_and_count(model, "aot_eager")
    parameters = [p for p in model.parameters() if p.requires_grad]
    for shape in shapes_of(encoder)[::2]:
        batch = inputs("pairs", *shape) | {"labels": torch.zeros(shape[0], dtype=torch.long)}
        found, expected = compiled(**batch), model(**batch)
        same(found, expected)
        gradients = [torch.autograd.grad(output.loss, parameters) for output in (found, expected)]
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert counter.frame_count <= 3


@pytest.mark.parametrize("model_type", MASKABLE)
@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["auto", "eager", "fused", "linear"])
def test_a_token_mask_and_windows_in_few_graphs(model_type, implementation):
    model = make(AutoModelForSequenceClassification, model_type, num_sentences=2, windows=[3, None])
    model.set_attn_implementation(implementation)
    compiled, counter = compile_and_count(model)
    for batch, length in SHAPES:
        batch = inputs("pairs", batch, length) | {"token_mask": random_pairs(batch, length, length)}
        same(compiled(**batch), model(**batch))
    assert counter.frame_count <= 3


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ENCODERS)
def test_inductor_needs_few_graphs(encoder):
    model = build(encoder, "pairs")
    compiled, counter = compile_and_count(model, "inductor")
    with torch.no_grad():
        for shape in shapes_of(encoder)[::2]:
            batch = inputs("pairs", *shape)
            same(compiled(**batch), model(**batch), rtol=1e-4, atol=1e-5)
    assert counter.frame_count <= 3


DIMENSIONS = {"auto": (Dim.AUTO, Dim.AUTO), "named": (Dim("batch"), Dim("length"))}


def check_export(encoder, task, implementation, dimensions, strict):
    model = build(encoder, task, implementation)
    batch = inputs(task, 3, 23)
    shapes = {name: dict(enumerate(DIMENSIONS[dimensions])) for name in batch}
    program = torch.export.export(model, (), batch, dynamic_shapes=shapes, strict=strict).module()
    for shape in SHAPES[::2]:
        batch = inputs(task, *shape)
        same(program(**batch), model(**batch))


@every(lambda encoder, task, form: task == "pairs" and form == "auto" and encoder == "biblosan")
def test_exported_programs_serve_every_shape(encoder, task, implementation):
    check_export(encoder, task, implementation, "named", strict=False)


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("dimensions, strict", [("named", True), ("auto", False), ("auto", True)])
def test_other_ways_to_export(encoder, dimensions, strict):
    check_export(encoder, "pairs", "auto", dimensions, strict)


# A loop in Python is recorded as so many steps: traces of these serve one length.
UNROLLED = [("gru", "auto"), *((cell, "eager") for cell in ("birnn", "gru", "sru", "sru_normal"))]


@every(lambda encoder, task, form: task == "pairs" and form == "auto" and encoder in FAMILIES)
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_traces_serve_every_shape(encoder, task, implementation):
    model = build(encoder, task, implementation)
    model.config.return_dict = False
    file = io.BytesIO()
    with torch.no_grad():
        torch.jit.save(torch.jit.trace(model, example_kwarg_inputs=inputs(task, 3, 23)), file)
        file.seek(0)
        traced = torch.jit.load(file)
        for shape in SHAPES[::2]:
            batch = inputs(task, *shape)
            if (encoder, implementation) in UNROLLED and shape[1] != 23:
                with pytest.raises(RuntimeError, match="elements"):
                    traced(**batch)
            else:
                torch.testing.assert_close(traced(**batch), model(**batch))
    torch.jit.trace(model, example_kwarg_inputs=inputs(task, 3, 23))  # compares it with a trace without gradients
