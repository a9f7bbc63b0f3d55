"""The recurrent baselines: what is particular to their cells. What every encoder must do is in test_models."""

from pathlib import Path

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file
from test_models import make, pairs, parameters_without_embeddings, sentences
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from hf_blosan.models.layers_recurrent import GRU, LSTM, SRU
from hf_blosan.training.optim import l2_penalty
from reproduce.convert_tf_checkpoint import convert_model

CELLS = ("lstm", "gru", "sru", "sru_normal")
every_cell = pytest.mark.parametrize("cell", CELLS)


def make_cell(auto_class, cell, **fields):
    return make(auto_class, "birnn", cell=cell, **({"embedding_size": 6} | fields))


@pytest.mark.parametrize("cell, encoder", [("lstm", 2_163_600), ("gru", 1_803_000), ("sru", 1_262_400)])
def test_parameter_counts_of_the_encoders(cell, encoder):
    model = AutoModel.from_config(AutoConfig.for_model("birnn", vocab_size=10, cell=cell))
    assert parameters_without_embeddings(model) == encoder


@every_cell
@pytest.mark.parametrize("pooling", ["source2token", "additive"])
def test_padding_changes_nothing_wherever_it_stands(cell, pooling):
    """Behind, in front, and between the words; outputs at padding are 0."""
    model = make_cell(AutoModel, cell, pooling=pooling)
    ids = sentences(9)["input_ids"]
    plain = model(ids)
    for real in (range(9), range(4, 13), [0, 2, 3, 5, 6, 7, 10, 12, 15]):
        padded, mask = torch.full((1, 16), 7), torch.zeros(1, 16, dtype=torch.long)
        padded[0, list(real)], mask[0, list(real)] = ids[0], 1
        found = model(padded, attention_mask=mask)
        torch.testing.assert_close(found.pooler_output, plain.pooler_output, rtol=0, atol=1e-6)
        torch.testing.assert_close(found.last_hidden_state[:, list(real)], plain.last_hidden_state, rtol=0, atol=1e-6)
        assert (found.last_hidden_state[mask == 0] == 0).all()


@every_cell
def test_each_direction_reads_its_own_way(cell):
    """The backward cell does to a sentence what it would do forward to the sentence reversed."""
    context = make_cell(AutoModel, cell).context
    hidden = torch.randn(2, 7, 6)
    tokens, _ = context(hidden)
    cells = context.layers[0].directions
    torch.testing.assert_close(tokens[..., :6], cells[0](hidden))
    torch.testing.assert_close(tokens[..., 6:], cells[1](hidden.flip(1)).flip(1))
    changed = hidden.clone()
    changed[:, 3] += 1
    difference = (context(changed)[0] - tokens).abs().amax((0, 2))
    moved = [(context(changed)[0] - tokens)[..., half].abs().amax((0, 2)) > 0 for half in (slice(6), slice(6, 12))]
    assert moved[0].tolist() == [i >= 3 for i in range(7)] and moved[1].tolist() == [i <= 3 for i in range(7)]
    assert (difference > 0).all()


@pytest.mark.parametrize("directions", [["forward"], ["backward"]])
def test_one_direction(directions):
    model = make_cell(AutoModel, "gru", directions=directions, hidden_size=8)
    assert model(**sentences(5, 3)).pooler_output.shape == (2, 8)


def random_cell(cell, in_features=5, size=5, dtype=torch.float64):
    torch.manual_seed(0)
    module = SRU(size, normalize=cell == "sru_normal") if "sru" in cell else {"lstm": LSTM, "gru": GRU}[cell](5, size)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return module.to(dtype).eval()


def test_the_equations():
    """Each cell against its equations for one token after another, with W and U read off its maps."""
    x, h = torch.randn(2, 6, 5, dtype=torch.float64), torch.zeros(2, 5, dtype=torch.float64)

    def gates(map_, x, h, number):
        both = x @ map_.from_input.weight.T + h @ map_.from_state.weight.T + map_.bias
        return both.chunk(number, dim=-1)

    lstm, memory, state, expected = random_cell("lstm"), h, h, []
    for t in range(6):
        i, f, g, o = gates(lstm.gates, x[:, t], state, 4)
        memory = (f + 1).sigmoid() * memory + i.sigmoid() * g.tanh()
        state = o.sigmoid() * memory.tanh()
        expected.append(state)
    torch.testing.assert_close(lstm(x), torch.stack(expected, 1))

    gru, state, expected = random_cell("gru"), h, []
    for t in range(6):
        r, u = (gate.sigmoid() for gate in gates(gru.gates, x[:, t], state, 2))
        (k,) = gates(gru.candidate, x[:, t], r * state, 1)
        state = u * state + (1 - u) * k.tanh()
        expected.append(state)
    torch.testing.assert_close(gru(x), torch.stack(expected, 1))

    for name in ("sru", "sru_normal"):
        sru, memory, expected = random_cell(name), h, []
        for t in range(6):
            mapped = x[:, t] @ sru.map.weight.T
            if sru.norm is not None:
                mapped = mapped * sru.norm.weight / 1.001**0.5 + sru.norm.bias
            y, f, r = mapped.chunk(3, dim=-1)
            f, r = (f + sru.forget_bias).sigmoid(), (r + sru.reset_bias).sigmoid()
            memory = f * memory + (1 - f) * y
            expected.append(r * memory.tanh() + (1 - r) * x[:, t])
        torch.testing.assert_close(sru(x), torch.stack(expected, 1))


@pytest.mark.parametrize("length", [1, 2, 63])
def test_torchs_lstm_is_the_equation(length):
    torch.manual_seed(0)
    x, grad = torch.randn(4, length, 5), torch.randn(4, length, 5)

    def results(implementation, dtype):
        module, leaf = random_cell("lstm", dtype=dtype), x.to(dtype, copy=True).requires_grad_()
        module.implementation = implementation
        out = module(leaf)
        out.backward(grad.to(dtype))
        return [value.detach().double() for value in (out, leaf.grad, *(p.grad for p in module.parameters()))]

    for fast, exact in zip(results("auto", torch.float32), results("eager", torch.float64), strict=True):
        torch.testing.assert_close(fast, exact, rtol=0, atol=1e-5 * float(exact.abs().max()))


@every_cell
def test_hooked_maps_are_called(cell):
    """Adapters and hooks stand at dense layers: a cell with one calls it, and gives the same."""
    module, hooked, seen = random_cell(cell), random_cell(cell), set()
    dense = {name: m for name, m in hooked.named_modules() if isinstance(m, torch.nn.Linear)}
    for name, layer in dense.items():
        layer.register_forward_hook(lambda *_, name=name: seen.add(name))
    x = torch.randn(2, 6, 5, dtype=torch.float64)
    torch.testing.assert_close(hooked(x), module(x))
    assert seen == set(dense)


@every_cell
def test_trains_and_survives_saving(cell, tmp_path):
    model = make_cell(AutoModelForSequenceClassification, cell, num_sentences=2, num_labels=2, dropout=0.1).train()
    batch, labels = pairs((6, 4), (2, 9)), torch.tensor([0, 1])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = model(**batch, labels=labels).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    model.eval().save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert loaded.config.cell == cell
    assert torch.equal(loaded(**batch).logits, model(**batch).logits)


@every_cell
def test_checkpointing_changes_no_gradient(cell):
    gradients = []
    for checkpointing in (False, True):
        model = make_cell(AutoModel, cell, dropout=0.3).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        torch.manual_seed(1)
        model(**sentences(9, 4)).pooler_output.square().sum().backward()
        gradients.append([p.grad for p in model.context.parameters()])
    for plain, checkpointed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, checkpointed)


@every_cell
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision(cell, dtype):
    model, batch = make_cell(AutoModel, cell), sentences(20, 7)
    exact = model(**batch).pooler_output
    with torch.autocast("cpu", dtype):
        rough = model(**batch).pooler_output
    torch.testing.assert_close(rough.float(), exact, rtol=0, atol=0.02)
    rough.float().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.context.parameters())
    whole = model.to(dtype)(**batch).pooler_output
    torch.testing.assert_close(whole.float(), exact, rtol=0, atol=0.02)


@every_cell
def test_initialisation(cell):
    """Glorot over the matrix that the authors' code has, biases 0, but 1 at the gates of a GRU."""
    direction = make_cell(AutoModel, cell, embedding_size=80, hidden_size=160).context.layers[0].directions[1]
    fans = {"lstm": {"gates": 480}, "gru": {"gates": 320, "candidate": 240}}.get(cell, {"map": 320})
    for name, parameter in direction.named_parameters():
        part = name.partition(".")[0]
        if part == "norm":
            assert (parameter == (1 if name.endswith("weight") else 0)).all()
        elif name.endswith("bias"):
            assert (parameter == (1 if (cell, part) == ("gru", "gates") else 0)).all(), name
        else:
            bound = (6 / fans[part]) ** 0.5
            assert 0.95 * bound < parameter.abs().max() <= bound, name


@every_cell
def test_the_cell_is_read_off_the_authors_variables(cell):
    tensors = load_file(Path(__file__).parent / "golden" / f"enc_{cell}.safetensors")
    weights = {name.removeprefix("weight/"): x for name, x in tensors.items() if name.startswith("weight/")}
    model = convert_model("birnn", weights | {"emb_mat": torch.zeros(3, 12)}, activation="relu")
    assert (model.config.cell, model.config.hidden_size, model.config.embedding_size) == (cell, 24, 12)
    found = model(inputs_embeds=tensors["input/x"], attention_mask=tensors["input/mask"]).pooler_output
    torch.testing.assert_close(found, tensors["output"], rtol=0, atol=1e-5)


@every_cell
def test_l2_counts_the_matrices(cell):
    model = make_cell(AutoModel, cell)
    matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and "word_embeddings" not in name]
    expected = sum(p.square().sum() for p in matrices) / 2
    torch.testing.assert_close(l2_penalty(model, 1.0), expected)


@every_cell
def test_dropout(cell):
    """Of the input, in training only, anew for every token; where all is dropped, a row might be 0 as well."""
    module, x = random_cell(cell), torch.randn(1, 1, 5, dtype=torch.float64).expand(20, 1, 5)
    module.dropout = 0.5
    assert torch.equal(module(x), random_cell(cell)(x))
    assert module.train()(x).std(0).min() > 0.01
    module.dropout = 1 - 1e-12
    torch.testing.assert_close(module(x), module(torch.zeros_like(x)))


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"cell": "rnn"}, "cell"),
        (
            {"directions": ["forward", "diagonal"]},
            "an entry of directions is 'diagonal'; choose one of forward, backward",
        ),
        ({"directions": []}, "hidden_size=12 does not divide"),
        ({"cell": "sru", "embedding_size": 10, "hidden_size": 12}, "as wide as its input; set hidden_size=20"),
        ({"cell": "sru_normal", "embedding_size": 6, "hidden_size": 6}, "set hidden_size=12"),
        ({"num_hidden_layers": 2, "cell": "sru"}, "num_hidden_layers=2.*cannot be stacked"),
        ({"windows": [3, 3]}, "windows"),
    ],
)
def test_impossible_configurations_are_refused(fields, message):
    with pytest.raises(StrictDataclassError, match=message):
        AutoConfig.for_model("birnn", **({"hidden_size": 12} | fields))
