"""What all encoders share: embed -> fuse context -> pool. Only ``context`` differs from model to model."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import ModelOutput

from .configuration_base import SentenceEncoderConfig
from .embeddings import InputEmbeddings, fill_empty, prepare_inputs
from .layers import POOLERS, AttentionMaps, Layer, Pooler, dropout, spread, with_maps
from .masks import (
    can_look_at,
    check_shapes,
    cumulative_lengths,
    full_token_mask,
    pack,
    real_tokens_first,
    reorder,
    unpack,
    zero_padding,
)
from .pretrained import SentenceEncoderPreTrainedModel

# Share of real tokens in a batch up to which it is encoded without its padding.
LARGEST_SHARE_OF_TOKENS = 0.9


@dataclass
class SentenceEncoderOutput(ModelOutput):
    """Output of an encoder.

    Args:
        last_hidden_state: tokens in context, (B, N, hidden_size); values at padded positions are not meaningful.
        pooler_output: sentence vectors, (B, hidden_size); ``None`` without a pooler.
        hidden_states: what enters the first layer, word vectors (B, N, embedding_size) and predicate embeddings, and
            the tokens after each layer.
        attentions: attention weights of each layer, level by level; shapes as documented in the layers, with the
            directions stacked in dimension 1 for DiSAN and Bi-BloSAN. The result is computed from them, dropout
            included, so that gradients with respect to them exist; so it is from gates and pooler_attentions.
        gates: gate values, in the same form.
        pooler_attentions: weights of the tokens in the vector, (B, N, hidden_size); additive pooling: (B, N, 1).
    """

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    gates: tuple[Tensor, ...] | None = None
    pooler_attentions: Tensor | None = None


class ContextFusion(Layer):
    """The part between embeddings and pooler: ``context(hidden_BNE, mask_BN) -> (tokens_BNH, maps or None)``.

    Can be used independently, as a context layer in other networks. Each layer is called as
    ``layer(hidden_BNE, mask_BN, output_attentions)`` and returns a pair like this module's; a caller's token mask is
    the fourth argument of layers with ``takes_token_mask``. Layers with ``takes_cu_seqlens`` work without padding.
    ``input_layer`` is a linear map before all layers.
    """

    def __init__(self, layers: list[nn.Module], input_layer: nn.Module | None = None, *, dropout: float = 0.0):
        super().__init__(dropout=dropout)
        self.input_layer = input_layer
        self.layers = nn.ModuleList(layers)

    def forward(
        self,
        hidden_BNE: Tensor,
        mask_BN: Tensor | None = None,
        output_attentions: bool = False,
        hidden_states: list[Tensor] | None = None,
        token_mask: Tensor | None = None,
        places_BN: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
    ) -> tuple[Tensor, AttentionMaps | None]:
        """Fuse context into tokens.

        Args:
            hidden_BNE: token vectors, (B, N, embedding_size).
            mask_BN: (B, N), true at real tokens; by default all are real.
            output_attentions: return attention weights and gates as well.
            hidden_states: a list to which the output of every layer is appended.
            token_mask: (N, N) or (B, N, N), true where a token (row) may see another (column), in addition to the
                model's own masks; ``hf_blosan.functional.mask_from_heads`` makes one.
            places_BN: which of V distinct words, (1, V, embedding_size) in hidden_BNE, each token is; without maps.
            cu_seqlens: where S sentences start in a single row, (S + 1,), as in ``directional_attention``; only if
                ``takes_cu_seqlens``, without maps.

        Raises:
            ValueError: rows have no positions, a mask has another shape, or a token mask or ``cu_seqlens`` is given
                for layers that do not take it.
        """
        B, N = (hidden_BNE if places_BN is None else places_BN).shape[:2]
        if mask_BN is None:
            mask_BN = torch.ones((B, N), dtype=torch.bool, device=hidden_BNE.device)
        mask_BN = mask_BN.bool()
        check_shapes(B, N, mask_BN)
        if not N:
            raise ValueError(
                "hidden_BNE has rows without tokens; give every row at least one position, padding if necessary"
            )
        # Among distinct words, padding is one more, of zeros.
        words = {} if places_BN is None else {"places_BN": torch.where(mask_BN, places_BN, hidden_BNE.shape[1])}
        hidden_BNE = nn.functional.pad(hidden_BNE, (0, 0, 0, 1)) if words else zero_padding(hidden_BNE, mask_BN)
        sentences = {} if cu_seqlens is None else {"cu_seqlens": cu_seqlens}
        if sentences and (output_attentions or not self.takes_cu_seqlens):
            raise ValueError("cu_seqlens: only a DiSAN without windows or maps takes them; give each sentence a row")
        options = [mask_BN, output_attentions]
        if token_mask is not None:
            options.append(self.checked_token_mask(token_mask, mask_BN))
        if self.input_layer is not None:
            hidden_BNE = self.linear(self.input_layer, hidden_BNE)
        attentions, gates = (), ()
        for layer in self.layers:
            hidden_BNE, maps = layer(hidden_BNE, *options, **words, **sentences)
            words = {}
            if hidden_states is not None:
                hidden_states.append(hidden_BNE)
            if maps is not None:
                attentions, gates = attentions + maps.attentions, gates + maps.gates
        return hidden_BNE, AttentionMaps(attentions, gates) if output_attentions else None

    @property
    def takes_cu_seqlens(self) -> bool:
        """Whether all layers can work on sentences that lie one after the other in a single row, without padding."""
        return all(getattr(layer, "takes_cu_seqlens", False) for layer in self.layers)

    def checked_token_mask(self, token_mask: Tensor, mask_BN: Tensor) -> Tensor:
        for layer in self.layers:
            if not getattr(layer, "takes_token_mask", False):
                raise ValueError(f"token_mask: {type(layer).__name__} does not take one; use a DiSAN or an MTSA")
        return full_token_mask(token_mask, *mask_BN.shape)


class StackableLayer(GradientCheckpointingLayer, Layer):
    """A layer of context fusion, single or in a stack, (B, N, in_features) -> (B, N, hidden_size).

    Subclasses implement :meth:`fuse` for ``in_features``; a single layer is only that. With
    ``config.num_hidden_layers > 1`` a layer follows the authors' ``stacking_mtsa``, for every kind of fusion:

        x = LN(x + act(W x + b));    x = LN(x + fuse(x))

    With ``config.feed_forward_size`` the first part has two matrices, V act(W x + b) + c. Dropout applies to the input
    of a matrix (``config.map_dropout``), as everywhere, and to what is added to x.
    """

    def __init__(self, config: SentenceEncoderConfig):
        super().__init__(activation=config.activation, dropout=config.fusion_dropout)
        self.residual_dropout, size = config.dropout, config.hidden_size
        self.stacked = config.num_hidden_layers > 1
        self.in_features = size if self.stacked else config.input_size
        if self.stacked:
            width = config.feed_forward_size
            self.feed_forward = nn.Linear(size, width or size)
            self.feed_forward_output = nn.Linear(width, size) if width else None
            self.feed_forward_norm = nn.LayerNorm(size, eps=1e-6)
            self.fusion_norm = nn.LayerNorm(size, eps=1e-6)

    def fuse(self, hidden_BNE: Tensor, *options, **layout) -> tuple[Tensor, AttentionMaps | None]:
        """Fuse context into tokens; arguments and results as in a layer of ``ContextFusion``."""
        raise NotImplementedError(f"{type(self).__name__} must implement fuse(hidden_BNE, mask_BN, output_attentions)")

    def forward(self, hidden_BNE: Tensor, *options, **layout) -> tuple[Tensor, AttentionMaps | None]:
        if not self.stacked:
            return self.fuse(hidden_BNE, *options, **layout)
        added_BNH = self.dense(self.feed_forward, hidden_BNE)
        if self.feed_forward_output is not None:
            added_BNH = self.linear(self.feed_forward_output, added_BNH)
        hidden_BNH = self.feed_forward_norm(hidden_BNE + dropout(added_BNH, self.residual_dropout, self.training))
        fused_BNH, maps = self.fuse(hidden_BNH, *options, **layout)
        hidden_BNH = spread(hidden_BNH, layout.get("places_BN"))
        return self.fusion_norm(hidden_BNH + dropout(fused_BNH, self.residual_dropout, self.training)), maps


def stack_layers(layer_class: type[StackableLayer], config: SentenceEncoderConfig) -> ContextFusion:
    """A stack of ``config.num_hidden_layers`` layers.

    Residual connections add the input to tokens: if their widths differ, the stack starts with a linear layer from
    ``input_size`` to ``hidden_size``. (The authors' stack expects an input of that width.)
    """
    input_layer = None
    if config.num_hidden_layers > 1 and config.input_size != config.hidden_size:
        input_layer = nn.Linear(config.input_size, config.hidden_size)
    layers = [layer_class(config) for _ in range(config.num_hidden_layers)]
    return ContextFusion(layers, input_layer, dropout=config.dropout)


def fuse_directions(modules, hidden_BNE: Tensor, mask_BN: Tensor, output_attentions: bool, *others, **layout):
    """Run one attention module per direction; features are concatenated, maps stacked in dimension 1."""
    if output_attentions:
        tokens, maps = with_maps(*(module.steps(hidden_BNE, mask_BN, *others) for module in modules), stack=True)
    else:
        tokens, maps = [module(hidden_BNE, mask_BN, False, *others, **layout)[0] for module in modules], None
    return torch.cat(tokens, dim=-1), maps


class SentenceEncoderModel(SentenceEncoderPreTrainedModel):
    """A sentence encoder in three parts: ``embeddings``, ``context``, ``pooler``. Subclasses define ``context``."""

    takes_words = False  # whether the first layer of ``context`` can compute on distinct words

    def __init__(self, config: SentenceEncoderConfig):
        super().__init__(config)
        self.embeddings = InputEmbeddings(config)
        self.context = self.make_context(config)
        self.pooler = self.make_pooler(config)
        self.post_init()

    @staticmethod
    def make_context(config: SentenceEncoderConfig) -> ContextFusion:
        raise NotImplementedError("SentenceEncoderModel has no context layer; use a subclass such as DiSANModel")

    @staticmethod
    def make_pooler(config: SentenceEncoderConfig) -> nn.Module | None:
        if config.pooling == "none":
            return None
        return POOLERS[config.pooling](config.hidden_size, activation=config.activation, dropout=config.dropout)

    def get_input_embeddings(self):
        backbone = self.embeddings.backbone
        return self.embeddings.word_embeddings if backbone is None else backbone.get_input_embeddings()

    def set_input_embeddings(self, value):
        if self.embeddings.backbone is None:
            self.embeddings.word_embeddings = value
        else:
            self.embeddings.backbone.set_input_embeddings(value)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        token_mask: Tensor | None = None,
        predicate_mask: Tensor | None = None,
        backbone_hidden_states: Tensor | None = None,
        **kwargs,
    ) -> SentenceEncoderOutput | tuple:
        """Encode sentences, one per row.

        Args:
            input_ids: (B, N) word ids; alternatively ``inputs_embeds`` (B, N, embedding_size), which a backbone takes
                in place of its own word table's.
            attention_mask: (B, N), 1 at real tokens; by default every id but ``pad_token_id``.
            token_type_ids: accepted and ignored; heads split pairs before they call the encoder.
            output_attentions: return attention maps, gates and the pooler's weights.
            output_hidden_states: return what enters the first layer, and the tokens after each layer.
            return_dict: ``False`` for a plain tuple.
            token_mask: (N, N) or (B, N, N), true where a token (row) may see another (column), in addition to the
                model's own masks; ``hf_blosan.functional.mask_from_heads`` makes one. DiSAN and MTSA only.
            predicate_mask: (B, N), 1 at the predicate of each row, else 0; for models with ``config.predicate_size``.
            backbone_hidden_states: (B, N, embedding_size), what the backbone returns, in place of its inputs.
        """
        config = self.config
        output_attentions = config.output_attentions if output_attentions is None else output_attentions
        output_hidden_states = config.output_hidden_states if output_hidden_states is None else output_hidden_states
        return_dict = config.return_dict if return_dict is None else return_dict
        vectors = inputs_embeds if backbone_hidden_states is None else backbone_hidden_states
        inputs, mask_BN = prepare_inputs(input_ids, attention_mask, vectors, config.pad_token_id)
        words = {}
        if vectors is None and not output_attentions and not output_hidden_states:
            inputs, words = self.distinct_words(inputs)
        if backbone_hidden_states is None:
            inputs = self.embeddings(mask_BN=mask_BN, **{"input_ids" if vectors is None else "inputs_embeds": inputs})
        hidden_BNE = inputs
        if config.embedding_dtype != "float32" or backbone_hidden_states is not None:
            hidden_BNE = hidden_BNE.to(self.dtype)
        hidden_BNE = self.embeddings.join_predicates(hidden_BNE, predicate_mask)
        hidden_states = [hidden_BNE] if output_hidden_states else None
        token_mask = fill_empty(token_mask)
        pooled_BH, maps, pooler_attentions = None, None, None
        plain = output_attentions or output_hidden_states or token_mask is not None
        if not plain and self.padding_costs(hidden_BNE, mask_BN):
            tokens_BNH, pooled_BH = self.encode_without_padding(hidden_BNE, mask_BN, **words)
        else:
            tokens_BNH, maps = self.context(hidden_BNE, mask_BN, output_attentions, hidden_states, token_mask, **words)
            if self.pooler is not None:
                pooled_BH, pooler_attentions = self.pooler(tokens_BNH, mask_BN, output_attentions)
        output = SentenceEncoderOutput(
            last_hidden_state=tokens_BNH,
            pooler_output=pooled_BH,
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            attentions=maps.attentions if output_attentions else None,
            gates=maps.gates if output_attentions else None,
            pooler_attentions=pooler_attentions,
        )
        return output if return_dict else output.to_tuple()

    def distinct_words(self, input_ids: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The distinct ids of a batch, (1, V), and ``places_BN`` for ``context``; or the ids, where each is computed.

        That is so in graphs, with gradients, in training (tokens have dropout of their own), and where few repeat.
        """
        one_by_one = torch.is_grad_enabled() or self.training or self.config._attn_implementation == "eager"
        # A backbone gives a word another vector in every context, and as the predicate it is another word.
        one_by_one = one_by_one or self.config.predicate_size or self.config.backbone_config is not None
        if one_by_one or not self.takes_words or not can_look_at(input_ids) or len(input_ids) < 2:
            return input_ids, {}
        words_V, places_BN = torch.unique(input_ids, return_inverse=True)
        return (words_V[None], {"places_BN": places_BN}) if 2 * len(words_V) <= input_ids.numel() else (input_ids, {})

    def padding_costs(self, hidden_BNE: Tensor, mask_BN: Tensor) -> bool:
        """Whether to encode a batch without its padding: in inference by the kernels, if there is enough of it."""
        if torch.is_grad_enabled() or self.training or not can_look_at(mask_BN):
            return False
        if not isinstance(self.context, ContextFusion) or not self.context.can_use_kernel(hidden_BNE):
            return False
        if not self.context.takes_cu_seqlens and not isinstance(self.pooler, Pooler):
            return False
        parts = [self.context, *self.context.layers, *([] if self.pooler is None else [self.pooler])]
        if any(part._forward_hooks or part._forward_pre_hooks for part in parts):
            return False  # a hook expects rows
        lengths_B = mask_BN.sum(1)
        return bool(lengths_B.all()) and int(lengths_B.sum()) < LARGEST_SHARE_OF_TOKENS * mask_BN.numel()

    def encode_without_padding(self, hidden_BNE: Tensor, mask_BN: Tensor, **words) -> tuple[Tensor, Tensor | None]:
        """Tokens in context and sentence vectors by layers that see the real tokens alone, in a single row."""
        layout = {"cu_seqlens": cumulative_lengths(mask_BN)}
        mask_1T = mask_BN.new_ones(1, int(layout["cu_seqlens"][-1]))
        if self.context.takes_cu_seqlens:
            words = {name: pack(places_BN, mask_BN) for name, places_BN in words.items()}
            hidden_BNE = hidden_BNE if words else pack(hidden_BNE, mask_BN)
            tokens_1TH, _ = self.context(hidden_BNE, mask_1T, **words, **layout)
            tokens_BNH = unpack(tokens_1TH, mask_BN)
        else:
            tokens_BNH, _ = self.context(hidden_BNE, mask_BN, **words)
            tokens_1TH = pack(tokens_BNH, mask_BN)
        if isinstance(self.pooler, Pooler):
            return tokens_BNH, self.pooler(tokens_1TH, mask_1T, **layout)[0]
        return tokens_BNH, None if self.pooler is None else self.pooler(tokens_BNH, mask_BN)[0]


def with_left_aligned_tokens(fuse, hidden_BNE: Tensor, mask_BN: Tensor, *others, **words):
    """``fuse(hidden_BNE, mask_BN, *others, **words) -> (tokens_BNH, maps)`` on rows whose real tokens come first.

    For layers that count positions. Tokens are moved back afterwards; positions in maps count real tokens only.
    """
    # Usually padding is on the right already.
    if can_look_at(mask_BN) and not (mask_BN[:, 1:] > mask_BN[:, :-1]).any():
        return fuse(hidden_BNE, mask_BN, *others, **words)
    order_BN = real_tokens_first(mask_BN)
    if words:
        words = {"places_BN": words["places_BN"].gather(1, order_BN)}
    else:
        hidden_BNE = reorder(hidden_BNE, order_BN)
    tokens_BNH, maps = fuse(hidden_BNE, mask_BN.gather(1, order_BN), *others, **words)
    return reorder(tokens_BNH, order_BN.argsort(dim=1)), maps
