"""What `explain` shows is what the model computes, for every encoder; the command `hf-blosan explain` writes it."""

import json
import re
import sys
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_data import pair_rows, question_rows
from tokenizers import normalizers
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

import hf_blosan
from hf_blosan.analysis import compare_word, explain
from hf_blosan.analysis.figures import draw_attention
from hf_blosan.cli.commands import main
from hf_blosan.errors import InputError, install
from hf_blosan.registry import FAMILIES
from hf_blosan.text.tokenization import build_tokenizer

TEXT = "the old cat of a very red dog"
OTHER = "six grey horses and some cow in the blue and very old on with"
PAIR = (TEXT, "one grey cow")
SIZES = {"embedding_size": 6, "hidden_size": 8, "classifier_size": 8, "dropout": 0.4}
VARIANTS = {model_type: (model_type, {}) for model_type in FAMILIES} | {
    "disan, two layers": ("disan", {"num_hidden_layers": 2, "pooling": "additive"}),
    "disan, windows": ("disan", {"directions": ["diagonal", "diagonal"], "windows": [1, None]}),
    "biblosan": ("biblosan", {"block_length": 3}),
    "biblosan, paper": ("biblosan", {"block_length": 3, "formulation": "paper"}),
    "biblosan, only local": ("biblosan", {"block_length": 3, "fuse_global": False}),
    "mtsa": ("mtsa", {"num_heads": 4, "windows": [2, None]}),
    "mtsa, paper": ("mtsa", {"formulation": "paper"}),
    "multihead": ("multihead", {"num_heads": 2}),
    "textcnn": ("textcnn", {"hidden_size": 9}),
    "textcnn, max": ("textcnn", {"hidden_size": 9, "pooling": "max"}),
    "textcnn, hierarchical": ("textcnn", {"architecture": "hierarchical"}),
    "wordbag": ("wordbag", {"hidden_size": 6}),
}
LACKS = {
    "birnn": "birnn (bidirectional LSTM, GRU or SRU) has no attention between tokens and no gates; it has weights in "
    "the sentence vector.",
    "textcnn": "has no attention between tokens and no gates",
    "textcnn, max": "has no attention between tokens and no gates",
    "textcnn, hierarchical": "has no attention between tokens; it has gates and weights in the sentence vector.",
    "wordbag": "has no attention between tokens and no gates",
    "multihead": "has no gates; it has attention between tokens and weights in the sentence vector.",
    "mtsa, paper": "has no gates; ",
}


@pytest.fixture(scope="module")
def tokenizer():
    texts = [text for row in pair_rows(60) for text in (row["sentence1"], row["sentence2"])]
    return build_tokenizer([*texts, *(row["text"] for row in question_rows(60)), "$ 5 or $ 6"])


@pytest.fixture
def make(tokenizer):
    """A function that makes a model of random weights in training mode, in which `explain` has to leave it."""

    def make_model(variant, head="Model", **changes):
        torch.manual_seed(0)
        model_type, config = VARIANTS[variant]
        config = AutoConfig.for_model(model_type, vocab_size=len(tokenizer), **(SIZES | config | changes))
        model = getattr(hf_blosan, FAMILIES[model_type] + head)(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter) * 0.7)
        return model.train()

    return make_model


def in_batch(model, tokenizer, *texts):
    """The model's output for padded texts, and the numbers of their tokens."""
    batch = tokenizer(list(texts), padding=True, return_tensors="pt")
    with torch.no_grad():
        output = model.eval()(**batch, output_attentions=True)
    return output, batch["attention_mask"].sum(1).tolist()


def close(found, expected):
    np.testing.assert_allclose(found, np.asarray(expected), atol=1e-5)


class TestArrays:
    @pytest.mark.parametrize("variant", VARIANTS)
    def test_weights_and_note(self, variant, make, tokenizer):
        """Attention sums to 1 where a token sees anything, and the sentence vector follows from the weights."""
        model = make(variant)
        explanation = explain(model, tokenizer, TEXT)
        assert model.training
        (sentence,) = explanation.sentences
        assert sentence.tokens == TEXT.split() and sentence.text == TEXT
        assert explanation.probabilities is None and explanation.score is None
        for map_ in sentence.of_kind("attention"):
            assert map_.values.shape[:2] == (len(map_.labels), len(map_.labels))
            sums = map_.values.sum(1)
            assert np.all(np.isclose(sums, 1, atol=1e-5) | (sums == 0))
            close(sums.mean(-1), ~map_.hidden.all(1))
        for map_ in sentence.of_kind("gate"):
            assert len(map_.values) == len(map_.labels) and np.all((map_.values >= 0) & (map_.values <= 1))
        output, _ = in_batch(model, tokenizer, TEXT, OTHER)
        tokens = output.last_hidden_state[0, : len(sentence.tokens)].numpy()
        close((sentence.pooling.values * tokens).sum(0), output.pooler_output[0])
        close(sentence.weights.sum(), 1)
        kinds = {map_.kind for map_ in sentence.maps.values()}
        assert LACKS.get(variant, "") in explanation.note and bool(explanation.note) == (len(kinds) < 3)

    def test_disan(self, make, tokenizer):
        """Eq. 15-20 with the arrays shown give the tokens; in a batch with padding as well."""
        model = make("disan")
        (sentence,) = explain(model, tokenizer, TEXT).sentences
        output, (N, _) = in_batch(model, tokenizer, TEXT, OTHER)
        ids = tokenizer(TEXT, return_tensors="pt").input_ids
        for i, (name, layer) in enumerate(
            zip(("forward", "backward"), model.context.layers[0].directions, strict=True)
        ):
            attention, gate = sentence.maps[f"attention_{name}"], sentence.maps[f"gate_{name}"]
            close(attention.values, output.attentions[0][0, i, :N, :N])
            close(gate.values, output.gates[0][0, i, :N])
            close(attention.mean, attention.values.mean(-1))
            order = np.tril(np.ones((N, N)), -1).astype(bool)
            np.testing.assert_array_equal(attention.hidden, ~(order if name == "forward" else order.T))
            with torch.no_grad():
                mapped = layer.dense(layer.dense_map, model.embeddings(ids))[0].numpy()
            context = (attention.values * mapped).sum(1)
            fused = gate.values * mapped + (1 - gate.values) * context
            close(fused, output.last_hidden_state[0, :N, 4 * i : 4 * i + 4])

    def test_layers_directions_and_windows_have_names(self, make, tokenizer):
        layers = explain(make("disan, two layers"), tokenizer, TEXT).sentences[0]
        kinds = [f"{kind}_{way}_layer_" for kind in ("attention", "gate") for way in ("forward", "backward")]
        assert list(layers.maps) == [name + layer for layer in "12" for name in kinds] + ["additive_pooling"]
        assert layers.pooling.values.shape == (8, 1)
        windows = explain(make("disan, windows"), tokenizer, TEXT).sentences[0].maps
        distance = np.abs(np.subtract.outer(np.arange(8), np.arange(8)))
        np.testing.assert_array_equal(windows["attention_diagonal_1_within_1"].hidden, distance != 1)
        np.testing.assert_array_equal(windows["attention_diagonal_2"].hidden, distance == 0)

    @pytest.mark.parametrize("variant", ["biblosan", "biblosan, paper", "biblosan, only local"])
    def test_biblosan(self, variant, make, tokenizer):
        """8 tokens in blocks of 3."""
        model = make(variant)
        (sentence,) = explain(model, tokenizer, TEXT).sentences
        output, (N, _) = in_batch(model, tokenizer, TEXT, OTHER)
        blocks = ["the … cat", "of … very", "red dog"]
        for d, name in enumerate(("forward", "backward")):
            local = sentence.maps[f"attention_in_blocks_{name}"]
            for i, j in np.ndindex(N, N):
                same = i // 3 == j // 3
                expected = output.attentions[0][0, d, i // 3, i % 3, j % 3] if same else torch.zeros(4)
                close(local.values[i, j], expected)
                assert local.hidden[i, j] == (not same or (j >= i if name == "forward" else j <= i))
            close(sentence.maps[f"gate_{name}"].values, output.gates[-1][0, d, :N])
            if variant == "biblosan, only local":
                continue
            between = sentence.maps[f"attention_between_blocks_{name}"]
            assert between.labels == blocks
            close(between.values, output.attentions[2][0, d, :3, :3])
            close(sentence.maps[f"gate_of_blocks_{name}"].values, output.gates[0][0, d, :3])
            vectors = sentence.maps[f"block_vectors_{name}"].values
            close(vectors, output.attentions[1][0, d].flatten(0, 1)[:N])
            close(np.add.reduceat(vectors, [0, 3, 6]), np.ones((3, 4)))
        assert len(sentence.maps) == (5 if variant == "biblosan, only local" else 11)

    def test_mtsa(self, make, tokenizer):
        """The first two heads are forward, the others backward; windows take turns in the same way."""
        model = make("mtsa")
        (sentence,) = explain(model, tokenizer, TEXT).sentences
        output, (N, _) = in_batch(model, tokenizer, TEXT, OTHER)
        names = [f"head_{i + 1}_{way}" for i, way in enumerate(("forward_within_2",) * 2 + ("backward",) * 2)]
        assert [name for name in sentence.maps if name != "source2token"] == [
            f"{kind}_{name}" for kind in ("attention", "gate") for name in names
        ]
        distance = np.subtract.outer(np.arange(N), np.arange(N))  # query - key
        for i, name in enumerate(names):
            attention = sentence.maps[f"attention_{name}"]
            close(attention.values, output.attentions[0][0, i, :N, :N])
            close(sentence.maps[f"gate_{name}"].values, output.gates[0][0, i, :N])
            visible = (distance > 0) & (distance <= 2) if i < 2 else distance < 0
            np.testing.assert_array_equal(attention.hidden, ~visible)

    def test_baselines(self, make, tokenizer):
        output, (N, _) = in_batch(model := make("multihead"), tokenizer, TEXT, OTHER)
        maps = explain(model, tokenizer, TEXT).sentences[0].maps
        close(maps["attention_head_2"].values[..., 0], output.attentions[0][0, 1, :N, :N])
        output, _ = in_batch(model := make("textcnn, hierarchical"), tokenizer, TEXT, OTHER)
        maps = explain(model, tokenizer, TEXT).sentences[0].maps
        for layer in range(3):
            close(maps[f"gate_layer_{layer + 1}"].values, output.gates[layer][0, :N])
        output, _ = in_batch(model := make("textcnn, max"), tokenizer, TEXT, OTHER)
        close(explain(model, tokenizer, TEXT).sentences[0].pooling.values, output.pooler_attentions[0, :N])

    @pytest.mark.parametrize("head", ["ForSequenceClassification", "ForPairRegression"])
    @pytest.mark.parametrize("variant", ["disan", "biblosan", "mtsa", "birnn"])
    def test_pairs(self, variant, head, make, tokenizer):
        """Each sentence has the maps that it has alone; nothing of the padding of the shorter one is left."""
        model = make(variant, head, num_sentences=2, num_labels=3 if "Class" in head else 1)
        explanation = explain(model, tokenizer, *PAIR)
        for sentence, text in zip(explanation.sentences, PAIR, strict=True):
            (alone,) = explain(model.model, tokenizer, text).sentences
            assert sentence.tokens == alone.tokens == text.split() and sentence.maps.keys() == alone.maps.keys()
            for name, map_ in alone.maps.items():
                close(sentence.maps[name].values, map_.values)
                assert sentence.maps[name].labels == map_.labels
        with torch.no_grad():
            logits = model.eval()(**tokenizer(*PAIR, return_tensors="pt")).logits[0]
        if head == "ForPairRegression":
            assert explanation.probabilities is None and explanation.score == pytest.approx(logits.item(), abs=1e-5)
        else:
            expected = dict(zip(("LABEL_0", "LABEL_1", "LABEL_2"), logits.softmax(-1).tolist(), strict=True))
            assert explanation.score is None and explanation.probabilities == pytest.approx(expected, abs=1e-5)
            assert list(explanation.probabilities) == sorted(expected, key=expected.get, reverse=True)

    def test_unknown_words_are_shown(self, make, tokenizer):
        (sentence,) = explain(make("wordbag"), tokenizer, "The zebra  and 5 zebras").sentences
        assert sentence.tokens == ["The", "zebra [UNK]", "and", "5", "zebras [UNK]"]
        assert sentence.find("Zebra") == 1
        assert replace(sentence, tokens=["the", "zebra <unk>"]).find("zebra") == 1

    @pytest.mark.parametrize(
        ("variant", "head", "texts", "message"),
        [
            ("disan", "Model", ["  "], "the text is empty; give some words"),
            ("disan", "Model", [7], "a text is 7; give one sentence as a string"),
            ("disan", "Model", ["a \ud800"], "a text has an unpaired surrogate"),
            ("disan", "Model", ["a"] * 2, "the model takes one sentence, but two are given; leave out the second one"),
            ("disan", "ForPairRegression", ["a cat"], "the model compares two sentences; give the second one"),
            ("disan", "ForPairRegression", ["a cat", ""], "sentence 2 is empty; give some words"),
            ("disan", "Model", ["cat " * 40], "has 40 tokens, 20 are allowed \\(max_tokens\\); shorten it"),
        ],
    )
    def test_mistakes(self, variant, head, texts, message, make, tokenizer):
        model = make(variant, head, num_sentences=2 if head == "ForPairRegression" else 1)
        with pytest.raises(InputError, match=message):
            explain(model, tokenizer, *texts, max_tokens=20)

    def test_a_text_of_which_predict_reads_a_part(self, make, tokenizer):
        limited = copy(tokenizer)
        limited.model_max_length = 7
        with pytest.raises(InputError, match="there are 8 tokens, but .* are made from 7, .*; shorten the text$"):
            explain(make("disan"), limited, TEXT)
        assert len(explain(make("disan"), limited, "the old cat").sentences[0].tokens) == 3

    @pytest.mark.parametrize("variant, fields", [("multihead", {}), ("mtsa", {}), ("mtsa", {"attend_to_self": True})])
    def test_a_weight_of_0_is_not_hidden(self, variant, fields, make, tokenizer):
        """Scores without bounds: a softmax in half precision has zeros."""
        model = make(variant, **fields)
        (before,) = explain(model, tokenizer, TEXT).sentences
        with torch.no_grad():
            for parameter in model.context.parameters():
                parameter *= 30
        (after,) = explain(model, tokenizer, TEXT).sentences
        zeros = 0
        for first, second in zip(before.of_kind("attention"), after.of_kind("attention"), strict=True):
            np.testing.assert_array_equal(first.hidden, ~first.values.any(-1))
            np.testing.assert_array_equal(second.hidden, first.hidden)
            zeros += np.sum(~second.values.any(-1) & ~second.hidden)
        assert zeros

    @pytest.mark.parametrize("variant", ["biblosan", "textcnn, hierarchical"])
    def test_gates_stand_at_their_tokens_wherever_the_padding_is(self, variant, make, tokenizer):
        model, texts = make(variant), [TEXT, OTHER]
        right, (N, _) = in_batch(model, tokenizer, *texts)
        left = copy(tokenizer)
        left.padding_side = "left"
        found, _ = in_batch(model, left, *texts)
        for one, other in zip(found.gates, right.gates, strict=True):
            if one.shape[-2] == found.last_hidden_state.shape[1]:
                close(one[0, ..., -N:, :], other[0, ..., :N, :])
                close(one[1], other[1])
            else:  # of blocks
                close(one, other)

    def test_a_model_that_chooses_sentences(self, make, tokenizer):
        with pytest.raises(InputError, match="the model chooses sentences from passages"):
            explain(make("disan", "ForSentenceSelection"), tokenizer, TEXT)

    def test_an_offloaded_model(self, make, tokenizer, tmp_path):
        make("disan", "ForSequenceClassification").save_pretrained(tmp_path)
        load = AutoModelForSequenceClassification.from_pretrained
        offloaded = load(tmp_path, device_map={"": "disk"}, offload_folder=tmp_path / "offloaded")
        found, expected = (explain(model, tokenizer, TEXT) for model in (offloaded, load(tmp_path)))
        assert found.probabilities == pytest.approx(expected.probabilities)
        close(found.sentences[0].weights, expected.sentences[0].weights)

    def test_a_text_without_tokens(self, make):
        tokenizer = build_tokenizer(["a cat"])
        tokenizer.backend_tokenizer.normalizer = normalizers.Replace("-", "")
        with pytest.raises(InputError, match="'--' has no tokens; give a sentence with words"):
            explain(make("disan"), tokenizer, "--")

    def test_a_model_of_another_package(self, tokenizer):
        config = AutoConfig.for_model("bert", hidden_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=30)
        with pytest.raises(InputError, match="BertModel is not a model of this package; give one of disan, "):
            explain(AutoModel.from_config(config), tokenizer, TEXT)


class TestFigures:
    def test_heatmaps(self, make, tokenizer):
        """Rows are queries, columns keys, both with the tokens; hidden keys have no colour."""
        explanation = explain(make("disan"), tokenizer, f"{TEXT} $ 5 or $")
        (sentence,) = explanation.sentences
        figures = explanation.figures()
        assert list(figures) == ["sentence1_attention", "sentence1_gate", "sentence1_pooling"]
        for axes, name in zip(figures["sentence1_attention"].axes, ("forward", "backward"), strict=False):
            map_, shown = sentence.maps[f"attention_{name}"], axes.images[0].get_array()
            close(np.ma.getdata(shown), map_.mean)
            np.testing.assert_array_equal(np.ma.getmaskarray(shown), map_.hidden)
            for axis, role in ((axes.xaxis, "key"), (axes.yaxis, "query")):
                assert [label.get_text() for label in axis.get_ticklabels()] == sentence.tokens
                assert axis.get_label_text().startswith(role)
        (strip, _) = figures["sentence1_gate"].axes
        close(strip.images[0].get_array(), [sentence.maps[f"gate_{way}"].mean for way in ("forward", "backward")])
        (bars,) = figures["sentence1_pooling"].axes
        close([bar.get_height() for bar in bars.patches], sentence.weights)
        (line,) = bars.lines
        close(line.get_ydata(), [1 / len(sentence.tokens)] * (len(sentence.tokens) + 1))
        with pytest.raises(InputError, match="columns is 0; give 1 or more"):
            explanation.figures(columns=0)

    def test_equal_shares_of_blocks(self, make, tokenizer):
        """8 tokens in blocks of 3."""
        explanation = explain(make("biblosan"), tokenizer, TEXT)
        for axes in explanation.figures()["sentence1_pooling"].axes[:2]:
            (line,) = axes.lines
            close(line.get_ydata(), [1 / 3] * 6 + [1 / 2] * 3)

    def test_saving_leaves_other_files_alone(self, make, tokenizer, tmp_path, caplog):
        kept = [tmp_path / "sentence1_vs_sentence2.png", tmp_path / "sentence1_attention.txt"]
        for path in kept:
            path.write_text("mine")
        explanation = explain(make("disan"), tokenizer, "the cat \U0001f355")
        with pytest.raises(InputError, match="figure_format is 'bmp'; choose from png, svg, pdf"):
            explanation.save(tmp_path, figure_format="bmp")
        for figure_format in ("svg", "png"):
            written = explanation.save(tmp_path, figure_format=figure_format)
            assert sorted(tmp_path.iterdir()) == sorted([*written, *kept])
        assert all(path.read_text() == "mine" for path in kept)
        assert "figures show boxes for letters that their font lacks" in caplog.text

    @pytest.mark.parametrize("variant", ["biblosan", "mtsa", "multihead", "birnn", "textcnn, hierarchical"])
    def test_every_kind_of_encoder_has_figures(self, variant, make, tokenizer):
        explanation = explain(make(variant), tokenizer, TEXT)
        kinds = {map_.kind for map_ in explanation.sentences[0].maps.values()}
        figures = explanation.figures(columns=1)
        assert list(figures) == [f"sentence1_{kind}" for kind in ("attention", "gate", "pooling") if kind in kinds]

    def test_one_word_in_two_sentences(self, make, tokenizer):
        first, second = explain(make("disan", "ForPairRegression", num_sentences=2), tokenizer, *PAIR).sentences
        with pytest.raises(InputError, match="'cat' is not a token of 'one grey cow'; choose one of one, grey, cow"):
            compare_word("cat", first, second)
        second = explain(make("disan"), tokenizer, "Cat and dog").sentences[0]
        figure = compare_word("Cat", first, second)
        weights = [first.pooling.values[2], second.pooling.values[0]]
        close(figure.axes[0].images[0].get_array(), weights)
        close(figure.axes[1].collections[0].get_offsets(), np.transpose(weights))
        with pytest.raises(InputError, match="models with 8 and 9 features"):
            compare_word("dog", first, explain(make("textcnn"), tokenizer, "dog").sentences[0])

    def test_matplotlib_is_an_extra(self, make, tokenizer, monkeypatch):
        explanation = explain(make("wordbag"), tokenizer, TEXT)
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(InputError, match=re.escape(f"figures need matplotlib; {install('analysis')}")):
            draw_attention(list(explanation.sentences[0].maps.values()))


class TestCommand:
    @pytest.fixture
    def saved(self, make, tokenizer, tmp_path):
        """The folder of a classifier, a scorer or an encoder."""

        def save(*arguments, **changes):
            folder = tmp_path / "model"
            make(*arguments, **changes).save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            return str(folder)

        return save

    def test_report_and_files(self, saved, tokenizer, tmp_path, capsys):
        names = ("animal", "colour", "number")
        labels = {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
        folder, output = saved("disan", "ForSequenceClassification", **labels), tmp_path / "out"
        words = ["explain", folder, TEXT, "--top_tokens", "3", "--output_dir", str(output), "--cpu"]
        output.mkdir()
        (output / "sentence2_gate.png").write_bytes(b"of an earlier pair")
        assert main(words) == 0
        model = AutoModelForSequenceClassification.from_pretrained(folder)
        explanation = explain(model, AutoTokenizer.from_pretrained(folder), TEXT)
        (sentence,) = explanation.sentences
        figures = [f"sentence1_{kind}.png" for kind in ("attention", "gate", "pooling")]
        prediction, _, text, _, *rows = capsys.readouterr().out.splitlines()
        shown = ", ".join(f"{label} {value:.3f}" for label, value in explanation.probabilities.items())
        assert prediction == f"prediction: {shown}" and text == TEXT
        best = np.argsort(-sentence.weights)[:3]
        for row, place in zip(rows, best, strict=False):
            assert row.split()[:3] == [str(place + 1), sentence.tokens[place], f"{sentence.weights[place]:.3f}"]
        assert rows[0].endswith(" " + 30 * "#") and rows[3].strip() == "5 more tokens"
        assert [line.rpartition("/")[2] for line in rows[4:]] == [*figures, "arrays.npz", "explanation.json"]
        files = {path.name for path in output.iterdir()}
        assert files == {"explanation.json", "arrays.npz", *figures}
        assert all((output / name).read_bytes().startswith(b"\x89PNG") for name in figures)
        with np.load(output / "arrays.npz") as arrays:
            assert set(arrays) == {f"sentence1_{name}" for name in sentence.maps}
            for name, map_ in sentence.maps.items():
                close(arrays[f"sentence1_{name}"], map_.values)
        content = json.loads((output / "explanation.json").read_text())
        assert content["probabilities"] == pytest.approx(explanation.probabilities)
        close(content["sentences"][0]["maps"]["attention_forward"]["mean"], sentence.maps["attention_forward"].mean)

    def test_pairs_and_encoders(self, saved, capsys):
        folder = saved("birnn", "ForPairRegression", num_sentences=2)
        assert main(["explain", folder, *PAIR]) == 0
        score, _, *lines = capsys.readouterr().out.splitlines()
        assert score.startswith("predicted score: ") and lines[-1] == LACKS["birnn"]
        assert [line for line in lines if line in PAIR] == list(PAIR)
        assert main(["explain", saved("wordbag"), TEXT]) == 0
        assert capsys.readouterr().out.startswith("no prediction: the encoder has no head\n")
        assert main(["explain", saved("textcnn, max"), TEXT]) == 0
        assert "weight (max pooling: share of the sentence vector's features taken from the window" in (
            capsys.readouterr().out
        )

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ([], "the following arguments are required: TEXT"),
            (["a cat", "a dog"], "the model takes one sentence, but two are given"),
            ([""], "the text is empty"),
            (["a cat", "--max_tokens", "1"], "has 2 tokens, 1 are allowed"),
            (["a cat", "--top_tokens", "0"], "--top_tokens is 0; it must be more than 0"),
            (["a cat", "--figure_format", "gif"], "invalid choice: 'gif'"),
            (["a cat", "--output_dir", "/dev/null/out"], "/dev/null/out cannot be written"),
        ],
    )
    def test_mistakes(self, words, message, saved, capsys):
        assert main(["explain", saved("wordbag"), *words]) == 2
        (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
        assert message in line
