# The developer's manual: `make` shows it. One target is one step of CI.

.DEFAULT_GOAL := help
.PHONY: help check demo chaos plants model simulate simulate-coverage fuzz fuzz-plants fuzz-tools oracle test test-on-real-parts test-in-simulation prove lint fmt fmt-check generate generate-check bench bench-fleet bench-rollout bench-shards cluster image krew

help: ## Show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: cluster ## Play a rollout, a bad change and its repair on a real control plane (KEEP=1 leaves it running)
	@# One command for both, so that the dependencies are built once, and as `make test` builds them.
	@cargo build --bins --example demo
	@KEEP=$(KEEP) cargo run --quiet --example demo

# Built with the workspace, it is not built once more for itself alone, with fewer features of what it depends on.
CHAOS := $(or $(CARGO_TARGET_DIR),target)/debug/examples/chaos

chaos: cluster ## Faults from a SEED for DURATION seconds, and users who edit; an auditor judges (KEEP=1 leaves it after a failure)
	@cargo build --workspace --bins --example chaos
	@DURATION=$(DURATION) SEED=$(SEED) KEEP=$(KEEP) $(CHAOS)

plants: cluster ## Planted bugs that need real parts: the auditor must find each, and nothing where none is planted (or PLANT=name)
	@cargo build --workspace --bins --example chaos
	@PLANT=$(or $(PLANT),all) $(CHAOS)

# The simulation waits for nothing: it takes the processors' time that the others leave while they wait.
test: cluster oracle ## Unit, property and integration tests, simulation and 3 minutes of chaos, on a real control plane and real databases
	$(MAKE) --jobs=2 test-on-real-parts test-in-simulation

test-on-real-parts:
	cargo test --workspace --lib --bins
	cargo test --workspace --doc
	cargo test --workspace --test '*' -- --test-threads=4
	cargo test --workspace --test main -- --ignored --exact datasource::faults::mariadb::memory_stays_bounded_over_many_rows
	cargo test --workspace --test main -- --ignored --exact datasource::faults::postgresql::memory_stays_bounded_over_many_rows
	$(MAKE) chaos SEED=$(or $(SEED),1)

test-in-simulation:
	nice -n 19 $(MAKE) simulate COMMON=1

check: fmt-check lint ## Format, lints, unit tests and 200 seeds of the simulation: what to run after a change
	cargo test --quiet --workspace --lib --bins
	cargo run --quiet --profile simulation -p lynqgate-simulation -- seeds --seeds 200

fuzz-tools:
	@cargo +nightly fuzz --version >/dev/null 2>&1 || { echo "fuzzing needs: rustup toolchain install nightly && cargo install cargo-fuzz --locked" >&2; exit 1; }

fuzz: fuzz-tools ## Look for an admission request, a template, a JSONPath or a CEL expression on which lynqgate fails, for DURATION seconds each (300 if not given)
	for target in review expressions; do \
		mkdir -p target/fuzz/$$target/corpus target/fuzz/$$target/artifacts; \
		cargo +nightly fuzz run --fuzz-dir tests/fuzz --target-dir target/fuzz --sanitizer none $$target target/fuzz/$$target/corpus tests/fuzz/seeds/$$target -- \
			-artifact_prefix=target/fuzz/$$target/artifacts/ -dict=tests/fuzz/dictionaries/$$target.dict -max_len=4096 -timeout=10 -print_final_stats=1 \
			-max_total_time=$(or $(DURATION),300) || exit 1; \
	done

fuzz-plants: fuzz-tools ## Whether each fuzzer finds the bug that is planted for it, in DURATION seconds (120 if not given)
	for target in review expressions; do \
		found=target/fuzz/planted/$$target; \
		rm -rf $$found; mkdir -p $$found/corpus $$found/artifacts; \
		cargo +nightly fuzz run --fuzz-dir tests/fuzz --target-dir target/fuzz --sanitizer none --features planted $$target $$found/corpus tests/fuzz/seeds/$$target -- \
			-artifact_prefix=$$found/artifacts/ -dict=tests/fuzz/dictionaries/$$target.dict -max_len=4096 -timeout=10 \
			-max_total_time=$(or $(DURATION),120); \
		ls $$found/artifacts/crash-* || { echo "$$target does not find what is planted" >&2; exit 1; }; \
	done

oracle: ## Whether Go and sprig still give what the cases of the templates expect (the programs in the oracle directories write that), and the health checks of Argo CD agree with kstatus
	cd go-templates/tests/oracle/functions && go run . | cmp - ../../functions.golden.json
	cd go-templates/tests/oracle/language && go run . ../../language.json | cmp - ../../language.golden.json
	cd tests/templates/oracle && go run . | cmp - ../functions.golden.json
	cd tests/argocd && go run . health.json | cmp - health.golden.txt

prove: ## The long proofs: every state of the model, 50,000 seeds, the planted bugs, an hour each of faults and of each fuzzer (or DURATION seconds; SEED)
	$(MAKE) model
	$(MAKE) simulate SEEDS=50000
	$(MAKE) plants
	cargo test --workspace --test main -- --ignored --exact partition::tenants::a_window_of_fifty_tenants_breaks_one_pod_each_beside_a_maintenance
	cargo test --workspace --test main -- --ignored --exact partition::alerts::they_fire_for_the_stateful_set_that_waits_and_for_no_other
	cargo test --workspace --test main -- --ignored alerts::
	$(MAKE) chaos DURATION=$(or $(DURATION),3600)
	$(MAKE) fuzz DURATION=$(or $(DURATION),3600)
	$(MAKE) fuzz-plants

simulate: ## The operator's own loops against an API server in memory, with faults, from a seed (SEEDS=300 FROM=0); then the planted bugs (COMMON=1: all but the rare ones)
	cargo run --quiet --profile simulation -p lynqgate-simulation -- seeds --seeds $(or $(SEEDS),300) --from $(or $(FROM),0)
	cargo run --quiet --profile simulation -p lynqgate-simulation -- mutants $(if $(COMMON),--common)

# In the dev profile: what is optimised loses lines. Reported apart, because a report of one package leaves out all others.
simulate-coverage: ## Which lines of the loops and caches (src/controller, src/cluster) the simulation alone runs (SEEDS=60)
	@cargo llvm-cov --version >/dev/null 2>&1 || { echo "coverage needs: rustup component add llvm-tools && cargo install cargo-llvm-cov --locked" >&2; exit 1; }
	cargo llvm-cov run --quiet --no-report -p lynqgate-simulation -- seeds --seeds $(or $(SEEDS),60)
	cargo llvm-cov report --fail-under-lines 77 \
		--ignore-filename-regex '/src/(api|cli|datasource|decide|server)[./]|/src/(lib|main)\.rs|/(go-templates|tests|webhook-certs)/'

model: ## Check the ledger's rules in every state of a few small worlds (MUTANT=name tells one way to break them)
	cargo run --quiet --release -p lynqgate-model -- $(MUTANT)
	cargo run --quiet -p lynqgate-protocols

lint: ## Clippy, warnings denied
	cargo clippy --workspace --all-targets -- -D warnings

fmt: ## Format the code
	cargo fmt --all

fmt-check: ## Fail where the code is not formatted
	cargo fmt --all --check

generate: ## Write manifests/ from the code
	cargo run --quiet -- generate

generate-check: ## Fail where manifests/ is stale
	cargo run --quiet -- generate --check

bench: ## Measure the gate, rendering and the webhook, each beside a baseline
	cargo bench --bench decide --bench webhook

bench-rollout: cluster ## Roll 300 tenants through a window of 10, beside the shortest time that takes (N=1000: through one of 20)
	@cargo build --release --bins --example bench-rollout
	@N=$(N) cargo run --quiet --release --example bench-rollout

bench-fleet: cluster ## What fleets of 300 to 10,000 tenants cost: requests, processor, memory, time to the first release (N=300,1000 for these sizes alone; BYTES=5000 for larger objects, CHART=docs/fleet.svg for a chart)
	@cargo build --release --bins --example bench-fleet
	@N=$(N) BYTES=$(BYTES) CHART=$(CHART) cargo run --quiet --release --example bench-fleet

bench-shards: cluster ## How three replicas share a fleet of 3,000, and what happens when one of them dies (N=600 for that size)
	@cargo build --release --workspace --bins --example bench-shards
	@N=$(N) cargo run --quiet --release --example bench-shards

cluster: ## Build the control plane that the tests and the demo use (once; kept in a cache)
	@tests/cluster/build >/dev/null

image: ## Build the container image
	docker build -t lynqgate .

# krew calls machines as Go does.
KREW_OS = $(shell uname -s | tr '[:upper:]' '[:lower:]')
KREW_ARCH = $(shell uname -m | sed 's/^x86_64$$/amd64/; s/^aarch64$$/arm64/')
KREW_VERSION = v$(shell sed -n 's/^version = "\(.*\)"$$/\1/p' Cargo.toml)

krew: ## Pack the command line as a plugin of kubectl for this machine, in target/krew (VERSION=v0.1.0 must be that of Cargo.toml; URI=where the archive will be)
	@[ "$(or $(VERSION),$(KREW_VERSION))" = "$(KREW_VERSION)" ] || { echo "VERSION is $(VERSION), and Cargo.toml has $(KREW_VERSION)" >&2; exit 1; }
	cargo build --release --locked --bin lynqgate
	@set -e; target="$(or $(CARGO_TARGET_DIR),target)"; \
	mkdir -p "$$target/krew"; \
	archive="$$(cd "$$target/krew" && pwd)/lynqgate-$(KREW_OS)-$(KREW_ARCH).tar.gz"; \
	tar -czf "$$archive" -C "$$target/release" lynqgate -C "$(CURDIR)" LICENSE; \
	sha256=$$( { sha256sum "$$archive" 2>/dev/null || shasum -a 256 "$$archive"; } | cut -d ' ' -f 1); \
	uri=$$(printf '%s' "$(or $(URI),file://$$archive)" | sed 's/[&|\\]/\\&/g'); \
	sed -e "1d; s|@VERSION@|$(KREW_VERSION)|; s|@OS@|$(KREW_OS)|; s|@ARCH@|$(KREW_ARCH)|; s|@URI@|$$uri|; s|@SHA256@|$$sha256|" \
		manifests/krew/lynqgate.yaml > "$$target/krew/lynqgate.yaml"; \
	echo "kubectl krew install --manifest=$$target/krew/lynqgate.yaml --archive=$$archive"
