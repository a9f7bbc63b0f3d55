"""What every encoder and head must do, run for each of them."""

import pickle
from importlib import import_module

import fresh
import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from hf_blosan import AutoModelForPairRegression
from hf_blosan.models.equations import in_blocks
from hf_blosan.registry import FAMILIES

# Encoders by name: model type and fields without which it would not be this encoder, or none of the sizes below.
SYSTEMS = {model_type: (model_type, {}) for model_type in FAMILIES} | {
    "textcnn-max": ("textcnn", {"pooling": "max"}),
    "textcnn-hierarchical": ("textcnn", {"architecture": "hierarchical"}),
    "wordbag": ("wordbag", {"dense_map": True}),
    "multihead": ("multihead", {"num_heads": 4}),
    "multihead-relu": ("multihead", {"num_heads": 4, "variant": "relu"}),
}
MODEL_TYPES = list(SYSTEMS)
# Those in which tokens attend to one another under order masks.
ORDER_MASKED = ("disan", "biblosan", "mtsa")
SMALL = {"vocab_size": 60, "embedding_size": 10, "hidden_size": 12, "classifier_size": 8}
every_encoder = pytest.mark.parametrize("model_type", MODEL_TYPES)
every_formulation = pytest.mark.parametrize("formulation", ["released", "paper"])


def make(auto_class, model_type, seed=0, **fields):
    torch.manual_seed(seed)
    model_type, needed = SYSTEMS[model_type]
    return auto_class.from_config(AutoConfig.for_model(model_type, **(SMALL | needed | fields))).eval()


def sentences(*lengths, seed=0):
    """A padded batch of random sentences."""
    torch.manual_seed(seed)
    ids = torch.randint(2, SMALL["vocab_size"], (len(lengths), max(lengths)))
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return {"input_ids": ids * mask, "attention_mask": mask.long()}


def pairs(*lengths, seed=0):
    """A padded batch of random pairs, the way a tokenizer lays them out."""
    batch = sentences(*(first + second for first, second in lengths), seed=seed)
    positions = torch.arange(batch["input_ids"].shape[1])
    is_second = positions >= torch.tensor([first for first, _ in lengths])[:, None]
    return {**batch, "token_type_ids": (is_second & batch["attention_mask"].bool()).long()}


@every_encoder
@every_formulation
def test_padding_and_neighbours_change_nothing(model_type, formulation):
    model = make(AutoModel, model_type, formulation=formulation)
    batch = sentences(11, 5, 1)
    together = model(**batch)
    wider = {name: torch.nn.functional.pad(value, (0, 14)) for name, value in batch.items()}
    wider["input_ids"] = torch.where(wider["attention_mask"].bool(), wider["input_ids"], 7)  # any id may stand there
    torch.testing.assert_close(model(**wider).pooler_output, together.pooler_output, rtol=0, atol=1e-6)
    for row, length in enumerate((11, 5, 1)):
        alone = model(batch["input_ids"][row : row + 1, :length])
        torch.testing.assert_close(alone.pooler_output[0], together.pooler_output[row], rtol=0, atol=1e-6)
        tokens = together.last_hidden_state[row, :length]
        torch.testing.assert_close(alone.last_hidden_state[0], tokens, rtol=0, atol=1e-6)


@every_encoder
@every_formulation
def test_padding_on_the_left_changes_nothing(model_type, formulation):
    model = make(AutoModel, model_type, formulation=formulation)
    ids = sentences(9)["input_ids"]
    mask = torch.ones_like(ids)
    left = {"input_ids": torch.nn.functional.pad(ids, (4, 3)), "attention_mask": torch.nn.functional.pad(mask, (4, 3))}
    plain, padded = model(ids), model(**left)
    torch.testing.assert_close(padded.pooler_output, plain.pooler_output, rtol=0, atol=1e-6)
    torch.testing.assert_close(padded.last_hidden_state[:, 4:-3], plain.last_hidden_state, rtol=0, atol=1e-6)


@every_encoder
def test_models_can_be_pickled(model_type):
    model = make(AutoModelForSequenceClassification, model_type)
    batch = sentences(6, 4)
    assert torch.equal(pickle.loads(pickle.dumps(model))(**batch).logits, model(**batch).logits)


@pytest.mark.parametrize("model_type", ORDER_MASKED)
def test_word_order_matters_only_with_order_masks(model_type):
    batch = sentences(9)
    reverse = {"input_ids": batch["input_ids"].flip(1)}
    ordered = make(AutoModel, model_type)
    unordered = make(AutoModel, model_type, directions=["diagonal", "diagonal"])
    changes = [
        (model(**batch).pooler_output - model(**reverse).pooler_output).abs().max() for model in (ordered, unordered)
    ]
    assert changes[0] > 1e-3
    if model_type != "biblosan":  # which words share a block depends on order whatever the masks are
        assert changes[1] < 1e-6


@every_encoder
@every_formulation
@pytest.mark.parametrize("pooling", ["source2token", "additive"])
def test_maps_and_states(model_type, formulation, pooling):
    model = make(AutoModel, model_type, formulation=formulation, pooling=pooling)
    batch = sentences(11, 5)
    output = model(**batch, output_attentions=True, output_hidden_states=True)
    num_layers = model.config.num_hidden_layers
    assert [tuple(state.shape) for state in output.hidden_states] == [(2, 11, 10)] + num_layers * [(2, 11, 12)]
    assert torch.equal(output.hidden_states[-1], output.last_hidden_state)
    levels = {"disan": [(2, 2, 11, 11, 6)], "mtsa": [(2, 2, 11, 11, 6)]}
    levels["biblosan"] = [(2, 2, 3, 5, 5, 6), (2, 2, 3, 5, 6), (2, 2, 3, 3, 6)]
    levels["multihead"] = levels["multihead-relu"] = [(2, 4, 11, 11)]
    assert [tuple(level.shape) for level in output.attentions] == levels.get(model_type, [])
    keys_axis = {"disan": [-2], "mtsa": [-2], "biblosan": [-2, -2, -2], "multihead": [-1], "multihead-relu": [-1]}
    keys_axis = keys_axis.get(model_type, [])
    for level, axis in zip(output.attentions, keys_axis, strict=True):
        total = level.sum(axis)
        assert ((total - 1).abs().lt(1e-5) | total.eq(0)).all()  # a query's weights sum to 1, or it sees nothing
    for gate in output.gates:
        assert ((gate >= 0) & (gate <= 1)).all()
    gated = {"disan": True, "biblosan": True, "mtsa": formulation == "released", "textcnn-hierarchical": True}
    assert bool(output.gates) == gated.get(model_type, False)
    torch.testing.assert_close(output.pooler_attentions.sum(1), torch.ones_like(output.pooler_attentions[:, 0]))
    pooled = (output.pooler_attentions * output.last_hidden_state).sum(1)
    torch.testing.assert_close(pooled, output.pooler_output)
    plain = model(**batch)
    assert plain.attentions is None and plain.gates is None and plain.hidden_states is None
    torch.testing.assert_close(plain.pooler_output, output.pooler_output)


@pytest.mark.parametrize("model_type", ORDER_MASKED)
def test_maps_reproduce_the_attention(model_type):
    """The maps are what the model used: averaging the values with them gives what its attention gave."""
    model = make(AutoModel, model_type)
    seen = {}
    layer = model.context.layers[0]
    if model_type == "mtsa":
        layer.attention.value_map.register_forward_hook(
            lambda m, i, o: seen.__setitem__("values", torch.nn.functional.elu(o))
        )
        layer.attention.gate.register_forward_hook(lambda m, i, o: seen.__setitem__("inputs", i[0]))
        maps = model(**sentences(7, 4), output_attentions=True).attentions[0]
        attended = seen["inputs"][..., 6:]
        torch.testing.assert_close(torch.einsum("bhijd,bhjd->bhid", maps, seen["values"]), attended)
        return
    modules = [d.attention if model_type == "disan" else d.block_attention for d in layer.directions]
    for position, module in enumerate(modules):
        module.register_forward_hook(lambda m, i, o, position=position: seen.__setitem__(position, (i[0], o)))
    model(**sentences(7, 4))
    results = dict(seen)
    maps = model(**sentences(7, 4), output_attentions=True).attentions[0]
    for position, (values, attended) in results.items():
        weights = maps[:, position]
        if model_type == "biblosan":
            values, weights = in_blocks(values, layer.directions[position].block_length), weights.flatten(0, 1)
        found = torch.einsum("bijd,bjd->bid", weights, values).reshape(len(maps), -1, attended.shape[-1])
        torch.testing.assert_close(found[:, : attended.shape[1]], attended)


@every_encoder
@every_formulation
def test_pairs_are_two_sentences(model_type, formulation):
    """A pair gives what its sentences give apart, whatever surrounds them in the batch."""
    fields = {"num_sentences": 2, "num_labels": 3, "formulation": formulation}
    model = make(AutoModelForSequenceClassification, model_type, **fields)
    lengths = ((6, 4), (2, 9), (3, 1))
    batch = pairs(*lengths)
    logits = model(**batch).logits
    for row, (first, second) in enumerate(lengths):
        ids = batch["input_ids"][row]
        u, v = (model.model(part[None]).pooler_output for part in (ids[:first], ids[first : first + second]))
        torch.testing.assert_close(model.classifier([u, v])[0], logits[row], rtol=0, atol=1e-6)


@every_encoder
def test_pair_regression(model_type):
    fields = {"num_sentences": 2, "score_min": 0.0, "score_max": 5.0, "num_score_classes": 6}
    model = make(AutoModelForPairRegression, model_type, **fields)
    batch, scores = pairs((6, 4), (2, 9)), torch.tensor([0.5, 4.2])
    output = model(**batch, labels=scores)
    assert output.logits.shape == (2, 1) and ((output.logits >= 0) & (output.logits <= 5)).all()
    assert model.config.num_labels == 1 and model.config.problem_type == "regression"
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        output = model(**batch, labels=scores)
        output.loss.backward()
        optimizer.step()
    torch.testing.assert_close(output.logits[:, 0], scores, rtol=0, atol=0.1)


@every_encoder
def test_empty_sentences(model_type):
    """Padding only, no width at all, a pair with an empty half: finite numbers and gradients."""
    model = make(AutoModel, model_type)
    mixed = sentences(5, 1)
    mixed["attention_mask"][1] = 0
    assert (model(**mixed).pooler_output[1] == 0).all()
    assert model(torch.empty(2, 0)).pooler_output.shape == (2, 12)  # what a tokenizer makes of two empty texts
    classifier = make(AutoModelForSequenceClassification, model_type, num_sentences=2, num_labels=3)
    output = classifier(**pairs((0, 3), (4, 0), (0, 0)), labels=torch.tensor([0, 1, 2]))
    assert torch.isfinite(output.logits).all()
    output.loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in classifier.parameters() if p.grad is not None)
    nothing = torch.empty(1, 0)
    assert torch.isfinite(classifier(nothing, attention_mask=nothing, token_type_ids=nothing).logits).all()


@every_encoder
def test_a_pair_needs_type_ids(model_type):
    model = make(AutoModelForSequenceClassification, model_type, num_sentences=2)
    with pytest.raises(ValueError, match="needs token_type_ids .* tokenize pairs as"):
        model(**sentences(4, 3))
    with pytest.raises(ValueError, match="either input_ids or inputs_embeds"):
        model.model()


@every_encoder
def test_inputs_embeds(model_type):
    model = make(AutoModelForSequenceClassification, model_type, num_sentences=2)
    batch = pairs((6, 4), (2, 9))
    vectors = model.get_input_embeddings()(batch["input_ids"])
    rest = {name: value for name, value in batch.items() if name != "input_ids"}
    torch.testing.assert_close(model(inputs_embeds=vectors, **rest).logits, model(**batch).logits)


@every_encoder
def test_context_works_alone(model_type):
    """A drop-in context layer: vectors and mask in, vectors out; without a mask every token is real."""
    context = make(AutoModel, model_type).context
    hidden = torch.randn(2, 7, 10)
    tokens, maps = context(hidden)
    assert tokens.shape == (2, 7, 12) and maps is None
    torch.testing.assert_close(context(hidden, torch.ones(2, 7))[0], tokens)


@every_encoder
def test_tuple_output(model_type):
    model = make(AutoModelForSequenceClassification, model_type)
    batch = sentences(4, 3)
    loss, logits = model(**batch, labels=torch.tensor([0, 1]), return_dict=False)
    assert torch.equal(logits, model(**batch).logits) and loss.dim() == 0


RELOAD = """
import sys, torch, hf_blosan
from transformers import AutoModelForSequenceClassification
batch, found = torch.load(sys.argv[1]), []
for folder in sys.argv[3:]:
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    found.append((type(model).__name__, model(**batch).logits))
torch.save(found, sys.argv[2])
"""


def test_saved_models_load_bit_equal_in_a_fresh_process(tmp_path):
    """Every model with every head, by the Auto class that tools use."""
    fields = {"num_sentences": 2, "embedding_trainable": "train_words", "num_fixed_embeddings": 20}
    heads = (AutoModelForSequenceClassification, AutoModelForPairRegression)
    models = [make(head, model_type, **fields) for model_type in MODEL_TYPES for head in heads]
    for number, model in enumerate(models):
        model.load_word_vectors(torch.randn(60, 10))
        model.save_pretrained(tmp_path / str(number))
    batch = pairs((6, 4), (2, 9))
    torch.save(batch, tmp_path / "batch.pt")
    paths = [str(tmp_path / name) for name in ("batch.pt", "out.pt", *map(str, range(len(models))))]
    fresh.run(RELOAD, *paths, cwd=tmp_path).check_returncode()
    for (name, logits), model in zip(torch.load(tmp_path / "out.pt"), models, strict=True):
        assert name == type(model).__name__
        assert torch.equal(logits, model(**batch).logits)


def parameters_without_embeddings(model):
    return sum(p.numel() for name, p in model.named_parameters() if "embeddings" not in name)


@every_encoder
def test_initialisation(model_type):
    """Glorot uniform matrices, zero biases, word vectors U(-0.05, 0.05) with a zero vector for padding."""
    model = make(AutoModel, model_type, embedding_size=80, hidden_size=168)
    for name, parameter in model.named_parameters():
        if ".convolution" in name or ".gates." in name or ("multihead" in model_type and "context" in name):
            continue  # see test_textcnn, test_birnn, test_multihead
        elif name.endswith("bias"):
            assert (parameter == 0).all(), name
        elif "word_embeddings" in name:
            assert (parameter[0] == 0).all() and 0.04 < parameter.abs().max() <= 0.05
        else:
            bound = (6 / sum(parameter.shape[-2:])) ** 0.5
            assert 0.95 * bound < parameter.abs().max() <= bound, name


def test_embeddings_layout(tmp_path):
    """[PAD] and [UNK] zero, training words trained, further words as given and without gradient."""
    fields = {"embedding_trainable": "train_words", "num_fixed_embeddings": 20}
    model = make(AutoModel, "disan", **fields)
    matrix = torch.randn(60, 10)
    model.load_word_vectors(matrix)
    ids = torch.tensor([[0, 1, 2, 39, 40, 59]])
    vectors = model.embeddings(ids)
    assert (vectors[0, :2] == 0).all() and torch.equal(vectors[0, 2:], matrix[ids[0, 2:]])
    model(ids, attention_mask=torch.ones(1, 6)).pooler_output.sum().backward()
    rows = model.get_input_embeddings().weight.grad.abs().sum(1).nonzero().flatten().tolist()
    assert rows == [2, 39]
    with pytest.raises(ValueError, match="word vectors of shape"):
        model.load_word_vectors(matrix[:-1])
    with pytest.raises(ValueError, match="rows .* hold fixed word vectors"):
        model.resize_token_embeddings(70)
    frozen = make(AutoModel, "disan", embedding_trainable="none")
    frozen(ids).pooler_output.sum().backward()
    assert frozen.get_input_embeddings().weight.grad is None
    frozen.save_pretrained(tmp_path)
    assert not AutoModel.from_pretrained(tmp_path).get_input_embeddings().weight.requires_grad


def test_embedding_dropout_drops_whole_words():
    embeddings = make(AutoModel, "disan", embedding_dropout=0.25).embeddings
    ids = torch.randint(2, 60, (50, 40))
    whole, dropped = embeddings.eval()(ids), embeddings.train()(ids)
    kept = (dropped != 0).any(-1)
    torch.testing.assert_close(dropped[kept], whole[kept] / 0.75)
    assert 0.7 < kept.float().mean() < 0.8


def test_resize_token_embeddings():
    model = make(AutoModel, "disan")
    model.resize_token_embeddings(64)
    assert model.config.vocab_size == 64 and model(torch.tensor([[63, 2]])).pooler_output.shape == (1, 12)


@every_encoder
def test_gradient_checkpointing_changes_no_gradient(model_type):
    batch = sentences(6, 4)
    gradients = []
    for checkpointing in (False, True):
        model = make(AutoModelForSequenceClassification, model_type).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        model(**batch, labels=torch.tensor([0, 1])).loss.backward()
        gradients.append([p.grad for p in model.parameters()])
    for plain, checkpointed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, checkpointed)


@every_encoder
def test_dropout_only_in_training(model_type):
    model = make(AutoModel, model_type, dropout=0.5)
    batch = sentences(6, 4)
    assert torch.equal(model(**batch).pooler_output, model(**batch).pooler_output)
    model.train()
    assert not torch.equal(model(**batch).pooler_output, model(**batch).pooler_output)


@every_encoder
def test_bfloat16(model_type):
    model = make(AutoModelForSequenceClassification, model_type)
    batch = sentences(6, 4)
    exact = model(**batch).logits
    rough = model.to(torch.bfloat16)(**batch, labels=torch.tensor([0, 1]))
    torch.testing.assert_close(rough.logits.float(), exact, rtol=0, atol=0.05)
    rough.loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@every_encoder
@every_formulation
def test_autocast(model_type, formulation):
    fields = {"formulation": formulation, "classifier_highway": True}
    model = make(AutoModelForSequenceClassification, model_type, **fields)
    batch = sentences(6, 4)
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(**batch, labels=torch.tensor([0, 1]))
    torch.testing.assert_close(rough.logits.float(), model(**batch).logits, rtol=0, atol=0.05)
    rough.loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("features, vectors", [("released", 4), ("absolute", 4), ("both", 5)])
def test_features_of_pairs(features, vectors):
    """Which of u - v and |u - v| are between [u; v] and u * v; saved with the model."""
    fields = {"num_sentences": 2, "pair_features": features}
    model = make(AutoModelForSequenceClassification, "disan", **fields)
    u, v = torch.randn(2, 3, model.config.hidden_size)
    differences = {"released": [u - v], "absolute": [(u - v).abs()], "both": [u - v, (u - v).abs()]}[features]
    expected = torch.cat([u, v, *differences, u * v], dim=1)
    given = []
    model.classifier.hidden.register_forward_pre_hook(lambda module, inputs: given.append(inputs[0]))
    model.classifier([u, v])
    torch.testing.assert_close(given[0], expected)
    assert model.classifier.hidden.in_features == vectors * model.config.hidden_size
    assert model.config.to_diff_dict().get("pair_features", "released") == features


def test_released_bi_blosan_depends_on_padding():
    """The authors' behaviour is there to be had, and ours differs from it where they differ from themselves."""
    batch = sentences(11, 4)
    wider = {name: torch.nn.functional.pad(value, (0, 10)) for name, value in batch.items()}
    released = make(AutoModel, "biblosan", mask_padding_blocks=False)
    assert (released(**wider).pooler_output - released(**batch).pooler_output).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": torch.ones(5, dtype=torch.long)}, r"give input_ids \(B, N\) .*; they have shape \(5,\)"),
        ({"inputs_embeds": torch.ones(2, 5)}, r"give inputs_embeds \(B, N, embedding_size\)"),
        (
            {"input_ids": torch.ones(1, 2, dtype=torch.long), "attention_mask": torch.tensor([[0.0, -1e9]])},
            "attention_mask has values below 0; give 1 at real tokens",
        ),
    ],
)
def test_inputs_of_other_kinds_are_refused(inputs, message):
    with pytest.raises(ValueError, match=message):
        make(AutoModel, "disan")(**inputs)


@pytest.mark.parametrize("model_type", FAMILIES)
@pytest.mark.parametrize("output_attentions", [False, True])
def test_batches_without_rows(model_type, output_attentions):
    model = make(AutoModel, model_type).eval()
    output = model(torch.ones(0, 7, dtype=torch.long), output_attentions=output_attentions)
    assert output.pooler_output.shape == (0, model.config.hidden_size)


@pytest.mark.parametrize("num_sentences", [1, 2])
def test_a_batch_is_prepared_once(num_sentences, monkeypatch):
    model, calls = make(AutoModelForSequenceClassification, "disan", num_sentences=num_sentences), []
    modules = [import_module(f"hf_blosan.models.{name}") for name in ("embeddings", "encoder", "heads")]
    for module in (module for module in modules if hasattr(module, "prepare_inputs")):
        prepare = module.prepare_inputs
        monkeypatch.setattr(module, "prepare_inputs", lambda *given, own=prepare: calls.append(given) or own(*given))
    model(**(pairs((3, 4), (5, 1)) if num_sentences == 2 else sentences(3, 5)))
    assert len(calls) == 1


def test_a_pair_needs_its_score():
    model = make(AutoModelForPairRegression, "disan", num_sentences=2)
    ids = torch.ones(2, 4, dtype=torch.long)
    with pytest.raises(RuntimeError, match="shape"):
        model(ids, token_type_ids=torch.tensor([[0, 0, 1, 1]] * 2), labels=torch.tensor([3.0]))


def test_pair_regression_needs_pairs():
    with pytest.raises(ValueError, match="set num_sentences=2, not 1"):
        make(AutoModelForPairRegression, "disan")
