# The commands of this project. `make` alone lists them.
#
# `make demo` and `make test` need python3 (3.11 or newer) and a package registry, nothing else: each makes the
# environment that it needs in .venv, once. A stamp in .venv remembers what it was made from (this directory, the Python,
# pyproject.toml and requirements.lock), so a second run starts at once and a change of any of these is picked up.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Twice the cores of a small machine: the tests of the lab mostly wait.
WORKERS ?= 4
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder $(SLOWEST)
SLOWEST := --durations=10 --durations-min=0.1
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

# What depends on the version of Kubernetes most: the API as healthd uses it, recoveries, what is installed, a kubelet.
STORIES := tests/lab/test_control_plane.py tests/lab/test_simulated.py tests/contract tests/kubernetes \
	$(addprefix tests/deploy/test_,apply.py crds_served.py installed.py on_a_real_node.py)

hash = $(shell { pwd; $(PYTHON) -VV; cat /dev/null $(1); } 2>/dev/null | cksum | cut -d ' ' -f 1)
MADE := $(VENV)/.made-$(call hash,)
INPUTS := $(call hash,pyproject.toml requirements.lock)
FOR_USE := $(VENV)/.for-use-$(INPUTS)
FOR_WORK := $(VENV)/.for-work-$(INPUTS)

.PHONY: help demo test coverage quick lab kinds scenarios kubernetes check lint form types layers format docs bench lock clean
.DEFAULT_GOAL := help

# Bytecode is kept even where the environment forbids it: each process of the tests would compile all of them anew.
export PYTHONDONTWRITEBYTECODE :=

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(FOR_USE) ## show a training job that survives a broken GPU; options in ARGS="--slow"
	@echo "==> healthd demo $(ARGS)"
	@$(BIN)/healthd demo $(ARGS)

test: lab ## run all tests; options in ARGS="-k words"
	@echo "==> all tests, on $(WORKERS) processes; skipped tests are listed with their reasons"
	@$(PYTEST) $(ARGS)

coverage: lab ## run all tests, and show which lines none of them ran (about twice the time)
	@$(MAKE) --no-print-directory test ARGS='--cov --cov-report=term:skip-covered $(ARGS)'

quick: $(FOR_WORK) ## run the tests that need neither the lab nor patience, while you work; options in ARGS="-k words"
	@echo "==> quick tests, on $(WORKERS) processes"
	@$(PYTEST) -m 'not lab and not slow' $(ARGS)

lab: $(FOR_WORK) ## build the programs of the lab, where it can be done (a quarter of an hour, once)
	@echo "==> programs of the lab: a real control plane, simulated nodes"
	@$(BIN)/python -m tests.lab.build

kinds: lab ## try every gang kind with its real controller (40 minutes; ten more, once); RESULTS=1 writes docs/gangs.md
	@echo "==> controllers of all gang kinds"
	@$(BIN)/python -m tests.lab.build kinds
	@$(BIN)/python -m pytest --all-kinds $(if $(RESULTS),--write-results) \
		tests/lab/kinds tests/gangs/lab tests/gangs/recoveries $(ARGS)

scenarios: lab ## interrupt a recovery at every moment, with every kind of gang; `make test` tries a part of it
	@echo "==> all scenarios on simulated nodes"
	@HEALTHD_ALL_SCENARIOS=1 $(BIN)/python -m pytest $(SLOWEST) tests/kubernetes --ignore=tests/kubernetes/real $(ARGS)

kubernetes: $(FOR_WORK) ## try healthd on another Kubernetes, VERSION=1.35 (a quarter of an hour; ten minutes more, once)
	@echo "==> Kubernetes $(or $(VERSION),of the lab), and its stories"
	@LAB_KUBERNETES=$(VERSION) $(BIN)/python -m tests.lab.build kubernetes
	@LAB_KUBERNETES=$(VERSION) $(BIN)/python -m pytest -m lab $(SLOWEST) $(STORIES) $(ARGS)

check: lint form types layers ## lint, formatting, types, and the layers of the house plan

lint: $(FOR_WORK)
	@echo "==> ruff check"
	@$(BIN)/python -m ruff check .

form: $(FOR_WORK)
	@echo "==> ruff format"
	@$(BIN)/python -m ruff format --check .

types: $(FOR_WORK)
	@echo "==> mypy"
	@$(BIN)/python -m mypy

layers: $(FOR_WORK)
	@echo "==> import-linter"
	@$(BIN)/lint-imports

format: $(FOR_WORK) ## put the code into the one form
	@$(BIN)/python -m ruff check --fix-only --quiet .
	@$(BIN)/python -m ruff format .

docs: $(FOR_WORK) ## write the pages, pictures and manifests that are made from the code
	@$(BIN)/healthd config --reference > docs/configuration.md.new && mv docs/configuration.md.new docs/configuration.md
	@rm -rf docs/findings.new && $(BIN)/healthd rules --reference docs/findings.new
	@rm -rf docs/findings && mv docs/findings.new docs/findings
	@$(BIN)/python -c 'from healthd.alerts.sinks.webhook import schema; print(schema(), end="")' > docs/schema.new && \
		mv docs/schema.new docs/monitoring/alert-webhook.schema.json
	@$(BIN)/python -m healthd.cluster.crds > deploy/crds.yaml.new && mv deploy/crds.yaml.new deploy/crds.yaml
	@$(BIN)/python -m tests.deploy.attacks
	@$(BIN)/python -m tests.docs.architecture_picture
	@$(BIN)/python -m tests.docs.hang_picture
	@$(BIN)/python -m tests.docs.metrics_page
	@$(BIN)/python -m tests.deploy.prometheus_rule
	@$(BIN)/python -m tests.grafana.dashboards
	@$(BIN)/python -m tests.deploy.config_keys

bench: $(FOR_WORK) ## measure: one JSON object per benchmark; clocks and machine are named in it
	@for file in tests/bench/[a-z]*.py; do \
		name=$$(basename $$file .py); echo "==> $$name" >&2; $(BIN)/python -m tests.bench.$$name || exit 1; \
	done

lock: ## choose the newest versions again, and pin them in requirements.lock
	@echo "==> resolving in a fresh environment with $$($(PYTHON) -V)"
	@set -e; fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
		$(PYTHON) -m venv "$$fresh"; \
		"$$fresh/bin/python" -m pip --quiet --disable-pip-version-check install hatchling editables -e '.[dev]'; \
		{ sed -n '/^#/p' requirements.lock; \
		  "$$fresh/bin/python" -m pip --disable-pip-version-check freeze --exclude-editable; } > requirements.lock.new; \
		mv requirements.lock.new requirements.lock; \
		"$$fresh/bin/python" -m tests.deploy.image_lock > deploy/requirements.lock.new; \
		mv deploy/requirements.lock.new deploy/requirements.lock
	@echo "==> requirements.lock and deploy/requirements.lock are written; now: make test"

clean: ## remove the environment and everything that the tools left
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .coverage .coverage.* htmlcov build dist

$(FOR_USE): | $(MADE)
	@echo "==> installing healthd into $(VENV)"
	@$(PIP) install --constraint requirements.lock hatchling editables
	@$(PIP) install --constraint requirements.lock --no-build-isolation --editable '.[stacks]'
	@touch $@

$(FOR_WORK): | $(MADE)
	@echo "==> installing healthd and the tools of its developers into $(VENV) (a minute, the first time)"
	@$(PIP) install --constraint requirements.lock hatchling editables
	@$(PIP) install --constraint requirements.lock --no-build-isolation --editable '.[dev]'
	@touch $@ $(FOR_USE)

$(MADE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		found=$$($(PYTHON) -V 2>/dev/null) || found=missing; \
		echo "healthd needs Python 3.11 or newer, and '$(PYTHON)' is $$found." >&2; \
		echo "Install one, or name the one to use: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "This Python cannot make environments: its modules venv and ensurepip are missing." >&2; \
		echo "On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "==> making an environment in $(VENV) with $$($(PYTHON) -V)"
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@
