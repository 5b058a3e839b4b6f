# FedArena. `make` alone lists the targets.

BIN := .venv/bin
# One torch thread in each test process: two of them share the machine.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
DENO := DENO_DIR=.deno_cache DENO_NO_UPDATE_CHECK=1 $(BIN)/deno
# More arguments for the command behind a target: make test ARGS="tests/engine -x", make run ARGS="--port 9000"
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install dev run test check format browser bench chaos fuzz cluster screenshots vendor docs clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: ## Make .venv and install FedArena into it
	@scripts/bootstrap

dev: ## Also install what the tests and checks need
	@scripts/bootstrap dev

run: install ## Start dashboard, worker and broker; Ctrl-C stops all of it
	@exec $(BIN)/fedarena serve $(ARGS)

test: dev browser ## Run all tests except the slow ones
	@$(PYTEST) --numprocesses 2 --dist loadgroup $(ARGS)

check: dev ## Check format, lint and types of Python and of the pages' scripts, and import contracts
	@$(BIN)/ruff format --check . || { echo "make format puts this right"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/mypy scripts
	@$(BIN)/lint-imports
	@$(DENO) fmt --quiet --check || { echo "make format puts this right"; exit 1; }
	@$(DENO) lint --quiet
	@$(DENO) check --quiet static/js

format: dev ## Format the code and mend what the linter can
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .
	@$(DENO) fmt --quiet

browser: dev ## Install a Chromium for the browser tests, where the user may
	@scripts/browser

chaos: dev ## Kill processes at random and check that nothing is lost (minutes)
	@$(PYTEST) -m chaos $(ARGS)

fuzz: dev ## Ask every operation of the API thousands of things, valid and not (minutes)
	@$(PYTEST) -m fuzz $(ARGS)

cluster: dev ## Play three hosts, cut one off, restart another (minutes; Linux, needs root for network namespaces)
	@[ "$$(id -u)" = 0 ] || { echo "make cluster makes network namespaces, which needs root: sudo make cluster"; exit 1; }
	@$(PYTEST) -m cluster tests/chaos $(ARGS)

bench: dev browser ## Measure speed: engine and queue as ratios, the dashboard in milliseconds
	@OMP_NUM_THREADS=1 $(BIN)/python scripts/bench_engine.py $(ARGS)
	@OMP_NUM_THREADS=1 $(BIN)/python scripts/bench_queue.py
	@OMP_NUM_THREADS=1 $(BIN)/python scripts/bench_dashboard.py

screenshots: dev browser ## Take a picture of every page, light and dark, into build/screenshots; renew those of the documentation
	@$(BIN)/python scripts/screenshots.py $(ARGS)

vendor: dev ## Fetch the browser libraries in static/vendor anew
	@$(BIN)/python scripts/vendor.py $(ARGS)

docs: dev ## Write the generated pages and tables anew
	@$(BIN)/python scripts/docs.py $(ARGS)

clean: ## Remove .venv, caches and build output; experiments and data in .fedarena stay
	@rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .deno_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
