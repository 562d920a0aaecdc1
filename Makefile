# `make` alone lists what there is. Tools are built from hack/tools into bin/, pinned by its go.mod.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

BIN := bin
GOTESTSUM := $(BIN)/gotestsum
GOLANGCI_LINT := $(BIN)/golangci-lint
HELM_UNITTEST := $(BIN)/helm-unittest
HELM_DOCS := $(BIN)/helm-docs
PROGRAMS := $(notdir $(wildcard cmd/*))
# Every Go module of the repository.
MODULES := . $(patsubst %/go.mod,%,$(filter-out hack/tools/go.mod,$(wildcard */*/go.mod)))
SIMFOR ?= 1h
SIMFIRST ?= $(shell date +%s)
FAULTSFOR ?= 20m
FAULTSSEED ?= $(shell date +%s)
# Specs of faults wait most of the time, so several at once fit on two cores.
FAULTS := go run github.com/onsi/ginkgo/v2/ginkgo --procs 3 --no-color --timeout 24h
GOTESTSUM_FLAGS ?= --format pkgname --hide-summary skipped

##@ Use

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the programs into bin/
	CGO_ENABLED=0 go build -trimpath -o $(BIN)/ $(PROGRAMS:%=./cmd/%)

.PHONY: demo
demo: ## Watch elections, hand-overs and a crash on embedded Redis nodes (Ctrl-C ends it)
	@CGO_ENABLED=0 go build -trimpath -o $(BIN)/podlease ./cmd/podlease
	@$(BIN)/podlease demo

##@ Test

.PHONY: test
test: $(GOTESTSUM) ## Run all tests of one machine: unit, virtual time, real Redis processes and containers
	@hack/packages redis-server:redis-server gcc:gcc psql:postgresql
	hack/with-docker $(GOTESTSUM) $(GOTESTSUM_FLAGS) --raw-command -- hack/test all

.PHONY: test-unit
test-unit: $(GOTESTSUM) ## Run the unit tests and those in virtual time
	@hack/packages gcc:gcc
	$(GOTESTSUM) $(GOTESTSUM_FLAGS) --raw-command -- hack/test unit

.PHONY: test-integration
test-integration: $(GOTESTSUM) ## Run the tests against real Redis, as processes and in containers
	@hack/packages redis-server:redis-server gcc:gcc psql:postgresql
	hack/with-docker $(GOTESTSUM) $(GOTESTSUM_FLAGS) --raw-command -- hack/test integration

.PHONY: envtest
envtest: $(GOTESTSUM) ## Run the tests against a real API server (the first time it may have to be built, 10 minutes)
	@hack/packages gcc:gcc
	$(GOTESTSUM) $(GOTESTSUM_FLAGS) --raw-command -- hack/test envtest

.PHONY: test-chart
test-chart: $(GOTESTSUM) $(HELM_UNITTEST) $(HELM_DOCS) ## Test the Helm chart, that config/ is the same, and that its README is up to date
	$(GOTESTSUM) $(GOTESTSUM_FLAGS) --raw-command -- hack/test chart
	$(HELM_UNITTEST) --strict charts/podlease
	@$(HELM_DOCS) --chart-search-root charts/podlease --dry-run --log-level warning | diff -u charts/podlease/README.md - || \
	  { echo "charts/podlease/README.md is not up to date: run make chart-readme" >&2; exit 1; }

.PHONY: sim
sim: ## Simulate elections from 2000 seeds in virtual time, and break the rules on purpose to see it noticed
	go test -count 1 -timeout 20m ./test/sim -run 'TestSeeds$$|TestWildSeeds|TestSeedsReplayExactly|TestMutants' -v -args -sim.seeds=2000 -sim.length=60s -sim.mutants

.PHONY: sim-long
sim-long: ## Simulate elections from new seeds for SIMFOR (1h) of real time; a seed that fails prints how to replay it
	go test -count 1 -timeout 0 ./test/sim -run 'TestSeeds$$' -v -args -sim.first=$(SIMFIRST) -sim.for=$(SIMFOR)

.PHONY: faults
faults: ## Let faults happen to real Redis servers and sidecars, one kind at a time and at random from fixed seeds
	@hack/packages redis-server:redis-server
	$(FAULTS) ./test/faults

.PHONY: faults-long
faults-long: ## The same at random from new seeds for FAULTSFOR (20m), and a holder that is frozen 200 times; figures go to build/faults.txt
	@hack/packages redis-server:redis-server
	@mkdir -p build
	$(FAULTS) --focus "Many kinds of faults at random|frozen for two TTLs" ./test/faults -- \
	  -faults.for=$(FAULTSFOR) -faults.seed=$(FAULTSSEED) -faults.seeds=0 -faults.rounds=200 -faults.counted=$(CURDIR)/build/faults.txt

.PHONY: faults-broken
faults-broken: ## The same with the quarantine off, until two candidates are active at once: within 10 minutes
	@hack/packages redis-server:redis-server
	@mkdir -p build
	$(FAULTS) --focus "with the quarantine off" ./test/faults -- \
	  -faults.broken=10m -faults.seed=$(FAULTSSEED) -faults.counted=$(CURDIR)/build/faults.txt

.PHONY: model
model: ## Follow all courses of small models of the lock's rules, with each rule and without it
	go test -count 1 -timeout 20m ./test/model -v

.PHONY: model-long
model-long: ## The same with larger bounds: an hour and 8 GB
	go test -count 1 -timeout 0 ./test/model -v -args -model.long

.PHONY: integration-long
integration-long: ## Run a hundred rounds with a TTL of 3 s, with bounds on how fast things are: needs an idle machine, 10 minutes
	@hack/packages redis-server:redis-server
	PODLEASE_LONG=1 go test -count 1 -timeout 60m -v ./test/integration -ginkgo.focus "Three candidates|Exclusion|A lease" -ginkgo.no-color

.PHONY: e2e
e2e: image sample-image ## Run the short end-to-end tests on a three-node cluster made here, or on $KUBECONFIG's
	hack/e2e smoke

.PHONY: e2e-full
e2e-full: image sample-image ## Run all end-to-end tests, and write their figures to test/e2e/RESULTS.md
	hack/e2e full

##@ Make images

VERSION ?= dev
IMAGE_REPOSITORY ?= ghcr.io/podlease
ARCH ?= $(shell go env GOARCH)
# Another architecture's archives have a folder of their own.
IMAGES ?= build/images$(if $(filter-out $(shell go env GOARCH),$(ARCH)),/$(ARCH))

.PHONY: image
image: $(PROGRAMS:%=image-%) ## Make docker archives of the programs in build/images, without Docker (ARCH=arm64 for arm64)

.PHONY: sample-image
sample-image: image-sample-app ## Make a docker archive of the app of config/samples

image-%: build/image
	CGO_ENABLED=0 GOOS=linux GOARCH=$(ARCH) go build -buildvcs=false -trimpath -ldflags "-s -w -X main.version=$(VERSION)" \
	  -o build/$(ARCH)/$* ./$(if $(filter sample-app,$*),test/app,cmd/$*)
	build/image --binary build/$(ARCH)/$* --arch $(ARCH) --version $(VERSION) --name $(IMAGE_REPOSITORY)/$*:$(VERSION) --out $(IMAGES)/$(*:podlease-%=%).tar

.PHONY: build/image
build/image:
	cd hack/image && go build -o $(CURDIR)/$@ .

.PHONY: dockerfile-proof
dockerfile-proof: ## Build every target of the Dockerfile, also where no base image can be pulled
	hack/dockerfile-proof

##@ Measure

.PHONY: bench
bench: bench-build ## Measure podlease beside redsync on real Redis processes, about 3 min (BENCHFLAGS="--rounds 2000 latency")
	@$(BIN)/bench --json build/bench.json $(BENCHFLAGS)

.PHONY: reproduce
reproduce: bench-build ## Reproduce faults of other lock libraries, each beside podlease without it, about 2 min
	@$(BIN)/bench --json build/reproductions.json reproductions

.PHONY: bench-build
bench-build:
	@hack/packages redis-server:redis-server
	@CGO_ENABLED=0 go build -trimpath -o $(BIN)/podlease-sidecar ./cmd/podlease-sidecar
	@mkdir -p build && cd test/bench && CGO_ENABLED=0 go build -trimpath -o $(CURDIR)/$(BIN)/ . ./redsyncloop

##@ Work on it

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Check the code, and who may import what
	@for m in $(MODULES); do (cd $$m && echo "lint $$m" && $(CURDIR)/$(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml ./...) || exit 1; done

.PHONY: lint-scripts
lint-scripts: ## Check the shell scripts
	@hack/packages shellcheck:shellcheck
	grep -rlE '^#!/usr/bin/env bash' .ci hack test | xargs shellcheck

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## Format the code
	@for m in $(MODULES); do (cd $$m && $(CURDIR)/$(GOLANGCI_LINT) fmt --config $(CURDIR)/.golangci.yml ./...); done

.PHONY: chart-readme
chart-readme: $(HELM_DOCS) ## Write the chart's README from its values
	$(HELM_DOCS) --chart-search-root charts/podlease

.PHONY: tidy
tidy: ## Tidy every go.mod
	@for m in $(MODULES) hack/tools hack/tools/chart; do (cd $$m && go mod tidy); done

.PHONY: verify
verify: ## Check what must stay true of the tree: go.mod tidy, the sidecar's imports small, the tool builds on other systems
	@for m in $(MODULES) hack/tools hack/tools/chart; do (cd $$m && echo "tidy? $$m" && go mod tidy -diff) || exit 1; done
	@hack/sidecar-imports
	@for os in darwin windows; do echo "builds? $$os" && GOOS=$$os go build -o /dev/null ./cmd/podlease || exit 1; done

.PHONY: clean
clean: ## Remove what was built
	rm -rf $(BIN) build

$(GOTESTSUM): hack/tools/go.mod
	cd hack/tools && go build -o $(CURDIR)/$@ gotest.tools/gotestsum

$(GOLANGCI_LINT): hack/tools/go.mod
	cd hack/tools && go build -o $(CURDIR)/$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(HELM_UNITTEST): hack/tools/chart/go.mod
	cd hack/tools/chart && go build -o $(CURDIR)/$@ github.com/helm-unittest/helm-unittest/cmd/helm-unittest

$(HELM_DOCS): hack/tools/chart/go.mod
	cd hack/tools/chart && go build -o $(CURDIR)/$@ github.com/norwoodj/helm-docs/cmd/helm-docs
