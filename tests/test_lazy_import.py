"""After `import hf_blosan` every encoder is registered, and no model is imported before it is first used."""

import os
import pickle
import subprocess
import sys

import fresh
import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

import hf_blosan
from hf_blosan import AutoModelForPairRegression, registry

NOTHING_IMPORTED = """
import sys
if "first" in sys.argv[2]:
    import transformers.models.auto.modeling_auto
import hf_blosan
def imported():
    return [n for n in sys.modules if n.startswith(("hf_blosan.models.modeling", "hf_blosan.kernels"))]
assert not imported(), imported()
"""
STATEMENTS = {
    "names": """
from transformers import AutoConfig
assert AutoConfig.for_model("disan").model_type == "disan" and not imported()
from hf_blosan import AutoModelForPairRegression, DiSANConfig
model = AutoModelForPairRegression.from_config(DiSANConfig(num_sentences=2))
from hf_blosan import DiSANForPairRegression
assert type(model) is DiSANForPairRegression and DiSANForPairRegression.__name__ == "DiSANForPairRegression"
""",
    "star": "from hf_blosan import *; DiSANModel, MTSAConfig, AutoModelForPairRegression",
    "for_model": "from transformers import AutoConfig; assert AutoConfig.for_model('mtsa').model_type == 'mtsa'",
    "transformers_first": """
from transformers import AutoModel
assert hf_blosan.DiSANConfig in AutoModel._model_mapping and not imported()
""",
    "auto_first": """
from hf_blosan.registry import LazyClasses
from transformers import AutoModelForSequenceClassification, Trainer
assert hf_blosan.DiSANConfig in AutoModelForSequenceClassification._model_mapping
""",
    "from_config": """
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification
config = AutoConfig.for_model("disan", vocab_size=9, embedding_size=4, hidden_size=8)
assert type(AutoModel.from_config(config)) is hf_blosan.DiSANModel
assert type(AutoModelForSequenceClassification.from_config(config)) is hf_blosan.DiSANForSequenceClassification
config = AutoConfig.for_model("disan", vocab_size=9, embedding_size=4, hidden_size=8, num_sentences=2)
assert type(hf_blosan.AutoModelForPairRegression.from_config(config)) is hf_blosan.DiSANForPairRegression
assert {name.rpartition("_")[2] for name in imported() if "modeling" in name} == {"disan"}
""",
    "from_pretrained": """
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification
assert type(AutoConfig.from_pretrained(sys.argv[1])).__name__ == "DiSANConfig" and not imported()
assert type(AutoModelForSequenceClassification.from_pretrained(sys.argv[1])) is hf_blosan.DiSANForPairRegression
assert type(hf_blosan.AutoModelForPairRegression.from_pretrained(sys.argv[1])) is hf_blosan.DiSANForPairRegression
assert type(AutoModel.from_pretrained(sys.argv[1])) is hf_blosan.DiSANModel
""",
    "pipeline": """
from transformers import pipeline
classify = pipeline("text-classification", sys.argv[1])
assert type(classify.model) is hf_blosan.DiSANForPairRegression
assert type(classify({"text": "a dog", "text_pair": "a cat"}, function_to_apply="none")["score"]) is float
""",
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A saved pair regression with its tokenizer."""
    from hf_blosan.text.tokenization import build_tokenizer

    folder = str(tmp_path_factory.mktemp("saved"))
    tokenizer = build_tokenizer(["a dog", "a cat"])
    config = hf_blosan.DiSANConfig(vocab_size=len(tokenizer), embedding_size=4, hidden_size=8, num_sentences=2)
    hf_blosan.DiSANForPairRegression(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


FAST = ("names", "pipeline")


@pytest.mark.parametrize(
    "statement", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in STATEMENTS]
)
def test_models_are_imported_on_first_use(statement, saved, tmp_path):
    code, first = NOTHING_IMPORTED + STATEMENTS[statement], statement == "transformers_first"
    if statement in ("names", "for_model") or first:  # nothing is imported before, not even the Auto classes
        command = [sys.executable, "-c", code, saved, "first" if first else ""]
        run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    else:
        run = fresh.run(code, saved, "", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "is not supported for" not in run.stderr  # what pipelines say of a model they do not find in the mapping


def test_public_names():
    for name in hf_blosan.__all__:
        assert name in dir(hf_blosan) and getattr(hf_blosan, name).__name__ == name
    with pytest.raises(AttributeError, match="'hf_blosan' has no attribute 'BERTModel'"):
        _ = hf_blosan.BERTModel


def test_every_family_is_registered_once_or_twice():
    for _ in range(2):
        for model_type, stem in registry.FAMILIES.items():
            heads = ("SequenceClassification", "PairRegression", "TokenClassification", "SentenceSelection")
            names = (f"{stem}{suffix}" for suffix in ("Config", "Model", *(f"For{head}" for head in heads)))
            config, model, classifier, regressor, tagger, selector = map(registry.load, names)
            assert config.model_type == model_type and type(AutoConfig.for_model(model_type)) is config
            for auto_class, classes in (
                (AutoModel, (model,)),
                (AutoModelForSequenceClassification, (classifier, regressor)),
                (AutoModelForPairRegression, (regressor,)),
                (AutoModelForTokenClassification, (tagger,)),
                (AutoModelForMultipleChoice, (selector,)),
            ):
                mapping = auto_class._model_mapping
                assert config in mapping and config in mapping.keys()
                assert mapping[config] == classes and classes in mapping._extra_content.values()
        registry.register()


def test_two_hooks_of_one_module(monkeypatch):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    calls = []
    for number in range(2):
        registry.after_import("colorsys", lambda number=number: calls.append(number))
    import colorsys  # noqa: F401

    assert calls == [0, 1]


def test_a_users_class_takes_the_place(monkeypatch):
    class Other(hf_blosan.DiSANModel):
        pass

    config = hf_blosan.DiSANConfig(vocab_size=9, embedding_size=4, hidden_size=8)
    monkeypatch.setattr(AutoModel._model_mapping, "_extra_content", dict(AutoModel._model_mapping._extra_content))
    AutoModel.register(hf_blosan.DiSANConfig, Other, exist_ok=True)
    assert type(AutoModel.from_config(config)) is Other


def test_lazy_classes_are_a_tuple_of_classes():
    classes = (hf_blosan.DiSANModel, hf_blosan.MTSAModel)
    lazy = registry.LazyClasses(["DiSANModel", "MTSAModel"])
    assert isinstance(lazy, tuple) and len(lazy) == 2 and lazy == classes and classes == lazy
    assert hash(lazy) == hash(classes) and lazy != classes[:1] and lazy != [*classes]
    assert [*lazy] == list(lazy) == list(classes) and tuple(lazy) == classes and lazy[1] is classes[1]
    assert hf_blosan.MTSAModel in lazy and torch.nn.Linear not in lazy and lazy.index(classes[1]) == 1
    assert pickle.loads(pickle.dumps(lazy)) == classes and pickle.loads(pickle.dumps(registry.LazyClasses())) == ()
    first, second = lazy
    assert (first, second) == classes
