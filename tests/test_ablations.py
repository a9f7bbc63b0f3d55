"""What the papers leave out of their models, by configuration; the parameters are counted in test_parameter_counts."""

import re

import pytest
import torch
from test_models import make, sentences
from transformers import AutoModel

from hf_blosan.functional import IMPLEMENTATIONS

every_formulation = pytest.mark.parametrize("formulation", ["released", "paper"])
# Model type, field, and the parameters without which the whole model computes the same: (name, columns) -> 0.
ABLATIONS = {
    "without local": ("biblosan", "fuse_local", {"fusion.weight": slice(6, 12)}),
    "without global": ("biblosan", "fuse_global", {"fusion.weight": slice(12, 18)}),
    "without token2token": ("mtsa", "token2token", {"query_map.weight": slice(None)}),
    "without source2token": (
        "mtsa",
        "source2token",
        {"source_scores.1.weight": slice(None), "source_scores.1.bias": slice(None)},
    ),
}
every_ablation = pytest.mark.parametrize("ablation", ABLATIONS)


def whole_and_part(ablation, **fields):
    """The whole model with 0 where the ablation has nothing, and the ablation with the same weights."""
    model_type, field, nothing = ABLATIONS[ablation]
    whole, part = make(AutoModel, model_type, **fields), make(AutoModel, model_type, **{field: False}, **fields)
    state = whole.state_dict()
    for name, value in state.items():
        whole_name = re.sub(r"\.\d+\.(weight|bias)$", r".\1", name)  # of all heads
        for ending, columns in nothing.items():
            if whole_name.endswith(ending):
                value[..., columns] = 0.0
                kept = torch.ones(value.shape[-1], dtype=torch.bool)
                kept[columns] = False
                state[name] = value[..., kept]
    part.load_state_dict({name: state[name] for name in part.state_dict()})
    return whole, part


@every_ablation
@every_formulation
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_the_part_is_the_whole_with_nothing_there(ablation, formulation, implementation):
    whole, part = whole_and_part(ablation, formulation=formulation)
    assert sum(p.numel() for p in part.parameters()) < sum(p.numel() for p in whole.parameters())
    part.set_attn_implementation(implementation)
    for batch in (sentences(13, 5, 1), sentences(40, 23)):
        expected = whole(**batch, output_attentions=True)
        for output in (part(**batch), part(**batch, output_attentions=True)):
            torch.testing.assert_close(output.pooler_output, expected.pooler_output)
        seen = zip(output.attentions, expected.attentions[: len(output.attentions)], strict=True)
        for found, level in seen:
            torch.testing.assert_close(found, level)
        assert len(output.gates) == (1 if ablation == "without global" else len(expected.gates))
    expected.pooler_output.square().sum().backward()
    part(**batch).pooler_output.square().sum().backward()
    gradients = dict(whole.named_parameters())
    for name, parameter in part.named_parameters():
        if parameter.shape == gradients[name].shape and parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, gradients[name].grad, rtol=1e-4, atol=1e-5)


@every_ablation
def test_dense_layers_with_hooks_and_dropout(ablation):
    """Where the fusion cannot be taken apart it gives the same, and training runs."""
    _, part = whole_and_part(ablation, dropout=0.3)
    batch = sentences(13, 5)
    plain = part(**batch).pooler_output
    for module in part.modules():
        module.register_forward_hook(lambda *_: None)
    torch.testing.assert_close(part(**batch).pooler_output, plain)
    part.train()(**batch).pooler_output.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in part.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    "ablation", [pytest.param(name, marks=[] if name == "without global" else pytest.mark.slow) for name in ABLATIONS]
)
def test_compiles_and_is_saved(ablation, tmp_path):
    model_type, field, _ = ABLATIONS[ablation]
    model, batch = make(AutoModel, model_type, **{field: False}), sentences(13, 5)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(**batch).pooler_output, model(**batch).pooler_output)
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert getattr(loaded.config, field) is False
    assert torch.equal(loaded(**batch).pooler_output, model(**batch).pooler_output)


def test_without_token2token_keys_differ_by_source2token_alone():
    """H_i = sum of exp(S_j) v_j / sum of exp(S_j) over the visible j."""
    model = make(AutoModel, "mtsa", token2token=False)
    layer, seen = model.context.layers[0].attention, {}
    layer.value_map.register_forward_hook(lambda m, i, o: seen.__setitem__("v", torch.nn.functional.elu(o)))
    layer.source_scores[-1].register_forward_hook(lambda m, i, o: seen.__setitem__("scores", o))
    layer.gate.register_forward_hook(lambda m, i, o: seen.__setitem__("attended", i[0][..., 6:]))
    batch = sentences(9, 4)
    model(**batch)
    order = torch.arange(9)
    visible = torch.stack([order[:, None] > order, order[:, None] < order])
    visible = visible & batch["attention_mask"].bool()[:, None, None]
    weights = visible[..., None] * seen["scores"].exp()[:, :, None]
    expected = (weights * seen["v"][:, :, None]).sum(3) / weights.sum(3).clamp(min=1e-30)
    torch.testing.assert_close(seen["attended"], expected)
