# kvtuner: everything a developer or an operator runs from a checkout.
# Go is the only thing needed; tools are fetched as Go modules.

GO          ?= go
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
PACKAGES    := ./...

.PHONY: help demo build test lint bench e2e fuzz

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## a fleet whose storage turns slow, tuned in virtual time, with a report
	$(GO) run ./cmd/kvtuner demo

build: ## bin/kvtuner, static and reproducible
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w" -o bin/kvtuner ./cmd/kvtuner

test: ## all tests that need nothing outside this machine, with the race detector
	$(GO) test -race $(PACKAGES)

lint: ## formatting, vet, staticcheck
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "not formatted, run gofmt -w: $$unformatted"; exit 1; }
	$(GO) vet $(PACKAGES)
	$(GO) run $(STATICCHECK) $(PACKAGES)
	$(GO) mod tidy -diff

bench: ## decision cost, then policies against each other on the simulated fleet
	$(GO) test -run '^$$' -bench . -benchmem ./plugin
	$(GO) run ./cmd/kvtuner bench

e2e: ## the daemon as a process, against a live Prometheus API and a plugin that watches its file
	$(GO) test -count=1 -tags e2e ./cmd/kvtuner -run TestE2E -v

fuzz: ## each fuzz target for a while: make fuzz FUZZTIME=10m
	@for target in $$(grep -rhoE --include='*_test.go' '^func (Fuzz[A-Za-z]+)' . | awk '{print $$2}'); do \
		package=$$(grep -rlE --include='*_test.go' "^func $$target\(" . | head -1 | xargs dirname); \
		$(GO) test $$package -run '^$$' -fuzz "^$$target\$$" -fuzztime $(or $(FUZZTIME),30s) || exit 1; \
	done
