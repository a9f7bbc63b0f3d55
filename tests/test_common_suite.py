"""What transformers' common test suite asks of a model, for every registered class: tools rely on it."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_models import MODEL_TYPES, make, pairs, sentences
from torch import nn
from transformers import AutoModel, AutoModelForSequenceClassification

from hf_blosan import AutoModelForPairRegression

HEADS = (AutoModel, AutoModelForSequenceClassification, AutoModelForPairRegression)
TABLE = {"embedding_trainable": "train_words", "num_fixed_embeddings": 20, "unk_token_id": 1}
every_class = pytest.mark.parametrize(
    "model_type, head", [(model_type, head) for model_type in MODEL_TYPES for head in HEADS]
)


def make_head(head, model_type, **fields):
    return make(head, model_type, **({"num_sentences": 2} if head is AutoModelForPairRegression else {}) | fields)


def batch_for(model):
    return pairs((6, 4), (2, 9)) if model.config.num_sentences == 2 else sentences(6, 4)


def result(output):
    return output.pooler_output if "pooler_output" in output else output.logits


def differing(one, other):
    """Names of the tensors of two state dicts that are not equal, or in one only."""
    both = one.keys() & other.keys()
    return [name for name in one.keys() | other.keys() if name not in both or not torch.equal(one[name], other[name])]


@every_class
def test_save_and_load(model_type, head, tmp_path):
    """Every tensor, whatever the class; and no tensor without elements."""
    for fields in ({}, TABLE):
        model = make_head(head, model_type, **fields)
        model.save_pretrained(tmp_path / "saved")
        stored = load_file(tmp_path / "saved" / "model.safetensors")
        assert not differing(stored, model.state_dict()) and all(tensor.numel() for tensor in stored.values())
        loaded, report = type(model).from_pretrained(tmp_path / "saved", output_loading_info=True)
        assert not any(report.values()), report
        assert not differing(loaded.state_dict(), model.state_dict())
        identity = {"architectures": [type(model).__name__], "_name_or_path": loaded.config._name_or_path}
        assert loaded.config.to_dict() == model.config.to_dict() | identity


@every_class
def test_weights_that_a_checkpoint_lacks_are_initialised(model_type, head, tmp_path):
    """With ignore_mismatched_sizes, and after to_empty: no memory is used as it was found."""
    model = make_head(head, model_type, **TABLE)
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    save_file(
        {name: torch.full((1, 1, 1, 1), torch.nan) for name in weights},
        tmp_path / "model.safetensors",
        {"format": "pt"},
    )
    loaded = type(model).from_pretrained(tmp_path, ignore_mismatched_sizes=True)
    with torch.device("meta"):
        emptied = type(model)(model.config)
    emptied.to_empty(device="cpu")
    for tensor in emptied.state_dict().values():
        tensor.fill_(torch.nan)
    emptied.init_weights()
    for found in (loaded, emptied):
        for (name, tensor), expected in zip(found.state_dict().items(), model.state_dict().values(), strict=True):
            assert torch.isfinite(tensor).all(), name
            assert tensor.shape == expected.shape and (tensor == 0).all() == (expected == 0).all(), name
            assert tensor.abs().max() <= 1, name


@every_class
def test_encoders_and_heads_load_each_other(model_type, head, tmp_path):
    """An encoder from a model with a head, and a model with a head from an encoder, whose head is new."""
    model = make_head(head, model_type, num_sentences=2)
    model.save_pretrained(tmp_path / "one")
    encoder = AutoModel.from_pretrained(tmp_path / "one")
    assert not differing(encoder.state_dict(), model.base_model.state_dict())
    encoder.save_pretrained(tmp_path / "two")
    if head is not AutoModel:
        again = type(model).from_pretrained(tmp_path / "two")
        assert not differing(again.base_model.state_dict(), model.base_model.state_dict())
        assert all(torch.isfinite(tensor).all() for tensor in again.state_dict().values())


@every_class
def test_input_embeddings_are_those_of_the_model(model_type, head):
    """For every id: trained and fixed rows, padding and the unknown word, which is zero."""
    for fields in ({}, TABLE):
        model = make_head(head, model_type, **fields)
        model.load_word_vectors(torch.randn(60, 10))
        embeddings = model.get_input_embeddings()
        assert isinstance(embeddings, nn.Embedding)
        batch = batch_for(model)
        everything = torch.arange(60)[None]
        assert embeddings(everything).shape == (1, 60, 10)
        if fields:
            assert (embeddings(everything)[0, :2] == 0).all() and (embeddings(everything)[0, 2:] != 0).any(-1).all()
        for ids in (batch["input_ids"], (batch["input_ids"] + 35) % 60, torch.ones_like(batch["input_ids"])):
            others = {name: tensor for name, tensor in batch.items() if name != "input_ids"}
            by_ids, by_vectors = model(ids, **others), model(inputs_embeds=embeddings(ids), **others)
            assert torch.equal(result(by_ids), result(by_vectors))
        model.set_input_embeddings(nn.Embedding(60, 10))
        assert model.get_input_embeddings() is not embeddings and result(model(**batch)).isfinite().all()


@every_class
def test_results_are_computed_from_the_returned_maps(model_type, head):
    """Gradients with respect to maps, gates and states exist, and reach every one of them; with dropout too."""
    model = make_head(head, model_type)
    batch = batch_for(model)
    expected = result(model(**batch))
    for training in (False, True):
        output = model.train(training)(**batch, output_attentions=True, output_hidden_states=True)
        if not training:
            torch.testing.assert_close(result(output), expected)
        maps = [*output.attentions, *output.gates, *output.hidden_states]
        if model_type not in ("textcnn-max", "textcnn"):  # the largest value is chosen, not weighted
            maps.append(output.pooler_attentions)
        gradients = torch.autograd.grad(result(output).square().sum(), maps)
        assert all(gradient.shape == tensor.shape for gradient, tensor in zip(gradients, maps, strict=True))
        assert all(gradient.isfinite().all() and (gradient != 0).any() for gradient in gradients)


@every_class
def test_rows_do_not_depend_on_their_batch(model_type, head):
    model = make_head(head, model_type)
    batch = batch_for(model)
    together = result(model(**batch))
    for row in range(2):
        alone = result(model(**{name: tensor[row : row + 1] for name, tensor in batch.items()}))
        torch.testing.assert_close(alone[0], together[row], rtol=0, atol=1e-6)


def test_a_pair_for_a_model_of_one_sentence_and_the_reverse():
    batch = pairs((6, 4), (2, 9))
    with pytest.raises(ValueError, match="takes one sentence a row, but token_type_ids mark a second"):
        make(AutoModelForSequenceClassification, "disan")(**batch)
    for head in HEADS[1:]:
        model = make(head, "disan", num_sentences=2)
        with pytest.raises(ValueError, match="token_type_ids are 0 throughout.* tokenizer\\(first, second\\)"):
            model(**batch | {"token_type_ids": torch.zeros_like(batch["token_type_ids"])})
        nothing = {name: torch.zeros_like(tensor) for name, tensor in batch.items()}
        assert model(**nothing).logits.isfinite().all()


def test_pair_regression_does_not_train_classes_as_scores(tmp_path):
    model = make(AutoModelForPairRegression, "disan", num_sentences=2)
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="DiSANForSequenceClassification.from_pretrained") as caught:
        AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=3)
    assert "num_labels=3" in str(caught.value)
    from hf_blosan import DiSANForSequenceClassification

    options = {"problem_type": "single_label_classification", "ignore_mismatched_sizes": True}
    classifier = DiSANForSequenceClassification.from_pretrained(tmp_path, num_labels=3, **options)
    assert classifier(**pairs((6, 4), (2, 9))).logits.shape == (2, 3)
