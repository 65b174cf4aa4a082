package main

import (
	stdflag "flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/compose/operations"
	"billhook/internal/console"
	"billhook/internal/platform/serve"
)

// tree is the program's commands.
func tree(t *testing.T) *cobra.Command {
	t.Helper()
	p, err := newProgram(func(string) string { return "" }, io.Discard)
	require.NoError(t, err)
	return p.commands()
}

// leaves are the program's own commands that do something.
func leaves(t *testing.T) (all []*cobra.Command) {
	t.Helper()
	root := tree(t)
	var walk func(*cobra.Command)
	walk = func(command *cobra.Command) {
		if command.Name() == "completion" || command.Name() == "help" {
			return // Cobra's
		}
		if !command.HasSubCommands() {
			all = append(all, command)
		}
		for _, sub := range command.Commands() {
			walk(sub)
		}
	}
	walk(root)
	return all
}

func TestEveryCommandAndFlagSaysWhatItIs(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, command := range leaves(t) {
		name := nameOf(command)
		known[name] = true
		require.NotEmpty(t, command.Short, name)
		require.NotEmpty(t, command.Example, "%s: there is none", name)
		command.Flags().VisitAll(func(f *pflag.Flag) {
			require.NotEmpty(t, f.Usage, "%s --%s", name, f.Name)
		})
		out, err := say(t, nil, append(strings.Fields(name), "--help")...)
		require.NoError(t, err, name)
		require.Contains(t, out, "Usage:\n  "+command.UseLine(), name)
		require.Contains(t, out, strings.TrimSpace(command.Example), name)
		_, err = say(t, nil, append(strings.Fields(name), "--no-such-flag")...)
		require.Equal(t, misused, serve.ExitCode(err), name)
		if _, most, _ := strings.Cut(command.Use, " "); !strings.Contains(most, "...") {
			_, err = say(t, nil, append(strings.Fields(name), "a", "b", "c")...)
			require.Equal(t, misused, serve.ExitCode(err), "%s with three arguments", name)
			require.ErrorContains(t, err, command.UseLine(), name)
		}
	}
	for name := range examples {
		require.True(t, known[name], "there is no command %s", name)
	}
}

// notAsked are the commands that the test below leaves out, each with its reason.
var notAsked = map[string]string{
	"dev":                "it serves until Ctrl-C",
	"events tail":        "it goes on until Ctrl-C; TestATailPrintsWhatIsNewOrHasChanged runs it",
	"admin switch":       "it asks Pub/Sub",
	"admin provision":    "it asks Pub/Sub",
	"admin doctor":       "it asks Pub/Sub",
	"admin import":       "it asks Redis, RabbitMQ or Postgres",
	"ledger compare":     "it reads a file of seals",
	"ledger check-proof": "it reads a file of seals",
}

// examplesOf runs the examples of all commands, side by side, against a worker and a door at an address.
// Each has the flags with besides, and a program that is changed. It gives each output to its check.
func examplesOf(t *testing.T, server string, with []string, change func(*program), check func(t *testing.T, name, out string, err error)) {
	t.Helper()
	message := filepath.Join(t.TempDir(), "message.json")
	require.NoError(t, os.WriteFile(message, []byte(`{}`), 0o600))
	c, err := catalog.Load("")
	require.NoError(t, err)
	shop := slices.IndexFunc(c.Queues, func(q catalog.Queue) bool { _, takes := q.Handlers["order.shipped"]; return takes })
	replaced := map[string]string{
		"<queue>": c.Queues[shop].ID, "./catalog": filepath.Join("..", "..", "catalog"),
		"message.json": message,
		"--out":        "", "november.csv": "", ">": "", "order-7.proof": "", // what goes without --json
	}
	for _, command := range leaves(t) {
		name := nameOf(command)
		var answered []string // by the worker and the door of this test, without a question
		for flag, value := range map[string]string{"server": server, "webhook": server, "yes": "true", "wait": "0"} {
			if command.Flag(flag) != nil || command.InheritedFlags().Lookup(flag) != nil {
				answered = append(answered, "--"+flag+"="+value)
			}
		}
		for example := range strings.Lines(command.Example) {
			t.Run(strings.TrimSpace(example), func(t *testing.T) {
				t.Parallel()
				line, _, _ := strings.Cut(strings.TrimSpace(example), " | ")
				given := words(line)
				for strings.Contains(given[0], "=") {
					given = given[1:]
				}
				require.Equal(t, "billhook", strings.TrimPrefix(given[0], "bin/"))
				given = given[1:]
				require.Equal(t, strings.Fields(name), given[:len(strings.Fields(name))])
				if notAsked[name] != "" {
					requireRightUse(t, given)
					return
				}
				for i, word := range given {
					if with, ok := replaced[word]; ok {
						given[i] = with
					}
				}
				given = append(slices.DeleteFunc(given, func(word string) bool { return word == "" }), answered...)
				out, err := sayWith(t, nil, change, append(given, with...)...)
				check(t, name, out, err)
			})
		}
	}
}

// fullWorker answers what has one of everything, so that a command asks all that it may ask. Nobody waits for an operation.
func fullWorker(w http.ResponseWriter, r *http.Request) {
	answer := `{"progress":"finished","subscription":"pushing"}`
	switch path := r.URL.Path; {
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/pause"):
		answer = `{"queue":"q","pause":{"queue":"q"},"subscription":"paused"}`
	case strings.HasSuffix(path, "/dead-letters/preview"), strings.HasPrefix(path, "/v1/ops/operations/") && strings.HasSuffix(path, "/preview"):
		answer = `{"total":1}`
	case strings.HasPrefix(path, "/v1/ops/operations/"), strings.HasPrefix(path, "/v1/ops/dead-letters/"):
		answer = `{"id":"operation","progress":"finished","outcomes":{}}`
	case path == "/v1/ops/journal/tenants":
		answer = `{"items":["default"]}`
	case strings.HasPrefix(path, "/v1/ops/usage/"):
		answer = `{"period":"2026-11","meters":{"calls":{}}}`
	}
	_, _ = io.WriteString(w, answer)
}

// requireRightUse checks the flags and the arguments, and runs nothing.
func requireRightUse(t *testing.T, given []string) {
	t.Helper()
	root := tree(t)
	command, rest, err := root.Find(given)
	require.NoError(t, err)
	require.NoError(t, command.ParseFlags(rest))
	require.NoError(t, command.ValidateArgs(command.Flags().Args()))
}

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
