package lifecycle_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"billhook/catalog"
	"billhook/emulator/cloudtest"
	"billhook/internal/filetest"
)

var page = filepath.Join(repository, "docs", "reference", "changes.md")

//go:embed testdata/changes.yaml
var changesFile string

// changes are one example of each of the root module's variables and of each key of a queue, by its name.
func changes(t *testing.T) (all map[string]map[string]any) {
	t.Helper()
	text := strings.NewReplacer(
		"<events>", events.ID, "<updates>", updates.ID, "<added>", another.ID, "<pool>", events.Pool,
		"<worker>", "worker-"+events.Pool,
		"<webhook-b>", image("webhook", 'b'), "<worker-b>", image("worker", 'b'), "<project>", cloudtest.Project,
		"<region>", region,
	).Replace(changesFile)
	require.NoError(t, yaml.Unmarshal([]byte(text), &all))
	return all
}

func (i *installation) did() string {
	i.t.Helper()
	said, err := i.terraform("plan", "-json", "-input=false", "-refresh=false", "-parallelism=30")
	does := map[string][]string{}
	for text := range strings.Lines(said) {
		var line struct {
			Type   string
			Change struct {
				Action   string
				Resource struct {
					Type string `json:"resource_type"`
				}
			}
			Diagnostic struct{ Severity, Summary, Detail string }
		}
		if json.Unmarshal([]byte(text), &line) != nil {
			continue
		}
		switch kind, action := line.Change.Resource.Type, line.Change.Action; {
		case line.Type == "diagnostic" && line.Diagnostic.Severity == "error":
			i.t.Log(line.Diagnostic.Summary, line.Diagnostic.Detail)
			return "refused"
		case line.Type != "planned_change" || actions[action] == "" || kind == "terraform_data": // Terraform's own
		case holds[kind] && (action == "delete" || action == "replace"):
			does["refused"] = append(does["refused"], i.thing(kind))
		default:
			does[actions[action]] = append(does[actions[action]], i.thing(kind))
		}
	}
	what := func(action string) string {
		slices.Sort(does[action])
		return action + ": " + strings.Join(slices.Compact(does[action]), ", ")
	}
	if does["refused"] != nil {
		return what("refused") + " would go"
	}
	var parts []string
	for _, action := range []string{"new", "in place", "made anew", "gone"} {
		if does[action] != nil {
			parts = append(parts, what(action))
		}
	}
	if parts == nil {
		require.NoError(i.t, err, said)
		return "nothing"
	}
	return strings.Join(parts, "; ")
}

var actions = map[string]string{
	"create": "new", "update": "in place", "replace": "made anew", "delete": "gone",
}

// holds are the resources that refuse to be deleted while they are protected.
var holds = map[string]bool{
	"google_pubsub_topic": true, "google_pubsub_subscription": true, "google_firestore_database": true,
}

func (i *installation) thing(kind string) string {
	i.t.Helper()
	if strings.HasSuffix(kind, "_iam_member") {
		return "grants"
	}
	word, known := changes(i.t)["words"][kind].(string)
	require.True(i.t, known, "name %s in the words of the page", kind)
	return word
}

// setKey sets a key of the queue of PayNow's events in the catalog's copy.
func (i *installation) setKey(key string, value any) {
	i.t.Helper()
	path := filepath.Join(i.folder, "..", "catalog", "queues.yaml")
	file, set := filetest.YAML[map[string]any](i.t, path), false
	for _, q := range file["queues"].([]any) {
		if members := q.(map[string]any); members["id"] == events.ID {
			members[key], set = value, true
		}
	}
	require.True(i.t, set)
	require.NoError(i.t, os.WriteFile(path, filetest.Must(yaml.Marshal(file))(i.t), 0o600))
}

// What the page says of each change is what a plan does about it, in a shop that runs.
func TestEachChangeDoesWhatThePageSays(t *testing.T) {
	t.Parallel()
	installed(t)
	var mu sync.Mutex
	saw := map[string]map[string]string{"variables": {}, "keys": {}}
	t.Run("changes", func(t *testing.T) {
		all := changes(t)
		for of := range saw {
			examples := all[of]
			for name, to := range examples {
				t.Run(of+"/"+name, func(t *testing.T) {
					t.Parallel()
					i := installed(t)
					switch {
					case of == "keys":
						i.setKey(name, to)
					case name == "queues":
						i.with(withAnother(t))
					case name == "secret_versions":
						i.cloud.AddVersion("billhook-delivery-signing-secret")
					}
					if of == "variables" {
						i.with(variables{name: to})
					}
					did := i.did()
					mu.Lock()
					defer mu.Unlock()
					saw[of][name] = did
					if !*filetest.Update {
						require.Equal(t, rows(t, of)[name], did,
							"go test ./terraform/lifecycle -run ThePage -update writes it anew")
					}
				})
			}
		}
	})
	for of := range saw {
		if *filetest.Update {
			write(t, of, saw[of])
		}
	}
}

// marks are what stands around a table of the page.
func marks(of string) (begin, end string) {
	const test = ": go test ./terraform/lifecycle -run ThePage -update -->\n"
	return "<!-- " + of + test, "<!-- end of " + of + " -->"
}

func table(t *testing.T, of string) string {
	t.Helper()
	begin, end := marks(of)
	_, rest, begins := strings.Cut(filetest.Read(t, page), begin)
	text, _, ends := strings.Cut(rest, end)
	require.True(t, begins && ends)
	return text
}

// row is a row of the page: what is changed, what a plan says, and what the page has to say about it.
var row = regexp.MustCompile("(?m)^\\| (`.+?`) \\| (.*?) \\| ?(.*?) ?\\|$")

// rows are what a plan says of each change.
func rows(t *testing.T, of string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, cells := range row.FindAllStringSubmatch(table(t, of), -1) {
		for name := range strings.SplitSeq(cells[1], ", ") {
			found[strings.Trim(name, "`")] = cells[2]
		}
	}
	return found
}

// write writes what plans have done. What the page says about a change is its own. Changes of which it says
// nothing share a row with those that do the same.
func write(t *testing.T, of string, saw map[string]string) {
	t.Helper()
	text := table(t, of)
	head, _, _ := strings.Cut(text, "| `")
	said, alike := map[string]bool{}, map[string][]string{}
	for _, cells := range row.FindAllStringSubmatch(text, -1) {
		if name := strings.Trim(cells[1], "`"); cells[3] != "" && saw[name] != "" {
			head += fmt.Sprintf("| `%s` | %s | %s |\n", name, saw[name], cells[3])
			said[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(saw)) {
		if !said[name] {
			alike[saw[name]] = append(alike[saw[name]], "`"+name+"`")
		}
	}
	for _, did := range slices.Sorted(maps.Keys(alike)) {
		head += fmt.Sprintf("| %s | %s |  |\n", strings.Join(alike[did], ", "), did)
	}
	begin, end := marks(of)
	filetest.Part(t, head, begin, end, page)
}

var variableName = regexp.MustCompile(`(?m)^variable "([^"]+)"`)

// Who adds a variable, or a key of a queue, says what it does to an installation that runs.
func TestThePageHasEveryVariableAndEveryKeyOfAQueue(t *testing.T) {
	t.Parallel()
	keys, names := []string{"ack_deadline_seconds"}, []string(nil)
	for _, field := range reflect.VisibleFields(reflect.TypeFor[catalog.Queue]()) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" {
			keys = append(keys, name)
		}
	}
	files, err := filepath.Glob(filepath.Join(repository, "terraform", "*.tf"))
	require.NoError(t, err)
	for _, file := range files {
		for _, found := range variableName.FindAllStringSubmatch(filetest.Read(t, file), -1) {
			names = append(names, found[1])
		}
	}
	examples := changes(t)
	for of, want := range map[string][]string{"variables": names, "keys": keys} {
		require.ElementsMatch(t, want, slices.Collect(maps.Keys(rows(t, of))), "docs/reference/changes.md, %s", of)
		require.ElementsMatch(t, want, slices.Collect(maps.Keys(examples[of])), "testdata/changes.yaml, %s", of)
	}
}
