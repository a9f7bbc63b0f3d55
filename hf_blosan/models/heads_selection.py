"""The head that chooses the sentence of a passage that answers a question. Shape suffixes: see equations.py."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .configuration_base import SentenceEncoderConfig
from .encoder import prepare_inputs, split_pairs
from .heads import SentenceClassifierOutput, SentenceHeadMixin
from .layers import Layer, Source2Token
from .masks import can_look_at


class SentenceSelector(Layer):
    """A score for each sentence of a passage as the answer to a question (Bi-BloSAN section 4.2), (B, C).

    With the question's vector q (source2token over its word vectors, then a dense layer) and a dense layer on every
    sentence vector, each sentence is [s; q; s - q; s * q]; ``context`` fuses these over the passage.
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

    def forward(
        self, words_QME: Tensor, mask_QM: Tensor, sentences_PCH: Tensor, real_PC: Tensor, passages_Q: Tensor
    ) -> Tensor:
        """Words of Q questions, sentences of P passages and where there are any, each question's passage -> (Q, C)."""
        question_QE, _ = self.question_pooler(words_QME, mask_QM)
        q_Q1D = self.dense(self.question_map, question_QE)[:, None]
        s_QCD = self.dense(self.sentence_map, sentences_PCH).index_select(0, passages_Q)
        real_QC = real_PC.index_select(0, passages_Q)
        pairs_QCI = torch.cat([s_QCD, q_Q1D.expand_as(s_QCD), s_QCD - q_Q1D, s_QCD * q_Q1D], dim=-1)
        fused_QCH, _ = self.context(pairs_QCI, real_QC)
        scores_QC = self.linear(self.output, self.dense(self.hidden, fused_QCH))[..., 0]
        return scores_QC.masked_fill(~real_QC, torch.finfo(scores_QC.dtype).min)


class Passages(NamedTuple):
    """Questions (Q, M) and the sentences (S, N) of P passages of up to C sentences, each with a mask.

    Sentence i has place ``places[i]`` in the grid (P C); question i asks about passage ``passages[i]``.
    """

    questions: Tensor
    question_mask: Tensor
    sentences: Tensor
    mask: Tensor
    places: Tensor
    shape: tuple[int, int]
    passages: Tensor


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
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        question_input_ids: Tensor | None = None,
        question_attention_mask: Tensor | None = None,
        passage_lengths: Tensor | None = None,
        question_passages: Tensor | None = None,
        **kwargs,
    ) -> SentenceClassifierOutput | tuple:
        """Logits (B, C) of B questions about passages of up to C sentences, and the loss if ``labels`` are given.

        Two layouts of the inputs give the same logits. In that of transformers' models of multiple choice, (B, C, N),
        a row holds a question (type 0) and one sentence (type 1). In the packed one, each sentence is there once, in
        passages of any length, and questions may share a passage. Every sentence is encoded once; a question's score
        is the lowest number of the dtype where there is no sentence.

        Args:
            input_ids, attention_mask, token_type_ids, inputs_embeds: (B, C, N); a row without tokens of type 1 is no
                sentence. Packed: (S, N), the sentences of one passage after the other; no token_type_ids.
            labels: (B,) which sentence is the answer, from 0.
            output_attentions, output_hidden_states, return_dict: as in the encoder's forward, for the sentences.
            question_input_ids, question_attention_mask: (B, M); their presence says that the inputs are packed.
            passage_lengths: (P,) sentences of each passage.
            question_passages: (B,) which passage each question is about; by default each about one, in their order.

        Raises:
            ValueError: inputs have other shapes, token_type_ids are missing, or the lengths do not add up.
        """
        if question_input_ids is None:
            passages = self._unpaired(input_ids, attention_mask, token_type_ids, inputs_embeds)
        else:
            sentences = prepare_inputs(input_ids, attention_mask, inputs_embeds, self.config.pad_token_id)
            questions = prepare_inputs(question_input_ids, question_attention_mask, None, self.config.pad_token_id)
            passages = packed_passages(*questions, *sentences, passage_lengths, question_passages)
        questions, question_mask, sentences, mask, places, shape, passages_Q = passages
        options = {"output_attentions": output_attentions, "output_hidden_states": output_hidden_states}
        name = "input_ids" if sentences.dim() == 2 else "inputs_embeds"
        encoded = self.model(**{name: sentences}, attention_mask=mask, return_dict=True, **options)
        vectors_SH, size = encoded.pooler_output, shape[0] * shape[1]
        grid_PCH = vectors_SH.new_zeros(size, vectors_SH.shape[1]).index_copy(0, places, vectors_SH)
        real_PC = torch.zeros(size, dtype=torch.bool, device=mask.device).index_copy(0, places, mask.any(1))
        words = {"input_ids" if questions.dim() == 2 else "inputs_embeds": questions}
        words_QME = self.model.embeddings.join_predicates(self.model.embeddings(mask_BN=question_mask, **words), None)
        grids = (x.unflatten(0, shape) for x in (grid_PCH, real_PC))
        logits = self.classifier(words_QME.to(grid_PCH.dtype), question_mask, *grids, passages_Q)
        loss = None if labels is None else F.cross_entropy(logits.float(), labels)
        states = encoded.hidden_states, encoded.attentions, encoded.gates, encoded.pooler_attentions
        output = SentenceClassifierOutput(loss, logits, *states)
        return output if (self.config.return_dict if return_dict is None else return_dict) else output.to_tuple()

    def _unpaired(self, input_ids, attention_mask, token_type_ids, inputs_embeds) -> Passages:
        """Rows of a question and a sentence, (B, C, N)."""
        given = input_ids if inputs_embeds is None else inputs_embeds
        if given is None or given.dim() != (3 if inputs_embeds is None else 4):
            found = "none" if given is None else f"of shape {tuple(given.shape)}"
            raise ValueError(
                "give input_ids (B, C, N), a question and a sentence in each row, or packed sentences (S, N) with "
                f"question_input_ids and passage_lengths; these are {found}"
            )
        B, C = shape = given.shape[:2]
        flat = (None if x is None else x.flatten(0, 1) for x in (input_ids, attention_mask, inputs_embeds))
        inputs, mask = prepare_inputs(*flat, self.config.pad_token_id)
        types = None if token_type_ids is None else token_type_ids.flatten(0, 1)
        inputs, mask, _ = split_pairs(inputs, mask, types)
        (questions, sentences), (question_mask, mask) = (x.unflatten(0, (2, B * C)) for x in (inputs, mask))
        passages = torch.arange(B, device=mask.device)
        # Every row repeats the question, except rows that only fill up.
        asked = passages * C + question_mask.sum(1).unflatten(0, shape).argmax(1)
        places, real = torch.arange(B * C, device=mask.device), mask.any(1)
        if can_look_at(real) and real.any():
            places = real.nonzero()[:, 0]
        return Passages(
            questions[asked], question_mask[asked], sentences[places], mask[places], places, shape, passages
        )


def packed_passages(questions, question_mask, sentences, mask, passage_lengths, question_passages) -> Passages:
    """The places of packed sentences; raises ValueError if there are other numbers of them."""
    if passage_lengths is None or can_look_at(mask) and int(passage_lengths.sum()) != len(mask):
        found = "missing" if passage_lengths is None else f"{passage_lengths.tolist()}, of {len(mask)} sentences"
        raise ValueError(f"passage_lengths are {found}; give the number of sentences of each passage")
    passages = torch.arange(len(passage_lengths), device=mask.device)
    if len(questions) != len(passages if question_passages is None else question_passages):
        raise ValueError(
            f"{len(questions)} questions about {len(passages)} passages; say in question_passages which each is about"
        )
    shape, first = (len(passages), int(passage_lengths.max())), passage_lengths.cumsum(0) - passage_lengths
    passage_S = passages.repeat_interleave(passage_lengths, output_size=len(mask))
    places = passage_S * shape[1] + torch.arange(len(mask), device=mask.device) - first[passage_S]
    return Passages(
        questions,
        question_mask,
        sentences,
        mask,
        places,
        shape,
        passages if question_passages is None else question_passages,
    )
