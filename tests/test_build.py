"""The compiled library: that it is there, that it can be done without, and that it runs on every processor."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hf_blosan.kernels.library import instruction_set

ROOT = Path(__file__).resolve().parents[1]
TRAIN = "train,sentence-transformers"
has_compiler = any(shutil.which(name) for name in ("g++", "clang++", "c++")) and sys.platform != "win32"


@pytest.mark.skipif(not has_compiler, reason="there is no C++ compiler")
def test_library_is_compiled():
    assert instruction_set() in ("baseline", "avx2", "avx512")


@pytest.mark.skipif(not shutil.which("nm"), reason="there is no nm")
def test_sources_of_an_instruction_set_share_no_code_with_others():
    """Of a function that several objects hold the linker keeps one, perhaps one that not every processor runs."""
    objects = [path for path in ROOT.glob("build/csrc-*/loops_avx*.o") if "unfinished" not in path.name]
    if not objects:
        pytest.skip("the library was compiled elsewhere")
    for path in objects:
        symbols = subprocess.run(["nm", "-C", path], capture_output=True, text=True, check=True).stdout.splitlines()
        if any(
            "__asan_" in line or "__tsan_" in line for line in symbols
        ):  # those of `make test-sanitize`, which share its functions
            continue
        shared = [line for line in symbols if line[17:18] in ("W", "V", "u")]
        assert not shared, (
            f"{path.name}: make these functions static or put them into a namespace of the set: {shared}"
        )


def test_a_build_without_compiler_succeeds_and_says_so(tmp_path):
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", str(tmp_path)]
    environment = {**os.environ, "CXX": "no-such-compiler"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    (line,) = [line for line in run.stderr.splitlines() if line.startswith("warning: hf_blosan")]
    assert "without its C++ kernels: the compiler no-such-compiler is not on the path" in line
    assert not list(tmp_path.rglob("*.so"))


@pytest.mark.skipif(not shutil.which("make"), reason="there is no make")
def test_the_demo_installs_nothing_for_tests():
    """`make demo` and `make test` are all the set-up that README asks for."""
    steps = {}
    for target in ("demo", "test"):
        assert f"\nmake {target} " in (ROOT / "README.md").read_text(encoding="utf-8").split("## First steps")[0]
        dry = ["make", "--dry-run", target, "VENV=no-such-folder"]
        steps[target] = subprocess.run(dry, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    extras = {target: re.findall(r'"\.\[([\w,-]+)\]"', text) for target, text in steps.items()}
    assert extras == {"demo": [TRAIN], "test": [TRAIN, "test"]}
    assert "examples/demo.py" in steps["demo"] and "-m pytest" in steps["test"]
