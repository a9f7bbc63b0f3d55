"""Training of the words that the training texts use: the same as training all words of the table."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from small_data import (
    FILLER,
    WORDS,
    options,
    pair_rows,
    prepared,
    question_rows,
    read_log,
    tagging_rows,
    write_backbone,
    write_splits,
)

from hf_blosan.errors import InputError
from hf_blosan.models.embeddings import WordEmbeddings
from hf_blosan.training import train, word_rows
from hf_blosan.training.optim import word_source
from hf_blosan.training.word_rows import UsedWords, ids_of, train_all_words, train_used_words

OTHERS = [f"word{i}" for i in range(40)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A vocabulary in which the words of the rows are every second one."""
    used = [*FILLER, *(word for words in WORDS.values() for word in words)]
    mixed = [word for pair in zip(OTHERS, [*used, *OTHERS], strict=False) for word in pair]
    return str(write_backbone(tmp_path_factory.mktemp("words") / "tokenizer", mixed))


@pytest.fixture(params=[question_rows, pair_rows, tagging_rows], ids=["sentences", "pairs", "tags"])
def data(request, tmp_path):
    """Training rows without colours, which the test rows have."""
    rows = write_splits(tmp_path, request.param)
    kept = [line for line in open(rows["train_file"]) if not any(word in line for word in WORDS["colour"][:2])]
    open(rows["train_file"], "w").writelines(kept)
    return rows


def run(folder, data, tokenizer, **changes):
    # Rows of whole SIMD vectors, since a fused optimiser rounds what is left over differently.
    sizes = "hidden_size=8,embedding_size=16,classifier_size=8,dropout=0.3"
    train(options(folder, data, tokenizer_name=tokenizer, max_grad_norm=0.0, config_overrides=sizes, **changes))
    weights = load_file(folder / "model.safetensors")
    (name,) = (name for name in weights if "word_embeddings" in name)
    losses = [entry["loss"] for entry in read_log(folder, "train")]
    figures = [entry for entry in read_log(folder, "validation")]
    return weights, name, losses, [{k: v for k, v in row.items() if k not in ("time", "seconds")} for row in figures]


@pytest.mark.parametrize("optimizer, decay", [("adam", 0.0), ("adamw", 0.9), ("adadelta", 0.0)])
def test_the_same_model(optimizer, decay, data, tokenizer, tmp_path, monkeypatch):
    changes = {"optimizer": optimizer, "ema_decay": decay, "weight_decay": 0.1 * (optimizer == "adamw"), "l2": 1e-3}
    # Without clipping, since the norm of a gradient is summed in another order.
    found, name, losses, figures = run(tmp_path / "used", data, tokenizer, **changes)
    monkeypatch.setattr(word_rows, "WORTHWHILE", 0.0)
    expected, _, all_losses, all_figures = run(tmp_path / "all", data, tokenizer, **changes)
    assert (losses, figures, found.keys()) == (all_losses, all_figures, expected.keys())
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    arguments, preparation = prepared(options(tmp_path, data, tokenizer_name=tokenizer))
    used = sorted(ids_of(preparation.data["train"]))
    start = torch.ones(len(found[name]), dtype=bool)
    start[used] = False
    assert start.sum() > 30 and torch.equal(found[name][start], expected[name][start])


def test_only_used_rows_are_parameters(data, tokenizer, tmp_path):
    _, preparation = prepared(options(tmp_path, data, tokenizer_name=tokenizer))
    table, rows = word_source(preparation.model), preparation.data
    before = table.weight.detach().clone()
    train_used_words(table, rows["train"], pad_token_id=0)
    used = ids_of(rows["train"]).keys()
    assert type(table) is UsedWords and len(table.weight) == len(used | {0})
    assert torch.equal(table.vectors(), before) and torch.equal(table.state_dict()["weight"], before)
    assert sum(p.numel() for p in table.parameters()) == table.weight.numel()
    with torch.no_grad():
        table.weight += 1.0
    ids = torch.arange(len(before))[None]
    assert ids_of(rows["test"]).keys() - used  # words that training does not see
    changed = before.clone()
    changed[sorted(used | {0})] += 1.0
    torch.testing.assert_close(table.eval()(ids)[0], changed)
    some = torch.tensor([sorted(used)])
    torch.testing.assert_close(table.train()(some)[0], changed[sorted(used)])
    with pytest.raises(ValueError, match=f"the vocabulary ends at {len(before) - 1};"):
        table.eval()(torch.tensor([[len(before)]]))
    train_all_words(table)
    assert type(table) is WordEmbeddings and table.padding_idx == 0 and not list(table.buffers())
    torch.testing.assert_close(table.weight.detach(), changed)
    torch.testing.assert_close(table(ids)[0], changed)


def test_padding_has_no_gradient(data, tokenizer, tmp_path):
    _, preparation = prepared(options(tmp_path, data, tokenizer_name=tokenizer))
    table = word_source(preparation.model)
    train_used_words(table, preparation.data["train"], pad_token_id=0)
    used = sorted(ids_of(preparation.data["train"]))
    table(torch.tensor([[0, used[1], 0]])).sum().backward()
    rows = table.weight.grad.abs().sum(1).nonzero().flatten().tolist()
    assert table.ids[rows].tolist() == [used[1]]


def test_resumed_runs_are_the_same(data, tokenizer, tmp_path):
    common = {"tokenizer_name": tokenizer, "checkpointing_steps": "epoch", "ema_decay": 0.5}
    train(options(tmp_path / "whole", data, **common))
    train(options(tmp_path / "parts", data, **common, resume_from_checkpoint=str(tmp_path / "whole" / "epoch_0")))
    whole, parts = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_another_padding_than_the_models(data, tokenizer, tmp_path):
    """A tokenizer may pad with another token than the configuration names; padding is masked."""
    _, preparation = prepared(options(tmp_path, data, tokenizer_name=tokenizer))
    table, unused = word_source(preparation.model), preparation.tokenizer.convert_tokens_to_ids(OTHERS[0])
    train_used_words(table, preparation.data["train"], pad_token_id=unused)
    assert {0, unused} <= set(table.ids.tolist())
    assert table.train()(torch.tensor([[unused]])).shape == (1, 1, 6)


def test_a_checkpoint_brings_back_all_rows(data, tokenizer, tmp_path):
    """Also those that are not trained, if the table at the start is another now."""
    tables = []
    for seed in (1, 2):
        _, preparation = prepared(options(tmp_path, data, tokenizer_name=tokenizer))
        tables.append(word_source(preparation.model))
        torch.nn.init.normal_(tables[-1].weight, generator=torch.Generator().manual_seed(seed))
        train_used_words(tables[-1], preparation.data["train"], pad_token_id=0)
    assert not torch.equal(tables[0].vectors(), tables[1].vectors())
    tables[1].load_state_dict(tables[0].state_dict())
    assert torch.equal(tables[0].vectors(), tables[1].vectors())


def test_other_rows_do_not_resume(data, tokenizer, tmp_path, monkeypatch):
    """The optimiser's state belongs to the rows that it trains."""
    arguments = options(tmp_path / "run", data, tokenizer_name=tokenizer, checkpointing_steps="epoch")
    with monkeypatch.context() as patch:
        patch.setattr(word_rows, "WORTHWHILE", 0.0)
        train(arguments)
    with pytest.raises(
        InputError, match="different settings .*trained_words was None, now it is .* and its version of hf_blosan"
    ):
        train(replace(arguments, resume_from_checkpoint="epoch_0"))


def test_tables_that_stay_whole(data, tokenizer, tmp_path):
    for changes in ({}, {"tokenizer_name": tokenizer, "embedding_trainable": "none"}):
        _, preparation = prepared(options(tmp_path, data, **changes))
        table = word_source(preparation.model)
        train_used_words(table, preparation.data["train"], pad_token_id=0)
        assert type(table) is WordEmbeddings
