"""A checkpoint carries the code of its model and loads where the package is not installed."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import fresh
import pytest
import torch
from loopback_hub import LoopbackHub
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTextEncoding,
    AutoTokenizer,
    pipeline,
)

import hf_blosan
from hf_blosan.cli.commands import main
from hf_blosan.hub.saved import identity
from hf_blosan.registry import FAMILIES
from hf_blosan.text.tokenization import build_tokenizer

TEXTS = ["the dog sees the cat", "a bird sings", "no cat sings here", "the bird sleeps"]
SMALL = {"embedding_size": 24, "hidden_size": 24, "classifier_size": 8}
BUNDLE = Path(hf_blosan.__file__).parent / "models"
WEIGHTS = "model.safetensors"


def config_of(model_type, **fields):
    return AutoConfig.for_model(model_type, vocab_size=30, **(SMALL | fields))


def make(model_type, suffix="Model", **fields):
    return getattr(hf_blosan, FAMILIES[model_type] + suffix)(config_of(model_type, **fields)).eval()


def code(folder) -> set[str]:
    return {path.name for path in Path(folder).glob("*.py")}


def saved_config(folder) -> dict:
    return json.loads((Path(folder) / "config.json").read_text())


@pytest.mark.parametrize("model_type", FAMILIES)
def test_every_save_has_all_entries(model_type, tmp_path):
    """Whatever class of a family is saved, its checkpoint names encoder and classifier, which its files define.

    The other heads travel only with the models that have them, each in a file of its own.
    """
    stem, modeling = FAMILIES[model_type], f"modeling_{model_type}."
    expected = {
        "AutoConfig": f"configuration_{model_type}.{stem}Config",
        "AutoModel": f"{modeling}{stem}Model",
        "AutoModelForTextEncoding": f"{modeling}{stem}Model",
        "AutoModelForSequenceClassification": f"{modeling}{stem}ForSequenceClassification",
    }
    others = {
        "ForTokenClassification": ("AutoModelForTokenClassification", "tagging"),
        "ForSentenceSelection": ("AutoModelForMultipleChoice", "selection"),
        "ForPairRegression": ("AutoModelForPairRegression", "regression"),
    }
    suffixes = ("Model", "ForTokenClassification", "ForSentenceSelection", "ForSequenceClassification")
    for suffix in (*suffixes, "ForPairRegression"):
        folder = tmp_path / suffix
        num_sentences = 2 if suffix.startswith(("ForSequence", "ForPair")) else 1
        make(model_type, suffix, num_sentences=num_sentences).save_pretrained(folder)
        named, own = dict(expected), set()
        if suffix in others:
            auto_class, kind = others[suffix]
            named[auto_class] = f"modeling_{model_type}_{kind}.{stem}{suffix}"
            own = {f"modeling_{model_type}_{kind}.py"}
            if kind == "regression":  # what pipelines and run_glue scripts load
                named["AutoModelForSequenceClassification"] = named[auto_class]
            assert {f"heads_{kind}.py", *own} <= code(folder)
        assert saved_config(folder)["auto_map"] == named
        heads = {f"heads_{kind}.py" for _, kind in others.values()}
        assert len(code(folder) & heads) == (suffix in others)
        for name in code(folder) - own:
            # So that transformers can tell this head's configuration from others in folders of the same name.
            is_own = suffix == "ForPairRegression" and name == f"configuration_{model_type}.py"
            added = f"\n# Of {stem}{suffix}.\n" if is_own else ""
            assert (folder / name).read_text() == (BUNDLE / name).read_text() + added
        for entry in named.values():
            module, _, class_name = entry.partition(".")
            assert f"class {class_name}(" in (folder / f"{module}.py").read_text()
    strangers = {f"modeling_{other}.py" for other in FAMILIES if other != model_type}
    assert not code(folder) & strangers and "__init__.py" not in code(folder)


def test_without_code(tmp_path):
    model = make("disan")
    model.save_pretrained(tmp_path / "model", include_code=False)
    assert not code(tmp_path / "model") and "auto_map" not in saved_config(tmp_path / "model")
    model.save_pretrained(tmp_path / "model")
    assert len(code(tmp_path / "model")) == 12 and len(saved_config(tmp_path / "model")["auto_map"]) == 4
    model.save_pretrained(tmp_path / "model", include_code=False)
    for_sentence_transformers = {"modules.json", "sentence_bert_config.json"}
    found = {path.name for path in (tmp_path / "model").iterdir()}
    assert found == {"config.json", WEIGHTS} | for_sentence_transformers
    assert not {"auto_map", "custom_pipelines"} & set(saved_config(tmp_path / "model"))


def test_arguments_of_transformers_pass_through(tmp_path):
    model = make("disan")
    model.save_pretrained(tmp_path / "other", False)
    model.save_pretrained(tmp_path / "other", is_main_process=False, save_function=None)
    assert not any((tmp_path / "other").iterdir())
    state = {name: torch.zeros_like(tensor) for name, tensor in model.state_dict().items()}
    model.save_pretrained(tmp_path / "model", True, state, save_function=None, max_shard_size="1MB")
    assert not any(tensor.any() for tensor in AutoModel.from_pretrained(tmp_path / "model").parameters())


def test_saving_again_leaves_nothing_stale(tmp_path):
    """Neither another family's code nor weights in another number of files; a file of the user stays."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("train.py", "modeling_notes.py"):
        (folder / name).write_text("print('mine')")
    make("mtsa").save_pretrained(folder)
    assert {"layers_mtsa.py", "modeling_mtsa.py", "train.py", "modeling_notes.py"} <= code(folder)
    first, second = make("disan"), make("disan")
    first.save_pretrained(folder, max_shard_size=5000)
    assert code(folder) - code(BUNDLE) == {"train.py", "modeling_notes.py"}
    assert not [name for name in code(folder) if "mtsa" in name] and not (folder / WEIGHTS).exists()
    for model, options in ((second, {}), (first, {"max_shard_size": 5000})):
        model.save_pretrained(folder, **options)
        state = AutoModel.from_pretrained(folder).state_dict()
        assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_a_users_class_is_saved_with_the_code_it_builds_on(tmp_path):
    """Its own file is not taken along, which may be a training script; the family's classes load its weights."""

    class Other(hf_blosan.DiSANModel):
        pass

    Other(config_of("disan")).save_pretrained(tmp_path)
    assert saved_config(tmp_path)["auto_map"]["AutoModel"] == "modeling_disan.DiSANModel"
    assert Path(__file__).name not in code(tmp_path)
    assert type(AutoModel.from_pretrained(tmp_path)) is hf_blosan.DiSANModel


@pytest.mark.parametrize("trust_remote_code", [None, True], ids=["plain", "trusted"])
def test_the_installed_code_wins(tmp_path, monkeypatch, trust_remote_code):
    """No question is asked, and nothing of the checkpoint's code is run."""
    make("disan", "ForPairRegression", num_sentences=2).save_pretrained(tmp_path)
    build_tokenizer(TEXTS).save_pretrained(tmp_path)
    for file in tmp_path.glob("*.py"):
        file.write_text("raise SystemExit('the checkpoint runs its own code')")
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("a question was asked"))
    options = {} if trust_remote_code is None else {"trust_remote_code": True}
    assert type(AutoConfig.from_pretrained(tmp_path, **options)) is hf_blosan.DiSANConfig
    for auto_class, suffix in (
        (AutoModel, "Model"),
        (AutoModelForTextEncoding, "Model"),
        (AutoModelForSequenceClassification, "ForPairRegression"),
        (hf_blosan.AutoModelForPairRegression, "ForPairRegression"),
    ):
        model = auto_class.from_pretrained(tmp_path, **options)
        assert type(model) is getattr(hf_blosan, f"DiSAN{suffix}")
        assert type(auto_class.from_config(model.config, **options)) is type(model)
    AutoTokenizer.from_pretrained(tmp_path, **options)
    assert type(pipeline("text-classification", str(tmp_path), **options).model) is hf_blosan.DiSANForPairRegression


def test_a_config_that_names_no_architecture(tmp_path):
    make("disan", "ForSequenceClassification").save_pretrained(tmp_path)
    for entry in ({"architectures": None}, {}):
        config = {name: value for name, value in saved_config(tmp_path).items() if name != "architectures"}
        (tmp_path / "config.json").write_text(json.dumps(config | entry))
        loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
        assert type(loaded) is hf_blosan.DiSANForSequenceClassification


@pytest.mark.usefixtures("code_of_checkpoints")
def test_a_family_that_is_not_installed_comes_with_its_code(tmp_path):
    """Also for the package's own Auto class, as when a newer version has another family."""
    folder = tmp_path / "model"
    make("disan", "ForPairRegression", num_sentences=2).save_pretrained(folder)
    for name, old, new in (("config.json", '"disan"', '"newer"'), ("configuration_disan.py", '"disan"', '"newer"')):
        (folder / name).write_text((folder / name).read_text().replace(old, new))
    for auto_class in (hf_blosan.AutoModelForPairRegression, AutoModelForSequenceClassification):
        model = auto_class.from_pretrained(folder, trust_remote_code=True)
        assert type(model).__name__ == "DiSANForPairRegression" and type(model).__module__.startswith(
            "transformers_mod"
        )


def test_saving_and_uploading_at_once(tmp_path, monkeypatch):
    """Into a folder that has the code already, and with or without it in the repository."""
    model = make("disan")
    with LoopbackHub() as hub:
        hub.use_here(monkeypatch, tmp_path / "cache")
        for _ in range(2):
            model.save_pretrained(tmp_path / "model", push_to_hub=True, repo_id="me/both", private=True)
        assert hub.repos["me/both"].private
        assert {name for name in hub.repos["me/both"].files if name.endswith(".py")} == code(tmp_path / "model")
        model.save_pretrained(tmp_path / "model", push_to_hub=True, repo_id="me/without", include_code=False)
        assert set(hub.repos["me/without"].files) == {"config.json", WEIGHTS, "README.md"}
        card = hub.repos["me/without"].text("README.md")
        assert "- disan\n" in card and "custom_code" not in card
        hub.repos.pop("me/both")
        model.push_to_hub("me/both", tags="mine")
        card = hub.repos["me/both"].text("README.md")
        assert all(f"- {tag}\n" in card for tag in ("disan", "custom_code", "mine"))
        assert "library_name: transformers" in card


def test_predicting_with_a_model_on_the_hub(tmp_path, monkeypatch):
    """A file that was begun is continued by the same commit only."""
    model, tokenizer = make("disan", "ForSequenceClassification"), build_tokenizer(TEXTS)
    (tmp_path / "rows.csv").write_text("text\n" + "\n".join(TEXTS) + "\n")
    words = ["predict", "me/model", str(tmp_path / "rows.csv"), str(tmp_path / "o.jsonl"), "--cpu"]
    with LoopbackHub() as hub:
        hub.use_here(monkeypatch, tmp_path / "cache")
        model.push_to_hub("me/model")
        tokenizer.push_to_hub("me/model")
        commits = [identity("me/model")]
        assert main(words) == 0 and len((tmp_path / "o.jsonl").read_text().splitlines()) == len(TEXTS)
        model.config.classifier_bias = False
        model.config.push_to_hub("me/model")
        commits.append(identity("me/model"))
    (first, one), (second, other) = commits
    assert first == second == "me/model" and one != other and len(one) == len(other) == 40


ELSEWHERE = """
import sys
from pathlib import Path
for name in ("hf_blosan", "numba", "triton"):
    sys.modules[name] = None  # importing it raises ImportError
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoModelForTextEncoding
from transformers import AutoTokenizer, pipeline

_, out, copies, *places = sys.argv
trusted = {"trust_remote_code": True}
found = {}
for place in places:
    tokenizer = AutoTokenizer.from_pretrained(place, **trusted)
    config = AutoConfig.from_pretrained(place, **trusted)
    pairs = config.num_sentences == 2
    texts = ("the dog sees the cat", "a bird sings") if pairs else ("the dog sees the cat",)
    batch = tokenizer(*texts, return_tensors="pt")
    with torch.no_grad():
        encoder = AutoModel.from_pretrained(place, **trusted)
        encoded = encoder(batch["input_ids"]).pooler_output
        assert type(AutoModelForTextEncoding.from_pretrained(place, **trusted)) is type(encoder)
        small = AutoModel.from_pretrained(place, config=config, embedding_dtype="int8", **trusted)
        assert small.get_input_embeddings().weight.dtype == torch.int8 and config.embedding_dtype == "float32"
        model = AutoModelForSequenceClassification.from_pretrained(place, **trusted)
        assert "transformers_modules" in type(model).__module__ and model.config.model_type == config.model_type
        same = AutoModelForSequenceClassification.from_config(model.config, **trusted)
        assert type(same) is type(model)
        logits = model(**batch).logits
    classify = pipeline("text-classification", model=place, **trusted)
    answer = classify({"text": texts[0], "text_pair": texts[1]} if pairs else texts[0])
    answer = answer if isinstance(answer, dict) else answer[0]
    found[place] = {"encoded": encoded, "logits": logits, "score": answer["score"], "class": type(model).__name__}
    copy = Path(copies) / Path(place).name
    model.save_pretrained(copy)
    model.save_pretrained(copy.with_name(copy.name + "_without"), include_code=False)
    tokenizer.save_pretrained(copy)
    vectors = copy.with_name(copy.name + "_encoder")
    encoder.save_pretrained(vectors)
    tokenizer.save_pretrained(vectors)
    embed = pipeline("sentence-embedding", model=str(vectors), **trusted)
    with torch.no_grad():
        expected = encoder(**tokenizer(texts[0], return_tensors="pt")).pooler_output[0]
    assert torch.equal(embed(texts[0], return_tensors=True), expected)
torch.save(found, out)
"""


def run_elsewhere(tmp_path, hub, places):
    """What the checkpoints compute in a fresh process without the package."""
    command = [sys.executable, "-c", ELSEWHERE, str(tmp_path / "out.pt"), str(tmp_path / "copies"), *map(str, places)]
    environment = hub.environment(tmp_path / "home")
    environment.pop("PYTHONPATH", None)
    run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "is not supported for" not in run.stderr and "newly initialized" not in run.stderr, run.stderr
    return torch.load(tmp_path / "out.pt", weights_only=True)


@pytest.mark.parametrize(
    "model_types", [("mtsa",), pytest.param(tuple(FAMILIES), marks=pytest.mark.slow)], ids=["one", "all"]
)
def test_checkpoints_load_without_the_package(model_types, tmp_path, monkeypatch, remove_kernels):
    """From folders, two of one name, and from the Hub: equal results there; saved again they are complete again."""
    tokenizer = build_tokenizer(TEXTS)
    models, others, places = {}, {}, []
    with LoopbackHub() as hub:
        hub.use_here(monkeypatch, tmp_path / "cache")
        for number, model_type in enumerate(model_types):
            suffix = "ForPairRegression" if model_type in ("biblosan", "mtsa") else "ForSequenceClassification"
            models[model_type] = model = make(
                model_type, suffix, num_sentences=1 + number % 2 if "Seq" in suffix else 2
            )
            folder, namesake = tmp_path / model_type, tmp_path / "others" / model_type
            others[str(namesake)] = make(model_type, "ForSequenceClassification")
            for path, saved in ((folder, model), (namesake, others[str(namesake)])):
                saved.save_pretrained(path)
                tokenizer.save_pretrained(path)
            model.push_to_hub(f"me/{model_type}", private=number == 0)
            tokenizer.push_to_hub(f"me/{model_type}")
            assert set(hub.repos[f"me/{model_type}"].files) == {path.name for path in folder.iterdir()} | {"README.md"}
            places += [namesake, folder, f"me/{model_type}"]
        found = run_elsewhere(tmp_path, hub, places)
        monkeypatch.undo()
    remove_kernels()  # what the models have there
    for place in map(str, places):
        model, there = others.get(place) or models[Path(place).name], found[place]
        texts = ("the dog sees the cat", "a bird sings") if model.config.num_sentences == 2 else (TEXTS[0],)
        batch = tokenizer(*texts, return_tensors="pt")
        with torch.no_grad():
            assert torch.equal(there["encoded"], model.model(batch["input_ids"]).pooler_output)
            logits = model(**batch).logits
        assert torch.equal(there["logits"], logits) and there["class"] == type(model).__name__
        score = logits.item() if model.config.num_labels == 1 else logits.softmax(-1).max().item()
        assert there["score"] == pytest.approx(score, abs=1e-6)
    for model_type, model in models.items():
        copy, without = tmp_path / "copies" / model_type, tmp_path / "copies" / f"{model_type}_without"
        assert code(copy) == code(tmp_path / model_type)
        assert saved_config(copy)["auto_map"] == saved_config(tmp_path / model_type)["auto_map"]
        assert not code(without) and "auto_map" not in saved_config(without)
        again = AutoModelForSequenceClassification.from_pretrained(copy)
        assert type(again) is type(model)
        assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in model.state_dict().items())


HEADS_ELSEWHERE = """
import sys
sys.modules["hf_blosan"] = None  # importing it raises ImportError
import torch
from transformers import AutoModel, AutoModelForMultipleChoice, AutoModelForTokenClassification

out, tagger, selector = sys.argv[1:]
trusted, found = {"trust_remote_code": True}, {}
ids = torch.arange(2, 14)[None]
for auto_class, place in ((AutoModelForTokenClassification, tagger), (AutoModelForMultipleChoice, selector)):
    model = auto_class.from_pretrained(place, **trusted)
    assert "transformers_modules" in type(model).__module__
    assert type(AutoModel.from_pretrained(place, **trusted)).__name__.endswith("Model")
    model.save_pretrained(place + "_again")
    again = auto_class.from_pretrained(place + "_again", **trusted)
    lengths = {"question_input_ids": ids[:, :3], "passage_lengths": torch.tensor([1])}
    inputs = {"input_ids": ids, **(lengths if place == selector else {})}
    with torch.no_grad():
        found[place] = model(**inputs).logits
        assert torch.equal(again(**inputs).logits, found[place])
torch.save(found, out)
"""


@pytest.mark.parametrize("model_type", ["disan", *(pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES)])
def test_heads_that_few_models_have_load_without_the_package(model_type, tmp_path, remove_kernels):
    places = {suffix: tmp_path / suffix for suffix in ("ForTokenClassification", "ForSentenceSelection")}
    models = {suffix: make(model_type, suffix) for suffix in places}
    for suffix, model in models.items():
        assert pickle.loads(pickle.dumps(type(model))) is getattr(hf_blosan, FAMILIES[model_type] + suffix)
        model.save_pretrained(places[suffix])
    run = fresh.run(HEADS_ELSEWHERE, str(tmp_path / "out.pt"), *map(str, places.values()), cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    remove_kernels()  # what the models have there
    ids = torch.arange(2, 14)[None]
    packed = {"question_input_ids": ids[:, :3], "passage_lengths": torch.tensor([1])}
    for suffix, own in (("ForTokenClassification", {}), ("ForSentenceSelection", packed)):
        with torch.no_grad():
            assert torch.equal(found[str(places[suffix])], models[suffix](ids, **own).logits)
        again = Path(f"{places[suffix]}_again")
        assert code(again) == code(places[suffix])
        assert saved_config(again)["auto_map"] == saved_config(places[suffix])["auto_map"]
        assert type(type(models[suffix]).from_pretrained(again)) is type(models[suffix])


ONLY_THE_TOKENIZER = """
import sys
sys.modules["hf_blosan"] = None  # importing it raises ImportError
from transformers import AutoTokenizer, PreTrainedTokenizerFast
loader, folder, options = sys.argv[1], sys.argv[2], {"trust_remote_code": True} if sys.argv[3:] else {}
tokenizer = {"Auto": AutoTokenizer, "Fast": PreTrainedTokenizerFast}[loader].from_pretrained(folder, **options)
assert tokenizer("a bird")["input_ids"] and "[UNK]" not in tokenizer.tokenize("a bird sings"), tokenizer
tokenizer.save_pretrained(folder)
"""


@pytest.mark.parametrize("arguments", [["Fast"], ["Auto", "trusted"], ["Auto"]], ids=" ".join)
def test_the_tokenizer_of_a_checkpoint_needs_no_code(arguments, tmp_path):
    """It is transformers' own. Only `AutoTokenizer` reads config.json first, of which it says or asks something."""
    folder = tmp_path / "model"
    make("disan").save_pretrained(folder)
    build_tokenizer(TEXTS).save_pretrained(folder)
    run = fresh.run(ONLY_THE_TOKENIZER, arguments[0], str(folder), *arguments[1:], cwd=tmp_path)
    assert run.returncode == 0 and not run.stdout, run.stderr
    assert not run.stderr or arguments == ["Auto"], run.stderr
    assert "auto_map" not in (folder / "tokenizer_config.json").read_text()
