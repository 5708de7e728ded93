# `make` without a target builds and runs the checks that take seconds; `make help` lists every target.

GO          ?= go
STATICCHECK  = $(GO) tool -modfile=tools/go.mod staticcheck
PACKAGES    ?= ./...
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
BUILD_FLAGS  = -trimpath -ldflags "-s -w -X main.version=$(VERSION)"

.DEFAULT_GOAL := all

.PHONY: all
all: build lint test-short ## build, lint, and the tests that take seconds

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## bin/whippet: one static binary
	CGO_ENABLED=0 $(GO) build $(BUILD_FLAGS) -o bin/whippet ./cmd/whippet

# Packages beside the tests on real processes.
UNITS = $(shell $(GO) list ./... | grep -v /test/)

# Packages with so many cases that the race detector, and -short, see samples of them only.
EXHAUSTIVE = ./internal/segment ./internal/partition ./internal/metadata ./internal/vfs ./wire

.PHONY: test
test: lint ## what must hold: lint, every case of the log and the state machines, all packages under the race detector, real processes under faults
	$(GO) test -timeout 15m $(EXHAUSTIVE)
	$(GO) test -run Alloc ./server ./internal/replica # the race detector allocates
	$(GO) test -race -short -timeout 15m $(UNITS)
	$(GO) test -timeout 15m ./test/...

.PHONY: test-full
test-full: ## the same with all of it under the race detector, and the long cases on real processes (an hour)
	$(GO) test -timeout 15m $(UNITS)
	$(GO) test -race -timeout 60m $(UNITS)
	WHIPPET_SLOW=1 $(GO) test -timeout 90m ./test/...

.PHONY: test-short
test-short: ## the tests that take seconds, without the race detector
	$(GO) test -short $(UNITS)

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, and go.mod in order
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "run make fmt; not formatted:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet $(PACKAGES)
	$(GO) vet -tags clocksteps ./internal/clock
	$(STATICCHECK) $(PACKAGES)
	$(GO) mod tidy -diff

.PHONY: fmt
fmt: ## format the code
	gofmt -w $$(git ls-files '*.go')

.PHONY: fuzz
fuzz: ## each decoder's fuzz target for FUZZ_TIME (10s)
	./test/fuzz $(or $(FUZZ_TIME),10s)

.PHONY: interop
interop: interop-python interop-rust ## the released Python and Rust clients, unmodified, against a real node

.PHONY: interop-python
interop-python: build ## the released Python client
	./test/interop/run python

.PHONY: interop-rust
interop-rust: build ## the released Rust client (builds it first: minutes)
	./test/interop/run rust

.PHONY: interop-cluster
interop-cluster: ## both of them against clusters of three nodes with split primaries (minutes; CLIENT=python or rust for one)
	./test/interop/cluster/run $(or $(CLIENT),all)

.PHONY: bench
bench: build ## every figure of docs/benchmarks.md, as ratios within one run
	./test/bench

.PHONY: cover
cover: ## coverage by function in cover.out
	$(GO) test -short -coverprofile=cover.out $(PACKAGES)
	$(GO) tool cover -func=cover.out | tail -1

.PHONY: clean
clean: ## remove what the targets made
	rm -rf bin cover.out
