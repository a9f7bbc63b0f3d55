"""What configurations refuse, and that models leave the caller's alone."""

import math

import pytest
from huggingface_hub.errors import StrictDataclassError
from test_models import SMALL
from transformers import AutoConfig, AutoModel

from hf_blosan import AutoModelForPairRegression, DiSANConfig, DiSANModel


@pytest.mark.parametrize(
    "model_type, fields, message",
    [
        ("disan", {"hidden_size": 7}, "hidden_size=7 does not divide into 2 directions"),
        ("disan", {"formulation": "printed"}, "formulation"),
        ("disan", {"directions": ["up"]}, "an entry of directions is 'up'; choose one of forward, backward, diagonal"),
        ("birnn", {"directions": ["full"]}, "an entry of directions is 'full'; choose one of forward, backward$"),
        ("disan", {"dropout": 1.0}, "dropout=1.0: it is a probability"),
        ("disan", {"map_dropout": -0.1}, "map_dropout=-0.1: it is a probability"),
        ("disan", {"num_sentences": 3}, "num_sentences=3"),
        ("disan", {"pair_features": "signed"}, "pair_features"),
        ("disan", {"num_hidden_layers": 0}, "num_hidden_layers=0: it must be at least 1"),
        ("wordbag", {"num_hidden_layers": 2}, "num_hidden_layers=2: wordbag has 1 layer; set it to 1"),
        ("disan", {"feed_forward_size": 8}, "feed_forward_size=8: only the layers of a stack"),
        ("disan", {"predicate_size": -1}, "predicate_size=-1: it must be at least 0"),
        ("disan", {"embedding_scale": 0.0}, "embedding_scale=0.0: it must be a finite number above 0"),
        (
            "textcnn",
            {"feed_forward_size": 8, "architecture": "hierarchical"},
            "feed_forward_size=8: a textcnn has no feed-forward",
        ),
        ("multihead", {"num_heads": 7}, "num_heads=7 does not divide"),
        ("multihead", {"directions": ["forward"]}, "has no order masks here; leave the list empty"),
        ("disan", {"num_fixed_embeddings": 5}, 'need embedding_trainable="train_words"'),
        (
            "disan",
            {"embedding_trainable": "train_words", "num_fixed_embeddings": 60, "vocab_size": 60},
            "leave at least",
        ),
        ("disan", {"score_min": 5.0, "score_max": 1.0}, "give a range within .*, its lower end first"),
        ("disan", {"score_min": -1e308, "score_max": 1e308}, "give a range within"),
        ("disan", {"initializer_range": math.nan}, "initializer_range=nan: it must be a finite number, 0 or more"),
        ("disan", {"initializer_range": math.inf}, "initializer_range=inf"),
        ("disan", {"pad_token_id": -5}, "pad_token_id=-5: it must be at least 0"),
        ("disan", {"num_score_classes": 1}, "num_score_classes=1"),
        ("disan", {"vocab_size": 0}, "vocab_size=0"),
        ("biblosan", {"block_length": 0}, "block_length=0"),
        ("biblosan", {"fuse_local": False, "fuse_global": False}, "leave no context to fuse; .* wordbag"),
        ("mtsa", {"token2token": False, "source2token": False}, "leave no attention; .* wordbag with dense_map=True"),
        ("mtsa", {"num_heads": 7}, "num_heads=7 does not divide"),
        ("mtsa", {"num_heads": 3}, "num_heads=3 does not divide evenly among"),
        ("mtsa", {"source2token_layers": 3}, "source2token_layers=3"),
        ("mtsa", {"attention_dropout": -0.1}, "attention_dropout=-0.1"),
    ],
)
def test_impossible_configurations_are_refused(model_type, fields, message):
    with pytest.raises(StrictDataclassError, match=message):
        AutoConfig.for_model(model_type, **fields)


def test_pair_regression_leaves_the_callers_configuration_alone():
    config = AutoConfig.for_model("disan", num_sentences=2, num_labels=3, **SMALL)
    assert AutoModelForPairRegression.from_config(config).config.num_labels == 1
    assert config.num_labels == 3 and config.problem_type is None


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"directions": ["forward", "backward", "forward"]}, "hidden_size=8 does not divide into 3 directions"),
        ({"windows": [1]}, "windows=.1.: give one for each direction"),
        ({"dropout": 1.5}, "dropout=1.5: it is a probability"),
        ({"num_sentences": 3}, "num_sentences=3: a row holds 1 sentence or 2"),
    ],
)
def test_fields_given_while_loading_are_checked(fields, message, tmp_path):
    DiSANModel(DiSANConfig(vocab_size=9, embedding_size=4, hidden_size=8)).save_pretrained(tmp_path)
    with pytest.raises(StrictDataclassError, match=message):
        AutoModel.from_pretrained(tmp_path, **fields)
