"""The command that runs the papers' tables."""

import json
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from scipy.stats import ttest_1samp
from small_data import (
    FILLER,
    QUESTION_WORDS,
    read_lines,
    write_rows,
    write_trec,
    write_vectors,
)

from hf_blosan.cli.overrides import parse_config_overrides
from hf_blosan.errors import InputError
from hf_blosan.registry import pretrained_names
from hf_blosan.training import RunArguments, train
from reproduce import command, runner, significance
from reproduce.runner import plan
from reproduce.tables import TABLES


@pytest.fixture(scope="module")
def trec(tmp_path_factory) -> list[str]:
    """Options for a small data set in TREC's format and for small models."""
    folder = tmp_path_factory.mktemp("data")
    words = [word for kind in QUESTION_WORDS.values() for word in kind] + FILLER
    options = ["--data_dir", write_trec(folder), "--word_vectors", write_vectors(folder / "vectors.txt", words)]
    options += ["--max_train_samples", "120", "--num_train_epochs", "2", "--optimizer", "adam", "--cpu"]
    return [*map(str, options), "--config_overrides", "hidden_size=8,classifier_size=8,dropout=0"]


def run(capsys, *arguments) -> tuple[int, list[str], str]:
    """The command in this process: exit code, printed lines, standard error."""
    capsys.readouterr()
    code = command.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out.splitlines(), captured.err


def test_table6(trec, tmp_path, capsys, monkeypatch):
    """One system trains, another fails; finished runs are not trained again."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    call = runner._call

    def only_one_process(arguments, log, processes):
        """Avoids a second process, which takes seconds to import its packages: the failing run does not need it."""
        if "cell=sru" not in arguments.config_overrides:
            return call(arguments, log, processes)
        with pytest.raises(InputError) as caught:
            train(arguments)
        log.write_text(f"error: {caught.value}\n")
        return 2

    monkeypatch.setattr(runner, "_call", only_one_process)
    table = ["biblosan_table6", "--columns", "TREC", "--output_dir", tmp_path / "out", *trec]
    code, lines, error = run(capsys, *table, "--rows", "Bi-LSTM", "Bi-SRU")
    assert code == 1
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == ["bi_lstm_trec_seed42.json", "bi_sru_trec_seed42.log"]
    record = json.loads((tmp_path / "out" / files[0]).read_text())
    assert record["data"]["rows"]["train"] == 120 and record["config"]["cell"] == "lstm"
    assert record["command"].startswith("python run_glue_style.py --task_name trec --data_dir ")
    assert record["hardware"]["threads"] == 1
    assert {"trec/train", "vectors"} < {name.partition(".")[0] for name in record["data"]["sha256"]}
    accuracy = f"{100 * record['figures']['test_accuracy']:.2f}"
    figures = ", ".join(f"{name} {record['figures'][name]:.4f}" for name in ("validation_accuracy", "test_accuracy"))
    assert f"/2] Bi-LSTM on trec, seed 42: {figures}, " in error
    rows = [line.strip("| ").split(" | ") for line in lines[2:6]]
    assert [[cell.strip() for cell in row] for row in (rows[0], *rows[2:])] == [
        ["system", "TREC", "paper"],
        ["Bi-LSTM", accuracy, "-"],
        ["Bi-SRU", "failed", "-"],
    ]
    notes = "\n".join(lines[7:])
    assert "a direction of an SRU is as wide as its input; set hidden_size=12 (log: " in notes
    assert "Limited by --max_train_samples 120: the figures are not comparable with the papers'." in notes
    assert "start from `vectors.txt` (width 6), those of the papers from GloVe 6B: compare with care." in notes

    monkeypatch.setattr(runner, "_call", lambda *_: pytest.fail("a finished run is trained again"))
    code, again, error = run(capsys, *table, "--rows", "bi_lstm")
    assert code == 0 and "1 finished before, 0 to train" in error
    assert [line.split() for line in again if "-:" not in line] == [
        line.split() for line in lines if "failed" not in line and "-:" not in line
    ]


@pytest.fixture
def trained(monkeypatch) -> list[RunArguments]:
    """The options of all runs that the command starts; runs end at once, those of Bi-GRU and of fold 2 fail."""
    started = []

    def call(arguments, log, processes):
        started.append(arguments)
        if "cell=gru" in (arguments.config_overrides or "") or arguments.fold == 2:
            log.write_text("Traceback (most recent call last):\nRuntimeError: no memory\n")
            return 1
        log.write_text("fine")
        Path(arguments.output_dir).mkdir(parents=True, exist_ok=True)
        Path(arguments.output_dir, "all_results.json").write_text("{}")
        Path(arguments.results_file).write_text(json.dumps(a_record(arguments)))
        return 0

    monkeypatch.setattr(runner, "_call", call)
    monkeypatch.setattr(command, "missing_data", lambda tasks, data_dir: {})
    return started


def a_record(arguments: RunArguments) -> dict:
    held_out = {"validation": "10% of the training rows", "test": f"fold {arguments.fold} of 10"}
    vectors = arguments.word_vectors and {"file": Path(arguments.word_vectors).name, "width": 300}
    return {
        "task": {"name": arguments.task_name, "best_metric": "accuracy"},
        "data": {"source": "local files", "hub_id": None, "rows": {"train": 90, "test": 10}, "held_out": held_out},
        "settings": {"select_on_test": arguments.select_on_test},
        "figures": {"validation_accuracy": 0.5, "test_accuracy": 0.8 + arguments.fold / 100 + arguments.seed / 10000},
        "parameters": {"without_embeddings": 2_345_403},
        "training": {"seconds_in_all": 1.0},
        "word_vectors": vectors,
        "seed": arguments.seed,
    }


def labelled(labels):
    """Label and number of each row."""
    return np.stack([labels, np.arange(len(labels))], axis=1)


class TestDifferences:
    def test_a_table_with_the_best_figures_seen_and_intervals(self, trained, tmp_path, capsys, monkeypatch):
        monkeypatch.setattr(significance, "_load_rows", lambda task, **_: labelled([0.0, 1.0, 1.0, 0.0]))

        options = ["disan_sst", "--rows", "Bi-LSTM", "DiSAN", "--output_dir", tmp_path]
        run(capsys, *options)
        for path in tmp_path.glob("*.json"):
            record = json.loads(path.read_text())
            record["training"]["best_test"] = 0.9
            record["test_predictions"] = "0 1 1 0" if path.name.startswith("disan") else "0 1 0 1"
            path.write_text(json.dumps(record))
        _, lines, _ = run(capsys, *options, "--baseline", "bi_lstm")
        assert lines[2].split("|")[1:-1] == [" system  ", " SST-5 ", " best seen ", " paper "]
        assert lines[5] == "| DiSAN   | 80.42 |     90.00 |  51.7 |"
        assert any(line.startswith("- SST-5: DiSAN - Bi-LSTM = +50.00, 95 % interval +") for line in lines)
        assert sum(line.startswith('- "best seen": the highest') for line in lines) == 1

    @pytest.mark.parametrize(
        ("wrong", "below", "apart"),
        [
            (20, (0.1, 0.12, 0.11), True),
            (2, (0.1, 0.12, 0.11), False),  # two rows of 40
            (20, (0.5, -0.2, 0.3), False),  # seeds disagree
        ],
    )
    def test_only_what_is_told_apart_is_bold(self, trained, tmp_path, capsys, monkeypatch, wrong, below, apart):
        monkeypatch.setattr(significance, "_load_rows", lambda task, **_: labelled([0.0, 1.0] * 20))
        options = ["disan_sst", "--rows", "Bi-LSTM", "DiSAN", "--output_dir", tmp_path, "--seeds", "1", "2", "3"]
        run(capsys, *options)
        for path in tmp_path.glob("*.json"):
            record, is_first = json.loads(path.read_text()), path.name.startswith("disan")
            record["figures"]["test_accuracy"] -= 0 if is_first else below[record["seed"] - 1]
            record["test_predictions"] = (
                "0 1 " * 20 if is_first else "1 0 " * (wrong // 2) + "0 1 " * (20 - wrong // 2)
            )
            path.write_text(json.dumps(record))
        code, lines, _ = run(capsys, *options, "--baseline", "best")
        assert code == 0 and ("**80.02 ± 0.01**" in lines[5]) == apart and lines[4].count("**") == 0
        (sentence,) = [line for line in lines if line.startswith("- SST-5: ")]
        kind = "significantly different from all others, " if apart else "not significantly different from "
        assert sentence.startswith(f"- SST-5: DiSAN is {kind}Bi-LSTM (+{100 * wrong / 40:.2f}, +")
        p = ttest_1samp(below, 0).pvalue
        assert f", p = {p:.3f})" in sentence and (p < 0.05) == (below[1] > 0)

    def test_a_leader_by_other_seeds_is_not_told_apart(self, trained, tmp_path, capsys, monkeypatch):
        """DiSAN is best by its two seeds, and worse by the only one that both systems have."""
        monkeypatch.setattr(significance, "_load_rows", lambda task, **_: labelled([0.0, 1.0] * 20))
        call = runner._call

        def one_fails(arguments, log, processes):
            if (arguments.encoder, arguments.seed) == ("birnn", 1):
                return 1 if log.write_text("stopped") else 0
            return call(arguments, log, processes)

        monkeypatch.setattr(runner, "_call", one_fails)
        options = ["disan_sst", "--rows", "Bi-LSTM", "DiSAN", "--output_dir", tmp_path, "--seeds", "1", "2"]
        run(capsys, *options)
        for path in tmp_path.glob("*.json"):
            record, is_first = json.loads(path.read_text()), path.name.startswith("disan")
            right = 40 if not is_first or record["seed"] == 1 else 20
            record["figures"]["test_accuracy"] = right / 40 if is_first else 0.6
            record["test_predictions"] = "0 1 " * (right // 2) + "1 0 " * (20 - right // 2)
            path.write_text(json.dumps(record))
        _, lines, _ = run(capsys, *options, "--baseline", "best")
        (sentence,) = [line for line in lines if line.startswith("- SST-5: no comparison")]
        assert "DiSAN is best by all of its runs, but below Bi-LSTM by those that both have" in sentence

    def test_what_cannot_be_compared_is_said(self, trained, tmp_path, capsys, monkeypatch):
        """A run without the figure leads nothing, and is counted; nor is anything told apart without predictions."""
        options = ["disan_sst", "--rows", "Bi-LSTM", "DiSAN", "--output_dir", tmp_path, "--seeds", "1", "2", "3"]
        run(capsys, *options)
        _, lines, _ = run(capsys, *options, "--baseline", "best")
        assert sum(line.startswith("- SST-5: no comparison, as no seed has predictions") for line in lines) == 1
        _, lines, _ = run(capsys, *options, "--baseline", "Bi-LSTM")
        assert sum(line.startswith("- No interval for SST-5 of DiSAN: no seed has predictions") for line in lines) == 1
        path = next(tmp_path.glob("disan*seed2*.json"))
        record = json.loads(path.read_text())
        record["figures"]["test_accuracy"] = None
        path.write_text(json.dumps(record))
        _, lines, _ = run(capsys, *options, "--baseline", "best")
        assert "(1 undefined)" in lines[5] and "**" not in "".join(lines)
        reason = "DiSAN has no figure in a finished run; it was undefined there"
        assert f"- SST-5: no comparison, as {reason}." in lines


class TestCommand:
    def test_seeds_and_folds(self, trained, tmp_path, capsys):
        options = ["mtsa_sentences", "--rows", "MTSA", "--columns", "CR", "TREC", "--output_dir", tmp_path]
        options += ["--data_dir", tmp_path, "--jobs", "3"]
        code, lines, error = run(capsys, *options, "--seeds", "1", "2", "--folds", "3")
        assert code == 1 and "8 to train" in error
        assert {(a.task_name, a.seed, a.fold) for a in trained} == {
            *(("cr", seed, fold) for seed in (1, 2) for fold in range(3)),
            *(("trec", seed, 0) for seed in (1, 2)),
        }
        assert lines[4] == "| MTSA   | 80.52 ± 0.58 (2 failed) |  84.9 | 80.02 ± 0.01 |  95.3 |"
        data = "local files; rows: train 90, test 10. The validation split is 10% of the training rows."
        assert lines[8:10] == [
            f"- cr: {data} 4 runs of each system: 2 seeds, 2 of 10 folds; the numbers of rows are those of the first "
            "run.",
            f"- trec: {data} 2 runs of each system: 2 seeds.",
        ]
        assert not any("could not be verified" in line for line in lines)
        _, lines, error = run(capsys, *options, "--seeds", "1", "--folds", "1")
        assert "2 finished before, 0 to train" in error and lines[6].endswith(
            "; the test split is fold 0 of 10, held out."
        )
        _, _, error = run(capsys, *options, "--seeds", "1", "2")
        assert "6 finished before, 16 to train" in error

    def test_the_protocol_of_the_released_code(self, trained, tmp_path, capsys):
        options = ["released_protocol", "--columns", "CR", "--folds", "1", "--output_dir", tmp_path]
        _, lines, _ = run(capsys, *options)
        settings = {(a.encoder, a.recipe, a.select_on_test, a.max_train_steps, a.eval_every) for a in trained}
        assert settings == {
            *(("disan", "paper", True, 1000, 10), ("biblosan", "paper", True, 1000, 10)),
            ("mtsa", "paper", True, 1000, 500),
        }
        for part in ("rows are the test rows, so that the figures are optimistic.", "best one on its test split"):
            assert sum(part in line for line in lines) == 1, part

    def test_failed_runs_are_tried_again(self, trained, tmp_path, capsys):
        options = ["biblosan_table6", "--rows", "Bi-GRU", "DiSAN", "--columns", "sst_2", "--output_dir", tmp_path]
        for others in (1, 0):
            code, lines, error = run(capsys, *options)
            assert code == 1 and f"{1 - others} finished before, {1 + others} to train" in error
            assert (
                f"- Bi-GRU on sst2_phrases, seed 42 failed: RuntimeError: no memory (log: {tmp_path}/bi_gru"
                in lines[7]
            )

    def test_figures_of_the_paper_are_printed_beside_ours(self, trained, tmp_path, capsys):
        _, lines, _ = run(capsys, "disan_table1", "--rows", "DiSAN", "--output_dir", tmp_path)
        assert lines[2:5] == [
            "| system | parameters | paper |  SNLI | paper |",
            "| ------ | ---------: | ----: | ----: | ----: |",
            "| DiSAN  |      2.35m | 2.35m | 80.42 |  85.6 |",
        ]
        assert "The papers train on 549,367 rows: the figures are not comparable." in lines[6]
        assert "could not be verified" not in "".join(lines)
        assert trained[0].per_device_train_batch_size == 64

    def test_a_table_without_figures_of_a_paper_is_not_compared_with_one(self, trained, tmp_path, capsys):
        _, lines, _ = run(capsys, "all_systems", "--rows", "DiSAN", "--columns", "TREC", "--output_dir", tmp_path)
        assert "paper" not in "".join(lines[2:]) and "- Word vectors start at random." in lines

    def test_options_of_the_user_override_those_of_the_row(self, trained, tmp_path, capsys):
        words = ["--config_overrides", "hidden_size=8,dropout=0.2", "--per_device_train_batch_size", "8"]
        run(capsys, "mtsa_snli", "--rows", "600d_bi_blosan", "--output_dir", tmp_path, *words)
        overrides = parse_config_overrides(trained[0].config_overrides)
        assert (overrides["hidden_size"], overrides["dropout"], overrides["classifier_size"]) == (8, 0.2, 300)
        assert trained[0].per_device_train_batch_size == 8

    def test_a_row_can_start_from_a_pretrained_encoder(self, trained, tmp_path, capsys):
        run(capsys, "finetuning", "--columns", "TREC", "--output_dir", tmp_path, "--data_dir", tmp_path)
        found = {(a.encoder, a.model_name_or_path) for a in trained}
        assert found == {("disan", None), *((None, name) for name in pretrained_names())}

    def test_teachers_come_first_and_keep_their_models(self, trained, tmp_path, capsys):
        questions = [{"question": f"what is {i}?", "title": "t"} for i in range(30)]
        write_rows(tmp_path / "data" / "squad" / "train.jsonl.gz", questions)
        options = ["--columns", "TREC", "--rows", "disan-mini-en-similarity, taught", "--seeds", "1", "2"]
        options += ["--output_dir", tmp_path / "out", "--data_dir", tmp_path / "data", "--jobs", "2"]
        assert run(capsys, "distillation", *options)[0] == 0
        # A student starts after its own teacher, which may be before the other teacher starts.
        teachers, students = ([a for a in trained if bool(a.distill_from) == taught] for taught in (False, True))
        assert {a.backbone for a in teachers} == {"sentence-transformers/all-MiniLM-L6-v2"} and len(students) == 2
        order = [a.output_dir for a in trained]
        assert all(order.index(a.distill_from) < order.index(a.output_dir) for a in students)
        kept = {str(tmp_path / "out" / f"all_minilm_l6_v2_trec_seed{seed}") for seed in (1, 2)}
        assert {a.distill_from for a in students} == {a.output_dir for a in teachers} == kept
        texts = tmp_path / "out" / "texts_trec.jsonl"
        assert {a.unlabeled_file for a in students} == {str(texts)}
        found = [row["text"] for row in read_lines(texts)]
        assert sorted(found) == sorted(row["question"] for row in questions) and found != sorted(found)
        assert {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()} == {
            Path(folder).name for folder in kept
        }

        # A teacher whose model is gone is trained again if a student of its is left, and only then.
        for folder in kept:
            shutil.rmtree(folder)
        trained.clear()
        run(capsys, "distillation", *options)
        assert not trained
        (tmp_path / "out" / "disan_mini_en_similarity_taught_trec_seed2.json").unlink()
        run(capsys, "distillation", *options)
        assert [a.seed for a in trained] == [2, 2] and trained[0].backbone and trained[1].distill_from

    def test_a_student_needs_its_teacher(self, trained, tmp_path, capsys, monkeypatch):
        write_rows(tmp_path / "squad" / "train.jsonl.gz", [{"question": "what is it?"}])
        call = runner._call

        def failing(arguments, log, processes):
            if not arguments.backbone:
                return call(arguments, log, processes)
            log.write_text("error: no memory\n")
            return 2

        monkeypatch.setattr(runner, "_call", failing)
        options = ["--columns", "TREC", "--output_dir", tmp_path / "out", "--data_dir", tmp_path]
        code, lines, error = run(capsys, "distillation", *options)
        assert code == 1 and "its teacher failed" in error
        assert [bool(a.distill_from) for a in trained] == [False]

    def test_texts_for_teachers_need_a_folder(self, trained, tmp_path, capsys):
        options = ["--columns", "SST-2", "--output_dir", tmp_path / "out"]
        code, _, error = run(capsys, "distillation", *options)
        assert code == 2 and "which are not on the Hub; give --data_dir" in error
        others = [{"text": "x", "source": "masc"}]
        write_rows(tmp_path / "text" / "train.jsonl.gz", others)
        code, _, error = run(capsys, "distillation", *options, "--data_dir", tmp_path)
        assert code == 2 and "has no texts of movie_reviews; correct --data_dir" in error
        films = [{"text": "a film", "source": "movie_reviews"}]
        write_rows(tmp_path / "text" / "train.jsonl.gz", others + films)
        assert run(capsys, "distillation", *options, "--data_dir", tmp_path)[0] == 0
        assert read_lines(tmp_path / "out" / "texts_sst2.jsonl") == [{"text": "a film"}]

    def test_missing_data_is_not_an_error(self, tmp_path, capsys):
        folder = write_trec(tmp_path / "data", train=12)
        options = ["--rows", "DiSAN", "--output_dir", tmp_path / "out", "--data_dir", folder]
        code, lines, _ = run(capsys, "biblosan_table6", "--columns", "SST-2", *options)
        assert code == 0 and "| DiSAN  | no data |  87.8 |" in lines
        assert "sst2_phrases: no data: task sst2_phrases finds no " in lines[6]

    def test_models_can_be_kept(self, trained, tmp_path, capsys):
        options = ["disan_sst", "--rows", "DiSAN", "--output_dir", tmp_path]
        run(capsys, *options, "--keep_models")
        assert trained[0].output_dir == str(tmp_path / "disan_sst5_phrases_seed42")
        run(capsys, *options, "--seeds", "1")
        assert Path(trained[1].output_dir).parent.name.startswith(".disan_sst5_phrases_seed1.")
        _, _, error = run(capsys, *options, "--keep_models", "--seeds", "1", "42")
        assert error.splitlines()[0] == (
            f"--keep_models: 1 of the finished runs have no model; remove their records in {tmp_path} to train them "
            "again, or give another --output_dir"
        )

    def test_remains_of_an_earlier_attempt_are_removed(self, trained, tmp_path, capsys):
        (tmp_path / ".disan_sst5_phrases_seed42.killed" / "model").mkdir(parents=True)
        (tmp_path / ".disan_sst5_phrases_seed42.json.7.tmp").touch()
        (tmp_path / "disan_sst5_phrases_seed42.log").touch()
        run(capsys, "disan_sst", "--rows", "DiSAN", "--output_dir", tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["disan_sst5_phrases_seed42.json"]

    def test_stopped(self, monkeypatch, tmp_path, capsys):
        def interrupt(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(command, "missing_data", interrupt)
        code, lines, error = run(capsys, "disan_sst", "--output_dir", tmp_path)
        assert (code, lines, error) == (130, [], "interrupted; repeat the command to continue\n")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("table6", "unknown table 'table6'; choose one of disan_table1, disan_sst"),
            ("disan_sst --rows LSTM", "disan_sst has no row 'LSTM'; choose one of Multi-head, Bi-LSTM, DiSAN without"),
            ("disan_sst --columns CR", "disan_sst has no column 'CR'; choose one of SST-5"),
            ("disan_sst --jobs 0", "--jobs is 0; it must be more than 0"),
            ("disan_sst --seeds 3 -1", "--seeds is -1; it must be 0 or more"),
            ("disan_sst --folds 0", "--folds is 0; it must be more than 0"),
            ("disan_sst --data_dir none", "data directory none does not exist; correct --data_dir"),
            ("disan_sst --word_vectors none", "word-vector file none does not exist; correct --word_vectors"),
            ("disan_sst --seed 3", "--seed is set by the table; use --seeds"),
            ("disan_sst --encoder mtsa", "--encoder is set by the table; select rows with --rows"),
            ("disan_sst --learn_rate 3", "unknown option '--learn_rate'; did you mean --learning_rate?"),
            (
                "disan_sst --learning_rate x",
                "--learning_rate: invalid float value: 'x'; run_glue_style.py --help describes",
            ),
            ("disan_sst --learning_rate 0", "--learning_rate is 0.0; it must be more than 0"),
            ("disan_sst --config_overrides dropuot=0", "multihead has no field 'dropuot'; choose one of"),
        ],
    )
    def test_bad_input_is_one_sentence(self, tmp_path, monkeypatch, capsys, arguments, message):
        monkeypatch.chdir(tmp_path)
        code, lines, error = run(capsys, *arguments.split())
        assert code == 2 and not lines and error.startswith("error: ") and message in error
        assert error.count("\n") == 1

    @pytest.mark.parametrize(
        ("name", "given", "difference"),
        [
            ("learning_rate", "0.1", "learning_rate 0.1, this call has the default"),
            ("max_train_samples", "7", "max_train_samples 7, this call has the default"),
            ("word_vectors", "glove.6B.300d.txt", "word_vectors 'glove.6B.300d.txt', this call has 'own.txt'"),
            ("data_dir", ".", "data 'local files', this call has 'Hugging Face Hub'"),
        ],
    )
    def test_a_record_of_other_settings_is_refused(
        self, trained, tmp_path, monkeypatch, capsys, name, given, difference
    ):
        monkeypatch.chdir(tmp_path)
        for file in ("glove.6B.300d.txt", "own.txt"):
            Path(file).touch()
        options = ["disan_sst", "--rows", "DiSAN", "--output_dir", "out"]
        run(capsys, *options, f"--{name}", given)
        code, _, error = run(capsys, *options, *(["--word_vectors", "own.txt"] if name == "word_vectors" else []))
        assert code == 2 and error == (
            f"error: out/disan_sst5_phrases_seed42.json was made with {difference}; give another --output_dir, or "
            "remove the file to train again\n"
        )

    def test_a_file_in_the_way_of_a_record(self, trained, tmp_path, capsys):
        path = tmp_path / "disan_sst5_phrases_seed42.json"
        path.write_text("{}")
        code, _, error = run(capsys, "disan_sst", "--rows", "DiSAN", "--output_dir", tmp_path)
        assert code == 2 and error == f"error: {path} is not the record of a table's run; remove it\n"

    def test_options_without_influence_may_change(self, trained, tmp_path, monkeypatch, capsys):
        vectors = [tmp_path / name / "glove.6B.300d.txt" for name in "ab"]
        for path in vectors:
            path.parent.mkdir()
            path.touch()
        options = ["disan_sst", "--rows", "DiSAN", "--output_dir", tmp_path / "out", "--word_vectors"]
        run(capsys, *options, vectors[0], "--cpu", "--logging_steps", "5", "--checkpointing_steps", "epoch")
        code, lines, error = run(capsys, *options, vectors[1], "--per_device_eval_batch_size", "8", "--with_tracking")
        assert code == 0 and "1 finished before, 0 to train" in error
        assert "- Word vectors start from `glove.6B.300d.txt` (width 300)." in lines


def test_leaving_early_ends_the_runs_in_progress(monkeypatch, tmp_path):
    """One run ends at once, the other would take a minute; either thread may start either."""
    seconds, lock, processes, popen = iter((0, 60)), threading.Lock(), {}, subprocess.Popen
    both = threading.Barrier(2)

    def start(words, **options):
        with lock:
            duration = next(seconds)
            processes[duration] = popen([sys.executable, "-c", f"import time; time.sleep({duration})"], **options)
        both.wait(timeout=60)
        return processes[duration]

    monkeypatch.setattr(runner.subprocess, "Popen", start)
    table = replace(TABLES["disan_sst"], rows=TABLES["disan_sst"].rows[:2])
    runs = plan(table, [1], None, tmp_path, [])
    ended = runner.train_all(runs, "disan_sst", jobs=2)
    assert next(ended).failure.startswith("exit code 0")
    ended.close()
    assert processes[60].wait(timeout=20) < 0


@pytest.mark.parametrize(
    ("code", "failure"), [(-15, "ended by SIGTERM"), (130, "ended by SIGINT"), (255, "half (log: {log})")]
)
def test_a_run_that_is_ended_or_fails(monkeypatch, tmp_path, code, failure):
    monkeypatch.setattr(runner, "_call", lambda arguments, log, processes: log.write_text("half") and code)
    table = TABLES["disan_sst"]
    (run,) = plan(replace(table, rows=table.rows[:1]), [1], None, tmp_path, [])
    with FileLock(run.record_file.with_suffix(".lock")):
        list(runner.train_all([run], "disan_sst"))
        assert run.failure.startswith("another call trains it (lock: ")
    run.record_file.with_suffix(".lock").unlink()
    list(runner.train_all([run], "disan_sst"))
    left = list(tmp_path.iterdir())  # the log of one that fails
    assert run.failure == failure.format(log=left[0] if left else None) and len(left) == (code == 255)
