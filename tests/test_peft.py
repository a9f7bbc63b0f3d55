"""LoRA by PEFT on all linear maps, as on any model of transformers."""

import copy
import shutil

import peft
import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForSequenceClassification, BertConfig

from hf_blosan import AutoModelForPairRegression
from hf_blosan.errors import InputError
from hf_blosan.hub.saved import contents, identity
from hf_blosan.models import attention
from hf_blosan.models.layers_heads import HeadLinear
from hf_blosan.text.tokenization import build_tokenizer
from hf_blosan.training import RunArguments
from hf_blosan.training import train as train_command
from hf_blosan.training.checkpoints import save_pretrained

SMALL = {"vocab_size": 40, "embedding_size": 12, "hidden_size": 24, "classifier_size": 8}
FIELDS = {
    "disan": {},
    "biblosan": {"block_length": 3},
    "mtsa": {"num_heads": 4},
    "multihead": {"num_heads": 3},
    "birnn": {},
    "textcnn": {"pooling": "source2token"},
    "wordbag": {"dense_map": True},
}
SINGLE, PAIR = {"num_sentences": 1}, {"num_sentences": 2}
CASES = [(model_type, AutoModelForSequenceClassification, SINGLE) for model_type in FIELDS]
CASES += [(model_type, AutoModelForSequenceClassification, PAIR) for model_type in ("disan", "biblosan", "mtsa")]
CASES += [(model_type, AutoModelForPairRegression, PAIR) for model_type in ("disan", "biblosan", "mtsa")]
every_case = pytest.mark.parametrize("model_type, head, fields", CASES)


def make(model_type, head, fields, **others):
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **SMALL, **FIELDS[model_type], **fields, **others)
    return head.from_config(config).eval()


def batch(num_sentences, labels=True):
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(2, 40, (8, 11), generator=generator)
    types = (torch.arange(11) > 5).long().expand(8, -1) * (num_sentences - 1)
    inputs = {"input_ids": ids, "token_type_ids": types, "attention_mask": torch.ones_like(ids)}
    inputs["attention_mask"][::2, -2:] = 0
    return inputs | ({"labels": torch.arange(8) % 2} if labels else {})


def with_lora(model, **options):
    config = peft.LoraConfig(task_type="SEQ_CLS", target_modules="all-linear", r=4, lora_alpha=16, **options)
    return peft.get_peft_model(model, config)


def train(model, steps=12):
    model.train()
    optimizer = torch.optim.Adam((x for x in model.parameters() if x.requires_grad), lr=0.01)
    losses, inputs = [], batch(model.config.num_sentences)
    inputs["labels"] += model.config.problem_type == "regression"  # scores are from 1 on
    for _ in range(steps):
        loss = model(**inputs).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses


@torch.no_grad()
def logits(model):
    return model(**batch(model.config.num_sentences, labels=False)).logits


def linear_maps(model):
    """Names of the linear maps of the encoder; PEFT trains the classifier as a whole."""
    return {name for name, module in model.named_modules() if isinstance(module, nn.Linear) and "model." in name}


@every_case
def test_train_merge_save_load(model_type, head, fields, tmp_path):
    base = make(model_type, head, fields)
    model = with_lora(copy.deepcopy(base))
    adapted = {name for name, module in model.base_model.model.named_modules() if hasattr(module, "lora_A")}
    assert adapted >= linear_maps(base)
    before = logits(base)
    torch.testing.assert_close(logits(model), before)  # B is 0 at first

    losses = train(model)
    assert min(losses) < losses[0]
    trained = [(name, x) for name, x in model.named_parameters() if "lora_B" in name]
    assert all(x.abs().max() > 0 for _, x in trained), "a map takes no part in the result"
    adapted_logits = logits(model)
    assert (adapted_logits - before).abs().max() > 0.01

    model.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(copy.deepcopy(base), tmp_path).eval()
    for name, saved in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], saved), name
    torch.testing.assert_close(logits(again), adapted_logits, rtol=0, atol=1e-6)

    merged = copy.deepcopy(model).merge_and_unload()
    assert not [name for name, _ in merged.named_modules() if "lora" in name]
    exact = logits(copy.deepcopy(model).double())
    torch.testing.assert_close(logits(copy.deepcopy(model).double().merge_and_unload()), exact, rtol=0, atol=1e-12)
    torch.testing.assert_close(logits(merged), adapted_logits, rtol=0, atol=1e-6)

    merged.save_pretrained(tmp_path / "merged")
    torch.testing.assert_close(logits(head.from_pretrained(tmp_path / "merged")), logits(merged), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_adapters_of_transformers(dtype, tmp_path):
    """They leave the word table as it is, in whatever dtype."""
    base, folder = make("disan", AutoModelForSequenceClassification, SINGLE), tmp_path / "base"
    base.model.get_input_embeddings().weight.data.uniform_(-1, 1)
    base.save_pretrained(folder, embedding_dtype=dtype)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    model.add_adapter(peft.LoraConfig(target_modules="all-linear", r=4, init_lora_weights=False))
    model.eval().save_pretrained(tmp_path / "adapter")
    loaded = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    loaded.load_adapter(str(tmp_path / "adapter"))
    whole = AutoModelForSequenceClassification.from_pretrained(tmp_path / "adapter").eval()
    for found in (loaded, whole):
        assert found.get_input_embeddings().weight.dtype == getattr(torch, dtype)
        torch.testing.assert_close(logits(found), logits(model), rtol=0, atol=0)
    with pytest.raises(ValueError, match=r"model\.context.* has adapters of peft; merge them first"):
        whole.set_layers_dtype("int8")
    assert whole.config.layers_dtype == "float32"
    torch.testing.assert_close(logits(whole), logits(model), rtol=0, atol=0)
    whole.delete_adapter("default")
    whole.set_layers_dtype("int8")
    assert (logits(whole) - logits(base)).abs().max() < 0.05


def test_adapters_belong_to_the_model_and_go_with_it(tmp_path):
    tokenizer = build_tokenizer(["a cat"] * 2)
    base = make("disan", AutoModelForSequenceClassification, SINGLE)
    save_pretrained(base, tokenizer, tmp_path)
    before = contents(str(tmp_path)), identity(str(tmp_path))
    with_lora(copy.deepcopy(base), init_lora_weights=False).save_pretrained(tmp_path)
    assert contents(str(tmp_path)) != before[0] and identity(str(tmp_path)) != before[1]
    save_pretrained(base, tokenizer, tmp_path)
    assert contents(str(tmp_path)) == before[0]
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(logits(loaded), logits(base), rtol=0, atol=0)
    with_lora(copy.deepcopy(base)).save_pretrained(tmp_path / "adapter")
    shutil.copytree(tmp_path / "adapter", tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("README.md"))
    (tmp_path / "rows.csv").write_text("text,label\n" + "a cat,LABEL_0\na cat,LABEL_1\n" * 9)
    rows = {"train_file": str(tmp_path / "rows.csv"), "validation_fraction": 0.2}
    with pytest.raises(InputError, match="has adapters of peft; merge them and save the model again to train it"):
        train_command(RunArguments(model_name_or_path=str(tmp_path), output_dir=str(tmp_path / "o"), cpu=True, **rows))


def test_adapters_below_layers_in_int8(tmp_path):
    """On a backbone, and on maps of a recurrent state, both of which stay as they are."""
    backbone = BertConfig(
        vocab_size=40, hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    on_backbone = AutoConfig.for_model("disan", hidden_size=24, backbone_config=backbone)
    recurrent = AutoConfig.for_model("birnn", **SMALL)
    for name, config, maps in (("bert", on_backbone, "query"), ("lstm", recurrent, "from_input")):
        base = AutoModelForSequenceClassification.from_config(config).eval()
        base.save_pretrained(tmp_path / name, layers_dtype="int8")
        model = AutoModelForSequenceClassification.from_pretrained(tmp_path / name).eval()
        model.add_adapter(peft.LoraConfig(target_modules=[maps], r=2, init_lora_weights=False))
        model.eval().save_pretrained(tmp_path / f"{name}-adapter")
        again = AutoModelForSequenceClassification.from_pretrained(tmp_path / f"{name}-adapter").eval()
        torch.testing.assert_close(logits(again), logits(model), rtol=0, atol=0)


@pytest.mark.parametrize("model_type", ["disan", "biblosan", "mtsa", "multihead"])
def test_adapted_maps_are_called(model_type):
    """A kernel reads weight and bias of a map and would pass its adapter by."""
    model = with_lora(make(model_type, AutoModelForSequenceClassification, SINGLE))
    adapted = {name: module for name, module in model.named_modules() if hasattr(module, "lora_A")}
    assert adapted and not any(attention.is_plain(module) for module in adapted.values())
    seen = set()
    for name, module in adapted.items():
        module.lora_A["default"].register_forward_hook(lambda *_, name=name: seen.add(name))
    logits(model)
    assert seen == adapted.keys()


def test_one_head_alone_may_be_adapted():
    base = make("mtsa", AutoModelForSequenceClassification, SINGLE)
    config = peft.LoraConfig(target_modules=r".*value_map\.2", r=2, init_lora_weights=False)
    model = peft.get_peft_model(copy.deepcopy(base), config)
    heads = model.base_model.model.model.context.layers[0].attention.value_map
    assert isinstance(heads, HeadLinear) and [type(head) is nn.Linear for head in heads] == [True, True, False, True]
    x = torch.randn(2, 5, 12)
    expected = base.model.context.layers[0].attention.value_map(x)
    changed = (heads(x) - expected).abs().amax(dim=(0, 2, 3)) > 1e-3
    assert changed.tolist() == [False, False, True, False]
    torch.testing.assert_close(logits(model.merge_and_unload()), logits(model), rtol=0, atol=1e-6)


def test_dropout_is_separate_for_each_head_and_adapter():
    model = with_lora(make("mtsa", AutoModelForSequenceClassification, SINGLE, dropout=0.4), lora_dropout=0.3)
    losses = train(model, steps=30)
    assert min(losses[-5:]) < losses[0]
