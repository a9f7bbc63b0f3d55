"""Our layers and models against numbers recorded from the authors' TensorFlow code.

A fixture is NAME.json (settings) and NAME.safetensors (inputs, weights, outputs, intermediate values, gradients).
Every fixture of the folder named by HF_BLOSAN_GOLDEN_DIR (default: tests/golden) is run. Agreement is 1e-5 of a
tensor's largest value; measured differences are about 1e-7.
"""

import functools
import json
import os
import re
from pathlib import Path

import pytest
import torch
from golden_builders import BUILDERS
from safetensors.torch import load_file

from hf_blosan.functional import IMPLEMENTATIONS
from hf_blosan.models import encoder, layers, layers_mtsa, layers_recurrent
from hf_blosan.models.equations import in_blocks
from hf_blosan.models.layers import (
    DirectionalSelfAttention,
    FeatureAttention,
    Source2Token,
)
from hf_blosan.models.layers_blocks import MaskedBlockSelfAttention
from hf_blosan.models.layers_mtsa import TensorizedSelfAttention
from hf_blosan.models.modeling_multihead import MultiHeadLayer
from hf_blosan.training.optim import build_optimizer, l2_penalty
from reproduce import convert_tf_checkpoint as tf

GOLDEN = Path(os.environ.get("HF_BLOSAN_GOLDEN_DIR", Path(__file__).parent / "golden"))
FIXTURES = sorted(path.stem for path in GOLDEN.glob("*.json"))


def close(actual, expected, what, scale=None):
    actual, expected = actual.detach().double(), expected.double()
    assert actual.shape == expected.shape, f"{what}: shape {tuple(actual.shape)}, recorded {tuple(expected.shape)}"
    error = (actual - expected).abs().max().item()
    largest = expected.abs().max().item() if scale is None else float(scale)
    assert error <= 1e-5 * largest, f"{what}: differs by {error:.2e}, largest value {largest:.2e}"


def load(name):
    settings = json.loads((GOLDEN / f"{name}.json").read_text())
    return settings, load_file(GOLDEN / f"{name}.safetensors")


def under(tensors, prefix):
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


# --- Intermediate values ----------------------------------------------------------------------------------------


@torch.no_grad()
def record(module, run):
    """Inputs and outputs of all submodules, by name; and the maps of the layers, which run again to return them."""
    seen, maps = {}, {}

    def keep(name, inputs, output):
        seen[name] = (inputs, output)

    hooks = [
        submodule.register_forward_hook(lambda _, inputs, output, name=name: keep(name, inputs, output))
        for name, submodule in module.named_modules()
    ]
    run()
    for hook in hooks:
        hook.remove()
    for name, layer in module.named_modules():
        if isinstance(layer, LAYERS):
            (tokens, mask, *_), (output, _) = seen[name]
            with_maps, maps[name] = layer(tokens, mask, True)
            close(with_maps, output, f"{name} with maps")
    return seen, maps


def quantities(layer, name, seen, maps):
    """What the authors' code calls the values in one of our layers, of which ``maps`` are the maps."""

    def out(child):
        return seen[f"{name}.{child}".lstrip(".")][1]

    def activated(child):
        return layers.ACTIVATIONS[layer.activation](out(child))

    if isinstance(layer, DirectionalSelfAttention):
        return {
            "rep_map": activated("dense_map"),
            "dependent": out("attention.key_map"),
            "head": out("attention.query_map"),
            "attn_result": out("attention"),
            "attn_score": maps.attentions[0],
            "fusion_gate": maps.gates[0],
            "output@2": seen[name][1][0],
        }
    if isinstance(layer, MaskedBlockSelfAttention):
        inputs, _ = seen[f"{name}.global_attention".lstrip(".")]
        rep_map = activated("dense_map")
        keys, queries = out("block_attention.alignment_map").chunk(2, dim=-1)
        context, gate = out("fusion").chunk(2, dim=-1)
        of_tokens = {
            "rep_map": rep_map,
            "dependent": keys,
            "head": queries,
            "inter_block_logits": out("block_pooling"),
            "new_context": context,
            "gate_sig": gate.sigmoid(),
        }
        blocks = {what: in_blocks(x, layer.block_length).unflatten(0, (len(x), -1)) for what, x in of_tokens.items()}
        return blocks | {
            "attn_score": maps.attentions[0],
            "inter_block_soft": maps.attentions[1],
            "inter_block_attn_output": inputs[0],
            "output": seen[name][1][0],
        }
    if isinstance(layer, TensorizedSelfAttention):
        values = {"q": "query_map", "k": "key_map", "multi_logits": f"source_scores.{len(layer.source_scores) - 1}"}
        found = {quantity: out(child).transpose(0, 1) for quantity, child in values.items()}
        found["v"] = (activated if layer.value_activation else out)("value_map").transpose(0, 1)
        if maps.gates:
            found["fusion_gate"] = maps.gates[0].transpose(0, 1)
        return found
    if isinstance(layer, MultiHeadLayer):
        maps_BHND = {letter: out(f"{map_}_map") for letter, map_ in (("Q", "query"), ("K", "key"), ("V", "value"))}
        if layer.variant == "relu":
            maps_BHND = {letter: map_.relu() for letter, map_ in maps_BHND.items()}
        if layer.variant == "relu":
            return {letter: map_.transpose(1, 2).flatten(2) for letter, map_ in maps_BHND.items()}
        found = {f"{letter}_map": map_.transpose(0, 1) for letter, map_ in maps_BHND.items()}
        return {**found, "prob_dist": maps.attentions[0].transpose(0, 1)}
    return {"map1": activated("hidden"), "map2": out("scores"), "soft": maps}


LAYERS = (DirectionalSelfAttention, MaskedBlockSelfAttention, TensorizedSelfAttention, MultiHeadLayer, Source2Token)


def scope_of(layer, name):
    """Part of a recorded name that tells this layer from its siblings."""
    if isinstance(layer, Source2Token):
        return "multi_dim"
    if stacked := re.match(r"layers\.(\d+)\.attention$", name):
        return int(stacked[1])
    inner = "[disa]" if name.endswith("global_attention") else ""
    for position, scopes in enumerate(
        (("dir_attn_fw", "fw_disa", "forward_attn"), ("dir_attn_bw", "bw_disa", "backward_attn"))
    ):
        if f"directions.{position}" in name:
            return (scopes, inner)
    return inner


def matches(scope, recorded_scope):
    if isinstance(scope, int):  # the authors' calls of one function are numbered
        return recorded_scope.endswith(f"#{scope}" if scope else "]")
    if isinstance(scope, tuple):
        directions, inner = scope
        return any(f"[{d}]" in recorded_scope for d in directions) and inner_matches(inner, recorded_scope)
    return scope in recorded_scope if scope == "multi_dim" else inner_matches(scope, recorded_scope)


def inner_matches(inner, recorded_scope):
    return ("block_attention" in recorded_scope and recorded_scope.endswith("[disa]")) == bool(inner)


def where_comparable(layer, quantity, expected, actual, mask_BN):
    """Both values with 0 where the codes differ and no result depends on it."""
    if isinstance(layer, MaskedBlockSelfAttention):
        R = min(layer.block_length, mask_BN.shape[1])  # the authors fill a shorter sentence up to a block
        expected = expected[tuple(map(slice, actual.shape))]
    if quantity in ("attn_score", "inter_block_soft", "soft"):
        # Where nothing is visible ours is 0, the authors' a uniform softmax that a mask removes later.
        axis = {"attn_score": -2, "inter_block_soft": 2, "soft": 1}[quantity]
        expected = expected * (actual.sum(axis, keepdim=True) > 0)
    if isinstance(layer, MaskedBlockSelfAttention) and quantity == "attn_score":
        # Inside blocks the authors hide padding from padded queries too; both results are set to 0 afterwards.
        query_BMR = in_blocks(mask_BN, R).unflatten(0, (len(mask_BN), -1))
        expected, actual = expected * query_BMR[..., None, None], actual * query_BMR[..., None, None]
    if isinstance(layer, MaskedBlockSelfAttention) and actual.dim() == 4:
        # The authors fill the last block up with tokens and compute them too.
        token_BMR = in_blocks(torch.ones_like(mask_BN), R).view(actual.shape[:3])
        expected, actual = expected * token_BMR[..., None], actual * token_BMR[..., None]
    if quantity == "prob_dist":
        # Padded queries see real keys here and everything there; no result depends on them.
        expected, actual = expected * mask_BN[..., None], actual * mask_BN[..., None]
    if isinstance(layer, TensorizedSelfAttention) and quantity == "fusion_gate":
        # The same between tokens; the output is 0 at padded positions.
        expected, actual = expected * mask_BN[..., None], actual * mask_BN[..., None]
    return expected, actual


def check_intermediates(module, run, tensors):
    """Compare every recorded value that exists in our code; returns how many there were."""
    seen, maps = record(module, run)
    mask_BN = tensors["input/mask"].bool()
    compared = 0
    layers = [(name, layer) for name, layer in module.named_modules() if isinstance(layer, LAYERS)]
    for recorded, expected in under(tensors, "inter/").items():
        scope, _, quantity = recorded.rpartition("/")
        for name, layer in layers:
            if not matches(scope_of(layer, name), scope):
                continue
            found = quantities(layer, name, seen, maps[name])
            if quantity not in found:
                continue
            expected, actual = where_comparable(layer, quantity, expected, found[quantity], mask_BN)
            close(actual, expected, recorded)
            compared += 1
    return compared


# --- The tests ----------------------------------------------------------------------------------------------------


LAYER_FIXTURES = [name for name in FIXTURES if not name.startswith("task_")]
TASK_FIXTURES = [name for name in FIXTURES if name.startswith("task_")]


def test_there_are_fixtures():
    assert LAYER_FIXTURES and TASK_FIXTURES, f"no fixtures in {GOLDEN}"


@pytest.fixture(params=IMPLEMENTATIONS)
def every_implementation(request, monkeypatch):
    """Attention is computed in one way after another, whatever the modules ask for."""
    users = {
        "directional_attention": layers,
        "tensorized_attention": layers_mtsa,
        "linear_recurrence": layers_recurrent,
    }
    for name, user in users.items():
        forced = functools.partial(forget_and_call, getattr(user, name), request.param)
        monkeypatch.setattr(user, name, forced)


def forget_and_call(operator, chosen, *args, implementation, **kwargs):
    return operator(*args, implementation=chosen, **kwargs)


@pytest.mark.usefixtures("every_implementation")
@pytest.mark.parametrize("name", LAYER_FIXTURES)
def test_layer(name, monkeypatch):
    # The authors compute padding like any token, and their numbers at padding are compared too.
    monkeypatch.setattr(encoder, "zero_padding", lambda x, mask: x)
    settings, tensors = load(name)
    assert settings["function"] in BUILDERS, f"{name}: unknown function {settings['function']}"
    x, mask = tensors["input/x"].requires_grad_(), tensors["input/mask"].bool()
    weights = under(tensors, "weight/")
    module, rules = BUILDERS[settings["function"]](settings["hyper_parameters"], x.shape[-1], weights)
    targets = {key: value for key, value in module.state_dict().items() if not key.startswith("embeddings.")}
    module.load_state_dict(tf.convert_variables(weights, rules, targets), strict=False)
    module.eval()

    def run():
        if hasattr(module, "context"):
            return module(inputs_embeds=x, attention_mask=mask).pooler_output
        return module(x, mask)[0]

    output = run()
    close(output, tensors["output"], "output")
    if any(isinstance(layer, LAYERS) for layer in module.modules()):
        assert check_intermediates(module, run, tensors) > 0

    (output * tensors["grad/cotangent"]).sum().backward()
    close(x.grad, tensors["grad/input/x"], "gradient of x")
    trained = dict(module.named_parameters())
    targets = {key: value for key, value in targets.items() if key in trained}
    check_gradients(module, tf.convert_variables(under(tensors, "grad/weight/"), rules, targets))


def check_gradients(module, expected, floor=1e-3):
    """Compare gradients, each on the scale of its layer.

    What is added to all scores of a softmax has gradient 0, or nearly 0 where tanh bends the scores: biases of scores,
    and the query side of feature-wise attention. What is recorded of them is the rounding of a sum of larger terms
    that cancel, so the scale is the layer's largest gradient (of an attention: both maps and the bias).
    Where a whole layer has gradient 0 the scale is a thousandth (``floor``) of the largest gradient of all layers.
    """
    parameters = dict(module.named_parameters())
    floor = floor * max(gradient.abs().max() for gradient in expected.values())
    for name, gradient in expected.items():
        layer = name.rpartition(".")[0]
        outer = layer.rpartition(".")[0]
        if isinstance(module.get_submodule(outer), FeatureAttention):
            layer = outer
        scale = max(floor, *(other.abs().max() for key, other in expected.items() if key.startswith(layer)))
        close(parameters[name].grad, gradient, f"gradient of {name}", scale)


# In the fusion over sentences the gradients of scores are 1e-5 of the largest of all. Against float64 those recorded
# are off by 1.1e-9, ours by 4e-10 to 2e-9, which is 2e-8 of the largest gradient and less than float32 resolves.
FLOORS = {"task_squad_biblosa": 4e-3}

TASK_MODELS = {
    "task_snli_disan": ("disan", {}),
    "task_sst_disan": ("disan", {"activation": "relu"}),
    "task_snli_lstm": ("birnn", {"activation": "relu"}),
    "task_snli_biblosa": ("biblosan", {"block_length": 3, "mask_padding_blocks": False}),
    "task_sick_biblosa": ("biblosan", {"block_length": 3, "mask_padding_blocks": False, "activation": "relu"}),
    "task_sc_biblosa_adam": ("biblosan", {"block_length": 4, "mask_padding_blocks": False, "activation": "relu"}),
    "task_squad_biblosa": ("biblosan", {"block_length": 3, "mask_padding_blocks": False, "activation": "relu"}),
    "task_snli_mtsa": ("mtsa", {}),
    "task_trec_mtsa": ("mtsa", {"activation": "relu"}),
}


def task_inputs(tensors):
    labels = tensors.get("input/score", tensors.get("input/label"))
    labels = labels if labels.is_floating_point() else labels.long()
    if "input/context_token" in tensors:  # padded as recorded: see encode_apart
        sentences, questions = tensors["input/context_token"].long(), tensors["input/question_token"].long()
        lengths = torch.full([len(sentences)], sentences.shape[1])
        packed = {"input_ids": sentences.flatten(0, 1), "passage_lengths": lengths}
        return {**packed, "question_input_ids": questions, "labels": labels}
    if "input/token" in tensors:
        return {"input_ids": tensors["input/token"].long(), "labels": labels}
    first, second = tensors["input/sent1_token"].long(), tensors["input/sent2_token"].long()
    ids = torch.cat([first, second], dim=1)
    types = torch.cat([torch.zeros_like(first), torch.ones_like(second)], dim=1)
    return {"input_ids": ids, "token_type_ids": types, "attention_mask": ids != 0, "labels": labels}


def encode_apart(model, tensors):
    """The two sentences of a pair each in a batch of its own.

    With unmasked padding blocks (the authors' Bi-BloSAN) a sentence's vector depends on how far its batch is padded.
    """

    def encode(*_, **options):
        outputs = [model.model(tensors[f"input/sent{i}_token"].long(), **options) for i in (1, 2)]
        return [output.pooler_output for output in outputs], outputs[0]

    return encode


@pytest.mark.usefixtures("every_implementation")
@pytest.mark.parametrize("name", TASK_FIXTURES)
def test_task(name):
    """Logits, loss, L2 term, gradients of the total loss, and the weights after 1 and 3 steps of the optimiser."""
    assert name in TASK_MODELS, f"unknown fixture {name}"
    settings, tensors = load(name)
    options = settings["hyper_parameters"]
    model_type, overrides = TASK_MODELS[name]
    fixed = {"glove_only_embedding": tensors["constant/glove_only_embedding"]}
    model = tf.convert_model(model_type, {**under(tensors, "weight/"), **fixed}, **overrides)
    if model_type == "biblosan" and model.config.num_sentences == 2:
        model._encode = encode_apart(model, tensors)

    def total_loss():
        output = model(**task_inputs(tensors))
        return output, l2_penalty(model, options["wd"])

    output, l2 = total_loss()
    if "output/predicted_score" in tensors:
        close(output.logits[:, 0], tensors["output/predicted_score"], "predicted score")
    else:
        recorded = tensors["output/logits"]
        there = recorded > -1e29  # where a passage has no sentence both have a number far below
        assert torch.equal(there, output.logits > -1e29)
        close(torch.where(there, output.logits, 0.0), torch.where(there, recorded, 0.0), "logits")
    close(output.loss[None], tensors["output/data_loss"], "data loss")
    close(l2[None], tensors["output/l2_loss"], "L2 loss")
    (output.loss + l2).backward()

    rules = tf.model_rules(model_type)
    targets = {key: value for key, value in model.state_dict().items() if not key.endswith("fixed_weight")}
    gradients = tf.convert_variables(under(tensors, "grad/weight/"), rules, targets)
    check_gradients(model, gradients, FLOORS.get(name, 1e-3))

    optimizer = build_optimizer(model, options["optimizer"], options["learning_rate"])
    losses = []
    for step in (1, 2, 3):
        output, l2 = total_loss()
        losses.append((output.loss + l2).detach())
        optimizer.zero_grad()
        (output.loss + l2).backward()
        optimizer.step()
        if step != 2:
            expected = tf.convert_variables(under(tensors, f"step{step}/weight/"), rules, targets)
            check_weights(model, expected, gradients if options["optimizer"] == "adam" else {}, f"after step {step}")
    close(torch.stack(losses), tensors["output/train_total_loss_per_step"], "training losses")


def check_weights(model, expected, adam_gradients, when):
    """Adam's first steps divide a gradient by its own size: an element whose exact gradient is 0 moves by its rounding
    alone (checked in float64: 1e-18 where 1e-9 is recorded). Such elements are left out."""
    state = model.state_dict()
    for name, value in expected.items():
        actual = state[name]
        if name.endswith("word_embeddings.weight"):
            actual, value = actual[2:], value[2:]  # [PAD] and [UNK] are never read
        elif name in adam_gradients:
            largest = max(gradient.abs().max() for gradient in adam_gradients.values())
            known = adam_gradients[name].abs() > 1e-6 * largest
            actual, value = torch.where(known, actual, 0.0), torch.where(known, value, 0.0)
        close(actual, value, f"{name} {when}")
