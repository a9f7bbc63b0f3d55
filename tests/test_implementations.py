"""Choosing how attention is computed, model by model, and that every choice is the same function."""

import json

import pytest
import torch
from test_models import MODEL_TYPES, make, sentences
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from transformers import AutoModel, AutoModelForSequenceClassification

from hf_blosan import functional as F
from hf_blosan.kernels.library import NAMESPACE, has_cpu_kernels
from hf_blosan.models.encoder import needs_rows
from hf_blosan.models.layers import Part
from hf_blosan.models.layers_heads import HeadLinear

# There is nothing to choose where neither context nor pooler attends.
ENCODERS = [name for name in MODEL_TYPES if name != "textcnn-max"]
every_encoder = pytest.mark.parametrize("model_type", ENCODERS)
every_implementation = pytest.mark.parametrize("implementation", F.IMPLEMENTATIONS)


def used(model):
    return {module.implementation for module in model.modules() if hasattr(module, "implementation")}


@every_encoder
def test_selection(model_type, tmp_path):
    model = make(AutoModelForSequenceClassification, model_type)
    assert model.config._attn_implementation == "auto" and used(model) == {"auto"}
    model.set_attn_implementation("linear")
    assert model.config._attn_implementation == "linear" and used(model) == {"linear"}
    with pytest.raises(ValueError, match="attn_implementation is 'sdpa'; choose one of auto, eager, fused, linear"):
        model.set_attn_implementation("sdpa")
    model.save_pretrained(tmp_path)
    assert "attn" not in json.dumps(json.loads((tmp_path / "config.json").read_text()))
    assert used(AutoModel.from_pretrained(tmp_path)) == {"auto"}
    loaded = AutoModel.from_pretrained(tmp_path, attn_implementation="eager")
    assert used(loaded) == {"eager"}
    with pytest.raises(ValueError, match="'flash'; choose one of"):
        AutoModel.from_pretrained(tmp_path, attn_implementation="flash")


class Calls(TorchDispatchMode):
    """Notes the package's own operators that are called."""

    def __init__(self):
        super().__init__()
        self.own = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == NAMESPACE:
            self.own.add(function.name())
        return function(*args, **(kwargs or {}))


@every_encoder
def test_eager_is_torch_alone(model_type):
    """So that it works under every transform of torch.func and has derivatives of every order."""
    model = make(AutoModelForSequenceClassification, model_type)
    model.set_attn_implementation("eager")
    with Calls() as calls:
        model(**sentences(9, 5)).logits.sum().backward()
        with torch.no_grad():
            model(**sentences(9, 5))
    assert not calls.own
    model.set_attn_implementation("auto")
    with Calls() as calls, torch.no_grad():
        model(**sentences(9, 5))
    assert calls.own or not has_cpu_kernels()


@every_encoder
@every_implementation
def test_implementations_are_one_function(model_type, implementation):
    batch = sentences(40, 23, 1)
    model, eager = (make(AutoModel, model_type).double() for _ in range(2))
    eager.set_attn_implementation("eager")
    model.float().set_attn_implementation(implementation)
    expected, got = eager(**batch), model(**batch, output_attentions=True)
    torch.testing.assert_close(got.pooler_output.double(), expected.pooler_output, rtol=1e-5, atol=1e-5)
    assert got.attentions is not None  # every implementation can show its weights
    for output in (expected, got):
        output.pooler_output.sum().backward()
    for parameter, reference in zip(model.parameters(), eager.parameters(), strict=True):
        if reference.grad is not None:
            scale = reference.grad.abs().max().clamp(min=1.0)
            torch.testing.assert_close(parameter.grad.double() / scale, reference.grad / scale, rtol=0, atol=1e-5)


@every_encoder
def test_output_attentions_of_the_configuration(model_type):
    model = make(AutoModel, model_type, output_attentions=True)
    assert used(model) == {"auto"} and model(**sentences(5, 3)).attentions is not None
    model.config.output_attentions = False
    assert model(**sentences(5, 3)).attentions is None


@pytest.mark.parametrize("model_type", ["disan", *(pytest.param(x, marks=pytest.mark.slow) for x in ENCODERS[1:])])
@pytest.mark.parametrize(
    "implementation", ["auto", *(pytest.param(name, marks=pytest.mark.slow) for name in ("eager", "fused", "linear"))]
)
def test_compiles_in_one_graph(model_type, implementation):
    model = make(AutoModel, model_type)
    model.set_attn_implementation(implementation)
    batch = sentences(20, 7)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(**batch).pooler_output, model(**batch).pooler_output)


@pytest.mark.parametrize("model_type", ["disan", pytest.param("biblosan", marks=pytest.mark.slow)])
def test_maps_compile_in_one_graph(model_type):
    """Which layers side by side take their steps together for."""
    model = make(AutoModel, model_type, num_hidden_layers=2)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    found, expected = (f(**sentences(11, 7), output_attentions=True) for f in (compiled, model))
    for name in ("attentions", "gates"):
        assert len(found[name]) == len(expected[name]) > 0
        torch.testing.assert_close(found[name], expected[name])
    torch.testing.assert_close(found.pooler_output, expected.pooler_output)


@every_encoder
@pytest.mark.parametrize("implementation", ["fused", "linear"])
def test_checkpointing_gives_the_same_gradients(model_type, implementation):
    gradients = []
    for checkpointing in (False, True):
        model = make(AutoModel, model_type).train()
        model.set_attn_implementation(implementation)
        if checkpointing:
            model.gradient_checkpointing_enable()
        model(**sentences(40, 7)).pooler_output.square().sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    for plain, checkpointed in zip(*gradients, strict=True):
        assert torch.equal(plain, checkpointed)


@every_encoder
@every_implementation
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(model_type, implementation, dtype):
    model = make(AutoModel, model_type)
    model.set_attn_implementation(implementation)
    batch = sentences(20, 7)
    with torch.autocast("cpu", dtype):
        low = model(**batch).pooler_output
    low.float().sum().backward()
    torch.testing.assert_close(low.float(), model(**batch).pooler_output, rtol=0, atol=0.05)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@every_encoder
def test_hooked_layers_are_called_as_they_are(model_type):
    """A step runs as one kernel only without hooks on its maps, and gives the same with them."""
    model, hooked = make(AutoModel, model_type), make(AutoModel, model_type)
    seen = []
    for name, module in hooked.named_modules():
        if isinstance(module, (torch.nn.Linear, HeadLinear)):
            module.register_forward_hook(lambda *_, name=name: seen.append(name))
    batch = sentences(9, 4)
    torch.testing.assert_close(hooked(**batch).pooler_output, model(**batch).pooler_output)
    dense = [n for n, m in hooked.named_modules() if isinstance(m, (torch.nn.Linear, HeadLinear))]
    assert set(seen) == set(dense)


def test_hooks_of_empty_modules_are_seen():
    module = torch.nn.Sequential(torch.nn.Sequential()).eval()
    assert not needs_rows(module)
    module[0].register_forward_hook(lambda *_: None)
    assert needs_rows(module)


@pytest.mark.parametrize("fields", [{}, {"num_hidden_layers": 3}], ids=["single", "stack"])
@pytest.mark.parametrize("model_type", ["disan", "biblosan", "mtsa"])
def test_offloaded_models_have_the_same_maps_and_states(model_type, fields, tmp_path):
    """accelerate's hooks run where a module is called, and copy what they find in lists of arguments."""
    model = make(AutoModel, model_type, **fields)
    model.save_pretrained(tmp_path)
    offloaded = AutoModel.from_pretrained(tmp_path, device_map={"": "disk"}, offload_folder=tmp_path / "offloaded")
    options = {"output_attentions": True, "output_hidden_states": True}
    found, expected = (each(**sentences(9, 4), **options) for each in (offloaded, model))
    assert len(found.hidden_states) == len(expected.hidden_states) == fields.get("num_hidden_layers", 1) + 1
    for name, tensors in expected.items():
        torch.testing.assert_close(found[name], tensors, msg=name)


@pytest.mark.parametrize("model_type", ["disan", "biblosan"])
def test_hooks_of_parts_run_where_maps_are_requested(model_type):
    model, seen = make(AutoModel, model_type), set()
    parts = {name: module for name, module in model.named_modules() if isinstance(module, Part)}
    for name, module in parts.items():
        module.register_forward_hook(lambda *_, name=name: seen.add(name))
    model(**sentences(9, 4), output_attentions=True)
    assert parts and seen == set(parts)


@every_encoder
def test_shapes_on_the_meta_device(model_type):
    model = make(AutoModel, model_type).to("meta")
    output = model(**{name: x.to("meta") for name, x in sentences(9, 4).items()})
    assert output.pooler_output.shape == (2, 12) and output.pooler_output.is_meta


@pytest.mark.parametrize("model_type", ["disan", "biblosan", "mtsa", "wordbag"])
def test_a_gradient_penalty_is_checkpointed(model_type):
    """Second derivatives under hooks of saved tensors, those of a word bag through the kernels of dense layers."""
    model = make(AutoModel, model_type, **({"dense_map": True, "pooling": "mean"} if model_type == "wordbag" else {}))
    model.set_attn_implementation("auto" if model_type == "wordbag" else "eager")
    embedded = torch.randn(1, 4, model.config.embedding_size, requires_grad=True)

    def penalty(vectors):
        output = model(inputs_embeds=vectors).pooler_output.square().sum()
        return torch.autograd.grad(output, vectors, create_graph=True)[0].square().sum()

    (expected,) = torch.autograd.grad(penalty(embedded), embedded)
    (found,) = torch.autograd.grad(checkpoint(penalty, embedded, use_reentrant=False), embedded)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("model_type", ["disan", "biblosan", "mtsa"])
def test_second_derivatives_are_those_of_the_equations_or_an_error(model_type):
    model = make(AutoModel, model_type).double()
    embedded, direction = torch.randn(2, 1, 7, model.config.embedding_size, dtype=torch.float64)

    def energy(vectors):
        return model(inputs_embeds=vectors).pooler_output.square().sum()

    def penalty(vectors):
        vectors.requires_grad_()
        (first,) = torch.autograd.grad(energy(vectors), vectors, create_graph=True)
        return torch.autograd.grad(first.square().sum(), vectors)

    ways = {
        "hvp": lambda: torch.autograd.functional.hvp(energy, embedded, direction)[1],
        "torch.func": lambda: torch.func.vjp(torch.func.grad(energy), embedded)[1](direction)[0],
        "grad": lambda: penalty(embedded.clone())[0],
    }
    gradient, step = torch.func.grad(energy), 1e-5 * direction
    model.set_attn_implementation("linear")
    once = gradient(embedded)
    for compute in ways.values():
        with pytest.raises(NotImplementedError, match="no second derivatives.*eager"):
            compute()
    model.set_attn_implementation("eager")
    torch.testing.assert_close(once, gradient(embedded))
    found = {way: compute() for way, compute in ways.items()}
    expected = (gradient(embedded + step) - gradient(embedded - step)) / 2e-5
    torch.testing.assert_close(found["hvp"], expected, rtol=1e-4, atol=1e-8)
    torch.testing.assert_close(found["torch.func"], found["hvp"])
    torch.testing.assert_close((found["grad"] * direction).sum(), 2 * (once * found["hvp"]).sum())


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("model_type", ["disan", "biblosan", "mtsa"])
def test_jacobian(model_type):
    """That of torch.func is that of torch.autograd, row by row or for all rows of it at once."""
    model = make(AutoModel, model_type)
    embedded = torch.randn(1, 4, model.config.embedding_size)

    def features(vectors):
        return model(inputs_embeds=vectors).pooler_output

    expected = torch.autograd.functional.jacobian(features, embedded)
    torch.testing.assert_close(torch.func.jacrev(features)(embedded), expected)
    together = torch.autograd.functional.jacobian(features, embedded, vectorize=True)
    torch.testing.assert_close(together, expected)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("model_type", ["disan", "biblosan", "mtsa"])
def test_vmap_and_gradients_per_sample(model_type):
    model = make(AutoModel, model_type)
    embedded, mask = torch.randn(3, 2, 7, model.config.embedding_size), torch.ones(2, 7, dtype=torch.bool)

    def loss(parameters, vectors):
        inputs = {"inputs_embeds": vectors, "attention_mask": mask}
        return torch.func.functional_call(model, parameters, (), inputs).pooler_output.square().sum()

    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    ids, masks = torch.randint(1, 9, (3, 2, 7)), torch.arange(7) < torch.tensor([[[7], [3]], [[1], [6]], [[5], [2]]])

    def loss_of_ids(parameters, ids, mask):
        return torch.func.functional_call(model, parameters, (ids, mask)).pooler_output.square().sum()

    of_ids = torch.vmap(torch.func.grad(loss_of_ids), in_dims=(None, 0, 0))(parameters, ids, masks)
    for i, given in enumerate(zip(ids, masks, strict=True)):
        for name, expected in torch.func.grad(loss_of_ids)(parameters, *given).items():
            torch.testing.assert_close(of_ids[name][i], expected)
    together = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, embedded)
    for i, vectors in enumerate(embedded):
        for name, expected in torch.func.grad(loss)(parameters, vectors).items():
            torch.testing.assert_close(together[name][i], expected)
