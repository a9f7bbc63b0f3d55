"""The head that labels tokens."""

import copy
from dataclasses import dataclass

from torch import Tensor, nn
from transformers.modeling_outputs import TokenClassifierOutput
from transformers.utils import can_return_tuple

from .attention import dropout
from .configuration_base import SentenceEncoderConfig
from .heads import class_ids
from .heads_families import FamilyHead


@dataclass
class TokenTaggerOutput(TokenClassifierOutput):
    """transformers' ``TokenClassifierOutput``, ``logits`` (B, N, num_labels), with the encoder's gates."""

    gates: tuple[Tensor, ...] | None = None


class TokenClassificationMixin(FamilyHead):
    """A label for every token, by a linear layer on tokens in context; the encoder has no pooler."""

    suffix = "ForTokenClassification"

    def __init__(self, config: SentenceEncoderConfig):
        if config.num_sentences != 1:
            raise ValueError(f"num_sentences={config.num_sentences}: tagging takes one sentence a row; set it to 1")
        config = copy.deepcopy(config)
        config.pooling = "none"
        super().__init__(config)
        self.model = self.encoder_class(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.loss_type = "ForTokenClassification"
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        token_mask: Tensor | None = None,
        predicate_mask: Tensor | None = None,
        **kwargs,
    ) -> TokenTaggerOutput | tuple:
        """Logits (B, N, num_labels), and the mean loss over labelled tokens if ``labels`` are given. Other arguments
        are those of the encoder.

        Args:
            labels: (B, N) label ids; -100 at tokens without one, such as special tokens and padding.
        """
        sentences = {"input_ids": input_ids, "attention_mask": attention_mask, "inputs_embeds": inputs_embeds}
        masks = {"token_mask": token_mask, "predicate_mask": predicate_mask}
        options = {"output_attentions": output_attentions, "output_hidden_states": output_hidden_states}
        encoded = self.model(**sentences, **masks, **options, return_dict=True)
        given = input_ids if inputs_embeds is None else inputs_embeds
        states_BNH = encoded.last_hidden_state.to(self.dtype)  # those of a word bag have the dtype of the table
        tokens_BNH = states_BNH[:, : given.shape[1]]  # empty rows have become one padded position
        logits_BNL = self.classifier(dropout(tokens_BNH, self.config.dropout, self.training))
        loss = None
        if labels is not None:
            labels = class_ids(labels, self.config.num_labels)
            loss = self.loss_function(logits=logits_BNL, labels=labels, config=self.config)
        return TokenTaggerOutput(loss, logits_BNL, encoded.hidden_states, encoded.attentions, encoded.gates)


__getattr__ = TokenClassificationMixin.of_family
