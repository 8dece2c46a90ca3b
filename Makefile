# Every target works on a fresh checkout: what is missing is set up first, in .venv.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
ARGS ?=
RUN := .venv/bin/python -m
TYPED := journal txbroker $(wildcard spark pyspark_txbroker demo benchmarks models examples)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONHOME PYTHONPATH VIRTUAL_ENV
# Without kept bytecode every pytest worker rewrites the assertions of all tests anew: 10 s of processor each.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help:  ## list the targets
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo '  ARGS="..." passes options on, as in make drill ARGS="--fresh --kills 9";'
	@echo '  ARGS=--help lists them.'

.PHONY: demo
demo: java postgresql .venv/.ready  ## run the main job on real data, with kills on the way
	$(RUN) demo.flights $(ARGS)

# Servers and tools that come with no Python package; the tests fail, and say so, where one is missing.
DEBIAN := '/usr/lib/postgresql/15/bin/postgres=postgresql-15' '/usr/sbin/mariadbd=mariadb-server' spin=spin gcc=gcc \
	'/usr/include/python3*/Python.h=python3-dev' java=openjdk-17-jre-headless valgrind=valgrind openssl=openssl promtool=prometheus systemd-analyze=systemd '/usr/share/java/postgresql.jar=libpostgresql-jdbc-java'

.PHONY: java
java:
	@.ci/need-debian java=openjdk-17-jre-headless

.PHONY: postgresql
postgresql:
	@.ci/need-debian '/usr/lib/postgresql/15/bin/postgres=postgresql-15'

.PHONY: debian
debian:
	@.ci/need-debian $(DEBIAN)

.PHONY: drill
drill: .venv/.ready  ## kill a broker under load, look for what is lost
	.venv/bin/txbroker drill --out build/drill/$$(date +%Y%m%d-%H%M%S) $(or $(ARGS),--fresh)

# The fast tests force thousands of small files, 4 ms each: in memory where there is room, which is not what they are about.
QUICK := $(shell [ "$$(df --output=avail -k /dev/shm 2>/dev/null | tail -1)" -gt 4000000 ] && echo TMPDIR=/dev/shm)

.PHONY: check
check: debian lint  ## lint, types, layers and the fast tests, in a minute
	$(QUICK) $(RUN) tests.support.runs.shares 2 -m "not slow and not deep and not foreign" --hypothesis-profile check $(ARGS)

# Six workers on two cores: 60 % of a worker's time is waiting, for processes that start, for forces and for time-outs.
.PHONY: test
test: debian .venv/.ready  ## everything: lint, types, layers and all tests
	$(MAKE) -j 2 --output-sync lint lint-docs compiled
	$(RUN) pytest -n 6 --dist worksteal -m "not deep and not foreign" $(ARGS)
	$(COMPILED) -n 4 -m "not deep and not foreign" $(FEW_COMPILED)

# What is installed comes first on the path, before the checkout: both the tests and what they start import that.
COMPILED = PYTHONPATH=$(CURDIR)/.make/compiled .venv/bin/pytest --dist worksteal
# A few of them tell most: every byte that goes in or out, a broker that is killed, and a command line beside it.
FEW_COMPILED = tests/compiled/test_choice.py tests/formats tests/records tests/wire tests/vfs/test_forcing.py \
	tests/server/threads/test_force_thread.py tests/client/test_real_broker.py \
	tests/cli/test_against_broker.py
# Left out: what reads the checkout itself (house, docs, corpus, mutants), and Spark, which runs none of the leaves.
NOT_COMPILED = house docs corpus mutants spark demo examples models benchmarks simulation

.PHONY: test-compiled
test-compiled: debian compiled  ## the tests again, on the compiled build
	$(COMPILED) -n 4 -m "not deep and not foreign" tests $(addprefix --ignore=tests/,$(NOT_COMPILED)) $(ARGS)

.PHONY: compiled
compiled: .venv/.ready  ## install the checkout, compiled, into .make/compiled
	@.ci/install-compiled .venv/bin/python .make/compiled

.PHONY: test-deep
test-deep: debian .venv/.ready .make/release/.ready  ## more of the same: more histories, more moments of a death
	$(RUN) pytest -n 2 -m deep $(ARGS)

# FOREIGN_BROKER=rabbitmq shows what they say of RabbitMQ. What they wrote is in build/foreign. Celery alone takes 25 minutes.
.PHONY: test-amqp
test-amqp: .venv/.ready .make/foreign/.ready .make/foreign-suites/.ready  ## the tests of clients of AMQP that others wrote
	@.ci/need-debian redis-server=redis-server go=golang-go \
		$(if $(filter rabbitmq,$(FOREIGN_BROKER)),'/usr/lib/rabbitmq/bin/rabbitmq-server=rabbitmq-server')
	$(RUN) pytest -m foreign -o faulthandler_timeout=5400 tests/amqp/foreign $(ARGS)

.PHONY: lint
lint: .venv/.ready  ## lint, format, types and layers only
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy $(TYPED)
	.venv/bin/lint-imports --config setup.cfg

# All pages are read anew each time: a page that Sphinx has kept from a build with warnings would not warn again.
SPHINX = .make/docs/bin/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env --conf-dir docs
.PHONY: docs
docs: .make/docs/.ready  ## build the documentation site in build/docs
	$(SPHINX) $(ARGS) . build/docs
	@echo "the site is in build/docs/index.html"

# Whether every link and reference leads somewhere: all of a build but the pages, which take as long again.
.PHONY: lint-docs
lint-docs: .make/docs/.ready
	$(SPHINX) --builder dummy . build/docs-check

.PHONY: files
files: .venv/.ready  ## print every module and what it owns
	@$(RUN) tests.support.overview.file_table

.PHONY: rooms
rooms: .venv/.ready  ## draw the imports between the rooms, as text
	@$(RUN) tests.support.overview.room_diagram

.PHONY: format
format: .venv/.ready  ## sort the imports and format every file
	$(RUN) ruff check --select I --fix .
	$(RUN) ruff format .

# Brokers and clients are measured as they are installed: compiled, where there is a compiler; BUILD=pure measures the source.
BUILD ?= compiled
MEASURED := $(if $(filter pure,$(BUILD)),,$(CURDIR)/.make/compiled:)$(CURDIR)
MEASURE = PYTHONSAFEPATH=1 PYTHONPATH=$(MEASURED) .venv/bin/python -m

.PHONY: bench
bench: compiled  ## measure, beside the limits of this machine
	$(MEASURE) benchmarks $(ARGS)

.PHONY: bench-builds
bench-builds: compiled  ## measure Python's source and the compiled build in turn
	$(RUN) benchmarks.builds $(ARGS)

.PHONY: bench-buffers
bench-buffers: .venv/.ready  ## measure the buffer pool beside plain memory
	$(RUN) benchmarks.buffers $(ARGS)

.PHONY: bench-recovery
bench-recovery: compiled  ## measure restarts after kills and clean stops
	$(MEASURE) benchmarks recovery $(ARGS)

.PHONY: bench-scale
bench-scale: compiled  ## measure how cost grows with numbers of things
	$(MEASURE) benchmarks.scale $(ARGS)

.PHONY: bench-atomic
bench-atomic: debian compiled  ## measure a row with its message, and other ways
	$(MEASURE) benchmarks.atomic $(ARGS)

.PHONY: bench-fair
bench-fair: compiled  ## measure what one client has beside greedy ones
	$(MEASURE) benchmarks.fair $(ARGS)

.PHONY: bench-holds
bench-holds: .venv/.ready  ## measure how long the largest requests hold the reactor
	$(RUN) benchmarks.holds $(ARGS)

.PHONY: bench-groups
bench-groups: compiled  ## measure workers of a group whose handler waits
	$(MEASURE) benchmarks.groups $(ARGS)

.PHONY: bench-guard
bench-guard: debian compiled  ## count instructions per message against their budget
	$(RUN) benchmarks.guard $(ARGS)

.PHONY: bench-spark
bench-spark: compiled  ## measure Spark's reads, writes and audits beside Kafka's
	@.ci/need-debian java=openjdk-17-jre-headless mvn=maven
	$(MEASURE) benchmarks.spark $(ARGS)

# Kafka, Artemis and the clients in Java come from Maven Central, NATS from Go's modules: Debian's cannot force.
PEERS := redis-server=redis-server redis-benchmark=redis-tools '/usr/lib/rabbitmq/bin/rabbitmq-server=rabbitmq-server' \
	javac=openjdk-17-jdk-headless mvn=maven '/usr/lib/*/libaio.so.1*=libaio1' strace=strace

.PHONY: bench-peers
bench-peers: debian compiled  ## measure, beside Kafka, Redis, RabbitMQ and others
	@.ci/need-debian $(PEERS) || echo 'what is missing is left out of the figures, and named in the report' >&2
	$(MEASURE) benchmarks.peers $(ARGS)

.PHONY: bench-amqp
bench-amqp: debian compiled  ## measure AMQP beside RabbitMQ, by RabbitMQ's own PerfTest
	@.ci/need-debian '/usr/lib/rabbitmq/bin/rabbitmq-server=rabbitmq-server' java=openjdk-17-jre-headless mvn=maven
	$(MEASURE) benchmarks.amqp $(ARGS)

# By way of the source distributions: what an earlier build has left in the checkout gets into none.
CONTAINERS ?= $(firstword $(notdir $(shell command -v podman docker)) podman)
.PHONY: image
image: .venv/.ready  ## build the image of a broker, with podman or docker
	rm -rf build/image
	$(RUN) build --no-isolation --outdir build/image .
	$(RUN) build --no-isolation --outdir build/image packaging/server
	cp requirements/image.txt build/image/requirements.txt
	$(CONTAINERS) build $(if $(filter podman,$(CONTAINERS)),--format docker) --file packaging/image/Dockerfile \
		--tag txbroker:$$($(RUN) txbroker --version | sed 's/.* //') $(ARGS) build/image

# What is built comes from the last commit, twice, in two places; nothing is uploaded. docs/releasing.md says what comes next.
.PHONY: release
release: .make/release/.ready  ## build a release in build/dist, reproducibly
	@.ci/build-release .make/release/bin/python build/dist

.PHONY: keep-release
keep-release: .venv/.ready  ## keep a release's data directory and wheels for later tests
	$(RUN) tests.releases.make build/dist/*.whl

.PHONY: changelog
changelog: .make/release/.ready  ## make CHANGELOG.md of the news fragments
	.make/release/bin/towncrier build --yes $(ARGS) --version "$$(sed -n 's/^PROGRAM: Final = "\(.*\)"$$/\1/p' journal/formats/version.py)"

# Strict: a package that the service knows nothing of is not audited, and that is no success.
.PHONY: audit
audit: .make/release/.ready  ## ask for known vulnerabilities of the pinned packages
	.make/release/bin/pip-audit --strict --disable-pip --require-hashes --requirement requirements/image.txt $(ARGS)

.PHONY: model
model: debian .venv/.ready  ## check the protocols of `atomic` and of outboxes
	$(RUN) models.check $(ARGS)

SECONDS := 60
.PHONY: simulate
simulate: .venv/.ready  ## crash a broker in memory, SECONDS=60 long
	$(RUN) tests.simulation --seconds $(SECONDS) $(ARGS)

.PHONY: mutants
mutants: .venv/.ready  ## see the simulation find faults made one by one
	$(RUN) tests.simulation.teeth $(ARGS)

.PHONY: example-orders
example-orders: debian .venv/.ready  ## a small shop: rows in PostgreSQL, messages here
	$(RUN) examples.orders $(ARGS)

.PHONY: drill-orders
drill-orders: debian .venv/.ready  ## the shop, with 200 kill -9 of all that takes part
	$(RUN) examples.orders.drill $(ARGS)

.PHONY: example-shop
example-shop: postgresql .venv/.ready  ## a shop in Django and Celery, to look at in a browser
	$(RUN) examples.shop $(ARGS)

.PHONY: drill-shop
drill-shop: postgresql .venv/.ready  ## that shop, with 200 kill -9; ARGS=--naive: on_commit
	$(RUN) examples.shop.drill $(ARGS)

.PHONY: drill-access
drill-access: .venv/.ready  ## change rights under load and kills, and judge each answer
	$(RUN) tests.access_drill $(ARGS)

.PHONY: drill-backup
drill-backup: java .venv/.ready  ## make backups under load and kills, restore and judge each
	$(RUN) tests.backup_drill $(ARGS)

# The compiled build beside it, where there is a compiler; what runs from the checkout is the Python source.
.PHONY: venv
venv: compiled  ## set up .venv with the pinned packages

EXTRAS := $(addprefix --extra ,cli twisted tls login tokens postgresql sqlalchemy django zope zstd lz4 spark)
GROUPS := $(addprefix --group ,bench peers test)
SERVED := $(addprefix --extra ,cli twisted tls login tokens zstd lz4)
SHOWN := $(addprefix --extra ,cli twisted sqlalchemy django celery zope)

.PHONY: lock
lock: .make/lock/.ready  ## pin anew what pyproject.toml asks for
	$(PIN) 3.11 --output-file requirements/client.txt
	$(PIN) 3.11 --constraint requirements/client.txt --extra cli --extra twisted --extra login --extra tokens --output-file requirements/runtime.txt
	$(PIN) 3.11 --constraint requirements/runtime.txt $(EXTRAS) $(GROUPS) --output-file requirements/test.txt
	$(PIN) 3.11 --constraint requirements/test.txt $(SERVED) --output-file requirements/image.txt
	$(PIN) 3.11 --upgrade --resolution lowest-direct $(EXTRAS) $(GROUPS) --output-file requirements/lowest.txt
	$(PIN) 3.11 --constraint requirements/runtime.txt $(SHOWN) --group docs --output-file requirements/docs.txt
	$(PIN) 3.11 --constraint requirements/test.txt --group release --output-file requirements/release.txt
	$(PIN) 3.11 --group foreign --output-file requirements/foreign.txt
	$(PIN) 3.12 --constraint requirements/runtime.txt $(EXTRAS) $(GROUPS) --output-file requirements/django6.txt

.PHONY: test-lowest
test-lowest: debian .make/lowest/.ready  ## all tests, with the lowest versions that are allowed
	.make/lowest/bin/python -m pytest -n 2 -m "not foreign" $(ARGS)

.PHONY: test-django
test-django: debian .make/django6/.ready  ## Django 6, for which there must be a python3.12
	.make/django6/bin/python -m pytest -n 2 -k django tests/databases $(ARGS)

.PHONY: clean
clean:  ## remove everything that make made, .venv too
	rm -rf .venv .make build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.made:
	.ci/make-venv $(PYTHON) .venv
	touch $@

.venv/.pinned: requirements/test.txt requirements/demo.txt .venv/.made
	$(RUN) pip install --quiet --require-hashes --no-deps -r requirements/test.txt
	$(RUN) pip install --quiet --require-hashes --no-deps --no-build-isolation --use-pep517 -r requirements/demo.txt
	touch $@

# Compat mode puts the checkout itself on the path: a new package or Twisted plugin is found at once.
.venv/.ready: pyproject.toml .venv/.pinned
	$(RUN) pip install --quiet --no-deps --no-build-isolation --config-settings editable_mode=compat -e .
	touch $@

.make/lowest/.ready: requirements/lowest.txt requirements/demo.txt pyproject.toml
	.ci/make-venv $(PYTHON) .make/lowest
	$(call INSTALL,lowest)
	.make/lowest/bin/python -m pip install --quiet --require-hashes --no-deps --no-build-isolation --use-pep517 \
		-r requirements/demo.txt
	touch $@

# The clients that others wrote, and what their tests import.
.make/foreign/.ready: requirements/foreign.txt
	.ci/make-venv $(PYTHON) .make/foreign
	.make/foreign/bin/python -m pip install --quiet --require-hashes --no-deps -r requirements/foreign.txt
	touch $@

.make/foreign-suites/.ready: requirements/foreign-suites.txt .ci/foreign-suites .make/foreign/.ready
	.ci/foreign-suites .make/foreign/bin/python .make/foreign-suites
	touch $@

# What builds a release has an environment of its own: nothing that runs needs it.
.make/release/.ready: requirements/release.txt
	.ci/make-venv $(PYTHON) .make/release
	.make/release/bin/python -m pip install --quiet --require-hashes --no-deps -r requirements/release.txt
	touch $@

# The site's generator has an environment of its own: nothing that runs or is tested needs it.
.make/docs/.ready: requirements/docs.txt
	.ci/make-venv $(PYTHON) .make/docs
	.make/docs/bin/python -m pip install --quiet --require-hashes --no-deps -r requirements/docs.txt
	touch $@

PYTHON312 ?= python3.12
.make/django6/.ready: requirements/django6.txt pyproject.toml
	.ci/make-venv $(PYTHON312) .make/django6
	$(call INSTALL,django6)
	touch $@

INSTALL = .make/$(1)/bin/python -m pip install --quiet --require-hashes --no-deps -r requirements/$(1).txt && \
	.make/$(1)/bin/python -m pip install --quiet --no-deps --no-build-isolation \
		--config-settings editable_mode=compat -e .

PIN = UV_CUSTOM_COMPILE_COMMAND="make lock" .make/lock/bin/uv pip compile --quiet --generate-hashes \
	$(ARGS) pyproject.toml --python-version

.make/lock/.ready:
	.ci/make-venv $(PYTHON) .make/lock
	.make/lock/bin/python -m pip install --quiet uv==0.13.9
	touch $@
