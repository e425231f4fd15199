# Two commands for a fresh machine that has only Python: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: demo test check lint types contracts unit bench clean

$(BIN)/fxscope: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt -e .
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt -e '.[test]'
	touch $@ $(BIN)/fxscope

demo: $(BIN)/fxscope
	rm -rf demo.fxscope
	$(BIN)/fxscope run --headless --quiet -o demo.fxscope samples/graph_breaks.py
	$(BIN)/fxscope report demo.fxscope

test: check unit

check: lint types contracts

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

contracts: $(VENV)/.test
	$(BIN)/lint-imports

unit: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not bench" -q

bench: $(VENV)/.test
	$(BIN)/python -m pytest -m bench -s -q tests/benchmarks

clean:
	rm -rf $(VENV) build dist *.egg-info demo.fxscope
