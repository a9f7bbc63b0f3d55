"""The only module through which the models use fast kernels, and layouts other than padded rows.

Layers call for a dense map, attention or a gate; this module chooses how to compute it, by ``implementation``:

``"eager"``   the equation with its N x N tensors: torch operators only, differentiable any number of times.
``"fused"``   the same function in O(N D) memory.
``"linear"``  also in O(N D) time, for directional attention; elsewhere the same as ``"fused"``.
``"auto"``    the fastest available.

The fast forms are the package ``hf_blosan.kernels``. Where it is not installed (this file may have come with a
checkpoint), the equations are computed for a slice of queries at a time, so that memory stays O(N D).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import attrgetter

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .equations import (
    IMPLEMENTATIONS,
    check_block_length,
    check_cu_seqlens,
    check_scores,
    check_shapes,
    full_precision,
    on_blocks,
    out_of_blocks,
)
from .equations import directional_attention as directional_equation
from .equations import source2token_attention as source2token_equation
from .masks import DIRECTIONS, check_choice, check_window, full_token_mask

# The version of the kernels' interface; a checkpoint may meet an older or a newer package.
INTERFACE = 10
try:
    from hf_blosan import kernels

    kernels = kernels if kernels.INTERFACE == INTERFACE else None
except ImportError:
    kernels = None

# Elements of an equation's N x N tensors that are held at a time where there are no kernels.
CHUNK_ELEMENTS = 1 << 21


def to_onnx() -> bool:
    """Whether ``torch.onnx.export`` is recording the graph: it knows only torch's operators."""
    return torch.compiler.is_exporting() and torch.onnx.is_in_onnx_export()


def can_use_kernel(implementation: str, *tensors: Tensor, maps: Iterable[nn.Module] = ()) -> bool:
    """Whether a step of a layer may run as one kernel, on these tensors and on the weights of these linear maps.

    Not if the layer is set to ``"eager"``, and not if a map is more than its weight and bias: adapters (LoRA) and
    quantisation replace the module, and hooks expect to see its input.
    """
    if kernels is None or implementation == "eager" or not is_plain(*maps):
        return False
    parts = [part for map_ in maps for part in (map_, *map_._modules.values())]
    own = (x for part in parts for x in (*part._parameters.values(), *part._buffers.values()))  # an int8 weight, too
    return kernels.can_use_kernel(*tensors, *(x for x in own if x is not None))


def is_plain(*maps: nn.Module) -> bool:
    """Whether linear maps (or those of every head) and norms are their weight and bias: unchanged, no subclass."""
    known = all([type(x) in (nn.Linear, nn.LayerNorm) or vars(type(x)).get("is_linear_map") for x in maps])
    of_heads = [x for map_ in maps if known and map_._modules for x in map_._modules.values()]
    return known and is_unchanged(*maps) and (not of_heads or is_plain(*of_heads))


def is_unchanged(*modules: nn.Module) -> bool:
    """Whether modules have no hooks, no forward of their own, and no quantised, sharded or sparse parameters."""
    # accelerate moves weights by a hook of its own, and replaces the forward of the instance.
    own = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_hf_hook", "forward")
    tensors = [x for module in modules for x in module._parameters.values() if x is not None]
    hooked = nn.modules.module._has_any_global_hook() or any([any(map(vars(x).get, own)) for x in modules])
    return not hooked and all([type(x) in (Tensor, nn.Parameter) and x.layout == torch.strided for x in tensors])


@dataclass(eq=False)
class Tokens:
    """Tokens of a batch that are not in padded rows: in inference, layers take them in place of a tensor (B, N, D).

    A map of single tokens is computed once for each distinct word, or for real tokens alone, and gives ``Tokens``
    again; the operators below put the tokens in their places.

    Args:
        vectors: (1, V, D), or per head (1, H, V, D), for V distinct words, or for all tokens if there are no places.
        places_BN: which of the words each token is.
        cu_seqlens: where sentences start in a single row, see :func:`directional_attention`.
    """

    vectors: Tensor
    places_BN: Tensor | None = None
    cu_seqlens: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        """Of the vectors in rows."""
        return self.vectors.shape if self.places_BN is None else self.places_BN.shape

    @property
    def device(self) -> torch.device:
        return self.vectors.device

    def chunk(self, *sizes) -> "list[Tokens]":
        return [replace(self, vectors=x) for x in self.vectors.chunk(*sizes)]

    @cached_property
    def rows(self) -> Tensor:
        """The vectors in the rows that operators take, (B, N, D) or (B, H, N, D)."""
        if self.places_BN is None:
            return self.vectors
        x, places_BN = self.vectors[0], self.places_BN
        return F.embedding(places_BN, x) if x.dim() == 2 else x[:, places_BN].transpose(0, 1)


def for_each_token(function: Callable[[Tensor], Tensor], x: Tensor | Tokens) -> Tensor | Tokens:
    """Apply a function that leaves tokens in place to tokens in any layout."""
    return replace(x, vectors=function(x.vectors)) if isinstance(x, Tokens) else function(x)


def in_rows(x: Tensor | Tokens) -> Tensor:
    return x.rows if isinstance(x, Tokens) else x


ACTIVATIONS = {x: getattr(F, x) for x in ("elu", "relu", "tanh", "gelu", "silu", "selu")} | {"linear": lambda x: x}


def dropout(x: Tensor, p: float, training: bool = True, copies: int | None = None) -> Tensor:
    """As in torch; for several copies of x, (copies, ...), each of which loses different elements."""
    if kernels is not None:
        return kernels.dropout(x, p, training, copies)
    return F.dropout(x.expand(copies, *x.shape) if copies else x, p, training)


def dense(map_: nn.Module, x: Tensor | Tokens, activation="linear", implementation="auto") -> Tensor | Tokens:
    """act(W x + b) for a linear map, or one of every head (``HeadLinear``)."""
    if isinstance(x, Tokens):
        return for_each_token(lambda x: dense(map_, x, activation, implementation), x)
    elu = activation == "elu"
    if can_use_kernel(implementation, x, maps=[map_]):
        heads = hasattr(map_, "weights")
        kernel = kernels.heads_linear if heads else kernels.linear
        y = kernel(x, *((map_.weights, map_.biases) if heads else (map_.weight, map_.bias)), elu)
        activation = "linear" if elu else activation
    else:
        y = map_(x)
    if activation in ("elu", "gelu") and not torch.is_grad_enabled() and can_use_kernel(implementation, y):
        return kernels.activated(y, activation)
    return ACTIVATIONS[activation](y)


def fusion_gate(layer: nn.Module, first: Tensor | Tokens, second: Tensor, mask: Tensor | None = None) -> Tensor | None:
    """The sum of a ``FusionGate``, 0 where the mask is false; ``None`` if it must be computed by its equation."""
    x, b, (one, other) = in_rows(first), layer.bias, (layer.first, layer.second)
    mask, fits = None if mask is None else mask.bool(), partial(can_use_kernel, layer.implementation, x, second, b)
    if getattr(first, "places_BN", None) is None and fits(maps=(one, other)):  # else Wa a is for each word
        drops = layer.training and layer.dropout
        dropped = {"first_input": layer.drop(x), "second_input": layer.drop(second)} if drops else {}
        return kernels.fusion_gate(x, second, one.weight, other.weight, b, one.bias, other.bias, mask=mask, **dropped)
    if not torch.is_grad_enabled() and fits():
        scores = in_rows(layer.linear(one, first)), layer.linear(other, second)
        if fits(*scores):
            return kernels.fusion_gate_of_scores(x, second, *scores, b, mask=mask)
    return None


AROUND = attrgetter("feed_forward", "feed_forward_output", "feed_forward_norm", "fusion_norm")


def disa(layers: Sequence[nn.Module], x: Tensor | Tokens, mask: Tensor | None, around: nn.Module | None = None):
    """``DirectionalSelfAttention`` in several directions, side by side, in one call for inference; with the
    ``StackableLayer`` around them, the whole layer. ``None`` if the steps must run one by one."""
    x = x if isinstance(x, Tokens) else Tokens(x)
    check_shapes(*x.shape[:2], mask)
    if kernels is None or torch.compiler.is_compiling() or not x.vectors.is_cpu:
        return None
    outer = [*layers] if around is None else [*layers, around]
    own = [[*map(layer._modules.get, ("dense_map", "attention", "gate"))] for layer in layers]
    parts = [*outer, *(part for _, *some in own for part in some)]
    # Of the classes themselves: subclasses may have steps of their own.
    if not (all(["is_exact" in vars(type(part)) for part in parts]) and is_unchanged(*parts)):
        return None
    how = {name: getattr(outer[0], name) for name in ("activation", "implementation")}
    alike = all([not part.training and part.implementation == how["implementation"] != "eager" for part in parts])
    if not (alike and all([part.activation == how["activation"] for part in outer])):
        return None
    residual, directions = kernels.Residual(*AROUND(around)) if around is not None and around.stacked else None, []
    for map_, s, gate in own:  # attributes of modules are slow, their dictionaries are not
        maps = map_, s._modules["key_map"], s._modules["query_map"], gate._modules["first"], gate._modules["second"]
        directions.append(kernels.Direction(*maps, gate.bias, s.bias, s.direction, s.window))
    if not is_plain(*[map_ for some in (*directions, residual or ()) for map_ in some[:5] if map_ is not None]):
        return None
    options = {"places": x.places_BN, "cu_seqlens": x.cu_seqlens, "mask": None if mask is None else mask.bool(), **how}
    return kernels.disa(x.vectors, directions, residual, **options)


@full_precision
def directional_attention(
    keys: Tensor,
    queries: Tensor,
    values: Tensor,
    *,
    direction: str,
    bias: Tensor | None = None,
    key_mask: Tensor | None = None,
    token_mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    scale: float = 5.0,
    window: int | None = None,
    block_length: int | None = None,
    implementation: str = "auto",
) -> Tensor:
    """Directional self-attention (DiSAN Eq. 15-18): s_j = sum_i softmax_i(c tanh((k_i + q_j + b) / c)) * x_i.

    Args:
        keys: W1 h, shape (B, N, D).
        queries: W2 h, shape (B, N, D).
        values: h, the vectors to average, shape (B, N, D).
        direction: ``"forward"``, ``"backward"``, ``"diagonal"`` or ``"full"``, see ``order_mask``.
        bias: b1, shape (D); 0 by default.
        key_mask: (B, N), true at real tokens; by default all tokens are real.
        token_mask: (N, N) or (B, N, N), true where the query (row) may see the key (column), in addition to the other
            masks; ``mask_from_heads`` makes one.
        cu_seqlens: (S + 1,) integers, as in FlashAttention: the tensors hold S sentences without padding, one after
            the other in a single row, (1, N, D); sentence s runs from cu_seqlens[s] to cu_seqlens[s + 1].
        scale: the constant c that bounds the scores, up to 60; 5 in all three papers.
        window: hide keys more than that many tokens away; any distance by default.
        block_length: split sentences into blocks of that many tokens (the last may be shorter); tokens see only keys
            of the same block.
        implementation: ``"auto"``, ``"eager"``, ``"fused"`` or ``"linear"``: the same function at different speeds
            and memory. Only ``"eager"`` has second derivatives.

    Returns:
        (B, N, D) in the dtype of ``values``; 0 for a query that sees no key.

    Raises:
        ValueError: the direction or implementation is unknown, the window is negative, the scale is not above 0 or
            above 60, the block length is below 1, shapes do not match, the token mask is floating-point, or two of
            token mask, blocks and ``cu_seqlens`` are combined.
    """
    cu_seqlens = getattr(values, "cu_seqlens", cu_seqlens)
    keys, queries, values = map(in_rows, (keys, queries, values))
    check_choice("implementation", implementation, IMPLEMENTATIONS)
    check_choice("direction", direction, DIRECTIONS)
    check_window(window)
    check_block_length(block_length, token_mask)
    check_shapes(*values.shape[:2], key_mask, keys=keys, queries=queries, values=values)
    check_scores(scale, bias, values.shape[2])
    check_cu_seqlens(cu_seqlens, *values.shape[:2], {"block_length": block_length, "token_mask": token_mask})
    if token_mask is not None:
        token_mask = full_token_mask(token_mask, *values.shape[:2])
    options = {"direction": direction, "bias": bias, "scale": scale, "window": window}
    has_kernel = implementation != "eager" and kernels is not None and not to_onnx()
    if cu_seqlens is not None and not (has_kernel and kernels.takes_parts(values)):
        operator = partial(directional_attention, implementation=implementation, **options)
        rows = on_sentences(operator, cu_seqlens, (keys, queries, values), key_mask)
        return selected(rows, rows_of_sentences(cu_seqlens))
    dtype = torch.promote_types(values.dtype, torch.float32)
    tensors = [x.to(dtype) for x in (keys, queries, values)]
    options["bias"] = None if bias is None else bias.to(dtype)
    if implementation == "eager":
        attend = partial(directional_equation, **options)
    elif to_onnx() and kernels is not None:
        attend = partial(kernels.directional_attention_graph, **options)
    elif not has_kernel:
        attend = partial(some_queries_at_a_time, directional_equation, values.numel(), **options)
    else:
        attend = partial(kernels.directional_attention, implementation=implementation, **options)
        key_mask = None if key_mask is None else key_mask.bool()
        if cu_seqlens is not None:
            return attend(*tensors, key_mask=key_mask, cu_seqlens=cu_seqlens.long())
        if block_length is not None and kernels.takes_parts(values):
            return attend(*tensors, key_mask=key_mask, block_length=block_length).to(values.dtype)
    if block_length is not None:
        return out_of_blocks(on_blocks(attend, block_length, tensors, key_mask), *values.shape[:2]).to(values.dtype)
    return attend(*tensors, key_mask=key_mask, token_mask=token_mask).to(values.dtype)


def source2token_attention(
    scores: Tensor,
    values: Tensor,
    *,
    mask: Tensor,
    empty_rows: str = "zero",
    cu_seqlens: Tensor | None = None,
    block_length: int | None = None,
    implementation: str = "auto",
) -> Tensor:
    """Source2token self-attention (DiSAN Eq. 12-14): one vector per sentence, with separate weights for each feature.

    Args:
        scores: W2 act(W1 x + b1) + b2, shape (B, N, D); or (B, N, 1), one score per token for all features.
        values: x, shape (B, N, D).
        mask: (B, N), true at real tokens.
        empty_rows: the vector of a row without real tokens: ``"zero"``, or ``"mean"`` of its padding as in the
            authors' code (which depends on the contents of the padding; not with ``cu_seqlens``).
        cu_seqlens: (S + 1,) integers: S sentences are stored one after another in a single row, and each gets a
            vector; see :func:`directional_attention`.
        block_length: split sentences into M blocks of that many tokens (the last may be shorter) and return a vector
            for each block.
        implementation: ``"auto"``, ``"eager"``, ``"fused"`` or ``"linear"``: the same function at different speeds.
            Only ``"eager"`` has second derivatives.

    Returns:
        (B, D) in the dtype of ``values``; (B, M, D) with blocks, (S, D) with several sentences in a row.

    Raises:
        ValueError: the implementation or ``empty_rows`` is unknown, the block length is below 1, mask or scores have
            another shape, or ``cu_seqlens`` does not divide a single row.
    """
    cu_seqlens = getattr(values, "cu_seqlens", cu_seqlens)
    scores, values = in_rows(scores), in_rows(values)
    check_choice("implementation", implementation, IMPLEMENTATIONS)
    check_shapes(*values.shape[:2], mask)
    if scores.shape not in (values.shape, (*values.shape[:2], 1)):
        raise ValueError(f"scores are {tuple(scores.shape)} for values {tuple(values.shape)}; give that or (B, N, 1)")
    check_block_length(block_length)
    mean = None if empty_rows == "zero" else empty_rows
    check_cu_seqlens(cu_seqlens, *values.shape[:2], {"block_length": block_length, "empty_rows='mean'": mean})
    if kernels is not None and implementation != "eager" and empty_rows == "zero" and not to_onnx():
        parts = {"block_length": block_length, "cu_seqlens": None if cu_seqlens is None else cu_seqlens.long()}
        pooled = kernels.source2token_attention(scores, values, mask.bool(), **parts)
        if pooled is not None:
            return pooled
    equation = partial(source2token_equation, empty_rows=empty_rows)
    if cu_seqlens is not None:
        return on_sentences(equation, cu_seqlens, (scores, values), mask, "mask")
    if block_length is not None:
        rows = on_blocks(equation, block_length, (scores, values), mask, "mask")
        return rows.unflatten(0, (values.shape[0], (values.shape[1] + block_length - 1) // block_length))
    return equation(scores, values, mask=mask)


def some_queries_at_a_time(equation: Callable, numbers: int, *tensors: Tensor, **options) -> Tensor:
    """Compute an equation that keeps that many numbers for each query in O(N D) memory: in slices of queries, each of
    which is recomputed for its gradient."""
    N = tensors[0].shape[-2]
    size = max(1, CHUNK_ELEMENTS // max(1, numbers))
    if torch.compiler.is_compiling() or size >= N:
        return equation(*tensors, **options)
    compute = partial(checkpoint, equation, *tensors, use_reentrant=False, preserve_rng_state=False, **options)
    return torch.cat([compute(rows=slice(start, start + size)) for start in range(0, N, size)], dim=-2)


def pack(x: Tensor | Tokens, mask_BN: Tensor) -> Tokens:
    """(B, N, D) without padding, sentence after sentence in a single row."""
    cu_seqlens = F.pad(mask_BN.sum(1).cumsum(0), (1, 0))
    if isinstance(x, Tokens):
        return Tokens(x.vectors, selected(x.places_BN, mask_BN), cu_seqlens)
    return Tokens(selected(x, mask_BN), cu_seqlens=cu_seqlens)


def selected(x: Tensor, mask_BN: Tensor) -> Tensor:
    """(B, N, ...) -> (1, T, ...): where the mask is true."""
    return x.flatten(0, 1).index_select(0, mask_BN.flatten().nonzero()[:, 0])[None]


def unpack(x: Tensor, mask_BN: Tensor) -> Tensor:
    """(1, T, ...) -> (B, N, ...), 0 where the mask is false: undoes :func:`selected`."""
    rows = x.new_zeros(mask_BN.numel(), *x.shape[2:])
    return rows.index_copy_(0, mask_BN.flatten().nonzero()[:, 0], x[0]).unflatten(0, mask_BN.shape)


def rows_of_sentences(cu_seqlens: Tensor) -> Tensor:
    """The mask (S, L) of S sentences of a single row once each has a row of its own, padded to the longest."""
    lengths_S = cu_seqlens.diff()
    longest = int(lengths_S.max()) if len(lengths_S) else 0
    return torch.arange(longest, device=cu_seqlens.device) < lengths_S[:, None]


def on_sentences(operator, cu_seqlens: Tensor, tensors: Sequence[Tensor], mask: Tensor | None, name="key_mask"):
    """``operator(*tensors, key_mask=...)`` with each sentence of a row as a row, (1, N, D) each -> (S, L, ...)."""
    mask_SL = rows_of_sentences(cu_seqlens)
    real_SL = mask_SL if mask is None else unpack(mask.bool(), mask_SL)
    return operator(*(unpack(x, mask_SL) for x in tensors), **{name: real_SL})
