"""Encoder-decoders: the encoders of the package with a decoder of transformers, and translation as a task."""

import copy
import json
import random
import re

import numpy as np
import pytest
import torch
from cli_models import refused
from datasets import Dataset, Features, Translation, Value
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file
from small_data import prepared, read_lines, tagging_rows, write_backbone, write_rows
from tokenizers import normalizers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    EncoderDecoderModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from hf_blosan.cli.commands import main
from hf_blosan.errors import InputError, install
from hf_blosan.registry import FAMILIES
from hf_blosan.tasks import TASKS, custom_task, load_task
from hf_blosan.tasks.base import config_class
from hf_blosan.tasks.kinds import find_kind
from hf_blosan.tasks.metrics import SacreBLEU
from hf_blosan.tasks.translation import make_encoder_decoder, texts_of, translate
from hf_blosan.text.tokenization import build_subword_tokenizer, build_tokenizer
from hf_blosan.training import RunArguments, train
from hf_blosan.training.evaluate_model import EvaluateArguments, evaluate
from hf_blosan.training.evaluation import Evaluator
from hf_blosan.training.preparation import find_encoder
from hf_blosan.training.reporting import count_parameters
from hf_blosan.training.run import make_accelerator
from hf_blosan.training.saved_model import check_head

GERMAN = {"dog": "Hund", "cat": "Katze", "man": "Mann", "runs": "läuft", "sleeps": "schläft", "here": "hier"}
STACK = {"embedding_size": 24, "hidden_size": 24, "num_hidden_layers": 2}
STACKS = {
    "mtsa": {"num_heads": 4, "attend_to_self": True},
    "disan": {},
    "multihead": {"num_heads": 4, "output_layer": True, "formulation": "paper"},
}
every_stack = pytest.mark.parametrize("encoder", STACKS)

TRANSLATION = find_kind(TASKS["multi30k_en_de"])


def rows(count, seed=0):
    """Sentences word by word, in two languages."""
    rng = random.Random(seed)
    english = [rng.choices(list(GERMAN), k=rng.randint(1, 7)) for _ in range(count)]
    return [{"en": " ".join(words), "de": " ".join(GERMAN[word] for word in words)} for words in english]


@pytest.fixture(scope="module")
def tokenizer():
    return build_subword_tokenizer(
        (text for row in rows(50) for text in row.values()), vocab_size=300, model_max_length=40
    )


def make(encoder, tokenizer, seed=0, **fields):
    torch.manual_seed(seed)
    config = AutoConfig.for_model(encoder, vocab_size=len(tokenizer), **(STACK | STACKS[encoder] | fields))
    return make_encoder_decoder(config, tokenizer).eval()


def batch_of(tokenizer, texts=("the dog runs here", "cat", "a man sleeps")):
    return tokenizer(list(texts), padding=True, return_tensors="pt")


def test_parameters_are_counted_without_the_words_of_either_language(tokenizer):
    model = make("mtsa", tokenizer)
    counts = count_parameters(model)
    words = sum(p.numel() for p in model.parameters() if p.shape[0] == len(tokenizer) and p.dim() == 2)
    assert words == len(tokenizer) * (model.config.encoder.embedding_size + model.config.decoder.d_model)
    assert counts["total"] - counts["without_embeddings"] == words


class TestTokenizer:
    @pytest.mark.parametrize("text", ["Ein Hund läuft.", "TWO dogs, don't!", "日本 😀", "a  b", '"Zitat" (x/y)'])
    def test_decoding_gives_back_the_text(self, tokenizer, text):
        ids = tokenizer(text).input_ids
        assert ids[-1] == tokenizer.eos_token_id and tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids, skip_special_tokens=True) == text

    def test_pieces_are_longer_than_bytes_and_saved(self, tokenizer, tmp_path):
        assert len(tokenizer("Hund Katze").input_ids) < 8 and len(tokenizer) == 300
        tokenizer.save_pretrained(tmp_path)
        loaded = AutoTokenizer.from_pretrained(tmp_path)
        assert loaded("Hund läuft").data == tokenizer("Hund läuft").data
        assert set(loaded("a").data) == {"input_ids", "attention_mask"} and loaded.model_max_length == 40

    def test_too_small(self):
        with pytest.raises(InputError, match="vocab_size is 100; a tokenizer of bytes and pairs needs 260 or more"):
            build_subword_tokenizer(["a"], vocab_size=100)


class TestModel:
    @every_stack
    def test_beam_search_and_its_cache(self, encoder, tokenizer):
        """With and without cache, in a batch and alone, the same translations."""
        model, batch = make(encoder, tokenizer), batch_of(tokenizer)
        assert type(model) is EncoderDecoderModel and model.generation_config.num_beams == 4
        options = {"max_new_tokens": 9, "num_return_sequences": 2, "output_scores": True}
        found = model.generate(**batch, **options, return_dict_in_generate=True)
        assert found.sequences.shape[0] == 6 and (found.sequences_scores[::2] >= found.sequences_scores[1::2]).all()
        slow = model.generate(**batch, **options, use_cache=False)
        assert torch.equal(found.sequences, slow)
        alone = model.generate(**batch_of(tokenizer, ["cat"]), max_new_tokens=9)[0]
        together = found.sequences[2, : len(alone)]
        assert torch.equal(alone, together)

    @pytest.mark.parametrize("num_beams", [1, 4])
    def test_an_endless_translation_does_not_depend_on_its_batch(self, num_beams, tokenizer):
        """A model that has learnt nothing does not know when to end."""
        model = make("mtsa", tokenizer)
        texts = ["cat", "a man sleeps", "the dog"]
        together = translate(model, batch_of(tokenizer, texts), num_beams=num_beams)
        for text, found in zip(texts, together, strict=True):
            batch = batch_of(tokenizer, [text])
            alone = translate(model, batch, num_beams=num_beams)[0]
            assert len(alone) == min(2 * batch["input_ids"].shape[1] + 10, 40) - 1
            assert torch.equal(found[: len(alone)], alone)
            assert set(found[len(alone) :].tolist()) <= {tokenizer.pad_token_id, tokenizer.eos_token_id}

    @every_stack
    def test_source_order_and_padding(self, encoder, tokenizer):
        """The decoder hears of the order of the source, and nothing of padding."""
        model = make(encoder, tokenizer)
        labels = tokenizer("Hund läuft hier", return_tensors="pt").input_ids

        def logits(ids, **options):
            return model(input_ids=ids, decoder_input_ids=labels, **options).logits

        ids = tokenizer("dog runs here man", return_tensors="pt").input_ids
        plain = logits(ids)
        padded = torch.nn.functional.pad(ids, (0, 5))
        torch.testing.assert_close(logits(padded, attention_mask=(padded != 0).long()), plain)
        turned = torch.cat([ids[:, :-1].flip(1), ids[:, -1:]], 1)
        assert (logits(turned) - plain).abs().max() > 1e-3

    @every_stack
    def test_saving(self, encoder, tokenizer, tmp_path):
        model, batch = make(encoder, tokenizer), batch_of(tokenizer)
        model.save_pretrained(tmp_path)
        names = load_file(tmp_path / "model.safetensors").keys()
        assert "decoder.lm_head.weight" not in names and not any("pooler" in name for name in names)
        expected = model.generate(**batch, max_new_tokens=9)
        for auto_class in (EncoderDecoderModel, AutoModelForSeq2SeqLM):
            loaded = auto_class.from_pretrained(tmp_path)
            assert type(loaded.encoder) is type(model.encoder) and loaded.generation_config.num_beams == 4
            assert torch.equal(loaded.generate(**batch, max_new_tokens=9), expected)

    def test_what_follows_from_the_encoder(self, tokenizer):
        model = make("mtsa", tokenizer, dropout=0.3, hidden_size=96, num_hidden_layers=3)
        decoder = model.decoder.config
        assert (decoder.decoder_layers, decoder.decoder_ffn_dim, decoder.decoder_attention_heads) == (3, 192, 3)
        assert decoder.dropout == 0.3 and model.encoder.pooler is None
        assert model.decoder.lm_head.weight is model.decoder.model.decoder.embed_tokens.weight
        # Initialised as on its own: Glorot uniform.
        weight = model.encoder.context.layers[0].feed_forward.weight
        assert 0.95 * (6 / 192) ** 0.5 < weight.abs().max() <= (6 / 192) ** 0.5
        config = AutoConfig.for_model("birnn", vocab_size=300, hidden_size=24, embedding_size=8)
        single = make_encoder_decoder(config, tokenizer, decoder_fields={"decoder_layers": 2})
        assert single.decoder.config.decoder_layers == 2 and config.pooling == "source2token"

    def test_encoders_that_do_not_fit(self, tokenizer, tmp_path):
        folder = write_backbone(tmp_path / "bert", ["a"])
        for fields, message in (
            ({"backbone": str(folder)}, "has its own vocabulary; leave out the backbone"),
            ({"predicate_size": 4}, "predicate_size=4: translation has no predicates; set it to 0"),
        ):
            with pytest.raises(InputError, match=message):
                make_encoder_decoder(AutoConfig.for_model("disan", hidden_size=24, **fields), tokenizer)

    def test_bad_tokenizers_and_pooling(self, tokenizer):
        config = AutoConfig.for_model("mtsa", vocab_size=40)
        with pytest.raises(InputError, match="the tokenizer has no bos_token, which an encoder-decoder needs; set it"):
            make_encoder_decoder(config, build_tokenizer(["a b"]))
        with pytest.raises(InputError, match="has ids up to 299, but vocab_size is 40"):
            make_encoder_decoder(config, tokenizer)
        for encoder, poolings in {
            "mtsa": "source2token, additive, mean, cls$",
            "textcnn": "source2token, additive, max$",
        }.items():
            with pytest.raises(ValueError, match=f'pooling="none" gives no sentence vector; choose from {poolings}'):
                AutoModelForSequenceClassification.from_config(AutoConfig.for_model(encoder, pooling="none"))
        with pytest.raises(StrictDataclassError):
            AutoConfig.for_model("mtsa", pooling="max")
        assert AutoModel.from_config(AutoConfig.for_model("wordbag", pooling="none")).pooler is None

    def test_seq2seq_trainer(self, tokenizer, tmp_path):
        data = rows(40)
        columns = tokenizer([row["en"] for row in data], text_target=[row["de"] for row in data])
        data = [{name: column[i] for name, column in columns.items()} for i in range(40)]
        model = make("mtsa", tokenizer)
        arguments = Seq2SeqTrainingArguments(
            tmp_path,
            max_steps=15,
            learning_rate=1e-2,
            label_smoothing_factor=0.1,
            predict_with_generate=True,
            generation_num_beams=2,
            generation_max_length=12,
            use_cpu=True,
            save_strategy="no",
            disable_tqdm=True,
        )
        collate = DataCollatorForSeq2Seq(tokenizer, model)
        trainer = Seq2SeqTrainer(model, arguments, collate, data, data, processing_class=tokenizer)
        before = trainer.evaluate()["eval_loss"]
        trainer.train()
        assert trainer.evaluate()["eval_loss"] < before - 0.5
        assert trainer.predict(data[:3]).predictions.shape[0] == 3
        assert trainer.model_accepts_loss_kwargs is False  # its loss is divided by the accumulated batches


@pytest.fixture
def data_dir(tmp_path):
    for seed, (split, count) in enumerate({"train": 64, "validation": 12, "test": 12}.items()):
        write_rows(tmp_path / "data" / "multi30k" / f"{split}.jsonl.gz", rows(count, seed))
    return tmp_path / "data"


def options(data_dir, output_dir, **changes):
    fields = ",".join(f"{name}={value}" for name, value in (STACK | {"dropout": 0.1}).items())
    common = {"task_name": "multi30k_en_de", "encoder": "mtsa", "config_overrides": fields}
    common |= {"data_dir": data_dir and str(data_dir)}
    common |= {"num_train_epochs": 2, "cpu": True, "checkpointing_steps": "epoch", "num_warmup_steps": 0}
    return RunArguments(**(common | {"output_dir": str(output_dir), "per_device_train_batch_size": 16} | changes))


class TestTask:
    def test_a_run_can_be_resumed_measured_and_used(self, data_dir, tmp_path, capsys):
        folder, again = tmp_path / "run", tmp_path / "again"
        run = train(options(data_dir, folder))
        assert run["tokenizer"] == "byte-pair" and run["config"]["decoder_layers"] == 2
        lines = (folder / "predict_results_multi30k_en_de.txt").read_text(encoding="utf-8").splitlines()
        assert len(lines) == 13 and lines[0] == "index\tprediction" and lines[-1].startswith("11\t")
        card = (folder / "README.md").read_text(encoding="utf-8")
        assert "pipeline_tag: translation" in card and "- de\n" in card and "AutoModelForSeq2SeqLM" in card
        resumed = train(options(data_dir, again, resume_from_checkpoint=str(folder / "epoch_0")))
        assert resumed["figures"] == run["figures"]
        first, second = (load_file(path / "model.safetensors") for path in (folder, again))
        assert all(torch.equal(first[name], second[name]) for name in first)

        (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(12, 2)), encoding="utf-8")
        figures = []
        for name, words in {"task": ["--data_dir", data_dir], "own": ["--test_file", tmp_path / "own.jsonl"]}.items():
            words += ["--output_file", tmp_path / f"{name}.json", "--cpu"]
            assert main(["evaluate", str(folder), *map(str, words)]) == 0
            figures.append(json.loads((tmp_path / f"{name}.json").read_text())["test_bleu"])
        assert figures == [run["figures"]["test_bleu"]] * 2
        # With the same batches, the same translations as in the run.
        texts = [str(tmp_path / "own.jsonl"), str(tmp_path / "out.jsonl"), "--text_column_name", "en", "--cpu"]
        assert main(["predict", str(folder), *texts, "--batch_size", "128"]) == 0
        found = [" ".join(row["translation"].split()) for row in read_lines(tmp_path / "out.jsonl")]
        assert found == [line.partition("\t")[2] for line in lines[1:]]
        blank = write_rows(tmp_path / "blank.jsonl", [{"en": " "}, {"en": ""}])
        assert main(["predict", str(folder), str(blank), str(tmp_path / "blanks.jsonl"), *texts[2:]]) == 0
        assert [row["translation"] for row in read_lines(tmp_path / "blanks.jsonl")] == ["", ""]
        with pytest.raises(InputError, match="--text_pair_column_name is 'de', but translation takes one text a row"):
            columns = {"text_column_name": "en", "text_pair_column_name": "de"}
            evaluate(EvaluateArguments(str(folder), test_file=str(tmp_path / "own.jsonl"), cpu=True, **columns))
        capsys.readouterr()
        assert main(["predict", str(folder), *texts, "--probabilities"]) == 2
        assert "writes the column 'translation', which has no probabilities; leave it out" in capsys.readouterr().err
        assert main(["encode", str(folder), str(tmp_path / "own.jsonl"), "--text_column_name", "en"]) == 2
        assert "translates, which hf-blosan predict and evaluate do" in capsys.readouterr().err
        changes = {"encoder": None, "model_name_or_path": str(folder), "config_overrides": None}
        with pytest.raises(InputError, match="has no column 'en'; it has tokens, tags"):
            tags = write_rows(tmp_path / "tags.jsonl", tagging_rows(3))
            evaluate(EvaluateArguments(str(folder), test_file=str(tags), cpu=True))
        overrides = {"config_overrides": "embedding_trainable=none"}
        frozen = prepared(options(data_dir, again, **changes | overrides))[1].model
        table = frozen.encoder.get_input_embeddings().weight
        assert [x for x in frozen.parameters() if not x.requires_grad] == [table]
        config = find_encoder(options(data_dir, again, **changes))[1]
        with pytest.raises(InputError, match="is of class EncoderDecoderModel, the task needs MTSAFor.*train a new"):
            check_head(options(data_dir, again, **changes), find_kind(TASKS["trec"]), config)

    @pytest.mark.parametrize("parquet", [False, True])
    @pytest.mark.parametrize(
        ("names", "direction"),
        [({}, ["en", "de"]), ({"text_column_name": "de"}, ["de", "en"]), ({"label_column_name": "en"}, ["de", "en"])],
    )
    def test_rows_of_the_hub(self, names, direction, parquet, tmp_path, capsys):
        """A text for each language, in JSON lines or as the feature that `datasets` has for them."""
        files = {}
        for seed, (split, count) in enumerate({"train_file": 64, "validation_file": 12, "test_file": 12}.items()):
            content = [{"id": str(i), "translation": row} for i, row in enumerate(rows(count, seed))]
            files[split] = str(write_rows(tmp_path / f"{split}.jsonl", content))
            if parquet:
                features = Features({"id": Value("string"), "translation": Translation(languages=["en", "de"])})
                files[split] = files[split].replace("jsonl", "parquet")
                Dataset.from_list(content, features=features).to_parquet(files[split])
        changes = {"task_name": None, "num_train_epochs": 1, "checkpointing_steps": None}
        run = train(options(None, tmp_path / "run", **files, **names, **changes))
        assert list(run["task"]["languages"]) == direction and run["config"]["decoder_layers"] == 2
        assert main(["evaluate", str(tmp_path / "run"), "--test_file", files["test_file"], "--cpu"]) == 0
        assert f"{run['figures']['test_bleu']:.4f}" in capsys.readouterr().out
        columns = write_rows(tmp_path / "columns.jsonl", rows(12, 2))  # one for each language
        found = []
        for number, source in enumerate((files["test_file"], str(columns))):
            output = tmp_path / f"{number}.jsonl"
            assert main(["predict", str(tmp_path / "run"), source, str(output), "--cpu"]) == 0
            found.append(read_lines(output))
        assert found[0] == found[1] and len(found[0]) == 12
        command = ("predict", str(tmp_path / "run"), files["test_file"], tmp_path / "o.jsonl", "--cpu")
        message = refused(capsys, *command, "--text_column_name", "fr")
        assert "not fr; name the one to translate with --text_column_name" in message
        source = direction[0]
        for wrong in ({}, {"translation": None}, {"translation": "a"}, {"translation": {direction[1]: "a"}}):
            path = write_rows(tmp_path / "wrong.jsonl", [{"translation": {"en": "a", "de": "b"}}, wrong])
            message = refused(capsys, "predict", str(tmp_path / "run"), path, tmp_path / "o.jsonl", "--cpu")
            assert f"wrong.jsonl, row 2: {source} is null or missing" in message

    def test_languages_that_do_not_fit(self, tmp_path):
        texts = [{"translation": {language: "a" for language in ("en", "de", "fr")}}]
        path = str(write_rows(tmp_path / "rows.jsonl", texts))
        with pytest.raises(InputError, match="has the languages en, de, fr; name two, with --text_column_name and"):
            custom_task(path)
        with pytest.raises(InputError, match="has the languages en, de, fr, not it; name two that it has"):
            custom_task(path, text_column_name="it")
        alone = write_rows(tmp_path / "alone.jsonl", [{"translation": {"en": "a"}}])
        with pytest.raises(InputError, match="has the language en alone; give each row its text in another one, too"):
            custom_task(alone)
        task = custom_task(path, text_column_name="fr", label_column_name="de")
        assert task.kind == "translation" and task.languages == ("fr", "de")
        with pytest.raises(InputError, match="column 'de' is used twice"):
            custom_task(path, text_column_name="de", label_column_name="de")
        write_rows(tmp_path / "names.jsonl", [{"translation": {"English": "a", "German": "b"}}])
        assert custom_task(str(tmp_path / "names.jsonl")).languages == ()  # not as the Hub names them

    @pytest.mark.parametrize("overrides", [None, "embedding_dtype=float32"])
    def test_words_in_int8_are_trained_further(self, tokenizer, data_dir, tmp_path, overrides):
        model = make("disan", tokenizer)
        words = model.encoder.get_input_embeddings().vectors()
        model.encoder.set_embedding_dtype("int8")
        model.save_pretrained(tmp_path / "int8")
        tokenizer.save_pretrained(tmp_path / "int8")
        changes = {"encoder": None, "model_name_or_path": str(tmp_path / "int8"), "config_overrides": overrides}
        _, preparation = prepared(options(data_dir, tmp_path / "out", **changes))
        table = preparation.model.encoder.get_input_embeddings()
        assert table.weight.dtype == torch.float32 and table.weight.requires_grad
        torch.testing.assert_close(table.vectors(), words, rtol=0, atol=words.abs().max().item() / 127)

    def test_loss_and_predictions(self, tokenizer, data_dir):
        """Padding counts in neither; the model's own loss is the one without smoothing."""
        kind = find_kind(TASKS["multi30k_en_de"])
        encoded = kind.encode(load_task(kind.task, data_dir=data_dir, seed=0), tokenizer)
        model = make("disan", tokenizer)
        batch = kind.collator(tokenizer)([encoded["train"][i] for i in range(5)])
        output = kind.outputs(model, batch)
        with pytest.warns(FutureWarning, match="computing the loss"):
            expected = model(**batch).loss
        torch.testing.assert_close(kind.loss(output, batch["labels"], 0.0), expected)
        assert kind.loss(output, batch["labels"], 0.5) != expected
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        predicted = kind.infer(model, inputs, quick=True)
        assert len(texts_of(predicted.numpy(), tokenizer)) == 5 and not (predicted == tokenizer.pad_token_id).any()
        references = encoded["test"][:]["labels"]
        texts = load_task(kind.task, data_dir=data_dir, seed=0)["test"]["translation"]
        assert texts_of(map(np.array, references), tokenizer) == list(texts) == list(encoded["test"]["translation"])
        assert kind.figures(
            torch.nn.utils.rnn.pad_sequence(
                [torch.tensor(row) for row in references], batch_first=True, padding_value=-100
            ).numpy(),
            list(texts),
            tokenizer,
        ) == {"bleu": pytest.approx(100)}
        assert (kind.lengths(encoded["test"]) > [len(row) for row in references]).all()

    def test_references_do_not_go_through_the_tokenizer(self, tokenizer, data_dir, tmp_path):
        """Which may be lossy: this one has no capitals."""
        lossy = copy.deepcopy(tokenizer)
        lossy.backend_tokenizer.normalizer = normalizers.Lowercase()
        lossy.save_pretrained(tmp_path / "lossy")
        changes = {"tokenizer_name": str(tmp_path / "lossy"), "max_eval_samples": 3}
        arguments, preparation = prepared(options(data_dir, tmp_path, **changes))
        evaluator = Evaluator(preparation, 2, make_accelerator(arguments))
        split, texts = evaluator.splits[-1], preparation.data["test"]["translation"][:]
        assert split.references == texts and any(text != text.lower() for text in texts)
        assert evaluator.predict(preparation.model, split, quick=True).shape[0] == 3
        ids = [tokenizer(text.lower())["input_ids"] for text in texts]
        width = max(map(len, ids))
        predictions = torch.tensor([row + [-100] * (width - len(row)) for row in ids]).numpy()
        assert preparation.kind.figures(predictions, split.references, tokenizer)["bleu"] < 90

    def test_long_texts(self, tokenizer, data_dir, caplog):
        """Sentences are truncated; the translations that are compared with are not."""
        dataset = load_task(TASKS["multi30k_en_de"], data_dir=data_dir, seed=0)
        encoded = TRANSLATION.encode(dataset, tokenizer, max_length=4)
        assert max(map(len, encoded["train"][:]["labels"])) == 4 < max(map(len, encoded["test"][:]["labels"]))
        assert max(map(len, encoded["test"][:]["input_ids"])) == 4
        assert encoded["train"][0]["labels"][-1] == tokenizer.eos_token_id
        assert "train: 46 of 64 rows reach 4 tokens" in caplog.text
        caplog.clear()
        # The tokenizer's limit, 40, is that of the decoder's positions too.
        long = [{"en": "dog " * 60, "de": "Hund " * 60}]
        files = {f"{split}_file": write_rows(data_dir / f"{split}.jsonl", long) for split in ("train", "validation")}
        encoded = TRANSLATION.encode(load_task(TASKS["multi30k_en_de"], **files, seed=0), tokenizer, max_length=64)
        assert [len(row[0]["labels"]) for row in encoded.values()] == [40, 61]
        assert [len(row[0]["input_ids"]) for row in encoded.values()] == [40, 61]
        assert "train: 1 of 1 rows reach 40 tokens" in caplog.text
        with pytest.raises(InputError, match="max_length is 1; use 2 or more"):
            TRANSLATION.encode(dataset, tokenizer, max_length=1)
        collate = find_kind(TASKS["multi30k_en_de"]).collator(tokenizer, padding="max_length", max_length=64)
        assert collate([encoded["train"][0]])["labels"].shape == (1, 40)

    @pytest.mark.parametrize(
        "row, message",
        [
            ({"en": "a", "de": " "}, "row 2: de is empty; write the sentence or remove the row"),
            ({"en": None, "de": "b"}, "row 2: en is null or missing; fill it in or remove the row"),
            ({"en": "a"}, "has no column 'de'; it has en"),
        ],
    )
    def test_bad_rows(self, tmp_path, row, message):
        first = {"en": "a", "de": "b"} if "de" in row else {"en": "a"}
        file = write_rows(tmp_path / "train.jsonl", [first, row])
        with pytest.raises(InputError, match=message):
            load_task(TASKS["multi30k_en_de"], train_file=file, validation_file=file, seed=0)

    def test_word_vectors_are_refused(self, data_dir, tmp_path):
        vectors = tmp_path / "vectors.txt"
        vectors.write_text("dog 1 2\n")
        with pytest.raises(
            InputError, match="--word_vectors needs a word-level vocabulary, but the task has a byte-pair"
        ):
            train(options(data_dir, tmp_path / "run", word_vectors=str(vectors)))

    def test_every_encoder_has_a_recipe(self, tokenizer):
        kind = find_kind(TASKS["multi30k_en_de"])
        sizes = {}
        for encoder in FAMILIES:
            recipe = kind.task.recipe(encoder)
            fields = {"hidden_size": recipe.hidden_size, **recipe.config, "vocab_size": 8000}
            sizes[encoder] = kind.make_model(encoder, fields | kind.config_fields(), tokenizer).num_parameters()
            stacked = config_class(encoder).stackable and encoder != "textcnn"
            assert stacked == ("num_hidden_layers" in fields), f"{encoder} in _STACKS of hf_blosan/tasks/recipes.py"
        assert sizes["multihead"] == sizes["mtsa"]


def test_without_sacrebleu(tokenizer, data_dir, monkeypatch):
    """The sentence comes before training."""
    monkeypatch.setattr("hf_blosan.errors.find_spec", lambda name: None)
    kind = find_kind(TASKS["multi30k_en_de"])
    with pytest.raises(InputError, match=re.escape(f"BLEU needs the package sacrebleu; {install('translation')}")):
        kind.encode(load_task(kind.task, data_dir=data_dir, seed=0), tokenizer)


def test_bleu():
    """sacreBLEU's corpus score with tokenizer 13a; case counts."""
    metric = SacreBLEU(keep_in_memory=True)
    references = ["Ein Hund läuft über die Wiese.", "Zwei Männer schlafen."]
    assert metric.compute(predictions=references, references=references) == {"bleu": pytest.approx(100)}
    found = ["ein Hund läuft über die Wiese.", references[1]]
    # By hand: 10 of 11 words, 8 of 9 pairs, 6 of 7 triples, 4 of 5 quadruples.
    expected = 100 * (10 / 11 * 8 / 9 * 6 / 7 * 4 / 5) ** 0.25
    assert metric.compute(predictions=found, references=references)["bleu"] == pytest.approx(expected)
