"""Compiles hf_blosan/kernels/csrc into the library of CPU operators, and makes the README into the description.

Everything else is in pyproject.toml.

The library talks to torch through its stable ABI and to Python not at all, so that one build serves every Python and
every torch from 2.10 on. It is built against the torch of the environment the package is installed into, never against
another one that a build would have to download. Without torch, a compiler, or success, the package installs without
it and computes in plain torch.
"""

import hashlib
import os
import platform
import re
import runpy
import shlex
import shutil
import site
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

OLDEST_PYTHON = "cp310"
OLDEST_TORCH = "0x020a000000000000"  # 2.10
SOURCES = Path("hf_blosan/kernels/csrc")
shared = runpy.run_path("hf_blosan/kernels/sources.py")

FLAGS = (
    "-O3 -std=c++20 -fPIC -fvisibility=hidden -ffp-contract=fast -fno-math-errno -fno-trapping-math "
    f"-Wall -Wno-psabi -DTORCH_TARGET_VERSION={OLDEST_TORCH} -DTORCH_STABLE_ONLY"
).split() + [f"-D{name}={value}" for name, value in shared["DEFINITIONS"].items()]

X86_64 = platform.machine().lower() in ("x86_64", "amd64")
INSTRUCTION_SETS = {  # sources for some processors of the architecture only; instruction_sets.cpp chooses at run time
    "loops_avx2.cpp": ["-mavx2", "-mfma"],
    "loops_avx512.cpp": ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma"],
}
INSTRUCTION_SETS["int8_avx2.cpp"] = INSTRUCTION_SETS["loops_avx2.cpp"]
INSTRUCTION_SETS["products_avx512.cpp"] = INSTRUCTION_SETS["loops_avx512.cpp"]
INSTRUCTION_SETS["int8_vnni.cpp"] = [*INSTRUCTION_SETS["loops_avx512.cpp"], "-mavx512vnni"]
INSTRUCTION_SETS["int8_amx.cpp"] = [*INSTRUCTION_SETS["int8_vnni.cpp"], "-mamx-tile", "-mamx-int8"]

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))  # such a Python has no limited API


class NotBuilt(Exception):
    """Why there is no library."""


def find_torch() -> Path:
    """The folder of the installed torch, found without importing it.

    pip hides the environment from an isolated build, but not from sysconfig.

    Raises:
        NotBuilt: there is none, or it is too old to have the headers.
    """
    system = {"base": sys.base_prefix, "platbase": sys.base_prefix}  # of an environment with --system-site-packages
    folders = [*sys.path, sysconfig.get_path("platlib"), sysconfig.get_path("purelib")]
    folders += [site.getusersitepackages(), sysconfig.get_path("platlib", vars=system)]
    for folder in folders:
        torch = Path(folder, "torch").absolute()
        if (torch / "include/torch/csrc/stable/ops.h").is_file():
            return torch
    raise NotBuilt("no torch of version 2.10 or later is installed; install torch first")


def find_compiler() -> list[str]:
    """The command of the C++ compiler: that in CXX, else the first on the path.

    Raises:
        NotBuilt: there is none that could compile the sources.
    """
    if sys.platform == "win32":
        raise NotBuilt("the kernels are written in the vector extensions of g++ and clang, which Windows builds lack")
    chosen = shlex.split(os.environ.get("CXX", ""))
    for command in [chosen] if chosen else [["g++"], ["clang++"], ["c++"]]:
        if shutil.which(command[0]):
            return command
    wanted = chosen[0] if chosen else "g++ or clang++"
    raise NotBuilt(f"the compiler {wanted} is not on the path; install g++ 12 or clang 15")


def newer(target: Path, sources: list[Path]) -> bool:
    """Whether a file is there and was made after all of its sources."""
    return target.exists() and target.stat().st_mtime > max(source.stat().st_mtime for source in sources)


def run(command: list[str]) -> None:
    """Run a compiler.

    Raises:
        NotBuilt: it fails; what it says is printed.
    """
    print(shlex.join(command), flush=True)
    if subprocess.run(command).returncode:
        raise NotBuilt(f"{command[0]} fails on {command[-1]}; install g++ 12 or clang 15, or a later one")


def compile_library(sources: list[Path], headers: list[Path], library: Path) -> None:
    """Compile what changed since the last time, two files at once, and link.

    Raises:
        NotBuilt: something is missing or fails.
    """
    torch, compiler = find_torch(), find_compiler()
    command = [*compiler, *FLAGS, *shlex.split(os.environ.get("CXXFLAGS", "")), "-isystem", str(torch / "include")]
    # Objects of another compiler, torch or set of flags are others.
    objects = Path("build", f"csrc-{hashlib.sha256(shlex.join(command).encode()).hexdigest()[:12]}")
    objects.mkdir(parents=True, exist_ok=True)

    def compile_source(source: Path) -> Path:
        target = objects / source.with_suffix(".o").name
        if not newer(target, [source, *headers, Path(__file__)]):
            unfinished = target.with_suffix(".unfinished.o")
            run([*command, *INSTRUCTION_SETS.get(source.name, []), "-o", str(unfinished), "-c", str(source)])
            unfinished.replace(target)
        return target

    with ThreadPoolExecutor(2) as pool:
        compiled = list(pool.map(compile_source, sources))
    marked = objects / "mark.cpp"  # by which the library is known as that of these sources
    marked.write_text(
        f'extern "C" __attribute__((used)) const char hf_blosan_sources[] = "{shared["mark"](SOURCES).decode()}";\n'
    )
    compiled.append(marked)
    library.parent.mkdir(parents=True, exist_ok=True)
    libraries = [f"-L{torch / 'lib'}", "-ltorch_cpu", "-lc10"]
    run([*compiler, "-shared", "-fPIC", *map(str, compiled), *libraries, "-o", str(library)])


class BuildLibrary(build_ext):
    """setuptools knows the name and place of the library; the flags are ours alone, not those of this Python."""

    def run(self) -> None:
        in_place = self.inplace
        super().run()
        for ext in self.extensions:
            if in_place and not self.built(ext).exists():  # that of an earlier build is of other sources
                Path(self.get_ext_filename(ext.name)).unlink(missing_ok=True)

    def build_extension(self, ext: Extension) -> None:
        library = self.built(ext)
        library.unlink(missing_ok=True)
        try:
            compile_library([Path(source) for source in ext.sources], [Path(file) for file in ext.depends], library)
        except NotBuilt as reason:
            print(f"warning: hf_blosan is built without its C++ kernels: {reason}.", file=sys.stderr, flush=True)

    def built(self, ext: Extension) -> Path:
        return Path(self.build_lib, self.get_ext_filename(ext.name))


class Wheel(bdist_wheel):
    """A wheel that holds no library serves every machine."""

    def get_tag(self) -> tuple[str, str, str]:
        build = self.get_finalized_command("build_ext")
        built = all(build.built(ext).exists() for ext in build.extensions)
        return super().get_tag() if built else ("py3", "none", "any")


def description() -> str:
    """The README with links that also work on the page of the package index."""
    repository = "https://github.com/hf-blosan/hf_blosan"
    text = Path("README.md").read_text(encoding="utf-8")
    text = re.sub(r"(!\[[^]]*\]\()(?!\w+:)", rf"\g<1>{repository}/raw/main/", text)
    return re.sub(r"(\]\()(?!\w+:|#)", rf"\g<1>{repository}/blob/main/", text)


setup(
    long_description=description(),
    long_description_content_type="text/markdown",
    ext_modules=[
        Extension(
            "hf_blosan.kernels._csrc",
            sources=sorted(
                source.as_posix() for source in SOURCES.glob("*.cpp") if X86_64 or source.name not in INSTRUCTION_SETS
            ),
            depends=sorted(header.as_posix() for header in SOURCES.iterdir() if header.suffix in (".h", ".inc")),
            optional=True,
            py_limited_api=not FREE_THREADED,
        )
    ],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": Wheel},
    options={} if FREE_THREADED else {"bdist_wheel": {"py_limited_api": OLDEST_PYTHON}},
)
