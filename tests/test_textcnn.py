"""The convolutional baselines: windows, maximum over time, gated layers. What all encoders do: test_models."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from test_convert_tf_checkpoint import variables
from test_models import make, sentences
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from hf_blosan.errors import InputError
from hf_blosan.training.optim import build_optimizer, l2_penalty
from reproduce.convert_tf_checkpoint import convert_model

VARIANTS = ("textcnn", "textcnn-max", "textcnn-hierarchical")
every_variant = pytest.mark.parametrize("variant", VARIANTS)


@pytest.mark.parametrize(
    "fields, expected",
    [
        ({"pooling": "max"}, 720_600),
        ({}, 1_441_800),
        ({"architecture": "hierarchical", "hidden_size": 300}, 2_882_400),
    ],
)
def test_parameter_counts_of_the_encoders(fields, expected):
    model = AutoModel.from_config(AutoConfig.for_model("textcnn", vocab_size=10, **fields))
    assert sum(p.numel() for name, p in model.named_parameters() if "embeddings" not in name) == expected


@pytest.mark.parametrize("length", [1, 2, 4, 5, 9])
def test_maximum_over_the_windows_inside_the_sentence(length):
    """Kim's model written out; windows that a short sentence does not fill end in zero vectors."""
    model = make(AutoModel, "textcnn-max", activation="tanh")
    batch = sentences(9, length)
    words = model.embeddings(batch["input_ids"])[1, :length]
    expected = []
    for window, convolution in model.context.layers[0].convolutions.items():
        filled = F.pad(words, (0, 0, 0, max(0, int(window) - length)))
        windows = filled.unfold(0, int(window), 1)  # (starts, features, window)
        features = torch.einsum("sew,oew->so", windows, convolution.weight) + convolution.bias
        expected.append(features.tanh().amax(0))
    output = model(**batch, output_attentions=True)
    torch.testing.assert_close(output.pooler_output[1], torch.cat(expected))
    fits = output.pooler_attentions[1].sum(-1).nonzero().max()
    assert fits < max(1, length - 2)  # no window starts where fewer than 3 words are left


def test_tokens_are_their_windows():
    """The length-preserving form: 3 words around a token, 4 with one more behind."""
    model = make(AutoModel, "textcnn", filter_sizes=[3, 4], activation="linear")
    batch = sentences(7)
    tokens = model(**batch).last_hidden_state[0]
    words = F.pad(model.embeddings(batch["input_ids"])[0], (0, 0, 1, 2))
    first, second = model.context.layers[0].convolutions.values()
    for i in range(7):
        around = [
            F.linear(words[i : i + k].T.flatten(), c.weight.flatten(1), c.bias) for k, c in ((3, first), (4, second))
        ]
        torch.testing.assert_close(tokens[i], torch.cat(around))


def test_gated_layers_as_printed():
    """formulation="paper": x + a * sigmoid(b) without another activation, no residual around the first layer."""
    model = make(AutoModel, "textcnn-hierarchical", formulation="paper", num_hidden_layers=2)
    output = model(**sentences(7), output_hidden_states=True, output_attentions=True)
    x, first, second = output.hidden_states
    for i, (before, after) in enumerate(((x, first), (first, second))):
        convolution = model.context.layers[i].convolution
        both = F.conv1d(before.mT, convolution.weight, convolution.bias, padding=2)
        expected = F.glu(both, dim=1).mT + (before if i else 0)
        torch.testing.assert_close(after, expected)
        torch.testing.assert_close(output.gates[i], both.mT.chunk(2, -1)[1].sigmoid())


@every_variant
def test_masked_words_are_no_words(variant):
    """Padding between words changes as little as padding around them."""
    model = make(AutoModel, variant)
    ids = sentences(9)["input_ids"]
    mask = torch.tensor([[0, 1, 1, 0, 0, 1, 1, 1, 0]])
    expected = model(ids[mask.bool()][None])
    output = model(ids, attention_mask=mask)
    torch.testing.assert_close(output.pooler_output, expected.pooler_output)
    torch.testing.assert_close(output.last_hidden_state[mask.bool()], expected.last_hidden_state[0])


@pytest.mark.parametrize("variant", ["textcnn-max", "textcnn-hierarchical"])
def test_released_models_depend_on_padding(variant):
    """The authors' behaviour is there to be had; without padding it is ours."""
    batch = sentences(11, 11)
    wider = {name: F.pad(value, (0, 10)) for name, value in batch.items()}
    ours, released = make(AutoModel, variant), make(AutoModel, variant, mask_padding=False)
    torch.testing.assert_close(released(**batch).pooler_output, ours(**batch).pooler_output)
    assert (released(**wider).pooler_output - released(**batch).pooler_output).abs().max() > 1e-4


def test_equal_maxima_share_weight_and_gradient():
    model = make(AutoModel, "textcnn-max")
    word = model.embeddings(torch.tensor([[7]]))
    vectors = word.detach().repeat(1, 8, 1).requires_grad_()
    output = model(inputs_embeds=vectors, output_attentions=True)
    window = output.pooler_attentions[0, :, 0]  # the windows of 3 words start at the first 6
    torch.testing.assert_close(window, torch.tensor([1 / 6] * 6 + [0.0] * 2))
    output.pooler_output[0, 0].backward()
    torch.testing.assert_close(vectors.grad[0, 2], vectors.grad[0, 5])


@every_variant
def test_initialisation(variant):
    """Glorot uniform with the authors' kernels (window, in, 1, out) and biases without an initialiser of their own."""
    model = make(AutoModel, variant, embedding_size=30, hidden_size=180)
    for name, parameter in model.context.named_parameters():
        size = len(parameter)
        _, in_features, window = parameter.shape if parameter.dim() == 3 else (size, 0, 0)
        bound = (6 / (window * in_features * (1 + size) or 2 * size)) ** 0.5
        assert 0.95 * bound < parameter.abs().max() <= bound, name


@every_variant
def test_weights_are_regularised_once_and_biases_not(variant):
    model = make(AutoModelForSequenceClassification, variant, num_sentences=2)
    matrices = [p for name, p in model.named_parameters() if name.endswith("weight") and "embeddings" not in name]
    expected = 0.01 * sum(p.double().square().sum() for p in matrices) / 2
    torch.testing.assert_close(l2_penalty(model, 0.01).double(), expected, rtol=1e-6, atol=0)
    groups = build_optimizer(model, "adamw", 0.1, weight_decay=0.5, embedding_learning_rate=0.02).param_groups
    assert [(group["weight_decay"], group["lr"]) for group in groups] == [(0.5, 0.1), (0.0, 0.1), (0.0, 0.02)]
    assert {id(p) for p in groups[0]["params"]} == {id(p) for p in matrices}
    assert groups[2]["params"] == [model.get_input_embeddings().weight]
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))


def authors_variables(fixture):
    """Of an encoder for word vectors of 12 features."""
    return variables(fixture, fixed=False) | {"emb_mat": torch.randn(5, 12)}


@pytest.mark.parametrize(
    "fixture, expected",
    [
        ("enc_cnn_kim", {"pooling": "max", "filter_sizes": [3, 4, 5], "hidden_size": 24}),
        ("enc_multi_cnn", {"pooling": "source2token", "filter_sizes": [3, 4, 5], "hidden_size": 24}),
        (
            "enc_hrchy_cnn",
            {"architecture": "hierarchical", "filter_sizes": [5], "num_hidden_layers": 3, "hidden_size": 12},
        ),
    ],
)
def test_sizes_are_read_off_the_authors_variables(fixture, expected):
    model = convert_model("textcnn", authors_variables(fixture), activation="relu")
    config = model.config.to_dict()
    assert expected.items() <= config.items() and config["embedding_size"] == 12 and config["mask_padding"]


def test_conversion_names_what_is_missing():
    arrays = authors_variables("enc_multi_cnn")
    with pytest.raises(InputError, match="missing for .*convolutions.4.bias"):
        convert_model("textcnn", {name: array for name, array in arrays.items() if "maxpool-4/b" not in name})
    with pytest.raises(InputError, match="is this a textcnn model"):
        convert_model("textcnn", {"emb_mat": torch.zeros(3, 4)})


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"hidden_size": 500}, "hidden_size=500 does not divide among the 3 windows"),
        ({"filter_sizes": []}, r"filter_sizes=\[\]: name one window or more"),
        ({"filter_sizes": [3, 3, 4]}, "each once"),
        ({"filter_sizes": [0, 3, 4]}, "at least 1 token"),
        ({"architecture": "hierarchical", "filter_sizes": [3, 5]}, "layers share one window"),
        ({"architecture": "hierarchical", "pooling": "max"}, 'choose "source2token" or "additive"'),
        ({"architecture": "hierarchical", "num_hidden_layers": 0}, "num_hidden_layers=0: it must be at least 1"),
        ({"num_hidden_layers": 2}, 'num_hidden_layers=2 with architecture="multi"'),
        ({"architecture": "deep"}, "architecture"),
        ({"pooling": "mean"}, "pooling"),
        ({"directions": ["forward"]}, "convolutions have no order masks"),
    ],
)
def test_impossible_configurations_are_refused(fields, message):
    with pytest.raises(StrictDataclassError, match=message):
        AutoConfig.for_model("textcnn", **fields)


def test_maximum_is_for_this_family_only():
    with pytest.raises(StrictDataclassError, match="pooling"):
        AutoConfig.for_model("disan", pooling="max")


def test_any_number_of_windows_and_layers():
    assert make(AutoModel, "textcnn", filter_sizes=[2], hidden_size=7)(**sentences(4)).pooler_output.shape == (1, 7)
    deep = make(AutoModel, "textcnn-hierarchical", num_hidden_layers=5, filter_sizes=[2], hidden_size=7)
    assert len(deep.context.layers) == 5 and deep(**sentences(4)).pooler_output.shape == (1, 7)
