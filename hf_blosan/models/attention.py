"""The one door from the models to the fast forms: the operators of equations.py with an ``implementation``.

Those of MTSA and of recurrent units come through it too, in attention_mtsa.py and layers_recurrent.py.

``"eager"``   the equation with its N x N tensors: torch operators only, differentiable any number of times.
``"fused"``   the same function in O(N D) memory.
``"linear"``  also in O(N D) time, for directional attention; elsewhere the same as ``"fused"``.
``"auto"``    the fastest available.

The fast forms are the package ``hf_blosan.kernels``. Where it is not installed (this file may have come with a
checkpoint), the equations are computed for a slice of queries at a time, so that memory stays O(N D).
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .equations import IMPLEMENTATIONS, full_precision, scan
from .equations import directional_attention as directional_equation
from .equations import source2token_attention as source2token_equation
from .masks import (
    check_bias,
    check_block_length,
    check_cu_seqlens,
    check_direction,
    check_scale,
    check_shapes,
    check_window,
    full_token_mask,
    on_blocks,
    on_sentences,
    out_of_blocks,
    out_of_sentences,
)

# The version of the kernels' interface; a checkpoint may meet an older or a newer package.
INTERFACE = 6
try:
    from hf_blosan import kernels

    kernels = kernels if kernels.INTERFACE == INTERFACE else None
except ImportError:
    kernels = None

# Elements of an equation's N x N tensors that are held at a time where there are no kernels.
CHUNK_ELEMENTS = 1 << 21
# Queries at a time in a graph for ONNX, the best of 1 to 64 from 1 x 12 to 2 x 256: more leave the cache.
EXPORTED_QUERIES = 4


def to_onnx() -> bool:
    """Whether ``torch.onnx.export`` records the graph: it knows torch's operators only."""
    return torch.compiler.is_exporting() and torch.onnx.is_in_onnx_export()


def can_use_kernel(implementation: str, *tensors: Tensor, maps: Iterable[nn.Module] = ()) -> bool:
    """Whether a step of a layer may run as one kernel, on these tensors and on the weights of these linear maps.

    Not if the layer is set to ``"eager"``, and not if a map is more than its weight and bias: adapters (LoRA) and
    quantisation replace the module, and hooks expect to see its input.
    """
    if kernels is None or implementation == "eager" or not all(map(is_plain, maps)):
        return False
    return kernels.can_use_kernel(*tensors, *_parameters(maps))


def is_plain(map_: nn.Module) -> bool:
    """Whether a linear map, or that of every head, is exactly its weight and bias, which are ordinary tensors.

    It is no subclass and has no hooks, no forward of its own, and no quantised, sharded or sparse parameters.
    """
    own = vars(map_)
    if type(map_) is not nn.Linear and not vars(type(map_)).get("is_linear_map", False):
        return False
    if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]:
        return False
    # accelerate moves weights by a hook of its own, and replaces the forward of the instance.
    if "_hf_hook" in own or "forward" in own:
        return False
    for x in own["_parameters"].values():
        if x is not None and not (type(x) in (Tensor, nn.Parameter) and x.layout == torch.strided):
            return False
    return all(map(is_plain, own["_modules"].values()))


def _parameters(maps: Iterable[nn.Module]) -> Iterator[Tensor]:
    """Of the maps and their heads, in less time than ``parameters()`` takes."""
    for map_ in maps:
        for x in map_._parameters.values():
            if x is not None:
                yield x
        yield from _parameters(map_._modules.values())


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
            the other in a single row, (1, N, D); sentence s is from cu_seqlens[s] to cu_seqlens[s + 1].
        scale: the constant c that bounds the scores; 5 in all three papers.
        window: hide keys more than that many tokens away; any distance by default.
        block_length: split sentences into blocks of that many tokens (the last may be shorter); tokens see only keys
            of the same block.
        implementation: ``"auto"``, ``"eager"``, ``"fused"`` or ``"linear"``: the same function at different speeds
            and memory. Only ``"eager"`` has second derivatives.

    Returns:
        (B, N, D) in the dtype of ``values``; 0 for a query that sees no key.

    Raises:
        ValueError: the direction or implementation is unknown, the window is negative, the scale is not above 0 or
            above 80, the block length is below 1, shapes do not match, the token mask is floating-point, or two of
            token mask, blocks and ``cu_seqlens`` are combined.
    """
    check_implementation(implementation)
    check_direction(direction)
    check_window(window)
    check_scale(scale)
    check_block_length(block_length, token_mask)
    check_shapes(*values.shape[:2], key_mask, keys=keys, queries=queries, values=values)
    check_bias(bias, values.shape[2])
    check_cu_seqlens(cu_seqlens, *values.shape[:2], block_length=block_length, token_mask=token_mask)
    if token_mask is not None:
        token_mask = full_token_mask(token_mask, *values.shape[:2])
    options = {"direction": direction, "bias": bias, "scale": scale, "window": window}
    has_kernel = implementation != "eager" and kernels is not None and not to_onnx()
    if cu_seqlens is not None and not (has_kernel and kernels.takes_parts(values)):
        operator = partial(directional_attention, implementation=implementation, **options)
        return out_of_sentences(on_sentences(operator, cu_seqlens, (keys, queries, values), key_mask), cu_seqlens)
    if implementation == "eager":
        masks = {"key_mask": key_mask, "token_mask": token_mask, "block_length": block_length}
        return directional_equation(keys, queries, values, **masks, **options)
    dtype = precision(values)
    tensors = [x.to(dtype) for x in (keys, queries, values)]
    options["bias"] = None if bias is None else bias.to(dtype)
    if not has_kernel:
        attend = partial(some_queries_at_a_time, directional_equation, **options)
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
        cu_seqlens: (S + 1,) integers: S sentences lie one after the other in a single row, and each gets a vector; see
            :func:`directional_attention`.
        block_length: split sentences into M blocks of that many tokens (the last may be shorter) and return a vector
            for each block.
        implementation: ``"auto"``, ``"eager"``, ``"fused"`` or ``"linear"``: the same function at different speeds.
            Only ``"eager"`` has second derivatives.

    Returns:
        (B, D) in the dtype of ``values``; (B, M, D) with blocks, (S, D) with several sentences in a row.

    Raises:
        ValueError: the implementation is unknown, the block length is below 1, the mask has another shape, or
            ``cu_seqlens`` does not divide a single row.
    """
    check_implementation(implementation)
    check_shapes(*values.shape[:2], mask)
    check_block_length(block_length)
    own = {"empty_rows='mean'": None if empty_rows == "zero" else empty_rows}
    check_cu_seqlens(cu_seqlens, *values.shape[:2], block_length=block_length, **own)
    if kernels is not None and implementation != "eager" and empty_rows == "zero" and not to_onnx():
        parts = {"block_length": block_length, "cu_seqlens": None if cu_seqlens is None else cu_seqlens.long()}
        pooled = kernels.source2token_attention(scores, values, mask.bool(), **parts)
        if pooled is not None:
            return pooled
    if cu_seqlens is not None:

        def equation(scores, values, key_mask):
            return source2token_equation(scores, values, mask=key_mask)

        return on_sentences(equation, cu_seqlens, (scores, values), mask)
    options = {"mask": mask, "empty_rows": empty_rows, "block_length": block_length}
    return source2token_equation(scores, values, **options)


def some_queries_at_a_time(equation: Callable, *tensors: Tensor, **options) -> Tensor:
    """An equation in O(N D) memory: its queries in slices, each of which is recomputed for its gradient."""
    N = tensors[0].shape[-2]
    if to_onnx() and not (isinstance(N, int) and N <= EXPORTED_QUERIES):
        # The last slice is filled up with the first query.
        R = EXPORTED_QUERIES
        rows_N = torch.arange(N, device=tensors[0].device)
        rows_MR = F.pad(rows_N, (0, (N + R - 1) // R * R - N)).unflatten(0, (-1, R))

        def step(state, rows_R):
            return state, equation(*tensors, rows=rows_R, **options)

        return scan(step, rows_MR.new_zeros(1), rows_MR).movedim(0, -3).flatten(-3, -2)[..., :N, :]
    size = max(1, CHUNK_ELEMENTS // max(1, tensors[0].numel()))
    if torch.compiler.is_compiling() or size >= N:
        return equation(*tensors, **options)
    compute = partial(checkpoint, equation, *tensors, use_reentrant=False, preserve_rng_state=False, **options)
    return torch.cat([compute(rows=slice(start, start + size)) for start in range(0, N, size)], dim=-2)


def check_implementation(implementation: str) -> None:
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f"implementation is {implementation!r}; choose one of {', '.join(IMPLEMENTATIONS)}")


def precision(values: Tensor) -> torch.dtype:
    """The dtype to compute in."""
    return torch.float32 if values.dtype in (torch.bfloat16, torch.float16) else values.dtype
