"""A DiSAN that learns from teachers' vectors of sentences, and to tell paraphrases from foils.

Its unit vectors are z = [a; b]: a is as the first teacher's vectors, which hardly see the order of words, and b, the
last features, is left to what tells texts of the same words apart. With t_k the unit vectors of teacher k of a batch
of sentences, and G the mean over teachers of t_k t_k^T, each step minimises

    mean(1 - cos(a, P(t_1))) + gram * KL(softmax(G / tau) || softmax(z z^T / tau))
    + triplets * (CE + 5 hinge) + 10 * mean((|b|^2 - share)^2)

where P projects the first teacher's vectors on their most important directions and softmax leaves out a sentence's
similarity to itself. CE and hinge are of a batch of made triplets, whose a is taken as given: CE is the cross entropy
of a text's own paraphrase among all paraphrases and foils of the batch, at temperature tau, and hinge is
max(0, margin - cos(text, paraphrase) + cos(text, foil)) over its own foils. Triplets do not train the word table, else
they would be told apart by words that they have and other sentences do not. The last term keeps b as large in every
sentence, so that it cannot be left out of those that are not in triplets.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerBase, get_linear_schedule_with_warmup

from hf_blosan.cli.options import option
from hf_blosan.data import LengthBucketBatchSampler

logger = logging.getLogger(__name__)

SHARE_WEIGHT, EVALUATION_BATCH = 10.0, 128


@dataclass(kw_only=True)
class Recipe:
    """How a student is trained; what the terms are is said above. The warm-up is the first 20th of the steps."""

    steps: int = option("Updates.", 2_500, group="training")
    batch_size: int = option("Sentences of an update.", 192)
    triplet_batch_size: int = option("Triplets of an update.", 128)
    learning_rate: float = option("After the warm-up, falling linearly to 0.", 2e-3)
    gram: float = option("Weight of the teachers' similarities within a batch.", 0.3, zero=True)
    triplets: float = option("Weight of the made triplets.", 0.5, zero=True)
    order_features: int = option("Features of a vector that the first teacher does not determine.", 64)
    share: float = option("Their part of the squared length of a vector.", 0.2, below=1)
    tau: float = option("Temperature.", 0.05)
    margin: float = option("By which a paraphrase should be nearer than a foil.", 0.2)
    dtype: Literal["bfloat16", "float32"] = option(
        "Of the matrix products of training; bfloat16 is faster where the processor has it.", "bfloat16"
    )
    seed: int = option("Of the first weights and the order of the rows.", 42, zero=True)


class Rows:
    """Token ids of texts, one after another on a device, of which any become a padded batch.

    Attributes:
        lengths: tokens of each text, on the CPU.
    """

    def __init__(self, rows: list[list[int]], device: torch.device, pad_token_id: int):
        self.lengths = torch.tensor([len(row) for row in rows])
        self.starts = self.lengths.cumsum(0) - self.lengths
        self.ids = torch.tensor(list(itertools.chain.from_iterable(rows))).to(device)
        self.pad_token_id = pad_token_id

    def batch(self, numbers: Tensor) -> dict[str, Tensor]:
        """``input_ids`` and ``attention_mask`` of some texts, each (texts, longest)."""
        lengths = self.lengths[numbers]
        places = torch.arange(int(lengths.max()))
        mask = places < lengths[:, None]
        chosen = torch.where(mask, self.starts[numbers][:, None] + places, 0).to(self.ids.device)
        mask = mask.to(self.ids.device)
        return {"input_ids": self.ids[chosen].masked_fill(~mask, self.pad_token_id), "attention_mask": mask.long()}


class Encoder:
    """A student in training: token ids of texts -> unit vectors."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_length: int):
        self.model, self.tokenizer, self.max_length = model, tokenizer, max_length

    def rows(self, texts: list[str]) -> Rows:
        """The tokens of texts, on the device of the model."""
        ids = self.tokenizer(texts, truncation=True, max_length=self.max_length)["input_ids"]
        return Rows(ids, self.model.device, self.tokenizer.pad_token_id)

    def vectors(self, *batches: dict[str, Tensor]) -> list[Tensor]:
        """For each batch (texts, features); the first alone trains the word table."""
        # One look-up for all of them: its gradient is as large as the word table.
        words_TE = self.model.embeddings(torch.cat([batch["input_ids"].flatten() for batch in batches])[None])[0]
        first, *others = words_TE.split([batch["input_ids"].numel() for batch in batches])
        words = [first, *(other.detach() for other in others)]
        outputs = [
            self.model(
                inputs_embeds=batch_TE.view(*batch["input_ids"].shape, -1), attention_mask=batch["attention_mask"]
            )
            for batch_TE, batch in zip(words, batches, strict=True)
        ]
        return [F.normalize(output.pooler_output.float(), dim=-1) for output in outputs]

    def encode(self, texts: list[str]) -> dict[str, Tensor]:
        """The vector of each text, on the CPU."""
        texts = list(dict.fromkeys(texts))
        rows = self.rows(texts)
        batches, places = by_length(rows.lengths, EVALUATION_BATCH)
        self.model.eval()
        with torch.no_grad():
            vectors = torch.cat([self.vectors(rows.batch(numbers))[0] for numbers in batches])[places].cpu()
        return dict(zip(texts, vectors, strict=True))


def by_length(lengths: Tensor, batch_size: int) -> tuple[list[Tensor], Tensor]:
    """Batches of numbers of texts of similar length, and the place of each text among all texts of the batches."""
    order = lengths.argsort(stable=True)
    return list(order.split(batch_size)), order.argsort()


def split(vectors_BD: Tensor, recipe: Recipe) -> tuple[Tensor, Tensor]:
    """a and b of vectors."""
    return vectors_BD[:, : -recipe.order_features], vectors_BD[:, -recipe.order_features :]


def gram_divergence(vectors_BD: Tensor, similarities_BB: Tensor, tau: float) -> Tensor:
    """KL(softmax(G / tau) || softmax(z z^T / tau)), the mean over rows, without the diagonal."""
    own = torch.eye(len(vectors_BD), dtype=torch.bool, device=vectors_BD.device)
    wanted = (similarities_BB / tau).masked_fill(own, float("-inf")).log_softmax(1).masked_fill(own, 0)
    found = (vectors_BD @ vectors_BD.T / tau).masked_fill(own, float("-inf")).log_softmax(1).masked_fill(own, 0)
    return (wanted.exp().masked_fill(own, 0) * (wanted - found)).sum(1).mean()


def triplet_losses(vectors: Tensor, sizes: list[int], tau: float, margin: float) -> tuple[Tensor, Tensor, Tensor]:
    """Cross entropy, hinge, and the share of foils that are farther from the text than its paraphrase.

    Args:
        vectors: (texts, features), for each triplet its text, its paraphrase, and its foils.
        sizes: for each triplet the number of its texts.
    """
    owner = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    starts = torch.tensor([0, *sizes[:-1]]).cumsum(0)
    place = torch.arange(len(owner)) - starts[owner]
    owner, place = owner.to(vectors.device), place.to(vectors.device)
    anchors, candidates, owner, is_foil = (
        vectors[place == 0],
        vectors[place > 0],
        owner[place > 0],
        place[place > 0] > 1,
    )
    cosines = anchors @ candidates.T
    paraphrases = (~is_foil).nonzero()[:, 0]
    gaps = (
        cosines.gather(1, paraphrases[:, None])[owner[is_foil], 0] - cosines[owner[is_foil], is_foil.nonzero()[:, 0]]
    )
    entropy = F.cross_entropy(cosines / tau, paraphrases)
    return entropy, F.relu(margin - gaps).mean(), (gaps > 0).float().mean()


def endless(make_batches: Callable[[int], Iterator[Any]]) -> Iterator[Any]:
    """The batches of epoch 0, 1, 2, ..."""
    epoch = 0
    while True:
        yield from make_batches(epoch)
        epoch += 1


def sentence_batches(lengths: Sequence[int], recipe: Recipe) -> Iterator[list[int]]:
    """Batches of numbers of sentences of similar length."""
    sampler = LengthBucketBatchSampler(lengths, recipe.batch_size, seed=recipe.seed, drop_last=True)

    def batches(epoch: int) -> Iterator[list[int]]:
        sampler.set_epoch(epoch)
        return iter(sampler)

    return endless(batches)


def triplet_batches(count: int, recipe: Recipe) -> Iterator[np.ndarray]:
    """Batches of numbers of triplets in random order."""

    def batches(epoch: int) -> Iterator[np.ndarray]:
        order = np.random.default_rng((recipe.seed, epoch)).permutation(count)
        size = recipe.triplet_batch_size
        return iter(order[: count // size * size].reshape(-1, size))

    return endless(batches)


def train(
    encoder: Encoder,
    sentences: list[str],
    targets: Tensor,
    teachers: list[Tensor],
    triplets: list[list[str]],
    recipe: Recipe,
    report: Callable[[int, dict[str, float]], None],
) -> None:
    """Train a student.

    Args:
        encoder: the student.
        sentences: texts.
        targets: (sentences, features of a) what a should point to.
        teachers: of each teacher the unit vectors of the sentences; their similarities are averaged.
        triplets: text, paraphrase, foils of each.
        recipe: hyperparameters.
        report: called ten times, or after each of fewer steps, with the step and the mean of each term since the
            last call.
    """
    rows = encoder.rows(sentences)
    sizes = torch.tensor([len(texts) for texts in triplets], dtype=torch.long)
    firsts = sizes.cumsum(0) - sizes
    foils = encoder.rows([text for texts in triplets for text in texts]) if recipe.triplets else None
    numbered = sentence_batches(rows.lengths.tolist(), recipe)
    foil_batches = triplet_batches(len(triplets), recipe)
    model = encoder.model.train()
    device = model.device
    targets, teachers = targets.to(device), [teacher.to(device) for teacher in teachers]
    optimizer = torch.optim.AdamW(
        model.parameters(), recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True
    )
    schedule = get_linear_schedule_with_warmup(optimizer, recipe.steps // 20, recipe.steps)
    sums: dict[str, Tensor] = {}
    reported, begun = 0, time.perf_counter()
    for step in range(1, recipe.steps + 1):
        numbers = torch.as_tensor(next(numbered))
        batches = [rows.batch(numbers)]
        if recipe.triplets:
            chosen = torch.as_tensor(next(foil_batches))
            texts = torch.cat([torch.arange(firsts[i], firsts[i] + sizes[i]) for i in chosen])
            halves, places = by_length(foils.lengths[texts], -(-len(texts) // 2))
            batches += [foils.batch(texts[half]) for half in halves]
        with torch.autocast(device.type, torch.bfloat16, enabled=recipe.dtype == "bfloat16"):
            vectors, *others = encoder.vectors(*batches)
        numbers = numbers.to(device)
        like_teacher, order = split(vectors, recipe)
        terms = {"cosine": 1 - F.cosine_similarity(like_teacher, targets[numbers].float()).mean()}
        loss = terms["cosine"]
        if recipe.gram:
            similarities = sum(found @ found.T for found in (teacher[numbers].float() for teacher in teachers))
            terms["gram"] = gram_divergence(vectors, similarities / len(teachers), recipe.tau)
            loss = loss + recipe.gram * terms["gram"]
        if recipe.triplets:
            given, own = split(torch.cat(others)[places], recipe)
            found = torch.cat([given.detach(), own], 1)
            entropy, hinge, right = triplet_losses(found, sizes[chosen].tolist(), recipe.tau, recipe.margin)
            terms |= {"entropy": entropy, "hinge": hinge, "right": right}
            loss = loss + recipe.triplets * (entropy + 5 * hinge)
            order = torch.cat([order, own])
        terms["share"] = (order.square().sum(1) - recipe.share).square().mean()
        loss = loss + SHARE_WEIGHT * terms["share"]
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        for name, value in terms.items():
            sums[name] = sums.get(name, 0.0) + value.detach()
        if step * 10 // recipe.steps > (step - 1) * 10 // recipe.steps:
            means = {name: float(total) / (step - reported) for name, total in sums.items()}
            reported = step
            report(step, means | {"minutes": (time.perf_counter() - begun) / 60})
            sums.clear()
            model.train()
