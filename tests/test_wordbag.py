"""The baseline of plain word vectors. What all encoders do: test_models, there with a dense map."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from test_models import make, sentences
from test_textcnn import authors_variables
from transformers import AutoConfig, AutoModel

from hf_blosan.models.layers import MeanPooling
from reproduce.convert_tf_checkpoint import convert_model

PLAIN = {"dense_map": False, "hidden_size": 10}


@pytest.mark.parametrize(
    "fields, expected",
    [({}, 180_600), ({"pooling": "additive"}, 90_600), ({"dense_map": True, "hidden_size": 600}, 901_800)],
)
def test_parameter_counts_of_the_encoders(fields, expected):
    model = AutoModel.from_config(AutoConfig.for_model("wordbag", vocab_size=10, **fields))
    assert sum(p.numel() for name, p in model.named_parameters() if "embeddings" not in name) == expected


@pytest.mark.parametrize("pooling", ["source2token", "additive"])
def test_words_stay_as_they_are(pooling, tmp_path):
    model = make(AutoModel, "wordbag", pooling=pooling, **PLAIN)
    batch = sentences(6, 4)
    output = model(**batch, output_hidden_states=True)
    assert (
        torch.equal(output.last_hidden_state, model.embeddings(batch["input_ids"])) and len(output.hidden_states) == 2
    )
    alone = model(batch["input_ids"][1:, :4])
    torch.testing.assert_close(alone.pooler_output[0], output.pooler_output[1])
    model.save_pretrained(tmp_path)
    assert torch.equal(AutoModel.from_pretrained(tmp_path)(**batch).pooler_output, output.pooler_output)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_means_are_rounded_once(dtype):
    tokens, mask = torch.randn(1, 7, 3, dtype=torch.float64).to(dtype), torch.ones(1, 7, dtype=torch.bool)
    mean, weights = MeanPooling(3)(tokens, mask, output_attentions=True)
    assert weights.dtype == mean.dtype == dtype
    torch.testing.assert_close(mean.double(), tokens.double().mean(1), rtol=torch.finfo(dtype).eps, atol=0)


def test_the_predicate_is_part_of_the_width():
    assert AutoConfig.for_model("wordbag", embedding_size=30, predicate_size=5).hidden_size == 35


@pytest.mark.parametrize("fields", [{}, PLAIN])
def test_word_order_does_not_matter(fields):
    model = make(AutoModel, "wordbag", **fields)
    ids = sentences(9)["input_ids"]
    torch.testing.assert_close(model(ids).pooler_output, model(ids.flip(1)).pooler_output)


def test_plain_words_checkpoint():
    model = make(AutoModel, "wordbag", **PLAIN)
    batch = sentences(6, 4)
    model.train().gradient_checkpointing_enable()
    model(**batch).pooler_output.sum().backward()
    assert model.get_input_embeddings().weight.grad.abs().sum() > 0


def test_conversion():
    config = convert_model("wordbag", authors_variables("enc_no_ct"), activation="relu").config
    assert config.dense_map and config.hidden_size == 24 and config.pooling == "source2token"
    config = convert_model("wordbag", authors_variables("trad_attn_a")).config
    assert not config.dense_map and config.hidden_size == 12 and config.pooling == "additive"


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"hidden_size": 600}, "hidden_size=600 with dense_map=False, .*; set hidden_size=300 or dense_map=True"),
        ({"directions": ["forward"]}, "words without context have no order masks"),
        ({"num_hidden_layers": 2}, "num_hidden_layers=2"),
        ({"pooling": "max"}, "pooling"),
    ],
)
def test_impossible_configurations_are_refused(fields, message):
    with pytest.raises(StrictDataclassError, match=message):
        AutoConfig.for_model("wordbag", **fields)
