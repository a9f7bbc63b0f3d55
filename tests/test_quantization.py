"""int8 by torch: every linear map is reached. torchao's is in test_torchao.py."""

import pytest
import torch
from test_peft import FIELDS, batch
from torch import nn
from transformers import AutoConfig, AutoModelForSequenceClassification

SIZES = {"vocab_size": 40, "embedding_size": 32, "hidden_size": 96, "classifier_size": 32}


def make(model_type, head=AutoModelForSequenceClassification, **fields):
    torch.manual_seed(0)
    model = head.from_config(AutoConfig.for_model(model_type, **SIZES, **FIELDS[model_type], **fields)).eval()
    model.load_word_vectors(0.4 * torch.randn(SIZES["vocab_size"], SIZES["embedding_size"]))  # as large as real ones
    return model


@torch.no_grad()
def logits(model):
    return model(**batch(model.config.num_sentences, labels=False)).logits


def linear_maps(model):
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


@pytest.mark.filterwarnings("ignore:.*quantize_dynamic", "ignore:torch.ao.quantization is deprecated")
@pytest.mark.parametrize("model_type", FIELDS)
def test_dynamic_quantisation_of_torch(model_type):
    model = make(model_type)
    quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    maps = [module for module in quantised.modules() if isinstance(module, torch.ao.nn.quantized.dynamic.Linear)]
    assert not linear_maps(quantised) and len(maps) == len(linear_maps(model))
    expected, found = logits(model), logits(quantised)
    assert 0 < (found - expected).abs().max() < 0.1 * expected.abs().max()  # one scale for all rows of a batch
