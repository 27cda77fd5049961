# The project's tasks. `make run` and `make test` need make, Python 3.11 or newer, and its pip: they
# set up everything else in $(VENV). No address of a package index is named anywhere: pip's own
# settings decide, and every file is checked against the hashes in requirements/.

VENV ?= .venv
BIN := $(VENV)/bin
# The first interpreter that starts and is new enough; the plain python3 otherwise, for its message.
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; exit; }; \
	done; echo python3)
# What `make test` runs; CI puts coverage in front, so that the suite runs once.
PYTEST ?= -m pytest
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help run test lint types cover bench proto lock image-check clean

help:  ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/.run  ## the demo: a scaler on a played-back fleet; ARGS="--pods 5" and the like
	@$(BIN)/python -m scaler demo $(ARGS)

test: $(VENV)/.dev  ## the whole test suite; ARGS="-k name" and the like
	@$(BIN)/python $(PYTEST) $(ARGS)

lint: $(VENV)/.dev  ## format, lint, import layers, types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(BIN)/mypy

cover:  ## the suite under branch coverage; core/ and config/ must be whole
	@$(MAKE) --no-print-directory test PYTEST="-m coverage run -m pytest"
	@$(BIN)/coverage report --skip-covered
	@$(BIN)/coverage report --skip-covered --fail-under=100 --include='scaler/core/*,scaler/config/*'

bench: $(VENV)/.dev  ## every benchmark, with its budget; a miss does not stop the others
	@missed=; for b in benchmarks/[a-z]*.py; do \
		echo "== $$b"; $(BIN)/python $$b || missed="$$missed $$b"; \
	done; echo "== summary"; \
	if [ "$$missed" ]; then echo "missed a budget or failed:$$missed"; exit 1; fi; echo "every budget met"

proto:  ## generate the gRPC stubs again
	@PYTHON=$(PYTHON) scripts/proto.sh

image-check:  ## run the Dockerfile's steps and the image's process, without a container engine
	@$(PYTHON) scripts/image.py

COMPILE = "$$(command -v uv || echo $(BIN)/uv)" pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-annotate --no-header --no-emit-index-url --no-emit-find-links
lock:  ## resolve the pinned requirements again (needs uv, on the PATH or in the venv)
	$(COMPILE) pyproject.toml --output-file requirements/run.txt
	$(COMPILE) pyproject.toml --group dev --output-file requirements/dev.txt
	$(COMPILE) --group build --output-file requirements/build.txt
	$(COMPILE) requirements/proto.in --output-file requirements/proto.txt

clean:  ## remove the venvs and everything that was generated
	rm -rf $(VENV) .venv-* build dist htmlcov .coverage* .mypy_cache .ruff_cache .pytest_cache \
		.hypothesis .import_linter_cache .grimp_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A Python without ensurepip (Debian's, without python3-venv) cannot put pip into a venv; its own pip
# can install into one from outside.
PIP = $(shell test -x $(BIN)/pip && echo $(BIN)/python -m pip || echo $(PYTHON) -m pip --python $(BIN)/python)
INSTALL = $(PIP) install --quiet --disable-pip-version-check --require-hashes --requirement

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "vllm-scaler needs Python 3.11 or newer; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1 | head -n 1)." >&2; \
		echo "Name another one: make PYTHON=/path/to/python3.11 …" >&2; exit 1; }
	@echo "setting up $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { rm -rf $(VENV); $(PYTHON) -m venv --without-pip $(VENV); }

$(VENV)/.run: requirements/run.txt | $(BIN)/python
	@$(INSTALL) requirements/run.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml | $(BIN)/python
	@$(INSTALL) requirements/dev.txt
	@$(PIP) install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@ $(VENV)/.run
