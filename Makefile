# Everything a person does with this checkout. `make` alone lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help quickstart test test-fast test-cluster test-long lint bench rig rig-down docs requirements clean dev-environment
BIN := .venv/bin
FAST := tests/domain tests/dialects tests/store tests/client tests/services $(wildcard tests/test_*.py)
unexport PYTHONDONTWRITEBYTECODE # every process would read and compile the sources anew
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

help: ## Lists what can be made.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

quickstart: ## Starts the server, makes a volume, runs a two-node job on it and shows the result.
	@scripts/quickstart

test: dev-environment ## Runs every test, and lint. What this machine cannot run is listed at the end.
	@mkdir -p .cache; failed=0; \
	$(MAKE) --no-print-directory lint >.cache/lint.log 2>&1 & lint=$$!; \
	$(BIN)/python -m tests || failed=1; \
	wait $$lint || failed=1; \
	cat .cache/lint.log; \
	exit $$failed

test-fast: dev-environment ## Runs what needs no server, engine or cluster.
	@$(BIN)/pytest -q -n auto --dist loadfile --durations=10 $(FAST)

test-cluster: dev-environment ## Runs what needs a real Kubernetes or Docker hosts; they stay up while `make rig` does.
	@$(BIN)/python -m tests.rig build --if-usable
	@$(BIN)/pytest -n 5 --dist loadfile --no-loadscope-reorder --durations=30 -m cluster

test-long: dev-environment ## Runs every test, with the kill matrices whole.
	@PENSTOCK_KILLS=300 $(BIN)/python -m tests

lint: dev-environment ## ruff, mypy --strict and the layers (import-linter).
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: dev-environment ## Measures what the speed goals name, beside the alternatives.
	$(BIN)/python -m bench.run

rig: dev-environment ## Brings up a real Kubernetes on this machine (root) and leaves it running; the tests use it too.
	@$(BIN)/python -m tests.rig up

rig-down: dev-environment ## Ends it.
	@$(BIN)/python -m tests.rig down

docs: dev-environment ## Writes docs/reference from the code.
	$(BIN)/python -m scripts.reference

requirements: ## Compiles requirements/*.txt anew from pyproject.toml (needs uv).
	$(COMPILE) pyproject.toml --group build --extra postgresql --extra kubernetes -o requirements/run.txt
	$(COMPILE) pyproject.toml --group dev --extra postgresql --extra kubernetes -o requirements/dev.txt

clean: ## Removes what was built here. Volumes and jobs are elsewhere and stay.
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

dev-environment:
	@scripts/install-packages dev
	@scripts/venv dev
