"""In inference layers see the real tokens of a batch alone, wherever its padding costs more than leaving it out."""

import pytest
import torch
from test_models import make, pairs, sentences
from transformers import AutoModel, AutoModelForSequenceClassification

from hf_blosan.kernels.library import has_cpu_kernels
from hf_blosan.models import encoder as encoder_module
from hf_blosan.models.attention import Tokens

pytestmark = pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ kernels are not compiled")

LENGTHS = (17, 9, 1, 3, 12)
ENCODERS = {
    "disan": ("disan", {}),
    "disan-additive": ("disan", {"pooling": "additive"}),
    "disan-mean": ("disan", {"pooling": "mean"}),
    "disan-none": ("disan", {"pooling": "none"}),
    "disan-paper": ("disan", {"formulation": "paper"}),
    "disan-stack": ("disan", {"num_hidden_layers": 2, "feed_forward_size": 20}),
    "disan-windows": ("disan", {"windows": [2, None]}),
    "disan-predicates": ("disan", {"predicate_size": 4}),
    "biblosan": ("biblosan", {"block_length": 3}),
    "mtsa": ("mtsa", {}),
    "mtsa-stack": ("mtsa", {"num_hidden_layers": 2}),
    "birnn": ("birnn", {}),
    "textcnn": ("textcnn", {"pooling": "source2token"}),
}
SHORTER = ("disan", "disan-additive", "disan-mean", "disan-none", "disan-paper", "disan-stack", "disan-predicates")
EXACT = {"rtol": 1e-12, "atol": 1e-12}


def build(encoder, auto_class=AutoModel, **fields):
    model_type, own = ENCODERS[encoder]
    return make(auto_class, model_type, **own, **fields).double()


@pytest.fixture
def rows_seen(monkeypatch):
    """The shapes (B, N) in which context layers, or else poolers, get tokens, call by call."""
    seen = {"context": [], "pooler": []}

    def spy(module_class, name):
        forward = module_class.forward

        def noted(self, tokens, mask, *others, **options):
            seen[name].append(tuple(mask.shape))
            return forward(self, tokens, mask, *others, **options)

        monkeypatch.setattr(module_class, "forward", noted)

    spy(encoder_module.ContextFusion, "context")
    spy(encoder_module.Pooler, "pooler")
    return seen


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("side", ["right", "left", "between"])
def test_the_same_vectors(encoder, side, rows_seen):
    model = build(encoder)
    batch = sentences(*LENGTHS)
    if side == "left":
        batch = {name: value.flip(1) for name, value in batch.items()}
    elif side == "between":
        order = torch.randperm(17, generator=torch.Generator().manual_seed(0))
        batch = {name: value[:, order] for name, value in batch.items()}
    if model.config.predicate_size:
        batch["predicate_mask"] = torch.randint(0, 2, batch["input_ids"].shape)
    expected = model(**batch)
    with torch.no_grad():
        found = model(**batch)
    real = batch["attention_mask"].bool()
    torch.testing.assert_close(found.last_hidden_state[real], expected.last_hidden_state[real], **EXACT)
    if encoder in SHORTER:
        assert not found.last_hidden_state[~real].any()
    if expected.pooler_output is None:
        assert found.pooler_output is None
    else:
        torch.testing.assert_close(found.pooler_output, expected.pooler_output, **EXACT)
    tokens = sum(LENGTHS)
    assert rows_seen["context"] == [(5, 17), (1, tokens) if encoder in SHORTER else (5, 17)]
    has_scores = model.config.pooling in ("source2token", "additive")
    assert rows_seen["pooler"] == ([(5, 17), (1, tokens)] if has_scores else [])


def test_vectors_in_place_of_ids_and_pairs():
    model, batch = build("disan"), sentences(*LENGTHS)
    vectors = {"inputs_embeds": model.embeddings(batch["input_ids"]), "attention_mask": batch["attention_mask"]}
    classifier, pair_batch = build("disan", AutoModelForSequenceClassification, num_sentences=2), pairs((5, 1), (2, 9))
    expected = model(**vectors).pooler_output, classifier(**pair_batch).logits
    with torch.no_grad():
        torch.testing.assert_close(model(**vectors).pooler_output, expected[0], **EXACT)
        torch.testing.assert_close(classifier(**pair_batch).logits, expected[1], **EXACT)


def test_no_rows_and_another_module_as_context():
    model, batch = build("disan"), sentences(*LENGTHS)
    with torch.no_grad():
        expected = model(**batch).pooler_output
        assert model(torch.zeros(0, 5, dtype=torch.long)).last_hidden_state.shape == (0, 5, model.config.hidden_size)
        nothing = torch.zeros(0, 5, dtype=torch.long)
        assert model(nothing, token_type_ids=nothing, pairs=True).pooler_output.shape == (0, model.config.hidden_size)
        model.context = Wrapper(model.context)
        torch.testing.assert_close(model(**batch).pooler_output, expected, **EXACT)


class Wrapper(torch.nn.Module):
    """Somebody else's module around a context."""

    def __init__(self, context):
        super().__init__()
        self.wrapped = context

    def forward(self, *arguments, **options):
        return self.wrapped(*arguments, **options)


def test_where_padding_stays(rows_seen, remove_kernels):
    model, batch = build("disan"), sentences(*LENGTHS)
    padded, packed = (5, 17), (1, sum(LENGTHS))

    def shapes(**options):
        rows_seen["context"].clear()
        model(**(batch | options))
        return rows_seen["context"][0]

    assert shapes() == padded  # with gradients
    with torch.no_grad():
        assert shapes() == packed
        assert shapes(output_attentions=True) == shapes(output_hidden_states=True) == padded
        assert shapes(token_mask=torch.ones(17, 17, dtype=torch.bool)) == padded
        for part in (model.context, model.context.layers[0], model.pooler, model.pooler.hidden):
            hook = part.register_forward_hook(lambda *_: None)
            assert shapes() == padded
            hook.remove()
        assert shapes(attention_mask=batch["attention_mask"] * torch.tensor([1, 1, 0, 1, 1])[:, None]) == padded
        assert shapes(**sentences(10, 9, 10)) == (3, 10)  # hardly any padding
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert shapes() == padded
        model.set_attn_implementation("eager")
        assert shapes() == padded
        model.set_attn_implementation("auto")
        model.train()
        assert shapes() == padded
        model.eval()
        assert shapes() == packed
        remove_kernels()
        assert shapes() == padded


def test_context_layers_that_need_rows_refuse_sentences_in_one():
    hidden, starts = torch.randn(1, 7, 12, dtype=torch.float64), torch.tensor([0, 3, 7])
    disan = build("disan", embedding_size=12).context
    together, _ = disan(Tokens(hidden, cu_seqlens=starts))
    alone = torch.cat([disan(hidden[:, :3])[0], disan(hidden[:, 3:])[0]], dim=1)
    torch.testing.assert_close(together, alone, **EXACT)
    for context, maps in ((disan, True), *((build(e, embedding_size=12).context, False) for e in ("mtsa", "birnn"))):
        with pytest.raises(ValueError, match="cu_seqlens: only a DiSAN without windows or maps"):
            context(Tokens(hidden, cu_seqlens=starts), output_attentions=maps)
