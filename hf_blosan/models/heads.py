"""Heads on a sentence encoder, written once for every model: classification, pair regression, sentence selection."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.utils import ModelOutput

from .configuration_base import SentenceEncoderConfig
from .encoder import prepare_inputs, split_pairs
from .equations import spread_scores
from .layers import ACTIVATIONS, Highway, Layer, Source2Token
from .masks import can_look_at


@dataclass
class SentenceClassifierOutput(ModelOutput):
    """Output of a head: ``logits`` (B, num_labels), and the encoder's states, maps and gates if requested.

    For pairs, rows 0..B-1 of the encoder's tensors are the first sentences and rows B..2B-1 the second.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    gates: tuple[Tensor, ...] | None = None
    pooler_attentions: Tensor | None = None


class SentenceClassifier(Layer):
    """(B, in) -> (B, num_labels): dense layer with activation, optional highway layer, linear layer."""

    def __init__(self, config: SentenceEncoderConfig):
        options = {"activation": config.activation, "dropout": config.dropout}
        super().__init__(**options)
        # A pair is compared by [u; v; u - v; u * v].
        in_features, size = config.hidden_size * (4 if config.num_sentences == 2 else 1), config.classifier_size
        self.hidden = nn.Linear(in_features, size)
        self.highway = Highway(size, **options) if config.classifier_highway else None
        self.output = nn.Linear(size, config.num_labels, bias=config.classifier_bias)

    def forward(self, sentences: list[Tensor]) -> Tensor:
        if len(sentences) == 2:
            u_BH, v_BH = sentences
            features = torch.cat([u_BH, v_BH, u_BH - v_BH, u_BH * v_BH], dim=-1)
        else:
            (features,) = sentences
        hidden = self.dense(self.hidden, features)
        return self.linear(self.output, hidden if self.highway is None else self.highway(hidden))


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


class SentenceHeadMixin:
    """Encode one sentence or one pair per row, and apply ``self.classifier``.

    A model names its ``encoder_class``; a kind of head names its ``classifier_class`` and implements
    ``compute_loss_and_logits``.
    """

    encoder_class: type
    classifier_class: type

    def __init__(self, config: SentenceEncoderConfig):
        super().__init__(config)
        self.model = self.encoder_class(config)
        self.classifier = self.make_classifier(config)
        self.post_init()

    def make_classifier(self, config: SentenceEncoderConfig) -> nn.Module:
        return self.classifier_class(config)

    def compute_loss_and_logits(self, sentences: list[Tensor], labels: Tensor | None) -> tuple[Tensor | None, Tensor]:
        """Loss (``None`` without labels) and logits (B, num_labels) of one or two sentence vectors (B, H) per row."""
        raise NotImplementedError(f"{type(self).__name__} must implement compute_loss_and_logits(sentences, labels)")

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        token_mask: Tensor | None = None,
        **kwargs,
    ) -> SentenceClassifierOutput | tuple:
        """Logits (B, num_labels), and the loss if ``labels`` are given.

        Args:
            input_ids, attention_mask, inputs_embeds: as in the encoder's forward.
            token_type_ids: (B, N), 0 and 1 for the two sentences of a pair; required if ``config.num_sentences`` is 2.
            labels: (B,) class ids; scores if ``config.problem_type`` is regression.
            output_attentions, output_hidden_states, return_dict: as in the encoder's forward.
            token_mask: as in the encoder's forward. For pairs, N counts both sentences, as in ``input_ids``; entries
                between tokens of different sentences are ignored.

        Raises:
            ValueError: the model compares pairs and token_type_ids are missing or mark none, or they mark pairs and it
                takes one sentence a row.
        """
        options = {"output_attentions": output_attentions, "output_hidden_states": output_hidden_states}
        inputs = (input_ids, attention_mask, token_type_ids, inputs_embeds, token_mask)
        sentences, encoded = self._encode(*inputs, **options)
        loss, logits = self.compute_loss_and_logits(sentences, labels)
        return self._output(loss, logits, encoded, return_dict)

    def _output(self, loss, logits, encoded, return_dict) -> SentenceClassifierOutput | tuple:
        states = encoded.hidden_states, encoded.attentions, encoded.gates, encoded.pooler_attentions
        output = SentenceClassifierOutput(loss, logits, *states)
        return output if (self.config.return_dict if return_dict is None else return_dict) else output.to_tuple()

    def _encode(self, input_ids, attention_mask, token_type_ids, inputs_embeds, token_mask, **options):
        """The sentence vectors, (B, H) each, and the encoder's output."""
        options["return_dict"] = True
        marked = token_type_ids is not None and can_look_at(token_type_ids) and bool(token_type_ids.any())
        if self.config.num_sentences == 1:
            if marked:
                raise ValueError(
                    "this model takes one sentence a row, but token_type_ids mark a second one; put each sentence in "
                    "a row of its own, or use a model with num_sentences=2"
                )
            sentences = {"input_ids": input_ids, "attention_mask": attention_mask, "inputs_embeds": inputs_embeds}
            encoded = self.model(**sentences, token_mask=token_mask, **options)
            return [encoded.pooler_output], encoded
        inputs, mask_BN = prepare_inputs(input_ids, attention_mask, inputs_embeds, self.config.pad_token_id)
        if token_type_ids is not None and can_look_at(mask_BN) and bool(mask_BN.any()) and not marked:
            raise ValueError(
                "this model compares two sentences, but no row has a second one: token_type_ids are 0 throughout; "
                "tokenize pairs as tokenizer(first, second)"
            )
        B = inputs.shape[0]
        inputs, mask, token_mask = split_pairs(inputs, mask_BN, token_type_ids, token_mask)
        name = "input_ids" if inputs_embeds is None else "inputs_embeds"
        encoded = self.model(**{name: inputs}, attention_mask=mask, token_mask=token_mask, **options)
        return list(encoded.pooler_output.unflatten(0, (2, B))), encoded


class SequenceClassificationMixin(SentenceHeadMixin):
    """Classify one sentence or a pair: [u; v; u - v; u * v] (DiSAN section 4.1)."""

    classifier_class = SentenceClassifier

    def __init__(self, config: SentenceEncoderConfig):
        super().__init__(config)
        self.loss_type = "ForSequenceClassification"

    def compute_loss_and_logits(self, sentences, labels):
        logits = self.classifier(sentences)
        if labels is None:
            return None, logits
        return self.loss_function(labels=labels, pooled_logits=logits.float(), config=self.config), logits


class PairRegressionMixin(SentenceHeadMixin):
    """Score a pair, as for SICK relatedness: softmax over score classes, KL loss, expected score (Tai et al. 2015).

    Other tools see a regression model with one label; ``logits`` (B, 1) are the predicted scores, between
    ``score_min`` and ``score_max``.
    """

    classifier_class = PairScorer

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
        target_BK = spread_scores(labels_B, num_classes=num_classes, **scale)
        return kl_divergence(target_BK, predicted_BK), scores_B1


def kl_divergence(target_BK: Tensor, predicted_BK: Tensor) -> Tensor:
    """Mean over rows of sum_k t log(t / p), both clipped to [1e-10, 1] as in the authors' code."""
    target_BK, predicted_BK = target_BK.clamp(1e-10, 1.0), predicted_BK.clamp(1e-10, 1.0)
    return (target_BK * (target_BK / predicted_BK).log()).sum(-1).mean()


class SentenceSelector(Layer):
    """A score for each sentence of a passage as the answer to a question (Bi-BloSAN section 4.2).

    The question's vector q is source2token over its words, then a dense layer; the sentences' vectors go through one
    too. ``context`` fuses [s; q; s - q; s * q] over the sentences of the passage.
    """

    def __init__(self, config: SentenceEncoderConfig, context: nn.Module):
        options = {"activation": config.activation, "dropout": config.dropout}
        super().__init__(**options)
        size = config.classifier_size
        self.question_pooler = Source2Token(config.embedding_size, **options)
        self.question_map = nn.Linear(config.embedding_size, size)
        self.sentence_map = nn.Linear(config.hidden_size, size)
        self.context = context
        self.hidden = nn.Linear(config.hidden_size, size)
        self.output = nn.Linear(size, 1)

    def forward(self, words_BME, mask_BM, sentences_PCH, real_PC, passages_B) -> Tensor:
        """Scores (B, C) from B questions' words, P passages' sentences and which are real, each question's passage."""
        question_BE, _ = self.question_pooler(words_BME, mask_BM)
        q_B1D = self.dense(self.question_map, question_BE)[:, None]
        s_BCD = self.dense(self.sentence_map, sentences_PCH)[passages_B]
        real_BC = real_PC[passages_B]
        pairs = torch.cat([s_BCD, q_B1D.expand_as(s_BCD), s_BCD - q_B1D, s_BCD * q_B1D], dim=-1)
        fused_BCH, _ = self.context(pairs, real_BC)
        scores_BC = self.linear(self.output, self.dense(self.hidden, fused_BCH))[..., 0]
        return scores_BC.masked_fill(~real_BC, torch.finfo(scores_BC.dtype).min)


class SentenceSelectionMixin(SentenceHeadMixin):
    """Choose the sentence of a passage that answers a question (Bi-BloSAN section 4.2, Appendix B)."""

    def make_classifier(self, config):
        passages = config.for_passages()
        passages.validate()
        return SentenceSelector(config, self.encoder_class.make_context(passages))

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        question_input_ids: Tensor | None = None,
        question_attention_mask: Tensor | None = None,
        passage_lengths: Tensor | None = None,
        question_passages: Tensor | None = None,
        **kwargs,
    ) -> SentenceClassifierOutput | tuple:
        """Logits (B, C) of up to C sentences for each of B questions, and the loss if ``labels`` (B,) are given.

        The inputs have the layout of transformers' models of multiple choice, (B, C, N) with a question (type 0) and a
        sentence (type 1) in each row; or a packed one, of the same logits, in which passages are of any length and
        questions may share one. Either way each sentence is encoded once. The logit of what is no sentence is the
        lowest number of the dtype. ``output_attentions`` and ``output_hidden_states`` return those of the sentences.

        Args:
            input_ids, attention_mask, token_type_ids, inputs_embeds: (B, C, N); a row without tokens of type 1 is no
                sentence. Packed: (S, N), the sentences of one passage after the other, without token_type_ids.
            question_input_ids, question_attention_mask: (B, M), for packed inputs.
            passage_lengths: (P,) number of sentences of each passage, for packed inputs.
            question_passages: (B,) which passage each question is about; by default each about the next.

        Raises:
            ValueError: inputs have other shapes, token_type_ids are missing, or the lengths do not add up.
        """
        given = input_ids, attention_mask, inputs_embeds
        if question_input_ids is None:
            questions, sentences, places, shape, passages = self._of_pairs(*given, token_type_ids)
        else:
            questions = question_input_ids, question_attention_mask, None
            questions, sentences = (prepare_inputs(*x, self.config.pad_token_id) for x in (questions, given))
            counts = len(sentences[0]), len(questions[0])
            places, shape, passages = places_of(*counts, passage_lengths, question_passages)
        (words, mask_BM), (inputs, mask_SN) = questions, sentences
        if torch.is_grad_enabled() and inputs.dim() == 2:  # one gradient of the size of the word table, not two
            ids = torch.cat([words.flatten(), inputs.flatten()])
            parts = self.model.embeddings(ids[None])[0].split([words.numel(), inputs.numel()])
            words, inputs = parts[0].unflatten(0, words.shape), parts[1].unflatten(0, inputs.shape)
        options = {name: kwargs.get(name) for name in ("output_attentions", "output_hidden_states")}
        name = "input_ids" if inputs.dim() == 2 else "inputs_embeds"
        encoded = self.model(**{name: inputs}, attention_mask=mask_SN, return_dict=True, **options)
        size, vectors_SH = shape[0] * shape[1], encoded.pooler_output
        grids = (x.new_zeros(size, *x.shape[1:]).index_copy(0, places, x) for x in (vectors_SH, mask_SN.any(1)))
        words_BME = self.model.embeddings(words) if words.dim() == 2 else words
        logits = self.classifier(
            words_BME.to(vectors_SH.dtype), mask_BM, *(x.unflatten(0, shape) for x in grids), passages
        )
        loss = None if labels is None else F.cross_entropy(logits.float(), labels)
        return self._output(loss, logits, encoded, return_dict)

    def _of_pairs(self, input_ids, attention_mask, inputs_embeds, token_type_ids):
        """Questions, sentences (each with a mask), places, shape and passages from rows of both, (B, C, N)."""
        given = input_ids if inputs_embeds is None else inputs_embeds
        if given is None or given.dim() != (3 if inputs_embeds is None else 4):
            raise ValueError(
                "give input_ids (B, C, N), a question and a sentence in each row, or packed ones with "
                f"question_input_ids; they are {None if given is None else f'of shape {tuple(given.shape)}'}"
            )
        B, C = shape = given.shape[:2]
        tensors = (input_ids, attention_mask, inputs_embeds, token_type_ids)
        *flat, types = (None if x is None else x.flatten(0, 1) for x in tensors)
        inputs, mask, _ = split_pairs(*prepare_inputs(*flat, self.config.pad_token_id), types)
        (questions, sentences), (question_mask, mask) = (x.unflatten(0, (2, B * C)) for x in (inputs, mask))
        passages, places = (torch.arange(size, device=mask.device) for size in (B, B * C))
        # Every row repeats the question, except rows that only fill up.
        asked = passages * C + question_mask.sum(1).unflatten(0, shape).argmax(1)
        if can_look_at(mask) and mask.any():
            places = mask.any(1).nonzero()[:, 0]
        return (questions[asked], question_mask[asked]), (sentences[places], mask[places]), places, shape, passages


def places_of(num_sentences: int, num_questions: int, passage_lengths: Tensor | None, passages_B: Tensor | None):
    """Places of packed sentences in the grid (P C), its shape (P, C), and the passage of each question."""
    if passage_lengths is None or can_look_at(passage_lengths) and int(passage_lengths.sum()) != num_sentences:
        found = "missing" if passage_lengths is None else f"{passage_lengths.tolist()}, of {num_sentences} sentences"
        raise ValueError(f"passage_lengths are {found}; give the number of sentences of each passage")
    sizes, device = (len(passage_lengths), num_sentences), passage_lengths.device
    passages_P, sentences_S = (torch.arange(size, device=device) for size in sizes)
    passages_B = passages_P if passages_B is None else passages_B
    if len(passages_B) != num_questions:
        found = f"{num_questions} questions, of which {len(passages_B)} have a passage"
        raise ValueError(f"{found}; give question_passages for all")
    shape = len(passages_P), int(passage_lengths.max())
    passages_S = passages_P.repeat_interleave(passage_lengths, output_size=num_sentences)
    first_P = passage_lengths.cumsum(0) - passage_lengths
    return passages_S * shape[1] + sentences_S - first_P[passages_S], shape, passages_B
