"""What a token may see beside word order: windows in the configuration, and a caller's own mask of token pairs."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from test_models import MODEL_TYPES, make, pairs, sentences
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from hf_blosan import AutoModelForPairRegression
from hf_blosan import functional as F

MASKABLE = ["disan", "mtsa"]
every_maskable = pytest.mark.parametrize("model_type", MASKABLE)


def random_pairs(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) > 0.5


@pytest.mark.parametrize(
    "model_type, fields, expected",
    [
        ("disan", {}, [None, None]),
        ("disan", {"windows": [3, None]}, [3, None]),
        ("mtsa", {"windows": [3, None], "num_heads": 4}, [3, 3, None, None]),
        ("mtsa", {"windows": [1, 2, 5, None], "num_heads": 4}, [1, 2, 5, None]),
    ],
)
def test_windows_of_the_configuration(model_type, fields, expected, tmp_path):
    """Each direction or head sees as far as it may and no further, also after saving."""
    make(AutoModel, model_type, **fields).save_pretrained(tmp_path)
    model = AutoModel.from_pretrained(tmp_path)
    weights = model(**sentences(9, 4), output_attentions=True).attentions[0]
    distances = (torch.arange(9)[:, None] - torch.arange(9)).abs()
    for copy, window in enumerate(expected):
        seen = (weights[0, copy] > 0).all(-1)
        order = F.order_mask(9, "forward" if copy < len(expected) / 2 else "backward", window=window)
        assert torch.equal(seen, order)
        assert window is None or not seen[distances > window].any()


@every_maskable
def test_a_wide_window_changes_nothing(model_type):
    batch = sentences(9, 4)
    plain = make(AutoModel, model_type)(**batch).pooler_output
    assert torch.equal(make(AutoModel, model_type, windows=[9, 9])(**batch).pooler_output, plain)
    assert not torch.allclose(make(AutoModel, model_type, windows=[1, 1])(**batch).pooler_output, plain)


@pytest.mark.parametrize(
    "model_type, fields, message",
    [
        ("disan", {"windows": [3]}, r"windows=\[3\]: give one for each direction \(2\)"),
        ("disan", {"windows": []}, r"windows=\[\]: give one for each direction \(2\)"),
        ("disan", {"windows": [3, -1]}, r"windows=\[3, -1\]: a window is the number of tokens seen on each side"),
        ("disan", {"windows": [3, 1.5]}, "windows"),
        (
            "mtsa",
            {"windows": [1, 2, 3], "num_heads": 4},
            r"give one for each direction \(2\) or one for each head \(4\)",
        ),
        ("biblosan", {"windows": [3, 3]}, "attends inside blocks and between them; set block_length instead"),
    ],
)
def test_impossible_windows_are_refused(model_type, fields, message):
    with pytest.raises(StrictDataclassError, match=message):
        AutoConfig.for_model(model_type, **fields)


@pytest.mark.parametrize("model_type", [name for name in MODEL_TYPES if name not in MASKABLE])
def test_other_encoders_refuse_masks_of_tokens(model_type):
    with pytest.raises(StrictDataclassError, match=r"windows=\[2, 2\]: .*(only DiSAN and MTSA|Bi-BloSAN attends)"):
        make(AutoModel, model_type, windows=[2, 2])
    model = make(AutoModel, model_type)
    with pytest.raises(ValueError, match="token_mask: .* does not take one; use a DiSAN or an MTSA"):
        model(**sentences(5, 3), token_mask=random_pairs(5, 5))


@every_maskable
@pytest.mark.parametrize("implementation", F.IMPLEMENTATIONS)
def test_token_mask(model_type, implementation):
    """Alone, for all rows, for each row, beside padding and windows; every implementation is one function."""
    model = make(AutoModel, model_type, windows=[None, 4], hidden_size=24)
    model.set_attn_implementation(implementation)
    batch, own = sentences(9, 4, 1), random_pairs(3, 9, 9)
    output = model(**batch, token_mask=own, output_attentions=True)
    seen = (output.attentions[0] > 0).all(-1)
    for copy, (direction, window) in enumerate((("forward", None), ("backward", 4))):
        visible = F.order_mask(9, direction, window=window) & batch["attention_mask"][:, None].bool() & own
        assert torch.equal(seen[:, copy], visible)
    for row, length in enumerate((9, 4, 1)):
        alone = model(batch["input_ids"][row : row + 1, :length], token_mask=own[row, :length, :length])
        torch.testing.assert_close(alone.pooler_output[0], output.pooler_output[row], rtol=0, atol=1e-6)
    everything = torch.ones(9, 9, dtype=torch.bool)
    torch.testing.assert_close(model(**batch, token_mask=everything).pooler_output, model(**batch).pooler_output)
    eager = make(AutoModel, model_type, windows=[None, 4], hidden_size=24)
    eager.set_attn_implementation("eager")
    for network in (model, eager):
        network(**batch, token_mask=own).pooler_output.square().sum().backward()
    for parameter, reference in zip(model.parameters(), eager.parameters(), strict=True):
        if reference.grad is not None:
            torch.testing.assert_close(parameter.grad, reference.grad, rtol=1e-4, atol=1e-6)


@every_maskable
def test_token_mask_without_gradients(model_type):
    model, batch = make(AutoModel, model_type), sentences(7, 4, 6, 2, 5)
    for token_mask in (random_pairs(7, 7), random_pairs(5, 7, 7)):
        expected = model(**batch, token_mask=token_mask).pooler_output
        with torch.no_grad():
            torch.testing.assert_close(model(**batch, token_mask=token_mask).pooler_output, expected)


@every_maskable
@pytest.mark.parametrize("head", [AutoModelForSequenceClassification, AutoModelForPairRegression])
def test_token_mask_of_pairs(model_type, head):
    """Both sentences get their own part of it, wherever they stand in their row."""
    model = make(head, model_type, num_sentences=2)
    batch, own = pairs((6, 4), (2, 9)), random_pairs(2, 11, 11)
    output = model(**batch, token_mask=own)
    for row, (first, second) in enumerate(((6, 4), (2, 9))):
        ids = batch["input_ids"][row]
        parts = (slice(0, first), slice(first, first + second))
        vectors = [model.model(ids[None, part], token_mask=own[row, part, part]).pooler_output for part in parts]
        _, logits = model.compute_loss_and_logits(vectors, None)
        torch.testing.assert_close(output.logits[row], logits[0])
    shared = own[:1].expand(2, -1, -1)
    torch.testing.assert_close(model(**batch, token_mask=own[0]).logits, model(**batch, token_mask=shared).logits)
    assert not torch.allclose(output.logits, model(**batch).logits)
    with pytest.raises(ValueError, match=r"token_mask has shape \(3, 3\); give \(11, 11\) or \(2, 11, 11\)"):
        model(**batch, token_mask=own[0, :3, :3])


@every_maskable
def test_token_mask_of_one_sentence_with_a_head(model_type):
    model = make(AutoModelForSequenceClassification, model_type)
    batch, own = sentences(6, 4), random_pairs(2, 6, 6)
    expected = model.classifier([model.model(**batch, token_mask=own).pooler_output])
    torch.testing.assert_close(model(**batch, token_mask=own).logits, expected)


@every_maskable
def test_token_mask_of_empty_texts(model_type):
    """Heads of no words make a mask of no width."""
    nothing = F.mask_from_heads(torch.empty(2, 0, dtype=torch.long))
    model = make(AutoModel, model_type)
    empty = {"input_ids": torch.empty(2, 0)}
    assert torch.equal(model(**empty, token_mask=nothing).pooler_output, model(**empty).pooler_output)
    classifier = make(AutoModelForSequenceClassification, model_type, num_sentences=2)
    empty["token_type_ids"] = torch.empty(2, 0)
    assert torch.equal(classifier(**empty, token_mask=nothing).logits, classifier(**empty).logits)


@every_maskable
def test_dependency_trees(model_type):
    """A word that is no neighbour in the tree does not matter to a token."""
    model = make(AutoModel, model_type, directions=["full", "full"])
    ids = sentences(5)["input_ids"]
    mask = F.mask_from_heads(torch.tensor([[1, 2, -1, 2, 3]]))
    tokens = model(ids, token_mask=mask).last_hidden_state
    ids[0, 4] = 2 if ids[0, 4] != 2 else 3
    changed = model(ids, token_mask=mask).last_hidden_state
    assert ((tokens - changed).abs().amax(-1) > 1e-6).tolist() == [[False, False, False, True, True]]


@every_maskable
def test_stacked_layers_share_windows_and_token_mask(model_type):
    model = make(AutoModel, model_type, num_hidden_layers=2, windows=[2, None])
    own = random_pairs(2, 9, 9)
    weights = model(**sentences(9, 4), token_mask=own, output_attentions=True).attentions
    assert len(weights) == 2
    for level in weights:
        seen = (level[0] > 0).all(-1)
        assert torch.equal(seen[0], F.order_mask(9, "forward", window=2) & own[0])
        assert torch.equal(seen[1], F.order_mask(9, "backward") & own[0])


@every_maskable
def test_token_mask_of_a_context_alone(model_type):
    context = make(AutoModel, model_type).context
    hidden, own = torch.randn(2, 7, 10), random_pairs(2, 7, 7)
    tokens, maps = context(hidden, token_mask=own, output_attentions=True)
    assert not (maps.attentions[0] > 0).any(-1)[~own[:, None].expand(-1, 2, -1, -1)].any()
    assert not torch.allclose(tokens, context(hidden)[0])


@every_maskable
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_with_a_token_mask(model_type, reentrant):
    gradients = []
    for checkpointing in (False, True):
        model = make(AutoModel, model_type).train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        model(**sentences(12, 7), token_mask=random_pairs(2, 12, 12)).pooler_output.square().sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    for plain, checkpointed in zip(*gradients, strict=True):
        assert torch.equal(plain, checkpointed)


def test_block_length_auto_builds_no_model():
    config = AutoConfig.for_model("biblosan", block_length="auto")
    with pytest.raises(ValueError, match='block_length="auto" .* set block_length=.*optimal_block_length'):
        AutoModel.from_config(config)
    with pytest.raises(StrictDataclassError, match="block_length"):
        AutoConfig.for_model("biblosan", block_length="some")
