// Package importtest holds the walls between packages: a test of rules over the program's
// import graph. It owns which package may import which, and holds no other code.
package importtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// floors lists the packages of each floor, the lowest first. A package imports from lower
// floors, and from its own floor where sameFloor is set. An entry stands for a package and its
// subfolders; the longest matching entry counts.
var floors = []struct {
	name      string
	sameFloor bool
	packages  []string
}{
	{"ground", true, []string{
		"internal/contract", "internal/pii", "internal/platform/signature", "internal/retry", "internal/platform/store",
		"internal/contract/routing", "internal/contract/money", "internal/platform/serve", "internal/platform/env", "internal/platform/telemetry",
		"internal/platform/failpoint", "internal/pipeline/alarm",
	}},
	{"stores", true, []string{
		"catalog", "internal/dedupe", "internal/pipeline/handler", "internal/apps/ledger", "internal/apps/ledger/seal", "internal/pipeline/deadletter", "internal/pipeline/lane", "internal/apps/twophase", "internal/platform/audit", "internal/apps/customers", "internal/apps/products", "internal/apps/endpoints", "internal/apps/payments", "internal/apps/orders",
		"internal/platform/backlog", "internal/apps/usage", "internal/apps/journal", "internal/pipeline/dryrun", "internal/pipeline/pause", "internal/apps/subscriptions", "internal/pipeline/rates",
	}},
	{"services and adapters", false, []string{
		"internal/ingest/webhook", "internal/pipeline/push", "internal/console/ops", "internal/pipeline/tasks", "internal/apps/billing", "internal/apps/notifications", "internal/pipeline/delivery", "internal/platform/gcp", "internal/platform/standin", "internal/ingest/importer",
	}},
	// worker and local assemble services for the mains.
	{"mains", true, []string{"cmd", "emulator", "e2e", "internal/compose/worker", "internal/compose/devstack", "internal/contract/schemagen", "docs/examples"}},
}

// domain lists the packages that reach neither HTTP nor Google, not even through other
// packages.
var domain = []string{
	"catalog", "internal/contract", "internal/pii", "internal/platform/signature", "internal/retry", "internal/platform/store", "internal/contract/routing",
	"internal/contract/money", "internal/dedupe", "internal/apps/ledger", "internal/pipeline/handler", "internal/pipeline/deadletter", "internal/pipeline/lane", "internal/apps/twophase", "internal/platform/audit", "internal/apps/customers", "internal/apps/products", "internal/apps/endpoints", "internal/apps/payments", "internal/apps/orders", "internal/apps/billing",
	"internal/platform/backlog", "internal/apps/notifications", "internal/apps/usage", "internal/apps/journal", "internal/pipeline/dryrun", "internal/pipeline/pause", "internal/apps/subscriptions", "internal/pipeline/rates",
}

// walls lists forbidden imports. The packages in from (empty: all) must not import those in
// never. The packages in except may. With through, indirect imports count too.
var walls = []struct {
	from, except, never []string
	through             bool
	why                 string
}{
	{
		from: domain, through: true,
		never: []string{
			"net/http", "cloud.google.com", "google.golang.org", "billhook/internal/ingest/webhook", "billhook/internal/pipeline/push", "billhook/internal/console/ops",
			"billhook/internal/pipeline/delivery", "billhook/internal/platform/gcp", "billhook/internal/platform/standin", "billhook/internal/platform/serve", "billhook/internal/platform/telemetry",
		},
		why: "a domain package knows neither HTTP, nor Google, nor a service",
	},
	{from: []string{"internal/ingest/webhook"}, never: []string{"billhook/internal/pipeline/push"}, through: true, why: "webhook and push share nothing but what is below both"},
	{from: []string{"internal/pipeline/push"}, never: []string{"billhook/internal/ingest/webhook"}, through: true, why: "webhook and push share nothing but what is below both"},
	{
		from: []string{"internal/platform/gcp/auth", "internal/console/ops"}, never: []string{"encoding/json"},
		why: "encoding/json takes a name in any case, and the last of two: what decides who may do what uses github.com/go-json-experiment/json",
	},
	{
		except: []string{"internal/platform/gcp", "internal/platform/standin", "emulator", "cmd", "e2e"},
		never:  []string{"cloud.google.com", "google.golang.org"},
		why:    "only the adapters and the mains name Google",
	},
	{
		except: []string{"internal/ingest/importer"},
		never:  drained,
		why:    "only the importer names the clients of what it drains",
	},
}

// drained are the clients of the systems that billhook import drains.
var drained = []string{"github.com/redis/go-redis/v9", "github.com/rabbitmq/amqp091-go", "github.com/jackc/pgx/v5"}

// The services neither carry nor start what only an import needs.
func TestTheServicesAreBuiltWithoutTheImportersClients(t *testing.T) {
	t.Parallel()
	dependencies := func(of ...string) []string {
		list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps"}, of...)...)
		list.Dir = "../.."
		output, err := list.Output()
		require.NoError(t, err)
		return slices.DeleteFunc(strings.Fields(string(output)), func(path string) bool { return !under(path, drained) })
	}
	require.Empty(t, dependencies("./cmd/webhook", "./cmd/worker"))
	require.Subset(t, dependencies("./cmd/billhook"), drained, "a client that nothing uses would prove nothing")
}

// listed is a package in the output of go list.
type listed struct {
	ImportPath, Doc  string
	GoFiles, Imports []string
}

const module = "billhook/"

func TestImportsKeepToTheWalls(t *testing.T) {
	t.Parallel()
	list := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Doc,GoFiles,Imports", "./...")
	list.Dir = "../.."
	output, err := list.Output()
	require.NoError(t, err)
	graph := map[string]listed{}
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var p listed
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if len(p.GoFiles) > 0 {
			graph[p.ImportPath] = p
		}
	}
	require.Greater(t, len(graph), 20, "go list sees the whole program")
	require.Empty(t, violations(graph))
}

// A wall that never fails proves nothing.
func TestEachWallFails(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct {
		imports map[string][]string
		want    []string
	}{
		"down and beside": {
			map[string][]string{"internal/pipeline/push": {"billhook/internal/pipeline/handler", "net/http"}, "internal/pipeline/handler": {"billhook/catalog"}, "catalog": {"billhook/internal/retry"}}, nil,
		},
		"up a floor": {
			map[string][]string{"internal/platform/env": {"billhook/catalog"}},
			[]string{"internal/platform/env (ground) imports catalog (stores): imports go down"},
		},
		"beside, among services": {
			map[string][]string{"internal/console/ops": {"billhook/internal/apps/billing"}},
			[]string{"internal/console/ops (services and adapters) imports internal/apps/billing (services and adapters): imports go down"},
		},
		"within one service": {
			map[string][]string{"internal/ingest/webhook": {"billhook/internal/ingest/webhook/samples"}}, nil,
		},
		"a package without a floor": {
			map[string][]string{"internal/attic": nil}, []string{"internal/attic stands on no floor: add it to floors"},
		},
		"HTTP in the domain": {
			map[string][]string{"internal/apps/ledger": {"net/http"}},
			[]string{"internal/apps/ledger reaches net/http: a domain package knows neither HTTP, nor Google, nor a service"},
		},
		"HTTP in the domain, through another package": {
			map[string][]string{"internal/apps/ledger": {"billhook/internal/platform/env"}, "internal/platform/env": {"net/http"}},
			[]string{"internal/apps/ledger reaches net/http: a domain package knows neither HTTP, nor Google, nor a service"},
		},
		"a name that only begins alike": {
			map[string][]string{"internal/apps/ledger": {"net/httptrace", "google.golang.organic/x"}}, nil,
		},
		"Google outside the adapters": {
			map[string][]string{"internal/console/ops": {"cloud.google.com/go/pubsub/v2"}},
			[]string{"internal/console/ops reaches cloud.google.com/go/pubsub/v2: only the adapters and the mains name Google"},
		},
		"a client of Redis in a service": {
			map[string][]string{"internal/console/ops": {"github.com/redis/go-redis/v9"}, "internal/ingest/importer": {"github.com/redis/go-redis/v9"}},
			[]string{"internal/console/ops reaches github.com/redis/go-redis/v9: only the importer names the clients of what it drains"},
		},
		"Google in an adapter and in a main": {
			map[string][]string{"internal/platform/gcp/pubsub": {"google.golang.org/grpc"}, "cmd/worker": {"cloud.google.com/go/pubsub/v2"}}, nil,
		},
		"the two doors": {
			map[string][]string{"internal/ingest/webhook": {"billhook/internal/pipeline/push"}},
			[]string{
				"internal/ingest/webhook (services and adapters) imports internal/pipeline/push (services and adapters): imports go down",
				"internal/ingest/webhook reaches billhook/internal/pipeline/push: webhook and push share nothing but what is below both",
			},
		},
		"a lenient reader where people are let in": {
			map[string][]string{"internal/console/ops": {"encoding/json"}, "internal/platform/serve": {"encoding/json"}},
			[]string{"internal/console/ops reaches encoding/json: encoding/json takes a name in any case, and the last of two: what decides who may do what uses github.com/go-json-experiment/json"},
		},
		"a test kit in the program": {
			map[string][]string{"cmd/worker": {"billhook/internal/apps/ledger/ledgertest"}},
			[]string{"cmd/worker imports internal/apps/ledger/ledgertest: a package for tests is imported by tests"},
		},
		"a test kit in the end-to-end harness and in another kit": {
			map[string][]string{"e2e": {"billhook/emulator/emulatortest"}, "internal/platform/store/storetest": {"billhook/internal/platform/standin/clocktest"}}, nil,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			graph := map[string]listed{}
			for path, imports := range test.imports {
				graph[module+path] = listed{ImportPath: module + path, Doc: "Package x is one of the test's.", Imports: imports}
			}
			require.Equal(t, test.want, violations(graph))
		})
	}
	require.Equal(t, []string{"internal/platform/env has no package comment"}, violations(map[string]listed{"billhook/internal/platform/env": {}}))
}

// violations reports each import that breaks a rule, and each package without a comment.
func violations(graph map[string]listed) (found []string) {
	report := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for _, path := range slices.Sorted(maps.Keys(graph)) {
		p, name := graph[path], strings.TrimPrefix(path, module)
		if strings.TrimSpace(p.Doc) == "" {
			report("%s has no package comment", name)
		}
		floor, entry := floorOf(name)
		if floor < 0 {
			report("%s stands on no floor: add it to floors", name)
			continue
		}
		kit := strings.HasSuffix(name, "test")
		for _, imported := range p.Imports {
			target, ours := strings.CutPrefix(imported, module)
			if !ours || kit {
				continue
			}
			if strings.HasSuffix(target, "test") {
				if !under(name, []string{"e2e"}) {
					report("%s imports %s: a package for tests is imported by tests", name, target)
				}
				continue
			}
			on, other := floorOf(target)
			if on > floor || (on == floor && entry != other && !floors[floor].sameFloor) {
				report("%s (%s) imports %s (%s): imports go down", name, floors[floor].name, target, floors[on].name)
			}
		}
		for _, wall := range walls {
			if kit || under(name, wall.except) || (wall.from != nil && (!under(name, wall.from) || floor == len(floors)-1)) {
				continue // a main in the folder of a domain package, such as a generator, is a main
			}
			reached := p.Imports
			if wall.through {
				reached = reach(graph, path)
			}
			for _, imported := range reached {
				if under(imported, wall.never) {
					report("%s reaches %s: %s", name, imported, wall.why)
				}
			}
		}
	}
	return found
}

// floorOf returns the floor of a package and its entry in floors, or -1.
func floorOf(name string) (floor int, entry string) {
	floor = -1
	for i := range floors {
		for _, candidate := range floors[i].packages {
			if under(name, []string{candidate}) && len(candidate) > len(entry) {
				floor, entry = i, candidate
			}
		}
	}
	return floor, entry
}

// under reports whether path is one of the folders or below one.
func under(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return path == folder || strings.HasPrefix(path, folder+"/")
	})
}

// reach lists the direct and indirect imports of a package.
func reach(graph map[string]listed, path string) []string {
	seen := map[string]bool{}
	var visit func(string)
	visit = func(at string) {
		for _, imported := range graph[at].Imports {
			if !seen[imported] {
				seen[imported] = true
				visit(imported)
			}
		}
	}
	visit(path)
	return slices.Sorted(maps.Keys(seen))
}
