"""The head that scores pairs."""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import ACTIVATIONS
from .configuration_base import SentenceEncoderConfig
from .equations import can_branch_on
from .heads import SentenceHeadMixin
from .heads_families import FamilyHead
from .layers import Layer


def spread_scores(scores: Tensor, *, score_min: float, score_max: float, num_classes: int) -> Tensor:
    """A score as a distribution over evenly spaced classes, with weight on the two nearest (Tai et al. 2015, Eq. 15).

    Args:
        scores: (B,), each within [score_min, score_max]; values outside are clamped to the range.
        score_min, score_max: the scores of the first and the last class.
        num_classes: K.

    Returns:
        (B, K); each row sums to 1 and has the score as its expectation.
    """
    positions_B = (scores - score_min) / (score_max - score_min) * (num_classes - 1)
    positions_B1 = positions_B.clamp(0, num_classes - 1)[:, None]
    classes_K = torch.arange(num_classes, device=scores.device, dtype=positions_B1.dtype)
    return (1 - (positions_B1 - classes_K).abs()).clamp(min=0)


class PairScorer(Layer):
    """Two sentence vectors (B, H) -> logits (B, K) over score classes: W act(W1 (u * v) + W2 |u - v| + b) + c."""

    def __init__(self, config: SentenceEncoderConfig):
        super().__init__(activation=config.activation, dropout=config.dropout)
        self.product = nn.Linear(config.hidden_size, config.classifier_size, bias=False)
        self.difference = nn.Linear(config.hidden_size, config.classifier_size)
        self.output = nn.Linear(config.classifier_size, config.num_score_classes)

    def forward(self, sentences: list[Tensor]) -> Tensor:
        u_BH, v_BH = sentences
        hidden = self.linear(self.product, u_BH * v_BH) + self.linear(self.difference, (u_BH - v_BH).abs())
        return self.linear(self.output, ACTIVATIONS[self.activation](hidden))


class PairRegressionMixin(FamilyHead, SentenceHeadMixin):
    """Score a pair, as for SICK relatedness: softmax over score classes, KL loss, expected score (Tai et al. 2015).

    Other tools see a regression model with one label; ``logits`` (B, 1) are the predicted scores, between
    ``score_min`` and ``score_max``.
    """

    suffix, classifier_class = "ForPairRegression", PairScorer

    def __init__(self, config: SentenceEncoderConfig):
        if config.num_sentences != 2:
            raise ValueError(
                f"pair regression compares two sentences; set num_sentences=2, not {config.num_sentences}"
            )
        if config.problem_type not in (None, "regression") or (config.problem_type and config.num_labels != 1):
            classifier = type(self).__name__.replace("PairRegression", "SequenceClassification")
            raise ValueError(
                f"pair regression predicts one score, but num_labels={config.num_labels} and problem_type="
                f"{config.problem_type!r}; for classes load {classifier}.from_pretrained(..., num_labels="
                f'{config.num_labels}, problem_type="single_label_classification", ignore_mismatched_sizes=True)'
            )
        config = copy.deepcopy(config)
        config.num_labels, config.problem_type = 1, "regression"
        # The scores are final: without this, CrossEncoder bends a single logit by a sigmoid.
        config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}
        super().__init__(config)

    def compute_loss_and_logits(self, sentences, labels):
        scale = {"score_min": self.config.score_min, "score_max": self.config.score_max}
        num_classes = self.config.num_score_classes
        predicted_BK = F.softmax(self.classifier(sentences).float(), dim=-1)
        classes_K = torch.linspace(*scale.values(), num_classes, device=predicted_BK.device)
        scores_B1 = (predicted_BK * classes_K).sum(-1, keepdim=True)
        if labels is None:
            return None, scores_B1
        labels_B = labels.view(scores_B1.shape[0]).float()
        if self.training:
            check_range(labels_B, *scale.values())
        target_BK = spread_scores(labels_B, num_classes=num_classes, **scale)
        return kl_divergence(target_BK, predicted_BK), scores_B1


def check_range(labels_B: Tensor, low: float, high: float) -> None:
    """Raise ValueError for a label that is not from ``low`` to ``high``, give or take half a percent of this range.

    Only where Python may look at values, on the CPU outside a graph.
    """
    if can_branch_on(labels_B):
        within_B = (labels_B - (low + high) / 2).abs() <= 0.505 * (high - low)
        if not within_B.all():
            raise ValueError(
                f"labels hold {labels_B[~within_B][0].item():g}, but this model's scores are from {low:g} to "
                f"{high:g}; give labels in this range, or make the model with another score_min and score_max"
            )


def kl_divergence(target_BK: Tensor, predicted_BK: Tensor) -> Tensor:
    """Mean over rows of sum_k t log(t / p), both clipped to [1e-10, 1] as in the authors' code."""
    target_BK, predicted_BK = target_BK.clamp(1e-10, 1.0), predicted_BK.clamp(1e-10, 1.0)
    return (target_BK * (target_BK / predicted_BK).log()).sum(-1).mean()


__getattr__ = PairRegressionMixin.of_family
