# tare: what does this layer cost?
#
#   make setup   install what building, testing and benching need (Debian packages)
#   make build   the program, optimised: target/release/tare
#   make filters nginx's filter module and the filter libraries: target/filters
#   make agent   the static program that runs inside places: target/agent/tare-agent
#   make run     a first look: sets up, builds, measures what a filter costs in nginx
#   make test    every test, after `setup`
#   make cluster a real Kubernetes on this machine, NODES=1 to 3; cluster-down ends it
#   make lint    formatting, clippy, house rules, licences
#   make report-pictures  the README's pictures, of the stored run RUN (default: last)
#   make bench   tare beside its peers on the same nginx, and the method against known truths;
#                ROUNDS=2 AA_RUNS=5 for a look
#   make fuzz    the parsers of HTTP, of agents' messages and of other tools' outputs under
#                libFuzzer; FUZZ_RUNS=10000000

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build

# What building and testing need, and what `make bench` measures and compares with.
BUILD_PACKAGES := build-essential cmake pkg-config
# What the filters of `make run` are built with, and the server they are in.
FILTER_PACKAGES := nginx nginx-dev clang lld wabt libluajit-5.1-dev
RUN_PACKAGES := $(BUILD_PACKAGES) $(FILTER_PACKAGES)
# What places are made with; runsc is built from its Go module where Go is there.
PLACE_PACKAGES := iproute2 util-linux kmod runc crun podman containernetworking-plugins iptables \
                  qemu-system-x86 openssh-client openssh-server
# What a Kubernetes on this machine is made of, beside what scripts/cluster/build builds.
CLUSTER_PACKAGES := build-essential busybox-static conntrack containerd containernetworking-plugins \
                    crun ebtables etcd-server ethtool iproute2 iptables nftables nginx openssl \
                    python3 runc socat util-linux
# Further servers that tests start.
SERVER_PACKAGES := apache2-bin caddy haproxy
# What tests drive: a browser for the reports, and tools whose outputs are imported.
BROWSER_PACKAGES := chromium chromium-driver fonts-dejavu-core
TOOL_PACKAGES := qperf wrk apache2-utils nghttp2-client iperf3
TEST_PACKAGES := $(RUN_PACKAGES) $(SERVER_PACKAGES) $(PLACE_PACKAGES) procps python3 $(BROWSER_PACKAGES) $(TOOL_PACKAGES)
FUZZ_PACKAGES := $(BUILD_PACKAGES) clang
BENCH_PACKAGES := $(BUILD_PACKAGES) python3 nginx $(TOOL_PACKAGES) openssl time sockperf linux-perf

ROUNDS ?= 10
AA_RUNS ?= 100
SIMULATED_RUNS ?= 10000
SIMULATED_ZOO ?= 200
SECONDS_EACH ?= 1
FUZZ_RUNS ?= 10000000
NODES ?= 1

.PHONY: build agent filters run setup setup-run setup-places setup-cluster setup-bench setup-fuzz test lint \
        cluster cluster-down report-pictures \
        bench bench-smoke fuzz fuzz-smoke clean

build: setup-run agent
	cargo build --release --locked -p tare
	@echo "built target/release/tare"

# Static: places have libraries of their own, or none.
HOST_TARGET = $(shell rustc -vV | sed -n 's/^host: //p')
agent: setup-run
	RUSTFLAGS="-C target-feature=+crt-static" cargo build --release --locked -p tare-agent \
	    --target $(HOST_TARGET) --target-dir target/agent-build
	install -D -s target/agent-build/$(HOST_TARGET)/release/tare-agent target/agent/tare-agent

filters: setup-run
	$(MAKE) --no-print-directory -C filters

run: build filters
	target/release/tare run experiments/nginx-filters.toml

setup: setup-run setup-places
	@scripts/install-packages $(TEST_PACKAGES)
	@scripts/install-peers

# What building and the experiment of `make run` need.
setup-run:
	@scripts/install-packages $(RUN_PACKAGES)

# What experiments about places need: container runtimes, virtual machines, gVisor.
setup-places:
	@scripts/install-packages $(PLACE_PACKAGES)
	@scripts/install-runsc

setup-cluster:
	@scripts/install-packages $(CLUSTER_PACKAGES)

cluster: setup-cluster
	@scripts/cluster/cluster up $(NODES)

cluster-down:
	@scripts/cluster/cluster down

setup-fuzz:
	@scripts/install-packages $(FUZZ_PACKAGES)

setup-bench:
	@scripts/install-packages $(BENCH_PACKAGES)

test: setup filters agent
	rm -f target/skips
	TARE_SKIPS=$(CURDIR)/target/skips cargo test --workspace --locked
	scripts/check-skips target/skips

lint: setup-run
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo fmt --manifest-path filters/Cargo.toml --all --check
	cargo clippy --manifest-path filters/Cargo.toml --target-dir target/filters-build --locked -- -D warnings
	cargo test --locked -q -p tare-tidy
	@if command -v cargo-deny >/dev/null; then cargo deny check; \
	 else echo "cargo-deny is not installed: licences, bans and sources were checked by tare-tidy"; fi

# Of a run that is in your store: RUN=12.
RUN ?= last
report-pictures: setup build
	target/release/tare report $(RUN) --html target/report.html
	TARE_PAGE=$(CURDIR)/target/report.html TARE_PICTURES=$(CURDIR)/docs/pictures \
	    cargo test --locked -p tare --test cli report_pictures -- --ignored --exact \
	    browser::report_pictures

bench: setup-bench build
	scripts/install-peers
	bench/run --rounds $(ROUNDS) --seconds $(SECONDS_EACH)
	bench/net --rounds $(ROUNDS) --seconds $(SECONDS_EACH)
	bench/report
	bench/method --aa-runs $(AA_RUNS)
	bench/steady --runs $(AA_RUNS)
	bench/zoo
	TARE_SIMULATED_RUNS=$(SIMULATED_RUNS) cargo test --release --locked -p tare-stats --test simulation -- --nocapture
	TARE_SIMULATED_ZOO=$(SIMULATED_ZOO) cargo test --release --locked -p tare-sim --test zoo -- --nocapture

# Runs every part of the bench once and briefly, with the peers that are installed: it must not rot.
bench-smoke: setup-bench build
	bench/run --rounds 1 --seconds 1 --smoke
	bench/net --smoke
	bench/report --smoke
	bench/method --smoke
	bench/steady --smoke
	bench/zoo --smoke

fuzz: setup-fuzz
	fuzz/run replies -runs=$(FUZZ_RUNS)
	fuzz/run messages -runs=$(FUZZ_RUNS)
	fuzz/run imports -runs=$(FUZZ_RUNS)

fuzz-smoke: setup-fuzz
	fuzz/run replies -runs=200000
	fuzz/run messages -runs=200000
	fuzz/run imports -runs=100000

clean:
	cargo clean
