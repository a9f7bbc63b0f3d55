"""Trainable parameters without word vectors, as counted in the authors' code or in the papers' tables, exactly."""

import pytest
from test_models import parameters_without_embeddings
from transformers import AutoConfig, AutoModelForSequenceClassification

UNDIRECTED = {"directions": ["diagonal", "diagonal"]}
NARROW = {"hidden_size": 480, "classifier_size": 240}
HIERARCHICAL = {"architecture": "hierarchical", "hidden_size": 300}

# Encoder alone, SNLI model with a highway layer in its classifier, and without.
COUNTS = {
    "DiSAN": ("disan", {}, 1_624_200, 2_526_003, 2_345_403),
    "DiSAN without directions": ("disan", UNDIRECTED, 1_624_200, 2_526_003, 2_345_403),
    "480D Bi-BloSAN": ("biblosan", NARROW, 2_223_360, 2_800_803, 2_685_123),
    "600D Bi-BloSAN": ("biblosan", {}, 3_427_200, 4_329_003, 4_148_403),
    "Bi-BloSAN without local": ("biblosan", NARROW | {"fuse_local": False}, 1_992_960, 2_570_403, 2_454_723),
    "Bi-BloSAN without global": ("biblosan", NARROW | {"fuse_global": False}, 1_298_880, 1_876_323, 1_760_643),
    "MTSA": ("mtsa", {}, 1_983_600, 2_885_403, 2_704_803),
    "MTSA without order masks": ("mtsa", UNDIRECTED, 1_983_600, 2_885_403, 2_704_803),
    "MTSA without token2token": ("mtsa", {"token2token": False}, 1_623_600, 2_525_403, 2_344_803),
    "MTSA without source2token": ("mtsa", {"source2token": False}, 1_622_400, 2_524_203, 2_343_603),
    "Bi-LSTM": ("birnn", {}, 2_163_600, 3_065_403, 2_884_803),
    "Bi-GRU": ("birnn", {"cell": "gru"}, 1_803_000, 2_704_803, 2_524_203),
    "Bi-SRU": ("birnn", {"cell": "sru"}, 1_262_400, 2_164_203, 1_983_603),
    "Multi-CNN": ("textcnn", {"pooling": "max"}, 720_600, 1_622_403, 1_441_803),
    "multi_cnn": ("textcnn", {}, 1_441_800, 2_343_603, 2_163_003),
    "Hrchy-CNN": ("textcnn", HIERARCHICAL, 2_882_400, 3_424_203, 3_243_603),
    "Multi-head": ("multihead", {}, 1_261_200, 2_163_003, 1_982_403),
    "multi_head_git": ("multihead", {"variant": "relu"}, 1_263_000, 2_164_803, 1_984_203),
    "Word vectors, source2token": ("wordbag", {}, 180_600, 722_403, 541_803),
    "Word vectors, additive attention": ("wordbag", {"pooling": "additive"}, 90_600, 632_403, 451_803),
    "Dense layer, source2token": ("wordbag", {"dense_map": True, "hidden_size": 600}, 901_800, 1_803_603, 1_623_003),
}


@pytest.mark.parametrize("system", COUNTS)
def test_parameter_counts_of_the_snli_models(system):
    model_type, fields, *expected = COUNTS[system]
    fields = {"vocab_size": 10, "num_sentences": 2, "num_labels": 3} | fields
    models = [
        AutoModelForSequenceClassification.from_config(
            AutoConfig.for_model(model_type, classifier_highway=highway, **fields)
        )
        for highway in (True, False)
    ]
    assert [parameters_without_embeddings(model) for model in (models[0].model, *models)] == expected
