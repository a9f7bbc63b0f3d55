# make test / make demo: from a fresh checkout to a result; the environment is made in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: test demo benchmark lint format clean

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[test]"
	touch $@

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

test: lint
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest

demo: $(VENV)/.installed
	$(BIN)/python examples/demo.py

benchmark: $(VENV)/.installed
	$(BIN)/python -m benchmarks.run --shapes targets --output benchmarks/reports/cpu_targets.json
	$(BIN)/python -m benchmarks.report benchmarks/reports/cpu_targets.json

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) *.egg-info build dist .pytest_cache .ruff_cache
