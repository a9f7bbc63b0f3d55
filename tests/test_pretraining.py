"""How the encoders that come with the package are made: sentences, losses, teachers' vectors."""

import gzip
import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from hf_blosan import DiSANConfig, DiSANModel
from hf_blosan.errors import InputError
from hf_blosan.text.tokenization import build_tokenizer
from pretraining import corpus, student, teachers
from pretraining.__main__ import Options


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def pair(first, second):
    return {"sentence1": first, "sentence2": second, "score": 1.0, "label": "neutral"}


class Glosses:
    """A WordNet of two glosses."""

    def glosses(self):
        return iter(["a small animal", "Held out, too!"])


@pytest.fixture
def data_dir(tmp_path):
    for name in corpus.SIMILARITY:
        write(tmp_path / name / "test.jsonl.gz", [pair("A dog barks.", f"Of {name}.")])
    write(tmp_path / "semantoneg" / "test.jsonl.gz", [{"text": "It's good.", "choices": ["x1y", "held out too", "z"]}])
    for name in ("sick", "stsb", "mrpc", "rte"):
        write(tmp_path / name / "train.jsonl.gz", [pair("a DOG barks", f"Only in {name}."), pair("of SICK", "Hm.")])
    write(tmp_path / "snli" / "train_subset.jsonl.gz", [pair("Two men run.", "Two  men run!")])
    write(tmp_path / "multi30k" / "train.jsonl.gz", [{"en": "A child plays.", "de": "Ein Kind spielt."}])
    words = ["I", "do", "n't", "know", "(", "yet", ")", "."]
    write(tmp_path / "propbank_ewt" / "train.jsonl.gz", [{"tokens": words}, {"tokens": words}])
    write(
        tmp_path / "cola" / "train.jsonl.gz", [{"text": "Good English.", "label": 1}, {"text": "Bad is.", "label": 0}]
    )
    for name in ("banking77", "trec", "sst5", "subj", "cr", "mpqa", "text"):
        write(tmp_path / name / "train.jsonl.gz", [{"text": f"From {name}, number {i}."} for i in range(20)])
    write(tmp_path / "sst5" / "train_phrases.jsonl.gz", [{"text": "too short"}, {"text": "x" * 400}])
    write(tmp_path / "squad" / "train.jsonl.gz", [{"question": "Who is it?", "context": "It rains. It pours."}] * 3)
    return tmp_path


def test_evaluation_texts_stay_out(data_dir):
    held_out = corpus.evaluation_texts(data_dir)
    assert {"adogbarks", "itsgood", "heldouttoo", "ofsts13"} <= held_out
    found = corpus.training_sentences(data_dir, Glosses(), held_out, seed=0)
    keys = list(map(corpus.normalised, found))
    assert len(set(keys)) == len(keys) and not set(keys) & held_out
    assert {"I don't know (yet).", "Good English.", "Only in rte.", "Two men run."} <= set(found)
    assert "Bad is." not in found and max(map(len, found)) <= corpus.LONGEST
    assert found == corpus.training_sentences(data_dir, Glosses(), held_out, seed=0)
    assert found != corpus.training_sentences(data_dir, Glosses(), held_out, seed=1)
    everything = corpus.training_sentences(data_dir, Glosses(), held_out, seed=0, everything=True)
    assert set(found) < set(everything) and {f"From text, number {i}." for i in range(20)} < set(everything)


def test_a_missing_evaluation_set_is_named(data_dir):
    (data_dir / "sts14" / "test.jsonl.gz").unlink()
    with pytest.raises(InputError, match="sts14/test.jsonl.gz"):
        corpus.evaluation_texts(data_dir)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("steps", 0, "--steps is 0; it must be more than 0"),
        ("triplets", -0.5, "--triplets is -0.5; it must be 0 or more"),
        ("share", 1.0, "must be more than 0 and below 1"),
    ],
)
def test_options(name, value, message):
    assert Options(data_dir="data", output_dir="out", triplets=0, gram=0).all_sentences is False
    with pytest.raises(InputError, match=message):
        Options(data_dir="data", output_dir="out", **{name: value})


def test_accents_do_not_hide_a_text():
    assert corpus.normalised("Cafe\u0301!") == corpus.normalised("CAF\u00c9")


def test_gram_divergence():
    torch.manual_seed(0)
    vectors = F.normalize(torch.randn(6, 8), dim=-1)
    similarities = vectors @ vectors.T
    assert student.gram_divergence(vectors, similarities, 0.05).abs() < 1e-5
    other = F.normalize(torch.randn(6, 8), dim=-1)
    wanted = torch.stack([torch.cat([row[:i], row[i + 1 :]]) for i, row in enumerate(similarities)]) / 0.05
    found = other @ other.T
    found = torch.stack([torch.cat([row[:i], row[i + 1 :]]) for i, row in enumerate(found)]) / 0.05
    expected = F.kl_div(found.log_softmax(1), wanted.log_softmax(1), log_target=True, reduction="batchmean")
    torch.testing.assert_close(student.gram_divergence(other, similarities, 0.05), expected)


RECIPE = {"order_features": 4, "share": 0.2, "tau": 0.05, "margin": 0.1, "dtype": "float32", "seed": 1}


def test_triplet_losses():
    """Two triplets, one with two foils and one with none; the first foil is nearer than the paraphrase."""
    vectors = F.normalize(
        torch.tensor([[1.0, 0, 0], [1, 1, 0], [1, 0.5, 0], [0, 0, 1], [0, 1, 0], [0, 1, 0.1]]), dim=-1
    )
    entropy, hinge, right = student.triplet_losses(vectors, [4, 2], tau=0.5, margin=0.1)
    candidates = vectors[[1, 2, 3, 5]]
    wanted = torch.tensor([0, 3])
    torch.testing.assert_close(entropy, F.cross_entropy(vectors[[0, 4]] @ candidates.T / 0.5, wanted))
    gaps = torch.stack([vectors[0] @ vectors[1] - vectors[0] @ vectors[i] for i in (2, 3)])
    torch.testing.assert_close(hinge, (0.1 - gaps).clamp(min=0).mean())
    assert right == 0.5


def test_a_student_learns_what_it_is_given():
    """Vectors of the teacher, and which of two word orders is the paraphrase; the same for the same seed."""
    sentences = [f"{a} sees {b}" for a in "abcdefgh" for b in "abcdefgh" if a != b]
    triplets = [
        [f"{a} sees {b}", f"{b} is seen by {a}", f"{b} sees {a}"] for a in "abcdefgh" for b in "abcdefgh" if a != b
    ]
    tokenizer = build_tokenizer([text for triplet in triplets for text in triplet])
    who = [["abcdefgh".index(word) for word in text.split(" sees ")] for text in sentences]
    targets = F.normalize(F.one_hot(torch.tensor(who) + torch.tensor([0, 8]), 16).sum(1).float(), dim=-1)
    sizes = {"steps": 200, "batch_size": 28, "triplet_batch_size": 14}
    recipe = student.Recipe(**sizes, learning_rate=1e-2, **RECIPE)

    def learn():
        torch.manual_seed(0)
        config = DiSANConfig(vocab_size=len(tokenizer), embedding_size=16, hidden_size=20)
        encoder, rows = student.Encoder(DiSANModel(config), tokenizer, 16), []
        before = encoder.model.embeddings.word_embeddings.weight.clone()
        student.train(encoder, sentences, targets, [targets], triplets, recipe, lambda step, terms: rows.append(terms))
        after = encoder.model.embeddings.word_embeddings.weight
        unchanged = {
            token for token, number in tokenizer.get_vocab().items() if torch.equal(before[number], after[number])
        }
        assert {"is", "seen", "by"} <= unchanged and not unchanged & {"sees", *"abcdefgh"}  # only triplets have them
        return encoder.model, rows

    model, rows = learn()
    assert [set(row) for row in rows] == [{"cosine", "gram", "entropy", "hinge", "right", "share", "minutes"}] * 10
    assert rows[-1]["cosine"] < 0.6 * rows[0]["cosine"] and rows[-1]["gram"] < rows[0]["gram"]
    assert rows[-1]["right"] > 0.8 > rows[0]["right"]
    for name, weight in learn()[0].state_dict().items():
        assert torch.equal(weight, model.state_dict()[name]), name


def test_vectors_of_teachers_are_kept(tmp_path, monkeypatch):
    calls = []

    class Teacher:
        def encode(self, texts, **options):
            calls.append(list(texts))
            return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)

    monkeypatch.setattr(teachers, "SHARD", 2)
    monkeypatch.setattr(teachers, "load_teacher", lambda name, dtype, device: Teacher())
    found = teachers.teacher_vectors("a/teacher", "float32", ["x", "xx", "xxx"], tmp_path)
    assert found.tolist() == [[1, 1], [2, 1], [3, 1]] and calls == [["x", "xx"], ["xxx"]]
    assert np.array_equal(teachers.teacher_vectors("a/teacher", "float32", ["x", "xx", "xxx"], tmp_path), found)
    assert len(calls) == 2
    teachers.teacher_vectors("a/teacher", "float32", ["x", "xx", "y"], tmp_path)
    assert calls[2:] == [["y"]] and {file.suffix for file in tmp_path.iterdir()} == {".npy"}
    folder = tmp_path / "folder"
    (folder / "2_Dense").mkdir(parents=True)
    for file, weights in (("", "one"), ("", "one"), ("", "other"), ("2_Dense", "two")):
        (folder / file / "model.safetensors").write_text(weights)
        teachers.teacher_vectors(str(folder), "float32", ["x"], tmp_path)
    assert calls[3:] == [["x"]] * 3


def test_principal_directions():
    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(200, 6)) * [1, 5, 0.1, 2, 0.1, 0.1]).astype(np.float32)
    directions = teachers.principal_directions(vectors, 3)
    assert np.abs(directions).argmax(0).tolist() == [1, 3, 0]
    np.testing.assert_allclose(directions.T @ directions, np.eye(3), atol=1e-5)


def test_rows_become_padded_batches():
    rows = student.Rows([[5, 6], [7], [8, 9, 10]], torch.device("cpu"), pad_token_id=3)
    batch = rows.batch(torch.tensor([2, 1]))
    assert batch["input_ids"].tolist() == [[8, 9, 10], [7, 3, 3]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    batches, places = student.by_length(rows.lengths, 2)
    assert [batch.tolist() for batch in batches] == [[1, 0], [2]] and places.tolist() == [1, 0, 2]
