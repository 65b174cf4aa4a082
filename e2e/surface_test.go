package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"go.yaml.in/yaml/v3"

	"billhook/e2e"
	"billhook/internal/compose/operations"
	"billhook/internal/console/api"
	"billhook/internal/filetest"
	"billhook/internal/platform/boltstore"
	"billhook/internal/platform/store"
)

// TestTheSurfaceIsAsRecorded has a Billhook on the stand-ins do a bit of everything, and compares its surface
// with testdata/surface: the answers to webhooks and messages, the log lines of each event, every GET route
// of the API, every command, and every stored document. An intended change is written by
//
//	go test ./e2e -run TestTheSurfaceIsAsRecorded -update
func TestTheSurfaceIsAsRecorded(t *testing.T) {
	t.Parallel()
	onlyInFull(t) // a process for each command
	const slow = `{ minimum_backoff: "600s", maximum_backoff: "600s", multiplier: 2, jitter: "0s" }`
	folder := changedCatalog(t, `jitter: "30s"`, `jitter: "0s"`, `nack_budget: "10s"`, `nack_budget: "3600s"`,
		`minimum_backoff: "60s"`, `minimum_backoff: "0.1s"`, `minimum_backoff: "10s"`, `minimum_backoff: "0.1s"`,
		`minimum_backoff: "5s"`, `minimum_backoff: "600s"`,
		"{ name: points.reverse }", "{ name: points.reverse, retry_policy: "+slow+" }")
	r := &surface{
		t: t, stack: startEmbedded(t, loaded(t, folder)), began: time.Now(), catalogFolder: folder,
		folder: t.TempDir(), files: map[string][]any{},
		names: map[string]string{"month": time.Now().UTC().Format("2006-01")},
	}
	require.NoError(t, yaml.Unmarshal([]byte(filetest.Read(t, "testdata", "surface.yaml")), r))
	r.seed()
	r.routes()
	r.commands()
	r.until(t, "fails-1", "processed") // replayed by a command
	r.settled()
	r.lines()
	r.close()
	r.stored()
	r.compare()
}

// surface records the surface of a stack. Its routes and commands are in testdata/surface.yaml.
type surface struct {
	t      *testing.T
	*stack `yaml:"-"`
	began  time.Time

	Routes       map[string][]string   `yaml:"routes"`
	Commands     map[string][][]string `yaml:"commands"`
	AlsoWrites   []string              `yaml:"also_writes"`
	SecondPerson []string              `yaml:"second_person"`
	NotRun       map[string]string     `yaml:"not_run"`
	Differs      map[string]string     `yaml:"differs"`

	// catalogFolder has the catalog. folder is where commands run.
	catalogFolder, folder string
	files                 map[string][]any
	// names are the names of random ids, for paths and commands.
	names map[string]string
	// waits are the events that do not end.
	waits []string
}

func (r *surface) seen(file string, entry map[string]any) {
	r.files[file] = append(r.files[file], entry)
}

// content is a body or an output as an entry shows it: as JSON if it is that, else by lines.
func content(text []byte) any {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var values []any
	for decoder.More() {
		var value any
		if decoder.Decode(&value) != nil {
			return strings.Split(strings.TrimSpace(string(text)), "\n")
		}
		values = append(values, value)
	}
	if len(values) == 1 {
		return values[0]
	}
	return values
}

// named replaces names in a path or an argument by their ids, as in <dead-letter>.
func (r *surface) named(text string) string {
	return regexp.MustCompile(`<[a-z-]+>`).ReplaceAllStringFunc(text, func(name string) string {
		value, ok := r.names[strings.Trim(name, "<>")]
		require.True(r.t, ok, "nothing is named %s", name)
		return value
	})
}

func (r *surface) routes() {
	var known []string
	router := chi.NewRouter()
	server := &api.Server{Catalog: operations.All(operations.Apps{})}
	server.Routes(router)
	server.Scripts(router, operations.Scripts(operations.Apps{}))
	walk := func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if method == http.MethodGet {
			known = append(known, route)
		}
		return nil
	}
	require.NoError(r.t, chi.Walk(router, walk))
	require.ElementsMatch(r.t, known, slices.Collect(maps.Keys(r.Routes)), "surface.yaml has all routes")
	for _, route := range slices.Sorted(maps.Keys(r.Routes)) {
		for _, path := range r.Routes[route] {
			url := r.workerURL + r.named(path)
			const late = "could not be tried in time" // a preview has one second
			var got e2e.Answer
			for got.Body = late; strings.Contains(got.Body, late); {
				got = filetest.Must(e2e.Do(e2e.Request(r.t.Context(), http.MethodGet, url, nil, nil)))(r.t)
			}
			group := strings.Split(strings.TrimPrefix(strings.TrimPrefix(route, "/v1/ops/"), "/api/v1/"), "/")[0]
			entry := map[string]any{"get": path, "status": got.Status, "answer": content([]byte(got.Body))}
			r.seen("routes/"+group, entry)
		}
	}
}

// commandsOf are the commands below one, by their full names, from its help.
func (r *surface) commandsOf(parents ...string) (all []string) {
	out, _, _ := r.run("", append(slices.Clone(parents), "--help")...)
	_, list, _ := strings.Cut(string(out), "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	name := strings.Join(parents, " ")
	if name != "" && (list == "" || strings.Contains(string(out), "\n  billhook "+name+" [flags]\n")) {
		all = append(all, name)
	}
	for line := range strings.Lines(list) {
		if name := strings.Fields(line)[0]; name != "completion" && name != "help" { // Cobra's
			all = append(all, r.commandsOf(append(slices.Clone(parents), name)...)...)
		}
	}
	return all
}

// run runs a command as a person.
func (r *surface) run(who string, arguments ...string) (out, errs []byte, exit int) {
	command := operator(r.t, []string{
		"OPS_OPERATOR=" + who, "BILLHOOK_SERVER=" + r.workerURL, "BILLHOOK_WEBHOOK=" + r.webhookURL,
		"CATALOG_DIR=" + r.catalogFolder,
		"WEBHOOK_SECRET_PAYNOW=" + e2e.Secret, "WEBHOOK_SIGNING_SECRET=" + e2e.Secret,
	}, arguments...)
	command.Dir = r.folder
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		_, ended := errors.AsType[*exec.ExitError](err)
		require.True(r.t, ended, "%v", err)
	}
	return stdout.Bytes(), stderr.Bytes(), command.ProcessState.ExitCode()
}

// commands runs every command: first those that only read, then the others.
func (r *surface) commands() {
	body := platformEvent("by-command", "invoice_generation", `{"subscription_id":"s-1"}`)
	require.NoError(r.t, os.WriteFile(filepath.Join(r.folder, "message.json"), []byte(body), 0o600))
	proof, _, _ := r.run("ada", "ledger", "prove", "dev-invoice", "-o", "json")
	require.NoError(r.t, os.WriteFile(filepath.Join(r.folder, "kept.proof"), proof, 0o600))
	require.NoError(r.t, os.CopyFS(filepath.Join(r.folder, "samples"), os.DirFS("../catalog/providers/samples")))
	r.run("ada", "seals", "ls", "--all", "-o", "json", "--out", "kept.seals")
	known := slices.DeleteFunc(r.commandsOf(), func(name string) bool { return r.NotRun[name] != "" })
	require.ElementsMatch(r.t, known, slices.Collect(maps.Keys(r.Commands)), "surface.yaml has all commands")
	for _, writes := range []bool{false, true} {
		for _, name := range slices.Sorted(maps.Keys(r.Commands)) {
			for _, arguments := range r.Commands[name] {
				if (slices.Contains(arguments, "--why") || slices.Contains(r.AlsoWrites, name)) != writes {
					continue
				}
				who := "ada"
				if slices.Contains(r.SecondPerson, name) {
					who = "grace"
				}
				line := append(strings.Fields(name), arguments...)
				with := []string{"--json"}
				for _, argument := range line {
					with = append(with, r.named(argument))
				}
				out, errs, exit := r.run(who, with...)
				entry := map[string]any{"billhook": strings.Join(line, " "), "exit": exit, "out": content(out)}
				if len(errs) > 0 {
					entry["errors"] = content(errs)
				}
				r.seen("commands/"+strings.Fields(name)[0], entry)
			}
		}
	}
}

// lines records the log lines of each event, in their order, and all others once each.
func (r *surface) lines() {
	of, others := map[string][]any{}, map[string]any{}
	for line := range strings.Lines(r.log.Text()) {
		logged, _ := content([]byte(line)).(map[string]any)
		shown := r.shown("", logged)
		event, _ := logged["event_id"].(string)
		same := func(before any) bool { return fmt.Sprint(before) == fmt.Sprint(shown) }
		if event = r.text(event); event == "" {
			others[fmt.Sprint(shown)] = shown
		} else if !slices.ContainsFunc(of[event], same) {
			of[event] = append(of[event], shown) // once for any number of attempts
		}
	}
	for _, event := range slices.Sorted(maps.Keys(of)) {
		slices.SortStableFunc(of[event], func(a, b any) int { return early(a) - early(b) })
		r.seen("log/events", map[string]any{"event": event, "lines": of[event]})
	}
	for _, line := range slices.Sorted(maps.Keys(others)) {
		r.seen("log/others", map[string]any{"line": others[line]})
	}
}

// early is the position of a line that is written concurrently with others.
func early(line any) int {
	shown, _ := line.(map[string]any)
	return (slices.Index([]string{"webhook", "message", "received"}, fmt.Sprint(shown["message"])) + 4) % 4
}

// stored records all documents of all collections, once the store is closed.
func (r *surface) stored() {
	var collections []string
	file := filetest.Must(bbolt.Open(r.storeFile, 0o600, &bbolt.Options{ReadOnly: true}))(r.t)
	require.NoError(r.t, file.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
			if regexp.MustCompile(`^[a-zA-Z]+$`).Match(name) { // the others are indexes
				collections = append(collections, string(name))
			}
			return nil
		})
	}))
	require.NoError(r.t, file.Close())
	documents := filetest.Must(boltstore.Open(r.storeFile))(r.t)
	defer func() { require.NoError(r.t, documents.Close()) }()
	for _, collection := range collections {
		page, err := documents.Query(r.t.Context(), store.Query{Collection: collection, Limit: 1000})
		require.NoError(r.t, err)
		require.Empty(r.t, page.Next)
		for _, doc := range page.Documents {
			fields := filetest.Must(json.Marshal(doc.Fields))(r.t)
			file := "documents/" + collection
			if unit, _, _ := strings.Cut(doc.Key.ID, "-"); collection == "rates" {
				file += "-" + unit
			}
			if collection != "rates" || r.files[file] == nil { // the test may run in two hours or days
				r.seen(file, map[string]any{"id": doc.Key.ID, "fields": content(fields)})
			}
		}
	}
}
