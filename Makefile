# Every target works on a fresh checkout: what is missing is set up first, into .venv and .make.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
BIN := .venv/bin
LOCKS := requirements/test.txt requirements/demo.txt
READY := .venv/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check

export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME

.PHONY: help
help:  ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/\1|\2/' | column -t -s '|'

.PHONY: venv
venv: $(READY)  ## set up .venv with the pinned packages

$(BIN)/python:
	PYTHON=$(PYTHON) .ci/make-venv .venv

.venv/.pinned: $(LOCKS) | $(BIN)/python
	$(PIP) install --quiet --require-hashes --no-deps -r requirements/test.txt
	$(PIP) install --quiet --require-hashes --no-deps --no-build-isolation -r requirements/demo.txt
	touch $@

# Compat mode puts the checkout itself on the path, so that a new package or Twisted plugin is found
# without another install.
$(READY): pyproject.toml .venv/.pinned
	$(PIP) install --quiet --no-deps --no-build-isolation --config-settings editable_mode=compat -e .
	touch $@
