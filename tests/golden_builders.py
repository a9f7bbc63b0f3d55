"""The modules that the golden fixtures describe, by the name of the authors' function.

A builder takes (hyper-parameters, features of the input, the fixture's weights) and returns a module of ours and the
rules by which ``convert_tf_checkpoint`` fills it.
"""

from transformers import AutoConfig, AutoModel

import hf_blosan  # noqa: F401 (registers the encoders)
from hf_blosan import convert_tf_checkpoint as tf
from hf_blosan.functional import optimal_block_length
from hf_blosan.models.layers_blosan import (
    ACTIVATIONS,
    AdditivePooling,
    DirectionalSelfAttention,
    MaskedBlockSelfAttention,
    Source2Token,
    TensorizedSelfAttention,
)


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


def build_source2token(options, in_features, weights):
    module = Source2Token(in_features, activation=options["activation"], empty_rows="mean")
    return module, {f"[^/]+/{tail}": name for tail, name in tf.SOURCE2TOKEN.items()}


def build_additive(options, in_features, weights):
    module = AdditivePooling(in_features, activation=options["activation"], empty_rows="mean")
    return module, {f"[^/]+/{tail}": name for tail, name in tf.ADDITIVE.items()}


def build_encoder(model_type, options, in_features, weights, **fields):
    size = options.get("hn") or in_features
    activation = options.get("activation") or options["activation_function"]
    config = AutoConfig.for_model(
        model_type, embedding_size=in_features, hidden_size=2 * size, activation=activation, vocab_size=2, **fields
    )
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


def build_context(options, in_features, weights):
    model, rules = build_biblosan(options, in_features, weights)
    return model.context, {pattern: name.removeprefix("context.") for pattern, name in rules.items()}


def build_sentence_encoder(options, in_features, weights):
    builders = {"disa": build_disan, "block": build_biblosan}
    return builders[options["method"]](options, in_features, weights)


BUILDERS = {
    "directional_attention_with_dense": build_disa,
    "disan": build_disan,
    "multi_dimensional_attention": build_source2token,
    "multi_dim_souce2token_self_attn": build_source2token,
    "traditional_attention": build_additive,
    "simple_block_attention": build_block,
    "bi_directional_simple_block_attention": build_context,
    "context_fusion_layers": build_context,
    "sentence_encoding_models": build_sentence_encoder,
    "multi_mask_tensorized_self_attn": build_tensorized,
}
