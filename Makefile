# kvtuner: everything a developer or an operator runs from a checkout.
# Go is the only thing needed; tools are fetched as Go modules.

GO          ?= go
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
CYCLONEDX   := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
PACKAGES    := ./...
KUBERNETES  := 1.35.3

.PHONY: chaos help pictures demo build test test-gie test-llmd build-llmd lint lint-gie bench e2e e2e-web e2e-gie e2e-kube lint-kube e2e-llmd fuzz soak vuln sbom licenses bin/llmd.mod bin/epp

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## a fleet whose storage turns slow, tuned in virtual time, with a report
	$(GO) run ./cmd/kvtuner demo

build: ## bin/kvtuner, static and reproducible
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w" -o bin/kvtuner ./cmd/kvtuner

test: ## all tests that need nothing outside this machine, with the race detector
	$(GO) test -race $(PACKAGES)
	$(GO) test ./internal/chaos
	$(GO) test ./cmd/kvtuner -run TestScripts

test-gie: ## the adapter for gateway-api-inference-extension, a module of its own
	cd plugin/gie && $(GO) test -race ./...

# The module of llm-d-router is not on every proxy: a checkout takes its place.
LLMD_GO = cd plugin/llmd && $(GO) $(1) -mod=mod -modfile=$(CURDIR)/bin/llmd.mod

bin/llmd.mod:
	@test -f "$(LLM_D_ROUTER_SRC)/go.mod" || { \
		echo "LLM_D_ROUTER_SRC is \"$(LLM_D_ROUTER_SRC)\": it must name a checkout of llm-d-router, v0.10.0 or later:"; \
		echo "  git clone -b v0.10.0 https://github.com/llm-d/llm-d-router && make $(or $(MAKECMDGOALS),test-llmd) LLM_D_ROUTER_SRC=llm-d-router"; \
		exit 2; }
	@mkdir -p bin && cp plugin/llmd/go.mod bin/llmd.mod && cp plugin/llmd/go.sum bin/llmd.sum
	@$(GO) mod edit -replace github.com/llm-d/llm-d-router="$(abspath $(LLM_D_ROUTER_SRC))" bin/llmd.mod

test-llmd: bin/llmd.mod ## the adapter for llm-d-router, against the checkout LLM_D_ROUTER_SRC
	$(call LLMD_GO,vet) ./...
	$(call LLMD_GO,test) -race ./...

build-llmd: export CGO_ENABLED = 0
build-llmd: bin/llmd.mod ## bin/epp-llmd, the Endpoint Picker of the checkout LLM_D_ROUTER_SRC with the plugin
	$(call LLMD_GO,build) -trimpath -ldflags "-s -w" -o $(CURDIR)/bin/epp-llmd ./cmd/epp

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

chaos: ## a fault campaign: everything around the tuner breaks: make chaos SCHEDULES=10000
	$(GO) run ./cmd/kvtuner chaos --schedules $(or $(SCHEDULES),1000) --progress

pictures: ## docs/demo.png and docs/img/dashboard-*.png anew, with headless Chromium
	docs/picture

e2e: ## the daemon as a process, against a live Prometheus API and a plugin that watches its file
	$(GO) test -count=1 -tags e2e ./cmd/kvtuner -run TestE2E -v

e2e-web: ## the status page in headless Chromium; UPDATE=-update redraws docs/img/page-*.png
	$(GO) test -count=1 -tags web ./cmd/kvtuner -run InABrowser -v $(if $(UPDATE),-args $(UPDATE))

e2e-gie: ## Endpoint Pickers as processes: ext_proc in, model servers out, tuner and restarts
	cd plugin/gie && $(GO) test -count=1 -tags e2e ./e2e -v

e2e-llmd: build-llmd ## the same with the Endpoint Picker of the checkout LLM_D_ROUTER_SRC
	cd plugin/gie && EPP_LLMD=$(CURDIR)/bin/epp-llmd $(GO) test -count=1 -tags e2e ./e2e -run TestLLMD -v

# The servers are built once, in a quarter of an hour of CPU time. nice: whoever works
# on the machine meanwhile comes first.
bin/etcd bin/kube-apiserver: e2e/kube/apiserver/go.mod
	@mkdir -p bin
	cd e2e/kube/apiserver && nice -n 19 $(GO) build -ldflags "-s -w" -o $(CURDIR)/bin/etcd go.etcd.io/etcd/server/v3
	cd e2e/kube/apiserver && nice -n 19 $(GO) build -ldflags "-s -w \
		-X k8s.io/component-base/version.gitVersion=v$(KUBERNETES) -X k8s.io/component-base/version.gitMajor=1 \
		-X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$(KUBERNETES)))" \
		-o $(CURDIR)/bin/kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver

bin/epp:
	cd plugin/gie && $(GO) build -o $(CURDIR)/bin/epp ./cmd/epp

e2e-kube: build bin/epp bin/etcd bin/kube-apiserver ## store, failover (KILLS=50), access, manifests and chart against a real API server
	cd e2e/kube && KVTUNER_BIN=$(CURDIR)/bin KILLS=$(KILLS) $(GO) test -count=1 -timeout 20m . -v

lint-kube: ## vet, staticcheck and go.mod of that module
	cd e2e/kube && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./... && $(GO) mod tidy -diff

soak: ## an Endpoint Picker's adapter under load, with the race detector: make soak SOAK=5m
	$(GO) test -race -count=1 -timeout 0 -tags soak ./plugin/adapter -run TestSoak -v -args -soak $(or $(SOAK),30s)

# It asks https://vuln.go.dev: a machine without access to it cannot run this.
vuln: ## known vulnerabilities in what is called
	$(GO) run $(GOVULNCHECK) $(PACKAGES)
	cd plugin/gie && $(GO) run $(GOVULNCHECK) ./...

sbom: build ## bin/kvtuner.cdx.json, the bill of materials of the binary (CycloneDX)
	$(GO) run $(CYCLONEDX) bin -json -licenses -std -noserial -output bin/kvtuner.cdx.json bin/kvtuner

licenses: sbom ## the licence of each module in the binary
	@$(GO) run ./internal/licenses < bin/kvtuner.cdx.json

fuzz: ## each fuzz target for a while: make fuzz FUZZTIME=10m
	@for target in $$(grep -roE --include='*_test.go' '^func Fuzz[A-Za-z]+' . | sed 's|/[^/]*:func |:|'); do \
		$(GO) test -C $${target%%:*} -run '^$$' -fuzz "^$${target##*:}\$$" -fuzztime $(or $(FUZZTIME),30s) || exit 1; \
	done
