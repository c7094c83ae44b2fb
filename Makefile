# Each target makes .venv and installs what it needs when it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One thread per test process: two processes with two threads each would wait for one another on two cores.
export OMP_NUM_THREADS ?= 1

.PHONY: help setup demo test test-quick test-exhaustive mutants faults bench profile lint type wheel pages clean

help:
	@echo "make setup      make .venv and install the package with its tests' requirements"
	@echo "make demo       compare four timestep samplers on digits, then show the report (about 5 minutes)"
	@echo "make test       everything: the quick suite, then the slow one (10 to 17 minutes)"
	@echo "make test-quick the quick suite alone (2 to 4 minutes)"
	@echo "make test-exhaustive  every composition and every network at full size (2 to 4 minutes)"
	@echo "make mutants    falsify numbers of a report one by one; the quick suite must notice (10 to 20 minutes)"
	@echo "make faults     whole runs killed, stopped, damaged, misconfigured (below an hour); ARGS=--quick for minutes"
	@echo "make bench      time everything against its goals and peers (15 to 20 minutes); ONLY=NAME for one part"
	@echo "make profile    show what the time goes into where a goal is missed (2 minutes); ONLY=NAME for one"
	@echo "make lint       ruff, check and format"
	@echo "make type       pyright"
	@echo "make wheel      build the wheel into dist/"
	@echo "make pages      write the computed cells of experiments/ (GPU hours, paired differences)"
	@echo "make clean      remove .venv, caches and build results; runs/ stays"

$(VENV)/.done: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "diffusion-lab needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

setup: $(VENV)/.done

demo: setup
	$(BIN)/diffusion-lab train -m experiment=demo
	$(BIN)/diffusion-lab report runs/demo

# The quick suite in another order each time; its first line gives the seed, --random-order-seed=SEED repeats it.
test: test-quick
	$(BIN)/python -m pytest -m "slow and not exhaustive" -n 2

test-quick: setup
	$(BIN)/python -m pytest -m "not slow" -n 2 --random-order

test-exhaustive: setup
	$(BIN)/python -m pytest -m exhaustive -n 2

mutants: setup
	$(BIN)/python -m tests.mutants

faults: setup
	$(BIN)/python -m tests.faults $(ARGS)

$(VENV)/.bench: $(VENV)/.done
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,bench]"
	touch $@

profile: $(VENV)/.bench
	$(BIN)/python -m benchmarks.profiles $(ONLY)

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks $(ONLY)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: setup
	$(BIN)/pyright

wheel: setup
	$(BIN)/python -m build --wheel

pages: setup
	$(BIN)/python -m experiments.cells

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
