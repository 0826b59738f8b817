# Every step looks for itself what is left to do, so all of them run each time and a second time is quick.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

setup := extension/setup
export MINDFUL_HOME ?= $(CURDIR)/.mindful
dev := "$$MINDFUL_HOME/dev/bin/"
# Some tests that are named run in one process.
JOBS := $(if $(PYTEST_ARGS),1,2)

.PHONY: help demo up down psql dsn test attack image-test lint bench bench-recall bench-scale bench-confidence bench-action bench-lesson bench-imports bench-replay build install models lock freeze clean packages server dev

help: #: this list
	@sed -n 's/^\([a-z-]*\):[^#]*#: \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "make %-17s %s\n", $$1, $$2 }'

demo: up #: from a bare Debian machine to an answer: set up all of it, then show the main job on real text
	@MINDFUL_DSN="$$($(setup)/cluster.sh dsn)" extension/demo.sh

up: packages server models install #: set up, start the private cluster, create or update the extension
	@$(setup)/cluster.sh up

down: #: stop the private cluster
	@$(setup)/cluster.sh down

psql: up #: open psql in the private cluster (PSQL_ARGS="-c 'select 1'")
	@$(setup)/cluster.sh psql $(PSQL_ARGS)

dsn: up #: print the private cluster's connection string, and nothing else
	@$(setup)/cluster.sh dsn

test: server models install dev #: set up and run the tests, two at a time (PYTEST_ARGS="-k recall" JOBS=1)
	@$(setup)/packages.sh pgbouncer
	@$(setup)/python.sh server reference train
	@$(setup)/test.sh $(JOBS) $(dev)pytest $(PYTEST_ARGS)

attack: server models install dev #: attack a running server as its roles, and print what came of it (ATTACK_ARGS="--write docs/security.md")
	@$(setup)/test.sh 1 $(dev)pytest tests/attack -q --table $(ATTACK_ARGS)

image-test: #: as root: the demo, tests and linters on a bare Debian made by debootstrap (SUITE=bookworm)
	@tests/image/debootstrap.sh $(SUITE)

lint: dev build #: check style, types, the SQL's security and the shell scripts
	@$(dev)ruff check .
	@$(dev)ruff format --check .
	@MYPYPATH=$(setup) $(dev)mypy
	@$(setup)/pgspot.sh $(dev)pgspot
	@PATH=$(dev):$$PATH shellcheck -x -P SCRIPTDIR $$(git ls-files '*.sh') .ci/run

bench: up dev #: measure speed, memory and cancels (BENCH_ARGS="--only batch --write docs/benchmarks.md")
	@PYTHONPATH=tests MINDFUL_DSN="$$($(setup)/cluster.sh dsn)" $(dev)python tests/bench/run.py $(BENCH_ARGS)

bench-recall: up dev #: measure what is recalled of LoCoMo (LOCOMO=locomo10.json, BENCH_ARGS=...)
	@MINDFUL_DSN="$$($(setup)/cluster.sh dsn)" $(dev)python tests/bench/recall.py "$(LOCOMO)" $(BENCH_ARGS)

bench-scale: up dev #: measure recall among a million memories, half an hour or more (BENCH_ARGS="--rows 10000 100000")
	@MINDFUL_DSN="$$($(setup)/cluster.sh dsn)" $(dev)python tests/bench/scale.py $(BENCH_ARGS)

bench-confidence: up dev #: measure confidence on question sets (DATA=folder, BENCH_ARGS="--second FILE.gguf")
	@[ -n "$(DATA)" ] || { echo "DATA=folder is needed: see tests/bench/confidence.py" >&2; exit 2; }
	@MINDFUL_DSN="$$($(setup)/cluster.sh dsn)" PYTHONPATH=plpy/src:tests $(dev)python tests/bench/confidence.py "$(DATA)" $(BENCH_ARGS)

bench-action: up dev #: measure what trying again gains, and draw a report (DATA=folder, BENCH_ARGS="--second FILE.gguf")
	@[ -n "$(DATA)" ] || { echo "DATA=folder is needed: see tests/bench/action.py" >&2; exit 2; }
	@MINDFUL_DSN="$$($(setup)/cluster.sh dsn)" PYTHONPATH=plpy/src:client/src:tests $(dev)python tests/bench/action.py "$(DATA)" $(BENCH_ARGS)

bench-lesson: up dev #: measure what labels do when a like question is asked (DATA=SelfAware.json, BENCH_ARGS=...)
	@MINDFUL_TEST_DSN="$$($(setup)/cluster.sh dsn)" PYTHONPATH=tests $(dev)python tests/bench/lesson.py "$(DATA)" $(BENCH_ARGS)

bench-imports: up dev #: measure what fitting's libraries cost a connection (BENCH_ARGS="--write docs/confidence.md")
	@MINDFUL_TEST_DSN="$$($(setup)/cluster.sh dsn)" PYTHONPATH=tests $(dev)python tests/bench/imports.py $(BENCH_ARGS)

bench-replay: up dev #: from LoCoMo to facts, pairs and a trained adapter, 10 minutes (LOCOMO=locomo10.json, BENCH_ARGS=...)
	@[ -n "$(LOCOMO)" ] || { echo "LOCOMO=file is needed: see tests/bench/replay.py" >&2; exit 2; }
	@$(setup)/python.sh server train
	@MINDFUL_TEST_DSN="$$($(setup)/cluster.sh dsn)" PYTHONPATH=tests $(dev)python tests/bench/replay.py "$(LOCOMO)" \
		--train --python "$$MINDFUL_HOME/venv/bin/python" $(BENCH_ARGS)

build: #: write extension/mindful--X.Y.Z.sql from sql/
	@$(setup)/install.sh build

install: #: build, and copy the extension's files to the server's extension directory
	@$(setup)/install.sh install

models: server #: make the default models' files
	@$(setup)/python.sh models

lock: dev #: write the versions and sums of all Python packages anew, for the extras of pyproject.toml (LOCK_ARGS=--upgrade)
	@$(setup)/lock.sh $(dev)uv $(LOCK_ARGS)

freeze: #: keep this version's install script in extension/released/ for the upgrade tests
	@$(setup)/install.sh freeze

clean: #: stop the private cluster and remove it with all of its data, the venvs and models
	@$(setup)/cluster.sh destroy

packages:
	@$(setup)/packages.sh

server: packages
	@$(setup)/python.sh server

dev: packages
	@$(setup)/python.sh dev
