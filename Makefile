PYTHON ?= python3
BIN := .venv/bin
unexport PYTHONDONTWRITEBYTECODE  # tests start a hundred processes, which would compile it anew

.PHONY: demo test lint check check-wheel bench bench-peers docs clean

demo: .venv/installed
	$(BIN)/shoal train coma mpe/simple_spread --steps 2e6 --out runs

# all but those marked slow
test: .venv/installed-dev
	$(BIN)/pytest -n auto --dist loadfile -m "not slow"

lint: .venv/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python

# all tests, also the slow ones
check: lint .venv/installed-slow
	$(BIN)/pytest -n auto --dist loadfile

# the tests against the built wheel, in a new environment outside of this folder:
# make check-wheel PYTHON=python3.13 TESTS=tests/store
check-wheel:
	place=$$(mktemp -d) && trap 'rm -rf $$place' EXIT \
	&& $(PYTHON) -m venv $$place/.venv \
	&& $$place/.venv/bin/pip wheel --quiet --no-deps --wheel-dir $$place . \
	&& $$place/.venv/bin/pip install --quiet "$$(ls $$place/*.whl)[test]" \
	&& cp -r tests pyproject.toml $$place && cd $$place \
	&& .venv/bin/pytest -n auto --dist loadfile $(TESTS)

bench: .venv/installed-dev
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/games.py

# beside others' own scripts, from checkouts, with a Python that has what they import:
# make bench-peers PEERS="--jaxmarl ../JaxMARL --purejaxrl ../purejaxrl --python ../peers/bin/python"
# make bench-peers PEERS="--epymarl ../epymarl --xuance --torch-python ../torch/bin/python"
bench-peers: .venv/installed-dev
	$(BIN)/python benchmarks/peers.py $(PEERS)

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

.venv/installed-slow: .venv/installed-dev
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[slow]'
	touch $@

.venv/installed-docs: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[docs]'
	touch $@
