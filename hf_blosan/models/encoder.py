"""What all encoders share: embed -> fuse context -> pool. Only ``context`` differs from model to model."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.utils import ModelOutput

from .configuration_base import SentenceEncoderConfig
from .equations import IMPLEMENTATIONS
from .layers import POOLERS, AttentionMaps, FeatureAttention, FusionGate, HeadLinear, Layer
from .masks import can_look_at, check_shapes, full_token_mask


@dataclass
class SentenceEncoderOutput(ModelOutput):
    """Output of an encoder.

    Args:
        last_hidden_state: tokens in context, (B, N, hidden_size); values at padded positions are not meaningful.
        pooler_output: sentence vectors, (B, hidden_size).
        hidden_states: word vectors (B, N, embedding_size) and the tokens after each layer.
        attentions: attention weights of each layer, level by level; shapes as documented in the layers, with the
            directions stacked in dimension 1 for DiSAN and Bi-BloSAN.
        gates: gate values, in the same form.
        pooler_attentions: weights of the tokens in the sentence vector, (B, N, hidden_size), or (B, N, 1) for additive
            pooling.
    """

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    gates: tuple[Tensor, ...] | None = None
    pooler_attentions: Tensor | None = None


class WordEmbeddings(nn.Module):
    """Word vectors, (B, N) ids -> (B, N, embedding_size), in the papers' layout.

    With ``embedding_trainable="train_words"`` the table holds [PAD] and [UNK] (both constant zero vectors), the words
    of the training data (trained), then ``num_fixed_embeddings`` further words that keep their vectors.
    """

    def __init__(self, config: SentenceEncoderConfig):
        super().__init__()
        num_trained = config.vocab_size - config.num_fixed_embeddings
        padding_idx = config.pad_token_id if (config.pad_token_id or 0) < num_trained else None
        self.word_embeddings = nn.Embedding(num_trained, config.embedding_size, padding_idx=padding_idx)
        self.frozen = config.embedding_trainable == "none"
        self.freeze()
        # A buffer (saved with the model), because from_pretrained makes every parameter trainable.
        self.register_buffer("fixed_embeddings", torch.zeros(config.num_fixed_embeddings, config.embedding_size))
        special = (config.pad_token_id, config.unk_token_id)
        self.zero_ids = [i for i in special if i is not None] if config.embedding_trainable == "train_words" else []

    def freeze(self) -> None:
        """Exclude the table from training if ``embedding_trainable`` is ``"none"``."""
        if self.frozen:
            self.word_embeddings.weight.requires_grad_(False)

    def forward(self, input_ids: Tensor) -> Tensor:
        num_trained = self.word_embeddings.num_embeddings
        vectors_BNE = self.word_embeddings(input_ids.clamp(max=num_trained - 1))
        if len(self.fixed_embeddings):
            is_fixed_BN1 = (input_ids >= num_trained)[..., None]
            fixed_BNE = nn.functional.embedding((input_ids - num_trained).clamp(min=0), self.fixed_embeddings)
            vectors_BNE = torch.where(is_fixed_BN1, fixed_BNE, vectors_BNE)
        for token_id in self.zero_ids:
            vectors_BNE = vectors_BNE.masked_fill((input_ids == token_id)[..., None], 0.0)
        return vectors_BNE

    @torch.no_grad()
    def load_vectors(self, matrix) -> None:
        """Set the whole table, fixed rows included, from an array of shape (vocab_size, embedding_size).

        Raises:
            ValueError: the array has another shape.
        """
        tables = (self.word_embeddings.weight, self.fixed_embeddings)
        matrix = torch.as_tensor(matrix, dtype=tables[0].dtype)
        expected = (sum(map(len, tables)), self.word_embeddings.embedding_dim)
        if tuple(matrix.shape) != expected:
            raise ValueError(f"word vectors of shape {tuple(matrix.shape)} for a table of shape {expected}")
        for table, rows in zip(tables, matrix.split([len(table) for table in tables]), strict=True):
            table.copy_(rows)


class ContextFusion(Layer):
    """The part between embeddings and pooler: ``context(hidden_BNE, mask_BN) -> (tokens_BNH, maps or None)``.

    Can be used independently, as a context layer in other networks. Each layer is called as
    ``layer(hidden_BNE, mask_BN, output_attentions)`` and returns a pair like this module's; a caller's token mask is
    the fourth argument of layers with ``takes_token_mask``. ``input_layer`` is a linear map before all layers.
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
    ) -> tuple[Tensor, AttentionMaps | None]:
        """Fuse context into tokens.

        Args:
            hidden_BNE: token vectors, (B, N, embedding_size).
            mask_BN: (B, N), true at real tokens; by default all are real.
            output_attentions: return attention weights and gates as well.
            hidden_states: a list to which the output of every layer is appended.
            token_mask: (N, N) or (B, N, N), true where a token (row) may see another (column), in addition to the
                model's own masks; ``hf_blosan.functional.mask_from_heads`` makes one.

        Raises:
            ValueError: rows have no positions, a mask has another shape, or a token mask is given for layers in
                which tokens do not attend to each other.
        """
        if mask_BN is None:
            mask_BN = torch.ones(hidden_BNE.shape[:2], dtype=torch.bool, device=hidden_BNE.device)
        mask_BN = mask_BN.bool()
        check_shapes(*hidden_BNE.shape[:2], mask_BN)
        if not hidden_BNE.shape[1]:
            raise ValueError(
                "hidden_BNE has rows without tokens; give every row at least one position, padding if necessary"
            )
        options = [mask_BN, output_attentions]
        if token_mask is not None:
            options.append(self.checked_token_mask(token_mask, mask_BN))
        if self.input_layer is not None:
            hidden_BNE = self.linear(self.input_layer, hidden_BNE)
        attentions, gates = (), ()
        for layer in self.layers:
            hidden_BNE, maps = layer(hidden_BNE, *options)
            if hidden_states is not None:
                hidden_states.append(hidden_BNE)
            if maps is not None:
                attentions, gates = attentions + maps.attentions, gates + maps.gates
        return hidden_BNE, AttentionMaps(attentions, gates) if output_attentions else None

    def checked_token_mask(self, token_mask: Tensor, mask_BN: Tensor) -> Tensor:
        for layer in self.layers:
            if not getattr(layer, "takes_token_mask", False):
                raise ValueError(
                    f"token_mask: {type(layer).__name__} does not take one; use a DiSAN or an MTSA, in which "
                    "every token attends to tokens"
                )
        return full_token_mask(token_mask, *mask_BN.shape)


def fuse_directions(modules, hidden_BNE: Tensor, mask_BN: Tensor, output_attentions: bool, *others):
    """Run one attention module per direction; features are concatenated, maps stacked in dimension 1."""
    tokens, maps = zip(*(module(hidden_BNE, mask_BN, output_attentions, *others) for module in modules), strict=True)
    if not output_attentions:
        return torch.cat(tokens, dim=-1), None
    attentions = tuple(torch.stack(levels, dim=1) for levels in zip(*(m.attentions for m in maps), strict=True))
    gates = tuple(torch.stack(levels, dim=1) for levels in zip(*(m.gates for m in maps), strict=True))
    return torch.cat(tokens, dim=-1), AttentionMaps(attentions, gates)


class SentenceEncoderPreTrainedModel(PreTrainedModel):
    """Loading, saving and initialisation: Glorot uniform matrices, zero biases, word vectors from U(-0.05, 0.05)."""

    config: SentenceEncoderConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    # The heads take **kwargs; without this, Trainer assumes that they divide by num_items_in_batch themselves.
    accepts_loss_kwargs = False
    _can_compile_fullgraph = True

    @torch.no_grad()
    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, HeadLinear):
            # Each head is a separate matrix: the limit comes from the fans of one head, not of the stacked tensor.
            bound = (6 / (module.weight.shape[1] + module.weight.shape[2])) ** 0.5
            init.uniform_(module.weight, -bound, bound)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, (FeatureAttention, FusionGate)):
            init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            bound = self.config.initializer_range
            init.uniform_(module.weight, -bound, bound)
            if module.padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                module.weight[module.padding_idx].zero_()

    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        """As in transformers; weights are then copied to aligned memory.

        They are mapped from the file, where they may start at any multiple of 4 bytes. Matrix products sum unaligned
        data in another order, so a loaded model would differ from the saved one in the last bit.
        """
        loaded = super().from_pretrained(*args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.device.type == "cpu" and tensor.data_ptr() % 64:
                tensor.data = tensor.data.clone()
        model.base_model.embeddings.freeze()  # loading makes every parameter trainable
        return loaded

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        if requested_attention is not None and requested_attention not in IMPLEMENTATIONS:
            raise ValueError(
                f"attn_implementation is {requested_attention!r}; choose one of {', '.join(IMPLEMENTATIONS)}"
            )
        return requested_attention or "auto"

    def set_attn_implementation(self, attn_implementation: str | dict, allow_all_kernels: bool = False):
        """Choose how attention is computed: ``"auto"``, ``"eager"``, ``"fused"`` or ``"linear"``.

        They compute the same function at different speeds and memory; see ``hf_blosan.functional``. With ``"eager"``,
        dense layers and gates also use only torch's operators, as ``torch.func`` and higher derivatives require.

        Raises:
            ValueError: the name is unknown.
        """
        super().set_attn_implementation(attn_implementation, allow_all_kernels)
        self.spread_attn_implementation()

    def spread_attn_implementation(self) -> None:
        """Pass the configuration's choice to the layers, which do not know the configuration."""
        for module in self.modules():
            if hasattr(module, "implementation"):
                module.implementation = self.config._attn_implementation

    def post_init(self):
        self.spread_attn_implementation()
        super().post_init()

    def load_word_vectors(self, matrix) -> None:
        """Set the word table from an array of shape (vocab_size, embedding_size); see ``WordEmbeddings``."""
        self.base_model.embeddings.load_vectors(matrix)

    def resize_token_embeddings(self, *args, **kwargs):
        if self.config.num_fixed_embeddings:
            raise ValueError(
                f"the last {self.config.num_fixed_embeddings} rows of the vocabulary hold fixed word vectors, so no "
                'rows can be added after them; train with embedding_trainable="all" to resize the vocabulary'
            )
        return super().resize_token_embeddings(*args, **kwargs)


class SentenceEncoderModel(SentenceEncoderPreTrainedModel):
    """A sentence encoder in three parts: ``embeddings``, ``context``, ``pooler``. Subclasses define ``context``."""

    def __init__(self, config: SentenceEncoderConfig):
        super().__init__(config)
        self.embeddings = WordEmbeddings(config)
        self.context = self.make_context(config)
        self.pooler = self.make_pooler(config)
        self.post_init()

    @staticmethod
    def make_context(config: SentenceEncoderConfig) -> ContextFusion:
        raise NotImplementedError(
            "SentenceEncoderModel has no context layer; use a subclass such as DiSANModel, BiBloSANModel or MTSAModel"
        )

    @staticmethod
    def make_pooler(config: SentenceEncoderConfig) -> nn.Module:
        return POOLERS[config.pooling](config.hidden_size, activation=config.activation, dropout=config.dropout)

    def get_input_embeddings(self):
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value):
        self.embeddings.word_embeddings = value

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
        **kwargs,
    ) -> SentenceEncoderOutput | tuple:
        """Encode sentences, one per row.

        Args:
            input_ids: (B, N) word ids; alternatively ``inputs_embeds`` (B, N, embedding_size).
            attention_mask: (B, N), 1 at real tokens; by default every id but ``pad_token_id``.
            token_type_ids: accepted and ignored; heads split pairs before they call the encoder.
            output_attentions: return attention maps, gates and the pooler's weights.
            output_hidden_states: return word vectors and the tokens after each layer.
            return_dict: ``False`` for a plain tuple.
            token_mask: (N, N) or (B, N, N), true where a token (row) may see another (column), in addition to the
                model's own masks; ``hf_blosan.functional.mask_from_heads`` makes one. DiSAN and MTSA only.
        """
        config = self.config
        output_attentions = config.output_attentions if output_attentions is None else output_attentions
        output_hidden_states = config.output_hidden_states if output_hidden_states is None else output_hidden_states
        return_dict = config.return_dict if return_dict is None else return_dict
        inputs, mask_BN = prepare_inputs(input_ids, attention_mask, inputs_embeds, config.pad_token_id)
        hidden_BNE = self.embeddings(inputs) if inputs_embeds is None else inputs
        hidden_states = [hidden_BNE] if output_hidden_states else None
        token_mask = fill_empty(token_mask)
        tokens_BNH, maps = self.context(hidden_BNE, mask_BN, output_attentions, hidden_states, token_mask)
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


def prepare_inputs(
    input_ids: Tensor | None, attention_mask: Tensor | None, inputs_embeds: Tensor | None, pad_token_id: int | None
) -> tuple[Tensor, Tensor]:
    """Ids (B, N) or vectors (B, N, E) with their boolean mask (B, N); rows of width 0 become one padded position.

    Raises:
        ValueError: neither or both of ids and vectors are given, or the mask has another shape.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("give either input_ids or inputs_embeds, and not both")
    inputs = input_ids if inputs_embeds is None else inputs_embeds
    if inputs.shape[1] == 0:
        # The tokenizer turns a batch of empty texts into floating-point rows of width 0.
        shape = (inputs.shape[0], 1, *inputs.shape[2:])
        if inputs_embeds is None:
            inputs = torch.full(shape, pad_token_id or 0, dtype=torch.long, device=inputs.device)
        else:
            inputs = inputs.new_zeros(shape)
        return inputs, torch.zeros(shape[:2], dtype=torch.bool, device=inputs.device)
    if attention_mask is None:
        if inputs_embeds is None and pad_token_id is not None:
            attention_mask = inputs != pad_token_id
        else:
            attention_mask = torch.ones(inputs.shape[:2], device=inputs.device)
    check_shapes(*inputs.shape[:2], attention_mask)
    return inputs, attention_mask.bool()


def fill_empty(token_mask: Tensor | None) -> Tensor | None:
    """A token mask for rows of width 0 after :func:`prepare_inputs` has padded them."""
    if token_mask is None or token_mask.shape[-1]:
        return token_mask
    return token_mask.new_zeros(*token_mask.shape[:-2], 1, 1)


def real_tokens_first(mask_BN: Tensor) -> Tensor:
    """Positions (B, N), real tokens first; both real tokens and padding keep their order."""
    if torch.compiler.is_exporting():  # to formats without a stable sort: distinct keys
        N, device = mask_BN.shape[1], mask_BN.device
        return torch.where(mask_BN, torch.arange(N, device=device), torch.arange(N, 2 * N, device=device)).argsort(1)
    return torch.argsort((~mask_BN).to(torch.uint8), dim=1, stable=True)


def reorder(tokens_BND: Tensor, order_BN: Tensor) -> Tensor:
    """Tokens of each row in another order."""
    B, N, _ = tokens_BND.shape
    places_BN = order_BN + torch.arange(0, B * N, N, device=order_BN.device)[:, None]
    # index_select copies whole vectors; gather copies element by element, which takes ten times as long.
    return tokens_BND.flatten(0, 1).index_select(0, places_BN.flatten()).unflatten(0, order_BN.shape)


def with_left_aligned_tokens(fuse, hidden_BNE: Tensor, mask_BN: Tensor, *others):
    """``fuse(hidden_BNE, mask_BN, *others) -> (tokens_BNH, maps)`` on rows whose real tokens come first.

    For layers that count positions. Tokens are moved back afterwards; positions in maps count real tokens only.
    """
    # Usually padding is on the right already.
    if can_look_at(mask_BN) and not (mask_BN[:, 1:] > mask_BN[:, :-1]).any():
        return fuse(hidden_BNE, mask_BN, *others)
    order_BN = real_tokens_first(mask_BN)
    tokens_BNH, maps = fuse(reorder(hidden_BNE, order_BN), mask_BN.gather(1, order_BN), *others)
    return reorder(tokens_BNH, order_BN.argsort(dim=1)), maps


def split_pairs(
    inputs: Tensor, mask_BN: Tensor, token_type_ids: Tensor | None, token_mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """One row per pair -> one row per sentence: (B, N, ...) -> (2B, N', ...), all first sentences before all second.

    Returns inputs, mask and token mask (2B, N', N') or ``None``.

    The tokens of a sentence are moved to the start of its row, so that word order and blocks count from its first
    word. N' is the length of the longest sentence, or N in a graph, whose shapes cannot depend on values.

    Raises:
        ValueError: there are no token_type_ids, or the token mask has another shape.
    """
    if token_type_ids is None:
        raise ValueError(
            "this model compares two sentences and needs token_type_ids (0 first, 1 second) to tell them apart; "
            "tokenize pairs as tokenizer(first, second)"
        )
    if token_type_ids.shape[1] == 0:  # a batch of pairs of empty texts
        token_type_ids = torch.zeros(mask_BN.shape, dtype=torch.long, device=mask_BN.device)
    mask_2BN = torch.cat([mask_BN & (token_type_ids == sentence) for sentence in (0, 1)])
    order_2BN = real_tokens_first(mask_2BN)
    if not (torch.compiler.is_compiling() or torch.jit.is_tracing()):
        order_2BN = order_2BN[:, : max(1, int(mask_2BN.sum(1).max()))]
    mask_2BN = mask_2BN.gather(1, order_2BN)
    rows_2B1 = torch.arange(inputs.shape[0], device=inputs.device).repeat(2)[:, None]
    if token_mask is not None:
        token_mask_BNN = full_token_mask(fill_empty(token_mask), *mask_BN.shape)
        token_mask = token_mask_BNN[rows_2B1[..., None], order_2BN[..., None], order_2BN[:, None]]
    return inputs[rows_2B1, order_2BN], mask_2BN, token_mask
