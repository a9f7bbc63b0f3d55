"""Optimisers with the settings of the authors' TensorFlow code, and the authors' L2 term."""

import math
from operator import attrgetter

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from ..errors import InputError
from ..models.layers import AdditivePooling, FeatureAttention
from ..models.modeling_mtsa import MTSALayer
from ..models.modeling_multihead import MultiHeadLayer


class TensorFlowAdam(torch.optim.Adam):
    """Adam as in TensorFlow: epsilon is added before the bias correction of the second moment (Kingma & Ba 2015,
    end of section 2), which in PyTorch's form is ``eps / sqrt(1 - beta2^t)``, 30 times larger at the first step.
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)
        for group in self.param_groups:
            group.update(steps_taken=0, epsilon_hat=eps)

    def step(self, closure=None):
        for group in self.param_groups:
            group["steps_taken"] += 1
            group["eps"] = group["epsilon_hat"] / math.sqrt(1 - group["betas"][1] ** group["steps_taken"])
        return super().step(closure)


# TensorFlow's Adadelta is PyTorch's with other constants (PyTorch: rho 0.9, eps 1e-6, lr 1). Adam's fused form passes
# over the word table once instead of ten times.
OPTIMIZERS = {
    "adadelta": (torch.optim.Adadelta, {"rho": 0.95, "eps": 1e-8}),
    "adam": (TensorFlowAdam, {"betas": (0.9, 0.999), "eps": 1e-8}),
    "adamw": (torch.optim.AdamW, {"betas": (0.9, 0.999), "eps": 1e-8, "fused": True}),
}


def build_optimizer(
    model: nn.Module,
    name: str,
    learning_rate: float,
    weight_decay: float = 0.0,
    embedding_learning_rate: float | None = None,
) -> torch.optim.Optimizer:
    """An optimiser over the trainable parameters; weight decay applies to matrices, not to word vectors or biases.

    Args:
        model: the model whose trainable parameters are optimised.
        name: ``"adadelta"`` (the papers: rho 0.95, eps 1e-8, with ``learning_rate`` 0.5), ``"adam"`` (as
            in TensorFlow) or ``"adamw"``.
        learning_rate: step size.
        weight_decay: the optimiser's own decay, decoupled for ``"adamw"``; for the papers' L2 term see
            :func:`l2_penalty`.
        embedding_learning_rate: step size of the word vectors; ``learning_rate`` by default.

    Raises:
        InputError: unknown optimiser.
    """
    if name not in OPTIMIZERS:
        raise InputError(f"optimizer {name!r} is unknown; choose one of {', '.join(OPTIMIZERS)}")
    matrices = {id(module.weight) for module, _ in matrix_layers(model)}
    words = {id(parameter) for parameter in model.get_input_embeddings().parameters()}
    groups = [
        {"params": [], "weight_decay": weight_decay},
        {"params": [], "weight_decay": 0.0},
        {"params": [], "weight_decay": 0.0, "lr": embedding_learning_rate or learning_rate},
    ]
    decayed, others, embeddings = (group["params"] for group in groups)
    for parameter in filter(attrgetter("requires_grad"), model.parameters()):
        group = decayed if id(parameter) in matrices else embeddings if id(parameter) in words else others
        group.append(parameter)
    optimizer_class, settings = OPTIMIZERS[name]
    return optimizer_class([group for group in groups if group["params"]], lr=learning_rate, **settings)


def matrix_layers(model: nn.Module, num_sentences: int = 1) -> list[tuple[nn.Module, int]]:
    """Dense layers and convolutions, each with the number of times the released L2 term counts its weight."""
    counts = {}
    for module in model.modules():
        if isinstance(module, FeatureAttention) and not module.joint:
            counts |= {module.key_map: 0, module.query_map: 0}
        elif isinstance(module, AdditivePooling):
            counts[module.scores] = 0
        elif isinstance(module, MTSALayer):
            counts |= dict.fromkeys(module.modules(), num_sentences)
        elif isinstance(module, MultiHeadLayer) and module.variant == "relu":
            counts |= dict.fromkeys(module.modules(), 0)
    dense = [module for module in model.modules() if isinstance(module, (nn.Linear, nn.Conv1d))]
    return [(module, counts.get(module, 1)) for module in dense]


def l2_penalty(model: nn.Module, factor: float) -> Tensor:
    """``factor * sum(w^2) / 2`` over the matrices that the authors regularise (scalar).

    Excluded are word vectors, biases, the two alignment matrices of DiSA, the scoring vector of additive attention and
    multi-head attention of the variant ``"relu"``. The matrices of MTSA's layers count once per sentence of a pair.
    """
    total = torch.zeros((), device=next(model.parameters()).device)
    for module, count in matrix_layers(model, getattr(model.config, "num_sentences", 1)):
        if count:
            total = total + count * module.weight.float().square().sum()
    return factor / 2 * total


def moving_average(model: nn.Module, decay: float) -> AveragedModel:
    """A copy of the model whose ``update_parameters(model)`` computes ``average += (1 - d) (weights - average)``.

    ``d`` is ``decay``, but at most ``(1 + t) / (10 + t)`` at update ``t``, so that the random weights of the beginning
    are soon forgotten.
    """

    def approach(averages: list[Tensor], weights: list[Tensor], num_averaged: Tensor) -> None:
        t = int(num_averaged)
        if weights[0].is_floating_point():
            torch._foreach_lerp_(averages, weights, 1 - min(decay, (1 + t) / (10 + t)))

    average = AveragedModel(model, multi_avg_fn=approach)
    # They follow the model's anyway; no need to copy all fixed word vectors at every update.
    for copied, original in zip(average.module.modules(), model.modules(), strict=True):
        copied._buffers.update(original._buffers)
    return average
