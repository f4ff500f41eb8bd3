.DEFAULT_GOAL := help
.PHONY: help demo demo-erp test bench bench-inbox postgres

help: ## What there is to make
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

demo: postgres ## See the main job done on the fixtures, with a private Postgres
	cargo run --quiet --release --locked -- demo

demo-erp: postgres ## The same, landing in the tables of an example ERP by functions of its own
	cargo run --quiet --release --locked -- demo --erp

test: postgres ## Run all tests, with a private Postgres
	@scripts/sdks
	cargo test --locked

bench: postgres ## Measure against pgbench doing the same effects one transaction per event
	cargo bench --locked --bench settle

bench-inbox: postgres ## Measure the commands that find events, on two million rows
	cargo bench --locked --bench inbox

# The Postgres server programs; Wharf runs a server of its own with them. Nothing is installed where they are there.
postgres:
	@scripts/postgres-programs
