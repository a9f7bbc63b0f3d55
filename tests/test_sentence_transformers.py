"""Checkpoints in sentence-transformers: vectors are `pooler_output`, scores are those that were trained."""

import json

import pytest
import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder, SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss
from sentence_transformers.sentence_transformer.modules import Normalize
from sentence_transformers.sentence_transformer.training_args import SentenceTransformerTrainingArguments
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from hf_blosan import AutoModelForPairRegression
from hf_blosan.text.tokenization import build_tokenizer

TEXTS = ["a cat sat on the mat", "the dog ran over a red carpet", "who ?", ""]


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(TEXTS, model_max_length=32)


def save(folder, tokenizer, head=AutoModel, model_type="disan", **fields):
    torch.manual_seed(0)
    sizes = {"vocab_size": len(tokenizer), "embedding_size": 8, "hidden_size": 12, "classifier_size": 8}
    model = head.from_config(AutoConfig.for_model(model_type, **sizes, **fields)).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def vectors(model, tokenizer):
    with torch.no_grad():
        return model.base_model(**tokenizer(TEXTS, padding=True, return_tensors="pt")).pooler_output


@pytest.mark.parametrize("model_type", ["disan", "biblosan", "mtsa", "textcnn"])
@pytest.mark.parametrize("head", [AutoModel, AutoModelForSequenceClassification])
def test_vectors_are_the_pooler_output(tmp_path, tokenizer, model_type, head):
    model = save(tmp_path / "model", tokenizer, head, model_type)
    encoder = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert encoder.get_embedding_dimension() == 12
    expected = vectors(model, tokenizer)
    torch.testing.assert_close(encoder.encode(TEXTS, convert_to_tensor=True), expected, rtol=0, atol=1e-6)
    encoder.append(Normalize())
    encoder.save(str(tmp_path / "again"))
    assert (tmp_path / "again" / f"modeling_{model_type}.py").exists()
    again = SentenceTransformer(str(tmp_path / "again"), device="cpu")
    unit = torch.nn.functional.normalize(expected)
    torch.testing.assert_close(again.encode(TEXTS, convert_to_tensor=True), unit, rtol=0, atol=1e-6)


def test_trains_with_its_trainer(tmp_path, tokenizer):
    before = vectors(save(tmp_path / "model", tokenizer), tokenizer)
    encoder = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    rows = Dataset.from_dict({"sentence1": TEXTS[:2] * 4, "sentence2": TEXTS[1:3] * 4, "score": [0.0, 1.0] * 4})
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path / "run"),
        max_steps=3,
        per_device_train_batch_size=4,
        learning_rate=0.01,
        report_to="none",
        use_cpu=True,
    )
    trainer = SentenceTransformerTrainer(encoder, arguments, train_dataset=rows, loss=CosineSimilarityLoss(encoder))
    trainer.train()
    encoder.save(str(tmp_path / "trained"))
    model = AutoModel.from_pretrained(tmp_path / "trained")
    assert (vectors(model.eval(), tokenizer) - before).abs().max() > 1e-3


def test_cross_encoder_gives_the_trained_score(tmp_path, tokenizer):
    """Between score_min and score_max, and not the sigmoid of it; also after it has been saved again."""
    model = save(tmp_path / "model", tokenizer, AutoModelForPairRegression, num_sentences=2)
    pairs = [(TEXTS[0], TEXTS[1]), (TEXTS[1], TEXTS[2])]
    with torch.no_grad():
        expected = model(**tokenizer(*map(list, zip(*pairs, strict=True)), padding=True, return_tensors="pt")).logits
    scorer = CrossEncoder(str(tmp_path / "model"), device="cpu")
    torch.testing.assert_close(torch.tensor(scorer.predict(pairs)), expected[:, 0], rtol=0, atol=1e-6)
    scorer.save_pretrained(str(tmp_path / "again"))
    again = CrossEncoder(str(tmp_path / "again"), device="cpu")
    torch.testing.assert_close(torch.tensor(again.predict(pairs)), expected[:, 0], rtol=0, atol=1e-6)
    config = json.loads((tmp_path / "again" / "config.json").read_text())
    assert config["architectures"] == ["DiSANForPairRegression"]
