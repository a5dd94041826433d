# Two commands matter: `make demo` shows the product, `make test` passes all tests. Both prepare what they need.
.DEFAULT_GOAL := help
BIN := .venv/bin
# Three processes share the tests, which keeps two cores busy: a test waits for a quarter of its time. No test and no
# run takes longer than it may (tests/conftest_run.py).
HOURS ?= 8
SEED ?= $(shell date -u +%Y%m%d)
# A process that dies ends the run: its replacement gets one group of tests and then waits for ever (xdist 3.8).
TOGETHER := -n 3 --dist loadgroup --no-loadscope-reorder --max-worker-restart 0 --timeout 600
export PYTHONPATH := $(CURDIR)/include
# Hundreds of processes load numpy, and none of them multiplies matrices: its threads would wait for work by turning.
export OPENBLAS_NUM_THREADS := 1
# Images of containers set it for their own layers: here every command and every driver would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

bootstrap:
	@scripts/bootstrap

demo: bootstrap ## v1 to v2 of a running stream through Airflow, with proofs; EXIT=1 stops by itself
	@$(BIN)/python scripts/demo.py $(if $(EXIT),--exit)

browser:
	@scripts/bootstrap browser

# Brokers of tests live for seconds or minutes: compiling their code for speed took a fifth of the time of some modules.
test: export KAFKA_JVM_PERFORMANCE_OPTS := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
test: bootstrap ## the tests before a landing: real Kafka, Spark, Delta and Airflow
	@$(BIN)/python -m pytest $(TOGETHER) --run-minutes 75 --durations 80 --junitxml build/test-results/junit.xml -m "not soak and not nightly"

nightly: browser ## the longer tests of tests/nightly.txt: real processes that die; repeated until none is left, exit code 75
	@$(BIN)/python -m pytest $(TOGETHER) --timeout 1500 --part-minutes 120 --run-minutes 150 --durations 80 --junitxml build/test-results/nightly.xml -m "nightly and not soak"

lint: bootstrap ## lint, format, types and import rules
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

check: lint ## the same and the fast tests: before every commit
	@$(BIN)/python -m pytest -m "not spark and not broker and not airflow and not e2e and not browser and not soak and not nightly"

bench: bootstrap ## ratios on 3,000,000 invoices; about half an hour
	@$(BIN)/python -m benchmarks

scenario: bootstrap ## the test of one row of docs/scenarios.md: make scenario ID=P3
	@$(BIN)/python scripts/scenario.py $(ID)

soak: bootstrap ## every crash window, killed for real; HOURS=2 ends by itself, SEED=20261122 plays that day again
	@SEED=$(SEED) $(BIN)/python -m pytest $(TOGETHER) --timeout 1500 --soak-hours $(HOURS) --soak-day $(SEED) --durations 40 --junitxml build/test-results/soak.xml -m soak

mutations: bootstrap ## each patch of tests/mutations breaks a guarantee: the tests that it names must notice
	@PYTHONPATH=tests:$(PYTHONPATH) $(BIN)/python -m support.mutations

up: bootstrap ## start the embedded stack: Kafka and Airflow
	@$(BIN)/kappa up

down: ## stop it
	@$(BIN)/kappa down

.PHONY: help bootstrap browser demo test nightly lint check bench scenario soak mutations up down
