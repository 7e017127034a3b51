PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check bench docs clean

demo: .venv/installed
	$(BIN)/shoal train coma mpe/simple_spread --steps 2e6 --out runs

test: .venv/installed-dev
	$(BIN)/pytest -n auto --dist loadfile

check: .venv/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/pytest -n auto --dist loadfile

bench: .venv/installed-dev
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/games.py

docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

clean:
	rm -rf site .venv .cache .pytest_cache .ruff_cache

.venv/bin/python:
	$(PYTHON) -m venv .venv

# A stamp is as old as the last install; a newer pyproject.toml installs again.
.venv/installed: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test,dev]'
	touch $@

.venv/installed-docs: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[docs]'
	touch $@
