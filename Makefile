# toile: `make help` lists the commands. They need only Python >= 3.11, pip and make.
# The first call installs everything into .venv; later calls install again only if setup.cfg changes.

VENV    ?= .venv
# pytest workers, and further pytest arguments: make test ARGS="-k scan"
WORKERS ?= 2
ARGS    ?=

PY      := $(VENV)/bin/python
SOURCES := toile tools tests examples $(wildcard benchmarks)

.DEFAULT_GOAL := help
.PHONY: help mnist test test-all smoke bench docs lint clean

help:  ## show this list
	@echo "make COMMAND, where COMMAND is one of:"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) \
	    | while IFS='|' read -r name text; do printf '  %-10s %s\n' $$name "$$text"; done
	@echo "PYTHON=/path/to/python chooses the interpreter, VENV=dir the folder to install into."

mnist: $(VENV)/installed-examples  ## train a network on real handwritten digits and show what it learned
	@$(PY) -m examples.mnist.main --workdir=runs/mnist $(ARGS)

.PHONY: examples
examples: $(VENV)/installed-examples  ## run every example and print the results (make example-vae runs one)
	@$(PY) -m examples $(ARGS)

example-%: $(VENV)/installed-examples
	@$(PY) -m examples $* $(ARGS)

test: $(VENV)/installed-test  ## run the tests
	$(PY) -m pytest -n $(WORKERS) $(ARGS)

test-all: $(VENV)/installed-bench  ## run all tests, including the slow ones and those that need torch
	TOILE_TEST_ALL=1 $(PY) -m pytest -n $(WORKERS) $(ARGS)

smoke: $(VENV)/installed-test  ## run a few tests of the package as a whole
	$(PY) -m pytest -q tests/test_package.py $(ARGS)

bench: $(VENV)/installed-bench  ## compare speed with numpy, jax and torch
	$(PY) -m benchmarks.eager $(ARGS)
	$(PY) -m benchmarks.modules $(ARGS)
	$(PY) -m benchmarks.optim $(ARGS)
	$(PY) -m benchmarks.examples $(ARGS)
	$(PY) -m benchmarks.cpu $(ARGS)

docs: $(VENV)/installed-docs  ## build the documentation into site/ (VERSION=0.2: into published/0.2)
ifeq ($(origin VERSION),command line)
	$(PY) -m tools.site_versions published --version "$(VERSION)" $(ARGS)
	@echo "$(PY) -m http.server -d published shows all versions at http://localhost:8000"
else
	@# warnings are errors; the theme's notice about its successor is not about these pages
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	@echo "$(PY) -m http.server -d site shows it, with search, at http://localhost:8000"
endif

lint: $(VENV)/installed-dev  ## run ruff, mypy and pyright; check the layers and the structure of the package
	$(PY) -m ruff check $(SOURCES)
	$(PY) -m mypy
	$(VENV)/bin/lint-imports
	$(PY) -m tools.code_limits
	$(PY) -m tools.structure
	$(PY) -m tools.plain_english
	$(PY) -m tools.check_typing

clean:  ## remove .venv and everything that was built
	rm -rf $(VENV) build dist site published *.egg-info .mypy_cache .pytest_cache .ruff_cache \
	    .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/ready:
	@sh tools/make_venv.sh $(VENV) $(PYTHON)
	@touch $@

$(VENV)/installed: setup.cfg pyproject.toml | $(VENV)/ready
	@echo "installing toile into $(VENV)"
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/installed-%: setup.cfg pyproject.toml | $(VENV)/ready
	@echo "installing toile[$*] into $(VENV)"
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@ $(VENV)/installed
