"""The papers' tables as data."""

from dataclasses import asdict

import pytest

from hf_blosan.cli.overrides import format_config_overrides, parse_config_overrides
from hf_blosan.tasks import TASKS
from hf_blosan.tasks.base import config_class
from hf_blosan.tasks.kinds import find_kind
from hf_blosan.tasks.metrics import METRICS
from hf_blosan.training import RunArguments, parse_arguments
from hf_blosan.training.reporting import count_parameters
from reproduce.tables import TABLES, choose, slug


def config_fields(row, task) -> dict:
    """Configuration fields of a row on a task, except those that the data determine."""
    recipe, known = asdict(TASKS[task].recipe(row.encoder, "paper")), config_class(row.encoder).__dataclass_fields__
    fields = {name: value for name, value in recipe.items() if name in known}
    return fields | {"vocab_size": 3, "num_sentences": TASKS[task].num_sentences} | dict(row.overrides)


def figure_names(kind):
    """What a metric calls its figures."""
    return [kind.key] if hasattr(kind, "key") else kind().compute(predictions=[["B-X"]], references=[["B-X"]])


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_system_has_a_possible_configuration(table):
    for row in table.rows:
        for task in {column.task for column in table.columns}:
            config_class(row.encoder)(**config_fields(row, task) | find_kind(TASKS[task]).config_fields())
        assert parse_config_overrides(format_config_overrides(row.overrides)) == row.overrides


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_names_are_distinct_and_figures_belong_to_columns(table):
    for entries in (table.rows, table.columns):
        assert len({slug(entry.name) for entry in entries}) == len(entries)
    assert {name for row in table.rows for name in row.paper} <= {column.name for column in table.columns}
    for column in table.columns:
        kinds = [METRICS[name] for name in TASKS[column.task].metrics]
        metrics = {name for kind in kinds for name in figure_names(kind)}
        of_training = ("parameters", "seconds_per_update", "peak_memory_mib")
        assert column.figure in of_training or column.figure.removeprefix("test_") in metrics


@pytest.mark.parametrize("name", [name for name in TABLES if TABLES[name].columns[0].name == "parameters"])
def test_models_have_as_many_parameters_as_the_paper_says(name):
    """To one unit of the last printed digit, because the papers sometimes round and sometimes truncate."""
    snli = find_kind(TASKS["snli"])
    assert sum("parameters" in row.paper for row in TABLES[name].rows) > 2
    for row in TABLES[name].rows:
        if "parameters" not in row.paper:
            continue
        model = snli.make_model(row.encoder, config_fields(row, "snli") | snli.config_fields(), None)
        printed = row.paper["parameters"].removesuffix("m")
        unit = 10.0 ** -len(printed.partition(".")[2])
        millions = count_parameters(model)["without_embeddings"] / 1e6
        assert millions == pytest.approx(float(printed), abs=unit), row.name


def test_names_are_chosen_whatever_their_case_and_punctuation():
    rows = TABLES["biblosan_table6"].rows
    assert [row.name for row in choose(rows, ["bi_blosan", "BI-LSTM"], "row", "t")] == ["Bi-LSTM", "Bi-BloSAN"]
    assert choose(rows, None, "row", "t") == rows


def test_options_survive_the_command_line():
    arguments = RunArguments(
        task_name="trec",
        encoder="mtsa",
        output_dir="o",
        bucketing=False,
        cpu=True,
        learning_rate=5e-4,
        config_overrides="directions=[diagonal,diagonal],dense_map=true,dropout=0.2,value_bias=null",
    )
    assert parse_arguments(arguments.to_argv()) == arguments
    overrides = parse_config_overrides(arguments.config_overrides)
    assert overrides["dense_map"] is True and overrides["value_bias"] is None
    assert format_config_overrides(overrides) == arguments.config_overrides
