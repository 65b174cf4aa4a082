// Package importtest holds the walls between packages: one table of rules over the program's
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

	"billhook/internal/filetest"
)

var (
	apps     = []string{"internal/apps"}
	ingest   = []string{"internal/ingest"}
	pipeline = []string{"internal/pipeline"}
	inspect  = []string{"internal/inspect"}
	// console serves operations; the declarations are in internal/console itself.
	console  = []string{"internal/console/access", "internal/console/api", "internal/console/pages"}
	mains    = []string{"cmd", "internal/compose", "emulator", "e2e", "docs/examples"}
	contract = []string{"catalog", "internal/contract", "internal/pii", "internal/dedupe", "internal/retry"}
	google   = []string{"cloud.google.com", "google.golang.org"}
	http     = []string{"net/http"}
	push     = []string{"internal/pipeline/push"}
	// drained are the clients of the systems that billhook admin import drains.
	drained = []string{
		"github.com/gomodule/redigo/redis", "github.com/rabbitmq/amqp091-go", "github.com/jackc/pgx/v5",
	}
)

// walls lists forbidden imports. The packages in from (empty: all) must not import those in never; those in
// except may. With through, an import by way of other packages counts too.
var walls = []struct {
	why                 string
	from, except, never []string
	through             bool
}{
	{
		"apps know neither HTTP, nor Google, nor their callers", apps, nil,
		slices.Concat(http, push, google, ingest, inspect, console, mains), true,
	},
	{
		"the formats of messages know neither HTTP, nor Google, nor the packages above them", contract, nil,
		slices.Concat(http, google, apps, ingest, inspect, console, mains), true,
	},
	{
		"the webhook service and the push worker share only what is below both", ingest, nil,
		slices.Concat(pipeline, inspect, console, mains), false,
	},
	{
		"the push worker and the webhook service share only what is below both", pipeline, nil,
		slices.Concat(ingest, inspect, console, mains), false,
	},
	{
		"reads for people know neither HTTP, nor Google, nor the push worker", inspect, nil,
		slices.Concat(http, push, google, ingest, console, mains), true,
	},
	{"only mains assemble the console", nil, slices.Concat(console, mains), console, false},
	{
		"only the adapters and the mains name Google", nil,
		append([]string{"internal/platform/gcp", "internal/platform/standin"}, mains...), google, false,
	},
	{
		"only the importer and its trial name its clients", nil,
		[]string{"internal/ingest/importer", "e2e/trial"},
		drained, false,
	},
	{
		"the services are built without the importer's clients",
		[]string{"cmd/webhook", "cmd/worker"},
		nil, drained, true,
	},
	{
		// It accepts a name in any case, and the last of two equal ones.
		"authorization does not use encoding/json",
		[]string{"internal/platform/gcp/auth", "internal/console/access"},
		nil,
		[]string{"encoding/json"},
		false,
	},
	{"a package for tests is imported by tests", nil, []string{"e2e"}, []string{"*test"}, false},
}

func TestImportsKeepToTheWalls(t *testing.T) {
	t.Parallel()
	require.Empty(t, violations(imports(t)))
}

func TestEachWallHoldsAgainstAnImportThroughIt(t *testing.T) {
	t.Parallel()
	for _, wall := range walls {
		from := append(wall.from, "internal/elsewhere")[0]
		for _, never := range wall.never {
			never = strings.Replace(never, "*", "x", 1)
			graph := map[string][]string{from: {never}}
			if wall.through {
				graph = map[string][]string{from: {"strings"}, "strings": {never}}
			}
			require.Contains(t, violations(graph), fmt.Sprintf("%s imports %s: %s", from, never, wall.why))
		}
	}
}

// The program's own packages go without the module's name.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps",
		"-json=ImportPath,Doc,GoFiles,Imports", "./...")
	list.Dir = "../.."
	output := filetest.Must(list.Output())(t)
	graph := map[string][]string{}
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var p struct {
			ImportPath, Doc  string
			GoFiles, Imports []string
		}
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			require.Greater(t, len(graph), 100)
			return graph
		}
		require.NoError(t, err)
		name, ours := strings.CutPrefix(p.ImportPath, "billhook/")
		require.False(t, ours && len(p.GoFiles) > 0 && p.Doc == "", "%s has no package comment", name)
		for _, path := range p.Imports {
			graph[name] = append(graph[name], strings.TrimPrefix(path, "billhook/"))
		}
	}
}

// Test kits may import anything.
func violations(graph map[string][]string) (found []string) {
	for _, name := range slices.Sorted(maps.Keys(graph)) {
		for _, wall := range walls {
			if !ours(name) || strings.HasSuffix(name, "test") || under(name, wall.except) ||
				(wall.from != nil && !under(name, wall.from)) {
				continue
			}
			reached := graph[name]
			if wall.through {
				reached = reach(graph, name)
			}
			for _, path := range reached {
				kit := ours(path) && strings.HasSuffix(path, "test")
				if under(path, wall.never) || kit && slices.Contains(wall.never, "*test") {
					found = append(found, fmt.Sprintf("%s imports %s: %s", name, path, wall.why))
				}
			}
		}
	}
	return found
}

func ours(name string) bool {
	return under(name, []string{"catalog", "cmd", "docs", "e2e", "emulator", "internal", "terraform", "xtest"})
}

func under(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return path == folder || strings.HasPrefix(path, folder+"/")
	})
}

func reach(graph map[string][]string, from string) (all []string) {
	all = slices.Clone(graph[from])
	for i := 0; i < len(all); i++ {
		for _, path := range graph[all[i]] {
			if !slices.Contains(all, path) {
				all = append(all, path)
			}
		}
	}
	return all
}

// A server without timeouts is occupied by slow senders and readers.
func TestEveryServerHasItsTimeouts(t *testing.T) {
	t.Parallel()
	servers := 0
	for path, text := range files(t, ".go") {
		for _, server := range matches(text, `&http\.Server(\{[^}]*\})`) {
			require.True(t, strings.HasSuffix(path, "_test.go") || strings.Contains(server, "ReadHeaderTimeout: ") &&
				strings.Contains(server, "WriteTimeout: "), path)
			servers++
		}
	}
	require.GreaterOrEqual(t, servers, 2)
}
