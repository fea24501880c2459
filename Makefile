# Every command a person or CI runs. `make help` lists them.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Tools are pinned in their own module, so that go.mod stays free of them.
TOOL := go tool -modfile=.ci/tools/go.mod

# Settings, all of which can be given on the command line.
ARGS     ?=
PKG      ?= ./...
FUZZTIME ?= 10000x
COUNT    ?= 10
SEEDS    ?= 20
FIRST    ?= 1
KILLS    ?= 20
ALL      ?= 10
SEED     ?= 1
MINUTES  ?= 3
BENCH    ?= .
OLD      ?= bin/bench-old.txt
NEW      ?= bin/bench.txt
BENCHTIME ?= 100ms
ROUNDS   ?= 3
SCALE    ?= 1
OUT      ?= bin/bench-compare.md

# The stages of `make ci`, in order. A target that has come to exist is added here.
CI_STAGES := test vet lint planted sim race fuzz ci-kills ci-differential ci-conformance ci-chaos
# Packages that only drive processes of their own: the race detector would watch nothing but the driver.
NORACE := /testenv/(bench|chaos|jepsen|process)(/|$$)

# unbuilt fails plainly: a target that does nothing must not look like one that passed.
unbuilt = @echo "make $@: not built yet: $(1)" >&2; exit 2
# need is for a target whose code is a package of this tree.
need = @test -d $(1) || { echo "make $@: not built yet: $(1) does not exist" >&2; exit 2; }

.PHONY: help run cluster demo test race lint fmt vet arch ci fuzz bench benchcmp bench-compare bench-smoke \
	conformance differential chaos kills chaos-power crash sim planted jepsen-compare security console-test vuln clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' Makefile

## Run it.

run: bin/holdfast ## one node on port 4222, data in ./data (ARGS="--listen …")
	exec bin/holdfast serve $(ARGS)

cluster: bin/holdfast ## three nodes that find each other by gossip, data in ./data/cluster; Ctrl-C stops them
	exec bin/holdfast cluster local $(ARGS)

demo: bin/holdfast ## three nodes under load, two leaders killed with SIGKILL; counts what was lost (about a minute)
	exec bin/holdfast demo $(ARGS)

.PHONY: bin/holdfast
bin/holdfast:
	go build -o $@ ./cmd/holdfast

## Test it.

test: ## all tests, shuffled (PKG=./storage/...)
	go test -shuffle=on -timeout 10m -count=1 $(PKG)
	$(if $(filter ./...,$(PKG)),cd testenv/lazyfs && go vet ./... && go test -shuffle=on -timeout 10m -count=1 ./...)

race: ## the tests under the race detector, but for those that only drive processes
	.ci/race $$(go list $(PKG) | grep -vE '$(NORACE)')

vet: ## go vet
	go vet $(PKG)

lint: ## golangci-lint, as .golangci.yml says
	$(TOOL) golangci-lint config verify
	$(TOOL) golangci-lint run --allow-parallel-runners $(PKG)

fmt: ## format the tree (gofumpt, import order)
	$(TOOL) golangci-lint fmt

arch: ## imports, file sizes, package comments, README links
	go test -count=1 -run '^TestArch' ./testenv

fuzz: ## every fuzz target for FUZZTIME (ONLY=regexp)
	@FUZZTIME=$(FUZZTIME) .ci/fuzz

crash: ## crash clones after every step of log, state, snapshot and restore
	go test -count=1 -timeout 15m -run 'Crash|Install|Recover' ./storage/seglog ./storage ./replication

sim: ## clusters in virtual time (SEEDS=500, FIRST=1; SEED=n replays one)
	SEEDS=$(SEEDS) FIRST=$(FIRST) go test -count=1 -timeout 90m -run '^TestSim$$' ./replication

planted: ## builds with a planted fault must be caught
	go test -count=1 -tags planted_nosync -run '^TestPlanted' ./storage/seglog
	go test -count=1 -tags planted_noflush -run '^TestPlanted' ./storage
	go test -count=1 -tags planted_nofence -run '^TestPlanted' ./replication
	go test -count=1 -tags planted_belowmark -run '^TestPlanted' ./replication
	go test -count=1 -tags planted_earlycut -run '^TestPlanted' ./replication
	go test -count=1 -tags planted_earlyack -run '^TestPlanted' ./replication ./ingress/plan
	go test -count=1 -tags planted_nolease -run '^TestPlanted' ./replication
	go test -count=1 -tags planted_nosync -timeout 5m -run '^TestPlanted' ./testenv/chaos

chaos: ## real processes under every kind of fault, histories judged (SEED= MINUTES= ARGS="--nemesis kill,part")
	go run ./testenv/jepsen/cmd/jepsen --system holdfast --seed $(SEED) --minutes $(MINUTES) $(ARGS)

kills: ## the same, kills only: KILLS of the leader, ALL of everybody
	KILLS=$(KILLS) ALL=$(ALL) go test -count=1 -v -timeout 80m -run '^TestNothingAckedIsLostByKills$$' ./testenv/chaos

chaos-power: ## the same to a build in which SIGKILL is a power cut: what was not synced is lost (KILLS= ALL=)
	KILLS=$(KILLS) ALL=$(ALL) go test -count=1 -v -timeout 80m -run '^TestNothingAckedIsLostByPowerCuts$$' ./testenv/chaos

conformance: ## nats.go's suites against Holdfast, by testenv/conformance/expected.tsv (CORE=1, ARGS="-run X -jobs 4")
	cd testenv/conformance && go vet ./... && go test -count=1 ./... && \
	  go run ./cmd/conformance $(if $(CORE),-core) $(ARGS)

differential: ## the same calls to Holdfast and to JetStream, answers compared (SEEDS=20, ARGS="-first 7 -v")
	go run ./testenv/differential/cmd/differential -seeds $(SEEDS) $(ARGS)

jepsen-compare: ## the same faults to Holdfast, JetStream and JetStream with sync_interval always; a table (SEED= MINUTES=)
	go run ./testenv/jepsen/cmd/jepsen --system holdfast,default,always --disk lazy-names --seed $(SEED) --minutes $(MINUTES) $(ARGS)

security: ## what a stranger on the network can and cannot do
	$(call unbuilt,the security tests)

console-test: ## the console in a real browser engine
	$(call unbuilt,the console)

vuln: ## known vulnerabilities (needs the vulnerability database; not part of ci)
	$(TOOL) govulncheck ./...

# What CI takes of the long runs. Their seeds are fixed: a failure repeats.
.PHONY: ci-kills ci-differential ci-conformance ci-chaos
ci-kills:
	$(MAKE) kills KILLS=3 ALL=2
ci-differential:
	$(MAKE) differential SEEDS=10
ci-conformance:
	$(MAKE) conformance CORE=1
ci-chaos:
	$(MAKE) chaos SEED=1 MINUTES=3

ci: ## everything a change must pass
	@begin=$$SECONDS; log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	for stage in $(CI_STAGES); do \
	  echo "== $$stage"; start=$$SECONDS; \
	  $(MAKE) $$stage 2>&1 | tee "$$log" || { \
	    echo "== $$stage, what failed:"; .ci/failures "$$log"; \
	    echo "== $$stage FAILED after $$((SECONDS - start)) s"; exit 1; }; \
	  echo "== $$stage ok, $$((SECONDS - start)) s"; \
	done; \
	echo "== ci ok, $$((SECONDS - begin)) s"

## Measure it.

bench: ## Go benchmarks, COUNT runs, into bin/bench.txt (BENCH=regexp BENCHTIME=)
	@mkdir -p bin
	go test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -count $(COUNT) -timeout 60m $(PKG) \
	  | tee $(NEW)

benchcmp: ## compare two runs: make benchcmp OLD=a.txt NEW=b.txt
	$(TOOL) benchstat $(OLD) $(NEW)

bench-compare: ## Holdfast against JetStream on this machine, interleaved (ROUNDS= SCALE= OUT=)
	@mkdir -p bin
	go build -o bin/bench-compare ./testenv/bench
	bin/bench-compare --rounds $(ROUNDS) --scale $(SCALE) --out $(OUT) $(ARGS)

bench-smoke: ## that the comparison works: every system, measurements of milliseconds
	BENCH_SMOKE=1 go test -count=1 -run 'Smoke|Leader' -timeout 10m ./testenv/bench

clean: ## remove what the targets above made
	rm -rf bin data .cache
