# Each target sets up what it needs: on a fresh machine `make demo` or `make test` is the first command.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# make setup BACKEND=cuda13 installs MLX for an NVIDIA GPU instead; on macOS MLX brings Metal by itself.
BACKEND ?= cpu

.PHONY: setup system demo run test test-all check bench package clean

demo: setup
	$(BIN)/python -m app.demo

run: setup
	$(BIN)/tunesmith

# A process for each core, up to four, with a single BLAS thread each: more would wait for one another. Tests that share
# what takes long to make share a process.
PYTEST := QT_QPA_PLATFORM=offscreen OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadgroup

test: setup $(VENV)/.ready-package
	$(PYTEST) -m "not slow"

test-all: setup $(VENV)/.ready-package
	$(PYTEST)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m bench.against_mlx_lm

# The program that people download, into dist/, for the machine this runs on; packaging/README.md tells the rest.
package: setup $(VENV)/.ready-package
	$(BIN)/python packaging/build.py

setup: system $(VENV)/.ready-$(BACKEND)

system:
	@sh .ci/system.sh

$(VENV)/.ready-$(BACKEND): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else "Tunesmith needs Python 3.11, 3.12 or 3.13; say which with: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable ".[$(BACKEND)]" --group dev
	touch $@

$(VENV)/.ready-package: $(VENV)/.ready-$(BACKEND)
	$(BIN)/python -m pip install --quiet --group package
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
