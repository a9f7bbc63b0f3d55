"""The preparation of a run, on generated data."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Column, Dataset
from safetensors.torch import load_file
from small_data import (
    options,
    pair_rows,
    prepared,
    question_rows,
    read_lines,
    role_rows,
    squad_rows,
    tagging_rows,
    write_rows,
    write_splits,
)
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from hf_blosan.cli.commands import main
from hf_blosan.data.columns import ColumnNames
from hf_blosan.errors import InputError
from hf_blosan.functional import optimal_block_length
from hf_blosan.hub.configs import read_config
from hf_blosan.hub.saved import load
from hf_blosan.registry import FAMILIES
from hf_blosan.tasks import TASKS
from hf_blosan.tasks.kinds import find_kind, kind_of
from hf_blosan.tasks.recipes import find_recipe
from hf_blosan.training import train
from hf_blosan.training.evaluate_model import EvaluateArguments, evaluate
from hf_blosan.training.preparation import find_task
from hf_blosan.training.saved_model import check_head


class TestPreparation:
    def test_recipe_fills_what_is_not_given(self, tmp_path, questions):
        names = ("config_overrides", "optimizer", "learning_rate", "num_train_epochs")
        unset = {"encoder": "mtsa"} | dict.fromkeys(names)
        arguments, preparation = prepared(options(tmp_path, questions, **unset))
        assert (arguments.optimizer, arguments.learning_rate, arguments.l2) == ("adadelta", 0.5, 1e-4)
        assert (arguments.ema_decay, arguments.max_grad_norm) == (0, 0)
        config = preparation.model.config
        assert (config.hidden_size, config.dropout, config.classifier_bias) == (600, 0.3, False)
        assert (config.num_sentences, config.num_labels, config.finetuning_task) == (1, 3, "custom")

        arguments, preparation = prepared(options(tmp_path, questions, **unset | {"recipe": "modern", "l2": 0.1}))
        modern, config = TASKS["sst2"].recipe("mtsa"), preparation.model.config
        assert (arguments.optimizer, arguments.l2, arguments.weight_decay) == ("adamw", 0.1, modern.weight_decay)
        assert (arguments.learning_rate, arguments.ema_decay) == (modern.learning_rate, modern.ema_decay)
        assert (config.hidden_size, config.dropout) == (600, modern.dropout)

    @pytest.mark.parametrize("make_rows", [question_rows, pair_rows, tagging_rows, squad_rows])
    def test_columns_are_read_at_once(self, make_rows, tmp_path, monkeypatch):
        """Iterating over a column of `datasets` reads row by row."""

        def iterate(column):
            raise AssertionError(f"the column {column.column_name} is read row by row")

        monkeypatch.setattr(Column, "__iter__", iterate)
        data = write_splits(tmp_path, make_rows)
        del data["validation_file"]
        _, preparation = prepared(options(tmp_path / "out", data, encoder="disan", validation_fraction=0.2))
        assert len(preparation.data["validation"]) > 8

    def test_many_rows_need_fewer_epochs_and_less_dropout(self):
        paper, modern = (TASKS["sst2"].recipe("disan", name) for name in ("paper", "modern"))
        assert paper.for_rows(10) == paper.for_rows(10**6) == paper and paper.num_train_epochs == 30
        chosen = [modern.for_rows(rows) for rows in (10, 5_000, 10_000, 19_999, 20_000, 10**6)]
        assert [recipe.num_train_epochs for recipe in chosen] == [12, 12, 6, 3, 3, 3]
        assert [recipe.dropout for recipe in chosen] == [0.2, 0.2, 0.2, 0.2, 0.1, 0.1]
        assert TASKS["sst2"].recipe("biblosan").for_rows(10**6).dropout == 0.2
        selection = TASKS["squad_sentences"].recipe("disan").for_rows(83_151)
        assert (selection.dropout, selection.num_train_epochs) == (0, 3)
        assert (selection.activation, selection.classifier_size) == ("elu", 300)
        rates = [TASKS["squad_sentences"].recipe(encoder).learning_rate for encoder in ("birnn", "multihead")]
        assert rates == [2e-3, 3e-4]

    @pytest.mark.parametrize("settings", ["own_sentences", "own_pairs", "own_scores", "own_tags"])
    def test_patience_with_rows_of_your_own(self, settings):
        recipe = find_recipe(settings, "disan")
        assert recipe.patience(100) == recipe.patience(1000) == 3
        assert [recipe.patience(100, every) for every in (50, 100, 299, 300, 1000)] == [6, 3, 2, 1, 1]
        # Few rows make few updates, of which the first improve nothing.
        assert [recipe.patience(updates) for updates in (34, 33, 10, 1)] == [3, 4, 10, 100]

    def test_pairs_of_your_own_have_fewer_epochs(self):
        sentences, pairs = (find_recipe(name, "disan") for name in ("own_sentences", "own_pairs"))
        assert [recipe.for_rows(2_000).num_train_epochs for recipe in (sentences, pairs)] == [12, 7]
        assert [recipe.for_rows(10_000).num_train_epochs for recipe in (sentences, pairs)] == [6, 6]
        assert find_recipe("own_pairs", "disan", "paper").num_train_epochs == 30

    def test_tasks_of_the_table_have_the_patience_of_their_recipe(self):
        for task in TASKS.values():
            modern, paper = (task.recipe("mtsa", name) for name in ("modern", "paper"))
            both = {"demo": 5, "srl": 0, "translation": 0}.get(task.recipe_family)
            for updates, every in ((3, None), (1000, None), (1000, 10)):
                assert modern.patience(updates, every) == (0 if both is None else both)
                assert paper.patience(updates, every) == (5 if both is None else both)

    def test_epochs_and_patience_depend_on_the_rows(self, tmp_path, questions):
        unset = {"num_train_epochs": None, "recipe": "modern", "per_device_train_batch_size": None}
        arguments, preparation = prepared(options(tmp_path, questions, **unset))
        recipe = preparation.task.recipe("disan")

        def scheduled(rows, processes=1, **changes):
            chosen = replace(arguments, **changes).scheduled(recipe, rows, processes)
            return chosen.num_train_epochs, chosen.early_stopping_patience

        assert scheduled(5_000) == (12, 3) and scheduled(10_000) == (6, 3)
        assert scheduled(640) == (12, 5) and scheduled(640, processes=2) == scheduled(320) == (12, 10)
        assert scheduled(640, gradient_accumulation_steps=2) == (12, 10)
        assert scheduled(3_200, eval_every=50) == (12, 6)
        assert scheduled(5_000, num_train_epochs=40, early_stopping_patience=0) == (40, 0)
        assert scheduled(5_000, num_train_epochs=40, max_train_steps=3) == (None, 3)  # so no record says 40

    def test_other_optimizer_has_its_own_learning_rate(self, tmp_path, questions):
        arguments, _ = prepared(options(tmp_path, questions, optimizer="adamw", learning_rate=None))
        assert arguments.learning_rate == 1e-3

    def test_block_length_follows_the_data(self, tmp_path, questions):
        rows = [json.loads(line) for line in Path(questions["train_file"]).read_text().splitlines()]
        lengths = np.array([len(row["text"].split()) for row in rows])
        _, preparation = prepared(options(tmp_path, questions, encoder="biblosan"))
        expected = optimal_block_length(lengths.mean(), length_std=lengths.std(), batch_size=8) + 1
        assert preparation.model.config.block_length == expected
        overrides = "hidden_size=8,block_length=2"
        _, preparation = prepared(options(tmp_path, questions, encoder="biblosan", config_overrides=overrides))
        assert preparation.model.config.block_length == 2

    def test_block_length_auto_is_stored_as_a_number(self, tmp_path, questions):
        """In a new model, in its files, and when training continues on other data."""
        auto = "hidden_size=8,embedding_size=6,block_length=auto"
        changes = {"encoder": "biblosan", "config_overrides": auto, "max_train_steps": 1}
        _, plain = prepared(options(tmp_path, questions, encoder="biblosan"))
        run = train(options(tmp_path / "first", questions, **changes))
        assert run["config"]["block_length"] == plain.model.config.block_length
        saved = json.loads((tmp_path / "first" / "config.json").read_text())
        assert saved["block_length"] == plain.model.config.block_length
        changes["config_overrides"] = f"{auto},formulation=paper"
        _, paper = prepared(options(tmp_path, questions, **changes))
        assert paper.model.config.block_length == plain.model.config.block_length - 1

        longer = [{"text": " ".join(["a cat"] * 40), "label": kind} for kind in ("animal", "colour", "number")] * 8
        further = {"encoder": None, "model_name_or_path": str(tmp_path / "first")}
        further["train_file"] = str(write_rows(tmp_path / "longer.jsonl", longer))
        fitting = optimal_block_length(80) + 1
        for overrides, expected in ((None, saved["block_length"]), ("block_length=auto", fitting)):
            _, preparation = prepared(options(tmp_path, questions | further, config_overrides=overrides))
            assert preparation.model.config.block_length == expected

    def test_continues_from_a_saved_model(self, tmp_path, questions):
        train(options(tmp_path / "first", questions, max_train_steps=1))
        changes = {"encoder": None, "model_name_or_path": str(tmp_path / "first"), "config_overrides": "dropout=0.5"}
        _, preparation = prepared(options(tmp_path / "second", questions, **changes))
        assert preparation.encoder == "disan" and preparation.model.config.dropout == 0.5
        saved = load_file(tmp_path / "first" / "model.safetensors")
        assert all(torch.equal(value, preparation.model.state_dict()[name]) for name, value in saved.items())
        run = train(options(tmp_path / "second", questions, max_train_steps=1, **changes))
        assert run["continued_from"] == "first" and run["encoder"] == "disan" and run["tokenizer"] == "word level"

    @pytest.mark.parametrize("max_length", [20, 5])
    def test_a_model_reads_as_many_tokens_as_it_was_trained_on(self, tmp_path, max_length):
        """Also if the model that training started from read fewer, or more: the answer is the tenth word."""

        def rows(count, seed):
            return [{"text": "very " * 9 + ("red", "blue")[i % 2], "label": "rb"[i % 2]} for i in range(count)]

        data = write_splits(tmp_path, rows)
        train(options(tmp_path / "first", data, max_length=8, max_train_steps=1))
        changes = {"encoder": None, "model_name_or_path": str(tmp_path / "first"), "config_overrides": "dropout=0"}
        run = train(options(tmp_path / "second", data, max_length=max_length, num_train_epochs=8, **changes))
        assert (run["figures"]["test_accuracy"] == 1) == (max_length == 20)
        figures = evaluate(EvaluateArguments(str(tmp_path / "second"), test_file=data["test_file"], cpu=True))
        assert figures["test_accuracy"] == run["figures"]["test_accuracy"]
        assert AutoTokenizer.from_pretrained(tmp_path / "second").model_max_length == max_length

    def test_a_new_head_for_scores_starts_in_the_middle_of_their_range(self, tmp_path, questions):
        """Its classifier for sentences had no bias, without which 530 is out of reach."""
        train(options(tmp_path / "first", questions, max_train_steps=1))
        rows = [{"text": f"a {i}", "score": 500.5 + i} for i in range(60)]
        data = {"train_file": str(write_rows(tmp_path / "scores.jsonl", rows)), "validation_fraction": 0.1}
        changes = {"encoder": None, "config_overrides": None, "model_name_or_path": str(tmp_path / "first")}
        _, preparation = prepared(options(tmp_path, data, ignore_mismatched_sizes=True, **changes))
        output = preparation.model.classifier.output
        assert output.bias.item() == 530 and output.weight.abs().max() > 3

    def test_a_head_for_scores_is_continued_on_another_scale(self, tmp_path, caplog):
        def data(*scores):
            rows = [{"text": f"a {i}", "score": scores[i % 2]} for i in range(60)]
            return {"train_file": str(write_rows(tmp_path / "scores.jsonl", rows)), "validation_fraction": 0.1}

        fields = "hidden_size=8,embedding_size=6,classifier_bias=true"
        train(options(tmp_path / "first", data(0.0, 1.0), max_train_steps=1, config_overrides=fields))
        before = AutoModelForSequenceClassification.from_pretrained(tmp_path / "first").classifier.output
        changes = {"encoder": None, "config_overrides": None, "model_name_or_path": str(tmp_path / "first")}
        for scores, low, factor in (((200.5, 299.5), 200, 100), ((0.5, 1.5), 0, 1)):
            caplog.clear()
            with caplog.at_level("INFO"):
                _, preparation = prepared(options(tmp_path, data(*scores), **changes))
            output = preparation.model.classifier.output
            torch.testing.assert_close(output.weight, before.weight * factor)
            torch.testing.assert_close(output.bias, low + before.bias * factor)
            mapped = "mapped from their range, 0 to 1, to the task's, 200 to 300" in caplog.text
            assert mapped == (factor != 1)
        given = EvaluateArguments(str(tmp_path / "first"), test_file=data(200.5, 299.5)["train_file"], cpu=True)
        assert evaluate(given)["test_mse"] > 199**2  # it is measured as it is
        model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "first")
        model.save_pretrained(tmp_path / "first", layers_dtype="int8")
        _, preparation = prepared(options(tmp_path, data(200.5, 299.5), **changes))
        torch.testing.assert_close(preparation.model.classifier.output.weight, before.weight * 100, atol=1, rtol=0.1)

    def test_scores_of_pairs_are_continued_on_their_scale(self, tmp_path, caplog):
        """The range of the head says what its outputs mean; scores of a narrower range do not change it."""

        def data(*scores):
            rows = [{"sentence1": f"a {i}", "sentence2": "a", "score": scores[i % len(scores)]} for i in range(60)]
            return {"train_file": str(write_rows(tmp_path / "scores.jsonl", rows)), "validation_fraction": 0.1}

        train(options(tmp_path / "first", data(1, 3, 7), max_train_steps=1))
        changes = {"encoder": None, "config_overrides": None, "model_name_or_path": str(tmp_path / "first")}
        for scores, expected, mapped in (
            ((2.4, 6.2), (1, 7), None),
            ((2, 9), (1, 9), "1 to 7, to the task's, 1 to 9"),
            ((0, 1), (0, 1), "1 to 7, to the task's, 0 to 1"),
            ((1, 2), (1, 2), "1 to 7, to the task's, 1 to 2"),
        ):
            caplog.clear()
            with caplog.at_level("INFO"):
                _, preparation = prepared(options(tmp_path, data(*scores), **changes))
            config = preparation.model.config
            assert (config.score_min, config.score_max, config.num_score_classes) == (*expected, 7)
            assert (f"are mapped from their range, {mapped}" in caplog.text) == bool(mapped)

    @pytest.mark.parametrize("encoder", FAMILIES)
    def test_every_encoder_takes_rows_of_your_own(self, tmp_path, encoder, questions, pairs):
        """With the sizes of its recipe."""
        roles = write_splits(tmp_path / "roles", role_rows)
        for data in (questions, pairs, write_splits(tmp_path / "tags", tagging_rows), roles):
            _, preparation = prepared(options(tmp_path, data, encoder=encoder, config_overrides=None))
            assert preparation.model.config.hidden_size >= 100

    def test_a_tagger_gets_a_head_for_sentences_and_a_pooler(self, tmp_path, questions, caplog):
        data = write_splits(tmp_path, tagging_rows)
        train(options(tmp_path / "first", data, max_train_steps=1))
        changes = {"encoder": None, "config_overrides": None, "model_name_or_path": str(tmp_path / "first")}
        _, preparation = prepared(options(tmp_path, questions, ignore_mismatched_sizes=True, **changes))
        assert preparation.model.config.pooling == "source2token" and "model.pooler.hidden.bias" in caplog.text
        other = [row | {"tags": [tag.replace("ANIMAL", "X") for tag in row["tags"]]} for row in tagging_rows(40)]
        rows = {"train_file": str(write_rows(tmp_path / "other.jsonl", other)), "validation_fraction": 0.1}
        prepared(options(tmp_path, rows, **changes))
        assert "head is for the labels O, B-ANIMAL" in caplog.text and "its weights start those for O" in caplog.text

    def test_models_with_several_labels_a_row_are_refused(self, tmp_path, questions, caplog):
        train(options(tmp_path / "first", questions, max_train_steps=1))
        config = json.loads((tmp_path / "first" / "config.json").read_text())
        config["problem_type"] = "multi_label_classification"
        (tmp_path / "first" / "config.json").write_text(json.dumps(config))
        changes = {"encoder": None, "config_overrides": None, "model_name_or_path": str(tmp_path / "first")}
        with pytest.raises(InputError, match="gives a row several labels, this command one; hf-blosan predict --prob"):
            prepared(options(tmp_path, questions, **changes))
        model, tokenizer = load(str(tmp_path / "first"))
        for part in (model.base_model, tokenizer):
            part.save_pretrained(tmp_path / "encoder")
        prepared(options(tmp_path, questions, **changes | {"model_name_or_path": str(tmp_path / "encoder")}))
        words = ["predict", str(tmp_path / "first"), questions["test_file"], str(tmp_path / "o.jsonl"), "--cpu"]
        assert main(words) == 0 and "gives a row any number of labels; label is the most probable" in caplog.text
        caplog.clear()
        assert main([*words, "--probabilities"]) == 0 and "any number" not in caplog.text

    def test_refuses_a_model_that_does_not_fit(self, tmp_path, questions, pairs, caplog):
        train(options(tmp_path / "first", questions, max_train_steps=1))
        changes = {"encoder": None, "config_overrides": None, "model_name_or_path": str(tmp_path / "first")}
        with pytest.raises(InputError, match="takes one text a row"):
            prepared(options(tmp_path, pairs, **changes))
        two = [{"text": "a cat", "label": "yes"}, {"text": "a dog", "label": "no"}]
        other = {"train_file": str(write_rows(tmp_path / "two.jsonl", two * 12)), "validation_fraction": 0.1}
        with pytest.raises(InputError, match="head of .* has 3 outputs, the task needs 2; --ignore_mismatched_sizes"):
            prepared(options(tmp_path, other, **changes))
        others = [{"text": "a cat", "label": label} for label in ("yes", "no", "maybe")]
        others = {"train_file": str(write_rows(tmp_path / "three.jsonl", others * 12)), "validation_fraction": 0.1}
        prepared(options(tmp_path, others, **changes))
        assert "head is for the labels animal, colour, number; its weights start those for maybe, no" in caplog.text
        wider = changes | {"config_overrides": "hidden_size=24", "ignore_mismatched_sizes": False}
        with pytest.raises(InputError, match=r"model\..* has shape .*; leave the sizes of the encoder as they are"):
            prepared(options(tmp_path, questions, **wider))
        _, preparation = prepared(options(tmp_path, other, ignore_mismatched_sizes=True, **changes))
        assert preparation.model.config.num_labels == 2
        config = json.loads((tmp_path / "first" / "config.json").read_text())
        config["id2label"] = {"0": "number", "1": "animal", "2": "colour"}
        config["label2id"] = {"number": 0, "animal": 1, "colour": 2}
        (tmp_path / "first" / "config.json").write_text(json.dumps(config))
        kind, saved = find_kind(find_task(options(tmp_path, questions))), read_config(str(tmp_path / "first"))
        with pytest.raises(InputError, match="in another order"):
            check_head(options(tmp_path, questions, **changes), kind, saved)

    @pytest.mark.parametrize("names", ["number animal colour", "Number Animal Colour"])
    def test_rows_of_a_user_take_the_order_of_the_models_labels(self, tmp_path, questions, names):
        """Class ids among the validation rows are those of the model, as when it is evaluated."""
        train(options(tmp_path / "first", questions, max_train_steps=1))
        config = json.loads((tmp_path / "first" / "config.json").read_text())
        config |= {"id2label": dict(enumerate(names.split())), "label2id": {x: i for i, x in enumerate(names.split())}}
        (tmp_path / "first" / "config.json").write_text(json.dumps(config))
        rows = [{"text": f"a {i}", "label": i % 3} for i in range(6)]
        data = questions | {"validation_file": str(write_rows(tmp_path / "ids.jsonl", rows))}
        changes = {"encoder": None, "config_overrides": None, "model_name_or_path": str(tmp_path / "first")}
        _, found = prepared(options(tmp_path, data, **changes))
        assert found.model.config.id2label == dict(enumerate(found.task.labels))
        assert found.task.labels == ("number", "animal", "colour")
        labels = [found.task.labels[i] for i in found.data["train"]["labels"]]
        assert labels == [row["label"] for row in read_lines(questions["train_file"])]
        assert [found.task.labels[i] for i in found.data["validation"]["labels"]] == ["number", "animal", "colour"] * 2
        task = kind_of(read_config(str(tmp_path / "first"))).for_rows(Dataset.from_list(rows), "ids", ColumnNames())
        assert find_kind(task).normalise(Dataset.from_list(rows), task.local, "ids")["label"][:] == [0, 1, 2] * 2

    @pytest.mark.parametrize("field", ["embedding_dtype=int8", "embedding_dtype=bfloat16", "layers_dtype=int8"])
    def test_refuses_to_train_in_fewer_bits(self, field, tmp_path, questions):
        name, dtype = field.split("=")
        with pytest.raises(InputError, match=f"{name} is {dtype}, .* cannot be trained"):
            prepared(options(tmp_path, questions, config_overrides=f"hidden_size=8,embedding_size=6,{field}"))

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    @pytest.mark.parametrize("table_alone", [True, False])
    def test_a_model_in_half_precision_is_trained_in_float32(self, dtype, table_alone, tmp_path, questions):
        train(options(tmp_path / "first", questions, max_train_steps=1))
        model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "first")
        if table_alone:
            model.save_pretrained(tmp_path / "first", embedding_dtype=dtype)
        else:
            model.to(getattr(torch, dtype)).save_pretrained(tmp_path / "first")
        changes = {"encoder": None, "config_overrides": None, "model_name_or_path": str(tmp_path / "first")}
        _, preparation = prepared(options(tmp_path / "second", questions, **changes))
        assert {parameter.dtype for parameter in preparation.model.parameters()} == {torch.float32}
        assert preparation.model.config.embedding_dtype == "float32" and preparation.model.dtype == torch.float32

    def test_layers_in_int8_become_float32(self, tmp_path, questions):
        train(options(tmp_path / "first", questions, max_train_steps=1))
        model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "first")
        model.save_pretrained(tmp_path / "first", layers_dtype="int8", embedding_dtype="int8")
        changes = {"encoder": None, "config_overrides": None, "model_name_or_path": str(tmp_path / "first")}
        train(options(tmp_path / "second", questions, max_train_steps=1, **changes))
        config = AutoModelForSequenceClassification.from_pretrained(tmp_path / "second").config
        assert config.layers_dtype == config.embedding_dtype == "float32"

    def test_refuses_a_tokenizer_with_more_words_than_the_model(self, tmp_path, questions):
        """Before it starts: ids beyond the table would be found at the first of them."""
        train(options(tmp_path / "first", questions, max_train_steps=1))
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "first")
        size = len(tokenizer)
        tokenizer.add_tokens(["unheard"])
        tokenizer.save_pretrained(tmp_path / "first")
        changes = {"encoder": None, "config_overrides": None, "model_name_or_path": str(tmp_path / "first")}
        message = f"has ids up to {size}, but vocab_size is {size} in its model; give the tokenizer that"
        with pytest.raises(InputError, match=message):
            prepared(options(tmp_path, questions, **changes))
        with pytest.raises(InputError, match=message):
            load(str(tmp_path / "first"), None, cpu=True)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"hidden_size": "wide"}, "hidden_size is 'wide'; give a whole number"),
            ({"classifier_bias": 3}, "classifier_bias is 3; give true or false"),
            ({"hidden_size": 7}, "hidden_size=7 does not divide into 2 directions"),
            (
                {"backbone_config": {"model_type": "bert", "hidden_size": "x"}},
                "Field 'hidden_size' expected int, got str",
            ),
            ({"a\nb": 2**64}, "is impossible: 'a.nb' has the number 18446744073709551616"),
            (
                {"id2label": 3},
                "config.json of the model at .* is impossible: id2label has the labels 3; number them 0, 1",
            ),
        ],
    )
    def test_impossible_saved_configurations_are_named(self, tmp_path, changes, message):
        fields = AutoConfig.for_model("disan").to_dict() | changes
        (tmp_path / "config.json").write_text(json.dumps(fields))
        with pytest.raises(InputError, match=message) as caught:
            read_config(str(tmp_path))
        assert "\n" not in str(caught.value)

    def test_a_head_of_another_kind_is_not_silently_replaced(self, tmp_path, pairs, caplog):
        """The encoder fits scores and classes of pairs alike, the head does not, whatever its shapes."""
        caplog.set_level("INFO")
        train(options(tmp_path / "scores", pairs, max_train_steps=1))
        rows = [
            {"sentence1": "a cat", "sentence2": f"the {x}", "label": x} for x in "dog cat cow pig hen".split()
        ] * 12
        classes = {"train_file": str(write_rows(tmp_path / "classes.jsonl", rows)), "validation_fraction": 0.1}
        changes = {"encoder": None, "config_overrides": None, "model_name_or_path": str(tmp_path / "scores")}
        with pytest.raises(
            InputError, match="is of class DiSANForPairRegression, .* needs DiSANForSequenceClassification"
        ):
            prepared(options(tmp_path, classes, **changes))
        _, preparation = prepared(options(tmp_path, classes, ignore_mismatched_sizes=True, **changes))
        model = preparation.model
        assert type(model).__name__ == "DiSANForSequenceClassification" and model.config.num_labels == 5
        saved = load_file(tmp_path / "scores" / "model.safetensors")
        output = model.classifier.output
        assert output.weight.shape == saved["classifier.output.weight"].shape
        assert not torch.equal(output.weight, saved["classifier.output.weight"]) and not output.bias.any()
        assert "gets a new head for DiSANForSequenceClassification" in caplog.text
        kept = {name: value for name, value in model.state_dict().items() if name.startswith("model.")}
        assert kept and all(torch.equal(saved[name], value) for name, value in kept.items())

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"encoder": "lstm"}, "unknown encoder 'lstm'; choose one of disan, biblosan, mtsa"),
            (
                {"encoder": None, "model_name_or_path": "no/such/place"},
                r"no saved model at 'no/such/place' \(no such folder\)",
            ),
            ({"encoder": None, "model_name_or_path": "a" * 5000}, r"no saved model at 'a+' \(no such folder\)"),
            ({"config_overrides": "hidden=8"}, "disan has no field 'hidden'; choose one of .*hidden_size"),
            ({"config_overrides": "vocab_size=8"}, "disan has no field 'vocab_size'"),
            ({"config_overrides": "hidden_size=7"}, "hidden_size=7 does not divide into 2 directions"),
            ({"config_overrides": "hidden_size=wide"}, "hidden_size is 'wide'; give a whole number"),
            ({"config_overrides": "dropout=much"}, "dropout is 'much'; give a number"),
            (
                {"config_overrides": "directions=[1]"},
                r"directions is \[1\]; give a list \(each item: text\)",
            ),
            ({"config_overrides": "windows=3"}, r"give a list \(each item: a whole number or null\) or null"),
            ({"config_overrides": "initializer_range=.nan"}, "initializer_range=nan: it must be a finite number"),
            ({"config_overrides": "7="}, "cannot be read; write them as"),
            ({"tokenizer_name": "no/such/tokenizer"}, "no saved tokenizer at 'no/such/tokenizer'"),
        ],
    )
    def test_refuses_in_a_sentence(self, tmp_path, questions, changes, message, monkeypatch):
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        with pytest.raises(InputError, match=message) as caught:
            prepared(options(tmp_path, questions, **changes))
        assert "\n" not in str(caught.value)

    def test_held_out_rows_with_the_texts_of_training_rows_are_warned_of(self, tmp_path, caplog):
        texts = [f"a number {number}" for number in range(60)]
        for name, rows, warned in (
            ("twice", [*texts, *(text.upper() for text in texts)], True),
            ("once", texts, False),
        ):
            table = [{"text": text, "label": "odd" if int(text.split()[-1]) % 2 else "even"} for text in rows]
            data = {"train_file": str(write_rows(tmp_path / f"{name}.jsonl", table))}
            caplog.clear()
            prepared(options(tmp_path / name, data, validation_fraction=0.1))
            assert ("validation rows have the text of a training row" in caplog.text) == warned

    def test_rows_that_a_model_may_have_seen_are_warned_of(self, tmp_path, questions, caplog):
        own = {"train_file": questions["train_file"], "validation_fraction": 0.1}
        train(options(tmp_path / "first", own, max_train_steps=1))
        again = {"encoder": None, "model_name_or_path": str(tmp_path / "first"), "config_overrides": None}
        for data, warned in ((own, True), (questions, False)):
            caplog.clear()
            prepared(options(tmp_path / "second", data, **again))
            assert ("was trained on rows of your own: if rows held out here were among them" in caplog.text) == warned
