"""Names of the variables in the authors' TensorFlow checkpoints, and the corresponding modules of this package.

Each table maps patterns of a component's variable scopes to module names; the leaf (W, bias, W_1_0 ...) follows the
scope.
"""

DISA = {
    "bn_dense_map/linear_map": "dense_map",
    "attention/linear_dependent": "attention.key_map",
    "attention/linear_head": "attention.query_map",
    "attention/f_bias": "attention.bias",
    "output/linear_fusion_i": "gate.first",
    "output/linear_fusion_a": "gate.second",
    "output/o_bias": "gate.bias",
}
MBLOSA = {
    "split_seq/bn_dense_map/linear_map": "dense_map",
    "self_attention/linear_dependent_head": "block_attention.alignment_map",
    "self_attention/f_bias": "block_attention.bias",
    "source2token_self_attn/bn_dense_map/linear_map": "block_pooling",
    "combination/linear_new_context_and_gate": "fusion",
    **{f"self_attn_inter_block/disa/{tail}": f"global_attention.{name}" for tail, name in DISA.items()},
}
TENSORIZED = {
    "input_non_linearity/linear_input": "input_layer",
    "v_transform": "value_map",
    "q_transform": "query_map",
    "k_transform": "key_map",
    "s2t_multi_dim_attention/tensor4multi": "source_scores.0",
    "s2t_multi_dim_attention/multi_logits": "source_scores.1",
    "context_fusion_gate/linear_fusion_gate": "gate",
    "output_non_linearity/linear_output": "output_layer",
}
STACKED = {
    "ffn": "feed_forward",
    "res_con_1/layer_norm": "feed_forward_norm",
    "res_con_2/layer_norm": "fusion_norm",
    **{f"[^/]+/{tail}": f"attention.{name}" for tail, name in TENSORIZED.items()},
}
MULTI_HEAD = {
    "(?:q_transform|dense)": "query_map",
    "(?:k_transform|dense_1)": "key_map",
    "(?:v_transform|dense_2)": "value_map",
}
RECURRENT = {
    r"lstm_cell(|\.\w+)": r"gates\1",
    r"gru_cell/(gates|candidate)(|\.\w+)": r"\1\2",
    "(?:SRU_cell/get_frc|get_frc_[fb]w)/linear_map": "map",
    "(?:SRU_cell|(?:forward|backward)_sru)/b_f": "forget_bias",
    "(?:SRU_cell|(?:forward|backward)_sru)/b_r": "reset_bias",
    "SRU_cell/get_frc/bn/gamma": "norm.weight",
    "SRU_cell/get_frc/bn/beta": "norm.bias",
    "SRU_cell/get_frc/bn/moving_mean": "norm.mean",
    "SRU_cell/get_frc/bn/moving_variance": "norm.variance",
}
SOURCE2TOKEN = {"bn_dense_map1(?:/linear_map)?": "hidden", "bn_dense_map2(?:/linear_map)?": "scores"}
ADDITIVE = {"bn_dense_map/linear_map": "hidden", "self_attn_logits/first": "scores"}
CLASSIFIER = {
    "output/pre_output(?:/linear_map)?": "hidden",
    "output/pre_output1/map/linear_map": "highway.map",
    "output/pre_output1/gate/linear_map": "highway.gate",
    "output/pre_logits_linear": "hidden",
    "output/(?:logits|get_output)": "output",
    "output/linear_h1": "product",
    "output/linear_h2": "difference",
}
SELECTOR = {"q_rep_map": "question_map", "sent_enc_map": "sentence_map", "logits/first": "output"}


def _within(scope: str, prefix: str, component: dict[str, str]) -> dict[str, str]:
    return {f"{scope}/{tail}": f"{prefix}.{name}" for tail, name in component.items()}


ANY_SCOPE = "(?:.*/)?[^/]+"
FORWARD = "(?:.*/)?(?:dir_attn_fw|fw_disa|forward_attn)"
BACKWARD = "(?:.*/)?(?:dir_attn_bw|bw_disa|backward_attn)"
CONTEXTS = {
    "disan": {
        **_within(FORWARD, "context.layers.0.directions.0", DISA),
        **_within(BACKWARD, "context.layers.0.directions.1", DISA),
    },
    "biblosan": {
        **_within(FORWARD, "context.layers.0.directions.0", MBLOSA),
        **_within(BACKWARD, "context.layers.0.directions.1", MBLOSA),
    },
    "mtsa": {
        **_within(r"(?:.*/)?layer_(\d+)", r"context.layers.\1", STACKED),
        **_within(ANY_SCOPE, "context.layers.0.attention", TENSORIZED),
    },
    "textcnn": {
        r"(?:.*/)?conv-maxpool-(\d+)": r"context.layers.0.convolutions.\1",
        r"(?:.*/)?conv_maxpool_(\d+)": r"context.layers.\1.convolution",
    },
    "birnn": {
        **_within("(?:.*/)?(?:fw|forward)", "context.layers.0.directions.0", RECURRENT),
        **_within("(?:.*/)?(?:bw|backward)", "context.layers.0.directions.1", RECURRENT),
    },
    "wordbag": {"(?:.*/)?no_ct/linear_map": "context.layers.0.dense_map"},
    "multihead": _within(ANY_SCOPE, "context.layers.0", MULTI_HEAD),
}
POOLER = {**_within(ANY_SCOPE, "pooler", SOURCE2TOKEN), **_within("(?:.*/)?[^/]*trad[^/]*", "pooler", ADDITIVE)}


def model_rules(model_type: str) -> dict[str, str]:
    """Pattern of a variable's scope -> module name in a model with a head."""
    context, encoder = CONTEXTS[model_type], {**CONTEXTS[model_type], **POOLER}
    return {
        **{f"(?:.*/)?out_cf/{scope}": f"classifier.{name}" for scope, name in context.items()},
        **_within("(?:.*/)?q2coding", "classifier.question_pooler", SOURCE2TOKEN),
        **{f"{ANY_SCOPE}/{tail}(?:/linear_map)?": f"classifier.{name}" for tail, name in SELECTOR.items()},
        **{scope: f"model.{name}" for scope, name in encoder.items()},
        "(?:.*/)?emb_mat": "model.embeddings.word_embeddings.weight",
        "(?:constant/)?glove_only_embedding": "model.embeddings.word_embeddings.fixed_weight",
        **_within(ANY_SCOPE, "classifier", CLASSIFIER),
    }
