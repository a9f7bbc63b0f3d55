"""What the reports of a run say: log, record, command, files that were held out."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_data import (
    options,
    prepared,
    write_vectors,
)

from hf_blosan.errors import InputError
from hf_blosan.files import plain, write_json
from hf_blosan.training.preparation import find_task
from hf_blosan.training.reporting import command_line, count_parameters, held_out


class TestReporting:
    def test_plain_has_json_types_only(self):
        content = {"a": np.float32(0.5), "b": (1, math.nan), "c": Path("x"), 3: np.int64(4), "d": math.inf}
        assert plain(content) == {"a": 0.5, "b": [1, None], "c": "x", "3": 4, "d": None}

    def test_json_is_replaced_whole(self, tmp_path, monkeypatch):
        path = tmp_path / "folder" / "results.json"
        write_json(path, {"a": 1})
        monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("killed")))
        with pytest.raises(OSError, match="killed"):
            write_json(path, {"a": 2})
        assert json.loads(path.read_text()) == {"a": 1}

    def test_command_has_no_secrets_and_no_machine_path(self):
        argv = ["/somewhere/else/run_glue_style.py", "--hub_token", "abc", "--hub_token=def", "--a", "b c"]
        assert command_line(argv) == "python run_glue_style.py --hub_token '***' '--hub_token=***' --a 'b c'"
        assert command_line(["/x/hf_blosan/training/__main__.py", "--cpu"]) == "python -m hf_blosan.training --cpu"

    def test_counts_parameters(self, tmp_path, questions):
        path = write_vectors(tmp_path / "vectors.txt", ["cat", "unseen", "unheard"])
        _, preparation = prepared(options(tmp_path, questions, word_vectors=str(path)))
        model = preparation.model
        inner = sum(p.numel() for n, p in model.named_parameters() if "embeddings" not in n)
        table = model.config.vocab_size * 6
        assert count_parameters(model) == {
            "total": inner + table,
            "trained": inner + table - 2 * 6,
            "without_embeddings": inner,
        }

    @pytest.mark.parametrize("name", ["num_warmup_steps", "embedding_warmup_steps"])
    def test_a_constant_learning_rate_has_no_warm_up(self, name, tmp_path):
        arguments = options(tmp_path, {"task_name": "trec", "data_dir": "data", "recipe": "paper"})
        task = find_task(arguments)
        with pytest.raises(InputError, match=f"--{name} has no effect on the learning-rate schedule constant"):
            replace(arguments, **{name: 100}).resolved(task, "disan")
        warm = replace(arguments, lr_scheduler_type="constant_with_warmup", **{name: 100}).resolved(task, "disan")
        assert getattr(warm.resolved(task, "disan"), name) == 100
        modern = replace(arguments, recipe="modern", lr_scheduler_type="constant").resolved(task, "disan")
        assert modern.resolved(task, "disan").num_warmup_steps == 0  # not the recipe's

    def test_names_what_was_held_out(self, tmp_path):
        arguments = options(tmp_path, {"task_name": "cr", "data_dir": "data", "fold": 3})
        task = find_task(arguments)
        assert held_out(arguments.resolved(task, "disan"), task) == {
            "validation": "10% of the training rows",
            "test": "fold 3 of 10",
        }
        arguments = options(tmp_path, {"task_name": "sst2", "data_dir": "data"})
        assert held_out(arguments, find_task(arguments)) == {}

    def test_a_task_by_name_with_other_rows_is_not_called_that_data_set(self, tmp_path):
        for given, title, languages in (
            ({"data_dir": "data"}, "SQuAD, the sentence with the answer", ("en",)),
            ({"train_file": "data/mine.jsonl"}, "squad_sentences (mine.jsonl)", ()),
        ):
            task = find_task(options(tmp_path, {"task_name": "squad_sentences"} | given))
            assert (task.name, task.title, task.languages) == ("squad_sentences", title, languages)
