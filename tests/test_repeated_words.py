"""In inference what a word undergoes before it meets its neighbours is computed once for all its occurrences."""

import pytest
import torch
from test_models import make, pairs, sentences
from transformers import AutoModel, AutoModelForSequenceClassification

from hf_blosan import functional as F
from hf_blosan.models.layers_heads import HeadLinear

ENCODERS = {
    "disan": ("disan", {}),
    "disan-paper": ("disan", {"formulation": "paper", "windows": [3, None]}),
    "disan-stack": ("disan", {"num_hidden_layers": 2}),
    "biblosan": ("biblosan", {"block_length": 3}),
    "biblosan-paper": ("biblosan", {"block_length": 3, "formulation": "paper"}),
    "biblosan-stack": ("biblosan", {"block_length": 3, "num_hidden_layers": 2}),
    "mtsa": ("mtsa", {}),
    "mtsa-input": ("mtsa", {"scores_from": "input", "token2token": False}),
    "mtsa-stack": (
        "mtsa",
        {"num_hidden_layers": 2, "embedding_size": 12, "distance_decay": True, "fusion_gate": True},
    ),
}
every_encoder = pytest.mark.parametrize("encoder", ENCODERS)
EXACT = {"rtol": 1e-12, "atol": 1e-12}


def build(encoder, auto_class=AutoModel, **fields):
    model_type, own = ENCODERS[encoder]
    return make(auto_class, model_type, vocab_size=9, **own, **fields).double()


def rows_seen(model):
    """Where the number of input rows of the first linear map is noted, call by call."""
    seen = []
    first = next(m for m in model.context.modules() if isinstance(m, (torch.nn.Linear, HeadLinear)))
    forward = first.forward

    def noted(x):
        seen.append(x.shape[:2].numel())
        return forward(x)

    first.forward = noted  # as accelerate does; a hook would have to see every row
    return seen


@every_encoder
@pytest.mark.parametrize("implementation", F.IMPLEMENTATIONS)
@pytest.mark.parametrize("hooked", [False, True])
def test_the_same_vectors(encoder, implementation, hooked):
    model = build(encoder)
    model.set_attn_implementation(implementation)
    batch = sentences(17, 9, 1, 0, 12)
    batch["input_ids"] = batch["input_ids"] % 9
    left = {name: value.flip(1) for name, value in batch.items()}
    seen = rows_seen(model) if hooked else None
    for inputs in (batch, left, {"input_ids": batch["input_ids"]}):
        expected = model(**inputs)
        with torch.no_grad():
            found = model(**inputs)
        torch.testing.assert_close(found.pooler_output, expected.pooler_output, **EXACT)
        real = inputs.get("attention_mask", inputs["input_ids"]).bool()
        torch.testing.assert_close(found.last_hidden_state[real], expected.last_hidden_state[real], **EXACT)
    if hooked:
        words = len(batch["input_ids"].unique()) + 1  # padding
        assert words <= 10 and seen == [85, 85 if implementation == "eager" else words] * 3


@every_encoder
def test_pairs_and_fixed_words(encoder):
    fields = {"num_sentences": 2, "embedding_trainable": "train_words", "num_fixed_embeddings": 4}
    model = build(encoder, AutoModelForSequenceClassification, **fields)
    model.load_word_vectors(torch.randn(9, model.config.embedding_size))
    batch = pairs((5, 7), (3, 1), (6, 6))
    batch["input_ids"] = batch["input_ids"] % 9
    expected = model(**batch).logits
    with torch.no_grad():
        torch.testing.assert_close(model(**batch).logits, expected, **EXACT)


def test_where_words_are_not_shared():
    model = build("disan")
    seen = rows_seen(model)
    ids = torch.randint(0, 9, (4, 11))
    model(ids)  # with gradients
    with torch.no_grad():
        model(ids, output_attentions=True)
        model(ids, output_hidden_states=True)
        model(inputs_embeds=model.embeddings(ids))
        model(torch.arange(1, 9).view(2, 4))  # no word occurs twice
        model(torch.zeros(1, 44, dtype=torch.long))  # one sentence
        hook = model.embeddings.word_embeddings.register_forward_hook(lambda *_: None)
        model(ids)
        hook.remove()
        model.pooler.train()  # Monte Carlo dropout
        model(ids)
        model.train()(ids)
        assert seen == [44, 44, 44, 44, 8, 44, 44, 44, 44]
        expected = model.eval()(ids)
        assert seen.pop() <= 10  # nine words and padding
        vmapped = torch.vmap(lambda rows: model(rows).pooler_output)(ids[:, None])
    torch.testing.assert_close(vmapped[:, 0], expected.pooler_output, **EXACT)


def test_with_a_token_mask():
    model = build("disan", directions=["full", "full"])
    ids = torch.randint(0, 9, (3, 8))
    mask = torch.rand(3, 8, 8) < 0.5
    expected = model(ids, token_mask=mask).pooler_output
    with torch.no_grad():
        torch.testing.assert_close(model(ids, token_mask=mask).pooler_output, expected, **EXACT)
