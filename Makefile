# The commands of this project. `make venv` is the first step of all the others.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# How many seeds `make simulate` runs, and from which one on.
SEEDS ?= 100
FIRST_SEED ?= 1

.PHONY: venv demo test simulate lint types check schema site benchmark-guard clean

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt $(wildcard packages/*/pyproject.toml)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt hatchling editables
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-build-isolation \
		$(foreach package,kubestow kubestow-devcluster kubestow-contrib,--editable packages/$(package)) \
		--editable "packages/kubestow-lab[flow]" \
		$$($(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml','rb'))['dependency-groups']['dev'])")
	@touch $@

demo: venv
	@$(BIN)/kubestow demo

test: venv
	@$(BIN)/python -m pytest -n auto --dist worksteal -q

simulate: venv
	@PYTHONPATH=packages/kubestow/tests:packages/kubestow-contrib/tests $(BIN)/python -m tests.fault_simulation --seeds $(SEEDS) --first $(FIRST_SEED)

lint: venv
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

types: venv
	@$(BIN)/mypy

site: venv
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

check: lint types test

# Write the table of Kubernetes' types anew, after a change of the packages' versions in constraints.txt.
schema: venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps --upgrade \
		--target build/schema $$($(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml','rb'))['dependency-groups']['schema'])")
	@$(BIN)/python -m tools.schema.generate build/schema packages/kubestow-devcluster/src/kubestow_devcluster/apiserver/schema

# Compare the CPU time per pod with that of the merge base with BASE, in pairs; fail beyond 10 %.
BASE ?= origin/main
PAIRS ?= 5
benchmark-guard: venv
	@$(BIN)/python -m tools.benchmark_guard --base $(BASE) --pairs $(PAIRS) --fail-above 10

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
