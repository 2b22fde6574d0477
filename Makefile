# The commands of this project. `make venv` is the first step of all the others.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# The minor versions of Kubernetes with a table of types of their own, the oldest first.
SCHEMAS := 1.36 1.37 1.35

# How many seeds `make simulate` runs, and from which one on.
SEEDS ?= 100
FIRST_SEED ?= 1

.PHONY: venv lock demo test simulate mutants lint types check schema site benchmark-guard performance-history clean

venv: $(STAMP)

$(STAMP): requirements/development.txt $(wildcard packages/*/pyproject.toml)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --no-deps --require-hashes --requirement requirements/development.txt
	@$(PIP) --no-deps --no-build-isolation $(foreach package,$(wildcard packages/*),--editable $(package))
	@$(BIN)/python -m pip check --disable-pip-version-check >/dev/null || $(BIN)/python -m pip check
	@touch $@

# Write requirements/ anew, after a change of constraints.txt or of a dependency.
lock: venv
	@$(BIN)/python -m tools.lock

demo: venv
	@$(BIN)/kubestow demo

# Every process of a run would compile all modules, and rewrite the assertions of all tests, if none kept the bytecode.
test: venv
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --dist worksteal -q

simulate: venv
	@$(BIN)/python -m kubestow_lab.fault_simulation --seeds $(SEEDS) --first $(FIRST_SEED)

# Do the tests notice? By default of all packages of the core; SAMPLE=0 stands for all mutants.
SAMPLE ?= 200
mutants: venv
	@nice $(BIN)/python -m tools.mutants $(if $(PACKAGES),--packages $(PACKAGES)) --sample $(SAMPLE)

lint: venv
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

types: venv
	@$(BIN)/mypy

site: venv
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

check: lint types test

# Write the tables of Kubernetes' types anew, after a change of the packages' versions in requirements/schema-*.txt. The
# tables of the other minor versions lack the types of the first one, so the order counts.
schema: venv
	@set -e; for minor in $(SCHEMAS); do \
		$(PIP) --no-deps --upgrade --target build/schema-$$minor --require-hashes --requirement requirements/schema-$$minor.txt; \
		$(BIN)/python -m tools.schema.generate build/schema-$$minor packages/kubestow-devcluster/src/kubestow_devcluster/apiserver/schema; \
	done

# Compare the CPU time per pod with that of the merge base with BASE, in pairs; fail beyond 10 %.
BASE ?= origin/main
PAIRS ?= 5
benchmark-guard: venv
	@$(BIN)/python -m tools.performance.guard --base $(BASE) --pairs $(PAIRS) --fail-above 10

# Measure HEAD beside the commit of main that was measured last, and write docs/performance-history.md.
performance-history: venv
	@nice $(BIN)/python -m tools.performance.history record

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
