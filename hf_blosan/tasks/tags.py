"""Tags in BIO form: the most likely valid sequence, and the spans that a sequence marks.

``B-X`` begins a span of type X, ``I-X`` continues it, ``O`` is outside every span. Tags of another form, such as parts
of speech, mark no spans and may follow each other in any order. Shape suffixes: B rows, N tokens, L tags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def may_follow(previous: str, tag: str) -> bool:
    """Whether a tag may follow another: ``I-X`` follows only ``B-X`` or ``I-X``; every other tag follows any."""
    return not tag.startswith("I-") or previous in (f"B-{tag[2:]}", tag)


def decode_tags(logits: Tensor, labels: Sequence[str] | Mapping[int, str], mask: Tensor | None = None) -> Tensor:
    """The most likely tag sequence in which every tag may follow the one before it (Viterbi's algorithm).

    Args:
        logits: (B, N, L), of a ``...ForTokenClassification``.
        labels: the L tags in order, or ``model.config.id2label``.
        mask: (B, N), true at tokens that have a tag, by default all; sequences skip the others, such as special tokens
            and the later subwords of a word.

    Returns:
        Tag ids, (B, N), -100 where ``mask`` is false.

    Raises:
        ValueError: there are not as many labels as logits per token.
    """
    (B, N, L), device = logits.shape, logits.device
    labels = [labels[i] for i in range(len(labels))]
    if len(labels) != L:
        raise ValueError(f"there are {len(labels)} labels for logits of {L} tags; give one for each")
    mask_BN = torch.ones((B, N), dtype=torch.bool, device=device) if mask is None else mask.bool()
    # One more state, in which a sequence starts as if after O.
    scores_BNL = torch.nn.functional.pad(logits.float().log_softmax(-1), (0, 1), value=-torch.inf)
    allowed = [[may_follow(previous, tag) for tag in (*labels, "O")] for previous in (*labels, "O")]
    barrier_LL = torch.zeros(L + 1, L + 1, device=device).masked_fill(
        ~torch.tensor(allowed, device=device), -torch.inf
    )
    best_BL = scores_BNL.new_full((B, L + 1), -torch.inf)
    best_BL[:, L] = 0.0
    stay_L, came_from = torch.arange(L + 1, device=device), []
    for n in range(N):
        reached_BL, previous_BL = (best_BL[:, :, None] + barrier_LL).max(1)
        here_B1 = mask_BN[:, n, None]
        best_BL = torch.where(here_B1, reached_BL + scores_BNL[:, n], best_BL)
        came_from.append(torch.where(here_B1, previous_BL, stay_L))
    tags_B, tags = best_BL.argmax(1, keepdim=True), []
    for previous_BL in reversed(came_from):
        tags.append(tags_B)
        tags_B = previous_BL.gather(1, tags_B)
    tags_BN = torch.cat(tags[::-1], dim=1) if tags else mask_BN.long()
    return tags_BN.masked_fill(~mask_BN, -100)


def spans(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """The spans of a tag sequence: type, first token, token after the last.

    An ``I-X`` that does not continue a span begins one, as in CoNLL's evaluation and in seqeval.
    """
    found, start, kind = set(), 0, None
    for n, tag in enumerate((*tags, "O")):
        continues = tag.startswith("I-") and tag[2:] == kind
        if kind is not None and not continues:
            found.add((kind, start, n))
            kind = None
        if not continues and tag.startswith(("B-", "I-")):
            start, kind = n, tag[2:]
    return found
