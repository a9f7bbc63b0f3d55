"""Layers in int8, as an option of saving and loading."""

import fresh
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.autograd import forward_ad
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoModelForTokenClassification

from hf_blosan import AutoModelForPairRegression
from hf_blosan.models.layers_int8 import Int8Linear
from hf_blosan.models.pretrained import int8_parts
from hf_blosan.registry import FAMILIES

IDS = torch.tensor([[2, 5, 17, 9, 11, 8], [1, 20, 3, 4, 0, 0]])


def make(model_type="disan", head=AutoModelForSequenceClassification, **fields):
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "embedding_size": 16, "hidden_size": 24, "classifier_size": 6, "num_labels": 3}
    sizes |= {"dense_map": True} if model_type == "wordbag" else {}
    return head.from_config(AutoConfig.for_model(model_type, **sizes | fields)).eval()


def int8_names(model):
    return {name for name, module in model.named_modules() if isinstance(module, Int8Linear)}


def linear_names(model):
    return {name for name, module in model.named_modules() if type(module) is nn.Linear}


@torch.no_grad()
def logits(model, **options):
    return model(IDS, **options).logits


def assert_close(found, expected):
    """Up to what seven and eight bits lose in a few layers."""
    assert 0 < (found - expected).abs().max() < 0.05 * expected.abs().max()


@pytest.mark.parametrize("model_type", FAMILIES)
def test_saved_and_loaded(model_type, tmp_path):
    model = make(model_type)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    model.save_pretrained(tmp_path / "small", layers_dtype="int8")
    assert model.config.layers_dtype == "float32" and not int8_names(model)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())

    small, information = type(model).from_pretrained(tmp_path / "small", output_loading_info=True)
    assert not any(information.values()), information
    recurrent = {name for name in linear_names(model) if "from_input" in name or "from_state" in name}
    assert int8_names(small) == linear_names(model) - recurrent and linear_names(small) == recurrent
    assert small.config.layers_dtype == "int8" and small.dtype == torch.float32
    stored = load_file(tmp_path / "small" / "model.safetensors")
    for name in int8_names(small):
        weight, exact = small.get_submodule(name).to_float().weight, before[f"{name}.weight"]
        assert stored[f"{name}.weight"].dtype == torch.int8 and stored[f"{name}.weight"].abs().max() <= 63
        assert ((weight - exact).abs() <= 0.501 / 63 * exact.abs().amax(1, keepdim=True)).all()
    assert_close(logits(small), logits(model))

    small.save_pretrained(tmp_path / "again")
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert all(torch.equal(again[name], x) for name, x in stored.items())
    converted = type(model).from_pretrained(tmp_path / "small", layers_dtype="float32")
    assert not int8_names(converted) and converted.state_dict().keys() == before.keys()
    assert_close(logits(converted), logits(model))
    converted.train()(IDS, labels=torch.tensor([0, 2])).loss.backward()
    assert all(x.grad is not None for x in converted.parameters() if x.requires_grad)
    assert [x.requires_grad for x in converted.parameters()] == [x.requires_grad for x in model.parameters()]
    model.model.context.requires_grad_(False)
    frozen = {name for name, x in model.named_parameters() if not x.requires_grad}
    model.set_layers_dtype("int8")
    model.set_layers_dtype("float32")
    assert {name for name, x in model.named_parameters() if not x.requires_grad} == frozen
    assert {f"{name}.weight" for name in linear_names(model)} <= {name for name, _ in converted.named_parameters()}


@pytest.mark.parametrize("model_type", FAMILIES)
def test_kernels_agree_with_plain_torch(model_type):
    model = make(model_type)
    model.set_layers_dtype("int8")
    fast = logits(model)
    model.set_attn_implementation("eager")
    # A feature that lies between two integers may be rounded to either: by a unit in the last place of its value.
    torch.testing.assert_close(fast, logits(model), rtol=0, atol=2e-3 * float(fast.abs().max()))


def test_converted_while_loading_and_at_construction(tmp_path):
    model = make()
    model.save_pretrained(tmp_path / "exact")
    model.save_pretrained(tmp_path / "small", layers_dtype="int8", embedding_dtype="int8")
    both = {"layers_dtype": "int8", "embedding_dtype": "int8"}
    small = type(model).from_pretrained(tmp_path / "exact", **both)
    expected = type(model).from_pretrained(tmp_path / "small").state_dict()
    assert small.state_dict().keys() == expected.keys()
    assert all(torch.equal(x, expected[name]) for name, x in small.state_dict().items())
    assert int8_names(make(layers_dtype="int8")) == int8_names(small)
    config = AutoConfig.from_pretrained(tmp_path / "exact")  # as sentence-transformers loads models
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "exact", config=config, **both)
    assert int8_names(again) == int8_names(small) and again.get_input_embeddings().is_int8
    assert config.layers_dtype == config.embedding_dtype == "float32"


@pytest.mark.parametrize("head", [AutoModelForPairRegression, AutoModelForTokenClassification])
def test_other_heads(head, tmp_path):
    pairs = head is AutoModelForPairRegression
    model = make("mtsa", head, **{"num_sentences": 2} if pairs else {})
    types = {"token_type_ids": (torch.arange(6) > 2).long().expand(2, -1)} if pairs else {}
    model.save_pretrained(tmp_path, layers_dtype="int8")
    small = head.from_pretrained(tmp_path)
    assert int8_names(small) == linear_names(model)
    assert_close(logits(small, **types), logits(model, **types))


def test_a_new_head_on_an_encoder_in_int8(tmp_path):
    make(head=AutoModel).save_pretrained(tmp_path, layers_dtype="int8")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=3, layers_dtype="float32")
    assert not int8_names(model)
    model.train()(IDS, labels=torch.tensor([0, 2])).loss.backward()
    encoder = AutoModel.from_pretrained(tmp_path)
    torch.testing.assert_close(model.model.pooler.hidden.weight, encoder.pooler.hidden.to_float().weight)
    whole = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=3)
    assert "classifier.hidden" in int8_names(whole) and logits(whole).isfinite().all()


def test_weights_in_a_file_of_torch(tmp_path):
    make().save_pretrained(tmp_path, layers_dtype="int8", embedding_dtype="int8")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert int8_names(again) == int8_names(model)
    assert torch.equal(logits(again), logits(model))


def test_a_head_of_another_size_starts_anew(tmp_path):
    make().save_pretrained(tmp_path, layers_dtype="int8", embedding_dtype="int8")
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        torch.full((1000,), 1e30)  # what uninitialised memory may hold
        options = {"num_labels": 5, "ignore_mismatched_sizes": True}
        found.append(AutoModelForSequenceClassification.from_pretrained(tmp_path, **options))
    first, same, other = (logits(model) for model in found)
    assert first.shape == (2, 5) and torch.isfinite(first).all() and torch.equal(first, same)
    assert not torch.equal(first, other)
    out = dict(found[0].named_modules())["classifier.output"]
    assert isinstance(out, Int8Linear) and not out.bias.any()
    assert 0.3 < out.weight.float().mul(out.scale[:, None]).abs().max() <= (6 / (5 + 6)) ** 0.5 * 1.01
    body = {name: x for name, x in found[0].state_dict().items() if name.startswith("model.")}
    assert body and all(torch.equal(x, found[2].state_dict()[name]) for name, x in body.items())


def test_not_trained():
    model = make(layers_dtype="int8").train()
    with pytest.raises(ValueError, match='int8 layers cannot be trained; load the model with layers_dtype="float32"'):
        model(IDS, labels=torch.tensor([0, 2]))


def test_forward_mode_differentiation():
    """The kernel of a map in int8 has no tangent; the equation has."""
    model = make().eval()
    model.set_layers_dtype("int8")
    map_ = next(module for module in model.modules() if isinstance(module, Int8Linear))
    x, tangent = torch.randn(2, 4, map_.weight.shape[1])
    with torch.no_grad(), forward_ad.dual_level():
        found = forward_ad.unpack_dual(map_(forward_ad.make_dual(x, tangent))).tangent
    torch.testing.assert_close(found, torch.func.jvp(map_, (x,), (tangent,))[1])
    assert found.abs().max() > 0.01


def test_gradients_of_the_input_are_those_of_the_rounded_weights():
    model = make(layers_dtype="int8")
    exact = make(layers_dtype="int8")
    exact.set_layers_dtype("float32")
    grads = []
    for other in (model, exact):
        vectors = other.get_input_embeddings()(IDS).detach().requires_grad_()
        other(inputs_embeds=vectors).logits[:, 0].sum().backward()
        grads.append(vectors.grad)
    assert (grads[0] - grads[1]).norm() < 0.05 * grads[1].norm()


def test_bad_values(tmp_path):
    model = make()
    with pytest.raises(ValueError, match="layers_dtype is 'int4'; choose one of float32, int8"):
        model.set_layers_dtype("int4")
    with pytest.raises(ValueError, match="layers_dtype is 'int4'; choose one of float32, int8"):
        model.save_pretrained(tmp_path, layers_dtype="int4")
    assert not any(tmp_path.iterdir())
    with pytest.raises(ValueError, match="leave out state_dict"):
        model.save_pretrained(tmp_path, layers_dtype="int8", state_dict=model.state_dict())


def test_a_backbone_keeps_its_layers():
    backbone = AutoConfig.for_model("bert", vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    backbone.intermediate_size = 32
    model = make(backbone_config=backbone, embedding_size=None)
    model.set_layers_dtype("int8")
    assert int8_names(model) and not any("backbone" in name for name in int8_names(model))
    assert any("backbone" in name for name in linear_names(model)) and logits(model).isfinite().all()


def test_scales_of_a_backbone_are_its_own():
    names = ("model.embeddings.word_embeddings.scale", "embeddings.backbone.norm.scale", "model.pooler.hidden.scale")
    assert int8_parts(dict.fromkeys(names), None) == {"embeddings.word_embeddings", "pooler.hidden"}


LOAD = """
import sys
sys.modules["hf_blosan"] = None
import torch
from transformers import AutoModel
model = AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True)
torch.save(model(torch.arange(2, 12)[None]).pooler_output, sys.argv[2])
model.save_pretrained(sys.argv[3])
AutoModel.from_pretrained(sys.argv[3], trust_remote_code=True, layers_dtype="float32")
try:
    AutoModel.from_pretrained(sys.argv[4], trust_remote_code=True, layers_dtype="int8")
except ImportError as error:
    print(error)
"""


def test_without_the_package(tmp_path):
    """The code of int8 layers goes with checkpoints that have them, and only with those."""
    model = make(head=AutoModel)
    model.save_pretrained(tmp_path / "small", layers_dtype="int8")
    model.save_pretrained(tmp_path / "exact")
    carried = {path.name for path in (tmp_path / "small").glob("*.py")}
    others = {path.name for path in (tmp_path / "exact").glob("*.py")}
    assert carried - others == {"attention_int8.py", "layers_int8.py"} and others <= carried
    expected = AutoModel.from_pretrained(tmp_path / "small")(torch.arange(2, 12)[None]).pooler_output
    model.save_pretrained(tmp_path / "small")  # as float32, over it
    assert not (tmp_path / "small" / "layers_int8.py").exists()
    model.save_pretrained(tmp_path / "small", layers_dtype="int8")

    folders = [str(tmp_path / name) for name in ("small", "out.pt", "again", "exact")]
    run = fresh.run(LOAD, *folders, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "the code of this checkpoint has no int8 layers; install hf_blosan" in run.stdout
    torch.testing.assert_close(
        torch.load(tmp_path / "out.pt"), expected, rtol=0, atol=2e-3 * float(expected.abs().max().detach())
    )
    text = (tmp_path / "again" / "modeling_disan.py").read_text()
    assert text.count("layers_int8") == 1
