"""The operator of equations_mtsa.py with an ``implementation``, and the gate of heads; see attention.py."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .attention import can_use_kernel, kernels, some_queries_at_a_time, to_onnx
from .equations import IMPLEMENTATIONS, check_shapes, full_precision
from .equations_mtsa import SCORE_FUNCTIONS, for_each_head
from .equations_mtsa import tensorized_attention as tensorized_equation
from .masks import DIRECTIONS, check_choice, check_window


@full_precision
def tensorized_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    source_scores: Tensor,
    *,
    directions: str | Sequence[str],
    windows: int | Sequence[int | None] | None = None,
    key_mask: Tensor | None = None,
    token_mask: Tensor | None = None,
    score_function: str = "sigmoid",
    include_self: bool = False,
    dropout: float = 0.0,
    implementation: str = "auto",
) -> Tensor:
    """Multi-mask tensorized self-attention by matrix products only (MTSA Eq. 8-12, Algorithm 1).

    The weight of key j for query i and feature d is f(q_i . k_j / sqrt(D)) exp(S_jd), normalised over the visible j:

        H = (E_R (E_S * V)) / (E_R E_S),   E_R = f(Q K' / sqrt(D)) * M,   E_S = exp(S)

    E_S is computed once for all queries: the result is exact where the source scores of a feature differ by at most
    150, with and without token scores added; beyond that, in any dtype, keys that should count may not.

    Args:
        q, k, v: queries, keys, values, shape (B, H, N, D).
        source_scores: source2token scores S, shape (B, H, N, D).
        directions: the order mask of all heads, or one name per head; see ``order_mask``.
        windows: hide keys more than that many tokens away: one number for all heads, or one per head, ``None`` for
            any distance.
        key_mask: (B, N), true at real tokens; by default all tokens are real.
        token_mask: (N, N) or (B, N, N), true where the query (row) may see the key (column), in addition to the other
            masks; ``mask_from_heads`` makes one.
        score_function: f, ``"sigmoid"`` (the authors' single-layer models) or ``"exp"``.
        include_self: let a token attend to itself under a forward, backward or diagonal mask.
        dropout: probability of dropping weights of E_R and of E_S in the numerator; as in the authors' code, the
            denominator keeps them. With dropout every implementation computes as ``"eager"``.
        implementation: ``"auto"``, ``"eager"``, ``"fused"`` or ``"linear"`` (the same as fused): the same function at
            different speeds and memory. Only ``"eager"`` has second derivatives. With a token mask, which is of size
            N^2 itself, every implementation computes as ``"eager"``.

    Returns:
        (B, H, N, D) in the dtype of ``v``; 0 for a query that sees no key.

    Raises:
        ValueError: a direction, the score function or the implementation is unknown, the number of directions or
            windows is wrong, a window is negative, the dropout is not a probability, shapes do not match, or the token
            mask is floating-point.
    """
    check_choice("implementation", implementation, IMPLEMENTATIONS)
    check_shapes(v.shape[0], v.shape[2], key_mask, q=q, k=k, v=v, source_scores=source_scores)
    heads = for_each_head(directions, windows, v.shape[1])
    for direction, window in heads:
        check_choice("direction", direction, DIRECTIONS)
        check_window(window)
    check_choice("score_function", score_function, SCORE_FUNCTIONS)
    if not 0 <= dropout <= 1:
        raise ValueError(f"dropout is {dropout}; give a probability from 0 to 1")
    options = {"directions": [direction for direction, _ in heads], "windows": [window for _, window in heads]}
    options |= {"key_mask": key_mask, "score_function": score_function, "include_self": include_self}
    # The equation's weights take (B, H, N, N), without D: ONNX gets them whole.
    eager = implementation == "eager" or dropout > 0 or token_mask is not None or (kernels is None and to_onnx())
    auto = kernels is not None and implementation == "auto" and not to_onnx()
    if eager or (auto and kernels.short_for_tensorized_attention(v)):
        return tensorized_equation(q, k, v, source_scores, token_mask=token_mask, dropout=dropout, **options)
    dtype = torch.promote_types(v.dtype, torch.float32)
    tensors = [x.to(dtype) for x in (q, k, v, source_scores)]
    if kernels is None:
        numbers = k[..., 0].numel()  # the score of every key in every head
        return some_queries_at_a_time(tensorized_equation, numbers, *tensors, **options).to(v.dtype)
    options["key_mask"] = None if key_mask is None else key_mask.bool()
    operator = kernels.tensorized_attention_graph if to_onnx() else kernels.tensorized_attention
    return operator(*tensors, **options).to(v.dtype)


def heads_gate(layer: nn.Module, v_BHND: Tensor, attended_BHND: Tensor, mask_BN: Tensor) -> Tensor | None:
    """MTSA's gate in one kernel, heads concatenated, 0 at padding; ``None`` if it must be computed by its equation."""
    dropped = layer.training and layer.dropout
    if dropped or not can_use_kernel(layer.implementation, v_BHND, attended_BHND, maps=[layer.gate]):
        return None
    return kernels.heads_fusion_gate(v_BHND, attended_BHND, layer.gate.weights, layer.gate.biases, mask_BN.bool())
