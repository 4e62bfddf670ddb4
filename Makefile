# What README's commands call. `make help` lists the targets.

CARGO  ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
TARGET := $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(TARGET)/release
BARE_METAL := x86_64-unknown-none
# The end-to-end tests need the built program, so they are not part of `unit`.
NOT_E2E := --workspace --exclude loam-tests
# What a step begins with, so that a long log can be read.
STEP = @printf '\n== %s (%s)\n' "$@" "$$(date +%T)"

# One step after the other, also under -j: they share the cores, and the end-to-end tests measure.
.NOTPARALLEL:

.PHONY: help build demo test setup compile lint fmt unit bare-metal deny sim-fuzz sim-soak e2e bench bench-compare bench-cluster bench-pages bench-latency bench-plans bench-btree bench-write-cache fuzz delays torture soak region-soak traces man install uninstall clean

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## the release build: loam, libloam_shim.so and libloam.so
	$(STEP)
	$(CARGO) build --release --locked -p loam-cli -p loam-shim -p loam

demo: build ## a real program at a quarter of its memory, with three lenders on this machine
	demo/run.sh $(RELEASE)/loam

# In the order in which a mistake is cheapest to find.
test: setup compile unit bare-metal deny e2e ## everything that must pass

setup:
	$(STEP)
	tests/setup.sh

lint: fmt ## formatting and lints
	$(STEP)
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --workspace --locked --features $(DELAYS) -- -D warnings

fmt:
	$(STEP)
	$(CARGO) fmt --all --check

# The last crate of each keeps one core alone busy for up to a minute and a half. They have folders of their own, so neither waits for the other. (Begun beside the lints, the release build was done long
# before the tests' last one.)
compile: ## lints and unit tests, and the release build beside them
	$(STEP)
	@mkdir -p $(TARGET); set -e; \
	$(MAKE) lint; \
	$(MAKE) build >$(TARGET)/build.log 2>&1 & build=$$!; \
	trap 'kill $$build 2>/dev/null || true' EXIT; \
	$(CARGO) test --locked $(NOT_E2E) --no-run; \
	$(CARGO) test --locked $(NOT_E2E) --lib --no-run; \
	wait $$build || { cat $(TARGET)/build.log >&2; exit 1; }

# The policy's tests and the simulator's compute, and so do the simulations of sim-fuzz; the others mostly wait. So they run beside each other, and those that wait come first.
COMPUTING := loam_core,loam_sim,loam_shim
RUNNER = --config "target.'cfg(unix)'.runner = ['$(abspath tests/runner.sh)', '$(1)', '$(COMPUTING)']"
unit: build ## unit and property tests, and the simulations of sim-fuzz beside them
	$(STEP)
	@set -e; \
	nice -n 19 $(MAKE) sim-fuzz >$(TARGET)/sim-fuzz.log 2>&1 & fuzz=$$!; \
	nice -n 10 $(CARGO) test --locked $(NOT_E2E) --lib $(call RUNNER,only) >$(TARGET)/computing.log 2>&1 & computing=$$!; \
	trap 'kill $$fuzz $$computing 2>/dev/null || true' EXIT; \
	$(CARGO) test --locked $(NOT_E2E) $(call RUNNER,but); \
	wait $$computing || { cat $(TARGET)/computing.log >&2; exit 1; }; \
	cat $(TARGET)/computing.log; \
	wait $$fuzz || { cat $(TARGET)/sim-fuzz.log >&2; exit 1; }; \
	cat $(TARGET)/sim-fuzz.log

bare-metal: ## the policy builds for a target without an operating system, which proves that it does no I/O
	$(STEP)
	@rustup target list --installed 2>/dev/null | grep -qx $(BARE_METAL) || rustup target add $(BARE_METAL) || \
	  { echo "loam: the $(BARE_METAL) target is missing and cannot be downloaded: rustup target add $(BARE_METAL), with a network" >&2; exit 1; }
	$(CARGO) check --locked -p loam-core -p loam-hand --target $(BARE_METAL)

# Advisories need the network and change from day to day: they are not part of a test that must give one answer.
deny: ## licences, sources and banned crates, if cargo-deny is installed
	$(STEP)
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny --locked check bans licenses sources; \
	else echo "cargo-deny is not installed: licences and sources were NOT checked (cargo install cargo-deny)"; fi

# Tests take turns by themselves (`place::alone`); those that mostly wait do so beside each other, and some two at a time (tests/e2e.sh).
e2e: build ## real programs and real faults, through the built program
	$(STEP)
	$(CARGO) build --locked $(NOT_E2E) --lib --examples
	LOAM_BIN=$(abspath $(RELEASE))/loam tests/e2e.sh

# Its own folder for what is compiled: panics unwind in it, and nothing of it may take the place of the other build's files.
PYTHON ?= python3
VENV := $(abspath $(TARGET))/python
PYTHON_BUILD := CARGO_TARGET_DIR=$(abspath $(TARGET))/python-build
.PHONY: python
python: build ## the Python package: lints, a virtual environment in target/python with it, its tests (needs PyPI)
	$(STEP)
	cd bindings/python && $(CARGO) fmt --check && $(PYTHON_BUILD) $(CARGO) clippy --locked -- -D warnings
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(PYTHON_BUILD) timeout 900 $(VENV)/bin/pip install --quiet --disable-pip-version-check './bindings/python[test]'
	cd bindings/python && LOAM_BIN=$(abspath $(RELEASE))/loam timeout 900 $(VENV)/bin/python -m pytest

SIM_SEEDS ?= 2000
sim-fuzz: build ## SIM_SEEDS seeds of each simulation that injects faults: borrowers and lenders, whole clusters
	$(STEP)
	$(RELEASE)/loam sim fuzz --seeds $(SIM_SEEDS)
	$(RELEASE)/loam sim fuzz --cluster --seeds $(SIM_SEEDS)

sim-soak: build ## a million seeds of each
	$(STEP)
	$(RELEASE)/loam sim fuzz --seeds 1000000
	$(RELEASE)/loam sim fuzz --cluster --seeds 1000000

bench: build ## remote faults and sequential reading against this machine's floor; what forks cost
	$(RELEASE)/loam bench fault --json $(TARGET)/bench-fault.json
	bench/forks.py --loam $(RELEASE)/loam

bench-compare: build ## Loam beside a swap file, zram and a mapped file (root)
	$(CARGO) build --release --locked -p loam-kernels
	bench/compare.py --loam $(RELEASE)/loam --out $(TARGET)/bench-compare.md

bench-cluster: build ## GMS beside N-chance, a lost lender, mounts, each on several machines (network namespaces; root)
	bench/placement.py --loam $(RELEASE)/loam
	bench/lost.py --loam $(RELEASE)/loam
	bench/mount.py --loam $(RELEASE)/loam

bench-pages: build ## page sizes that are found beside fixed ones, on nine kernels (two hours and more)
	cargo build --release --locked -p loam-kernels
	LOAM_BIN=$(RELEASE)/loam bench/pages.py

bench-latency: build ## page sizes that are found beside fixed ones, with lenders 50 us away each way (a proxy)
	cargo build --release --locked -p loam-kernels
	LOAM_BIN=$(RELEASE)/loam bench/latency.py

bench-plans: build ## what a fetch plan is worth to the kernels, on this machine and over a cable of 10 Gbit/s (network namespaces; root)
	cargo build --release --locked -p loam-kernels
	LOAM_BIN=$(RELEASE)/loam bench/plans.py

bench-btree: build ## the b-tree of regions-2010 in plain memory, a direct and a paged region, and over kernel swap (root)
	cargo build --release --locked -p loam --example btree
	bench/btree.py --loam $(RELEASE)/loam --btree $(RELEASE)/examples/btree --out $(TARGET)/bench-btree.md --svg $(TARGET)/bench-btree.svg

bench-write-cache: build ## what the write cache is worth on slow disks (blkio cgroups; root)
	bench/write_cache.py --loam $(RELEASE)/loam

FUZZ_SECONDS ?= 60
fuzz: ## the decoders against random bytes, FUZZ_SECONDS each (nightly toolchain and cargo-fuzz)
	@command -v cargo-fuzz >/dev/null || { echo "loam: cargo-fuzz is missing: cargo install cargo-fuzz" >&2; exit 1; }
	cd fuzz && for target in $$($(CARGO) +nightly fuzz list); do \
	  $(CARGO) +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; done

# A build of its own. What takes two threads that meet within a microsecond happens all the time in it; it is slow.
DELAYS := loam-agent/delays,loam-shim/delays
DELAYS_ROUNDS ?= 3
DELAYED := traps programs trees torture faults library parts redis region unprivileged
delays: setup ## real programs and faults where agent and hand stand still at random, DELAYS_ROUNDS times; stops at the first failure
	$(STEP)
	CARGO_TARGET_DIR=$(abspath $(TARGET))/delays $(CARGO) build --release --locked -p loam-cli -p loam-agent -p loam-shim --features $(DELAYS)
	$(CARGO) build --locked $(NOT_E2E) --lib --examples
	for round in $$(seq $(DELAYS_ROUNDS)); do echo "== round $$round of $(DELAYS_ROUNDS)"; \
	  LOAM_BIN=$(abspath $(TARGET))/delays/release/loam $(CARGO) test --locked -p loam-tests $(DELAYED:%=--test %) -- --test-threads=4 || exit 1; done

TORTURE_SEEDS ?= 100
torture: build ## TORTURE_SEEDS seeds of a program that does everything it may to its memory, with lenders and with a disk alone
	$(STEP)
	LOAM_BIN=$(abspath $(RELEASE))/loam TORTURE_SEEDS=$(TORTURE_SEEDS) $(CARGO) test --locked -p loam-tests --test torture

SOAK_ROUNDS ?= 20
soak: build sim-soak ## a million seeds of the simulation, then the end-to-end tests SOAK_ROUNDS times; stops at the first failure
	$(CARGO) build --locked $(NOT_E2E) --lib --examples
	$(CARGO) test --locked -p loam-node --test lender -- --ignored a_borrower_that_is_stopped
	for round in $$(seq $(SOAK_ROUNDS)); do echo "== round $$round of $(SOAK_ROUNDS)"; \
	  LOAM_BIN=$(abspath $(RELEASE))/loam tests/e2e.sh || exit 1; done

HEAP_OPERATIONS ?= 5000
region-soak: build ## minutes of eight threads that allocate, grow, free and fork on a region, every content checked; without forks under ASan, too
	LOAM_BIN=$(abspath $(RELEASE))/loam LOAM_HEAP_OPERATIONS=$(HEAP_OPERATIONS) \
	  $(CARGO) test --locked -p loam-tests --test region -- --nocapture threads_and_forks under_the_address_sanitizer

traces: build ## full-size traces for the simulator into target/traces (hours; installs what it needs as root)
	LOAM=$(abspath $(RELEASE))/loam bench/traces/record.sh full $(TARGET)/traces

man: build
	rm -rf $(TARGET)/man && $(RELEASE)/loam man $(TARGET)/man

install: build man ## into PREFIX (/usr/local)
	install -Dm755 $(RELEASE)/loam $(DESTDIR)$(PREFIX)/bin/loam
	install -Dm644 $(RELEASE)/libloam_shim.so $(DESTDIR)$(PREFIX)/lib/loam/libloam_shim.so
	install -s -Dm755 $(RELEASE)/libloam.so $(DESTDIR)$(PREFIX)/lib/libloam.so
	install -Dm644 crates/loam/include/loam.h $(DESTDIR)$(PREFIX)/include/loam.h
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	sed -e 's|@PREFIX@|$(PREFIX)|' -e "s|@VERSION@|$$($(RELEASE)/loam --version | cut -d' ' -f2)|" crates/loam/loam.pc.in \
	  > $(DESTDIR)$(PREFIX)/lib/pkgconfig/loam.pc
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m644 $(TARGET)/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	$(RELEASE)/loam completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/loam
	$(RELEASE)/loam completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_loam

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/loam $(DESTDIR)$(PREFIX)/share/man/man1/loam.1 $(DESTDIR)$(PREFIX)/share/man/man1/loam-*.1
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/loam $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_loam
	rm -f $(DESTDIR)$(PREFIX)/lib/libloam.so $(DESTDIR)$(PREFIX)/include/loam.h $(DESTDIR)$(PREFIX)/lib/pkgconfig/loam.pc
	rm -rf $(DESTDIR)$(PREFIX)/lib/loam

clean:
	$(CARGO) clean
