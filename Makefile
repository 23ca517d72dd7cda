# Both commands set up everything they need on a fresh clone.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready

.PHONY: demo test lint doc clean

demo: $(READY)
	MPLBACKEND=agg OMP_NUM_THREADS=1 $(BIN)/python examples/plot_rand_health.py --output demo_out

test: $(READY)
	$(BIN)/ruff check .
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

doc: $(VENV)/.doc-ready
	$(BIN)/python -m sphinx -W -b html doc doc/_build/html

$(READY): setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[tests,examples]"
	touch $@

$(VENV)/.doc-ready: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[doc]"
	touch $@

clean:
	rm -rf $(VENV) demo_out doc/_build doc/auto_examples doc/generated
