# Every target that needs it sets the project up first; a set-up that stands costs half a second.
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-replication demo-work demo-follow test spark gateway stores cluster lint alerts bench-s3a bench soak mutants judge nightly release-check docs pictures readme rules clean

RUN := tools/run.sh

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Make .venv with the locked dependencies, find or install Java 17 or 21, and fetch Delta's jars.
	@tools/setup.sh

demo: setup ## Take half a million real order lines through a queue, kill a consumer, and balance the books (DAILY=1: of each day).
	@$(RUN) python jobs/demo.py $(if $(DAILY),--close day)

demo-replication: setup ## Share one queue between two sites, lose one of them, have it back, and balance the books.
	@$(RUN) python jobs/demo_replication.py

demo-work: setup ## Let a Spark job and a worker in plain Python share a queue, kill both, and balance the books.
	@$(RUN) python jobs/demo_work.py

demo-follow: setup ## Let a Spark job append to a table, and two consumers share a queue over it, through OPTIMIZE, VACUUM and DELETE.
	@$(RUN) python jobs/demo_follow.py

test: setup ## Run what a push has to pass: every test but the long forms (LONG_FORMS=1: these, too), in random worlds that the commit picks.
	@$(RUN) tools/test.sh

spark: setup ## Run the tests of Spark's side on another Spark (VERSION=4.0, with the oldest packages that go with it, 4.1 or 4.3).
	@tools/spark.sh $(VERSION)

gateway: setup ## Run the tests of object stores also on a real S3 server, which Go builds first.
	@GOBIN=$(CURDIR)/build/bin go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
	@PATH=$(CURDIR)/build/bin:$$PATH $(RUN) python -m pytest tests/integration/test_s3.py tests/integration/test_s3_sinks.py tests/integration/test_replication_s3.py

stores: setup ## Run the tests of stores other than S3 on Azurite (ADLS) and fake-gcs-server (GCS), which npm and Go install first.
	@npm install --prefix build/azurite --no-audit --no-fund --loglevel error azurite@3.35.0
	@GOBIN=$(CURDIR)/build/bin go install github.com/fsouza/fake-gcs-server@v1.56.1
	@PATH=$(CURDIR)/build/bin:$(CURDIR)/build/azurite/node_modules/.bin:$$PATH $(RUN) python -m pytest tests/integration/test_store_promises.py tests/integration/test_other_stores.py

cluster: setup ## Run a Spark cluster on machines that are namespaces, kill three of them, and balance the books (as root).
	@if command -v go >/dev/null; then GOBIN=$(CURDIR)/build/bin go install github.com/versity/versitygw/cmd/versitygw@v1.8.0; fi
	@PATH=$(CURDIR)/build/bin:$$PATH $(RUN) python -m tests.acceptance.standalone $(if $(MESSAGES),--messages $(MESSAGES))

lint: setup ## Check style, format, types and dependencies.
	@$(RUN) ruff check
	@$(RUN) ruff format --check
	@$(RUN) python -m mypy
	@$(RUN) python -m deptry . --no-ansi

alerts: ## Ask promtool what each alert rule says to made-up series.
	@tools/alerts.sh

bench-s3a: setup ## Fetch Spark's file system for S3, 690 MB, with which `make bench` measures Spark on a far store, too.
	@tools/s3a.sh

bench: setup ## Measure the budgets side by side with the bare Delta source, and store the figures (those of a far store where Go is there, and of Spark on it after bench-s3a).
	@if command -v go >/dev/null; then GOBIN=$(CURDIR)/build/bin go install github.com/versity/versitygw/cmd/versitygw@v1.8.0; fi
	@if command -v go >/dev/null; then go build -C tests/benchmarks/far_store -o $(CURDIR)/build/bin/latency_proxy .; fi
	@PATH=$(CURDIR)/build/bin:$$PATH $(RUN) python -m tests.benchmarks

soak: setup ## Run the long forms: a hundred thousand simulated worlds, and hundreds of random kills on real Spark.
	@SIMULATION_SEEDS=$${SIMULATION_SEEDS:-100000} MODEL_PROGRAMS=$${MODEL_PROGRAMS:-5000} $(RUN) python -m pytest tests/simulation tests/model -n 2 --dist worksteal --timeout 0
	@FARM_KILLS=$${FARM_KILLS:-200} $(RUN) python -m pytest tests/integration/test_receiver_farm.py tests/acceptance/test_kills.py tests/acceptance/test_kills_of_instances.py tests/acceptance/test_kill_points.py

mutants: setup ## Plant each bug of the catalogue in a copy, and see whether the tests notice (SINCE=REV: twenty in what changed).
	@$(RUN) python -m tests.mutants $(if $(SINCE),--since $(SINCE) --most 20)

judge: setup ## Draw five bugs in the lines that have changed, and see whether the tests notice (SINCE=REV, otherwise in the last commit).
	@$(RUN) python -m tests.mutants --since $(or $(SINCE),HEAD~1) --drawn $(or $(DRAWN),5) $(if $(SEED),--seed $(SEED))

nightly: ## Run everything in its long form: all tests, the soak, the demos, and every planted bug.
	@$(MAKE) test LONG_FORMS=1
	@$(MAKE) spark VERSION=4.0
	@$(MAKE) spark VERSION=4.1
	@$(MAKE) spark VERSION=4.3
	@$(MAKE) soak
	@$(MAKE) demo DAILY=1
	@$(MAKE) demo-replication
	@$(MAKE) mutants

release-check: setup ## Build an sdist and a wheel, install both with each extra, use them there, and write build/release (sizes, times, bills of materials).
	@$(RUN) python -m pytest tests/release

rules: setup ## Write tests/RULES.md anew: every rule of a queue, and the tests that prove it.
	@$(RUN) python -m tests.rules

docs: setup ## Build the documentation's site into site/, and stop at the first thing that is wrong with it.
	@NO_MKDOCS_2_WARNING=1 $(RUN) python -m mkdocs build --strict

pictures: setup ## Draw the pictures of the documentation anew, in a Chromium that is there.
	@$(RUN) python -m tests.docs.pictures

readme: setup ## Write the generated parts of README and docs anew: tables of keys, options, errors, views, figures, verbs and values.
	@$(RUN) python -m tests.docs

clean: ## Remove .venv, caches and what builds and runs leave.
	@rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist site spark-warehouse
	@find . -name __pycache__ -prune -exec rm -rf {} +
