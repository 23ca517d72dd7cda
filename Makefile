# Both commands set up everything they need on a fresh clone.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready

# The oldest dependencies, for Python 3.11 or 3.12. PyTorch stays at that of constraints.txt, since older CPU
# builds are in an index of their own: MINIMUM_TORCH=2.4 with PIP_EXTRA_INDEX_URL set to it.
MINIMUM = .venv-minimum
MINIMUM_TORCH ?= $(shell sed -n 's/^torch==//p' constraints.txt)

.PHONY: demo test test-minimum doc sdist clean

demo: $(READY)
	MPLBACKEND=agg OMP_NUM_THREADS=1 $(BIN)/python examples/plot_rand_health.py --output demo_out

test: $(READY)
	$(BIN)/ruff check .
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

test-minimum: $(MINIMUM)/.ready
	OMP_NUM_THREADS=1 $(MINIMUM)/bin/python -m pytest -n 2 --dist worksteal

doc: $(VENV)/.doc-ready
	$(BIN)/python -m sphinx -W -b html doc doc/_build/html

sdist: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt build
	$(BIN)/python -m build

$(READY): setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[tests,engines,examples]"
	touch $@

$(VENV)/.doc-ready: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[doc]"
	touch $@

$(MINIMUM)/.ready: setup.cfg pyproject.toml constraints.txt constraints-minimum.txt
	$(PYTHON) -m venv $(MINIMUM)
	$(MINIMUM)/bin/python -m pip install --quiet --constraint constraints-minimum.txt torch==$(MINIMUM_TORCH)
	$(MINIMUM)/bin/python -m pip install --quiet --constraint constraints-minimum.txt --editable ".[tests,engines,examples]"
	touch $@

clean:
	rm -rf $(VENV) $(MINIMUM) dist demo_out doc/_build doc/auto_examples doc/generated
