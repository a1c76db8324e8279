# Two commands: `make demo` and `make test`. Both set up .venv themselves and are quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
NATIVE := CMakeLists.txt pyproject.toml constraints.txt $(wildcard cpp/*.cpp cpp/*.h cpp/kernels/* bindings/*)

.PHONY: help demo test lint format bench-core wheel clean

help:  ## Show what there is
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 14

demo: $(VENV)/demo.stamp  ## Index 200,000 classes and compare with exact softmax
	$(BIN)/python -m manyclass.demo

test: $(VENV)/test.stamp lint  ## Lint, type-check and run all tests
	$(BIN)/python -m pytest

lint: $(VENV)/test.stamp  ## Format check, lint, types, import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/clang-format --dry-run --Werror cpp/*.cpp cpp/*.h cpp/kernels/* bindings/* tests/cpp/*.cpp

format: $(VENV)/test.stamp  ## Format everything
	$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .
	$(BIN)/clang-format -i cpp/*.cpp cpp/*.h cpp/kernels/* bindings/* tests/cpp/*.cpp

bench-core: $(VENV)/bench.stamp  ## All figures of the core, in resumable stages (hours)
	$(BIN)/python -m benchmarks.core

wheel: $(VENV)/build.stamp  ## Build a wheel into dist/
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean:  ## Remove everything that was built
	rm -rf $(VENV) build dist

$(VENV)/build.stamp: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade pip
	$(INSTALL) scikit-build-core nanobind cmake ninja
	@touch $@

# Editable: Python changes need no reinstall, C++ changes do.
$(VENV)/demo.stamp: $(VENV)/build.stamp $(NATIVE)
	$(INSTALL) --no-build-isolation --editable '.[figures]'
	@touch $@

$(VENV)/test.stamp: $(VENV)/demo.stamp
	$(INSTALL) --no-build-isolation --editable '.[test]'
	@touch $@

# torch: the pin in constraints.txt is the build to use; `make TORCH=system` reuses one that is already importable.
$(VENV)/bench.stamp: $(VENV)/test.stamp
ifeq ($(TORCH),system)
	echo $$($(PYTHON) -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))') > $$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')/system-torch.pth
endif
	$(INSTALL) --no-build-isolation --editable '.[peers]'
	@touch $@
