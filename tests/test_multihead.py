"""Multi-head attention; the authors' numbers are checked in test_golden, what every encoder must do in test_models."""

import pytest
import torch
from safetensors.torch import load_file
from test_golden import GOLDEN
from test_models import make, sentences
from torch.nn import functional as F
from transformers import AutoModel, AutoModelForSequenceClassification

from hf_blosan.errors import InputError
from hf_blosan.models.modeling_multihead import sinusoidal_positions
from hf_blosan.training.optim import l2_penalty
from reproduce.convert_tf_checkpoint import convert_model

VARIANTS = ("multihead", "multihead-relu")
every_variant = pytest.mark.parametrize("variant", VARIANTS)


@every_variant
def test_weights_are_built_only_to_be_shown(variant, monkeypatch):
    calls = []
    fused = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **k: calls.append(k) or fused(*a, **k))
    model = make(AutoModel, variant)
    batch = sentences(40, 23, 1)
    batch["attention_mask"][2] = 0
    plain = model(**batch)
    assert len(calls) == 1 and calls[0]["attn_mask"].shape == (3, 1, 1, 40)
    shown = model(**batch, output_attentions=True)
    model.set_attn_implementation("eager")
    for output in (shown, model(**batch)):
        torch.testing.assert_close(output.last_hidden_state, plain.last_hidden_state)
    assert len(calls) == 1
    padded = ~batch["attention_mask"].bool()
    assert (plain.last_hidden_state[padded] == 0).all() and (shown.last_hidden_state[padded] == 0).all()


def test_order_comes_from_the_positions_alone():
    batch = sentences(9)
    reverse = {"input_ids": batch["input_ids"].flip(1)}
    change = {
        variant: (model(**batch).pooler_output - model(**reverse).pooler_output).abs().max()
        for variant in VARIANTS
        for model in [make(AutoModel, variant, formulation="paper")]
    }
    assert change["multihead"] > 1e-3 and change["multihead-relu"] < 1e-6


@pytest.mark.parametrize("size", [8, 7])
def test_sinusoids(size):
    """Vaswani et al., section 3.5; the authors' exponent is twice as large."""
    for formulation, factor in (("paper", 1), ("released", 2)):
        table = sinusoidal_positions(5, size, formulation=formulation)
        for feature in range(size):
            angle = torch.arange(5) / 10000 ** (factor * (feature // 2 * 2) / size)
            torch.testing.assert_close(table[:, feature], angle.sin() if feature % 2 == 0 else angle.cos())


@every_variant
def test_dropout_of_inputs_and_weights(variant):
    model = make(AutoModel, variant, dropout=0.4).train()
    layer = model.context.layers[0]
    assert layer.attention_dropout == 0.4
    inputs = []
    layer.query_map.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    model(**sentences(9, 9)).pooler_output.sum().backward()
    assert (inputs[0] == 0).any() == (variant == "multihead")


@pytest.mark.parametrize(
    "variant, formulation, fans",
    [
        ("multihead", "released", 3 * 4 * (80 + 42)),  # one variable for all maps
        ("multihead", "paper", 80 + 42),
        ("multihead-relu", "released", 80 + 168),  # one for each map
    ],
)
def test_initialisation(variant, formulation, fans):
    model = make(AutoModel, variant, formulation=formulation, embedding_size=80, hidden_size=168)
    bound = (6 / fans) ** 0.5
    for name, parameter in model.context.named_parameters():
        if name.endswith("bias"):
            assert (parameter == 0).all()
        else:
            assert 0.95 * bound < parameter.abs().max() <= bound


@every_variant
def test_l2_as_in_the_authors_code(variant):
    """The one variable counts once, also for pairs; the other function registers none."""
    model = make(AutoModelForSequenceClassification, variant, num_sentences=2)
    parameters = [
        p for n, p in model.named_parameters() if n.endswith("weight") and "embeddings" not in n and "context" not in n
    ]
    if variant == "multihead":
        parameters += list(model.model.context.parameters())
    torch.testing.assert_close(l2_penalty(model, 2.0), sum(p.square().sum() for p in parameters))


def test_sizes_are_read_off_the_arrays():
    def variables(fixture):
        tensors = load_file(GOLDEN / f"{fixture}.safetensors")
        arrays = {name.removeprefix("weight/"): t for name, t in tensors.items() if name.startswith("weight/")}
        return arrays | {"emb_mat": torch.randn(7, 12)}

    config = convert_model("multihead", variables("enc_multi_head")).config
    assert (config.variant, config.num_heads, config.hidden_size) == ("sinusoidal", 8, 24)
    assert config.embedding_size == 12 and config.vocab_size == 9
    with pytest.raises(InputError, match="do not determine the number of concatenated heads; give num_heads"):
        convert_model("multihead", variables("enc_multi_head_git"))
    config = convert_model("multihead", variables("enc_multi_head_git"), num_heads=8).config
    assert (config.variant, config.hidden_size) == ("relu", 24)
