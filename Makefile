# Everything is set up in .venv by whichever target needs it; all that has to be there is Python 3.11 or later and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check
READY  := $(VENV)/.ready

# Some shells have it set: each of some 150 processes that tests start would then compile all of our modules anew, and
# each of pytest's rewrite all tests.
unexport PYTHONDONTWRITEBYTECODE

# All checkouts share what mypy knows: it goes by what is in a file, and a new clone would take half a minute to learn it.
export MYPY_CACHE_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/gpu-webhooks/mypy

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast announce collected control-plane bench fuzz lint format lock clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## Run the pair on its embedded catalog and show what it does to a few virtual machines
	@$(BIN)/gpu-webhooks demo

# Four at a time on two cores, since tests on a control plane spend much of their time waiting.
test: announce ## Lint, then run every test; the first run builds a control plane before
	@$(MAKE) --no-print-directory --jobs 2 lint collected
	@$(MAKE) --no-print-directory control-plane
	$(BIN)/pytest --numprocesses 4

# pytest keeps the tests as it rewrites them; else each of the four would do it, while mypy leaves a core idle.
collected: $(READY)
	@$(BIN)/pytest --collect-only --quiet > /dev/null 2>&1 || true

test-fast: lint ## The same without the tests on a control plane
	$(BIN)/pytest --ignore tests/cluster

announce: $(READY)
	@$(CONTROL_PLANE) --announce

control-plane: $(READY) ## Build the control plane that make test runs on, once for all runs
	@$(CONTROL_PLANE)

CONTROL_PLANE := PYTHONPATH=tests/support $(BIN)/python -m controlplane

bench: $(READY) ## Measure beside bare handlers, and a peer where PEER names its binary (see docs/development.md)
	PYTHONPATH=tests/support $(BIN)/python tests/bench/bench.py $(if $(PEER),--peer $(PEER)) $(BENCH)

fuzz: $(READY) ## Send 100,000 damaged reviews to a process that serves; N=1000 for so many, FUZZ="--seed S" again
	PYTHONPATH=tests/support $(BIN)/python tests/bench/fuzz.py $(if $(N),--reviews $(N)) $(FUZZ)

lint: $(READY) ## ruff, mypy (strict) and the layers that the rooms keep
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## Let ruff put the code in shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(READY) ## Lock the dependencies again, with hashes
	$(BIN)/uv pip compile $(LOCK) pyproject.toml -o requirements.txt
	$(BIN)/uv pip compile $(LOCK) --extra dev -c requirements.txt pyproject.toml -o requirements-dev.txt
	echo 'hatchling>=1.27' | $(BIN)/uv pip compile $(LOCK) -c requirements-dev.txt - -o requirements-build.txt

LOCK := --quiet --universal --python-version 3.11 --generate-hashes --custom-compile-command 'make lock'

# pip weighs each file that an index has of a package, which takes it half a minute; uv does it all in a second, and pip
# fetches uv alone. Where uv gets nothing, pip does it: its settings may say how. All that is fetched has its hash in the
# lock; --no-build-isolation: the build backend too.
$(READY): pyproject.toml requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Python 3.11 or later is needed; name it with make PYTHON=/path/to/python3'; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
	@sed -n '/^uv==/,/[^\\]$$/p' requirements-dev.txt > $(VENV)/uv.txt
	$(PIP) install --require-hashes -r $(VENV)/uv.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --system-certs --require-hashes -r requirements-dev.txt || \
		$(PIP) install --require-hashes -r requirements-dev.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

clean: ## Remove what the targets made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
