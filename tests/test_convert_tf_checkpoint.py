"""Reading the authors' weights, as a function and as a command; the numbers themselves are checked in test_golden."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from hf_blosan.cli.overrides import parse_config_overrides
from hf_blosan.errors import InputError
from hf_blosan.training import RunArguments
from reproduce.convert_tf_checkpoint import convert_model, main, read_arrays

GOLDEN = Path(__file__).parent / "golden"
FORWARD = "disan/sent_enc/DiSAN/ct_attn/dir_attn_fw"


def variables(fixture="task_snli_disan", fixed=True):
    tensors = load_file(GOLDEN / f"{fixture}.safetensors")
    arrays = {name.removeprefix("weight/"): t for name, t in tensors.items() if name.startswith("weight/")}
    if fixed:
        arrays["glove_only_embedding"] = tensors["constant/glove_only_embedding"]
    return arrays


def test_sizes_are_read_off_the_arrays():
    config = convert_model("disan", variables()).config
    assert (config.vocab_size, config.num_fixed_embeddings, config.embedding_size) == (34, 10, 12)
    assert (config.hidden_size, config.classifier_size, config.num_labels, config.num_sentences) == (24, 10, 3, 2)
    assert config.classifier_bias and not config.classifier_highway
    config = convert_model("mtsa", variables("task_trec_mtsa", fixed=False), activation="relu").config
    assert (config.num_heads, config.num_sentences, config.vocab_size, config.activation) == (2, 1, 24, "relu")
    assert not config.classifier_bias and config.fusion_gate


def test_layers_are_counted():
    arrays = variables("mtsa_stack2_a", fixed=False) | {"emb_mat": torch.randn(7, 16)}
    for layer in ("bn_dense_map1", "bn_dense_map2"):
        arrays |= {f"s2t/{layer}/W": torch.randn(16, 16), f"s2t/{layer}/bias": torch.randn(16)}
    config = convert_model("mtsa", arrays, num_heads=4, activation="relu").config
    assert (config.num_hidden_layers, config.hidden_size, config.embedding_size) == (2, 16, 16)
    assert config.output_layer and not config.fusion_gate
    with pytest.raises(InputError, match="do not determine the number of concatenated heads; give num_heads"):
        convert_model("mtsa", arrays)
    with pytest.raises(InputError, match="missing for .*layers.1.fusion_norm.bias"):
        convert_model("mtsa", {n: a for n, a in arrays.items() if "layer_1/res_con_2" not in n}, num_heads=4)


def test_an_encoder_without_a_head():
    arrays = {name: array for name, array in variables().items() if "/output/" not in name or "dir_attn" in name}
    model = convert_model("disan", arrays)
    whole = convert_model("disan", variables())
    assert type(model).__name__ == "DiSANModel"
    ids = torch.arange(2, 20)[None]
    assert torch.equal(model(ids).pooler_output, whole.model(ids).pooler_output)


def test_optimiser_state_is_passed_over():
    arrays = variables()
    name = f"{FORWARD}/attention/f_bias"
    extra = {f"{name}/Adadelta": arrays[name], f"{name}/Adadelta_1": arrays[name], "global_step": torch.tensor([7])}
    extra[f"{name}/ExponentialMovingAverage"] = arrays[name]
    assert convert_model("disan", arrays | extra).config.hidden_size == 24


def test_missing_surplus_and_misshapen_variables_are_named():
    arrays = variables()
    name = f"{FORWARD}/attention/linear_head/W"
    with pytest.raises(InputError, match="missing for .*directions.0.attention.query_map.weight"):
        convert_model("disan", {key: value for key, value in arrays.items() if key != name})
    with pytest.raises(InputError, match=r"1 variable\(s\) do not belong to this model: disan/mystery/W"):
        convert_model("disan", arrays | {"disan/mystery/W": arrays[name]})
    with pytest.raises(InputError, match=r"query_map.weight has shape \(12, 12\), .* give \(11, 12\)"):
        convert_model("disan", arrays | {name: arrays[name][:, :-1]})
    arrays = variables("task_snli_mtsa")
    without_bias = {name: array for name, array in arrays.items() if "v_transform/bias" not in name}
    with pytest.raises(InputError, match="missing for .*value_map.0.bias"):
        convert_model("mtsa", without_bias)
    with pytest.raises(InputError, match="is this a mtsa model"):
        convert_model("mtsa", {"emb_mat": torch.zeros(3, 4)})
    with pytest.raises(InputError, match="'bert' is unknown; choose one of disan, biblosan, mtsa"):
        convert_model("bert", arrays)


def test_a_block_length_without_data_to_find_it_from_is_refused():
    arrays = variables("task_snli_biblosa")
    with pytest.raises(InputError, match='block_length="auto" is resolved by the training command'):
        convert_model("biblosan", arrays, block_length="auto")


def test_overrides_are_read_as_yaml():
    text = "dropout=0.3,initializer_range=1e-3,directions=[diagonal,full],fusion_gate=false,activation=relu"
    expected = {"dropout": 0.3, "initializer_range": 0.001, "directions": ["diagonal", "full"]}
    assert parse_config_overrides(text) == expected | {"fusion_gate": False, "activation": "relu"}
    assert parse_config_overrides(None) == {}
    overrides = {"dropout": 0.3, "directions": ["diagonal", "full"]}
    arguments = RunArguments(task_name="demo", encoder="disan", output_dir="out", config_overrides=overrides)
    assert parse_config_overrides(arguments.config_overrides) == overrides


def test_command(tmp_path, capsys):
    """From a .npz file to a model that the Auto classes load."""
    arrays = variables()
    np.savez(tmp_path / "variables.npz", **{name: array.numpy() for name, array in arrays.items()})
    command = ["--model_type", "disan", "--weights", str(tmp_path / "variables.npz")]
    assert main([*command, "--output_dir", str(tmp_path / "model")]) == 0
    printed = capsys.readouterr().out
    assert "DiSANForSequenceClassification with" in printed
    fixed = len(arrays.get("glove_only_embedding", ()))
    assert f" {fixed} of them from glove_only_embedding" in printed
    assert "not in the arrays, so as in a new configuration: activation=elu; --config_overrides sets others" in printed
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    ids, types = torch.arange(2, 12)[None], torch.tensor([[0] * 5 + [1] * 5])
    expected = convert_model("disan", arrays)(ids, token_type_ids=types).logits
    assert torch.equal(loaded(ids, token_type_ids=types).logits, expected)


def test_command_errors_are_sentences(tmp_path, capsys):
    save_file({"emb_mat": torch.zeros(3, 4)}, tmp_path / "part.safetensors")
    for name in ("weights.pkl", "broken.npz", "broken.safetensors"):
        (tmp_path / name).write_bytes(b"no arrays")
    save_file(variables(), tmp_path / "whole.safetensors")
    for weights, overrides, message in (
        ("absent.npz", "", "does not exist"),
        ("weights.pkl", "", "ends in '.pkl'; give a .npz or .safetensors"),
        ("part.safetensors", "", "no variable for model.pooler.hidden.weight"),
        ("part.safetensors", "activation", "cannot be read; write them as"),
        ("broken.npz", "", "cannot be read"),
        ("broken.safetensors", "", "cannot be read"),
        ("whole.safetensors", "activaton=relu", "disan has no field 'activaton'; choose one of activation,"),
        ("whole.safetensors", "activation=rellu", "activation is 'rellu'; give one of elu, relu,"),
    ):
        arguments = [
            "--weights",
            str(tmp_path / weights),
            "--model_type",
            "disan",
            "--output_dir",
            str(tmp_path / "m"),
        ]
        assert main([*arguments, "--config_overrides", overrides]) == 2
        printed = capsys.readouterr().err
        assert printed.startswith("error: ") and message in printed and printed.count("\n") == 1
    assert not (tmp_path / "m").exists()


def test_both_file_formats(tmp_path):
    arrays = {"a/W": torch.randn(2, 3)}
    save_file(arrays, tmp_path / "a.safetensors")
    np.savez(tmp_path / "a.npz", **{"a/W": arrays["a/W"].numpy()})
    for suffix in ("safetensors", "npz"):
        assert torch.equal(read_arrays(tmp_path / f"a.{suffix}")["a/W"], arrays["a/W"])
