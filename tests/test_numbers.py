"""What may be in the tensors, and which derivatives there are: padding, dtypes, views, blocks, forward mode, ids."""

import math
from functools import partial

import pytest
import torch
from test_models import MODEL_TYPES, make, sentences
from torch.autograd import forward_ad
from transformers import AutoModel, AutoModelForSequenceClassification

from hf_blosan import functional as F
from hf_blosan import kernels
from hf_blosan.kernels.library import has_cpu_kernels

B, N, D = 3, 20, 16
MASK = torch.arange(N) < torch.tensor([N, 7, 0])[:, None]
LEFT = MASK.flip(1)
TOKENS, HEADS = (B, N, D), (B, 2, N, D)
# An operator with options, and the shapes of its tensors.
OPERATORS = {
    "directional": (partial(F.directional_attention, direction="diagonal"), [TOKENS] * 3),
    "blocks": (partial(F.directional_attention, direction="full", block_length=6), [TOKENS] * 3),
    "windows": (partial(F.directional_attention, direction="forward", window=4), [TOKENS] * 3),
    "source2token": (partial(F.source2token_attention, mask=torch.ones(B, N)), [TOKENS] * 2),
    "pooled blocks": (partial(F.source2token_attention, mask=torch.ones(B, N), block_length=6), [TOKENS] * 2),
    "sigmoid": (partial(F.tensorized_attention, directions="diagonal"), [HEADS] * 4),
    "exp": (partial(F.tensorized_attention, directions=["full", "forward"], score_function="exp"), [HEADS] * 4),
    "recurrence": (F.linear_recurrence, [TOKENS] * 2),
}
every_operator = pytest.mark.parametrize("name", OPERATORS)
every_implementation = pytest.mark.parametrize("implementation", F.IMPLEMENTATIONS)


def inputs_of(name, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in OPERATORS[name][1]]


def at_tokens(mask, like):
    """A mask (B, N) in the shape of tokens (B, N, D) or (B, H, N, D)."""
    return mask[:, None, :, None].expand(like.shape) if like.dim() == 4 else mask[..., None].expand(like.shape)


# --- Padding ----------------------------------------------------------------------------------------------------


@every_implementation
@pytest.mark.parametrize("name", [name for name in OPERATORS if name != "recurrence"])  # which has no mask
def test_operators_do_not_read_padding(name, implementation):
    """Not a bit of a result or of a gradient depends on what is there."""
    function, mask_name = OPERATORS[name][0], "mask" if name in ("source2token", "pooled blocks") else "key_mask"
    for mask in (MASK, LEFT):
        results = []
        for content in (0.0, 1e38, math.nan, math.inf):
            leaves = [x.masked_fill(~at_tokens(mask, x), content).requires_grad_() for x in inputs_of(name)]
            out = function(*leaves, **{mask_name: mask}, implementation=implementation)
            results.append([out.detach(), *torch.autograd.grad(out.sum(), leaves)])
        assert all(x.isfinite().all() for x in results[0])
        for other in results[1:]:
            assert all(map(torch.equal, results[0], other))


@pytest.mark.parametrize("name", ["directional_attention_weights", "tensorized_attention_weights", "additive"])
def test_weights_do_not_read_padding(name):
    generator = torch.Generator().manual_seed(0)
    first, second, third = (torch.randn(B, N, D, generator=generator) for _ in range(3))

    def compute(content):
        x, y, z = (t.masked_fill(~MASK[..., None], content) for t in (first, second, third))
        if name == "additive":
            return F.additive_attention(x[..., 0], y, mask=MASK)
        if name == "directional_attention_weights":
            return F.directional_attention_weights(x, y, direction="full", key_mask=MASK)
        return F.tensorized_attention_weights(x[:, None], y[:, None], z[:, None], directions="full", key_mask=MASK)

    assert torch.equal(compute(math.nan), compute(0.0))


def test_the_mean_of_padding_is_still_that_of_its_rows():
    scores, values = inputs_of("source2token")
    mean = F.source2token_attention(scores, values, mask=MASK, empty_rows="mean")
    torch.testing.assert_close(mean[2], values[2].mean(0))
    values[1, 7:] = math.nan
    assert torch.equal(F.source2token_attention(scores, values, mask=MASK, empty_rows="mean"), mean)


@pytest.mark.parametrize("implementation", ["auto", "eager"])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_models_do_not_read_padding(model_type, implementation):
    for mask in (MASK, LEFT):
        vectors = torch.randn(B, N, 10, generator=torch.Generator().manual_seed(0))
        results = []
        for content in (0.0, math.nan, math.inf):
            model = make(AutoModel, model_type)
            model.set_attn_implementation(implementation)
            leaf = vectors.masked_fill(~mask[..., None], content).requires_grad_()
            output = model(inputs_embeds=leaf, attention_mask=mask)
            output.pooler_output.square().sum().backward()
            gradients = [leaf.grad, *(p.grad for p in model.parameters() if p.grad is not None)]
            results.append([output.last_hidden_state.detach(), output.pooler_output.detach(), *gradients])
        assert all(x.isfinite().all() for x in results[0])
        for other in results[1:]:
            assert all(map(torch.equal, results[0], other))


# --- Dtypes and views -------------------------------------------------------------------------------------------


@every_implementation
@every_operator
def test_dtypes_are_promoted_as_in_arithmetic(name, implementation):
    function = partial(OPERATORS[name][0], implementation=implementation)
    inputs = [x.round() for x in inputs_of(name, torch.float64)]
    expected = function(*inputs)
    for i in range(len(inputs)):
        for other in (torch.float32, torch.float16, torch.int64):
            found = function(*(x.to(other) if i == j else x for j, x in enumerate(inputs)))
            assert found.dtype == torch.float64
            torch.testing.assert_close(found, expected)
    whole = function(*(x.long() for x in inputs))
    assert whole.dtype == torch.get_default_dtype()
    torch.testing.assert_close(whole.double(), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=r"hold torch.complex128; give real numbers"):
        function(*(x.to(torch.complex128) for x in inputs))


def test_the_bias_is_promoted_too_and_tensors_may_be_named():
    keys, queries, values = inputs_of("directional")
    bias = torch.arange(D)
    expected = F.directional_attention(keys, queries + bias, values, direction="full")
    found = F.directional_attention(keys, values=values, queries=queries, direction="full", bias=bias)
    torch.testing.assert_close(found, expected)
    assert F.directional_attention(keys, queries, values, direction="full", bias=bias.double()).dtype == torch.float64
    with pytest.raises(TypeError, match="queries"):
        F.directional_attention(keys, values=values, direction="full")


@every_implementation
@every_operator
def test_lazily_negated_tensors(name, implementation):
    """Their memory holds the opposite numbers."""
    function = partial(OPERATORS[name][0], implementation=implementation)
    inputs = inputs_of(name)
    imaginary = [torch.complex(torch.zeros_like(x), -x).conj().imag for x in inputs]
    negated = [torch._neg_view(-x) for x in inputs]
    assert all(x.is_neg() for x in imaginary + negated)
    for context in (torch.no_grad, torch.enable_grad):
        with context():
            for views in (imaginary, negated):
                torch.testing.assert_close(function(*views), function(*inputs), rtol=0, atol=0)


@pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ kernels are not compiled")
def test_lazily_negated_tensors_in_gates_and_maps():
    generator = torch.Generator().manual_seed(0)
    shapes = (TOKENS, TOKENS, (D, D), (D, D), (D,), (2 * D, 3 * D), (2 * D,), (B, 4, D))
    plain = [torch.randn(shape, generator=generator) for shape in shapes]
    results = []
    for x, y, W, V, b, wide, bias, blocks in (plain, [torch._neg_view(-x) for x in plain]):
        with torch.no_grad():
            results.append(
                [
                    kernels.linear(x, W, b, elu=True),
                    kernels.fusion_gate(x, y, W, V, b),
                    kernels.block_fusion(x, y, blocks, wide, bias, 6),
                    kernels.heads_linear(x, [W, V], [b, b]),
                ]
            )
    assert all(map(torch.equal, *results))


# --- Blocks and windows -----------------------------------------------------------------------------------------


@every_implementation
@pytest.mark.parametrize("block_length", [0, -1])
def test_a_block_holds_a_token(block_length, implementation):
    keys, queries, values = inputs_of("directional")
    options = {"block_length": block_length, "implementation": implementation}
    for attend in (
        partial(F.directional_attention, keys, queries, values, direction="full"),
        partial(F.source2token_attention, keys, values, mask=MASK),
    ):
        with pytest.raises(ValueError, match=f"block_length is {block_length}; give a number of tokens, 1 or more"):
            attend(**options)


@pytest.mark.parametrize("with_kernels", [True, False])
@every_implementation
def test_a_block_takes_no_more_memory_than_its_sentence(implementation, with_kernels, remove_kernels):
    """Filled up to this length, a block would not fit into any memory."""
    if not with_kernels:
        remove_kernels()
    keys, queries, values = inputs_of("directional")
    options, long = {"implementation": implementation}, {"block_length": 1 << 40}
    attend = partial(F.directional_attention, keys, queries, values, direction="forward", key_mask=MASK, **options)
    torch.testing.assert_close(attend(**long), attend())
    pool = partial(F.source2token_attention, keys, values, mask=MASK, **options)
    torch.testing.assert_close(pool(**long)[:, 0], pool())


@pytest.mark.parametrize("output_attentions", [False, True])
def test_a_model_with_one_block_for_every_sentence(output_attentions):
    """Memory is that of the sentence, for the attention weights too."""
    huge, fitting = (make(AutoModel, "biblosan", block_length=length) for length in (1 << 40, 11))
    batch = sentences(11, 4)
    found, expected = (model(**batch, output_attentions=output_attentions) for model in (huge, fitting))
    torch.testing.assert_close(found.pooler_output, expected.pooler_output)
    if output_attentions:
        assert found.attentions[0].shape == (2, 2, 1, 11, 11, 6)


# --- Forward mode -----------------------------------------------------------------------------------------------


def tangents(function, inputs, directions):
    """By torch.func.jvp, and by forward_ad; both with gradients enabled and without."""
    for context in (torch.enable_grad, torch.no_grad):
        with context():
            yield lambda: torch.func.jvp(function, inputs, directions)[1]
            yield partial(dual_tangent, function, inputs, directions)


def dual_tangent(function, inputs, directions):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(*map(forward_ad.make_dual, inputs, directions))).tangent


@every_implementation
@every_operator
def test_forward_mode_is_right_or_refused(name, implementation):
    """Never zeros."""
    function = partial(OPERATORS[name][0], implementation=implementation)
    inputs = inputs_of(name, torch.float64)
    directions = [torch.randn_like(x) for x in inputs]
    step = 1e-6
    ahead, behind = (function(*(x + s * d for x, d in zip(inputs, directions, strict=True))) for s in (step, -step))
    for tangent in tangents(function, tuple(inputs), tuple(directions)):
        if implementation == "eager":
            torch.testing.assert_close(tangent(), (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-6)
        else:
            with pytest.raises(NotImplementedError, match='compute with implementation="eager", a model'):
                tangent()


@pytest.mark.parametrize("transform", ["grad", "vmap", pytest.param("compile", marks=pytest.mark.slow)])
def test_forward_mode_under_other_transforms(transform):
    """Which hide tangents from the functions inside."""
    x = torch.randn(2, 5, 16)

    def loss(keys):
        return F.directional_attention(keys, x, x, direction="full").square().sum()

    def tangent(function, x):
        return torch.func.jvp(function, (x,), (x,))

    if transform == "compile":
        compute = torch.compile(partial(tangent, loss), backend="eager")
    elif transform == "vmap":
        compute = partial(tangent, torch.vmap(lambda row: F.linear_recurrence(row[None], x[:1])))
    else:
        compute = partial(tangent, torch.func.grad(loss))
    for context in (torch.enable_grad, torch.no_grad):
        with context(), pytest.raises(NotImplementedError, match="no derivative in forward mode"):
            compute(x)


@pytest.mark.parametrize("model_type", ["disan", "biblosan", "mtsa"])
def test_models_in_forward_mode(model_type):
    """Also where words that occur several times are computed once, which is so without gradients."""
    model = make(AutoModel, model_type)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    batch = {"input_ids": torch.randint(2, 6, (6, 12), generator=torch.Generator().manual_seed(0))}

    def encode(parameters):
        return torch.func.functional_call(model, parameters, (), batch).pooler_output

    with (
        torch.no_grad(),
        pytest.raises(NotImplementedError, match=r'a model after set_attn_implementation\("eager"\)'),
    ):
        torch.func.jvp(encode, (parameters,), (parameters,))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        assert torch.func.jvp(encode, (parameters,), (parameters,))[1].abs().max() > 0


# --- Ids --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [{}, {"embedding_trainable": "train_words", "num_fixed_embeddings": 20}, {"embedding_dtype": "int8"}],
    ids=["trained", "fixed", "int8"],
)
@pytest.mark.parametrize("wrong", [60, 1000, -1])
def test_ids_outside_the_vocabulary_are_refused(wrong, fields):
    for auto_class in (AutoModel, AutoModelForSequenceClassification):
        model = make(auto_class, "disan", **fields)
        ids = torch.tensor([[2, 3, 59], [4, wrong, 5]])
        with pytest.raises(ValueError, match=f"{wrong}.*, but the vocabulary ends at 59; use the tokenizer that"):
            model(ids)
        with torch.no_grad(), pytest.raises(ValueError, match="the vocabulary ends at 59"):
            model(ids.repeat(4, 1))  # words that occur several times are computed once
        model(ids.clamp(0, 59))
