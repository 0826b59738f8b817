# Every step looks for itself what is left to do, so all of them run each time and a second time is quick.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

setup := extension/setup
export MINDFUL_HOME ?= $(CURDIR)/.mindful
dev := "$$MINDFUL_HOME/dev/bin/"
# Some tests that are named run in one process. Many of all tests wait for a clock: three keep two cores busy.
JOBS := $(if $(PYTEST_ARGS),1,3)

served_tests := tests/sql/generate tests/sql/chat tests/sql/confidence tests/sql/memory/test_embedding.py tests/sql/memory/test_embedder.py

.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' Makefile)

help: #: this list
	@sed -n 's/^\([a-z-]*\):[^#]*#: \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "make %-17s %s\n", $$1, $$2 }'

demo: up #: from a bare Debian machine to an answer: set up all of it, then show the main job on real text
	@MINDFUL_DSN="$$($(setup)/cluster.sh dsn)" extension/demo.sh

up: packages server models install $(if $(ENGINE),engine) #: set up, start the private cluster, create or update the extension (ENGINE=1: with an engine for all connections)
	@$(setup)/cluster.sh up
	@if [ -n "$(ENGINE)" ]; then $(setup)/cluster.sh engine; fi

down: #: stop the private cluster
	@$(setup)/cluster.sh down

psql: up #: open psql in the private cluster (PSQL_ARGS="-c 'select 1'")
	@$(setup)/cluster.sh psql $(PSQL_ARGS)

dsn: up #: print the private cluster's connection string, and nothing else
	@$(setup)/cluster.sh dsn

check: JOBS := $(if $(PYTEST_ARGS),1,2)
check: lint scripted models install #: lint, and run the unit tests and a few tests of each room, one to two minutes (JOBS=1)
	@$(setup)/test.sh $(JOBS) $(dev)pytest -q -m smoke tests/unit tests/sql tests/client $(PYTEST_ARGS)

test: scripted models install dev engine #: set up and run the tests, three at a time (PYTEST_ARGS="-k recall" JOBS=1)
	@$(setup)/packages.sh pgbouncer chromium chromium-driver
	@$(setup)/python.sh server reference train
	@$(setup)/test.sh $(JOBS) $(dev)pytest --durations=10 $(PYTEST_ARGS)

test-engine: scripted models install dev #: run the tests of models behind a real server (SERVER=llama-cpp-python PYTEST_ARGS="tests/sql/chat")
	@$(setup)/python.sh server reference train engine engine-test
	@PYTHONPATH=tests $(dev)python tests/support/served.py $(or $(SERVER),xllamacpp) \
		$(setup)/test.sh 1 $(dev)pytest -q $(or $(PYTEST_ARGS),$(served_tests))

router: up dev #: write the extensions mindful_router and mindful_partition, and install them
	@$(setup)/packages.sh "postgresql-$$(. $(setup)/common.sh && pg_major)-plproxy"
	@$(setup)/router.sh install

test-router: scripted models router #: test the router and its partitions, as root with network namespaces (PYTEST_ARGS="-k move")
	@$(setup)/packages.sh pgbouncer iproute2
	@$(setup)/test.sh 1 $(dev)pytest $(or $(PYTEST_ARGS),tests/router)

test-routed: scripted models router #: run the SQL tests through a router (PYTEST_ARGS="tests/sql/memory")
	@MINDFUL_TEST_ROUTED=1 $(setup)/test.sh 1 $(dev)pytest $(or $(PYTEST_ARGS),tests/sql)

test-clients: scripted models install dev #: run programs of others against the service: npm, litellm, llm, LangChain (PYTEST_ARGS="-k npm")
	@command -v npm >/dev/null || $(setup)/packages.sh npm
	@$(setup)/python.sh clients
	@$(setup)/test.sh 1 $(dev)pytest tests/clients $(PYTEST_ARGS)

mutate: scripted models install dev #: change the server's Python at random and count what tests notice (MUTATE_ARGS="--count 20")
	@$(setup)/python.sh dev mutate
	@$(dev)python tests/mutate/run.py $(MUTATE_ARGS)

attack: scripted models install dev #: attack a running server as its roles, and print what came of it (ATTACK_ARGS="--write docs/security.md")
	@$(setup)/test.sh 1 $(dev)pytest tests/attack -q --table $(ATTACK_ARGS)

reference: server install dev #: write docs/reference.md from the catalog's comments
	@PYTHONPATH=tests $(setup)/test.sh 1 $(dev)python tests/support/reference.py --write docs/reference.md

client: dev #: write the client for ordinary code (client.py) from the one for asyncio (aio.py)
	@PYTHONPATH=tests $(dev)python tests/support/twin.py --write

desk-picture: server models install dev #: take docs/desk.png, the desk in Chromium, from what the server answers
	@$(setup)/packages.sh chromium chromium-driver
	@PYTHONPATH=tests:client/src $(setup)/test.sh 1 $(dev)python tests/support/desk_picture.py --write docs/desk.png

picture: server models install dev #: draw docs/session.svg and print README's answers, from what the server answers
	@PYTHONPATH=tests $(setup)/test.sh 1 $(dev)python tests/support/picture.py --write docs/session.svg
	@PYTHONPATH=tests $(setup)/test.sh 1 $(dev)python tests/support/answers.py --write README.md

test-docker: dev #: run the pages' commands for Docker, which must run, 20 minutes (PYTEST_ARGS="-k compose")
	@$(dev)pytest -q tests/image $(PYTEST_ARGS)

image-test: #: as root: the demo, tests and linters on a bare Debian made by debootstrap (SUITE=bookworm)
	@tests/image/debootstrap.sh $(SUITE)

lint: dev build #: check style, types, the SQL's security and the shell scripts
	@$(dev)ruff check .
	@$(dev)ruff format --check .
	@$(dev)mypy
	@$(dev)lint-imports --no-cache
	@$(setup)/pgspot.sh $(dev)pgspot
	@PATH=$(dev):$$PATH shellcheck -x -P SCRIPTDIR $$(git ls-files '*.sh') .ci/run

bench: up scripted dev #: measure speed, memory and cancels (BENCH_ARGS="--only batch --write docs/benchmarks.md")
	@PYTHONPATH=tests MINDFUL_DSN="$$($(setup)/cluster.sh dsn)" $(dev)python tests/bench/run.py $(BENCH_ARGS)

bench-recall: up scripted dev #: measure what is recalled of LoCoMo (LOCOMO=locomo10.json, BENCH_ARGS=...)
	@MINDFUL_DSN="$$($(setup)/cluster.sh dsn)" $(dev)python tests/bench/recall.py "$(LOCOMO)" $(BENCH_ARGS)

bench-router: scripted models router #: measure what routing adds to a recall (BENCH_ARGS="--recalls 500")
	@PYTHONPATH=tests $(setup)/test.sh 1 $(dev)python tests/bench/routing.py $(BENCH_ARGS)

bench-scale: up scripted dev #: measure recall among a million memories, half an hour or more (BENCH_ARGS="--rows 10000 100000")
	@MINDFUL_DSN="$$($(setup)/cluster.sh dsn)" $(dev)python tests/bench/scale.py $(BENCH_ARGS)

bench-confidence: up scripted dev #: measure confidence on question sets (DATA=folder, BENCH_ARGS="--second FILE.gguf")
	@[ -n "$(DATA)" ] || { echo "DATA=folder is needed: see tests/bench/confidence.py" >&2; exit 2; }
	@MINDFUL_DSN="$$($(setup)/cluster.sh dsn)" PYTHONPATH=plpy/src:tests $(dev)python tests/bench/confidence.py "$(DATA)" $(BENCH_ARGS)

bench-action: up scripted dev #: measure what trying again gains, and draw a report (DATA=folder, BENCH_ARGS="--second FILE.gguf")
	@[ -n "$(DATA)" ] || { echo "DATA=folder is needed: see tests/bench/action.py" >&2; exit 2; }
	@MINDFUL_DSN="$$($(setup)/cluster.sh dsn)" PYTHONPATH=plpy/src:client/src:tests $(dev)python tests/bench/action.py "$(DATA)" $(BENCH_ARGS)

bench-cost: up scripted dev engine #: measure what an embedded model before a served one saves, 40 minutes (DATA=folder, BENCH_ARGS="--second FILE.gguf")
	@[ -n "$(DATA)" ] || { echo "DATA=folder is needed: see tests/bench/cost.py" >&2; exit 2; }
	@MINDFUL_DSN="$$($(setup)/cluster.sh dsn)" PYTHONPATH=plpy/src:client/src:tests $(dev)python tests/bench/cost.py "$(DATA)" $(BENCH_ARGS)

bench-lesson: up scripted dev #: measure what labels do when a like question is asked (DATA=SelfAware.json, BENCH_ARGS=...)
	@MINDFUL_TEST_DSN="$$($(setup)/cluster.sh dsn)" PYTHONPATH=tests $(dev)python tests/bench/lesson.py "$(DATA)" $(BENCH_ARGS)

bench-again: up scripted dev #: measure whether a chat is still shown a fact after it was asked for in other words (BENCH_ARGS="--facts 12")
	@MINDFUL_DSN="$$($(setup)/cluster.sh dsn)" $(dev)python tests/bench/again.py $(BENCH_ARGS)

bench-classifier: up dev #: measure classifiers from labeled tickets against the model's labels (BENCH_ARGS="--asked 100")
	@$(dev)python tests/bench/classifier.py --dsn "$$($(setup)/cluster.sh dsn)" $(BENCH_ARGS)

bench-labels: dev #: measure how many labels a certificate needs (ANSWERS=file of bench-confidence)
	@[ -n "$(ANSWERS)" ] || { echo "ANSWERS=file is needed: see tests/bench/labels.py" >&2; exit 2; }
	@PYTHONPATH=plpy/src:tests:tests/bench $(dev)python tests/bench/labels.py "$(ANSWERS)" $(BENCH_ARGS)

bench-alarm: dev #: simulate when the alarm about a broken budget comes, by the share of errors that are labeled
	@PYTHONPATH=plpy/src $(dev)python tests/bench/budget.py

bench-shown: up scripted dev #: measure whether chats answer rightly from what they are shown, 5 minutes (BENCH_ARGS="--half held --worlds 2")
	@MINDFUL_DSN="$$($(setup)/cluster.sh dsn)" $(dev)python tests/bench/shown.py $(BENCH_ARGS)

bench-talk: up scripted dev #: measure whole conversations: facts, corrections, changes and general questions (BENCH_ARGS="--half design --show")
	@MINDFUL_DSN="$$($(setup)/cluster.sh dsn)" $(dev)python tests/bench/talk.py $(BENCH_ARGS)

bench-matter: up scripted dev #: fit what tells questions about one's own matters from general ones (DATA=folder)
	@MINDFUL_DSN="$$($(setup)/cluster.sh dsn)" PYTHONPATH=plpy/src $(dev)python tests/bench/matter.py $(DATA)

bench-imports: up scripted dev #: measure what fitting's libraries cost a connection (BENCH_ARGS="--write docs/confidence.md")
	@MINDFUL_TEST_DSN="$$($(setup)/cluster.sh dsn)" PYTHONPATH=tests $(dev)python tests/bench/imports.py $(BENCH_ARGS)

bench-serve: up dev #: measure what the service adds to SQL, and 200 streams at once (BENCH_ARGS="--streams 200")
	@MINDFUL_DSN="$$($(setup)/cluster.sh dsn)" $(dev)python tests/bench/serve.py $(BENCH_ARGS)

bench-engine: up dev engine #: measure the embedded engine against one for all connections (BENCH_ARGS="--rounds 5")
	@MINDFUL_DSN="$$($(setup)/cluster.sh dsn)" PYTHONPATH=tests $(dev)python tests/bench/engine.py $(BENCH_ARGS)

bench-embedding: server models #: measure formats and libraries of the default embedder (LOCOMO=locomo10.json, BENCH_ARGS="--rows 500")
	@$(setup)/python.sh server reference
	@PYTHONPATH=plpy/src "$$MINDFUL_HOME/venv/bin/python" tests/bench/embedding.py "$(LOCOMO)" \
		"$$MINDFUL_HOME/models/all-minilm-l6-v2-f16.gguf" $(BENCH_ARGS)

bench-large: up dev engine #: measure models of 1 to 8 billion random weights, embedded and served (BENCH_ARGS="--sizes 1B --write docs/engines.md")
	@MINDFUL_DSN="$$($(setup)/cluster.sh dsn)" PYTHONPATH=tests:client/src $(dev)python tests/bench/large.py $(BENCH_ARGS)

bench-replay: up scripted dev #: from LoCoMo to facts, pairs and a trained adapter, 10 minutes (LOCOMO=locomo10.json, BENCH_ARGS=...)
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

engine: server
	@$(setup)/python.sh server engine
	@$(setup)/python.sh llama-server

scripted: server
	@$(setup)/python.sh scripted

dev: packages
	@$(setup)/python.sh dev
