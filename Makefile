# `make` lists the targets. Every target sets up what it needs by itself; a second run reuses that.
.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV  := .venv
BIN   := $(VENV)/bin
SETUP := deploy/setup
TESTS ?= tests
# Tests and daemons start Python hundreds of times. With this variable set, each start would compile all imports again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-deploy test-long test-cluster test-hive test-trino lint docs format bench bench-hive lock proto clean
.PHONY: breadth man mutants pictures

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## set up, build a small warehouse, run the daemon on it, show before and after
	@$(SETUP) run
	@$(BIN)/python -m tests.demo $(ARGS)

test: ## set up, run the tests (ARGS="-k name" to choose)
	@$(SETUP) test
	@$(BIN)/python -m pytest -m "not long and not cluster and not deploy and not live and not trino" -n 2 --dist loadfile --no-loadscope-reorder $(TESTS) $(ARGS)

test-long: ## play long random lives of tables under all options, and more that takes time (tens of minutes on two cores)
	@$(SETUP) test
	@$(BIN)/python -m pytest -m "long and not cluster and not live and not trino" -n 2 --dist load $(TESTS) $(ARGS)

test-cluster: ## run the tests that start the servers of a cluster: HDFS and others
	@$(SETUP) test
	@$(BIN)/python -m pytest -m cluster -n 4 --dist loadfile --no-loadscope-reorder $(TESTS) $(ARGS)

test-hive: ## play random SQL on real Hive servers, 4.0.1 and 3.1.3, beside the daemon (docs/testing.md)
	@$(SETUP) test
	@$(BIN)/python -m pytest -m live -n 2 --dist loadgroup -p no:randomly $(TESTS) $(ARGS)

test-trino: ## let Trino read what a real Hive wrote, before, during and after compactions and cleaning
	@$(SETUP) test
	@$(BIN)/python -m pytest -m trino -n 0 $(TESTS) $(ARGS)

mutants: ## change the code at random, and see whether the tests fail (ARGS="acid --count 20"; docs/testing.md)
	@$(SETUP) test
	@$(BIN)/python -m tests.mutants $(ARGS)

breadth: ## run the suites with Hive's own classes, and print which of their branches were reached (docs/testing.md)
	@$(SETUP) test
	@$(BIN)/python -m tests.breadth $(ARGS)

test-deploy: ## check deploy/ with the real tools: unit, alert rules, dashboard, container, manifests, rights
	@$(SETUP) deploy
	@$(BIN)/python -m pytest -m deploy tests/deploy $(ARGS)

lint: ## run ruff, mypy --strict, and the checks of import rules, dead code and lock files
	@$(SETUP) lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vulture
	$(BIN)/python deploy/locks.py check

docs: ## build the pages as a site (build/docs); a dead link, a missing anchor or an unreachable page fails
	@$(SETUP) docs
	@rm -rf build/docs
	$(BIN)/sphinx-build --fail-on-warning --keep-going --nitpicky --quiet --fresh-env \
	  -c docs -d build/doctrees . build/docs
	@echo "build/docs/docs/index.html"

man: ## write the manual pages (docs/man) anew from the commands
	@$(SETUP) run
	@$(BIN)/python -m docs.man

pictures: ## draw docs/images from a daemon at work beside Prometheus (a quarter of an hour; ARGS=draw: once more)
	@$(SETUP) deploy
	@$(BIN)/python -m docs.pictures $(ARGS)

format: ## let ruff format and fix what it can
	@$(SETUP) lint
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: ## measure the bars (ONLY=name for one) and write benchmarks/results.json
	@$(SETUP) test
	@$(BIN)/python -m benchmarks $(ONLY)

bench-hive: ## measure compactions by a real Hive's own worker and by ours, in turn (an hour)
	@$(SETUP) test
	@$(BIN)/python -m benchmarks beside_hive

lock: ## resolve the dependencies again (pyproject.toml -> *.lock)
	@$(SETUP) lint
	$(BIN)/pip install --quiet uv
	$(BIN)/python deploy/locks.py resolve

proto: ## compile the ORC message definitions again
	@$(SETUP) lint
	compactor/orc/format/proto/make-protobuf

clean: ## remove everything that the other targets made
	rm -rf $(VENV) .tools build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
