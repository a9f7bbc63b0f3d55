"""What a release consists of agrees with itself: version, changelog, citation, workflows, source distribution."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
from zipfile import ZipFile

import pytest
import yaml
from pages import ROOT

from hf_blosan import __version__

CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
VERSIONS = re.findall(r"^## \[([^]]+)\](?: - (\d{4}-\d\d-\d\d))?$", CHANGELOG, re.MULTILINE)
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_changelog_has_an_entry_per_version():
    """In the form of Keep a Changelog: the newest version first, with a date and a link each."""
    assert len(VERSIONS) == CHANGELOG.count("\n## ")
    (top, date), *others = VERSIONS
    assert (top, date) == ("Unreleased", "") or top == __version__
    assert __version__ in dict(VERSIONS)
    released = [version for version, date in VERSIONS if date]
    assert len(released) >= len(others) and released == sorted(released, reverse=True, key=lambda v: v.split("."))
    kinds = re.findall(r"^### (.*)$", CHANGELOG, re.MULTILINE)
    assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    for version, _ in VERSIONS:
        assert re.search(rf"^\[{re.escape(version)}\]: https://", CHANGELOG, re.MULTILINE)


def test_citation():
    """The fields that its schema requires, and the version."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "version"} <= citation.keys()
    assert citation["version"] == __version__ and citation["date-released"] == dict(VERSIONS)[__version__]
    for work in (citation, *citation["references"]):
        assert work["title"] and all("name" in author or "family-names" in author for author in work["authors"])
    assert len(citation["references"]) == 3


def test_addresses():
    """One repository everywhere."""
    repository = re.search(r'^Repository = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    for name in ("CITATION.cff", "CHANGELOG.md", "README.md", "mkdocs.yml", ".ci/docs_site.py", "setup.py"):
        addresses = re.findall(r"https://github\.com/[\w-]+/[\w-]*blosan\w*", (ROOT / name).read_text())
        assert set(addresses) == {repository}, name


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows(path):
    """Their commands exist."""
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["name"] == path.stem and workflow[True] and workflow["permissions"]["contents"] == "read"
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    commands = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    for command in commands:
        for target in re.findall(r"\bmake ([\w-]+)", command):
            assert target in targets
        for script in re.findall(r"python ([\w./]+\.py)", command):
            assert (ROOT / script).is_file()
    assert "secrets." not in path.read_text()


def test_every_supported_python_is_tested():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    supported = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert jobs["test"]["strategy"]["matrix"]["python"] == supported
    assert any(step.get("run", "").startswith("make test ") for step in jobs["test"]["steps"])


def test_a_release_has_the_tag_of_its_version():
    publish = yaml.safe_load((ROOT / ".github" / "workflows" / "publish.yml").read_text())
    assert publish[True] == {"push": {"tags": ["v*"]}}
    build, upload = publish["jobs"]["build"]["steps"], publish["jobs"]["publish"]
    commands = [step.get("run", "") for step in build]
    check = commands.index('python .ci/check_tag.py "$GITHUB_REF_NAME"')
    assert all(check < commands.index(command) for command in commands if "build" in command)
    assert upload["needs"] == "build" and upload["permissions"] == {"id-token": "write"}
    assert upload["steps"][-1]["uses"].startswith("pypa/gh-action-pypi-publish@")

    problem = runpy.run_path(str(ROOT / ".ci" / "check_tag.py"))["problem"]
    assert "v9.9" in problem("v9.9") and __version__ in problem("v9.9") and problem(__version__)
    assert (problem(f"v{__version__}") is None) == (VERSIONS[0][0] == __version__)


def test_source_distribution(tmp_path):
    """It holds what the wheel is built from, and a description whose links lead to the repository."""
    command = [
        sys.executable,
        "setup.py",
        "--quiet",
        "egg_info",
        "--egg-base",
        tmp_path,
        "sdist",
        "--dist-dir",
        tmp_path,
    ]
    run = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        information = archive.extractfile(f"hf_blosan-{__version__}/PKG-INFO").read().decode()
    for folder, pattern in (("hf_blosan", "*.py"), ("hf_blosan", "*.jinja"), ("hf_blosan/kernels/csrc", "*")):
        sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob(pattern)}
        assert {name for name in sources if "__pycache__" not in name} <= names
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"} <= names
    assert not [name for name in names if name.startswith(("tests", "results", "docs"))]
    assert "Project-URL: Repository, https://github.com/" in information
    header, _, description = information.partition("\n\n")
    assert "Description-Content-Type: text/markdown" in header and "# hf_blosan" in description
    assert not re.search(r"\]\((?!https://)", description)


def test_distributions_hold_the_pretrained_encoders(tmp_path):
    """All of their folders, hidden ones too."""
    tree, unused = tmp_path / "tree", shutil.ignore_patterns("__pycache__", "*.so", "pretrained")
    shutil.copytree(ROOT / "hf_blosan", tree / "hf_blosan", ignore=unused)
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"):
        shutil.copy(ROOT / name, tree / name)
    model = tree / "hf_blosan" / "pretrained" / "tiny-en"
    files = (
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "README.md",
        "1_Normalize/a.json",
        ".eval_results/a.yaml",
    )
    for name in files:
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).write_text("{}")
    command = [sys.executable, "setup.py", "--quiet", "bdist_wheel", "sdist"]
    environment = {**os.environ, "CXX": "no-such-compiler"}
    run = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "hf_blosan.pretrained" not in run.stderr  # setuptools warns of packages that are only data
    with ZipFile(next(tree.glob("dist/*.whl"))) as wheel:
        in_wheel = [name for name in wheel.namelist() if name.startswith("hf_blosan/pretrained")]
    with tarfile.open(next(tree.glob("dist/*.tar.gz"))) as archive:
        in_source = {name.partition("/")[2] for name in archive.getnames()}
    expected = sorted(f"hf_blosan/pretrained/tiny-en/{name}" for name in files)
    assert sorted(in_wheel) == expected and set(expected) <= in_source
