"""The modules that the golden fixtures describe, by the name of the authors' function.

A builder takes (hyper-parameters, features of the input, the fixture's weights) and returns a module of ours and the
rules by which ``convert_tf_checkpoint`` fills it.
"""

import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModel

import hf_blosan  # noqa: F401 (registers the encoders)
from hf_blosan.functional import optimal_block_length
from hf_blosan.models.layers import (
    ACTIVATIONS,
    AdditivePooling,
    DirectionalSelfAttention,
    Source2Token,
)
from hf_blosan.models.layers_blocks import MaskedBlockSelfAttention
from hf_blosan.models.layers_mtsa import TensorizedSelfAttention
from hf_blosan.models.modeling_multihead import sinusoidal_positions

sys.path.append(str(Path(__file__).parents[1]))  # for `reproduce`, which is not installed
from reproduce import tf_variable_names as tf  # noqa: E402


def build_disa(options, in_features, weights):
    size = options.get("hn") or in_features
    direction = options.get("direction") or "diagonal"  # without a direction, only attention to oneself is masked
    module = DirectionalSelfAttention(in_features, size, direction=direction, activation=options["activation"])
    return module, {f"[^/]+/{tail}": name for tail, name in tf.DISA.items()}


def build_block(options, in_features, weights):
    module = MaskedBlockSelfAttention(
        in_features,
        options.get("hn") or in_features,
        direction=options["direction"],
        block_length=options["block_len"],
        activation=options["activation"],
        mask_padding_blocks=False,
    )
    return module, {f"[^/]+/{tail}": name for tail, name in tf.MBLOSA.items()}


def build_tensorized(options, in_features, weights):
    num_heads = options["head_num"]
    half = num_heads // 2
    module = TensorizedSelfAttention(
        in_features,
        options["hn"],
        directions=["forward"] * half + ["backward"] * half if options["use_direction"] else ["diagonal"] * num_heads,
        activation=options["activation_func_name"],
        score_function=options["dot_activation_name"],
        attend_to_self=options["attn_self"],
        scores_from="input" if options["use_input_for_attn"] else "values",
        source2token_layers=2 if options["add_layer_for_multi"] else 1,
        value_bias=not (options["accelerate"] and options["use_input_for_attn"]),
        value_activation=options["apply_act_for_v"],
        fusion_gate=options["use_fusion_gate"],
        input_size=options["input_hn"],
        output_size=options["output_hn"],
        output_activation=options["activation_func_name"],
    )
    if options["accelerate"] and options["apply_act_for_v"]:
        activation = ACTIVATIONS[options["activation_func_name"]]
        # The authors' "accelerate" applies the activation twice.
        module.value_map.register_forward_hook(lambda _, inputs, output: activation(output))
    rules = {f"[^/]+/{tail}": name for tail, name in tf.TENSORIZED.items()}
    if not options["add_layer_for_multi"]:  # the one layer is called by either name
        rules = {pattern: name.replace("scores.1", "scores.0") for pattern, name in rules.items()}
    return module, rules


def build_stack(options, in_features, weights):
    config = AutoConfig.for_model(
        "mtsa",
        embedding_size=in_features,
        hidden_size=options["hn"],
        num_heads=options["head_num"],
        num_hidden_layers=options["layer_num"],
        activation=options["activation_func_name"],
        score_function=options["dot_activation_name"],
        attend_to_self=options["attn_self"],
        vocab_size=2,
    )
    rules = tf.CONTEXTS["mtsa"]
    context = AutoModel.from_config(config).context
    return context, {pattern: name.removeprefix("context.") for pattern, name in rules.items()}


def build_multi_head(options, in_features, weights):
    num_heads = options.get("head_num") or options["num_heads"]
    sinusoidal = "head_num" in options
    config = AutoConfig.for_model(
        "multihead",
        embedding_size=in_features,
        hidden_size=num_heads * options["hidden_units_num"] if sinusoidal else options["num_units"],
        num_heads=num_heads,
        variant="sinusoidal" if sinusoidal else "relu",
        vocab_size=2,
    )
    layer = AutoModel.from_config(config).context.layers[0]
    if sinusoidal:
        layer.register_forward_hook(average_padded_rows)
    return layer, {f"[^/]+/{tail}": name for tail, name in tf.MULTI_HEAD.items()}


def average_padded_rows(layer, inputs, output):
    """The authors' padded queries average the values of all positions; ours are 0. Nobody reads them."""
    (tokens, maps), (hidden, mask, *_) = output, inputs
    positions = sinusoidal_positions(*hidden.shape[1:])
    values = layer.value_map((hidden + positions) * mask[..., None]).transpose(1, 2).flatten(2)
    return torch.where(mask[..., None], tokens, values.mean(1, keepdim=True)), maps


def build_multi_head_encoder(options, in_features, weights):
    variant = {"multi_head": "sinusoidal", "multi_head_git": "relu"}[options["method"]]
    model = build_encoder("multihead", options, in_features, weights, variant=variant)
    if variant == "sinusoidal":
        model.context.layers[0].register_forward_hook(average_padded_rows)
    return model, {**tf.CONTEXTS["multihead"], **tf.POOLER}


def build_source2token(options, in_features, weights):
    module = Source2Token(in_features, activation=options["activation"], empty_rows="mean")
    return module, {f"[^/]+/{tail}": name for tail, name in tf.SOURCE2TOKEN.items()}


def build_additive(options, in_features, weights):
    module = AdditivePooling(in_features, activation=options["activation"], empty_rows="mean")
    return module, {f"[^/]+/{tail}": name for tail, name in tf.ADDITIVE.items()}


def build_encoder(model_type, options, in_features, weights, **fields):
    size = options.get("hn") or in_features
    activation = options.get("activation") or options.get("activation_function", "relu")
    fields = {"hidden_size": 2 * size, "activation": activation} | fields
    config = AutoConfig.for_model(model_type, embedding_size=in_features, vocab_size=2, **fields)
    return AutoModel.from_config(config)


def build_disan(options, in_features, weights):
    model = build_encoder("disan", options, in_features, weights)
    return model, {**tf.CONTEXTS["disan"], **tf.POOLER}


def build_biblosan(options, in_features, weights):
    block_length = options["block_len"]
    if not isinstance(block_length, int):  # "None: computed from the sequence length"
        block_length = optimal_block_length(14)
    fields = {"block_length": block_length, "mask_padding_blocks": False}
    model = build_encoder("biblosan", options, in_features, weights, **fields)
    return model, {**tf.CONTEXTS["biblosan"], **tf.POOLER}


def build_birnn(options, in_features, weights):
    cell = options.get("cell_type") or options["method"]
    model = build_encoder("birnn", options, in_features, weights, cell=cell)
    return model, {**tf.CONTEXTS["birnn"], **tf.POOLER}


def build_textcnn(options, in_features, weights, **fields):
    model = build_encoder("textcnn", options, in_features, weights, **fields)
    return model, {**tf.CONTEXTS["textcnn"], **tf.POOLER}


def build_multi_cnn(options, in_features, weights, **fields):
    size = sum(len(bias) for name, bias in weights.items() if name.endswith("/b"))
    return build_textcnn(options, in_features, weights, hidden_size=size, **fields)


def build_cnn_kim(options, in_features, weights):
    return build_multi_cnn(options, in_features, weights, pooling="max", mask_padding=False)


def build_hierarchical_cnn(options, in_features, weights):
    fields = {"architecture": "hierarchical", "mask_padding": False, "hidden_size": options.get("hn") or in_features}
    return build_textcnn(options, in_features, weights, **fields)


def build_wordbag(options, in_features, weights):
    model = build_encoder("wordbag", options, in_features, weights, dense_map=True)
    return model, {**tf.CONTEXTS["wordbag"], **tf.POOLER}


def context_of(build):
    """The builder of a model's context room alone."""

    def build_room(options, in_features, weights):
        model, rules = build(options, in_features, weights)
        return model.context, {pattern: name.removeprefix("context.") for pattern, name in rules.items()}

    return build_room


def build_sentence_encoder(options, in_features, weights):
    builders = {"disa": build_disan, "block": build_biblosan, "no_ct": build_wordbag}
    builders |= {"cnn_kim": build_cnn_kim, "multi_cnn": build_multi_cnn, "hrchy_cnn": build_hierarchical_cnn}
    builders |= dict.fromkeys(("lstm", "gru", "sru", "sru_normal"), build_birnn)
    builders |= dict.fromkeys(("multi_head", "multi_head_git"), build_multi_head_encoder)
    return builders[options["method"]](options, in_features, weights)


BUILDERS = {
    "directional_attention_with_dense": build_disa,
    "disan": build_disan,
    "multi_dimensional_attention": build_source2token,
    "multi_dim_souce2token_self_attn": build_source2token,
    "traditional_attention": build_additive,
    "simple_block_attention": build_block,
    "bi_directional_simple_block_attention": context_of(build_biblosan),
    "context_fusion_layers": context_of(build_biblosan),
    "cnn_for_sentence_encoding": build_cnn_kim,
    "cnn_for_context_fusion": context_of(build_multi_cnn),
    "hierarchical_cnn_res_gate": context_of(build_hierarchical_cnn),
    "contextual_bi_rnn": context_of(build_birnn),
    "sentence_encoding_models": build_sentence_encoder,
    "multi_mask_tensorized_self_attn": build_tensorized,
    "stacking_mtsa": build_stack,
    "multi_head_attention": build_multi_head,
    "multi_head_attention_git": build_multi_head,
}
