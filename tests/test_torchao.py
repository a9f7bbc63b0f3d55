"""int8 by torchao: every linear map is reached, and quantised models are saved and loaded.

In a file of its own because transformers imports torchao wherever it is installed, which takes every process about a
second; `make test-all` installs it, `make test` does not.
"""

import pytest
import torch
from test_peft import FIELDS
from test_quantization import linear_maps, logits, make
from transformers import AutoModelForSequenceClassification, TorchAoConfig

from hf_blosan import AutoModelForPairRegression

quantization = pytest.importorskip("torchao.quantization", reason="needs the extra hf_blosan[quantization]")
pytestmark = pytest.mark.slow
KINDS = {
    "dynamic": quantization.Int8DynamicActivationInt8WeightConfig,
    "weights": quantization.Int8WeightOnlyConfig,
}


def load_int8(head, folder, kind):
    return head.from_pretrained(folder, quantization_config=TorchAoConfig(KINDS[kind]()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model_type", FIELDS)
def test_torchao_while_loading(model_type, kind, tmp_path):
    model = make(model_type)
    model.save_pretrained(tmp_path / "float32")
    quantised = load_int8(AutoModelForSequenceClassification, tmp_path / "float32", kind)
    assert len(linear_maps(quantised)) == len(linear_maps(model))
    assert {type(module.weight).__name__ for module in linear_maps(quantised)} == {"Int8Tensor"}
    expected, found = logits(model), logits(quantised)
    assert 0 < (found - expected).abs().max() < 0.05 * expected.abs().max()

    quantised.save_pretrained(tmp_path / "int8")
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "int8")
    torch.testing.assert_close(logits(again), found)
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("float32", "int8")]
    assert sizes[1] < sizes[0] or model_type in ("birnn", "textcnn")  # most of their weights are not linear maps


def test_pair_regression(tmp_path):
    model = make("mtsa", AutoModelForPairRegression, num_sentences=2)
    model.save_pretrained(tmp_path)
    quantised = load_int8(AutoModelForPairRegression, tmp_path, "dynamic")
    assert {type(module.weight).__name__ for module in linear_maps(quantised)} == {"Int8Tensor"}
    torch.testing.assert_close(logits(quantised), logits(model), rtol=0, atol=0.05)
