"""The head that chooses the sentence of a passage that answers a question. Shape suffixes: see equations.py."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.utils import can_return_tuple

from .configuration_base import SentenceEncoderConfig
from .embeddings import prepare_inputs, split_pairs
from .equations import can_branch_on
from .heads import SentenceClassifierOutput, SentenceHeadMixin, class_ids, states_of
from .heads_families import FamilyHead
from .layers import Layer, Source2Token


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


def _of_sentences(labels: Tensor, logits: Tensor) -> Tensor:
    """The labels, (B,), if there are sentences at these places of ``logits`` (B, C); -100 means none.

    Raises:
        ValueError: one names a place without a sentence.
    """
    labels = class_ids(labels, logits.shape[1])
    if can_branch_on(labels) and labels.shape == logits.shape[:1] and not labels.is_floating_point():
        chosen = labels[:, None].long().clamp(min=0)
        empty = (logits.detach().gather(1, chosen) == torch.finfo(logits.dtype).min)[:, 0] & (labels >= 0)
        if empty.any():
            row = int(empty.nonzero()[0])
            raise ValueError(f"labels hold {labels[row].item()} in row {row}, where there is no sentence; correct it")
    return labels


class SentenceSelectionMixin(FamilyHead, SentenceHeadMixin):
    """Choose the sentence of a passage that answers a question (Bi-BloSAN section 4.2, Appendix B)."""

    suffix = "ForSentenceSelection"

    def make_classifier(self, config):
        passages = config.for_passages()
        passages.validate()
        return SentenceSelector(config, self.encoder_class.make_context(passages))

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        question_input_ids: Tensor | None = None,
        question_attention_mask: Tensor | None = None,
        passage_lengths: Tensor | None = None,
        question_passages: Tensor | None = None,
        **kwargs,
    ) -> SentenceClassifierOutput | tuple:
        """Logits (B, C) of up to C sentences for each of B questions, and the loss if ``labels`` (B,) are given.

        The inputs have the layout of transformers' multiple-choice models, (B, C, N) with a question (type 0) and a
        sentence (type 1) in each row; or a packed one, with the same logits, in which passages are of any length and
        questions may share one. Either way each sentence is encoded once. The logit of a position without a sentence
        is the lowest number of the dtype. ``output_attentions`` and ``output_hidden_states`` return those of the
        sentences.

        Args:
            input_ids, attention_mask, token_type_ids, inputs_embeds: (B, C, N); a row without tokens of type 1 is no
                sentence. Packed: (S, N), the sentences of one passage after the other, without token_type_ids.
            question_input_ids, question_attention_mask: (B, M), for packed inputs.
            passage_lengths: (P,) number of sentences of each passage, for packed inputs.
            question_passages: (B,) which passage each question is about; by default each is about the next.

        Raises:
            ValueError: inputs have other shapes, token_type_ids are missing, or the lengths do not add up.
        """
        if other := [name for name in ("token_mask", "predicate_mask") if kwargs.get(name) is not None]:
            raise ValueError(f"a model that selects sentences takes no {other[0]}; leave it out")
        given = input_ids, attention_mask, inputs_embeds
        if question_input_ids is None:
            questions, sentences, places, shape, passages = self._of_pairs(*given, token_type_ids)
        else:
            questions = question_input_ids, question_attention_mask, None
            questions, sentences = (prepare_inputs(*x, self.config.pad_token_id) for x in (questions, given))
            counts = len(sentences[0]), len(questions[0])
            places, shape, passages = places_of(*counts, passage_lengths, question_passages)
        (words, mask_BM), (inputs, mask_SN) = questions, sentences
        embeddings = self.model.embeddings
        if torch.is_grad_enabled() and inputs.dim() == 2 and embeddings.backbone is None:
            # One gradient of the size of the word table, not two.
            ids = torch.cat([words.flatten(), inputs.flatten()])
            parts = embeddings(ids[None])[0].split([words.numel(), inputs.numel()])
            words, inputs = parts[0].unflatten(0, words.shape), parts[1].unflatten(0, inputs.shape)
        options = {name: kwargs.get(name) for name in ("output_attentions", "output_hidden_states")}
        name = "input_ids" if inputs.dim() == 2 else "inputs_embeds"
        encoded = self.model(**{name: inputs}, attention_mask=mask_SN, return_dict=True, **options)
        size, vectors_SH = shape[0] * shape[1], encoded.pooler_output.to(self.dtype)  # as in the other heads
        grids = (x.new_zeros(size, *x.shape[1:]).index_copy(0, places, x) for x in (vectors_SH, mask_SN.any(1)))
        words_BME = embeddings.join_predicates(embeddings(words, mask_BM), None).to(vectors_SH.dtype)
        logits = self.classifier(words_BME, mask_BM, *(x.unflatten(0, shape) for x in grids), passages)
        loss = None if labels is None else F.cross_entropy(logits.float(), _of_sentences(labels, logits))
        return SentenceClassifierOutput(loss, logits, **states_of(encoded))

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
        if can_branch_on(mask) and mask.any():
            places = mask.any(1).nonzero()[:, 0]
        return (questions[asked], question_mask[asked]), (sentences[places], mask[places]), places, shape, passages


def places_of(num_sentences: int, num_questions: int, passage_lengths: Tensor | None, passages_B: Tensor | None):
    """Places of packed sentences in the grid (P C), its shape (P, C), and the passage of each question."""
    if passage_lengths is None or can_branch_on(passage_lengths) and int(passage_lengths.sum()) != num_sentences:
        found = "missing" if passage_lengths is None else f"{passage_lengths.tolist()}, of {num_sentences} sentences"
        raise ValueError(f"passage_lengths are {found}; give the number of sentences of each passage")
    sizes, device = (len(passage_lengths), num_sentences), passage_lengths.device
    passages_P, sentences_S = (torch.arange(size, device=device) for size in sizes)
    passages_B = passages_P if passages_B is None else passages_B
    if len(passages_B) != num_questions:
        found = f"{num_questions} questions, of which {len(passages_B)} have a passage"
        raise ValueError(f"{found}; give question_passages for all")
    if can_branch_on(passages_B) and bool(((passages_B < 0) | (passages_B >= len(passages_P))).any()):
        raise ValueError(f"question_passages are {passages_B.tolist()}; number the {len(passages_P)} passages from 0")
    shape = len(passages_P), int(passage_lengths.max())
    passages_S = passages_P.repeat_interleave(passage_lengths, output_size=num_sentences)
    first_P = passage_lengths.cumsum(0) - passage_lengths
    return passages_S * shape[1] + sentences_S - first_P[passages_S], shape, passages_B


__getattr__ = SentenceSelectionMixin.of_family
