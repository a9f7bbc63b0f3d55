# make test / make demo: from a fresh checkout to a result; the environment is made in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
, := ,
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL = $(PIP) install --quiet --constraint constraints.txt --no-build-isolation --editable
# Other Pythons that `make wheel` tries the wheel with, for instance OTHER_PYTHONS="python3.10 python3.13".
OTHER_PYTHONS ?=

.PHONY: test test-all test-sanitize test-min test-max fuzz types coverage demo docs benchmark figures wheel lint format clean

# torch comes first: the kernels are compiled against the torch that is installed, in the environment itself.
$(VENV)/.package: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt torch setuptools
	$(INSTALL) ".[train,sentence-transformers]"
	touch $@

$(VENV)/.installed: $(VENV)/.package
	$(INSTALL) ".[test]"
	touch $@

$(VENV)/.compiled: $(VENV)/.package setup.py hf_blosan/kernels/sources.py $(wildcard hf_blosan/kernels/csrc/*)
	$(BIN)/python setup.py --quiet build_ext --inplace
	touch $@

# Not for `make test`: transformers imports torchao wherever it is installed, about a second for every process.
$(VENV)/.quantization: $(VENV)/.installed
	$(INSTALL) ".[quantization]"
	touch $@

# For one test, which reads a folder: fastembed asks for a huggingface_hub below 2, to download models with.
$(VENV)/.fastembed: $(VENV)/.installed
	$(PIP) install --quiet --constraint constraints.txt --no-deps fastembed loguru mmh3 py_rust_stemmers
	touch $@

# For the tests of the page, which say so where there is no npm or no Chromium.
examples/browser/node_modules: examples/browser/package-lock.json
	if command -v npm > /dev/null; then cd $(@D) && npm ci --no-audit --no-fund && touch node_modules; fi

# 730 MB that only two examples need; Spark also needs a Java runtime.
$(VENV)/.engines: $(VENV)/.installed
	$(INSTALL) ".[ray,spark]"
	touch $@

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# What type checkers read in place of the package's lazy imports.
hf_blosan/__init__.pyi: hf_blosan/registry.py .ci/encoders.py | $(VENV)/.package
	$(BIN)/python .ci/encoders.py

# The signatures that users see, in the way they use them.
types: $(VENV)/.installed hf_blosan/__init__.pyi
	$(BIN)/python -m mypy

test: lint $(VENV)/.compiled hf_blosan/__init__.pyi
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-all: lint $(VENV)/.compiled hf_blosan/__init__.pyi $(VENV)/.quantization $(VENV)/.engines $(VENV)/.fastembed \
	examples/browser/node_modules
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# Lines that the fast tests run, in percent.
coverage: $(VENV)/.installed $(VENV)/.compiled
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" --cov hf_blosan --cov-fail-under 90

# The fast tests with the oldest torch and transformers that pyproject.toml allows, and with the newest releases of
# everything. The wheel is that of the pinned torch: it has to serve all others.
test-min: PINS := s/^    "(torch|transformers)>=(.*)",/\1==\2.*/p
test-min test-max: $(VENV)/.compiled
	rm -rf build/$@ build/lib* build/bdist* dist && $(PYTHON) -m venv build/$@
	sed -nE '$(PINS)' pyproject.toml > build/$@/versions.txt
	$(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	build/$@/bin/python -m pip install --quiet --constraint build/$@/versions.txt "$$(echo dist/*.whl)[test]"
	HF_HUB_OFFLINE=1 build/$@/bin/python -m pytest -n 2 --dist worksteal -m "not slow"

# The kernels' tests, with C++ that reports every access outside an allocation, all undefined behaviour, and then races.
SANITIZE = CXXFLAGS="-fno-omit-frame-pointer -g $(1)" $(BIN)/python setup.py --quiet build --build-lib build/sanitized
TEST_SANITIZED = HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -p no:cacheprovider \
	-o pythonpath="build/sanitized ." -m "not slow" tests/kernels
test-sanitize: $(VENV)/.installed
	$(call SANITIZE,-fsanitize=address$(,)undefined -fno-sanitize-recover=undefined)
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so)" \
		ASAN_OPTIONS=detect_leaks=0:handle_segv=0 UBSAN_OPTIONS=print_stacktrace=1 $(TEST_SANITIZED)
	$(call SANITIZE,-fsanitize=thread -DHF_BLOSAN_OWN_THREADS)
	LD_PRELOAD="$$(g++ -print-file-name=libtsan.so)" TSAN_OPTIONS=halt_on_error=1:handle_segv=0 $(TEST_SANITIZED)

# Ten minutes for each target; FUZZ="--minutes 1 tables" for less.
fuzz: $(VENV)/.installed $(VENV)/.compiled
	HF_HUB_OFFLINE=1 $(BIN)/python -m tests.fuzz $(FUZZ)

demo: $(VENV)/.compiled
	$(BIN)/python examples/demo.py

docs: $(VENV)/.installed
	$(BIN)/mkdocs build --strict

benchmark: $(VENV)/.installed $(VENV)/.compiled
	$(BIN)/python -m benchmarks.run --shapes targets --output benchmarks/reports/cpu_targets.json

WHEEL = rm -rf build/lib* build/bdist* dist && $(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

# The figures of the card of an encoder that comes with the package, measured again on the data sets in DATA: with the
# wheel, in an environment of its own, in a folder that has the benchmarks but not the package.
DATA ?= data
ENCODER ?= disan-mini-en
FIGURES := build/figures
$(FIGURES)/.environment: $(VENV)/.package
	rm -rf $(FIGURES)
	$(PYTHON) -m venv $(FIGURES)/env
	$(FIGURES)/env/bin/python -m pip install --quiet --constraint constraints.txt torch
	ln -s ../../benchmarks ../../pretraining $(FIGURES)
	touch $@

figures: $(FIGURES)/.environment
	$(WHEEL)
	$(FIGURES)/env/bin/python -m pip uninstall --quiet --yes hf_blosan
	$(FIGURES)/env/bin/python -m pip install --quiet --constraint constraints.txt \
		"$$(echo dist/*.whl)[train,sentence-transformers]"
	cd $(FIGURES) && for report in similarity order; do HF_HUB_OFFLINE=1 env/bin/python -m benchmarks.$$report \
		--models $(ENCODER) --data_dir $(abspath $(DATA)) --output $$report.json || exit 1; done

wheel: $(VENV)/.package
	$(WHEEL)
	$(BIN)/python .ci/check_wheel.py dist/*.whl $(OTHER_PYTHONS)

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) *.egg-info build dist site .pytest_cache .ruff_cache hf_blosan/kernels/*.so
