# kvtuner: everything a developer or an operator runs from a checkout.
# Go is the only thing needed; tools are fetched as Go modules.

GO          ?= go
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
PACKAGES    := ./...

.PHONY: help demo build test test-gie lint lint-gie bench e2e e2e-gie fuzz

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## a fleet whose storage turns slow, tuned in virtual time, with a report
	$(GO) run ./cmd/kvtuner demo

build: ## bin/kvtuner, static and reproducible
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w" -o bin/kvtuner ./cmd/kvtuner

test: ## all tests that need nothing outside this machine, with the race detector
	$(GO) test -race $(PACKAGES)

test-gie: ## the adapter for gateway-api-inference-extension, a module of its own
	cd plugin/gie && $(GO) test -race ./...

lint: ## formatting, vet, staticcheck
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "not formatted, run gofmt -w: $$unformatted"; exit 1; }
	$(GO) vet $(PACKAGES)
	$(GO) run $(STATICCHECK) $(PACKAGES)
	$(GO) mod tidy -diff

lint-gie: ## vet, staticcheck and go.mod of that module
	cd plugin/gie && $(GO) vet -tags e2e ./...
	cd plugin/gie && $(GO) run $(STATICCHECK) -tags e2e ./...
	cd plugin/gie && $(GO) mod tidy -diff

bench: ## decision cost, then policies against each other on the simulated fleet
	$(GO) test -run '^$$' -bench . -benchmem ./plugin
	$(GO) run ./cmd/kvtuner bench

e2e: ## the daemon as a process, against a live Prometheus API and a plugin that watches its file
	$(GO) test -count=1 -tags e2e ./cmd/kvtuner -run TestE2E -v

e2e-gie: ## Endpoint Pickers as processes: ext_proc in, model servers out, tuner and restarts
	cd plugin/gie && $(GO) test -count=1 -tags e2e ./e2e -v

fuzz: ## each fuzz target for a while: make fuzz FUZZTIME=10m
	@for target in $$(grep -rhoE --include='*_test.go' '^func (Fuzz[A-Za-z]+)' . | awk '{print $$2}'); do \
		package=$$(grep -rlE --include='*_test.go' "^func $$target\(" . | head -1 | xargs dirname); \
		$(GO) test -C $$package -run '^$$' -fuzz "^$$target\$$" -fuzztime $(or $(FUZZTIME),30s) || exit 1; \
	done
