"""Properties that hold for every encoder and every batch; hypothesis looks for one that breaks them.

`make test` tries a few cases of each, always the same; `make test-all` tries many more.
"""

import tempfile

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from test_models import MODEL_TYPES, ORDER_MASKED, make
from transformers import AutoModel, AutoModelForSequenceClassification

from hf_blosan import AutoModelForPairRegression
from hf_blosan import functional as F

EXAMPLES = [pytest.param(5, id="few"), pytest.param(100, id="many", marks=pytest.mark.slow)]
TIGHT = {"rtol": 1e-9, "atol": 1e-11}  # of float64
WORDS = st.integers(2, 59)
SENTENCE = st.lists(WORDS, min_size=1, max_size=12)
SENTENCES = st.lists(SENTENCE, min_size=1, max_size=4)
ORDERLESS = ["disan", "mtsa", "wordbag", "multihead-relu"]


def properties(*strategies, encoders=MODEL_TYPES):
    """Run a test for each encoder with values of the strategies, and seeds for the weights."""

    def decorate(test):
        @pytest.mark.parametrize("examples", EXAMPLES)
        @pytest.mark.parametrize("encoder", encoders)
        def wrapper(encoder, examples):
            @settings(
                max_examples=examples,
                derandomize=examples < 10,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(st.tuples(st.integers(0, 1000), *strategies))
            def run(values):
                with torch.no_grad():
                    test(encoder, *values)

            run()

        wrapper.__name__, wrapper.__doc__ = test.__name__, test.__doc__
        return wrapper

    return decorate


def build(auto_class, encoder, seed, **fields):
    """A model in float64 with a bias in every layer, so that zeros do not hide a difference."""
    model = make(auto_class, encoder, seed=seed, **fields).double()
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def batch_of(rows, *, left=0, right=0, filler=0):
    """Rows of ids, padded to the longest and by `left` and `right` more tokens of id `filler`."""
    length = max(map(len, rows))
    ids = [[filler] * left + row + [filler] * (length - len(row) + right) for row in rows]
    mask = [[0] * left + [1] * len(row) + [0] * (length - len(row) + right) for row in rows]
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


def vectors(model, rows, **padding):
    return model(**batch_of(rows, **padding)).pooler_output


def close(actual, expected, **tolerance):
    torch.testing.assert_close(actual, expected, **(TIGHT | tolerance))


@properties(SENTENCES, st.integers(0, 6), st.integers(0, 6), WORDS)
def test_padding(encoder, seed, rows, left, right, filler):
    """Its amount, its side and its content change nothing."""
    model = build(AutoModel, encoder, seed)
    close(vectors(model, rows, left=left, right=right, filler=filler), vectors(model, rows))


@properties(SENTENCES, st.randoms(use_true_random=False))
def test_batch_mates_and_their_order(encoder, seed, rows, random):
    model = build(AutoModel, encoder, seed)
    alone = torch.cat([vectors(model, [row]) for row in rows])
    order = random.sample(range(len(rows)), len(rows))
    close(vectors(model, [rows[place] for place in order]), alone[order])


@properties(SENTENCES)
def test_symmetric_pairs(encoder, seed, rows):
    """A score compares two sentences by u * v and |u - v|: it does not matter which is first."""
    model = build(AutoModelForPairRegression, encoder, seed, num_sentences=2)
    scores = []
    for firsts, seconds in ((rows, rows[::-1]), (rows[::-1], rows)):
        joined = [first + second for first, second in zip(firsts, seconds, strict=True)]
        batch = batch_of(joined)
        positions = torch.arange(batch["input_ids"].shape[1])
        starts = torch.tensor([len(first) for first in firsts])[:, None]
        batch["token_type_ids"] = ((positions >= starts) & batch["attention_mask"].bool()).long()
        scores.append(model(**batch).logits)
    close(scores[1], scores[0], atol=1e-9)


@properties(SENTENCE, encoders=["disan", "mtsa"])
def test_reversal(encoder, seed, row):
    """Forward masks on a reversed sentence do what backward masks do on the sentence."""
    forward = build(AutoModel, encoder, seed, directions=["forward", "forward"])
    backward = build(AutoModel, encoder, seed, directions=["backward", "backward"])
    states = [model(torch.tensor([row[::step]])).last_hidden_state for model, step in ((forward, -1), (backward, 1))]
    close(states[0].flip(1), states[1])


@properties(SENTENCE.flatmap(lambda row: st.tuples(st.just(row), st.permutations(row))), encoders=ORDERLESS)
def test_permutation(encoder, seed, rows):
    """Without order masks, convolution, recurrence, blocks or positions a sentence is a bag of words."""
    fields = {"directions": ["diagonal", "diagonal"]} if encoder in ("disan", "mtsa") else {}
    model = build(AutoModel, encoder, seed, **fields)
    first, second = (vectors(model, [list(row)]) for row in rows)
    close(first, second)


@properties(SENTENCES, st.integers(0, 5), encoders=["biblosan"])
def test_one_block(encoder, seed, rows, more):
    """Blocks of at least the sentence's length are one block."""
    longest = max(map(len, rows))
    models = [build(AutoModel, encoder, seed, block_length=length) for length in (longest, longest + more)]
    close(vectors(models[1], rows), vectors(models[0], rows))


@properties(SENTENCES, st.integers(0, 5), encoders=["disan", "mtsa"])
def test_wide_windows(encoder, seed, rows, more):
    """Windows of at least the sentence's length hide nothing."""
    windows = [max(map(len, rows)) + more, None]
    models = [build(AutoModel, encoder, seed, windows=given) for given in (windows, None)]
    close(vectors(models[0], rows), vectors(models[1], rows))


@properties(SENTENCES, st.sampled_from(["released", "paper"]), st.integers(1, 2))
def test_implementations(encoder, seed, rows, formulation, layers):
    stacked = {"num_hidden_layers": layers} if encoder in ORDER_MASKED else {}
    model = build(AutoModel, encoder, seed, formulation=formulation, **stacked)
    model.set_attn_implementation("eager")
    expected = vectors(model, rows)
    for implementation in ("auto", "fused", "linear"):
        model.set_attn_implementation(implementation)
        close(vectors(model, rows), expected, rtol=1e-6, atol=1e-7)


@properties(SENTENCES)
def test_saved_is_loaded(encoder, seed, rows):
    model = build(AutoModelForSequenceClassification, encoder, seed, num_labels=3)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, include_code=False)
        loaded = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float64).eval()
    batch = batch_of(rows)
    assert torch.equal(loaded(**batch).logits, model(**batch).logits)


@properties(
    st.sampled_from(["auto", "eager", "fused", "linear"]),
    st.tuples(st.integers(0, 3), st.integers(1, 20), st.integers(1, 9)),
    st.sampled_from([None, 1, 2, 5, 40]),
    encoders=["directional_attention"],
)
def test_directional_attention(_, seed, implementation, shape, window):
    """Reversal, wide windows and one block, on the operator itself."""
    torch.manual_seed(seed)
    k, q, x = torch.randn(3, *shape, dtype=torch.float64).unbind()
    options = {"implementation": implementation}
    forward = F.directional_attention(k, q, x, direction="forward", window=window, **options)
    reversed_ = [tensor.flip(1) for tensor in (k, q, x)]
    backward = F.directional_attention(*reversed_, direction="backward", window=window, **options).flip(1)
    tolerance = {"rtol": 1e-6, "atol": 1e-6}  # that of the expansion
    close(backward, forward, **tolerance)
    for same in ({"window": shape[1]}, {"block_length": shape[1] + (window or 0)}):
        whole = F.directional_attention(k, q, x, direction="forward", **options)
        close(F.directional_attention(k, q, x, direction="forward", **same, **options), whole, **tolerance)
