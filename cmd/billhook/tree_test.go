package main

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/console"
	"billhook/internal/filetest"
	"billhook/internal/platform/serve"
)

// tree is the program's commands.
func tree(t *testing.T) *cobra.Command {
	t.Helper()
	return programOf(t, nil, io.Discard).commands()
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
	texts := strings.Count("\n\n"+help, "\n\n# ")
	for _, command := range leaves(t) {
		name := nameOf(command)
		require.NotEmpty(t, command.Short, name)
		texts -= strings.Count("\n\n"+help, "\n\n# "+name+"\n")
		command.Flags().VisitAll(func(f *pflag.Flag) {
			require.NotEmpty(t, f.Usage, "%s --%s", name, f.Name)
		})
		require.Contains(t, command.UsageString(), "Usage:\n  "+command.UseLine(), name)
		require.Error(t, command.ParseFlags([]string{"--no-such-flag"}), name)
		if _, most, _ := strings.Cut(command.Use, " "); !strings.Contains(most, "...") {
			require.Error(t, command.ValidateArgs([]string{"a", "b", "c"}), name)
		}
	}
	require.Zero(t, texts, "a text in help.txt is of no command")
}

// notUsed are the commands that useAll leaves out, each with its reason.
var notUsed = map[string]string{
	"dev":                "it serves until Ctrl-C",
	"events tail":        "it goes on until Ctrl-C; TestATailPrintsNewAndChangedEvents runs it",
	"admin switch":       "it calls Pub/Sub",
	"admin provision":    "it calls Pub/Sub",
	"admin doctor":       "it calls Pub/Sub",
	"admin import":       "it reads Redis, RabbitMQ or Postgres",
	"ledger compare":     "it reads a file of seals",
	"ledger check-proof": "it reads a file of seals",
}

// uses has one use of each command of the program's own that a test's worker or webhook service answers.
var uses = map[string]string{
	"listen": "stripe", "providers try": "stripe -f ../../catalog/providers/samples/stripe/invoice.paid.json",
	"send": "paynow", "enqueue": "<queue>", "admin catalog check": "", "admin catalog print": "",
}

// useOf is a use of an operation's command, with all that is required.
func useOf(o console.Operation) (words []string) {
	for _, f := range o.Fields {
		value := "<" + strings.ReplaceAll(name(f), " ", "-") + ">"
		if len(f.OneOf) > 0 {
			value = f.OneOf[0]
		} else if f.Type.Kind() == reflect.Int64 {
			value = "5"
		}
		switch {
		case f.Argument:
			words = append(words, value)
		case f.Name == "why":
			words = append(words, "--why", "...")
		case f.Required:
			words = append(words, "--"+flagOf(f), value)
		}
	}
	return words
}

// useAll runs a use of each command, with further flags and a changed program, against a worker and a webhook
// service at an address, and checks each output.
func useAll(
	t *testing.T, server string, with []string,
	change func(*program), check func(t *testing.T, name, out string, err error),
) {
	t.Helper()
	c := catalogtest.Shipped()
	shop := slices.IndexFunc(c.Queues, func(q catalog.Queue) bool {
		_, takes := q.Handlers["order.shipped"]
		return takes
	})
	for _, command := range leaves(t) {
		name := nameOf(command)
		asksWhy := strings.HasPrefix(with[0], "--why=")
		if notUsed[name] != "" || asksWhy && command.Flag("why") == nil {
			continue
		}
		given := strings.Fields(uses[name])
		if o, is := known().Find(name); is {
			given = useOf(o)
		}
		for i, word := range given {
			if word == "<queue>" {
				given[i] = c.Queues[shop].ID
			}
		}
		given = append(strings.Fields(name), given...)
		for _, text := range []string{"server=" + server, "webhook=" + server, "yes=true", "wait=0"} {
			flag, _, _ := strings.Cut(text, "=")
			if command.Flag(flag) != nil || command.InheritedFlags().Lookup(flag) != nil {
				given = append(given, "--"+text)
			}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := sayWith(t, nil, change, append(given, with...)...)
			check(t, name, out, err)
		})
	}
}

// fullWorker answers with one of everything, so that a command makes all its calls. Operations are over.
func fullWorker(w http.ResponseWriter, r *http.Request) {
	answer := `{"progress":"finished","subscription":"pushing"}`
	switch path := r.URL.Path; {
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/pause"):
		answer = `{"queue":"q","pause":{"queue":"q"},"subscription":"paused"}`
	case strings.HasSuffix(path, "/preview"):
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

// The flags stand in a command's --help, and the answers in the OpenAPI document: neither is repeated here.
func TestTheReferenceListsEachCommand(t *testing.T) {
	t.Parallel()
	operations := map[string]console.Operation{}
	for _, o := range known().Operations {
		operations[o.Name] = o
	}
	const alone = "none"
	nouns, lines := []string{alone}, map[string][]string{}
	for _, command := range leaves(t) {
		usage := strings.ReplaceAll(strings.TrimSuffix(command.UseLine(), " [flags]"), "|", `\|`)
		name := nameOf(command)
		noun, _, has := strings.Cut(name, " ")
		usage = strings.TrimPrefix(usage, "billhook ")
		if !has {
			noun = alone
		}
		line := fmt.Sprintf("`%s`: %s", strings.TrimPrefix(usage, noun+" "), command.Short)
		if o, asks := operations[name]; asks {
			line += fmt.Sprintf(" (`%s`)", o.Path)
			if o.Needs == console.TwoPeople {
				line += "; takes two people known by name"
			}
			delete(operations, name)
		}
		if !slices.Contains(nouns, noun) {
			nouns = append(nouns, noun)
		}
		lines[noun] = append(lines[noun], line)
	}
	require.Empty(t, operations, "an operation without a command")
	var page strings.Builder
	page.WriteString(filetest.Read(t, "testdata", "commands.txt"))
	for _, noun := range nouns {
		fmt.Fprintf(&page, "| %s | %s |\n", noun, strings.Join(lines[noun], "<br>"))
	}
	filetest.Recorded(t, page.String(), "..", "..", "docs", "reference", "commands.md")
}

func TestTheCommandsOfTheDocumentsExist(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile("bin/billhook((?: [a-z]+(?:-[a-z]+)*)+)([^\n`#]*)")
	flags := regexp.MustCompile(`(?:^| )(--[a-z][a-z-]*)`)
	root, seen := tree(t), 0
	require.NoError(t, filepath.WalkDir("../..", func(document string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(document) != ".md" || strings.Contains(document, "node_modules") {
			return err
		}
		for _, match := range named.FindAllStringSubmatch(filetest.Read(t, document), -1) {
			// The rest may be arguments, such as the name of a source.
			command, rest, err := root.Find(strings.Fields(match[1]))
			require.NoError(t, err, document)
			require.True(t, len(rest) == 0 || !command.HasSubCommands(), "%s names %s", document, match[0])
			for _, flag := range flags.FindAllStringSubmatch(match[2], -1) {
				require.Contains(t, command.UsageString(), flag[1]+" ", "%s names %s", document, match[0])
			}
			seen++
		}
		return nil
	}))
	require.Greater(t, seen, 30)
}

func TestAWrongUseExitsWith2AndSaysWhatToType(t *testing.T) {
	t.Parallel()
	for arguments, want := range filetest.YAML[map[string]string](t, "testdata", "wrong.yaml") {
		t.Run(arguments, func(t *testing.T) {
			t.Parallel()
			_, err := say(t, nil, strings.Fields(arguments)...)
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, "\nusage: billhook")
			require.Equal(t, misused, serve.ExitCode(err))
		})
	}
}

func TestOnlyTheStatus400IsAWrongUse(t *testing.T) {
	t.Parallel()
	for status, code := range map[int]int{
		http.StatusBadRequest: 2, http.StatusUnauthorized: 1, http.StatusNotFound: 1, http.StatusConflict: 1,
		http.StatusServiceUnavailable: 1,
	} {
		worker := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			answering(`{"code":"some_code","detail":"Some words."}`)(w, r)
		}))
		out, err := say(t, map[string]string{"BILLHOOK_SERVER": worker + "/"}, "queues", "ls")
		require.ErrorContains(t, err, "Some words. (some_code)")
		require.Equal(t, code, serve.ExitCode(err), status)
		require.Empty(t, out, "an error is no output")
	}
	_, err := say(t, map[string]string{"BILLHOOK_SERVER": "http://127.0.0.1:1"}, "queues", "ls")
	require.Equal(t, 1, serve.ExitCode(err), "an unreachable server is a failure, not a wrong use")
}

func TestTheServerFlagReplacesTheServerOfTheEnvironment(t *testing.T) {
	t.Parallel()
	requests := make(chan string, 2)
	worker := func(name string) string {
		return listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			token := r.Header.Get("Authorization") + r.Header.Get("Proxy-Authorization")
			requests <- name + r.URL.Path + " " + r.Header.Get("X-Operator") + " " + token
			answering(`{}`)(w, r)
		}))
	}
	environment := map[string]string{"OPS_OPERATOR": "ada", "OPS_TOKEN": "token"}
	environment["BILLHOOK_SERVER"] = worker("environment")
	succeeds(t, environment, "queues", "ls")
	require.Equal(t, "environment/v1/ops/queues ada Bearer token", <-requests)
	succeeds(t, environment, "queues", "ls", "--server", worker("flag"))
	require.Equal(t, "flag/v1/ops/queues ada Bearer token", <-requests)
	succeeds(t, map[string]string{"BILLHOOK_SERVER": worker("proxy"), "IAP_TOKEN": "signed"}, "queues", "ls")
	require.Equal(t, "proxy/v1/ops/queues  Bearer signed", <-requests, "the token is for the proxy alone")
}

func TestTheShellCompletesValues(t *testing.T) {
	t.Parallel()
	queue := catalogtest.Shipped().Queues[0].ID
	worker := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, known := map[string]string{
			"/v1/ops/events":     `{"items":[{"event_id":"e-7","queue":"q","status":"FAILED"}]}`,
			"/v1/ops/operations": `{"items":[{"id":"op-7","kind":"replay","filter":{"queue":"q"}}]}`,
			"/v1/ops/endpoints":  `{"items":[{"id":"partner-7","state":"enabled"}]}`,
			"/v1/ops/products":   `{"items":[{"id":"new-product"}]}`,
		}[r.URL.RequestURI()]
		if !known {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(answer))
	}))
	for line, want := range map[string]string{
		"dlq ls |":               "\n" + queue + "\n",
		"enqueue |":              "\n" + queue + "\n",
		"events ls --queue |":    "\n" + queue + "\n",
		"events ls --status |":   "\nDEAD_LETTERED\n",
		"dlq ls x --state |":     "\ncorrected\n",
		"events show |":          "\ne-7\tq\n",
		"operations approve |":   "\nop-7\treplay\n",
		"endpoints show |":       "\npartner-7\n",
		"products set |":         "\nnew-product",
		"send paynow --sample |": "\nrefund\n",
		"catalog show |":         "\n" + queue + "\n",
		"dlq show |":             "\n:4\n", // nothing, and no file
		"ledger check-proof |":   "\n:0\n", // files
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			given, _, _ := strings.Cut(line, "|")
			arguments := append(append([]string{"__complete"}, strings.Fields(given)...), "")
			out := succeeds(t, map[string]string{"BILLHOOK_SERVER": worker}, arguments...)
			require.Contains(t, "\n"+out, want)
			out = succeeds(t, map[string]string{"BILLHOOK_SERVER": "http://127.0.0.1:1"}, arguments...)
			require.Contains(t, "\n"+out, "\n:", "without a worker")
		})
	}
}
