# Each target makes .venv and installs what it needs when it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One thread per test process: two processes with two threads each would wait for one another on two cores.
export OMP_NUM_THREADS ?= 1

.PHONY: help setup demo demo-analyses reproduce-smoke test test-quick test-slow test-pages test-learning test-exhaustive mutants faults bench profile lint type wheel pages notebook docs clean

help:
	@echo "make setup      make .venv and install the package with its tests' requirements: 6.1 GB; CPU=1 without CUDA: 1.7 GB"
	@echo "make demo       compare four timestep samplers on digits, then show the report (3 to 8 minutes on two cores)"
	@echo "make demo-analyses  train small models of all kinds, and run every analysis on them (about 20 minutes)"
	@echo "make reproduce-smoke  every table of the papers with runs of 20 steps, to its pages (below 20 minutes)"
	@echo "make test       what CI runs: the quick and the slow suite, and that of the pages where they changed"
	@echo "make test-quick the quick suite alone (4 to 9 minutes); also test-slow, test-pages"
	@echo "make test-learning    whether networks learn (5 minutes)"
	@echo "make test-exhaustive  every composition and every network at full size (2 to 4 minutes)"
	@echo "make mutants    falsify numbers of a report one by one; the quick suite must notice (10 to 20 minutes)"
	@echo "make faults     whole runs killed, stopped, damaged, misconfigured (below an hour); ARGS=--quick for minutes"
	@echo "make bench      time everything against its goals and peers (15 to 20 minutes); ONLY=NAME for one part"
	@echo "make profile    show what the time goes into where a goal is missed (2 minutes); ONLY=NAME for one"
	@echo "make lint       ruff, check and format"
	@echo "make type       pyright"
	@echo "make wheel      build the wheel into dist/"
	@echo "make pages      write what is computed: the cells of experiments/, the papers' results, claims.md, docs/options"
	@echo "make docs       write the site with the reference of the API into site/"
	@echo "make notebook   run docs/notebook.ipynb and keep its outputs (3 minutes)"
	@echo "make clean      remove .venv, caches and build results; runs/ stays"

# PyTorch's index of builds for CPUs, or your mirror of it.
CPU_INDEX ?= https://download.pytorch.org/whl/cpu
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Install with uv, the machine's or one that pip brings into the environment, and with pip where uv cannot be had or fails.
define install
uv=$$(command -v uv || command -v $(BIN)/uv || { $(PIP) uv && echo $(BIN)/uv; }); \
if [ -n "$$uv" ] && "$$uv" pip install --python $(BIN)/python -c constraints.txt $(1); then :; else \
echo "uv cannot install it here; with pip it takes a few minutes"; $(PIP) $(1); fi
endef

$(VENV)/.done: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "diffusion-lab needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
ifdef CPU
	@echo "$(VENV): diffusion-lab, what its tests need, and PyTorch for CPUs: 1.7 GB"
	@$(call install,--no-deps --index-url $(CPU_INDEX) torch torchvision) || { \
	echo "CPU=1 needs $(CPU_INDEX), or CPU_INDEX=URL of a mirror; without CPU=1, PyTorch with CUDA comes from PyPI" >&2; exit 1; }
else
	@echo "$(VENV): diffusion-lab, what its tests need, and PyTorch with CUDA: 6.1 GB (without CUDA 1.7 GB: make setup CPU=1)"
endif
	@$(call install,-e ".[dev]")
	touch $@

setup: $(VENV)/.done

demo: setup
	$(BIN)/diffusion-lab train -m experiment=demo
	$(BIN)/diffusion-lab report runs/demo

# Each sweep has a folder of its own in $(RUNS), which an analysis takes as a whole; A,B is several of them.
RUNS := runs/demo_analyses
SMALL := $(BIN)/diffusion-lab train experiment=demo_analyses
ANALYZE := $(BIN)/diffusion-lab analyze
PHOTOS := dataset=photos dataset.source.image_size=32 dataset.source.num_images=512 dataset.source.num_test_images=64 \
	task=super_resolution network=adm_sr_tiny batch_size=32

demo-analyses: setup
	$(SMALL) name=eps
	$(SMALL) name=x0 prediction=x0
	$(SMALL) name=v prediction=v
	$(SMALL) name=cosine schedule=cosine seed=0
	$(SMALL) name=combined prediction=combined seed=0
	$(SMALL) name=mdlrc annealing=mdlrc seed=0
	$(SMALL) name=learned_beta sampler=learned_beta sampler.every=5 seed=0
	$(SMALL) name=photos $(PHOTOS) seed=0
	$(BIN)/diffusion-lab train -m task=gan name=gan paths.root=$(RUNS) seed=0,1 hydra.launcher.n_jobs=2 threads=1 \
		max_steps=900 snapshot_every=0 metrics.names=[] checkpoint_every=100 keep_every=100
	$(ANALYZE) analysis=per_timestep run=$(RUNS)/eps,$(RUNS)/mdlrc
	$(ANALYZE) analysis=slots run=$(RUNS)/eps
	$(ANALYZE) analysis=gradient_variance run=$(RUNS)/eps,$(RUNS)/cosine weights=raw
	$(ANALYZE) analysis=interdependence run=$(RUNS)/eps weights=raw
	$(ANALYZE) analysis=prediction_ability run=$(RUNS)/eps,$(RUNS)/x0,$(RUNS)/v,$(RUNS)/combined
	$(ANALYZE) analysis=replacement run=$(RUNS)/photos analysis.images=16
	$(ANALYZE) analysis=batch_noise run=$(RUNS)/eps weights=raw
	$(ANALYZE) analysis=selection run=$(RUNS)/learned_beta checkpoint=step-00000200,last weights=raw
	$(ANALYZE) analysis=consistency run=$(RUNS)/eps,$(RUNS)/x0,$(RUNS)/gan
	$(ANALYZE) analysis=interpolation run=$(RUNS)/eps,$(RUNS)/gan checkpoint=step-00000100,last weights=raw
	$(ANALYZE) analysis=landscape run=$(RUNS)/cosine,$(RUNS)/gan weights=raw
	$(ANALYZE) analysis=hessian run=$(RUNS)/cosine,$(RUNS)/gan weights=raw
	$(ANALYZE) analysis=optimizer_noise run=$(RUNS)/mdlrc weights=raw
	$(BIN)/diffusion-lab report $(RUNS)

# What CI runs. tests/suites.py says which suites there are and when each runs.
test: setup
	$(BIN)/python -m tests.suites

test-quick test-slow test-pages test-learning test-exhaustive: setup
	$(BIN)/python -m tests.suites $(@:test-%=%)

# Every table of every paper on digits, a few steps: shows that each reaches its page.
reproduce-smoke: setup
	for table in $$(cd conf/table && ls */*.yaml); do $(BIN)/diffusion-lab reproduce $${table%.yaml} scale=smoke --out experiments || exit 1; done

mutants: setup
	$(BIN)/python -m tests.mutants

faults: setup
	$(BIN)/python -m tests.faults $(ARGS)

$(VENV)/.bench: $(VENV)/.done
	@$(call install,-e ".[dev,bench]")
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

# In a folder of its own, because it trains.
notebook: setup
	@$(call install,-e ".[docs]")
	rm -rf build/notebook && mkdir -p build/notebook
	cp docs/notebook.ipynb build/notebook/
	cd build/notebook && $(CURDIR)/$(BIN)/jupyter execute --inplace notebook.ipynb
	cp build/notebook/notebook.ipynb docs/

docs: setup
	@$(call install,-e ".[docs]")
	$(BIN)/python -m experiments.site build/site
	$(BIN)/mkdocs build --quiet --config-file build/site/mkdocs.yml --site-dir $(CURDIR)/site
	@echo "site/index.html"

pages: setup
	$(BIN)/python -m experiments.crossed_figures digits
	$(BIN)/python -m experiments.study_figures
	$(BIN)/python -m experiments.option_figures
	$(BIN)/python -m experiments.option_pages
	$(BIN)/python -m experiments.cells
	$(BIN)/python -m experiments.claims

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
