# Every target sets up what it needs: a virtual environment in .venv, Java archives in .jars.
# Needed beforehand: make and Python 3.11 or newer. With Java 17 and Maven the tests also run Java's clients;
# with kcat and etcd installed they run these.

# The tests have run with 3.11; 3.14 is the quickest (docs/measurements.md): `make PYTHON=python3.14 run`.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
LISTEN ?= 127.0.0.1:9092
SPARKS := 4.0 4.1 4.2 4.3
LINKS := $(addprefix dev/ottla/,kproto storage client schemas runtime metastore tiers metrics settings metadata security replica coordinator server proxy registry rest console cli pipeline testing simulation)

# Hundreds of processes are started by the tests: each would compile all modules anew where the environment says this.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: clients registry-clients help run test check format compat compat-table compat-kafka compat-nodes test-groups test-proxy test-replicas test-security test-spark test-console test-alerts test-snippets test-without-linux recipes docs flights exactly-once differential full-disk kill-loop replicated-kill-loop jepsen table-kill-loop test-cluster sink-kill-loop share-kill-loop attack damage properties fuzz handshakes simulate simulate-cluster simulate-coordinators soak bench jars lint-packaging test-image release clean

help:
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 16

run: .venv/.run-ready ## a broker on 127.0.0.1:9092 (or LISTEN=host:port) that keeps its data in ./ottla-data
	@exec $(BIN)/ottla serve --listen $(LISTEN)

# In one run: real clients wait for more than half of their time, in which the other tests compute.
test: .venv/.test-ready jars clients ## every test
	$(PYTEST) --numprocesses=auto --dist=loadfile --no-loadscope-reorder --nodes tests examples compat_tests
	@$(BIN)/python -m tests.programs

check: .venv/.test-ready ## lint, format, types, layers
	$(BIN)/ruff check .
	@# A handler that is async and waits for nothing costs its connection's task a turn. (The rule is a preview.)
	$(BIN)/ruff check --preview --select RUF029 server/apis
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.test-ready ## rewrite the sources as `make check` wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

compat: .venv/.test-ready jars clients registry-clients ## real clients against Ottla
	$(PYTEST) compat_tests -m "tiers or not tiers"

compat-table: .venv/.test-ready jars clients ## the table of clients in docs/compatibility.md, from what the scenarios say
	$(PYTEST) $$($(BIN)/python docs/generate_clients.py) -m "groups or not groups" --junitxml=build/compat.xml
	$(BIN)/python docs/generate_clients.py build/compat.xml

compat-kafka: .venv/.test-ready jars clients ## the same scenarios against Apache Kafka, the oracle
	$(PYTEST) compat_tests --broker=kafka

compat-nodes: .venv/.flights-ready jars clients ## all of these scenarios on three nodes: BROKER is ottla3, ottla3-etcd or kafka3
	$(PYTEST) compat_tests --broker=$${BROKER:-ottla3} -m "spark or not spark or groups" --ignore=compat_tests/scenarios/test_replication.py

test-security: .venv/.test-ready jars clients ## TLS, SASL and access control: all clients, and beside Apache Kafka
	$(PYTEST) compat_tests -m security

test-replicas: .venv/.test-ready jars ## replicas on three nodes under real clients and Kafka's tools, on BROKER (ottla or kafka3)
	$(PYTEST) compat_tests -m replicas --broker=$${BROKER:-ottla}

test-groups: .venv/.test-ready jars clients ## the scenarios of groups and transactions that `make test` leaves out, on BROKER (ottla, kafka or both)
	$(PYTEST) compat_tests -m groups --broker=$${BROKER:-ottla}

test-mirror: .venv/.test-ready jars ## from Apache Kafka and from Ottla to a mirror, under load and kill -9 of both (BROKER)
	$(PYTEST) compat_tests -m mirror --broker=$${BROKER:-both}

test-proxy: .venv/.test-ready jars ## each of the proxy's filters under transactions, Streams, groups and Spark
	$(PYTEST) compat_tests/proxy/test_proxy_filters.py -m proxy

test-spark: .venv/.flights-ready jars ## every scenario of Spark on BROKER (ottla, kafka or both)
	$(PYTEST) compat_tests/spark tests/pipeline -m spark --broker=$${BROKER:-ottla}

test-console: .venv/.test-ready ## the web console in headless Chromium
	$(PYTEST) tests/console -m "chromium or not chromium"

test-alerts: .venv/.test-ready ## the alert rules for Prometheus (needs promtool: apt-get install prometheus)
	@command -v promtool >/dev/null || { echo "promtool is not installed: apt-get install prometheus" >&2; exit 1; }
	$(PYTEST) tests/server/telemetry/test_pages.py

test-snippets: .venv/.test-ready jars ## every snippet of the documentation, in every language
	$(PYTEST) tests/docs -m "snippets or not snippets"

test-without-linux: .venv/.test-ready ## storage, server and testing without the system calls that only Linux has
	PYTHONPATH=tests/without_linux $(PYTEST) --numprocesses=auto --dist=loadfile -m "not linux" tests/storage tests/replica tests/coordinator tests/metadata tests/settings tests/security tests/server tests/testing

recipes: .venv/.test-ready .cache/recipes/.ready ## the recipes of the documentation, with the frameworks that they are for
	$(PYTEST) tests/docs/test_recipes.py -m "recipes or not recipes"

.cache/recipes/.ready: pyproject.toml | .venv/bin/pip $(LINKS)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check --quiet install --upgrade 'pip>=25.1'
	$(@D)/bin/python -m pip --disable-pip-version-check --quiet install --editable '.[test]' --group recipes
	@touch $@

docs: .venv/.docs-ready ## the documentation as a site, in site/
	$(BIN)/zensical build --strict --clean

flights: .venv/.flights-ready ## 336,776 flights through a broker that is killed in the middle
	$(BIN)/python -m compat_tests.endurance.flights

example-flights: .venv/.flights-ready jars ## delays by carrier and hour on Spark, out of a topic of 336,776 flights
	$(BIN)/python -m examples.flights.delays

exactly-once: .venv/.test-ready ## a job of transactions through 20 kill -9 of its broker
	$(BIN)/python -m compat_tests.endurance.exactly_once

kill-loop: .venv/.test-ready ## 50 kill -9 of a broker under load, and a check of every acknowledged record
	$(BIN)/python -m compat_tests.endurance.kill_loop

full-disk: .venv/.test-ready ## a disk of 64 MB is filled and everything deleted, five times: seconds until there is room (root)
	$(BIN)/python -m compat_tests.endurance.full_disk

replicated-kill-loop: .venv/.test-ready ## 60 times nodes, links or etcd killed, frozen or cut, and a check of every record and replica
	$(BIN)/python -m compat_tests.endurance.replicated_kill_loop

jepsen: .venv/.test-ready jars ## MINUTES (30) of every fault on three real nodes and etcds, and the simulator's checkers on it
	$(BIN)/python -m compat_tests.jepsen --minutes $${MINUTES:-30} --seed $${SEED:-0}

differential: .venv/.test-ready jars ## SEEDS (200) random histories of each AREA (all) on Ottla and on Apache Kafka, answers compared
	$(BIN)/python -m compat_tests.differential --seeds $${SEEDS:-200} $(AREA:%=--area %) $(if $(KEEP),--keep $(KEEP))

table-kill-loop: .venv/.test-ready jars ## 20 kill -9 of a job that keeps tables, and a check of every row
	$(BIN)/python -m compat_tests.spark.endurance.kill_loop

sink-kill-loop: .venv/.test-ready jars ## kill -9 of a stream from topic to topic and of its broker, 200 times without Spark, 20 with it
	$(BIN)/python -m compat_tests.spark.endurance.sink_kill_loop --small
	$(BIN)/python -m compat_tests.spark.endurance.sink_kill_loop

share-kill-loop: .venv/.test-ready ## kill -9 of a query on a share group and of its broker, 60 times without Spark, and 6 times of a job in Spark
	$(BIN)/python -m compat_tests.spark.endurance.share_kill_loop
	$(BIN)/python -m compat_tests.spark.endurance.share_spark_kill_loop

test-cluster: $(SPARKS:%=test-cluster-%) ## jobs on a real Spark cluster, a worker killed: Spark 4.0, 4.1, 4.2, 4.3 (test-cluster-4.1: one of them)

test-cluster-%: .venv/.test-ready .cache/spark-%/.ready
	$(BIN)/python -m compat_tests.spark.endurance.cluster --spark .cache/spark-$*

# What a cluster's machines have, and Ottla is shipped to.
.cache/spark-%/.ready: pyproject.toml | .venv/bin/pip
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip --disable-pip-version-check --quiet install 'pyspark[connect]==$*.*' '.[spark,iceberg]'
	$(@D)/bin/pip --disable-pip-version-check --quiet uninstall --yes ottla
	@touch $@

.PRECIOUS: .cache/spark-%/.ready

simulate: .venv/.test-ready ## the storage engine on a disk that fails, SEEDS histories (5000); faults planted in it
	$(BIN)/ottla simulate storage --seeds $${SEEDS:-5000} --go-on
	$(BIN)/ottla simulate storage --planted

simulate-cluster: .venv/.test-ready ## whole clusters of NODES (3) under every fault, SEEDS histories (1000)
	$(BIN)/ottla simulate cluster --seeds $${SEEDS:-1000} --nodes $${NODES:-3} --go-on

soak: .venv/.test-ready ## TOPICS (50000) topics made and deleted, and what is left of them in memory
	$(BIN)/python -m ottla.simulation.storage.soak --topics $${TOPICS:-50000}

simulate-coordinators: .venv/.test-ready ## groups and offsets with every order of their steps, SEEDS histories (5000)
	$(BIN)/ottla simulate coordinators --seeds $${SEEDS:-5000} --go-on

attack: .venv/.test-ready ## what one client can do to the others: every attack, measured, as a table
	$(BIN)/python -m tests.attack

damage: .venv/.test-ready ## 2,000 flipped bits (BITS) and each file lost once: never a wrong record, never a silent loss
	DAMAGE_BITS=$${BITS:-2000} $(PYTEST) --numprocesses=auto tests/storage/test_damage.py tests/metastore/test_sqlite_damage.py

handshakes: .venv/.test-ready ## 20,000 conversations (HANDSHAKES) of strangers, and as many of hasty logins at each door, by HANDSHAKES_SEED
	HANDSHAKES=$${HANDSHAKES:-20000} $(PYTEST) tests/security/test_handshakes.py tests/security/test_logins.py

properties: .venv/.test-ready ## the properties that tests try with a hundred examples, with 2,000 others each
	$(PYTEST) --numprocesses=auto --dist=load -m hypothesis --hypothesis-profile=search tests

fuzz: .venv/.fuzz-ready ## hostile sequences of requests, and coverage-guided fuzzers of parsers and handlers: SECONDS (300) each
	$(BIN)/python -m tests.fuzz.fuzz_sequences --seconds $(or $(SECONDS),300) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.fuzz.fuzz_sequences --unwatched --seconds $(or $(SECONDS),300) $(if $(SEED),--seed $(SEED))
	$(BIN)/python tests/fuzz/fuzz_kproto.py -max_total_time=$(or $(SECONDS),300)
	$(BIN)/python tests/fuzz/fuzz_records.py -max_total_time=$(or $(SECONDS),300)
	$(BIN)/python -m tests.fuzz.fuzz_handlers -max_total_time=$(or $(SECONDS),300)

bench: .venv/.bench-ready jars ## the measurements of docs/performance.md
	$(BIN)/python -m benchmarks

release: .venv/.release-ready ## VERSION: build it, try it, tag it (DRY_RUN=1: only build and try it)
	@$(BIN)/python packaging/release.py $(VERSION) $(if $(DRY_RUN),--dry-run)

test-image: ## the container image: built with buildah, run, used and stopped (root; apt-get install buildah mmdebstrap)
	@$(PYTHON) packaging/try_image.py

lint-packaging: .venv/.packaging-ready ## the Dockerfile, compose files, Kubernetes manifests and (with helm) the chart
	@$(BIN)/python packaging/lint.py

clean: ## forget everything that the targets above made, but not ./ottla-data
	rm -rf .venv .jars build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/pip:
	@test -n "$(PYTHON)" || { echo "Ottla needs Python 3.11 or newer, found $$(python3 --version 2>&1)" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) install --upgrade 'pip>=25.1'

# Editable installs and type checkers see the top-level folders as ottla.* by these; a source archive comes without.
$(LINKS):
	mkdir -p $(@D) && ln -s ../../$(@F) $@

.venv/.run-ready: pyproject.toml | .venv/bin/pip $(LINKS)
	$(PIP) install --editable .
	@touch $@

.venv/.test-ready: pyproject.toml | .venv/bin/pip $(LINKS)
	$(PIP) install --editable . --group test --group check
	@touch $@

.venv/.bench-ready: .venv/.test-ready
	$(PIP) install --group bench
	@touch $@

.venv/.fuzz-ready: .venv/.test-ready
	$(PIP) install --group fuzz
	@touch $@

.venv/.release-ready: pyproject.toml | .venv/bin/pip
	$(PIP) install --group release
	@touch $@

.venv/.packaging-ready: pyproject.toml | .venv/bin/pip $(LINKS)
	$(PIP) install --group packaging
	@touch $@

.venv/.docs-ready: pyproject.toml | .venv/bin/pip $(LINKS)
	$(PIP) install --group docs
	@touch $@

.venv/.flights-ready: .venv/.test-ready
	$(PIP) install --group examples
	@touch $@

# Without Maven the tests that need Java skip, and say so.
clients: ## kafkajs and the programs by franz-go and Sarama, where there are Node.js and Go
	@command -v npm >/dev/null && $(MAKE) --no-print-directory compat_tests/node/node_modules/.complete \
	|| echo "no npm, or nothing to fetch it from: the scenarios with kafkajs are skipped"
	@command -v go >/dev/null && $(MAKE) --no-print-directory compat_tests/go/build/member \
	|| echo "no Go, or nothing to fetch from: the scenarios with franz-go and Sarama are skipped"

compat_tests/node/node_modules/.complete: compat_tests/node/package.json
	npm install --prefix compat_tests/node --no-package-lock --no-audit --no-fund --silent
	touch $@

compat_tests/go/build/member: compat_tests/go/go.mod compat_tests/go/go.sum compat_tests/go/member.go compat_tests/go/admin/main.go compat_tests/go/secure/main.go compat_tests/go/share/main.go compat_tests/go/sarama/main.go compat_tests/go/flow/main.go compat_tests/go/registry/main.go
	cd compat_tests/go && go build -o build/ ./admin ./secure ./share ./sarama ./flow ./registry && go build -o build/member .

REGISTRY_CLIENTS := compat_tests/registry

registry-clients: ## Confluent's clients of a schema registry for Go and Node.js, and Rust's: minutes of building, 700 MB
	@command -v npm >/dev/null && $(MAKE) --no-print-directory $(REGISTRY_CLIENTS)/node/node_modules/.complete \
	|| echo "no npm, or nothing to fetch it from: the schema registry is not tried with Node.js"
	@command -v go >/dev/null && $(MAKE) --no-print-directory $(REGISTRY_CLIENTS)/go/build/registry \
	|| echo "no Go, or nothing to fetch from: the schema registry is not tried with Confluent's client for Go"
	@command -v cargo >/dev/null && $(MAKE) --no-print-directory $(REGISTRY_CLIENTS)/rust/target/debug/registry \
	|| echo "no Rust, or nothing to fetch from: the schema registry is not tried with Rust"

$(REGISTRY_CLIENTS)/node/node_modules/.complete: $(REGISTRY_CLIENTS)/node/package.json
	npm install --prefix $(REGISTRY_CLIENTS)/node --no-package-lock --no-audit --no-fund --silent
	touch $@

$(REGISTRY_CLIENTS)/go/build/registry: $(REGISTRY_CLIENTS)/go/go.mod $(REGISTRY_CLIENTS)/go/go.sum $(REGISTRY_CLIENTS)/go/main.go
	cd $(REGISTRY_CLIENTS)/go && go build -o build/ .

$(REGISTRY_CLIENTS)/rust/target/debug/registry: $(REGISTRY_CLIENTS)/rust/Cargo.toml $(REGISTRY_CLIENTS)/rust/src/main.rs
	cd $(REGISTRY_CLIENTS)/rust && cargo build --quiet
	touch $@

jars:
	@if command -v mvn >/dev/null && command -v java >/dev/null; then $(MAKE) --no-print-directory .jars/kafka-4.4/.complete .jars/spark/.complete .jars/iceberg/.complete .jars/flink/.complete; \
	else echo 'Maven or Java is missing: the tests with Java clients will be skipped'; fi
	@if [ -x $(BIN)/python ]; then $(BIN)/python -m compat_tests.java.archive; fi

.jars/kafka-4.4/.complete: compat_tests/java/pom.xml
	rm -rf .jars/kafka-4.4
	mvn --batch-mode --quiet --file compat_tests/java/pom.xml dependency:copy-dependencies
	@touch $@

.jars/spark/.complete: compat_tests/spark/pom.xml
	rm -rf .jars/spark
	mvn --batch-mode --quiet --file compat_tests/spark/pom.xml dependency:copy-dependencies
	@touch $@

.jars/flink/.complete: compat_tests/registry/flink/pom.xml
	rm -rf .jars/flink
	mvn --batch-mode --quiet --file compat_tests/registry/flink/pom.xml dependency:copy-dependencies
	@touch $@

.jars/iceberg/.complete: compat_tests/iceberg/pom.xml
	rm -rf .jars/iceberg
	mvn --batch-mode --quiet --file compat_tests/iceberg/pom.xml dependency:copy-dependencies
	@touch $@
