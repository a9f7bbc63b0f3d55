"""What is measured: the context layers of the package, and the layers that are commonly used in their place.

Only public names of the package are used, so that benchmarks.compare can measure older versions with this file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hf_blosan import BiBloSANConfig, BiBloSANModel, DiSANConfig, DiSANModel, MTSAConfig, MTSAModel
from hf_blosan.functional import IMPLEMENTATIONS, directional_attention, optimal_block_length

SIZE = 300
"""Features of a word vector and of one direction, as in the papers."""

PASSES = ("forward", "forward+backward")

EAGER_LIMIT = 6 * 2**30
"""The eager textbook form is skipped where it needs more bytes than this."""

EAGER_TENSORS = {"forward": 4, "forward+backward": 13}
"""How many tensors (B, N, N, D) the eager form holds at its peak, measured at 16x64."""


@dataclass(frozen=True)
class Operator:
    """A layer under measurement.

    Args:
        title: its name in reports.
        build: ``build(length, size)`` returns a module with the signature ``(hidden_BNE, mask_BN) -> tokens``, for
            sentences of ``length`` tokens and ``size`` features per direction.
        width: features of an input token, in units of ``size``.
        checked: it is timed only if its results are right; see ``correctness``.
        device: the one device it is measured on; None for all devices.
        eager: it holds tensors of shape (B, N, N, D).
        passes: those that it has.
    """

    title: str
    build: Callable[[int, int], nn.Module]
    width: int = 1
    checked: bool = False
    device: str | None = None
    eager: bool = False
    passes: tuple[str, ...] = PASSES

    def why_skipped(self, batch: int, length: int, pass_: str) -> str | None:
        """Why a shape is skipped, or None."""
        if pass_ not in self.passes:
            return "has no gradients"
        need = EAGER_TENSORS[pass_] * batch * length**2 * SIZE * 4 if self.eager else 0
        if need <= EAGER_LIMIT:
            return None
        return f"needs about {need / 2**30:.0f} GiB, the limit is {EAGER_LIMIT / 2**30:.0f} GiB"


class Called(nn.Module):
    """Gives a module the common signature ``(hidden_BNE, mask_BN) -> tokens``."""

    def __init__(self, module: nn.Module, call: Callable[[nn.Module, Tensor, Tensor], Tensor]):
        super().__init__()
        self.module, self.call = module, call

    def forward(self, hidden_BNE: Tensor, mask_BN: Tensor) -> Tensor:
        return self.call(self.module, hidden_BNE, mask_BN)


class Kernel(nn.Module):
    """Directional attention alone; the input (B, N, 3 D) holds keys, queries and values one after another."""

    implementation = "auto"

    def forward(self, hidden: Tensor, mask_BN: Tensor) -> Tensor:
        keys, queries, values = hidden.reshape(3, *mask_BN.shape, -1)
        return directional_attention(
            keys, queries, values, direction="forward", key_mask=mask_BN, implementation=self.implementation
        )


class BlockProducts(nn.Module):
    """A lower bound for Bi-BloSA: its matrix products, with their shapes and in their order, and almost nothing else.

    Each product takes the result of an earlier one; only the sums and slices that this needs lie between them.
    """

    def __init__(self, length: int, size: int):
        super().__init__()
        self.size, self.block_length = size, optimal_block_length(length)
        # Dense map, keys and queries, block pooling; between blocks: dense map, keys, queries, gate (2); fusion (3).
        shapes = [(1, 1), (2, 1), (1, 1), *[(1, 1)] * 5, *[(2, 1)] * 3]
        self.weights = nn.ParameterList(
            torch.nn.init.xavier_uniform_(torch.empty(rows * size, columns * size))
            for _ in range(2)
            for rows, columns in shapes
        )

    def forward(self, hidden_BNE: Tensor, mask_BN: Tensor) -> Tensor:
        half = len(self.weights) // 2
        return self.direction(hidden_BNE, self.weights[:half]) + self.direction(hidden_BNE, self.weights[half:])

    def direction(self, hidden_BNE: Tensor, weights: nn.ParameterList) -> Tensor:
        dense, joint, pooling, block_dense, key, query, gate, other_gate, *fusion = weights
        mapped_BND = F.linear(hidden_BNE, dense)
        local_BND = F.linear(mapped_BND, joint)[..., : self.size]
        blocks_BMD = F.linear(F.linear(local_BND, pooling)[:, :: self.block_length], block_dense)
        blocks_BMD = sum_of_products(F.linear(blocks_BMD, key), gate, F.linear(blocks_BMD, query), other_gate)
        scores_BNF = sum_of_products(mapped_BND, fusion[0], local_BND, fusion[1])
        scores_BNF[:, : blocks_BMD.shape[1]] += F.linear(blocks_BMD, fusion[2])
        return scores_BNF


def sum_of_products(x: Tensor, weight: Tensor, other_x: Tensor, other_weight: Tensor) -> Tensor:
    """x W' + y V', with the sum inside the second product."""
    rows = F.linear(x.flatten(0, -2), weight)
    rows.addmm_(other_x.flatten(0, -2).to(rows), other_weight.t().to(rows))  # differ in dtype under autocast only
    return rows.view(*x.shape[:-1], -1)


def set_implementation(module: nn.Module, implementation: str) -> nn.Module:
    """Set the implementation of every layer of a module; the weights do not change."""
    for part in module.modules():
        if hasattr(part, "implementation"):
            part.implementation = implementation
    return module


def context(model_class, config) -> nn.Module:
    """The context layer of an encoder, without embeddings and without pooler."""
    return Called(model_class(config).context, lambda module, hidden, mask: module(hidden, mask)[0])


def sizes(size: int) -> dict[str, int]:
    """Fields of an encoder's configuration: two directions of ``size`` features and a minimal vocabulary."""
    return {"vocab_size": 2, "embedding_size": size, "hidden_size": 2 * size}


def disa(implementation: str) -> Callable[[int, int], nn.Module]:
    return lambda length, size: set_implementation(context(DiSANModel, DiSANConfig(**sizes(size))), implementation)


def compiled_disa(implementation: str, **options) -> Callable[[int, int], nn.Module]:
    """DiSA under torch.compile (inductor); the first call of a pass, never timed, compiles."""

    def build(length: int, size: int) -> nn.Module:
        torch.compiler.reset()  # shapes that were compiled earlier count towards the limit of recompilations
        return torch.compile(disa(implementation)(length, size), dynamic=False, fullgraph=True, **options)

    return build


def stack(length: int, size: int, **options) -> nn.Module:
    """As in disan-mini-en, but for the width of a word vector."""
    directions = {"directions": ["forward", "backward", "forward", "backward"], "windows": [None, None, 2, 2]}
    layers = {"num_hidden_layers": 2, "hidden_size": 320, "activation": "gelu"}
    return context(DiSANModel, DiSANConfig(**sizes(size) | layers | directions | options))


def int8_stack(length: int, size: int) -> nn.Module:
    return stack(length, size, layers_dtype="int8")


def biblosa(length: int, size: int) -> nn.Module:
    return context(BiBloSANModel, BiBloSANConfig(**sizes(size), block_length=optimal_block_length(length)))


def mtsa(num_heads: int) -> Callable[[int, int], nn.Module]:
    return lambda length, size: context(MTSAModel, MTSAConfig(**sizes(size), num_heads=num_heads))


def multihead(length: int, size: int) -> nn.Module:
    return Called(
        nn.MultiheadAttention(2 * size, 8, batch_first=True),
        lambda module, hidden, mask: module(hidden, hidden, hidden, need_weights=False)[0],
    )


def transformer(length: int, size: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(2 * size, 8, dim_feedforward=8 * size, dropout=0.0, batch_first=True)
    return Called(layer, lambda module, hidden, mask: module(hidden))


def recurrent(module_class) -> Callable[[int, int], nn.Module]:
    return lambda length, size: Called(
        module_class(size, size, batch_first=True, bidirectional=True), lambda module, hidden, mask: module(hidden)[0]
    )


def convolution(length: int, size: int) -> nn.Module:
    return Called(nn.Conv1d(size, 2 * size, 5, padding=2), lambda module, hidden, mask: module(hidden.mT).mT)


def copy(length: int, size: int) -> nn.Module:
    """Moves as many bytes as the forward kernel, which reads keys, queries, values and writes two results."""
    return Called(nn.Identity(), lambda module, hidden, mask: hidden.view(-1)[: hidden.numel() * 5 // 6].clone())


DISA_FORMS = {
    f"disa-{name}": Operator(f"DiSA, {name}", disa(name), checked=name != "eager", eager=name == "eager")
    for name in IMPLEMENTATIONS
    if name != "auto"
}

OPERATORS: dict[str, Operator] = {
    "disa": Operator("DiSA", disa("auto"), checked=True),
    **DISA_FORMS,
    "disa-compiled": Operator(
        "DiSA, eager under torch.compile (compile time not counted)", compiled_disa("eager"), eager=True
    ),
    "disa-graph": Operator(
        'DiSA under torch.compile, "reduce-overhead"', compiled_disa("auto", mode="reduce-overhead"), device="cuda"
    ),
    "stack": Operator("two stacked layers of DiSAN", stack),
    "stack-int8": Operator("two stacked layers of DiSAN in int8", int8_stack, device="cpu", passes=("forward",)),
    "biblosa": Operator("Bi-BloSA", biblosa, checked=True),
    "biblosa-products": Operator("Bi-BloSA's matrix products alone", BlockProducts, device="cpu"),
    "mtsa-2": Operator("MTSA, 2 heads", mtsa(2), checked=True),
    "mtsa-8": Operator("MTSA, 8 heads", mtsa(8), checked=True),
    "multihead": Operator("nn.MultiheadAttention", multihead, width=2),
    "transformer": Operator("nn.TransformerEncoderLayer", transformer, width=2),
    "lstm": Operator("nn.LSTM, bidirectional", recurrent(nn.LSTM)),
    "gru": Operator("nn.GRU, bidirectional", recurrent(nn.GRU)),
    "convolution": Operator("nn.Conv1d, width 5", convolution),
    "kernel": Operator("DiSA's kernel, one direction", lambda length, size: Kernel(), 3, checked=True, device="cuda"),
    "copy": Operator("a copy of the kernel's bytes", copy, 3, device="cuda"),
}
