"""Small saved models for tests of the commands, and a command that is refused."""

from pathlib import Path

import torch
from small_data import pair_rows, question_rows
from tokenizers import BertWordPieceTokenizer
from transformers import BertConfig, BertModel, BertTokenizerFast

import hf_blosan
from hf_blosan.cli.commands import main
from hf_blosan.text.tokenization import build_tokenizer


def save(folder: Path, rows: list[dict], model_class: type, **config) -> str:
    """A model with random weights, and its tokenizer."""
    torch.manual_seed(0)
    tokenizer = build_tokenizer([text for row in rows for text in row.values() if isinstance(text, str)])
    config = {"vocab_size": len(tokenizer), "embedding_size": 6, "hidden_size": 8, "classifier_size": 8} | config
    model_class(model_class.config_class(**config)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def save_classifier(folder: Path) -> str:
    labels = {"id2label": {0: "animal", 1: "colour", 2: "number"}, "label2id": {"animal": 0, "colour": 1, "number": 2}}
    return save(folder, question_rows(60), hf_blosan.DiSANForSequenceClassification, **labels)


def save_encoder(folder: Path) -> str:
    """An encoder as those that come with the package: word pieces, a table in int8, without its code."""
    words = BertWordPieceTokenizer()
    words.train_from_iterator([row["text"] for row in question_rows(60)], show_progress=False)
    tokenizer = BertTokenizerFast(tokenizer_object=words, model_max_length=64)
    torch.manual_seed(0)
    config = {"vocab_size": len(tokenizer), "embedding_size": 6, "hidden_size": 8, "classifier_size": 8}
    model = hf_blosan.DiSANModel(hf_blosan.DiSANConfig(**config, pad_token_id=tokenizer.pad_token_id))
    model.set_embedding_dtype("int8")
    model.save_pretrained(folder, include_code=False)
    tokenizer.save_pretrained(folder)
    return str(folder)


def save_sentence_bert(folder: Path, texts: list[str]) -> Path:
    """A random model of sentence-transformers with 48 features and the word pieces of some texts."""
    from sentence_transformers import SentenceTransformer  # here, because it takes seconds to import
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    words = BertWordPieceTokenizer()
    words.train_from_iterator(texts, show_progress=False)
    words.save_model(str(folder))
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder / "bert")
    torch.manual_seed(0)
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=words.get_vocab_size(), **sizes)).save_pretrained(folder / "bert")
    model = SentenceTransformer(modules=[Transformer(str(folder / "bert")), Pooling(48)], device="cpu")
    model.save(str(folder / "model"))
    return folder / "model"


def save_scorer(folder: Path) -> str:
    return save(folder, pair_rows(60), hf_blosan.MTSAForPairRegression, num_sentences=2, num_heads=2)


def refused(capsys, *words) -> str:
    """Run a command that ends with one sentence and code 2; return the sentence."""
    assert main([str(word) for word in words]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    return lines[0]
