"""Checkpoints of earlier versions load, and are saved in the present form."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from hf_blosan import AutoModelForPairRegression
from hf_blosan.models.layers_heads import HeadLinear

SMALL = {"vocab_size": 20, "embedding_size": 12, "hidden_size": 24, "classifier_size": 6, "num_sentences": 2}
HEADS = (AutoModel, AutoModelForSequenceClassification, AutoModelForPairRegression)
every_head = pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
encoders_with_heads = pytest.mark.parametrize(
    "model_type, fields", [("mtsa", {"num_heads": 4}), ("multihead", {"num_heads": 3, "variant": "relu"})]
)


def make(head, model_type, fields):
    torch.manual_seed(0)
    model = head.from_config(AutoConfig.for_model(model_type, **SMALL, **fields))
    with torch.no_grad():
        for parameter in model.parameters():  # biases other than 0 too
            parameter.uniform_(-0.5, 0.5)
    return model.eval()


def with_stacked_heads(model):
    """The state dict as it was when the maps of all heads were one tensor, (H, in, out)."""
    state = model.state_dict()
    for name, module in model.named_modules():
        if isinstance(module, HeadLinear):
            for part, matrices in (("weight", [weight.T for weight in module.weights]), ("bias", module.biases)):
                if matrices:
                    state[f"{name}.{part}"] = torch.stack([x.detach() for x in matrices])
                    for h in range(len(matrices)):
                        del state[f"{name}.{h}.{part}"]
    return state


def save(model, folder, state=None):
    model.save_pretrained(folder)
    if state is not None:
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def assert_equal(state, expected):
    assert state.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(state[name], tensor), name


@every_head
@encoders_with_heads
def test_stacked_heads(head, model_type, fields, tmp_path):
    model = make(head, model_type, fields)
    earlier, present = with_stacked_heads(model), model.state_dict()
    assert len(earlier) < len(present)
    save(model, tmp_path / "earlier", earlier)
    loaded, information = head.from_pretrained(tmp_path / "earlier", output_loading_info=True)
    assert not any(information.values()), information
    assert_equal(loaded.state_dict(), present)
    assert not any(parameter.data_ptr() % 64 for parameter in loaded.parameters())

    loaded.save_pretrained(tmp_path / "again")
    assert_equal(load_file(tmp_path / "again" / "model.safetensors"), load_file_of(model, tmp_path / "present"))
    again, information = head.from_pretrained(tmp_path / "again", output_loading_info=True)
    assert not any(information.values()), information
    assert_equal(again.state_dict(), present)

    other = make(head, model_type, fields)
    torch.nn.init.zeros_(other.get_input_embeddings().weight)
    other.load_state_dict(earlier)
    assert_equal(other.state_dict(), present)


def load_file_of(model, folder):
    save(model, folder)
    return load_file(folder / "model.safetensors")


@encoders_with_heads
def test_stacked_heads_of_an_encoder_in_a_model_with_a_head_and_back(model_type, fields, tmp_path):
    encoder = make(AutoModel, model_type, fields)
    save(encoder, tmp_path / "encoder", with_stacked_heads(encoder))
    model, information = AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "encoder", output_loading_info=True
    )
    assert all(name.startswith("classifier.") for name in information["missing_keys"])
    assert not information["unexpected_keys"]
    assert_equal(model.model.state_dict(), encoder.state_dict())
    save(model, tmp_path / "model", with_stacked_heads(model))
    assert_equal(AutoModel.from_pretrained(tmp_path / "model").state_dict(), encoder.state_dict())


def test_strange_tensors_are_reported():
    model = make(AutoModel, "mtsa", {"num_heads": 4})
    earlier = with_stacked_heads(model)
    name = next(name for name in earlier if name.endswith("query_map.weight"))
    with pytest.raises(RuntimeError, match="query_map.4.weight"):
        model.load_state_dict(earlier | {name: torch.cat([earlier[name], earlier[name][:1]])})
    with pytest.raises(RuntimeError, match="size mismatch for .*query_map.0.weight"):
        model.load_state_dict(earlier | {name: earlier[name][:, 1:]})


def test_code_that_comes_with_checkpoints(tmp_path, monkeypatch):
    """Two checkpoints with code of their own, side by side."""
    models = [make(AutoModel, "mtsa", {"num_heads": heads}) for heads in (2, 4)]
    for i, model in enumerate(models):
        folder = tmp_path / f"with_code_{i}"
        monkeypatch.setattr(type(model.config), "_auto_class", "AutoConfig")
        monkeypatch.setattr(type(model), "_auto_class", "AutoModel")
        save(model, folder, with_stacked_heads(model))
    classes = [
        get_class_from_dynamic_module("modeling_mtsa.MTSAModel", str(tmp_path / f"with_code_{i}")) for i in range(2)
    ]
    assert classes[0] is not classes[1] and type(models[0]) not in classes
    for i, (cls, model) in enumerate(zip(classes, models, strict=True)):
        assert_equal(cls.from_pretrained(tmp_path / f"with_code_{i}").state_dict(), model.state_dict())
