# `make demo` runs a demonstration, `make test` runs all tests, `make help` lists all targets.
#
# Every step is an ordinary cargo command and can be run separately. scripts/ensure-rust and scripts/ensure-debian
# install the required programs. Without the rights to install them, the scripts list the missing programs.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

# rustup installs cargo here. A new shell may not have this folder in PATH yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

# The tests apply to the versions in the lock file, so no step may change it.
CARGO := cargo
LOCKED := --locked
STEP := scripts/step
EDGEWARD := $(or $(CARGO_TARGET_DIR),target)/release/edgeward
# The debug build, which the tests also use, because it builds quickly.
PROGRAM := $(abspath $(or $(CARGO_TARGET_DIR),target)/debug/edgeward)

# Crates without I/O. They must compile for wasm32, which has no operating system.
PURE := types acme policy semantics h3 balance fleet overload s3 filter trace analysis sim live shadow report dedup capture migrate

# The seed of the property tests. It is constant, so that a failure can be repeated. SEED=$$RANDOM tries new cases.
SEED ?= 20261121
# The tests of one program that run at the same time. More are faster, because most tests of servers wait, but then two
# tests of memory exceed their limits.
TEST_THREADS ?= $(shell nproc)
DEMO_ARGS ?=
BENCH_ARGS ?=

# Prints one screen: benchmarks and rare checks have only their names. bench/README.md describes the benchmarks.
.PHONY: help
help: ## list the targets; make help ALL=1 describes all of them
	@awk -v all="$(ALL)" -F ':.*## ' '/^[a-z0-9-]+:.*## / { \
		if (!all && $$1 ~ /^(bench-|cache-tests|h2spec|fuzz|check-|deny|advisories|python-|test-(cassandra|analyze|grpc))/) more = more " " $$1; \
		else printf "  make %-12s %s\n", $$1, $$2 } \
		END { if (more) print "benchmarks and rare checks:" more | "fold -s -w 100" }' $(MAKEFILE_LIST)

# Without the default features, whose databases, C libraries and crates the demo does not run.
.PHONY: demo
demo: rust compiler ## LRU, AdaptSize, GDSF and density over real HTTP on loopback, with a report page (DEMO_ARGS=…)
	$(CARGO) run $(LOCKED) --profile demo --package edgeward-cli --no-default-features -- demo $(DEMO_ARGS)

.PHONY: demo-fleet
demo-fleet: rust compiler ## three nodes that act as one cache on loopback, one of which is killed
	$(CARGO) build $(LOCKED) --profile demo --package edgeward-cli --no-default-features --features fleet
	@scripts/demo-fleet $(abspath $(or $(CARGO_TARGET_DIR),target)/demo/edgeward)

.PHONY: demo-filter
demo-filter: rust compiler ## lookups that are mostly 404, with and without an id filter (DEMO_ARGS=…)
	$(CARGO) run $(LOCKED) --profile demo --package edgeward-cli --no-default-features --features filter \
		-- demo-filter $(DEMO_ARGS)

.PHONY: demo-link
demo-link: rust compiler ## two versions of packages over a WAN path: plain, gzip, link (DEMO_ARGS="--mbps 50 …")
	@scripts/ensure-debian demo-link || true
	python3 bench/link/corpus.py bench/scratch/link/corpus --few
	$(CARGO) build $(LOCKED) --release --quiet --package edgeward-cli
	$(CARGO) run $(LOCKED) --release --quiet --package edgeward-link --example demo_link -- bench/scratch/link/corpus $(DEMO_ARGS)

# The plan adaptsize-vs-peers also runs with each trace (*.tr.zst) of this folder.
LAB_TRACES ?=
LAB := $(EDGEWARD) lab
LAB_TRACE_ARGS ?=

.PHONY: lab
lab: build ## the plans of docs/how-to/lab.md: edgeward, nginx and Varnish, with report pages (LAB_TRACES=FOLDER)
	@scripts/ensure-debian lab
	@failed=0; \
	for plan in second-hit adaptsize-vs-peers latency; do \
		$(STEP) "lab $$plan" $(LAB) lab/$$plan.toml || failed=1; \
	done; \
	if [ -n "$(LAB_TRACES)" ]; then \
		for trace in "$(LAB_TRACES)"/*.tr.zst; do \
			if [ ! -e "$$trace" ]; then echo "no traces in $(LAB_TRACES): skipped"; continue; fi; \
			name=$$(basename "$$trace" .tr.zst); \
			$(STEP) "lab adaptsize-vs-peers, $$name" $(LAB) lab/adaptsize-vs-peers.toml --trace "$$trace" \
				--report "lab-report/adaptsize-vs-peers-$$name.html" $(LAB_TRACE_ARGS) || failed=1; \
		done; \
	fi; \
	exit $$failed

# The result is committed, so that a build of the edge needs no npm. A test compares the hash of the sources.
PAGE := crates/edge/proxy/page
.PHONY: page
page: ## the page of the admin server, from TypeScript into crates/edge/proxy/page/dist (needs npm and the network)
	@cd $(PAGE) && npm ci --no-audit --no-fund --silent && npx tsc --noEmit && node build.mjs

.PHONY: build
build: rust compiler ## the release binary, target/release/edgeward
	$(CARGO) build $(LOCKED) --release --package edgeward-cli

.PHONY: dist
dist: rust compiler ## the binary for packages, with LTO and stripped: target/dist/edgeward
	$(CARGO) build $(LOCKED) --profile dist --package edgeward-cli

# The tools of packages, beside the compilers.
.PHONY: packages package-static test-packages test-chart chart-tools
packages: rust compiler ## Debian packages, images, Helm chart, bill of materials, checksums: target/packages
	@scripts/ensure-debian packages
	@scripts/ensure-cargo-tool cargo-cyclonedx
	@packaging/build

package-static: rust compiler ## a program that needs no C library, for each Linux of amd64: target/packages
	@scripts/ensure-debian packages package-static
	@packaging/build tarball

# Not a part of `make test`: it installs two Debian systems. `make test` tests the Debian package without a system.
test-packages: program chart-tools ## packages of the debug binary in Debian 12 and 13, the image without root, the chart
	@scripts/ensure-debian packages test-packages
	@PATH="$(CHART_VENV)/bin:$$PATH" PROGRAM="$(PROGRAM)" $(STEP) "packages on new systems" packaging/test systems

# `make test` skips this target, because Go builds Helm for some minutes.
CHART_VENV := $(abspath $(or $(CARGO_TARGET_DIR),target))/chart-venv

test-chart: program chart-tools ## the Helm chart: lint, resources (schemas of Kubernetes), its configuration
	@EDGEWARD_REQUIRE_TOOLS=1 PATH="$(CHART_VENV)/bin:$$PATH" PROGRAM="$(PROGRAM)" $(STEP) "Helm chart" packaging/test chart

chart-tools:
	@scripts/ensure-debian python
	@scripts/ensure-helm
	@scripts/ensure-python-packages $(CHART_VENV) packaging/helm/requirements.txt

.PHONY: fmt
fmt: rust ## format all code
	$(CARGO) fmt --all

.PHONY: check
check: rust compiler ## format, repository rules, lints, pure crates on wasm32: run it before a commit
	@$(STEP) "format" $(CARGO) fmt --all --check
	@$(STEP) "house rules (cargo xtask tidy)" $(CARGO) run $(LOCKED) --quiet --package xtask -- tidy
	@$(STEP) "lints (clippy, warnings denied)" \
		$(CARGO) clippy $(LOCKED) --workspace --all-targets --quiet -- --deny warnings
	@$(STEP) "ring 0 on wasm32-unknown-unknown" $(CARGO) check $(LOCKED) --quiet \
		--target wasm32-unknown-unknown $(addprefix --package edgeward-,$(PURE))

# Not a part of `make check`, because it compiles the binary with other features than the lints of the workspace.
.PHONY: check-small
check-small: rust compiler ## lints of the binary without its default features, as `make demo` builds it
	@$(STEP) "lints of the binary without default features (clippy, warnings denied)" \
		$(CARGO) clippy $(LOCKED) --package edgeward-cli --no-default-features --all-targets --quiet -- \
		--deny warnings

# The lints have compiled what rustdoc reads of each crate. Cargo uses it again if compiler, its arguments and the features
# are the same: `--examples` adds those of tests.
.PHONY: docs
docs: rust compiler ## the API documentation; warnings are errors
	@RUSTDOCFLAGS="--deny warnings" \
		RUSTC_WORKSPACE_WRAPPER="$$(rustc --print sysroot)/bin/clippy-driver" \
		CLIPPY_ARGS="--deny__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__" \
		$(STEP) "API documentation (rustdoc, warnings denied)" \
		$(CARGO) doc $(LOCKED) --workspace --lib --bins --examples --no-deps --document-private-items --quiet

.PHONY: reference
reference: rust compiler ## rewrites the generated pages: settings, alerts, metrics, malformed messages; the dashboard
	$(CARGO) run $(LOCKED) --quiet --package edgeward-cli -- check-config --reference > docs/reference/configuration.md.new
	@mv docs/reference/configuration.md.new docs/reference/configuration.md
	$(CARGO) run $(LOCKED) --quiet --package edgeward-cli -- generate alerts > packaging/monitoring/alerts.yml
	$(CARGO) run $(LOCKED) --quiet --package edgeward-cli -- generate alerts --reference > docs/reference/alerts.md
	$(CARGO) run $(LOCKED) --quiet --package edgeward-cli -- generate dashboard > packaging/monitoring/dashboard.json
	@EDGEWARD_WRITE_REFERENCE=1 $(CARGO) test $(LOCKED) --quiet --package edgeward-cli --test whole_cli the_reference_of_metrics
	@EDGEWARD_WRITE_REFERENCE=1 $(CARGO) test $(LOCKED) --quiet --package edgeward-proxy --test whole the_reference_of_malformed
	@EDGEWARD_WRITE_REFERENCE=1 $(CARGO) test $(LOCKED) --quiet --package edgeward-migrate --test translate the_table_of

.PHONY: docs-site
docs-site: rust compiler ## the documentation as a searchable site with checked links: target/docs-site/index.html
	@scripts/ensure-cargo-tool mdbook
	@PATH="$(abspath target/tools/bin):$$PATH" $(STEP) "documentation as a site (mdBook)" \
		$(CARGO) run $(LOCKED) --quiet --package xtask -- docs-site

.PHONY: deny advisories
deny: rust compiler ## rules about dependencies (deny.toml): licences, two versions of one crate, registries
	@scripts/ensure-cargo-tool cargo-deny
	@PATH="$(abspath target/tools/bin):$$PATH" $(STEP) "dependencies (cargo-deny)" \
		$(CARGO) deny $(LOCKED) check bans licenses sources

# Not a part of `make test`: it needs the RustSec database from the network, and a new advisory is no fault of a change.
advisories: rust compiler ## known faults of the dependencies (RustSec)
	@scripts/ensure-cargo-tool cargo-deny
	@PATH="$(abspath target/tools/bin):$$PATH" $(CARGO) deny $(LOCKED) check advisories

.PHONY: test
test: tools check check-small deny docs docs-site ## everything CI runs
	@EDGEWARD_REQUIRE_TOOLS=1 PROPTEST_RNG_SEED=$(SEED) RUST_TEST_THREADS=$(TEST_THREADS) \
		$(STEP) "tests (unit, integration, documentation)" \
		$(CARGO) test $(LOCKED) --workspace --no-fail-fast
	@SHUTTLE_RANDOM_SEED=$(SEED) $(STEP) "model of the cache's tiers (shuttle)" \
		$(CARGO) test $(LOCKED) --package edgeward-store --features shuttle --lib model
	@scripts/ensure-debian check-packages
	@EDGEWARD_REQUIRE_TOOLS=1 PROGRAM="$(PROGRAM)" $(STEP) "Debian package" packaging/test
	@EDGEWARD_REQUIRE_TOOLS=1 $(MAKE) test-client-js test-client-go BUILT=1
	@if $(MAKE) h3-venv; then $(MAKE) test-h3 BUILT=1; \
		else echo "== HTTP/3 by aioquic: skipped, because aioquic could not be installed (see above)"; fi
	@if $(MAKE) python-venv; then $(MAKE) test-python BUILT=1; \
		else echo "== Python package: skipped, because the packages of its tests could not be installed (see above)"; fi

# Tests the clients in other languages with the golden files of vectors/ and a publisher on loopback.
.PHONY: test-clients test-client-js test-client-go test-client-python test-client-java program
test-clients: test-client-js test-client-go test-client-python test-client-java ## the clients in other languages

# Builds the binary for the tests of the clients. `make test` sets BUILT, because it has already built the binary, and a
# build with other features would compile parts again.
program: rust compiler
ifndef BUILT
	@$(CARGO) build $(LOCKED) --quiet --package edgeward-cli
endif

# LIVES is the number of random test scripts; each client executes them step by step. FIRST is the first seed. To run
# more and other scripts: make test-clients LIVES=300 FIRST=$$RANDOM
LIVES ?= 40
FIRST ?= 0
LIVES_FILE := $(abspath $(or $(CARGO_TARGET_DIR),target))/filter-lives.jsonl

.PHONY: lives
lives: rust compiler
	@$(CARGO) run $(LOCKED) --quiet --package xtask -- lives --lives $(LIVES) --first $(FIRST) --out $(LIVES_FILE)

test-client-js: program lives
	@scripts/ensure-debian client-js
	@cd clients/js && EDGEWARD="$(PROGRAM)" SEED=$(SEED) LIVES="$(LIVES_FILE)" $(abspath $(STEP)) "JavaScript client (node --test)" \
		node --test --test-reporter=spec test/

test-client-go: program lives
	@scripts/ensure-debian client-go
	@cd clients/go && EDGEWARD="$(PROGRAM)" SEED=$(SEED) LIVES="$(LIVES_FILE)" $(abspath $(STEP)) "Go client (go vet, go test)" \
		sh -c 'go vet ./... && go test -count=1 ./...'

# `make test` skips this target, because it compiles half of the workspace again, with optimisations, for some minutes.
test-client-python: program lives
	@scripts/ensure-debian build client-python
	@cd clients/python && EDGEWARD="$(PROGRAM)" SEED=$(SEED) LIVES="$(LIVES_FILE)" $(abspath $(STEP)) "Python client (pip install, unittest)" \
		sh -c 'cargo clippy $(LOCKED) --release --quiet -- --deny warnings && python3 -m venv target/venv && \
		target/venv/bin/pip install --quiet --disable-pip-version-check --force-reinstall . && \
		target/venv/bin/python -m unittest discover -s tests'

# Maven downloads Guava, JUnit and its own plugins.
test-client-java: program lives
	@scripts/ensure-debian client-java
	@cd clients/java && EDGEWARD="$(PROGRAM)" SEED=$(SEED) LIVES="$(LIVES_FILE)" $(abspath $(STEP)) "Java client (mvn test)" \
		mvn --batch-mode --quiet test

# Tests HTTP/3 with aioquic, a client that shares no code with the edge.
H3_TESTS := crates/edge/proxy/tests/aioquic
H3_VENV := $(abspath $(or $(CARGO_TARGET_DIR),target)/h3-venv)

.PHONY: test-h3 h3-venv
h3-venv:
	@scripts/ensure-debian python
	@scripts/ensure-python-packages $(H3_VENV) $(H3_TESTS)/requirements.txt

test-h3: program h3-venv ## errors of QUIC, TLS, HTTP/3 and QPACK, and requests, by the Python client aioquic
	@cd $(H3_TESTS) && EDGEWARD="$(PROGRAM)" PYTHONDONTWRITEBYTECODE=1 $(abspath $(STEP)) \
		"HTTP/3 by aioquic (unittest)" $(H3_VENV)/bin/python -m unittest

# The Python package edgeward-sim. pip installs maturin and what the tests need in an environment of their own.
PYTHON_VENV := $(abspath $(or $(CARGO_TARGET_DIR),target)/python-venv)
PYTHON_WHEELS := $(abspath $(or $(CARGO_TARGET_DIR),target)/wheels)
MATURIN := $(PYTHON_VENV)/bin/maturin build $(LOCKED) --quiet --manifest-path python/Cargo.toml

.PHONY: python test-python python-notebook python-venv python-installed
python: rust compiler python-venv ## the Python package edgeward-sim as a wheel, for Python 3.11 and later: target/wheels
	$(MATURIN) --release --out $(PYTHON_WHEELS)
	@ls $(PYTHON_WHEELS)/edgeward_sim-*.whl

python-venv:
	@scripts/ensure-debian python
	@scripts/ensure-python-packages $(PYTHON_VENV) python/tests/requirements.txt

# The debug build is fast enough for tests, and most of it exists already.
python-installed: rust compiler python-venv
	@rm -rf $(PYTHON_WHEELS)/debug
	@$(STEP) "Python package (maturin, pip)" sh -c '$(MATURIN) --profile dev --out $(PYTHON_WHEELS)/debug && \
		$(PYTHON_VENV)/bin/pip install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall \
		$(PYTHON_WHEELS)/debug/*.whl'

test-python: program python-installed ## the Python package: types (mypy), then tests (pytest) that also run the notebook
	@cd python && $(abspath $(STEP)) "types of the Python package (mypy, stubtest)" sh -c \
		'$(PYTHON_VENV)/bin/mypy --cache-dir $(PYTHON_VENV)/mypy-cache -p edgeward_sim && \
		$(PYTHON_VENV)/bin/stubtest edgeward_sim._native --mypy-config-file pyproject.toml'
	@cd python && EDGEWARD="$(PROGRAM)" $(abspath $(STEP)) "tests of the Python package (pytest)" \
		$(PYTHON_VENV)/bin/pytest -q -p no:cacheprovider

python-notebook: python-installed ## runs the notebook of figures: target/python-notebook has it with its figures as PNG
	$(PYTHON_VENV)/bin/python python/notebooks/execute.py python/notebooks/figures.ipynb $(dir $(PYTHON_VENV))python-notebook

# `make test` skips this target, because it needs a JDK, Maven, 2 GB of memory and some minutes.
CASSANDRA_IDS ?= 620000

.PHONY: test-cassandra
test-cassandra: check-cassandra ## scans ids from a Cassandra node, with scan and build times (CASSANDRA_IDS=10000000)
	@scripts/ensure-debian cassandra
	EDGEWARD_CASSANDRA_IDS=$(CASSANDRA_IDS) $(CARGO) test $(LOCKED) --release --package edgeward-cli \
		--package edgeward-idsync --features edgeward-cli/cassandra --test cassandra -- --nocapture

# `make test` skips this target, because it downloads half a gigabyte: three engines with pip, and a JVM for Spark.
SQL_VENV := $(abspath target/sql-venv)

.PHONY: test-analyze-sql
test-analyze-sql: rust compiler ## the queries of sql/ in DataFusion, DuckDB and Spark against `analyze`
	@scripts/ensure-debian analyze-sql
	$(CARGO) build $(LOCKED) --quiet --package edgeward-cli --features parquet
	@test -x $(SQL_VENV)/bin/python || python3 -m venv $(SQL_VENV)
	@$(STEP) "engines (pip)" $(SQL_VENV)/bin/pip install --quiet --disable-pip-version-check \
		datafusion duckdb pyarrow pyspark pytz
	@$(STEP) "SQL over Parquet (DataFusion, DuckDB, Spark)" $(SQL_VENV)/bin/python sql/test_sql.py "$(PROGRAM)" $(SQL_LOGS)

# Not a part of `make check`, because the Cassandra driver takes a minute to compile.
.PHONY: check-cassandra
check-cassandra: rust compiler ## lints of the Cassandra source, which `make check` skips
	@$(STEP) "lints with the feature cassandra (clippy, warnings denied)" \
		$(CARGO) clippy $(LOCKED) --package edgeward-cli --package edgeward-idsync \
		--features edgeward-cli/cassandra --all-targets --quiet -- --deny warnings

.PHONY: fuzz-smoke
fuzz-smoke: rust compiler ## ten seconds of each fuzz target (needs nightly and cargo-fuzz; FUZZ_SECONDS=…)
	@scripts/fuzz-smoke

# Each folder of bench/ with a plan.toml is a benchmark. A line "# needs: PURPOSE" of the plan names what
# scripts/ensure-debian installs. Further arguments of `edgeward lab`: BENCH_ARGS="--only TEXT --set NAME=VALUE --rounds N".
PLAN := bench/$(NAME)/plan.toml

.PHONY: bench
ifdef NAME
bench: build ## a benchmark: make bench NAME=hits; without NAME lists them
	@test -f $(PLAN) || { echo "error: there is no $(PLAN)"; echo "  hint: make bench lists the benchmarks"; exit 2; }
	@scripts/ensure-debian bench $$(sed -n 's/^# needs: //p' $(PLAN))
	$(EDGEWARD) lab $(PLAN) $(BENCH_ARGS)
else
bench:
	@for plan in bench/*/plan.toml; do \
		printf '  make bench NAME=%-12s %s\n' "$$(basename "$$(dirname "$$plan")")" \
			"$$(sed -n 's/^title = "\(.*\)"/\1/p' "$$plan")"; done
endif

# `make test` skips this target, because it fetches grpc-go from the network. The same calls by hand-written clients are in
# crates/edge/proxy/tests/whole/streams.
.PHONY: test-grpc
test-grpc: program ## gRPC calls of grpc-go through an edge
	@scripts/ensure-debian client-go
	@cd crates/edge/proxy/tests/grpc-go && EDGEWARD="$(PROGRAM)" go test -count=1 ./...

.PHONY: h2spec
h2spec: rust compiler ## the HTTP/2 conformance suite h2spec, over TLS and in cleartext (H2SPEC=PROGRAM)
	@H2SPEC="$${H2SPEC:-h2spec}"; command -v "$$H2SPEC" >/dev/null || { \
		echo "error: the program $$H2SPEC is missing"; \
		echo "  hint: go install github.com/summerwind/h2spec/cmd/h2spec@latest, then make h2spec H2SPEC=\$$HOME/go/bin/h2spec"; \
		exit 2; }
	$(CARGO) test $(LOCKED) --package edgeward-proxy --test h2spec -- --ignored --nocapture --test-threads 1

# `make test` skips this target, because cache-tests comes from the network.
.PHONY: cache-tests
cache-tests: program h3-venv ## the suite cache-tests by HTTP/1.1, HTTP/2 and HTTP/3 (CACHE_TESTS=FOLDER)
	@test -d "$(CACHE_TESTS)/node_modules/undici" || { \
		echo "error: CACHE_TESTS names no folder with cache-tests and its packages"; \
		echo "  hint: git clone https://github.com/http-tests/cache-tests && cd cache-tests && npm install"; exit 2; }
	@cd $(H3_TESTS) && EDGEWARD="$(PROGRAM)" PYTHONDONTWRITEBYTECODE=1 \
		$(H3_VENV)/bin/python cache_tests.py "$(abspath $(CACHE_TESTS))"

.PHONY: bench-ram
bench-ram: rust compiler ## the RAM tier beside moka and quick_cache, with 1 and 2 threads (BENCH_ARGS="--json")
	CARGO_TARGET_DIR="$(abspath $(or $(CARGO_TARGET_DIR),target))/bench-ram" \
		$(CARGO) run $(LOCKED) --release --quiet --manifest-path bench/ram/Cargo.toml -- $(BENCH_ARGS)

.PHONY: bench-index
bench-index: rust compiler ## the disk cache's index with 100 million objects (BENCH_ARGS="OBJECTS GIB FOLDER")
	$(CARGO) run $(LOCKED) --release --quiet --package edgeward-store --example bench_index -- $(BENCH_ARGS)

.PHONY: bench-link-index
bench-link-index: rust compiler ## the link's index for stores up to 10 TB: 8 GB of memory (BENCH_ARGS="64": only 64 KiB)
	$(CARGO) run $(LOCKED) --release --quiet --package edgeward-chunk-store --example bench_link_index -- $(BENCH_ARGS)

.PHONY: rust compiler tools
rust:
	@scripts/ensure-rust
compiler:
	@scripts/ensure-debian build
tools: rust
	@scripts/ensure-debian build test client-js client-go
	@scripts/ensure-pebble
