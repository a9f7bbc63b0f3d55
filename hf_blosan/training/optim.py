"""Optimisers with the settings of the authors' TensorFlow code, and the authors' L2 term."""

import math
from operator import attrgetter

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel
from transformers import get_scheduler
from transformers.pytorch_utils import Conv1D

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
# over the word table once, not ten times.
OPTIMIZERS = {
    "adadelta": (torch.optim.Adadelta, {"rho": 0.95, "eps": 1e-8}),
    "adam": (TensorFlowAdam, {"betas": (0.9, 0.999), "eps": 1e-8}),
    "adamw": (torch.optim.AdamW, {"betas": (0.9, 0.999), "eps": 1e-8, "fused": True}),
}

MATRICES = (nn.Linear, nn.Conv1d, Conv1D)  # the last: a linear map of GPT-2 and similar backbones


def build_optimizer(
    model: nn.Module,
    name: str,
    learning_rate: float,
    weight_decay: float = 0.0,
    embedding_learning_rate: float | None = None,
) -> torch.optim.Optimizer:
    """An optimiser over the trainable parameters; weight decay applies to matrices, including a backbone's, not
    to word vectors or biases. A decoder's output layer counts as a matrix although it is tied to its word table.

    Args:
        model: the model whose trainable parameters are optimised.
        name: ``"adadelta"`` (the papers: rho 0.95, eps 1e-8, with ``learning_rate`` 0.5), ``"adam"`` (as
            in TensorFlow) or ``"adamw"``.
        learning_rate: step size.
        weight_decay: the optimiser's own decay, decoupled for ``"adamw"``; for the papers' L2 term see
            :func:`l2_penalty`.
        embedding_learning_rate: step size of the word vectors or the backbone; ``learning_rate`` by default. Their
            groups have ``of_embeddings`` set.

    Raises:
        InputError: unknown optimiser.
    """
    if name not in OPTIMIZERS:
        raise InputError(f"optimizer {name!r} is unknown; choose one of {', '.join(OPTIMIZERS)}")
    matrices = {id(module.weight) for module in model.modules() if isinstance(module, MATRICES)}
    words = {id(parameter) for parameter in word_source(model).parameters()}
    groups = [
        {"params": [], "weight_decay": decay, "lr": rate, "of_embeddings": of_embeddings}
        for of_embeddings, rate in ((False, learning_rate), (True, embedding_learning_rate or learning_rate))
        for decay in (weight_decay, 0.0)
    ]
    for parameter in filter(attrgetter("requires_grad"), model.parameters()):
        groups[2 * (id(parameter) in words) + (id(parameter) not in matrices)]["params"].append(parameter)
    optimizer_class, settings = OPTIMIZERS[name]
    return optimizer_class([group for group in groups if group["params"]], lr=learning_rate, **settings)


def encoder_of(model: nn.Module) -> nn.Module:
    """A model without its head or its decoder."""
    return model.get_encoder() if model.config.is_encoder_decoder else model.base_model


def word_source(model: nn.Module) -> nn.Module:
    """The word table or the backbone of a model's encoder."""
    return encoder_of(model).embeddings.source


def make_scheduler(
    optimizer: torch.optim.Optimizer, name: str, total_steps: int, num_warmup_steps: int, embedding_warmup_steps: int
) -> LambdaLR:
    """A learning-rate schedule of transformers, with a separate warm-up for word vectors or a backbone."""

    def make(warmup: int) -> LambdaLR:
        return get_scheduler(name, optimizer, warmup, num_training_steps=total_steps)

    scheduler = make(num_warmup_steps)
    if embedding_warmup_steps == num_warmup_steps:
        return scheduler
    factors = scheduler.lr_lambdas[0], make(embedding_warmup_steps).lr_lambdas[0]
    return LambdaLR(optimizer, [factors[group["of_embeddings"]] for group in optimizer.param_groups])


def l2_penalty(model: nn.Module, factor: float) -> Tensor:
    """``factor * sum(w^2) / 2`` over the matrices that the authors regularise (scalar).

    Excluded are word vectors, biases, the two alignment matrices of DiSA, the scoring vector of additive attention and
    multi-head attention of the variant ``"relu"``. The matrices of MTSA's layers count once per sentence of a pair.
    """
    counts = {}  # how often the weight of a layer counts, where that is not once
    for module in model.modules():
        if isinstance(module, FeatureAttention) and not module.joint:
            counts |= {module.key_map: 0, module.query_map: 0}
        elif isinstance(module, AdditivePooling):
            counts[module.scores] = 0
        elif isinstance(module, MTSALayer):
            counts |= dict.fromkeys(module.modules(), getattr(model.config, "num_sentences", 1))
        elif isinstance(module, MultiHeadLayer) and module.variant == "relu":
            counts |= dict.fromkeys(module.modules(), 0)
    counts |= dict.fromkeys(word_source(model).modules(), 0)
    total = torch.zeros((), device=next(model.parameters()).device)
    for module in model.modules():
        if isinstance(module, MATRICES) and (count := counts.get(module, 1)):
            total = total + count * module.weight.float().square().sum()
    return factor / 2 * total


def moving_average(model: nn.Module, decay: float) -> AveragedModel:
    """A copy of the model whose ``update_parameters(model)`` computes ``average += (1 - d) (weights - average)``.

    ``d`` is ``decay``, but at most ``(1 + t) / (10 + t)`` at update ``t``, so that the random initial weights
    are soon forgotten.
    """

    def approach(averages: list[Tensor], weights: list[Tensor], num_averaged: Tensor) -> None:
        t = int(num_averaged)
        if weights[0].is_floating_point():
            pairs = [(a, w) for a, w in zip(averages, weights, strict=True) if a.data_ptr() != w.data_ptr()]
            if pairs:  # all weights of one dtype may be frozen
                torch._foreach_lerp_(*map(list, zip(*pairs, strict=True)), 1 - min(decay, (1 + t) / (10 + t)))

    average = AveragedModel(model, multi_avg_fn=approach)
    # These already equal the model's; copying fixed word vectors or a frozen backbone at every update is a waste.
    for copied, original in zip(average.module.modules(), model.modules(), strict=True):
        copied._buffers.update(original._buffers)
        copied._parameters.update(
            {k: x for k, x in original._parameters.items() if x is not None and not x.requires_grad}
        )
    return average
