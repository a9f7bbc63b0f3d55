"""Encoders on a CUDA GPU: the same function as on the CPU, with every form of attention, and what training needs."""

import copy

import pytest
import torch
from test_models import MODEL_TYPES, make, pairs, sentences
from transformers import AutoModel, AutoModelForSequenceClassification

from hf_blosan import AutoModelForPairRegression
from hf_blosan import functional as F

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
every_encoder = pytest.mark.parametrize("model_type", MODEL_TYPES)


@pytest.fixture(autouse=True)
def float32_products():
    """cuDNN's recurrent layers take tf32 for float32 otherwise."""
    with torch.backends.cudnn.flags(allow_tf32=False):
        yield


def on_the_gpu(batch):
    return {name: tensor.cuda() for name, tensor in batch.items()}


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


@every_encoder
@pytest.mark.parametrize("implementation", F.IMPLEMENTATIONS)
@pytest.mark.parametrize("lengths", [(40, 23, 1), (230, 150, 7)], ids=["short", "long"])
def test_the_same_function_as_on_the_cpu(model_type, implementation, lengths):
    """Beside the equations in float64 on the CPU; long sentences have distant keys, and several tiles."""
    batch, fields = sentences(*lengths), {"hidden_size": 48} if "textcnn" not in model_type else {}
    exact, model = make(AutoModel, model_type, **fields).double(), make(AutoModel, model_type, **fields).cuda()
    exact.set_attn_implementation("eager")
    model.set_attn_implementation(implementation)
    expected, got = exact(**batch), model(**on_the_gpu(batch))
    for output in (expected, got):
        output.pooler_output.sum().backward()
    real = batch["attention_mask"].bool()
    tokens, exact_tokens = (output.last_hidden_state.cpu().double()[real] for output in (got, expected))
    torch.testing.assert_close(tokens, exact_tokens, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got.pooler_output.cpu().double(), expected.pooler_output, rtol=1e-5, atol=1e-5)
    found, wanted = gradients(model), gradients(exact)
    assert found.keys() == wanted.keys()
    for name, reference in wanted.items():
        scale = reference.abs().max().clamp(min=1.0)
        torch.testing.assert_close(found[name].cpu().double() / scale, reference / scale, rtol=0, atol=1e-5, msg=name)


@every_encoder
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes(model_type, dtype):
    batch = sentences(150, 40, 3)
    exact = make(AutoModel, model_type).double()
    expected = exact(**batch).pooler_output
    got = make(AutoModel, model_type).to("cuda", dtype)(**on_the_gpu(batch)).pooler_output
    assert got.dtype == dtype
    tolerance = 10 * torch.finfo(dtype).eps
    torch.testing.assert_close(got.cpu().double(), expected, rtol=tolerance, atol=max(tolerance, 1e-7))


@every_encoder
def test_training_under_autocast(model_type):
    """A step of AdamW on the loss of a head, in bfloat16, lowers it."""
    batch = on_the_gpu(sentences(150, 40, 3)) | {"labels": torch.tensor([0, 1, 1], device="cuda")}
    model = make(AutoModelForSequenceClassification, model_type).cuda().train()
    optimizer, losses = torch.optim.AdamW(model.parameters(), 1e-2, fused=True), []
    for _ in range(5):
        with torch.autocast("cuda", torch.bfloat16):
            losses.append(model(**batch).loss)
        optimizer.zero_grad()
        losses[-1].backward()
        assert all(gradient.isfinite().all() for gradient in gradients(model).values())
        optimizer.step()
    assert losses[-1] < losses[0]


@every_encoder
def test_pairs(model_type):
    batch = pairs((30, 9), (5, 60))
    model = make(AutoModelForPairRegression, model_type, num_sentences=2)
    expected, got = copy.deepcopy(model).double()(**batch).logits, model.cuda()(**on_the_gpu(batch)).logits
    torch.testing.assert_close(got.cpu(), expected.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("model_type", ["disan", "biblosan", "mtsa"])
def test_compiled(model_type):
    """By inductor, for two lengths, with gradients."""
    torch.compiler.reset()
    model = make(AutoModel, model_type).cuda()
    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    for lengths in ((40, 23), (60, 7)):
        batch, results = on_the_gpu(sentences(*lengths)), []
        for call in (compiled, model):
            model.zero_grad()
            output = call(**batch).pooler_output
            output.sum().backward()
            results.append([output.detach(), *gradients(model).values()])
        for got, expected in zip(*results, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_loaded_onto_the_gpu(tmp_path):
    """`device_map` and a model saved from there."""
    model = make(AutoModel, "disan")
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path, device_map="cuda")
    batch = sentences(9, 4)
    expected = model(**batch).pooler_output
    torch.testing.assert_close(loaded(**on_the_gpu(batch)).pooler_output.cpu(), expected, rtol=1e-5, atol=1e-5)
    loaded.save_pretrained(tmp_path / "again")
    again = AutoModel.from_pretrained(tmp_path / "again")
    torch.testing.assert_close(again(**batch).pooler_output, expected, rtol=0, atol=0)
