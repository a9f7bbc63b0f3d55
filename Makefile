# make test / make demo: from a fresh checkout to a result; the environment is made in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Other Pythons that `make wheel` tries the wheel with, for instance OTHER_PYTHONS="python3.10 python3.13".
OTHER_PYTHONS ?=

.PHONY: test test-all fuzz demo docs benchmark wheel lint format clean

# torch comes first: the kernels are compiled against the torch that is installed, in the environment itself.
$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt torch setuptools
	$(PIP) install --quiet --constraint constraints.txt --no-build-isolation --editable ".[test]"
	touch $@

$(VENV)/.compiled: $(VENV)/.installed setup.py $(wildcard hf_blosan/kernels/csrc/*)
	$(BIN)/python setup.py --quiet build_ext --inplace
	touch $@

# Not for `make test`: transformers imports torchao wherever it is installed, about a second for every process.
$(VENV)/.quantization: $(VENV)/.installed
	$(PIP) install --quiet --constraint constraints.txt --no-build-isolation --editable ".[quantization]"
	touch $@

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

test: lint $(VENV)/.compiled
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-all: lint $(VENV)/.compiled $(VENV)/.quantization
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# Ten minutes for each target; FUZZ="--minutes 1 tables" for less.
fuzz: $(VENV)/.compiled
	HF_HUB_OFFLINE=1 $(BIN)/python -m tests.fuzz $(FUZZ)

demo: $(VENV)/.compiled
	$(BIN)/python examples/demo.py

docs: $(VENV)/.installed
	$(BIN)/mkdocs build --strict

benchmark: $(VENV)/.compiled
	$(BIN)/python -m benchmarks.run --shapes targets --output benchmarks/reports/cpu_targets.json
	$(BIN)/python -m benchmarks.report benchmarks/reports/cpu_targets.json

wheel: $(VENV)/.installed
	rm -rf build/lib* build/bdist* dist
	$(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	$(BIN)/python .ci/check_wheel.py dist/*.whl $(OTHER_PYTHONS)

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) *.egg-info build dist site .pytest_cache .ruff_cache hf_blosan/kernels/*.so
