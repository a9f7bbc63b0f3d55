"""Sequence to sequence: an encoder of this package and a decoder of transformers that attends to its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import (
    EncoderDecoderConfig,
    EncoderDecoderModel,
    MarianConfig,
    PreTrainedTokenizerBase,
    StoppingCriteria,
)

from ..errors import InputError
from ..models.configuration_base import SentenceEncoderConfig
from ..text.tokenization import check_vocabulary, decoder_positions

if TYPE_CHECKING:
    from torch import Tensor


def make_encoder_decoder(
    encoder: SentenceEncoderConfig,
    tokenizer: PreTrainedTokenizerBase,
    *,
    decoder_fields: dict[str, Any] | None = None,
    **fields: Any,
) -> EncoderDecoderModel:
    """A new ``EncoderDecoderModel`` with random weights: that encoder, and Marian's decoder with cross attention.

    The decoder is the Transformer's (Vaswani et al. 2017), as wide and as deep as the encoder, with one table for its
    input and output words. ``generate`` searches with 4 beams. ``import hf_blosan`` before loading a saved model.

    Args:
        encoder: configuration of the encoder; it gets ``pooling="none"``.
        tokenizer: of both languages, such as that of ``build_subword_tokenizer``, with [BOS], [EOS] and [PAD].
        decoder_fields: fields of ``MarianConfig``, in place of those that follow from the encoder. Default: heads of
            32 features or more, a feed-forward part twice as wide as a token.
        **fields: further fields of the model's configuration.

    Raises:
        InputError: the encoder has a backbone or takes predicates; or the tokenizer lacks a special token, or has ids
            beyond ``encoder.vocab_size``.
    """
    if encoder.backbone_config is not None:
        raise InputError("the encoder of an encoder-decoder has words of its own, not a backbone; leave it out")
    if encoder.predicate_size:
        raise InputError(f"predicate_size={encoder.predicate_size}: translation has no predicates; set it to 0")
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos")}
    if missing := [name.removesuffix("_token_id") for name, value in ids.items() if value is None]:
        raise InputError(
            f"the tokenizer has no {missing[0]}_token, which an encoder-decoder needs; set it, or build a tokenizer "
            "by build_subword_tokenizer"
        )
    check_vocabulary(tokenizer, encoder.vocab_size, tokenizer.name_or_path or type(tokenizer).__name__)
    size, length = encoder.hidden_size, decoder_positions(tokenizer)
    encoder = type(encoder).from_dict(encoder.to_dict() | {"pooling": "none"})
    follows = {
        "vocab_size": encoder.vocab_size,
        "d_model": size,
        "decoder_layers": encoder.num_hidden_layers,
        "decoder_attention_heads": max(heads for heads in range(1, max(size // 32, 1) + 1) if size % heads == 0),
        "decoder_ffn_dim": 2 * size,
        "activation_function": "relu",
        "dropout": encoder.dropout,
        "init_std": size**-0.5,
        "scale_embedding": True,
        "max_position_embeddings": length,
        "forced_eos_token_id": None,
    }
    start = {"decoder_start_token_id": ids["bos_token_id"]}
    decoder = MarianConfig(**(follows | ids | start | (decoder_fields or {})))
    common = {"vocab_size": encoder.vocab_size} | ids | start | fields
    model = EncoderDecoderModel(EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder, **common))
    model.generation_config.update(num_beams=4, max_length=length)
    return model


def translate(model: EncoderDecoderModel, batch: dict[str, Tensor], **search: Any) -> Tensor:
    """Token ids of the translations of a batch, (B, N), with [EOS], then padding.

    A translation has at most 10 tokens more than twice those of its sentence, whatever else is in the batch.

    Args:
        model: an encoder-decoder.
        batch: `input_ids` and `attention_mask`, (B, N).
        **search: options of ``generate``, in place of the model's own: ``num_beams=1`` is greedy search.
    """
    limits_B = 2 * batch["attention_mask"].sum(1) + 10
    limit = int(limits_B.max())
    limit = min(model.generation_config.max_length or limit, limit)
    return model.generate(**batch, max_length=limit, stopping_criteria=[RowLimits(limits_B)], **search)[:, 1:]


class RowLimits(StoppingCriteria):
    """Ends the translations of each row at a length of its own.

    Args:
        limits_B: tokens, [BOS] included.
    """

    def __init__(self, limits_B: Tensor):
        self.limits_B = limits_B

    def __call__(self, input_ids: Tensor, scores: Any, **options: Any) -> Tensor:
        """Whether each sequence ends; those of a row, of which beam search has several, follow each other."""
        limits = self.limits_B.repeat_interleave(len(input_ids) // len(self.limits_B))
        return input_ids.shape[1] >= limits
