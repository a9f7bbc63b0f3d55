"""Several layers with residuals; the numbers of the authors' stack are checked in test_golden."""

import pytest
import torch
from test_models import ORDER_MASKED, make, sentences
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from hf_blosan.models.modeling_multihead import sinusoidal_positions
from hf_blosan.training.optim import l2_penalty

every_stack = pytest.mark.parametrize("model_type", (*ORDER_MASKED, "birnn", "multihead"))
every_formulation = pytest.mark.parametrize("formulation", ["released", "paper"])
DEEP = {"num_hidden_layers": 3}


@every_stack
@every_formulation
def test_padding_and_neighbours_change_nothing(model_type, formulation):
    model = make(AutoModel, model_type, formulation=formulation, **DEEP)
    batch = sentences(11, 5, 1)
    together = model(**batch)
    for row, length in enumerate((11, 5, 1)):
        ids = batch["input_ids"][row : row + 1, :length]
        around = {"input_ids": F.pad(ids, (4, 9), value=7), "attention_mask": F.pad(torch.ones_like(ids), (4, 9))}
        for alone in (model(ids), model(**around)):
            torch.testing.assert_close(alone.pooler_output[0], together.pooler_output[row], rtol=0, atol=2e-6)


@every_stack
@pytest.mark.parametrize("width", [None, 20], ids=["one matrix", "two matrices"])
def test_a_layer_is_its_equation(model_type, width):
    """x = LN(x + act(W x + b)) or LN(x + V act(W x + b) + c); x = LN(x + fuse(x)); positions, if any, come first."""
    model = make(AutoModel, model_type, embedding_size=12, feed_forward_size=width, **DEEP)
    assert model.context.input_layer is None
    batch = sentences(9, 4)
    mask = batch["attention_mask"].bool()
    x = model.embeddings(batch["input_ids"])
    if model_type == "multihead":
        x = (x + sinusoidal_positions(9, 12)) * mask[..., None]
    for layer in model.context.layers:
        with torch.no_grad():
            for norm in (layer.feed_forward_norm, layer.fusion_norm):
                norm.weight.uniform_(0.5, 2.0)
                norm.bias.uniform_(-1.0, 1.0)
        y = F.elu(x @ layer.feed_forward.weight.T + layer.feed_forward.bias)
        if width:
            assert y.shape[-1] == width
            y = layer.feed_forward_output(y)
        x = layer_norm(x + y, layer.feed_forward_norm)
        x = layer_norm(x + layer.fuse(x, mask, False)[0], layer.fusion_norm)
    torch.testing.assert_close(model(**batch).last_hidden_state, x)


def layer_norm(x, norm):
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-6) * norm.weight + norm.bias


@every_stack
def test_word_vectors_of_another_width(model_type):
    """Residuals need one width: a linear layer in front of the stack, and none where there is but one layer."""
    model = make(AutoModel, model_type, **DEEP)
    widen = model.context.input_layer
    assert (widen.in_features, widen.out_features) == (10, 12)
    assert make(AutoModel, model_type).context.input_layer is None
    output = model(**sentences(11, 5), output_attentions=True, output_hidden_states=True)
    assert [state.shape[-1] for state in output.hidden_states] == [10, 12, 12, 12]
    levels = 3 if model_type == "biblosan" else 1
    assert len(output.attentions) == (0 if model_type == "birnn" else 3 * levels)


@every_stack
def test_checkpoints(model_type):
    batch = sentences(9, 4)
    gradients = []
    for checkpointing in (False, True):
        model = make(AutoModel, model_type, **DEEP).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        model(**batch).pooler_output.square().sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    assert all(map(torch.equal, *gradients))


@every_stack
def test_low_precision(model_type):
    model, batch = make(AutoModel, model_type, **DEEP), sentences(9, 4)
    with torch.autocast("cpu", torch.bfloat16):
        low = model(**batch).pooler_output
    torch.testing.assert_close(low.float(), model(**batch).pooler_output, rtol=0, atol=0.1)
    assert model.bfloat16()(**batch).pooler_output.dtype == torch.bfloat16


@every_stack
def test_initialisation_and_saving(model_type, tmp_path):
    model, batch = make(AutoModel, model_type, **DEEP), sentences(9, 4)
    for layer in model.context.layers:
        for norm in (layer.feed_forward_norm, layer.fusion_norm):
            assert (norm.weight == 1).all() and (norm.bias == 0).all()
    with torch.no_grad():
        model.context.layers[1].fusion_norm.weight.uniform_(0.5, 2.0)
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert loaded.config.num_hidden_layers == 3
    assert torch.equal(loaded(**batch).pooler_output, model(**batch).pooler_output)


@every_stack
def test_dropout_of_maps_and_of_what_is_added(model_type):
    def added(**fields):
        """What the feed-forward part of a layer adds to its tokens, in evaluation and in training."""
        layer, found = make(AutoModel, model_type, **fields, **DEEP).context.layers[1], []
        tokens = torch.randn(2, 50, layer.in_features)
        layer.feed_forward_norm.register_forward_pre_hook(lambda _, args: found.append(args[0] - tokens))
        for training in (False, True):
            layer.train(training)(tokens, torch.ones(2, 50, dtype=torch.bool))
        return layer, *found

    def of_maps(layer):
        """The dropout of every part with parameters; pooling in blocks has none."""
        return {part.dropout for part in layer.modules() if hasattr(part, "dropout") and [*part.parameters()]}

    layer, whole, dropped = added(dropout=0.5, map_dropout=0.0)
    kept = dropped != 0
    assert 0.4 < kept.float().mean() < 0.6
    torch.testing.assert_close(dropped[kept], 2 * whole[kept], rtol=1e-4, atol=1e-5)
    assert of_maps(layer) == {0.0}
    layer, whole, dropped = added(map_dropout=0.5)
    assert (dropped != 0).all() and not torch.isclose(dropped, whole).all(-1).any()
    assert of_maps(layer) == {0.5}
    layer, _, dropped = added(dropout=0.5)
    assert of_maps(layer) == {0.5}
    assert 0.4 < (dropped == 0).float().mean() < 0.6


def test_choices_that_follow_the_number_of_layers():
    """The authors' stack is another MTSA than their single layer; what the user gives stands."""
    single, stack = AutoConfig.for_model("mtsa"), AutoConfig.for_model("mtsa", num_hidden_layers=2)
    assert (single.score_function, single.scores_from, single.source2token_layers) == ("sigmoid", "values", 2)
    assert (stack.score_function, stack.scores_from, stack.source2token_layers) == ("exp", "input", 1)
    assert single.fusion_gate and single.value_bias and single.value_activation and not single.output_layer
    assert not (stack.fusion_gate or stack.value_bias or stack.value_activation) and stack.output_layer
    assert AutoConfig.for_model("mtsa", num_hidden_layers=2, fusion_gate=True).fusion_gate
    paper = [AutoConfig.for_model("mtsa", num_hidden_layers=n, formulation="paper").to_dict() for n in (1, 2)]
    assert {key for key in paper[0] if paper[0][key] != paper[1][key]} == {"num_hidden_layers"}


def test_l2_counts_the_layers_of_mtsa_once_a_sentence():
    fields = {"num_hidden_layers": 2, "num_sentences": 2}
    model = make(AutoModelForSequenceClassification, "mtsa", **fields)
    context, rest = 0.0, 0.0
    for name, parameter in model.named_parameters():
        if "embeddings" not in name and "bias" not in name and "norm" not in name:
            if ".layers." in name:
                context += parameter.square().sum()
            else:
                rest += parameter.square().sum()
    torch.testing.assert_close(l2_penalty(model, 2.0), 2 * context + rest)
