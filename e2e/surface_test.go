package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"github.com/stretchr/testify/assert"
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

// TestTheSurfaceIsAsRecorded has a Billhook on the stand-ins do a bit of everything, and compares what can be
// seen of it with testdata/surface: what each webhook and message was answered, the log lines of each event,
// every GET route of the API, every command of the command line, and every stored document. A change that is
// meant is written by
//
//	go test ./e2e -run TestTheSurfaceIsAsRecorded -update
func TestTheSurfaceIsAsRecorded(t *testing.T) {
	t.Parallel()
	onlyInFull(t) // a process for each command
	folder := changedCatalog(t, `minimum_backoff: "60s"`, `minimum_backoff: "0.1s"`, `jitter: "30s"`,
		`jitter: "0s"`,
		`minimum_backoff: "10s"`, `minimum_backoff: "0.1s"`, `minimum_backoff: "5s"`, `minimum_backoff: "600s"`,
		"{ name: points.reverse }",
		`{ name: points.reverse, retry_policy: { minimum_backoff: "600s", maximum_backoff: "600s", multiplier: `+
			`2, jitter: "0s" } }`, `nack_budget: "10s"`, `nack_budget: "3600s"`)
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

// surface records what can be seen of a stack. What is asked is in testdata/surface.yaml.
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
	// names are what ids that are made at random stand for, and names in tables of paths and commands.
	names map[string]string
	// waits are the events that come to no end.
	waits []string
}

func (r *surface) seen(file string, entry map[string]any) {
	r.files[file] = append(r.files[file], entry)
}

// content is a body or an output as an entry shows it: as JSON where it is that, else by lines.
func content(text []byte) any {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var values []any
	for {
		var value any
		err := decoder.Decode(&value)
		switch {
		case errors.Is(err, io.EOF) && len(values) == 1:
			return values[0]
		case errors.Is(err, io.EOF):
			return values
		case err != nil:
			return strings.Split(strings.TrimSpace(string(text)), "\n")
		}
		values = append(values, value)
	}
}

// named puts what names stand for into a path or an argument, as in <dead-letter>.
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
	require.NoError(r.t,
		chi.Walk(router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
			if method == http.MethodGet {
				known = append(known, route)
			}
			return nil
		}))
	require.ElementsMatch(r.t, known, slices.Collect(maps.Keys(r.Routes)),
		"surface.yaml has the routes that there are")
	for _, route := range slices.Sorted(maps.Keys(r.Routes)) {
		for _, path := range r.Routes[route] {
			status, body := r.get(path)
			// a preview has a second for all of its trials
			for bytes.Contains(body, []byte("could not be tried in time")) {
				status, body = r.get(path)
			}
			group := strings.Split(strings.TrimPrefix(strings.TrimPrefix(route, "/v1/ops/"), "/api/v1/"), "/")[0]
			r.seen("routes/"+group, map[string]any{"get": path, "status": status, "answer": content(body)})
		}
	}
}

func (r *surface) get(path string) (status int, body []byte) {
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.workerURL+r.named(path),
		http.NoBody)
	require.NoError(r.t, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(r.t, err)
	body, err = io.ReadAll(answer.Body)
	require.NoError(r.t, errors.Join(err, answer.Body.Close()))
	return answer.StatusCode, body
}

// commandsOf are the commands below one, by their whole names, as its help has them.
func (r *surface) commandsOf(parents ...string) (all []string) {
	out, _, _ := r.run("", append(slices.Clone(parents), "--help")...)
	_, list, _ := strings.Cut(string(out), "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	if name := strings.Join(parents, " "); name != "" &&
		(list == "" || strings.Contains(string(out), "\n  billhook "+name+" [flags]\n")) {
		all = append(all, name)
	}
	for line := range strings.Lines(list) {
		if name := strings.Fields(line)[0]; name != "completion" && name != "help" { // Cobra's
			all = append(all, r.commandsOf(append(slices.Clone(parents), name)...)...)
		}
	}
	return all
}

// run runs a command as a person, whose errors are its other output.
func (r *surface) run(who string, arguments ...string) (out, errs []byte, exit int) {
	binary := filetest.Must(program())(r.t)
	command := exec.CommandContext(r.t.Context(), binary, arguments...)
	command.Env = []string{
		"OPS_OPERATOR=" + who, "BILLHOOK_SERVER=" + r.workerURL, "BILLHOOK_WEBHOOK=" + r.webhookURL,
		"CATALOG_DIR=" + r.catalogFolder,
		"WEBHOOK_SECRET_PAYNOW=" + e2e.Secret, "WEBHOOK_SIGNING_SECRET=" + e2e.Secret, "HOME=" + r.catalogFolder,
	}
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
	require.ElementsMatch(r.t, known, slices.Collect(maps.Keys(r.Commands)),
		"surface.yaml has the commands that there are")
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

// lines are the log lines of each event, in their order, and all others once each.
func (r *surface) lines() {
	of, others := map[string][]any{}, map[string]any{}
	for line := range strings.Lines(r.log.Text()) {
		logged, _ := content([]byte(line)).(map[string]any)
		shown := r.shown("", logged)
		event, _ := logged["event_id"].(string)
		if event = r.text(event); event == "" {
			others[fmt.Sprint(shown)] = shown
		} else if !slices.ContainsFunc(of[event], func(before any) bool {
			return fmt.Sprint(before) == fmt.Sprint(shown)
		}) {
			of[event] = append(of[event], shown) // once, however often it was tried
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

// early is the place of a line that is written while others are, and may come before them or behind them.
func early(line any) int {
	shown, _ := line.(map[string]any)
	return (slices.Index([]string{"webhook", "message", "received"}, fmt.Sprint(shown["message"])) + 4) % 4
}

// stored are all documents of all collections, of the store that is closed.
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
			if collection != "rates" || r.files[file] == nil { // of hours and days the test may be in two
				r.seen(file, map[string]any{"id": doc.Key.ID, "fields": content(fields)})
			}
		}
	}
}

// What differs from run to run, in texts.
var (
	moments  = regexp.MustCompile(`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})`)
	variable = []struct {
		of *regexp.Regexp
		as string
	}{
		{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`), "uuid"},
		{regexp.MustCompile(`(\b|%7E)0*1[6-9]\d{14}\b`), "${1}message"},
		{regexp.MustCompile(`\b92\d{17}\b`), "backwards"},
		{regexp.MustCompile(`\b20\d{6}(\d\d)?-\d+\b`), "day-shard"},
		{regexp.MustCompile(`(^|[^:0-9a-f])[0-9a-f]{64}\b`), "${1}hash"},
		{regexp.MustCompile(`(^|devel:)[0-9a-f]{8}$`), "${1}hash"},
		{regexp.MustCompile(`^\(devel\)$|^v0\.0\.0-.*`), "version"},
		{regexp.MustCompile(`[0-9a-f]{8}(-[a-z-]+~~message|-local:[a-z]+~uuid)`), "hash$1"},
		{regexp.MustCompile(`[0-9a-f]{16}-([a-z-]+(~|%7E)message)`), "hash-$1"},
		{regexp.MustCompile(`("version":")[1-9]\d*`), "${1}version"}, // of a record
		// a month closes a while after it is asked for
		{regexp.MustCompile(`"state":"closing"`), `"state":"closed"`},
		{regexp.MustCompile(`whsec_[A-Za-z0-9+/=]+`), "whsec_secret"},
		{regexp.MustCompile(`\b2026-11\b`), "<month>"}, // an example in texts
		{regexp.MustCompile(`"version":"\d+"`), `"version":"number"`},
		{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:port"},
		// by what is counted now and then
		{regexp.MustCompile(`; \d+ % of the attempts failed in the last hour`), ""},
	}
)

// text is a text without what differs from run to run. The times of the samples are months ago, and whole
// seconds.
func (r *surface) text(of string) string {
	of = moments.ReplaceAllStringFunc(of, func(moment string) string {
		at, err := time.Parse(time.RFC3339Nano, moment)
		if err == nil && at.Before(r.began.AddDate(0, -2, 0)) && at.Nanosecond() == 0 &&
			strings.HasPrefix(moment, "2026-0") {
			return moment
		}
		return "time"
	})
	for name, value := range r.names {
		of = strings.ReplaceAll(of, value, "<"+name+">")
	}
	for _, v := range variable {
		of = v.of.ReplaceAllString(of, v.as)
	}
	return of
}

// shown is a value without what differs from run to run.
func (r *surface) shown(name string, value any) any {
	if as := r.Differs[name]; as != "" && value != nil && value != "" {
		return as
	}
	if _, text := value.(string); name == "version" && text && value != "0" {
		return "version" // of a record; a number is that of a message's contract
	}
	if name == "state" && value == "closing" {
		return "closed" // after a minute
	}
	if name == "state" && value == "failing" {
		return "ok" // until the attempts are counted
	}
	switch v := value.(type) {
	case string:
		return r.text(v)
	case []string:
		for i := range v {
			v[i] = r.text(v[i])
		}
	case json.Number:
		if text := r.text(v.String()); text != v.String() {
			return text
		}
	case []any:
		for i := range v {
			v[i] = r.shown(name, v[i])
		}
		if anyOrder(name, v) {
			slices.SortFunc(v, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
	case map[string]any:
		shown := map[string]any{}
		for member, inner := range v {
			if _, is := inner.(string); is && member == "cause" && v["last_hour"] != nil {
				continue // of a queue it has what was counted by then
			}
			_, number := inner.(json.Number)
			ofTarget := v["breaker_failures"] != nil &&
				slices.Contains([]string{"answers", "instances", "last"}, member)
			if number && v["in"] != nil || ofTarget || member == "payload_hash" && v["event_type"] == "product.sold" {
				inner = "counted" // by the hour, and now and then; and a product is sold at another time
			}
			shown[r.text(member)] = r.shown(member, inner)
		}
		return shown
	}
	return value
}

// anyOrder reports whether the order of a list differs from run to run: of events, since some are handled
// side by side.
func anyOrder(name string, list []any) bool {
	return name == "findings" || !slices.ContainsFunc(list, func(one any) bool {
		member, _ := one.(map[string]any)
		return member["event_id"] == nil
	})
}

func (r *surface) compare() {
	root := filepath.Join("testdata", "surface")
	got := map[string]string{}
	for file, entries := range r.files {
		for i := range entries {
			entries[i] = r.shown("", entries[i])
		}
		if strings.HasPrefix(file, "documents/") { // some are by ids made at random
			slices.SortStableFunc(entries, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		require.NoError(r.t, encoder.Encode(entries))
		got[file+".json"] = text.String()
	}
	if *filetest.Update {
		require.NoError(r.t, os.RemoveAll(root))
		for file, text := range got {
			require.NoError(r.t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755))
			require.NoError(r.t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o600))
		}
	}
	recorded := filetest.Must(filepath.Glob(filepath.Join(root, "*", "*.json")))(r.t)
	for _, path := range recorded {
		file := filetest.Must(filepath.Rel(root, path))(r.t)
		want := filetest.Read(r.t, path)
		require.Contains(r.t, got, filepath.ToSlash(file), "there is nothing of this file any more")
		is, was := strings.Split(got[filepath.ToSlash(file)], "\n"), strings.Split(want, "\n")
		for i := range was {
			if i >= len(is) || is[i] != was[i] {
				assert.Fail(r.t, "it differs from the recording", "%s:%d: it was\n%s\nand is\n%s", path, i+1,
					strings.Join(was[i:min(i+5, len(was))], "\n"), strings.Join(is[min(i, len(is)):min(i+5, len(is))], "\n"))
				break
			}
		}
	}
	require.Len(r.t, recorded, len(got), "there is a file of each group: see the comment of this test")
}
