# `make demo` and `make test` set up everything they need; a second call installs nothing.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: demo test test-slow mutants docs wheel-test lock lint format clean

demo: $(INSTALLED)
	$(BIN)/fedpub demo

test: lint
	$(BIN)/python -m pytest -m "not slow" -n 2

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow

# Deliberate defects in a copy of the sources, each of which a test must notice.
mutants: $(INSTALLED)
	$(BIN)/python tests/mutants.py

# What is packaged works without this checkout: in an environment of its own, from an empty folder.
wheel-test:
	@set -e; there=$$(mktemp -d); trap 'rm -rf "$$there"' EXIT; rm -rf build; unset PYTHONPATH; \
	$(PYTHON) -m venv "$$there/venv"; bin="$$there/venv/bin"; pip="$$bin/python -m pip --quiet --disable-pip-version-check"; \
	$$pip wheel -c constraints.txt --no-deps --wheel-dir build .; \
	$$pip install -c constraints.txt build/*.whl; \
	mkdir "$$there/empty"; cd "$$there/empty"; export FEDPUB_CACHE="$$there/cache"; \
	"$$bin/fedpub" run --dataset communities --rounds 2 --quiet; \
	"$$bin/fedpub" doctor

# The pages that are made of the code, then the site in build/docs, which needs no network; a warning is an error.
docs: $(INSTALLED)
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The hashes of what a coordinator or a site installs, after a change of constraints.txt; asks the package index.
lock: $(INSTALLED)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python requirements/lock.py

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The stamp carries the time of the last complete install: an interrupted one is done again.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "fedpub needs Python 3.11 or newer; set it with: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache
