# Each target sets up everything that it needs on a fresh clone: virtual environments are in .venv*, and the first run
# needs a network. A line of `make help` is a comment that begins with "##".
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready
INSTALL = $(BIN)/python -m pip install --quiet --constraint constraints.txt
# Which tests, such as TESTS="tests/schema -x".
TESTS ?=
PYTEST = -m pytest -n 2 --dist worksteal $(TESTS)
# Tests start Python many times: modules are compiled once.
unexport PYTHONDONTWRITEBYTECODE

# Versions of Python for `make test-pythons`; one that is not installed is skipped.
PYTHONS ?= python3.11 python3.12 python3.13 python3.14

# The oldest dependencies, for Python 3.11 or 3.12.
MINIMUM = .venv-minimum
# The newest dependencies.
NEWEST = .venv-newest

# A revision to compare with, such as BASE=origin/main: a change of the package then needs a fragment.
BASE ?=
# Of `make release-check`, such as CHECKS=--state: what is run. All by default.
CHECKS ?=
# What `make asv` measures: one quick run of this environment. ASV="run main~5..main" compares commits.
ASV ?= run --quick --show-stderr --python=same

.PHONY: help demo lint changes types test doctest figures doc linkcheck linkcheck-external wheel-test sdist \
	first-hour test-slow test-explore test-minimum test-newest test-python test-pythons gpu asv ci release-notes release-check clean

## help: list these targets
help:
	@sed -n 's/^## \([a-z-]*\): /\1\t/p' $(MAKEFILE_LIST) | awk -F '\t' '{printf "%-20s %s\n", $$1, $$2}'

## demo: one page with tables, reports and cards, in demo_out/index.html
demo: $(READY)
	MPLBACKEND=agg OMP_NUM_THREADS=1 $(BIN)/python examples/demo.py --output demo_out

## lint: the linter, and the fragments of the changelog
lint: $(READY) changes
	$(BIN)/ruff check .

## changes: fragments have a valid type and render; with BASE=origin/main, a change of the package has one
changes: $(READY)
	$(BIN)/python tools/check_changes.py $(if $(BASE),--base $(BASE))

## types: mypy
types: $(VENV)/.types-ready
	$(BIN)/python -m mypy

## test: the linter and the tests
test: $(READY) lint
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST)

## test-slow: the tests with the marker slow
test-slow: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) -m "slow and not explores and not gpu"

## test-explore: new examples for the tests with hypothesis, and of those with the marker explores
test-explore: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) -m "(hypothesis or explores) and not gpu" --hypothesis-profile=explore

## gpu: the tests with the marker gpu and bench_gpu.py, images in full, on a CUDA device
gpu: $(READY)
	$(BIN)/python -m pytest -m gpu
	$(BIN)/python benchmarks/bench_gpu.py

## doctest: the snippets of all pages; warnings are errors
doctest: $(VENV)/.doc-ready
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W -b doctest -D plot_gallery=0 doc doc/_build/doctest

## figures: write the tables of figures of the pages from benchmarks/results
figures: $(READY)
	$(BIN)/python tools/figures.py

## doc: the documentation in doc/_build/html; warnings are errors
doc: $(VENV)/.doc-ready
	$(BIN)/python -m sphinx -W -b html -d doc/_build/doctrees doc doc/_build/html

## linkcheck: each link of the built documentation to itself leads somewhere
linkcheck: doc
	$(BIN)/python tools/check_links.py doc/_build/html

## linkcheck-external: links to other sites too, over the network
linkcheck-external: $(VENV)/.doc-ready
	$(BIN)/python -m sphinx -b linkcheck -D plot_gallery=0 doc doc/_build/linkcheck

## wheel-test: build wheel and source distribution, install each in an empty environment, and use it
wheel-test: $(VENV)/.build-ready
	$(BIN)/python tools/check_distributions.py

## sdist: source distribution and wheel, in dist
sdist: $(VENV)/.build-ready
	$(BIN)/python -m build

## first-hour: install the wheel as a stranger would, and time the first table, persons and report
first-hour: sdist
	$(BIN)/python benchmarks/bench_first_hour.py --python $(PYTHON) $$(ls -t dist/*.whl | head -n 1)

## test-minimum: the tests with the oldest dependencies, in .venv-minimum
test-minimum: $(MINIMUM)/.ready
	OMP_NUM_THREADS=1 $(MINIMUM)/bin/python $(PYTEST)

## test-newest: the tests with the newest dependencies, in .venv-newest
test-newest: $(NEWEST)/.ready
	OMP_NUM_THREADS=1 $(NEWEST)/bin/python $(PYTEST)

## test-python: the tests with another Python, such as PYTHON=python3.13, in .venv-3.13
test-python:
	$(MAKE) test VENV=.venv-$(subst python,,$(notdir $(PYTHON)))

## test-pythons: the same with each Python from 3.11 to 3.14 that is installed
test-pythons:
	@for python in $(PYTHONS); do \
		if $$python --version > /dev/null 2>&1; then $(MAKE) test-python PYTHON=$$python || exit 1; \
		else echo "$$python is not installed, and is skipped"; fi; \
	done

## asv: time what matters most, once, by airspeed velocity
asv: $(VENV)/.bench-ready
	$(BIN)/asv machine --yes --config benchmarks/asv/asv.conf.json
	OMP_NUM_THREADS=1 $(BIN)/asv --config benchmarks/asv/asv.conf.json $(ASV)

## ci: all checks in order, with all versions; takes hours
ci: lint types test test-slow test-explore doctest doc linkcheck wheel-test test-minimum test-newest test-pythons

## release-notes: move the fragments to doc/whats_new.rst, as VERSION=0.1.0
release-notes: $(READY)
	$(BIN)/python -m towncrier build --version $(VERSION)

## release-check: the checks of a release, which write doc/release.rst; takes hours
release-check: $(READY)
	$(BIN)/python tools/release_check.py $(CHECKS)

## clean: remove environments and everything that was built
clean:
	rm -rf .venv* dist build demo_out doc/_build doc/auto_examples doc/generated benchmarks/asv/results

$(READY): setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) torch
	$(INSTALL) --editable ".[tests,engines,examples]"
	touch $@

$(VENV)/.doc-ready: $(READY)
	$(INSTALL) --editable ".[doc]"
	touch $@

$(VENV)/.types-ready: $(READY)
	$(INSTALL) --editable ".[types]"
	touch $@

$(VENV)/.bench-ready: $(READY)
	$(INSTALL) --editable ".[bench]"
	touch $@

$(VENV)/.build-ready: $(READY)
	$(INSTALL) build twine
	touch $@

$(MINIMUM)/.ready: setup.cfg pyproject.toml constraints-minimum.txt
	$(PYTHON) -m venv $(MINIMUM)
	$(MINIMUM)/bin/python -m pip install --quiet --constraint constraints-minimum.txt --editable ".[tests,engines,examples]"
	touch $@

$(NEWEST)/.ready: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager torch
	$(NEWEST)/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager --editable ".[tests,engines,examples]"
	touch $@
