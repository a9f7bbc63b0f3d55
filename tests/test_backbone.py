"""Encoders on top of a pretrained transformer, here a generated one of two layers."""

import json
import math
import shutil
from dataclasses import replace

import datasets
import numpy as np
import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from small_data import (
    FILLER,
    WORDS,
    options,
    pair_rows,
    prepared,
    question_rows,
    read_log,
    role_rows,
    write_backbone,
    write_splits,
)
from test_bundle import load_elsewhere
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DistilBertConfig,
    GPT2Config,
    RobertaConfig,
    T5Config,
    ViTConfig,
)

from hf_blosan.cli.commands import main
from hf_blosan.errors import InputError
from hf_blosan.hub.finite import NotFinite
from hf_blosan.registry import FAMILIES
from hf_blosan.text.tokenization import prepare_pretrained_tokenizer
from hf_blosan.training import backbone_states, parse_arguments, train
from hf_blosan.training.checkpoints import save_pretrained
from hf_blosan.training.evaluate_model import EvaluateArguments, evaluate
from hf_blosan.training.evaluation import Evaluator
from hf_blosan.training.optim import build_optimizer, l2_penalty, make_scheduler, moving_average
from hf_blosan.training.preparation import find_backbone
from hf_blosan.training.reporting import count_parameters
from hf_blosan.training.run import make_accelerator
from reproduce.runner import plan
from reproduce.tables import TABLES

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
WORDS_OF_ROWS = [*FILLER, *(word for words in WORDS.values() for word in words)]
TINY = "hidden_size=8,classifier_size=8,dropout=0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A saved BERT with its tokenizer."""
    return write_backbone(tmp_path_factory.mktemp("backbones") / "tiny-bert", WORDS_OF_ROWS)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of its own for each test."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path / "cache" / "hf_blosan"


def make(folder, encoder="disan", **fields):
    """A classifier on the backbone, in eval mode."""
    sizes = {"num_labels": 3, "classifier_size": 8} | ({} if encoder == "wordbag" else {"hidden_size": 24})
    config = AutoConfig.for_model(encoder, backbone=str(folder), **(sizes | fields))
    return AutoModelForSequenceClassification.from_config(config).eval()


def sentences(*lengths):
    """Random ids with padding on the right."""
    ids = torch.randint(4, 24, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


class TestModel:
    @pytest.mark.parametrize("encoder", FAMILIES)
    def test_saved_model_is_complete(self, encoder, folder, tmp_path):
        model, batch = make(folder, encoder), sentences(9, 4)
        pretrained = AutoModel.from_pretrained(folder).state_dict()
        for name, tensor in model.model.embeddings.backbone.state_dict().items():
            assert torch.equal(tensor, pretrained[name]), name
        model.save_pretrained(tmp_path)
        text = (tmp_path / "config.json").read_text()
        assert str(folder.parent) not in text and json.loads(text)["backbone_config"]["model_type"] == "bert"
        loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
        assert torch.equal(loaded(**batch).logits, model(**batch).logits)
        assert not any(parameter.requires_grad for parameter in loaded.model.embeddings.parameters())
        torch.testing.assert_close(model(**sentences(9)).logits[0], model(**batch).logits[0], rtol=1e-4, atol=1e-5)

    @pytest.mark.slow
    def test_in_a_process_without_the_package(self, folder, tmp_path):
        config = AutoConfig.for_model("disan", backbone=str(folder), hidden_size=24)
        model = AutoModel.from_config(config).eval()
        model.save_pretrained(tmp_path / "model")
        (vectors,) = load_elsewhere("without", tmp_path, tmp_path / "model")
        expected = model(torch.arange(2, 12)[None]).pooler_output
        torch.testing.assert_close(vectors, expected, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize(
        "config",
        [RobertaConfig(pad_token_id=1, max_position_embeddings=66, **SIZES), DistilBertConfig(dim=16, n_heads=2)],
    )
    def test_other_transformers(self, config, tmp_path):
        config.vocab_size = 30
        AutoModel.from_config(config).save_pretrained(tmp_path / "backbone")
        model, ids = make(tmp_path / "backbone"), torch.randint(3, 30, (1, 7))
        assert model.config.pad_token_id == config.pad_token_id and model.config.vocab_size == 30
        padded = torch.nn.functional.pad(ids, (0, 3), value=config.pad_token_id)
        torch.testing.assert_close(model(padded).logits, model(ids).logits, rtol=1e-4, atol=1e-5)

    def test_padding_is_on_the_right(self, folder):
        """On the left it would move the positions that most backbones count from the first column."""
        tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        tokenizer = prepare_pretrained_tokenizer(tokenizer, for_backbone=True)
        model, texts = make(folder), ["the cat", "a dog and some cow"]
        together = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
        alone = torch.cat([model(**tokenizer(text, return_tensors="pt")).logits for text in texts])
        torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)

    def test_sentences_of_a_pair_are_read_separately(self, folder):
        tokenizer = prepare_pretrained_tokenizer(AutoTokenizer.from_pretrained(folder), for_backbone=True)
        model = make(folder, num_sentences=2)
        encoded = tokenizer("the cat", "a dog and some cow", return_tensors="pt")
        tokens = tokenizer.convert_ids_to_tokens(encoded["input_ids"][0])
        assert " ".join(tokens) == "[CLS] the cat [SEP] [CLS] a dog and some cow [SEP]"
        assert encoded["token_type_ids"].tolist() == [[0] * 4 + [1] * 7]
        alone = [model.model(**tokenizer(text, return_tensors="pt")) for text in ("the cat", "a dog and some cow")]
        expected = model.classifier([output.pooler_output for output in alone])
        torch.testing.assert_close(model(**encoded).logits, expected, rtol=1e-4, atol=1e-5)

    def test_a_frozen_backbone_has_no_dropout_and_no_gradient(self, folder):
        batch, states = sentences(9, 4), []
        for trainable in ("none", "all"):
            model = make(folder, embedding_trainable=trainable).train()
            states.append([model.model.embeddings.backbone(**batch).last_hidden_state for _ in range(2)])
            model(**batch, labels=torch.tensor([0, 1])).loss.backward()
            gradients = {parameter.grad is not None for parameter in model.model.embeddings.backbone.parameters()}
            assert gradients == {trainable == "all"}
        assert torch.equal(*states[0]) and not torch.equal(*states[1])

    def test_other_inputs(self, folder):
        model, batch = make(folder), sentences(9, 4)
        expected, mask = model(**batch).logits, batch["attention_mask"]
        words = model.get_input_embeddings()(batch["input_ids"])
        torch.testing.assert_close(model(inputs_embeds=words, attention_mask=mask).logits, expected)
        states = model.model.embeddings.backbone(**batch).last_hidden_state
        torch.testing.assert_close(model(backbone_hidden_states=states, attention_mask=mask).logits, expected)
        assert len(model(**batch, output_hidden_states=True).hidden_states) == 2

    def test_dtype_and_vocabulary(self, folder, tmp_path):
        model = make(folder)
        model.resize_token_embeddings(50)
        model.save_pretrained(tmp_path)
        loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path, dtype=torch.bfloat16)
        assert {parameter.dtype for parameter in loaded.parameters()} == {torch.bfloat16} == {loaded.dtype}
        assert loaded(torch.tensor([[2, 49, 3]])).logits.isfinite().all()
        for convert in (
            model.set_embedding_dtype,
            lambda dtype: model.save_pretrained(tmp_path, embedding_dtype=dtype),
        ):
            with pytest.raises(ValueError, match="no word table of its own"):
                convert("int8")
        with pytest.raises(ValueError, match="no word table of its own"):
            model.load_word_vectors(np.zeros((50, 16)))

    def test_gradient_checkpointing(self, folder):
        def gradients(checkpointing):
            torch.manual_seed(0)
            model = make(folder, embedding_trainable="all").train()
            if checkpointing:
                model.gradient_checkpointing_enable()
            torch.manual_seed(0)
            model(**sentences(9, 4), labels=torch.tensor([0, 1])).loss.backward()
            return [parameter.grad for parameter in model.parameters()]

        for plain, checkpointed in zip(gradients(False), gradients(True), strict=True):
            torch.testing.assert_close(plain, checkpointed)

    def test_the_implementation_is_that_of_the_layers_above(self, folder):
        model, batch = make(folder), sentences(9, 4)
        expected, own = model(**batch).logits, model.model.embeddings.backbone.config._attn_implementation
        model.set_attn_implementation("eager")
        assert model.model.embeddings.backbone.config._attn_implementation == own
        torch.testing.assert_close(model(**batch).logits, expected, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("pooling", ["mean", "cls"])
    def test_pooling_without_parameters(self, pooling, folder):
        model, batch = make(folder, "wordbag", pooling=pooling), sentences(9, 4)
        output = model.model(**batch, output_attentions=True)
        tokens = model.model.embeddings.backbone(**batch).last_hidden_state
        chosen = 1 if pooling == "cls" else 4
        torch.testing.assert_close(output.pooler_output[1], tokens[1, :chosen].mean(0))
        assert output.pooler_attentions[1, :, 0].tolist() == [1 / chosen] * chosen + [0.0] * (9 - chosen)
        assert not list(model.model.pooler.parameters())

    @pytest.mark.parametrize(
        "fields, problem",
        [
            ({"embedding_size": 300}, "embedding_size=300: with this backbone it is 16"),
            ({"embedding_trainable": "train_words"}, "embedding_trainable=train_words: .* it is all or none"),
            ({"embedding_dtype": "int8"}, "embedding_dtype=int8: with this backbone it is float32"),
            ({"embedding_dropout": 0.1}, "embedding_dropout=0.1: with this backbone it is 0"),
            ({"backbone_config": T5Config()}, "a t5 cannot be a backbone"),
            ({"backbone_config": ViTConfig()}, "a vit cannot be a backbone"),
        ],
    )
    def test_impossible_configurations(self, fields, problem, folder):
        with pytest.raises((StrictDataclassError, ValueError), match=problem):
            AutoConfig.for_model("disan", **({"backbone": str(folder)} | fields))


class TestTraining:
    @staticmethod
    def options(output, data, folder, **changes):
        changes = {"config_overrides": TINY} | changes
        return options(output, data, backbone=str(folder), **changes)

    @pytest.mark.parametrize(
        "rows, dtype, tolerance", [(question_rows, "float32", 1e-4), (pair_rows, "float16", 0.02)]
    )
    def test_cached_states_train_the_same_model(self, rows, dtype, tolerance, folder, tmp_path, cache):
        data, losses = write_splits(tmp_path, rows), []
        for name, cache_backbone in (("computed", None), ("cached", dtype)):
            train(self.options(tmp_path / name, data, folder, cache_backbone=cache_backbone))
            losses.append([entry["loss"] for entry in read_log(tmp_path / name, "train")])
        assert losses[1] == pytest.approx(losses[0], abs=tolerance)
        (file,) = cache.iterdir()
        assert file.name.startswith("backbone-") and file.suffix == ".arrow"

    def test_cached_states_are_computed_once(self, questions, folder, tmp_path, cache, monkeypatch):
        calls, compute = [], backbone_states.sentence_states
        monkeypatch.setattr(backbone_states, "sentence_states", lambda *args: calls.append(args) or compute(*args))
        for encoder, seed, dtype in (("disan", 1, "float16"), ("mtsa", 2, "float16"), ("disan", 1, "float32")):
            changes = {"encoder": encoder, "seed": seed, "cache_backbone": dtype}
            _, preparation = prepared(self.options(tmp_path, questions, folder, **changes))
            rows = [preparation.data["train"][i] for i in (3, 0, 3)]
            batch = preparation.collate(rows)
            states, ids = batch["backbone_hidden_states"], torch.tensor([rows[0]["input_ids"]])
            assert str(states.dtype) == f"torch.{dtype}" and states.shape[-1] == 16 and "input_ids" not in batch
            expected = preparation.model.model.embeddings.backbone(ids).last_hidden_state[0]
            torch.testing.assert_close(states[2, : ids.shape[1]].float(), expected, rtol=1e-3, atol=1e-3)
        assert len(list(cache.iterdir())) == 2
        backbones = [backbone for backbone, *_ in calls]
        assert backbones[0] is not backbones[-1] and len(set(map(id, backbones))) == 2

    def test_states_beyond_float16_are_refused(self, questions, folder, tmp_path, cache):
        backbone = AutoModel.from_pretrained(folder)
        backbone.encoder.layer[-1].output.LayerNorm.weight.data.fill_(1e5)
        backbone.save_pretrained(large := shutil.copytree(folder, tmp_path / "large"))
        with pytest.raises(
            InputError, match=r"^--cache_backbone float16: a state .* is [1-9.]+e\+05, beyond .*float32$"
        ):
            prepared(self.options(tmp_path, questions, large, cache_backbone="float16"))
        prepared(self.options(tmp_path, questions, large, cache_backbone="float32"))

    def test_a_run_does_not_go_on_with_states_of_another_backbone(self, questions, folder, tmp_path, cache):
        changes = {"cache_backbone": "float32", "checkpointing_steps": "1", "max_train_steps": 2}
        backbone = shutil.copytree(folder, tmp_path / "backbone")
        train(self.options(tmp_path / "out", questions, backbone, **changes))
        other = AutoModel.from_pretrained(backbone)
        other.encoder.layer[-1].output.LayerNorm.weight.data += 0.1
        other.save_pretrained(backbone)
        with pytest.raises(InputError, match="belongs to a run with different settings .backbone.: backbone was "):
            train(self.options(tmp_path / "out", questions, backbone, resume_from_checkpoint="step_1", **changes))

    def test_a_row_whose_output_is_not_finite_is_named(self, questions, folder, tmp_path, cache):
        arguments, preparation = prepared(self.options(tmp_path, questions, folder, cache_backbone="float32"))
        preparation.model.classifier.output.weight.data.fill_(math.nan)
        evaluator = Evaluator(preparation, 8, make_accelerator(arguments))
        with pytest.raises(NotFinite, match="^validation, row "):
            evaluator.predict(preparation.model, evaluator.splits[0])

    def test_only_rows_of_sentences_are_cached(self, folder):
        rows = datasets.Dataset.from_dict({"input_ids": [[[2, 5, 3], [2, 6, 3]]], "labels": [1]})
        with pytest.raises(InputError, match="rows of one sentence or a pair"):
            backbone_states.cached_states(make(folder), {"train": rows}, None, "float16")

    def test_what_was_trained_works_without_the_backbone(self, folder, tmp_path, capsys):
        data, backbone = write_splits(tmp_path, pair_rows), shutil.copytree(folder, tmp_path / "gone")
        run = train(self.options(tmp_path / "out", data, backbone, cache_backbone="float32", ema_decay=0.5))
        assert run["backbone"] == run["tokenizer"] == "gone" and str(tmp_path) not in json.dumps(run["config"])
        assert run["parameters"]["trained"] == run["parameters"]["without_embeddings"] < 1000
        shutil.rmtree(backbone)
        found = evaluate(EvaluateArguments(str(tmp_path / "out"), test_file=data["test_file"], cpu=True))
        assert found["test_pearson"] == pytest.approx(run["figures"]["test_pearson"], abs=1e-3)
        saved = {"encoder": None, "model_name_or_path": str(tmp_path / "out"), "cache_backbone": "float32"}
        for command in (("predict", "-"), ("encode", "-"), ("evaluate", "--test_file", data["test_file"])):
            assert main([command[0], str(tmp_path / "out"), *command[1:], "--max_length", "400"]) == 2
            assert "--max_length is 400, but the model has 320 positions" in capsys.readouterr().err
        assert main(["bench", str(tmp_path / "out"), "--lengths", "16", "400"]) == 2
        assert "--lengths is 400, but the model has 320 positions" in capsys.readouterr().err
        further = options(tmp_path / "further", data, config_overrides=TINY, **saved)
        assert train(further)["figures"].keys() == run["figures"].keys()

    def test_a_saved_backbone_can_be_fine_tuned(self, questions, folder, tmp_path):
        """At the backbone's own learning rate, as a new one; a tokenizer without a limit has the backbone's."""
        _, first = prepared(self.options(tmp_path, questions, folder))
        first.tokenizer.model_max_length = 10**30
        save_pretrained(first.model, first.tokenizer, tmp_path / "saved")
        saved = {"encoder": None, "model_name_or_path": str(tmp_path / "saved"), "config_overrides": None}
        for given, trained in ((None, False), ("all", True), ("none", False)):
            further = options(tmp_path, questions, **saved, embedding_trainable=given)
            arguments, found = prepared(further)
            weights = found.model.model.embeddings.backbone.parameters()
            assert {weight.requires_grad for weight in weights} == {
                trained
            } and found.tokenizer.model_max_length == 320
            assert (arguments.learning_rate, arguments.embedding_learning_rate) == (0.01, 5e-5)
        with pytest.raises(InputError, match="embedding_trainable=train_words: with this backbone it is all or none"):
            prepared(options(tmp_path, questions, **saved, embedding_trainable="train_words"))

    @pytest.mark.slow
    def test_fine_tuning_and_resuming(self, questions, folder, tmp_path):
        def run(name, **changes):
            settings = {"embedding_trainable": "all", "embedding_learning_rate": 1e-3, "weight_decay": 0.01}
            arguments = self.options(tmp_path / name, questions, folder, **(settings | changes))
            train(arguments)
            return AutoModelForSequenceClassification.from_pretrained(tmp_path / name).state_dict()

        whole = run("whole", checkpointing_steps="5")
        resumed = run("whole", resume_from_checkpoint=str(tmp_path / "whole" / "step_5"))
        assert all(torch.equal(tensor, resumed[name]) for name, tensor in whole.items())
        before = AutoModel.from_pretrained(folder).state_dict()
        assert not torch.equal(
            whole["model.embeddings.backbone.encoder.layer.0.output.dense.weight"],
            before["encoder.layer.0.output.dense.weight"],
        )

    def test_groups_of_the_optimiser(self, folder):
        model = make(folder, embedding_trainable="all")
        optimizer = build_optimizer(model, "adamw", 0.1, weight_decay=0.01, embedding_learning_rate=0.01)
        backbone = {id(parameter) for parameter in model.model.embeddings.backbone.parameters()}
        found = {
            (group["lr"], group["weight_decay"]): {id(parameter) in backbone for parameter in group["params"]}
            for group in optimizer.param_groups
        }
        assert found == {(0.1, 0.01): {False}, (0.1, 0.0): {False}, (0.01, 0.01): {True}, (0.01, 0.0): {True}}
        scheduler = make_scheduler(optimizer, "linear", 20, 2, 10)
        rates = []
        for _ in range(10):
            optimizer.step()
            scheduler.step()
            rates.append((scheduler.get_last_lr()[0], scheduler.get_last_lr()[-1]))
        assert rates[1] == pytest.approx((0.1, 0.002)) and rates[9] == pytest.approx((0.1 * 10 / 18, 0.01))

    def test_weight_decay_of_a_backbone_with_linear_maps_of_its_own(self, tmp_path):
        """GPT-2 has Conv1D in place of nn.Linear."""
        backbone = GPT2Config(vocab_size=40, n_positions=16, n_embd=8, n_layer=1, n_head=2)
        config = AutoConfig.for_model("disan", backbone_config=backbone, embedding_trainable="all", hidden_size=8)
        model = AutoModel.from_config(config)
        groups = build_optimizer(model, "adamw", 0.1, weight_decay=0.01, embedding_learning_rate=0.01).param_groups
        decays = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
        found = {
            name.split(".")[-2]: decays[id(w)]
            for name, w in model.named_parameters()
            if "h.0" in name and w.dim() == 2
        }
        assert found == dict.fromkeys(("c_attn", "c_proj", "c_fc"), 0.01)

    def test_a_frozen_backbone_takes_no_part(self, folder):
        model = make(folder)
        layers = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = build_optimizer(model, "adamw", 0.1)
        assert sum(len(group["params"]) for group in optimizer.param_groups) == len(layers)
        weights = sum(float(x.detach().square().sum()) for x in layers if x.dim() == 2 and x.shape[0] > 1)
        assert 0 < float(l2_penalty(model, 2.0)) <= weights + 1e-3
        average = moving_average(model, 0.9)
        for _ in range(2):
            average.update_parameters(model)
        parts = (average.module.model.embeddings.backbone, model.model.embeddings.backbone)
        pairs = zip(*(part.parameters() for part in parts), strict=True)
        assert all(copied is original for copied, original in pairs)
        average = moving_average(model.half().requires_grad_(False), 0.9)
        for _ in range(2):  # nothing to average
            average.update_parameters(model)
        counts = count_parameters(make(folder))
        assert counts["trained"] == counts["without_embeddings"] == sum(x.numel() for x in layers)

    def test_the_recipe_of_another_width(self, folder, tmp_path):
        """A recipe's width and factor of word vectors are not the backbone's."""
        data = write_splits(tmp_path, role_rows, train=8)
        settings = {"encoder": "birnn", "config_overrides": None, "recipe": None, "backbone": str(folder)}
        arguments = replace(options(tmp_path / "out", data, **settings), task_name="propbank_srl")
        config = prepared(arguments)[1].model.config
        assert (config.embedding_size, config.embedding_scale, config.predicate_size) == (16, 1.0, 100)

    @pytest.mark.parametrize(
        "changes, problem",
        [
            ({"backbone": "/nowhere"}, "no saved backbone at '/nowhere'"),
            ({"tokenizer_name": "x"}, "--backbone has its own tokenizer; leave out --tokenizer_name"),
            ({"word_vectors": "x"}, "--backbone has its own vectors"),
            ({"encoder": None, "model_name_or_path": "x"}, "--backbone has its own weights"),
            ({"max_length": 400}, "--max_length is 400, but the model has 320 positions"),
            (
                {"cache_backbone": "float16", "embedding_trainable": "all"},
                "this model trains its backbone; leave it out",
            ),
            ({"cache_backbone": "float16", "backbone": None}, "this model has none; leave it out"),
            ({"config_overrides": "embedding_size=300"}, "embedding_size=300: with this backbone it is 16"),
        ],
    )
    def test_what_is_refused(self, changes, problem, questions, folder, tmp_path):
        settings = {"backbone": str(folder), "config_overrides": TINY} | changes
        with pytest.raises(InputError, match=problem) as caught:
            prepared(options(tmp_path, questions, **settings))
        assert "\n" not in str(caught.value)

    def test_code_of_its_own(self, questions, tmp_path):
        """A saved model would lack it; --trust_remote_code is for other models."""
        fields = {"model_type": "unheard", "auto_map": {"AutoConfig": "code.Config"}}
        (tmp_path / "config.json").write_text(json.dumps(fields))
        with pytest.raises(InputError, match="comes with code of its own"):
            find_backbone(self.options(tmp_path / "out", questions, tmp_path, trust_remote_code=True))

    def test_recipes_of_word_tables(self, folder, tmp_path):
        """Their width and scale are not those of a backbone; a decoder shares the word table."""
        data = write_splits(tmp_path, role_rows)
        _, preparation = prepared(self.options(tmp_path, data, folder, task_name="propbank_srl"))
        config = preparation.model.config
        assert (config.embedding_size, config.embedding_scale, config.predicate_size) == (16, 1.0, 100)
        data = write_splits(tmp_path, lambda count, seed=0: [{"en": "two cats", "de": "zwei Katzen"}] * count)
        with pytest.raises(InputError, match="--backbone: a translator has a vocabulary for both of its languages"):
            prepared(self.options(tmp_path, data, folder, task_name="multi30k_en_de"))

    def test_table(self, tmp_path):
        """Every row has the backbone of the command line, and a record does not depend on the folder it is in."""
        runs = [plan(TABLES["backbone"], [1], 1, tmp_path, ["--backbone", f"{place}/tiny"]) for place in ("a", "b")]
        assert [run.settings for run in runs[0]] == [run.settings for run in runs[1]]
        assert {(run.settings["backbone"], run.settings["cache_backbone"]) for run in runs[0]} == {("tiny", "float16")}
        assert len(runs[0]) == 4 * 8

    def test_on_the_command_line(self, questions, folder, tmp_path):
        argv = ["--encoder", "disan", "--train_file", questions["train_file"], "--output_dir", str(tmp_path), "--cpu"]
        argv += ["--validation_file", questions["validation_file"]]
        _, preparation = prepared(parse_arguments([*argv, "--config_overrides", f"backbone={folder},{TINY}"]))
        assert preparation.model.config.backbone_config.hidden_size == 16
        assert preparation.tokenizer("cat")["input_ids"][0] == 2
