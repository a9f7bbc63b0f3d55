"""Recurrent cells of the authors' baselines as modules, (B, N, in) -> (B, N, D); each reads a row from left to right.

State and output before the first token are 0. Shape suffixes: see equations.py; G is all gates, concatenated.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import dropout, is_plain
from .attention_recurrent import for_each_slice, linear_recurrence
from .equations import in_graph
from .layers import mix


class GateMap(nn.Module):
    """W [x; h] + b in two parts: the input's, for all tokens at once, and the state's, token by token.

    In the authors' code W is one matrix, and both parts are initialised with its Glorot limit; b starts at
    ``bias_start``.
    """

    takes_int8 = False  # an LSTM reads the weights of these maps

    def __init__(self, in_features, size, out_features, *, bias_start=0.0):
        super().__init__()
        self.from_input = nn.Linear(in_features, out_features, bias=False)
        self.from_state = nn.Linear(size, out_features, bias=False)
        self.bias = nn.Parameter(torch.empty(out_features))
        self.bias_start = bias_start

    def forward(self, x: Tensor) -> Tensor:
        """The input's part, with the bias."""
        return self.from_input(x) + self.bias


class LSTM(nn.Module):
    """Long short-term memory as in TensorFlow: one bias per gate, and a constant 1 added to the forget gate.

    i, f, g, o = W [x_t; h_(t-1)] + b
    c_t = sigmoid(f + 1) c_(t-1) + sigmoid(i) tanh(g),   h_t = sigmoid(o) tanh(c_t)

    ``implementation="eager"`` is this equation; every other is torch's LSTM. Dropout applies to the input.
    """

    def __init__(self, in_features, size, *, dropout=0.0):
        super().__init__()
        self.gates = GateMap(in_features, size, 4 * size)
        self.size, self.dropout = size, dropout
        self.implementation = "auto"

    def forward(self, tokens_BNE: Tensor) -> Tensor:
        tokens_BNE = dropout(tokens_BNE, self.dropout, self.training)
        plain = is_plain(self.gates.from_input) and is_plain(self.gates.from_state)
        # torch.compile would unroll torch's LSTM, one graph for each length.
        if self.implementation == "eager" or not plain or torch.compiler.is_compiling():
            return self.token_by_token(tokens_BNE)
        bias = self.gates.bias
        tokens_BNE = tokens_BNE.to(bias.dtype)
        start_1BD = tokens_BNE.new_zeros(1, tokens_BNE.shape[0], self.size)
        # torch adds a second bias, which holds the 1 of the forget gates.
        opened = F.pad(bias.new_ones(self.size), (self.size, 2 * self.size))
        weights = [self.gates.from_input.weight, self.gates.from_state.weight, bias, opened]
        # cuDNN can differentiate only what was computed with train=True.
        train = torch.is_grad_enabled() and not in_graph()  # torch traces a second time without gradients
        options = {"dropout": 0.0, "train": train, "bidirectional": False, "batch_first": True}
        with torch.autocast("cpu", enabled=False):  # CPU autocast to float16 has no LSTM
            return torch.lstm(tokens_BNE, [start_1BD, start_1BD], weights, has_biases=True, num_layers=1, **options)[0]

    def token_by_token(self, tokens_BNE: Tensor) -> Tensor:
        inputs_NBG = self.gates(tokens_BNE).transpose(0, 1)
        start_BD = inputs_NBG.new_zeros(inputs_NBG.shape[1], self.size)

        def step(state, input_BG):
            output_BD, memory_BD = state
            i_BD, f_BD, g_BD, o_BD = (input_BG + self.gates.from_state(output_BD)).chunk(4, dim=-1)
            memory_BD = (f_BD + 1).sigmoid() * memory_BD + i_BD.sigmoid() * g_BD.tanh()
            output_BD = o_BD.sigmoid() * memory_BD.tanh()
            return (output_BD, memory_BD), output_BD

        return for_each_slice(step, (start_BD, start_BD.clone()), inputs_NBG)


class GRU(nn.Module):
    """Gated recurrent unit as in TensorFlow; torch's differs, with r_t * (U h_(t-1)) in the candidate.

    r_t, u_t = sigmoid(W [x_t; h_(t-1)] + b)
    k_t = tanh(V [x_t; r_t * h_(t-1)] + a),   h_t = u_t h_(t-1) + (1 - u_t) k_t

    Dropout applies to the input.
    """

    def __init__(self, in_features, size, *, dropout=0.0):
        super().__init__()
        self.gates = GateMap(in_features, size, 2 * size, bias_start=1.0)
        self.candidate = GateMap(in_features, size, size)
        self.size, self.dropout = size, dropout

    def forward(self, tokens_BNE: Tensor) -> Tensor:
        # Tokens first, so that the rows of one step are contiguous.
        tokens_NBE = dropout(tokens_BNE, self.dropout, self.training).transpose(0, 1)
        gates_NBG, candidates_NBD = self.gates(tokens_NBE), self.candidate(tokens_NBE)

        def step(state_BD, gates_BG, candidate_BD):
            gates_BG = (gates_BG + self.gates.from_state(state_BD)).sigmoid()
            reset_BD, update_BD = gates_BG.chunk(2, dim=-1)
            candidate_BD = (candidate_BD + self.candidate.from_state(reset_BD * state_BD)).tanh()
            state_BD = mix(state_BD, candidate_BD, update_BD)
            return state_BD, state_BD

        start_BD = candidates_NBD.new_zeros(candidates_NBD.shape[1:])
        return for_each_slice(step, start_BD, gates_NBG, candidates_NBD)


class FrozenNorm(nn.Module):
    """Batch normalisation with constant statistics: the authors never update them, so it is a scale and a shift."""

    def __init__(self, size):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(size)), nn.Parameter(torch.empty(size))
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("variance", torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight * torch.rsqrt(self.variance + 1e-3)
        return x * scale + (self.bias - self.mean * scale)


class SRU(nn.Module):
    """Simple recurrent unit (arXiv 1709.02755): products come before the recurrence, which is elementwise; in = D.

    y, f, r = W x_t,   f_t = sigmoid(f + b_f),   r_t = sigmoid(r + b_r)
    c_t = f_t c_(t-1) + (1 - f_t) y_t,   h_t = r_t tanh(c_t) + (1 - r_t) x_t

    Dropout applies separately to the input of W, to the results of W and to the x_t of the last term. With
    ``normalize`` (the authors' ``sru_normal``) W is followed by a :class:`FrozenNorm`, and x_t is dropped once for
    both uses.
    """

    def __init__(self, size, *, normalize=False, dropout=0.0):
        super().__init__()
        self.map = nn.Linear(size, 3 * size, bias=False)
        self.norm = FrozenNorm(3 * size) if normalize else None
        self.forget_bias, self.reset_bias = nn.Parameter(torch.empty(size)), nn.Parameter(torch.empty(size))
        self.dropout = dropout
        self.implementation = "auto"

    def forward(self, tokens_BND: Tensor) -> Tensor:
        dropped_BND = self.drop(tokens_BND)
        mapped_BNG = self.map(dropped_BND)
        if self.norm is None:
            mapped_BNG, dropped_BND = self.drop(mapped_BNG), self.drop(tokens_BND)
        else:
            mapped_BNG = self.norm(mapped_BNG)
        values_BND, forget_BND, reset_BND = mapped_BNG.chunk(3, dim=-1)
        forget_BND = (forget_BND + self.forget_bias).sigmoid()
        states_BND = linear_recurrence(forget_BND, values_BND, implementation=self.implementation)
        return mix(states_BND.tanh(), dropped_BND, (reset_BND + self.reset_bias).sigmoid())

    def drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout, self.training)
