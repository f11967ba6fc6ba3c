# The developer's manual: `make` shows it. One target is one step of CI.

.DEFAULT_GOAL := help
.PHONY: help demo model test simulate lint fmt fmt-check generate generate-check bench cluster image

help: ## Show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: cluster ## Play a rollout, a bad change and its repair on a real control plane (KEEP=1 leaves it running)
	@# One command for both, so that the dependencies are built once, and as `make test` builds them.
	@cargo build --bins --example demo
	@KEEP=$(KEEP) cargo run --quiet --example demo

test: cluster ## Unit, property and integration tests, the latter against a real control plane and database
	cargo test --workspace --lib --bins
	cargo test --workspace --doc
	cargo test --workspace --test '*'
	cargo test --test main -- --ignored --exact datasource::faults::memory_stays_bounded_over_many_rows
	$(MAKE) simulate

SEEDS ?= 5000
FROM ?= 0
simulate: ## The release loop and the gate against a fake cluster with faults, from a seed (SEEDS=5000 FROM=0); then the planted bugs
	cargo run --quiet --profile simulation -p lynqgate-simulation -- seeds --seeds $(SEEDS) --from $(FROM)
	cargo run --quiet --profile simulation -p lynqgate-simulation -- mutants

model: ## Check the ledger's rules in every state of a few small worlds (MUTANT=name tells one way to break them)
	cargo run --quiet --release -p lynqgate-model -- $(MUTANT)

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
	cargo bench

cluster: ## Build the control plane that the tests and the demo use (once; kept in a cache)
	@tests/cluster/build >/dev/null

image: ## Build the container image
	docker build -t lynqgate .
