package main

import (
	stdflag "flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"billhook/internal/compose/operations"
	"billhook/internal/console"
)

var update = stdflag.Bool("update", false, "write docs/reference anew")

// needs says what an operation asks of its caller.
var needs = map[console.Needs]string{console.Look: "", console.Act: "acts", console.Reason: "changes: a reason", console.TwoPeople: "changes: a reason, and two people known by name"}

func TestTheReferenceIsThatOfTheProgram(t *testing.T) {
	t.Parallel()
	var commands, routes strings.Builder
	commands.WriteString("# Commands\n\nMade of the program by `go test ./cmd/billhook -run Reference -update`. Every command has `-o table|json|csv`, `--wide` and `--help`; a list has `--watch`.\n\n| command | what it does | flags |\n| --- | --- | --- |\n")
	for _, command := range leaves(t) {
		var flags []string
		command.Flags().VisitAll(func(f *pflag.Flag) {
			if !slices.Contains([]string{"help", "server", "watch", "json", "output", "wide"}, f.Name) {
				flags = append(flags, "`--"+f.Name+"`")
			}
		})
		fmt.Fprintf(&commands, "| `%s` | %s | %s |\n", strings.ReplaceAll(strings.TrimSuffix(command.UseLine(), " [flags]"), "|", `\|`), command.Short, strings.Join(flags, " "))
	}
	routes.WriteString("# Routes\n\nMade of the program by `go test ./cmd/billhook -run Reference -update`. `GET /v1/ops/openapi.json` has each with its parameters, bodies and answers, as OpenAPI 3.1. A change takes an `Idempotency-Key`: sent again with the same key, it is done once.\n\n| route | operation | what it does | needs |\n| --- | --- | --- | --- |\n")
	for _, o := range operations.All(operations.Apps{}).Operations {
		fmt.Fprintf(&routes, "| `%s` | `%s` | %s | %s |\n", o.Path, o.Name, o.Summary, needs[o.Needs])
	}
	for name, text := range map[string]string{"commands.md": commands.String(), "routes.md": routes.String()} {
		path := filepath.Join("..", "..", "docs", "reference", name)
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}
		page, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, string(page), "run it with -update")
	}
}
