# `make` lists what there is. The one to run before every commit is `make check`.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# What the knobs mean is told by `make help`.
FOCUS    ?=
PKG      ?= ./...
FUZZTIME ?= 30s
COUNT    ?= 20
KEEP     ?=
SOAK     ?= 1

# The version that binaries report, in the form that Kubernetes' own libraries
# can parse: v1.2.3, or v0.0.0-12-gabcdef0 between releases.
DESCRIBE := $(shell git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null || echo v0.0.0-$$(git describe --always --dirty 2>/dev/null || echo unknown))
COMMIT   := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
DATE     := $(shell git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null || echo 1970-01-01T00:00:00Z)
STAMP    := k8s.io/component-base/version
LDFLAGS  := -s -w -X $(STAMP).gitVersion=$(DESCRIBE) -X $(STAMP).gitCommit=$(COMMIT) -X $(STAMP).gitTreeState=$(if $(findstring dirty,$(DESCRIBE)),dirty,clean) -X $(STAMP).buildDate=$(DATE)

CONTROLPLANE := go run ./test/controlplane/cmd/controlplane
TESTSUM      := go tool -modfile=tools/go.mod gotestsum --format=pkgname-and-test-fails --format-hide-empty-pkg --hide-summary=skipped
LINT         := go tool -modfile=tools/lint/go.mod golangci-lint

# Tests that start a control plane, and those that do not. The former run one
# package at a time: each is several processes, and two cores are soon full.
packages      = $(shell go list -e $(PKG))
withplane     = $(shell go list -e -test -f '{{if .ForTest}}{{else}}{{.ImportPath}} {{join .Deps " "}}{{end}}' $(PKG) | awk '/^[^ ]*\.test / && / github.com\/nodewarden\/nodewarden\/test\/controlplane( |$$)/ { sub(/\.test$$/, "", $$1); print $$1 }')
run           = $(if $(FOCUS),-run '$(FOCUS)')

##@ Every day

.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nKnobs: FOCUS=regexp PKG=./webhook/... FUZZTIME=5m COUNT=100 KEEP=1 SOAK=0.2\n'

.PHONY: build
build: ## build the binaries into bin/, with their version
	@mkdir -p bin
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...
	@if [ -x bin/nodewarden ]; then ln -sf nodewarden bin/kubectl-nodewarden; fi

.PHONY: check
check: format-check vet lint unit-quick ## everything quick, before every commit: format, vet, lint, unit tests

.PHONY: fmt
fmt: ## format all Go files
	@gofmt -s -w .

.PHONY: lint
lint: ## run golangci-lint (the first run builds it, which takes minutes)
	@$(LINT) run $(PKG) || { echo 'make lint: mend what it names, or try: $(LINT) run --fix $(PKG)'; exit 1; }

##@ Tests

.PHONY: test
test: control-plane programs ## all tests with -race; FOCUS= and PKG= select
	@$(MAKE) test-without-plane && without=0 || without=$$?; \
	$(MAKE) agreement && agree=0 || agree=$$?; \
	$(MAKE) test-with-plane && with=0 || with=$$?; \
	exit $$(( without | agree | with ))

.PHONY: unit
unit: ## tests that need no control plane, with -race
	@$(TESTSUM) -- -race -short -timeout 10m $(run) $(PKG)

.PHONY: integration
integration: control-plane programs test-with-plane ## the packages whose tests start a control plane, with -race

.PHONY: fuzz
fuzz: ## run every fuzz test for FUZZTIME
	@for dir in $$(git grep -l '^func Fuzz' -- '*_test.go' | xargs -rn1 dirname | sort -u); do \
	  for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$dir/*_test.go); do \
	    echo "$$dir $$name"; go test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) ./$$dir; \
	  done; done

.PHONY: deflake
deflake: control-plane ## run tests COUNT times each, to find the ones that do not always pass
	go test -race -count=$(COUNT) -failfast -timeout 2h -p 1 $(run) $(PKG)

.PHONY: soak
soak: control-plane ## the long tests: hundreds of histories, millions of cases; SOAK= a share of the controller's
	NODEWARDEN_SOAK=$(SOAK) go test -run Soak -timeout 3h -p 1 ./...

.PHONY: bench
bench: control-plane ## what things cost, as ratios within one run, with their limits
	go test ./test/bench/... -p 1 -run '^$$' -bench . -benchtime=1x -timeout 60m

##@ Try it

.PHONY: demo
demo: control-plane build ## a real control plane and our guard, as a story; KEEP=1 leaves it running
	@exec bin/nodewarden demo $(if $(KEEP),--keep)

.PHONY: control-plane
control-plane: ## build the control plane that tests use, if it is missing (5 to 10 minutes, once)
	@$(CONTROLPLANE) build >/dev/null

.PHONY: kube-assets
kube-assets: ## print a folder to use as KUBEBUILDER_ASSETS for any envtest
	@$(CONTROLPLANE) assets

##@ Upkeep

.PHONY: generate
generate: ## write the generated files anew
	go generate ./...

.PHONY: images
images: ## build the container images into dist/, without a container tool
	go run ./deploy/image -out dist -version '$(DESCRIBE)' -commit $(COMMIT) -created '$(DATE)'

.PHONY: clean
clean: ## remove bin/; the control plane stays in your cache folder, under nodewarden/
	rm -rf bin dist

##@ Parts of the above

.PHONY: format-check
format-check: ## find Go files that are not formatted
	@bad=$$(gofmt -s -l .); \
	if [ -n "$$bad" ]; then printf 'not formatted:\n%s\nmend it with: make fmt\n' "$$bad"; exit 1; fi

.PHONY: vet
vet: ## run go vet
	@go vet $(PKG) || { echo 'go vet: mend what it names; to see it again: make vet PKG=$(PKG)'; exit 1; }

.PHONY: unit-quick
unit-quick: ## tests that need no control plane, without -race
	@$(TESTSUM) -- -short -timeout 5m $(run) $(PKG) || { echo 'unit tests: to run one: make unit PKG=./its/package FOCUS=TestName'; exit 1; }

# Tests that run our programs compile them, and wait for them for a minute; the
# first compilation takes longer.
.PHONY: programs
programs: ## compile our programs once, for the tests that run them
	@echo 'compiling our programs'; go build ./cmd/...

.PHONY: test-without-plane
test-without-plane: pick = $(filter-out $(withplane),$(packages))
test-without-plane: ## the packages whose tests start no control plane, with -race
	@list='$(pick)'; if [ -n "$$list" ]; then echo 'tests without a control plane'; $(TESTSUM) -- -race -timeout 15m $(run) $$list; fi

# The race detector makes CEL ten times slower: there the enforcers are compared
# on 3,000 writes, and here, once more without it, on 100,000.
.PHONY: agreement
agreement: ## the policy and the contract on 100,000 generated writes
	@if [ '$(PKG)$(FOCUS)' = './...' ]; then echo 'the policy and the contract agree on 100,000 writes'; $(TESTSUM) -- -timeout 15m -run Agree ./webhook/policy; fi

.PHONY: test-with-plane
test-with-plane: pick = $(withplane)
test-with-plane: ## the packages whose tests start one, with -race, one at a time
	@list='$(pick)'; if [ -n "$$list" ]; then echo 'tests with a control plane'; $(TESTSUM) -- -race -timeout 30m -p 1 $(run) $$list; fi
