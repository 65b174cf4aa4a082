package catalog_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/filetest"
)

// small is the folder of the catalog that most tests change. crooked has everything that is easy to fill in
// differently.
var small, crooked = filepath.Join("testdata", "small"), filepath.Join("testdata", "crooked")

func from(t *testing.T, folder string) *catalog.Catalog {
	t.Helper()
	return filetest.Must(catalog.Load(folder))(t)
}

func like(t *testing.T, folder string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(folder)))
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func edited(t *testing.T, folder, file, old, replacement string) string {
	t.Helper()
	was := filetest.Read(t, folder, file)
	require.Contains(t, was, old)
	return like(t, folder, map[string]string{file: strings.Replace(was, old, replacement, 1)})
}

func posting(t *testing.T) string {
	t.Helper()
	dir := edited(t, small, "queues.yaml", "handlers:\n      reminder: { name: letters.send }",
		"enabled: true\n    batch: { size: 5, wait: \"0.02s\" }\n    handlers:\n      reminder: { post: { "+
			"target: post-office, path: /v1/letters, reconcile: \"/v1/letters/{id}\" } }")
	return like(t, dir, map[string]string{"targets.yaml": filetest.Read(t, crooked, "targets.yaml")})
}

func shipped(t *testing.T, files map[string]string) string {
	t.Helper()
	names := filetest.Must(filepath.Glob("*.yaml"))(t)
	providers := filetest.Must(filepath.Glob("providers/*.yaml"))(t)
	all := map[string]string{}
	for _, name := range append(names, providers...) {
		all[name] = filetest.Read(t, ".", name)
	}
	maps.Copy(all, files)
	return like(t, t.TempDir(), all)
}

func withJournal(t *testing.T, more, messages string) string {
	t.Helper()
	return declaring(t, shipped(t, map[string]string{
		"journal.yaml": filetest.Read(t, "testdata", "journal.yaml") + more,
	}), messages)
}

// declaring is like a folder, with more lines of its messages.
func declaring(t *testing.T, folder, messages string) string {
	t.Helper()
	was := filetest.Read(t, folder, "messages.yaml")
	return like(t, folder, map[string]string{"messages.yaml": was + messages})
}

// change is a row of testdata/mistakes.yaml, which says what each member is.
type change struct{ What, Old, With, Messages, Loader string }

var lineOfFile = regexp.MustCompile(`(?m)^([a-z/]+\.yaml):[0-9]+:`)

// Those wanted are one a line, in any order and without their lines in the files.
func requireMistakes(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		require.NoError(t, err)
		return
	}
	require.Error(t, err, want)
	have := lineOfFile.ReplaceAllString(err.Error(), "$1:")
	if among, ok := strings.CutPrefix(want, "~ "); ok {
		require.Contains(t, have, among)
		return
	}
	require.ElementsMatch(t, strings.Split(want, "\n"), strings.Split(have, "\n"))
}

func TestEachMistakeNamesItsFileEntryAndKey(t *testing.T) {
	t.Parallel()
	all := filetest.YAML[map[string]map[string][]change](t, "testdata", "mistakes.yaml")
	require.Len(t, all, 4)
	for of, files := range all {
		for file, changes := range files {
			for _, c := range changes {
				t.Run(of+" "+file+": "+c.What, func(t *testing.T) {
					t.Parallel()
					folder := map[string]func() string{
						"small": func() string { return declaring(t, small, c.Messages) },
						"posts": func() string { return posting(t) }, "shipped": func() string { return shipped(t, nil) },
						"journal": func() string { return withJournal(t, "", c.Messages) },
					}[of]()
					if c.Old == "" {
						folder = like(t, folder, map[string]string{file: c.With})
					} else {
						folder = edited(t, folder, file, c.Old, c.With)
					}
					_, err := catalog.Load(folder)
					requireMistakes(t, err, c.Loader)
					requireLines(t, err, folder)
				})
			}
		}
	}
}

// The line of a mistake begins with the key, or with the entry that lacks the key.
func requireLines(t *testing.T, err error, dir string) {
	t.Helper()
	for _, m := range catalog.Mistakes(err) {
		if m.Line == 0 {
			require.Empty(t, m.Where, m)
			continue
		}
		if slices.Contains([]string{"usage.yaml", "journal.yaml"}, m.File) || strings.HasSuffix(m.Key, `""`) {
			continue // several entries stand on one line, or the key is none
		}
		line := strings.Split(filetest.Read(t, dir, m.File), "\n")[m.Line-1]
		said := strings.TrimLeft(line, " -{?[\"")
		// an entry without an id
		if strings.Contains(m.Where, " number ") || strings.Contains(m.Key, "[") &&
			strings.HasPrefix(m.File, "providers/") {
			require.True(t, strings.HasPrefix(strings.TrimSpace(line), "- "), m)
			continue
		}
		if m.File == "messages.yaml" { // a declaration stands on one line
			require.Contains(t, line, ": {", m)
			continue
		}
		names := append(strings.FieldsFunc(m.Key, func(r rune) bool { return strings.ContainsRune(`."[]`, r) }),
			"id", strings.Trim(m.Where[strings.LastIndex(m.Where, " ")+1:], `"`))
		require.True(t, slices.ContainsFunc(names, func(name string) bool {
			return name != "" && strings.HasPrefix(said, name)
		}), "%s: line %d is %s", m, m.Line, line)
	}
}

func TestAllMistakesAreReportedTogether(t *testing.T) {
	t.Parallel()
	_, err := catalog.Load(filepath.Join("testdata", "wrong"))
	requireMistakes(t, err, strings.Join([]string{
		"products.yaml: product 1001: points: must be 1 to 1000000000",
		"products.yaml: product 1002: points: must be a whole number",
		"products.yaml: product 1002: price: unknown key",
		"queues.yaml: defaults.lease: must be a duration in seconds, in quotes, such as \"600s\"",
		"queues.yaml: queue bookings: ack_deadline_seconds: must be above handler_timeout, 90s",
		"queues.yaml: queue bookings: handlers.seat.freed.emits: no queue or topic has the id box-office",
		"queues.yaml: queue bookings: handlers.seat.freed.retries: unknown key",
		"queues.yaml: queue bookings: handlers.seat.taken.timeout: must be below ack_deadline_seconds, 60s",
		"queues.yaml: queue bookings: retry_policy.minimum_backoff: must be at most maximum_backoff, 600s",
		"queues.yaml: queue number 2: id: must be 3 to 246 of a-z, 0-9 and -, begin with a letter, and " +
			"not with goog",
		"queues.yaml: queue number 2: pool: must be a string",
		"queues.yaml: queue number 2: remember_for: must be above 0s unless the queue is unordered, tries once, " +
			"drops what fails, refuses corrections, and emits nothing: without records that is all it can do",
		"sources.yaml: source box-office: events.seat.sold: queue bookings handles only seat.freed, seat.taken",
		"sources.yaml: source box-office: events.seat.taken: no queue has the id reminders",
		"sources.yaml: source box-office: secret_variable: must be an environment variable that begins " +
			"with WEBHOOK_",
	}, "\n"))
}

func TestAFolderNeedsQueuesSourcesAndProducts(t *testing.T) {
	t.Parallel()
	dir := like(t, small, nil)
	require.NoError(t, os.Remove(filepath.Join(dir, "products.yaml")))
	_, err := catalog.Load(dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "products.yaml: ")
	_, err = catalog.Load(filepath.Join(dir, "elsewhere"))
	var joined interface{ Unwrap() []error }
	require.ErrorAs(t, err, &joined)
	require.Len(t, joined.Unwrap(), 3)
}
