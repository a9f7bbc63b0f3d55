"""The code on the pages: Python runs and has the values it names, commands are understood, and the cheap ones run."""

import argparse
import ast
import gzip
import io
import os
import re
import shlex
import subprocess
import sys
import tokenize
from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from accelerate.commands.launch import launch_command_parser
from pages import GUIDES, PAGES, ROOT, Block, blocks, inline_code
from small_data import (
    pair_rows,
    question_rows,
    role_rows,
    squad_rows,
    tagging_rows,
    write_backbone,
    write_rows,
    write_trec,
    write_vectors,
)

import hf_blosan
from benchmarks.peers import PeersOptions
from benchmarks.report import ReportOptions
from benchmarks.run import RunOptions
from benchmarks.word_vectors import VectorOptions
from hf_blosan.cli.commands import COMMANDS, main, make_parser
from hf_blosan.cli.options import read_options
from hf_blosan.data import make_demo_corpus
from hf_blosan.registry import FAMILIES
from hf_blosan.text.tokenization import build_tokenizer
from hf_blosan.training import RunArguments, parse_arguments
from pretraining.__main__ import Options as PretrainingOptions
from reproduce.command import TableArguments
from reproduce.page import PageArguments
from reproduce.plots.command import PlotArguments

SLOW = (
    "sentence_transformers",
    "peft",
    "torchao",
    "onnxruntime",
    "Trainer",
    "hf_blosan.training",
    "reproduce.plots",
    "explanation.",
    "compare_word",
    "num_proc",
)
"""Python blocks with one of these run in the slow tests only."""

NOT_RUN = {
    "docs/add_an_encoder.md": "its blocks are files; tests/test_docs.py writes them and trains the encoder",
    "docs/add_a_kind.md": "its block is a file; tests/test_kinds.py uses it",
    "docs/compare_runs.md": "reads the runs of the page's commands; tests/test_paper_analyses.py has some",
    "docs/serve.md": "asks a server; tests/test_serving_process.py asks one in the same way",
}
"""Pages whose Python blocks are not run here, and why."""

COMMANDS_NOT_RUN = {
    "git clone": "needs the network",
    "pip install": "installs packages; `make wheel` installs the package itself",
    "make ": "the commands of continuous integration",
    "--task_name trec --model_name_or_path": "needs the network; README.md trains it on a file",
    "--hub_model_id": "needs an account on the Hub; tests/test_upload.py uploads to a Hub of its own",
    "-m reproduce ": "trains for hours; tests/test_experiments.py runs a table of small models",
    "out/teacher": "fine-tunes a transformer of the Hub; tests/test_distillation.py distils small models",
    "out/experiments": "reads the records of such a table; tests/test_paper_analyses.py has some",
    "convert_tf_checkpoint": "needs weights of the authors' code; tests/test_convert_tf_checkpoint.py has some",
    "--encoder toy": "needs the encoder of the page; tests/test_docs.py writes and trains it",
    "hf-blosan demo": "a server, which runs until it is stopped; tests/test_page.py opens it in a browser",
    "hf-blosan serve": "a server, which runs until it is stopped; tests/test_serving_process.py starts and asks it",
    "curl": "asks this server",
    "token.txt": "the token of this server",
    "make_word_vectors": "needs all-MiniLM-L6-v2; tests/test_make_word_vectors.py makes vectors from a small model",
    "examples/ray_data.py": "needs Ray; tests/test_engines.py runs it on a small file",
    "examples/spark.py": "needs Spark; tests/test_engines.py runs it on a small file",
    "accelerate launch": "needs two machines; tests/test_several_processes.py has two launchers on one",
    "-m pretraining ": "trains for an hour; tests/test_pretraining.py trains a small student",
    "remake_checkpoints": "trains for minutes on real data; tests/test_remake_checkpoints.py repeats a small run",
    "transformer_with_mtsa": "a file of the checkout; tests/test_modules.py runs it",
    "benchmarks.": "measures for minutes; tests/test_benchmarks.py runs the commands on small shapes",
}
"""Text in a shell block that is parsed but not run, and why."""

SHORT, SMALL = "--max_train_steps 2", "--config_overrides hidden_size=8,classifier_size=8"
"""What is added to commands that train, and to those that train a new model."""

TOOLS = ("cat", "cd", "curl", "echo", "git", "openssl")


# The folders and files that the pages name.


def save(folder: str, texts: list[str], model_class: type, **config) -> None:
    """A model with random weights, and its tokenizer."""
    tokenizer = build_tokenizer(texts)
    model_class(model_class.config_class(vocab_size=len(tokenizer), **config)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    Path(folder, "log.jsonl").touch()  # as a training run leaves it, which the pages may then repeat


def write_files(folder: Path) -> None:
    """The files that the pages name, with generated rows."""
    pairs = [{name: row[name] for name in ("sentence1", "sentence2")} for row in make_demo_corpus(size=60)["test"]]
    write_rows(folder / "pairs.jsonl", pairs)
    (folder / "texts.txt").write_text("".join(f"{pair['sentence1']}\n" for pair in pairs), encoding="utf-8")
    for seed, name in enumerate(("train", "validation")):
        rows = ["text,label", *(f"{row['text']},{row['label']}" for row in question_rows(40, seed))]
        (folder / f"{name}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    labelled = [{**pair, "label": "neutral"} for pair in pairs] + [{**pairs[0], "label": "entailment"}]
    write_rows(folder / "more.jsonl", [*labelled, {**pairs[0], "label": "contradiction"}])
    write_trec(folder / "data", train=60, test=12)
    for seed, split in enumerate(("train", "validation", "test")):
        rows = [row | {"score": round(row["score"], 1)} for row in pair_rows(40, seed)]
        write_rows(folder / "data" / "sick" / f"{split}.jsonl", rows)
    for split in ("train", "validation", "test"):
        rows = [{"en": f"{i} dogs play.", "de": f"{i} Hunde spielen."} for i in range(40)]
        write_rows(folder / "data" / "multi30k" / f"{split}.jsonl", rows)
    for seed, split in enumerate(("train", "validation", "test")):
        write_rows(folder / f"{split}.jsonl", tagging_rows(40, seed))
        write_rows(folder / "data" / "propbank_ewt" / f"{split}.jsonl", role_rows(40, seed))
    (folder / "new.csv").write_text("text\nWho wrote Hamlet ?\n", encoding="utf-8")
    write_rows(folder / "new.jsonl", [{"tokens": row["tokens"]} for row in tagging_rows(10)])
    for seed, split in enumerate(("train", "validation")):
        write_rows(folder / "data" / "squad" / f"{split}.jsonl", squad_rows(60, seed))
    for seed, name in enumerate(("mine", "others")):
        write_rows(folder / f"{name}.jsonl", squad_rows(60, seed, "listed"))
    vectors = write_vectors(folder / "vectors.txt", "who where many the a of".split(), width=300)
    (folder / "vectors.txt.gz").write_bytes(gzip.compress(vectors.read_bytes()))


def enter(folder: Path, monkeypatch) -> Path:
    """A working directory as a reader has it who has followed the pages, with small models."""
    monkeypatch.chdir(folder)
    write_files(folder)
    demo = [text for row in make_demo_corpus(size=60)["train"] for text in (row["sentence1"], row["sentence2"])]
    names = ("entailment", "neutral", "contradiction")
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
    sizes = {"embedding_size": 64, "hidden_size": 128, "classifier_size": 128, "num_sentences": 2}
    save("out/demo", demo, hf_blosan.DiSANForSequenceClassification, **sizes, **labels)
    questions = [row["text"] for row in question_rows(40)]
    questions += ["Who wrote Hamlet ?", "What is the capital of France ?", "Who is the capital named after ?"]
    save("out/trec", questions, hf_blosan.DiSANForSequenceClassification, num_labels=6)
    write_backbone(folder / "minilm", questions)
    save("out/names", ["Ann Lee lives in Rome"], hf_blosan.BiRNNForTokenClassification, num_labels=5)
    save("out/sick", questions, hf_blosan.DiSANForPairRegression, num_sentences=2)
    return folder


# Python.


def run_block(block: Block, names: dict, *, printed: bool) -> None:
    """Run a block statement by statement; an expression with a value as comment has this value.

    ``f(x)  # (2, 3): what it is`` is checked always, ``print(x)  # text`` if ``printed``.
    """
    tree, source = ast.parse(block.code), io.StringIO(block.code)
    tokens = tokenize.generate_tokens(source.readline)
    comments = {t.start[0]: t.string[1:].strip() for t in tokens if t.type == tokenize.COMMENT}
    ast.increment_lineno(tree, block.line - 1)
    for statement in tree.body:
        if not isinstance(statement, ast.Expr):
            exec(compile(ast.Module([statement], []), block.page, "exec"), names)
            continue
        value, comment = statement.value, comments.get(statement.end_lineno - block.line + 1, "")
        prints = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print"
        value = value.args[0] if prints else value
        result = eval(compile(ast.Expression(value), block.page, "eval"), names)
        where, expected = f"{block.page}:{statement.lineno}", re.split(r"(?<=[)\]}]): ", comment)[0]
        if re.match(r"[(\[{\d]", comment):
            shown = tuple(result) if hasattr(result, "numel") else result
            assert repr(shown) == expected, f"{where}: {shown!r} is not {expected}"
        elif prints and printed and comment:
            assert without_last_digits(str(result)) == without_last_digits(expected), f"{where}: {result!r}"


def without_last_digits(text: str) -> str:
    """Numbers to three decimals: processors differ in the fourth."""
    return re.sub(r"\d+\.\d{4,}", lambda found: f"{float(found[0]):.3f}", text)


def python_blocks(page: str) -> list[Block]:
    return [] if page in NOT_RUN else blocks(page, "python")


def is_slow(block: Block) -> bool:
    return any(word in block.code for word in SLOW)


@pytest.mark.usefixtures("code_of_checkpoints")
def test_python_blocks_run(tmp_path, monkeypatch):
    """Block after block of a page, as in a notebook."""
    enter(tmp_path, monkeypatch)
    count = 0
    for page in GUIDES:
        names = {"__name__": "__main__"}
        for block in python_blocks(page):
            if not is_slow(block):
                run_block(block, names, printed=False)
                count += 1
    assert count >= 12


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in GUIDES if any(map(is_slow, python_blocks(page)))])
@pytest.mark.usefixtures("code_of_checkpoints")
def test_slow_python_blocks_run(page, tmp_path, monkeypatch):
    enter(tmp_path, monkeypatch)
    names = {"__name__": "__main__"}
    for block in python_blocks(page):
        if "torchao" not in block.code or find_spec("torchao"):
            run_block(block, names, printed=False)


@pytest.mark.slow
def test_first_steps_of_the_readme_work_as_pasted(tmp_path, monkeypatch):
    """In an empty folder: the first block prints what it says; the command trains, and the block after it runs."""
    monkeypatch.chdir(tmp_path)
    encoder, trained = blocks("README.md", "python")[:2]
    run_block(encoder, {}, printed=True)
    (command,) = [block for block in blocks("README.md", "bash") if "--task_name demo" in block.code]
    shell(command.code, tmp_path)
    run_block(trained, {}, printed=True)


def test_pages_that_are_not_run_have_code():
    assert all(blocks(page, "python") for page in NOT_RUN)
    lines = "\n".join(block.code for page in PAGES for block in blocks(page, "bash"))
    assert all(text in lines for text in COMMANDS_NOT_RUN)


# Commands.


def shell_commands(code: str) -> list[list[str]]:
    """The commands of a shell block as words, without what is redirected."""
    commands, words = [], []
    for line in code.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&>")
        lexer.whitespace_split, lexer.commenters = True, "#"
        for word in [*lexer, "&&"]:
            if set(word) <= set("|&"):
                commands, words = [*commands, words] if words else commands, []
            else:
                words.append(word)
    return [words[: words.index(">")] if ">" in words else words for words in commands]


class Parsed(BaseException):
    """What a parser of a program has read."""


def words_left(module: str, words: list[str], monkeypatch) -> list[str]:
    """Start a program up to the point where its parser has read the words; returns those it leaves over."""
    depth, parse = [0], argparse.ArgumentParser.parse_known_args

    def parse_known_args(*arguments, **options):
        depth[0] += 1
        read = parse(*arguments, **options)
        depth[0] -= 1
        if not depth[0]:
            raise Parsed(read[1])
        return read

    with monkeypatch.context() as patched:
        patched.setattr(argparse.ArgumentParser, "parse_known_args", parse_known_args)
        try:
            is_package = (ROOT / module.replace(".", "/")).is_dir()
            import_module(f"{module}.__main__" if is_package else module).main(words)
        except Parsed as parsed:
            return parsed.args[0]
    raise AssertionError(f"{module} reads no options")


def check_hf_blosan(words: list[str]) -> None:
    """Exits or raises InputError if an option is unknown or wrong."""
    parser = make_parser()
    if words in (["--help"], ["--version"]):
        return
    namespace, unknown = parser.parse_known_args(words)
    command = COMMANDS[namespace.command]
    parser.refuse(unknown, command.options)
    read_options(namespace, command.options)


def check_python(words: list[str], monkeypatch) -> None:
    if words[0] != "-m":
        assert (ROOT / words[0]).is_file(), words
        if words[0] == "run_glue_style.py":
            parse_arguments(words[1:])
        return
    module, words = words[1], words[2:]
    if module == "hf_blosan":
        check_hf_blosan(words)
    elif module == "hf_blosan.training":
        parse_arguments(words)
    elif module == "reproduce":
        left = words_left(module, words, monkeypatch)
        parse_arguments([*left, "--task_name", "trec", "--encoder", "disan", "--output_dir", "out"])
    else:
        assert not words_left(module, words, monkeypatch), words


def check_pip(words: list[str]) -> None:
    """Extras are there, and so is a folder that is installed."""
    section = (ROOT / "pyproject.toml").read_text().split("[project.optional-dependencies]")[1].split("\n[")[0]
    extras = set(re.findall(r"^([\w-]+) = \[", section, re.MULTILINE))
    assert words[0] == "install"
    for word in words[1:]:
        if found := re.match(r"(?:\.|hf_blosan)\[([\w,-]+)\]", word):
            assert set(found[1].split(",")) <= extras, word
        assert word in ("-e", "torch>=2.10", "sentence-transformers") or re.match(r"(\.|hf_blosan)(\[|$)", word), word


def check_command(words: list[str], monkeypatch) -> None:
    program, *words = words
    if program == "hf-blosan":
        check_hf_blosan(words)
    elif program == "python":
        check_python(words, monkeypatch)
    elif program == "accelerate":
        program = words.index("run_glue_style.py")
        launcher = launch_command_parser().parse_args(words[1 : program + 1])
        assert words[0] == "launch" and launcher.training_script == "run_glue_style.py"
        parse_arguments(words[program + 1 :])
    elif program == "pip":
        check_pip(words)
    elif program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words and words[0] in targets, words
    else:
        assert program in TOOLS, program


def test_commands_are_understood(monkeypatch):
    monkeypatch.setitem(FAMILIES, "toy", "Toy")  # which docs/add_an_encoder.md adds
    count = 0
    for page in PAGES:
        for block in blocks(page, "bash"):
            for words in shell_commands(block.code):
                try:
                    check_command(words, monkeypatch)
                except (Exception, SystemExit) as error:
                    raise AssertionError(f"{block}: {' '.join(words)}: {error!r}") from error
                count += 1
    assert count >= 40


def test_commands_and_options_in_the_text_exist(monkeypatch):
    """What stands between single backticks."""
    sources = [*(ROOT / "hf_blosan").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py"), *(ROOT / ".ci").glob("*.py")]
    sources += [*(ROOT / "examples").glob("*.py"), *(ROOT / "reproduce").rglob("*.py")]
    options = {word for path in sources for word in re.findall(r'"(--[\w-]+)"', path.read_text())}
    dataclasses = [RunArguments, TableArguments, PageArguments, PlotArguments, RunOptions, VectorOptions, PeersOptions]
    dataclasses += [ReportOptions, PretrainingOptions, *(command.options for command in COMMANDS.values())]
    options |= {f"--{entry.name}" for kind in dataclasses for entry in fields(kind)}
    options |= {f"--no_{entry.name}" for kind in dataclasses for entry in fields(kind) if entry.default is True}
    options |= {"--help", "--hub-token", "--strict", "--model", "--inplace", "--fix"}
    options |= {"--multi_gpu", "--num_processes", "--machine_rank"}  # of accelerate launch
    for page in PAGES:
        for code in inline_code(page):
            for name in re.findall(r"(?<![\w-])--[a-z][\w-]*", code):
                assert name in options, f"{page}: {code}"
            if found := re.match(r"hf-blosan ([a-z|]+)", code):
                assert set(found[1].split("|")) <= COMMANDS.keys(), f"{page}: {code}"
            if re.match(r"(make|pip) [a-z]", code):
                check_command(shlex.split(code), monkeypatch)


def shell(code: str, folder: Path) -> None:
    """Run a shell block in a folder; ``hf-blosan`` and ``python`` are those of the tests."""
    (folder / "bin").mkdir(exist_ok=True)
    for name, program in (("python", sys.executable), ("hf-blosan", f"{sys.executable} -m hf_blosan")):
        path = folder / "bin" / name
        path.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        path.chmod(0o755)
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT), "HF_HOME": str(folder / "hf")}
    environment["PATH"] = f"{folder / 'bin'}:{environment['PATH']}"
    command = ["bash", "-euo", "pipefail", "-c", code]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, f"{code}\n{run.stderr}"


def lines_to_run(page: str) -> list[str]:
    """The shell commands of a page, without those that are not run; training is cut short."""
    code = "".join(block.code for block in blocks(page, "bash")).replace("\\\n", " ")
    lines = [line for line in code.splitlines() if shell_commands(line)]
    lines = [line for line in lines if not any(text in line for text in COMMANDS_NOT_RUN)]
    return [re.sub(r"^hf-blosan train [^#]*", lambda words: shortened(words[0]), line) for line in lines]


def shortened(command: str) -> str:
    return f"{command} {SHORT}" if "--model_name_or_path" in command else f"{command} {SHORT} {SMALL}"


def run_line(line: str, folder: Path) -> None:
    """Run a command: in this process, which has its imports behind it, if it is hf-blosan and nothing else."""
    commands = shell_commands(line)
    if [words[0] for words in commands] != ["hf-blosan"] or ">" in line:
        return shell(line, folder)
    try:
        code = main(commands[0][1:])
    except SystemExit as end:  # --help
        code = end.code
    assert code == 0, line


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in GUIDES if lines_to_run(page)])
@pytest.mark.usefixtures("code_of_checkpoints")
def test_commands_run(page, tmp_path, monkeypatch):
    enter(tmp_path, monkeypatch)
    for line in lines_to_run(page):
        run_line(line, tmp_path)
