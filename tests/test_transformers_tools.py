"""The models in tools that know nothing of this package: Trainer, pipelines."""

import pytest
import torch
from datasets import Dataset
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    pipeline,
)

from hf_blosan import AutoModelForPairRegression
from hf_blosan.registry import FAMILIES
from hf_blosan.text.tokenization import build_tokenizer

MODEL_TYPES = list(FAMILIES)
FIRST = ["the dog sees the cat", "a bird sings", "the cat sleeps", "no dog sings"] * 4
SECOND = ["the cat sees the dog", "a bird sings", "the cat does not sleep", "the bird sings"] * 4
SMALL = {"embedding_size": 24, "hidden_size": 24, "classifier_size": 8, "num_sentences": 2}


def pairs(tokenizer, labels):
    rows = Dataset.from_dict({"first": FIRST, "second": SECOND, "labels": labels})
    return rows.map(lambda row: tokenizer(row["first"], row["second"]), remove_columns=["first", "second"])


def trained(model, tokenizer, rows, output_dir, **options):
    arguments = TrainingArguments(
        str(output_dir),
        use_cpu=True,
        num_train_epochs=1,
        report_to="none",
        logging_steps=1,
        save_strategy="no",
        **options,
    )
    trainer = Trainer(
        model, arguments, train_dataset=rows, eval_dataset=rows, data_collator=DataCollatorWithPadding(tokenizer)
    )
    trainer.train()
    return trainer


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_trainer_and_pipeline(model_type, tmp_path):
    tokenizer = build_tokenizer(FIRST + SECOND)
    rows = pairs(tokenizer, [0, 1, 0, 1] * 4)
    config = AutoConfig.for_model(model_type, vocab_size=len(tokenizer), **SMALL)
    model = AutoModelForSequenceClassification.from_config(config)
    trainer = trained(model, tokenizer, rows, tmp_path, per_device_train_batch_size=4)
    assert trainer.predict(rows).predictions.shape == (16, 2)  # logits only, no maps or states
    trainer.save_model(str(tmp_path / "model"))
    assert (tmp_path / "model" / f"modeling_{model_type}.py").exists()
    tokenizer.save_pretrained(tmp_path / "model")
    classify = pipeline("text-classification", model=str(tmp_path / "model"))
    texts = [{"text": a, "text_pair": b} for a, b in zip(FIRST[:4], SECOND[:4], strict=True)]
    answers = classify(texts, batch_size=2, top_k=None)
    expected = torch.tensor(trainer.predict(rows).predictions[:4]).softmax(-1)
    for answer, row in zip(answers, expected, strict=True):
        scores = {entry["label"]: entry["score"] for entry in answer}
        torch.testing.assert_close(torch.tensor([scores["LABEL_0"], scores["LABEL_1"]]), row)


def test_pair_regression_in_trainer_and_pipeline(tmp_path):
    tokenizer = build_tokenizer(FIRST + SECOND)
    rows = pairs(tokenizer, [4.5, 5.0, 2.0, 1.0] * 4)
    config = AutoConfig.for_model("disan", vocab_size=len(tokenizer), **SMALL)
    model = AutoModelForPairRegression.from_config(config)
    trainer = trained(model, tokenizer, rows, tmp_path, per_device_train_batch_size=4)
    predicted = trainer.predict(rows).predictions
    assert predicted.shape == (16, 1)
    trainer.save_model(str(tmp_path / "model"))
    tokenizer.save_pretrained(tmp_path / "model")
    score = pipeline("text-classification", model=str(tmp_path / "model"))
    answer = score({"text": FIRST[0], "text_pair": SECOND[0]})
    assert answer["score"] == pytest.approx(float(predicted[0, 0]), abs=1e-5)  # a score within 1..5, no sigmoid


@pytest.mark.parametrize("wrong", [0.0, 5.1, float("nan")])
def test_scores_outside_the_range_of_a_model_are_refused(wrong):
    tokenizer = build_tokenizer(FIRST + SECOND)
    model = AutoModelForPairRegression.from_config(AutoConfig.for_model("disan", vocab_size=len(tokenizer), **SMALL))
    batch = tokenizer(FIRST[:3], SECOND[:3], padding=True, return_tensors="pt")
    message = f"labels hold {wrong:g}, but this model's scores are from 1 to 5; give labels in this range"
    with pytest.raises(ValueError, match=message):
        model.train()(**batch, labels=torch.tensor([1.0, wrong, 5.0]))
    assert model(**batch, labels=torch.tensor([1.0, 3.3, 5.00001])).loss.isfinite()
    model.eval()(**batch, labels=torch.full((3,), -1.0))  # as rows for predictions have them


@pytest.mark.parametrize("head", [AutoModelForSequenceClassification, AutoModelForPairRegression])
def test_gradient_accumulation_gives_the_same_gradient(head, tmp_path):
    """A head whose forward takes **kwargs is believed to divide the loss by itself, unless it says otherwise."""
    tokenizer = build_tokenizer(FIRST + SECOND)
    rows = pairs(tokenizer, [1.0, 5.0, 2.0, 1.0] * 4 if head is AutoModelForPairRegression else [0, 1, 0, 1] * 4)
    norms = []
    for options in ({"per_device_train_batch_size": 16}, {"per_device_train_batch_size": 4}):
        torch.manual_seed(0)
        model = head.from_config(AutoConfig.for_model("disan", vocab_size=len(tokenizer), **SMALL))
        options["gradient_accumulation_steps"] = 16 // options["per_device_train_batch_size"]
        trainer = trained(model, tokenizer, rows, tmp_path, max_grad_norm=1e9, **options)
        norms.append(trainer.state.log_history[0]["grad_norm"])
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)


def test_sentence_embedding_pipeline(tmp_path):
    """Of a model with a head; that of a saved encoder, which comes with its code, is in test_saving.py."""
    tokenizer = build_tokenizer(FIRST, model_max_length=4)
    config = AutoConfig.for_model("disan", vocab_size=len(tokenizer), **SMALL)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    # Otherwise a pipeline without a task would be this one, and not the classifier.
    assert not hasattr(AutoConfig.from_pretrained(tmp_path), "custom_pipelines")

    model.base_model.save_pretrained(tmp_path / "encoder")  # which has one configuration with the model
    assert hasattr(AutoConfig.from_pretrained(tmp_path / "encoder"), "custom_pipelines")
    head = AutoModelForSequenceClassification.from_pretrained(tmp_path / "encoder")
    for number, saved in enumerate((model, head)):
        saved.save_pretrained(tmp_path / f"head{number}")
        assert not hasattr(AutoConfig.from_pretrained(tmp_path / f"head{number}"), "custom_pipelines")

    embed = pipeline("sentence-embedding", model=str(tmp_path))
    with torch.no_grad():
        batch = tokenizer(FIRST[:3], truncation=True, padding=True, return_tensors="pt")
        expected = model.base_model(**batch).pooler_output
    vectors = embed(FIRST[:3], batch_size=2)
    torch.testing.assert_close(torch.tensor(vectors), expected, rtol=0, atol=1e-6)
    assert embed(FIRST[0]) == pytest.approx(vectors[0], abs=1e-6)
    with torch.no_grad():
        short = model.base_model(
            **tokenizer(FIRST[0], truncation=True, max_length=2, return_tensors="pt")
        ).pooler_output
    assert embed(FIRST[0], max_length=2) == pytest.approx(short[0].tolist(), abs=1e-6)
    unit = embed(FIRST[0], normalize=True, return_tensors=True)
    torch.testing.assert_close(unit, torch.nn.functional.normalize(expected[0], dim=0), rtol=0, atol=1e-6)
