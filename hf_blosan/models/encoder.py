"""What all encoders share: embed -> fuse context -> pool. Only ``context`` differs from model to model."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from .attention import Tokens, can_use_kernel, dropout, for_each_token, in_rows, pack, unpack
from .configuration_base import SentenceEncoderConfig
from .embeddings import InputEmbeddings, prepare_inputs, split_pairs
from .equations import can_branch_on, check_shapes, zero_padding
from .layers import POOLERS, AttentionMaps, Layer, Pooler, with_maps
from .masks import full_token_mask
from .pretrained import SentenceEncoderPreTrainedModel

# Share of real tokens in a batch up to which it is encoded without its padding.
LARGEST_SHARE_OF_TOKENS = 0.9


@dataclass
class SentenceEncoderOutput(BaseModelOutputWithPooling):
    """Output of an encoder.

    Args:
        last_hidden_state: tokens in context, (B, N, hidden_size); values at padded positions are not meaningful.
        pooler_output: sentence vectors, (B, hidden_size); ``None`` without a pooler.
        hidden_states: what enters the first layer, word vectors (B, N, embedding_size) and predicate embeddings, and
            the tokens after each layer.
        attentions: attention weights of each layer, level by level; shapes as documented in the layers, with the
            directions stacked in dimension 1 for DiSAN and Bi-BloSAN. The result is computed from them, dropout
            included, so that gradients with respect to them exist; the same holds for gates and source2token weights.
        gates: gate values, in the same form.
        pooler_attentions: weights of the tokens in the vector, (B, N, hidden_size); with other pooling (B, N, 1).
    """

    gates: tuple[Tensor, ...] | None = None
    pooler_attentions: Tensor | None = None


class ContextFusion(Layer):
    """The part between embeddings and pooler: ``context(hidden_BNE, mask_BN) -> (tokens_BNH, maps or None)``.

    It can be used in other networks by itself. Each layer is called as
    ``layer(hidden_BNE, mask_BN, output_attentions)`` and returns a pair like this module's; a caller's token mask is
    the fourth argument of layers with ``takes_token_mask``. ``input_layer`` is a linear map before all layers.
    """

    def __init__(self, layers: list[nn.Module], input_layer: nn.Module | None = None, *, dropout: float = 0.0):
        super().__init__(dropout=dropout)
        self.input_layer = input_layer
        self.layers = nn.ModuleList(layers)

    def forward(
        self,
        hidden_BNE: Tensor | Tokens,
        mask_BN: Tensor | None = None,
        output_attentions: bool = False,
        keep: Callable[[Tensor], None] | None = None,
        token_mask: Tensor | None = None,
    ) -> tuple[Tensor, AttentionMaps | None]:
        """Fuse context into tokens.

        Args:
            hidden_BNE: token vectors, (B, N, embedding_size); or ``Tokens`` (see attention.py), without maps.
            mask_BN: (B, N), true at real tokens; by default all are real.
            output_attentions: return attention weights and gates as well.
            keep: called with the output of every layer. Not a list: accelerate copies lists in arguments.
            token_mask: as in a model's forward.

        Raises:
            ValueError: rows have no positions, a mask has another shape, or a token mask or ``Tokens`` with
                ``cu_seqlens`` are given for layers that do not take them.
        """
        B, N = hidden_BNE.shape[:2]
        mask_BN = (torch.ones((B, N), device=hidden_BNE.device) if mask_BN is None else mask_BN).bool()
        check_shapes(B, N, mask_BN)
        if not N:
            raise ValueError("hidden_BNE has rows without tokens; give every row one or more, padding if need be")
        cu_seqlens = getattr(hidden_BNE, "cu_seqlens", None)
        if cu_seqlens is not None and (output_attentions or not self.can_be_packed):
            raise ValueError("cu_seqlens: only a DiSAN without windows or maps takes them; give each sentence a row")
        hidden_BNE = hidden_BNE if isinstance(hidden_BNE, Tokens) else zero_padding(hidden_BNE, mask_BN)
        options = [mask_BN, output_attentions]
        if token_mask is not None:
            for layer in self.layers:
                if not getattr(layer, "takes_token_mask", False):
                    raise ValueError(f"token_mask: {type(layer).__name__} does not take one; use a DiSAN or an MTSA")
            options.append(full_token_mask(token_mask, B, N))
        hidden_BNE = hidden_BNE if self.input_layer is None else self.linear(self.input_layer, hidden_BNE)
        attentions, gates = (), ()
        for layer in self.layers:
            hidden_BNE, maps = layer(hidden_BNE, *options)
            hidden_BNE = hidden_BNE if cu_seqlens is None else Tokens(hidden_BNE, cu_seqlens=cu_seqlens)
            if keep is not None:
                keep(hidden_BNE)
            if maps is not None:
                attentions, gates = attentions + maps.attentions, gates + maps.gates
        return in_rows(hidden_BNE), AttentionMaps(attentions, gates) if output_attentions else None

    @property
    def can_be_packed(self) -> bool:
        """Whether all layers can work on sentences stored one after another in a single row, without padding."""
        return all(getattr(layer, "can_be_packed", False) for layer in self.layers)


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

    def fuse(self, hidden_BNE: Tensor, *options) -> tuple[Tensor, AttentionMaps | None]:
        """Fuse context into tokens; arguments and results as in a layer of ``ContextFusion``."""
        raise NotImplementedError(f"{type(self).__name__} must implement fuse(hidden_BNE, mask_BN, output_attentions)")

    def forward(self, hidden_BNE: Tensor, *options) -> tuple[Tensor, AttentionMaps | None]:
        if not self.stacked:
            return self.fuse(hidden_BNE, *options)
        hidden_BNH = for_each_token(self.feed, hidden_BNE)
        fused_BNH, maps = self.fuse(hidden_BNH, *options)
        added_BNH = dropout(fused_BNH, self.residual_dropout, self.training)
        return self.fusion_norm(in_rows(hidden_BNH) + added_BNH), maps

    def feed(self, x: Tensor) -> Tensor:
        """LN(x + act(W x + b))."""
        added = self.dense(self.feed_forward, x)
        if self.feed_forward_output is not None:
            added = self.linear(self.feed_forward_output, added)
        return self.feed_forward_norm(x + dropout(added, self.residual_dropout, self.training))


def fuse_directions(layers, hidden_BNE: Tensor, mask_BN: Tensor, output_attentions: bool, *others):
    """Run one fusion layer per direction; features are concatenated, maps stacked in dimension 1."""
    if output_attentions:
        results, maps = with_maps(layers, hidden_BNE, mask_BN, *others)
    else:
        results, maps = [layer(hidden_BNE, mask_BN, False, *others) for layer in layers], None
    return torch.cat([tokens_BND for tokens_BND, _ in results], dim=-1), maps


def needs_rows(module: nn.Module) -> bool:
    """Whether some part has a hook, which expects the tokens of every row, or dropout although the model has none."""
    here = module.training or module._forward_hooks or module._forward_pre_hooks
    return bool(here) or any(x is not None and needs_rows(x) for x in module._modules.values())


class SentenceEncoderModel(SentenceEncoderPreTrainedModel):
    """A sentence encoder in three parts: ``embeddings``, ``context``, ``pooler``. Subclasses define ``context``."""

    layer_class: type[StackableLayer] | None = None
    takes_words = False  # whether the first layer of ``context`` can compute on distinct words

    def __init__(self, config: SentenceEncoderConfig):
        config.validate()  # again: from_pretrained changes its fields one by one
        super().__init__(config)
        self.embeddings = InputEmbeddings(config)
        self.context = self.make_context(config)
        self.pooler = self.make_pooler(config)
        self.post_init()

    @classmethod
    def make_context(cls, config: SentenceEncoderConfig) -> ContextFusion:
        """A stack of ``layer_class``, after a linear layer if its residual connections add tokens of another width."""
        if cls.layer_class is None:
            raise NotImplementedError(f"{cls.__name__} has no context layers; use a subclass such as DiSANModel")
        sizes = config.input_size, config.hidden_size
        input_layer = nn.Linear(*sizes) if config.num_hidden_layers > 1 and sizes[0] != sizes[1] else None
        layers = [cls.layer_class(config) for _ in range(config.num_hidden_layers)]
        return ContextFusion(layers, input_layer, dropout=config.dropout)

    @staticmethod
    def make_pooler(config: SentenceEncoderConfig) -> nn.Module | None:
        if config.pooling == "none":
            return None
        return POOLERS[config.pooling](config.hidden_size, activation=config.activation, dropout=config.dropout)

    def get_input_embeddings(self):
        backbone = self.embeddings.backbone
        return self.embeddings.word_embeddings if backbone is None else backbone.get_input_embeddings()

    def set_input_embeddings(self, value):
        if self.embeddings.backbone is not None:
            return self.embeddings.backbone.set_input_embeddings(value)
        self.embeddings.word_embeddings = value

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        token_mask: Tensor | None = None,
        predicate_mask: Tensor | None = None,
        backbone_hidden_states: Tensor | None = None,
        pairs: bool = False,
        **kwargs,
    ) -> SentenceEncoderOutput | tuple:
        """Encode sentences, one per row.

        Args:
            input_ids: (B, N) word ids; alternatively ``inputs_embeds`` (B, N, embedding_size), which a backbone takes
                in place of its own word embeddings.
            attention_mask: (B, N), 1 at real tokens; by default at every id but ``pad_token_id``.
            token_type_ids: (B, N), 0 and 1 for the two sentences of a pair; ignored without ``pairs``.
            output_attentions: return attention maps, gates and the pooler's weights.
            output_hidden_states: return what enters the first layer, and the tokens after each layer.
            token_mask: (N, N) or (B, N, N), true where a token (row) may see another (column), in addition to the
                model's own masks; ``hf_blosan.functional.mask_from_heads`` makes one. DiSAN and MTSA only.
            predicate_mask: (B, N), 1 at the predicate of each row, else 0; for models with ``config.predicate_size``.
            backbone_hidden_states: (B, N, embedding_size), what the backbone returns, in place of its inputs.
            pairs: rows hold two sentences; the result has 2B rows: all first sentences, then all second ones.
        """
        config = self.config
        output_attentions = config.output_attentions if output_attentions is None else output_attentions
        output_hidden_states = config.output_hidden_states if output_hidden_states is None else output_hidden_states
        vectors = inputs_embeds if backbone_hidden_states is None else backbone_hidden_states
        inputs, mask_BN = prepare_inputs(input_ids, attention_mask, vectors, config.pad_token_id)
        if pairs:
            inputs, mask_BN, token_mask = split_pairs(inputs, mask_BN, token_type_ids, token_mask)
        plain, places_BN = output_attentions or output_hidden_states, None
        if vectors is None and not plain:
            inputs, places_BN = self.distinct_words(inputs, mask_BN)
        hidden_BNE = self.embeddings(inputs, mask_BN) if backbone_hidden_states is None else inputs
        if config.embedding_dtype != "float32" or backbone_hidden_states is not None:
            hidden_BNE = hidden_BNE.to(self.dtype)
        hidden_BNE = self.embeddings.join_predicates(hidden_BNE, predicate_mask)
        hidden_states = [hidden_BNE] if output_hidden_states else None
        if places_BN is not None:  # padding is one more word, of zeros
            places_BN = torch.where(mask_BN, places_BN, hidden_BNE.shape[1])
            hidden_BNE = Tokens(nn.functional.pad(hidden_BNE, (0, 0, 0, 1)), places_BN)
        pooled_BH, maps, pooler_attentions = None, None, None
        if not plain and token_mask is None and self.is_worth_packing(hidden_BNE, mask_BN):
            tokens_BNH, pooled_BH = self.encode_packed(hidden_BNE, mask_BN)
        else:
            keep = hidden_states and hidden_states.append
            tokens_BNH, maps = self.context(hidden_BNE, mask_BN, output_attentions, keep, token_mask)
            if self.pooler is not None:
                pooled_BH, pooler_attentions = self.pooler(tokens_BNH, mask_BN, output_attentions)
        states, (attentions, gates) = hidden_states and tuple(hidden_states), maps or (None, None)
        return SentenceEncoderOutput(tokens_BNH, pooled_BH, states, attentions, gates, pooler_attentions)

    def distinct_words(self, input_ids: Tensor, mask_BN: Tensor) -> tuple[Tensor, Tensor | None]:
        """The distinct ids of a batch, (1, V), and which of them each token is; or the ids and ``None``.

        The latter in graphs, with gradients, in training (each token has its own dropout), and where few ids repeat.
        """
        apart = torch.is_grad_enabled() or self.training or self.config._attn_implementation == "eager"
        # A backbone gives a word another vector in every context, and as the predicate it is another word.
        apart = apart or self.config.predicate_size or self.config.backbone_config is not None
        if apart or not self.takes_words or not can_branch_on(input_ids) or len(input_ids) < 2:
            return input_ids, None
        words_V, places_BN = torch.unique(input_ids * mask_BN, return_inverse=True)  # padding is one id
        repeat = 2 * len(words_V) <= input_ids.numel() and not any(map(needs_rows, self.children()))
        return (words_V[None], places_BN) if repeat else (input_ids, None)

    def is_worth_packing(self, hidden_BNE: Tensor | Tokens, mask_BN: Tensor) -> bool:
        """Whether to encode a batch without its padding: in inference with the kernels, if there is enough of it."""
        if torch.is_grad_enabled() or self.training or not can_branch_on(mask_BN):
            return False
        vectors = getattr(hidden_BNE, "vectors", hidden_BNE)
        if not (isinstance(self.context, ContextFusion) and can_use_kernel(self.context.implementation, vectors)):
            return False
        lengths_B, takes = mask_BN.sum(1), self.context.can_be_packed or isinstance(self.pooler, Pooler)
        few = int(lengths_B.sum()) < LARGEST_SHARE_OF_TOKENS * mask_BN.numel()
        return takes and few and bool(lengths_B.all()) and not any(map(needs_rows, self.children()))

    def encode_packed(self, hidden_BNE: Tensor | Tokens, mask_BN: Tensor) -> tuple[Tensor, Tensor | None]:
        """Tokens in context and sentence vectors from layers that see only the real tokens, in a single row."""
        takes = self.context.can_be_packed
        tokens_BNH = hidden_BNE if takes else self.context(hidden_BNE, mask_BN)[0]
        packed = pack(tokens_BNH, mask_BN)
        mask_1T = mask_BN.new_ones(packed.shape[:2])
        if takes:
            packed = Tokens(self.context(packed, mask_1T)[0], cu_seqlens=packed.cu_seqlens)
            tokens_BNH = unpack(packed.vectors, mask_BN)
        if isinstance(self.pooler, Pooler):
            return tokens_BNH, self.pooler(packed, mask_1T)[0]
        return tokens_BNH, None if self.pooler is None else self.pooler(tokens_BNH, mask_BN)[0]
