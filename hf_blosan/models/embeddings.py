"""What enters the first layer: a word table or a pretrained transformer; and the predicate.

Before that: inputs in every form that users give, and the two sentences of a pair. Shape suffixes: see equations.py.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .configuration_base import SentenceEncoderConfig
from .equations import can_branch_on, check_shapes, in_graph
from .masks import full_token_mask


class PredicateEmbeddings(nn.Embedding):
    """Two vectors: for a token that is not the predicate, and for one that is."""


class InputEmbeddings(nn.Module):
    """What enters the first layer: word vectors, or the last hidden states of ``config.backbone`` in their place; and,
    with ``config.predicate_size``, an embedding of the predicate, which is added by ``join_predicates``.

    A frozen backbone stays in eval mode, without dropout.
    """

    def __init__(self, config: SentenceEncoderConfig):
        super().__init__()
        has_table = config.backbone_config is None
        self.word_embeddings = WordEmbeddings(config) if has_table else None
        self.backbone = None if has_table else make_backbone(config)
        self.predicate_embeddings = PredicateEmbeddings(2, config.predicate_size) if config.predicate_size else None
        self.scale = config.embedding_scale

    @property
    def source(self) -> nn.Module:
        """The word table or the backbone."""
        return self.word_embeddings if self.backbone is None else self.backbone

    def train(self, mode: bool = True):
        super().train(mode)
        if self.backbone is not None:
            self.backbone.train(mode and any(weight.requires_grad for weight in self.backbone.parameters()))
        return self

    def forward(self, inputs: Tensor, mask_BN: Tensor | None = None) -> Tensor:
        """Ids (B, N), or vectors (B, N, E) that replace the backbone's word embeddings -> (B, N, embedding_size)."""
        are_ids = inputs.dim() == 2
        if self.backbone is None:
            return self.word_embeddings(inputs) if are_ids else inputs
        options = {"attention_mask": None if mask_BN is None else mask_BN.long(), "return_dict": True}
        return self.backbone(**{"input_ids" if are_ids else "inputs_embeds": inputs}, **options).last_hidden_state

    def join_predicates(self, words_BNE: Tensor, predicate_mask: Tensor | None) -> Tensor:
        """scale * [words; embedding of predicate_mask (B, N)], (B, N, embedding_size + predicate_size).

        Raises:
            ValueError: the mask is missing or not expected, has another shape, or has values other than 0 and 1.
        """
        if (predicate_mask is None) != (self.predicate_embeddings is None):
            raise ValueError(
                "this model needs predicate_mask (B, N), 1 at the predicate of each row and 0 elsewhere"
                if predicate_mask is None
                else "predicate_mask: this model has no embedding of predicates; leave it out, or set predicate_size"
            )
        if predicate_mask is not None:
            if not predicate_mask.shape[1:].numel():  # empty rows have become one padded position
                predicate_mask = predicate_mask.new_zeros(words_BNE.shape[:2])
            if predicate_mask.shape != words_BNE.shape[:2]:
                shapes = f"{tuple(predicate_mask.shape)} for tokens {tuple(words_BNE.shape[:2])}"
                raise ValueError(f"predicate_mask has shape {shapes}; give both the shape (B, N)")
            if can_branch_on(predicate_mask) and not ((predicate_mask == 0) | (predicate_mask == 1)).all():
                raise ValueError("predicate_mask has values other than 0 and 1; give 1 at the predicate of each row")
            words_BNE = torch.cat([words_BNE, self.predicate_embeddings(predicate_mask.long())], dim=-1)
        return words_BNE if self.scale == 1 else words_BNE * self.scale


class WordEmbeddings(nn.Embedding):
    """Word vectors, (B, N) ids -> (B, N, embedding_size), in the papers' layout.

    With ``embedding_trainable="train_words"`` the table holds [PAD] and [UNK] (both constant zero vectors), the words
    of the training data (trained), then ``num_fixed_embeddings`` further words that keep their vectors. ``weight`` has
    the rows that can be trained, ``fixed_weight`` those that follow them; it is ``None`` if there are none. With
    ``embedding_dtype="int8"`` they hold integers, and ``scale`` and ``fixed_scale`` a factor per row.
    """

    def __init__(self, config: SentenceEncoderConfig):
        num_trained, size = config.vocab_size - config.num_fixed_embeddings, config.embedding_size
        padding_idx = config.pad_token_id if (config.pad_token_id or 0) < num_trained else None
        own = {} if config.embedding_dtype == "float32" else {"dtype": getattr(torch, config.embedding_dtype)}
        weight = torch.zeros(num_trained, size, **own)
        trainable = weight.is_floating_point() and config.embedding_trainable != "none"
        super().__init__(num_trained, size, padding_idx=padding_idx, _weight=weight, _freeze=not trainable)
        # Frozen by choice; a table in fewer bits than the layers cannot be trained.
        self.has_own_dtype = config.embedding_dtype != "float32"
        self.frozen, self.is_int8 = config.embedding_trainable == "none", not weight.is_floating_point()
        # Buffers (saved with the model), because from_pretrained makes every parameter trainable, and because other
        # libraries take a model's dtype from its first parameter.
        if self.is_int8:
            del self.weight
            self.register_buffer("weight", weight)
        num_fixed = config.num_fixed_embeddings
        self.register_buffer("fixed_weight", torch.zeros(num_fixed, size, **own) if num_fixed else None)
        self.register_buffer("scale", torch.ones(num_trained, 1) if self.is_int8 else None)
        self.register_buffer("fixed_scale", torch.ones(num_fixed, 1) if self.is_int8 and num_fixed else None)
        special = (config.pad_token_id, config.unk_token_id)
        self.dropout = config.embedding_dropout
        self.zero_ids = [i for i in special if i is not None] if config.embedding_trainable == "train_words" else []

    def forward(self, input_ids: Tensor) -> Tensor:
        is_half = self.has_own_dtype and self.weight.dtype in (torch.float16, torch.bfloat16)
        learns = not self.frozen if self.is_int8 else is_half and self.weight.requires_grad
        if self.training and learns and torch.is_grad_enabled():
            raise ValueError(
                f"the word table is {str(self.weight.dtype).removeprefix('torch.')} and cannot be trained; load the "
                'model with embedding_dtype="float32", or set embedding_trainable="none" to train the layers alone'
            )
        try:
            vectors_BNE = self.look_up(input_ids)
        except IndexError as error:
            raise ValueError(
                f"input_ids range from {int(input_ids.min())} to {int(input_ids.max())}, but the vocabulary ends at "
                f"{sum(len(rows) for rows, _ in self.tables) - 1}; use the tokenizer that belongs to the model"
            ) from error
        for token_id in self.zero_ids:
            vectors_BNE = vectors_BNE.masked_fill((input_ids == token_id)[..., None], 0.0)
        if self.training and self.dropout:
            vectors_BNE = vectors_BNE * F.dropout(torch.ones_like(vectors_BNE[..., :1]), self.dropout)
        return vectors_BNE

    def look_up(self, input_ids: Tensor) -> Tensor:
        """The vectors in the table."""
        if self.fixed_weight is None:
            return scaled(super().forward(input_ids), input_ids, self.scale)
        ids, fixed_ids = input_ids.clamp(max=self.num_embeddings - 1), (input_ids - self.num_embeddings).clamp(min=0)
        fixed_BNE = scaled(F.embedding(fixed_ids, self.fixed_weight), fixed_ids, self.fixed_scale)
        is_fixed_BN1 = (input_ids >= self.num_embeddings)[..., None]
        return torch.where(is_fixed_BN1, fixed_BNE, scaled(super().forward(ids), ids, self.scale))

    @property
    def tables(self) -> list[tuple[Tensor, Tensor | None]]:
        """Rows and, for int8, their scales: for the words that can be trained, and for those that follow, if any."""
        tables = [(self.weight, self.scale), (self.fixed_weight, self.fixed_scale)]
        return tables[:1] if self.fixed_weight is None else tables

    @torch.no_grad()
    def vectors(self) -> Tensor:
        """The whole table, fixed rows included, (vocab_size, embedding_size), as float32 numbers."""
        return torch.cat([rows.float() if scale is None else rows.float() * scale for rows, scale in self.tables])

    @torch.no_grad()
    def load_vectors(self, matrix) -> None:
        """Set the whole table, fixed rows included, from an array of shape (vocab_size, embedding_size).

        Raises:
            ValueError: the array has another shape.
        """
        matrix = torch.as_tensor(matrix, dtype=torch.float32, device=self.weight.device)
        expected = (sum(rows.shape[0] for rows, _ in self.tables), self.embedding_dim)
        if tuple(matrix.shape) != expected:
            raise ValueError(f"word vectors of shape {tuple(matrix.shape)} for a table of shape {expected}")
        parts = matrix.split([rows.shape[0] for rows, _ in self.tables])
        for (rows, scale), part in zip(self.tables, parts, strict=True):
            if scale is not None:  # the largest number of a row becomes 127
                scale.copy_(part.abs().amax(dim=1, keepdim=True) / 127)
                part = (part / scale.clamp(min=torch.finfo(torch.float32).tiny)).round().clamp(-127, 127)
            rows.copy_(part)


def scaled(codes_BNE: Tensor, ids_BN: Tensor, scale_V1: Tensor | None) -> Tensor:
    """Rows of a table as numbers, in the dtype of the scale."""
    return codes_BNE if scale_V1 is None else codes_BNE.to(scale_V1.dtype) * F.embedding(ids_BN, scale_V1)


def make_backbone(config: SentenceEncoderConfig) -> nn.Module:
    """The backbone without its pooler; with its weights, unless a checkpoint that has them is loaded (on "meta")."""
    from transformers import AutoModel  # late: its import registers these models

    dtype = torch.get_default_dtype()
    if config.backbone and torch.empty(0).device.type != "meta":
        backbone = AutoModel.from_pretrained(config.backbone, config=config.backbone_config, dtype=dtype)
    else:
        backbone = AutoModel.from_config(config.backbone_config, dtype=dtype, trust_remote_code=False)
    if hasattr(backbone, "pooler"):
        backbone.pooler = None
    config.backbone_config = backbone.config
    return backbone.requires_grad_(config.embedding_trainable != "none")


def prepare_inputs(
    input_ids: Tensor | None, attention_mask: Tensor | None, inputs_embeds: Tensor | None, pad_token_id: int | None
) -> tuple[Tensor, Tensor]:
    """Ids (B, N) or vectors (B, N, E) with their boolean mask (B, N); rows of width 0 become one padded position.

    Raises:
        ValueError: neither or both of ids and vectors are given, something has another shape, or the mask is additive.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("give either input_ids or inputs_embeds, and not both")
    inputs = input_ids if inputs_embeds is None else inputs_embeds
    if inputs.dim() != (2 if inputs_embeds is None else 3):
        expected = "input_ids (B, N)" if inputs_embeds is None else "inputs_embeds (B, N, embedding_size)"
        raise ValueError(f"give {expected} for B rows of N tokens; they have shape {tuple(inputs.shape)}")
    if inputs.shape[1] == 0:
        # The tokenizer turns a batch of empty texts into floating-point rows of width 0.
        shape = (inputs.shape[0], 1, *inputs.shape[2:])
        inputs = inputs.new_zeros(shape, dtype=torch.long if inputs_embeds is None else inputs.dtype)
        return inputs, torch.zeros(shape[:2], dtype=torch.bool, device=inputs.device)
    if attention_mask is None:
        by_id = inputs_embeds is None and pad_token_id is not None
        attention_mask = inputs != pad_token_id if by_id else torch.ones(inputs.shape[:2], device=inputs.device)
    check_shapes(*inputs.shape[:2], attention_mask)
    if attention_mask.is_floating_point() and can_branch_on(attention_mask) and (attention_mask < 0).any():
        raise ValueError("attention_mask has values below 0; give 1 at real tokens and 0 at padding")
    return inputs, attention_mask.bool()


def split_pairs(
    inputs: Tensor, mask_BN: Tensor, token_type_ids: Tensor | None, token_mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """One row per pair -> one row per sentence: (B, N, ...) -> (2B, N', ...), all first sentences before all second.

    Returns inputs, mask and token mask (2B, N', N') or ``None``. The tokens of a sentence are moved to the start of
    its row, so that word order and blocks count from its first word. N' is the length of the longest sentence, or N in
    a graph, whose shapes cannot depend on values.

    Raises:
        ValueError: there are no token_type_ids, they mark no second sentence, or the token mask has another shape.
    """
    remedy = "tokenize pairs as tokenizer(first, second), where second has words"
    if token_type_ids is None:
        raise ValueError(f"this model compares two sentences and needs token_type_ids (0 first, 1 second); {remedy}")
    if token_type_ids.shape[1] == 0:  # a batch of pairs of empty texts
        token_type_ids = torch.zeros(mask_BN.shape, dtype=torch.long, device=mask_BN.device)
    if can_branch_on(mask_BN) and mask_BN.any() and not token_type_ids.any():
        raise ValueError(f"this model compares two sentences, but token_type_ids are 0 throughout; {remedy}")
    mask_2BN = torch.cat([mask_BN & (token_type_ids == sentence) for sentence in (0, 1)])
    order_2BN = real_tokens_first(mask_2BN)
    mask_2BN = mask_2BN.gather(1, order_2BN)
    if not in_graph() and not mask_2BN.is_meta:
        longest = max(1, int(mask_2BN.any(0).sum()))
        order_2BN, mask_2BN = order_2BN[:, :longest], mask_2BN[:, :longest]
    rows_2B1 = torch.arange(inputs.shape[0], device=inputs.device).repeat(2)[:, None]
    if token_mask is not None:
        token_mask_BNN = full_token_mask(token_mask, *mask_BN.shape)
        token_mask = token_mask_BNN[rows_2B1[..., None], order_2BN[..., None], order_2BN[:, None]]
    return inputs[rows_2B1, order_2BN], mask_2BN, token_mask


def real_tokens_first(mask_BN: Tensor) -> Tensor:
    """Positions (B, N), real tokens first; both real tokens and padding keep their order."""
    if torch.compiler.is_exporting():  # to formats without a stable sort: distinct keys
        N, device = mask_BN.shape[1], mask_BN.device
        return torch.where(mask_BN, torch.arange(N, device=device), torch.arange(N, 2 * N, device=device)).argsort(1)
    return torch.argsort((~mask_BN).to(torch.uint8), dim=1, stable=True)
