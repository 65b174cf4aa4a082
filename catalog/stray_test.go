package catalog_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

// A queue's name that is typed a second time is a name that a change of the catalog
// does not reach. Code asks the catalog; tests and docs may show names.
func TestNoQueueIsNamedOutsideTheCatalog(t *testing.T) {
	t.Parallel()
	c := from(t, "")
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	found, err := strayNames(os.DirFS(root), namesOf(c))
	require.NoError(t, err)
	require.Empty(t, found, "names of queues belong to catalog/queues.yaml alone")
	crossed := fstest.MapFS{}
	for file, text := range map[string]string{
		"a/main.go": "package a\n\nconst queue = \"search-index\"\n", "a/other.go": "var research-index, search-index2", "Makefile": "run:\n\tsend q:sub:plan_change\n",
		"main.tf": "name = \"search-index-dlq-hold\"", "a/main_test.go": "search-index", "a/testdata/b.yaml": "search-index", "docs/page.yaml": "search-index",
	} {
		crossed[file] = &fstest.MapFile{Data: []byte(text)}
	}
	found, err = strayNames(crossed, namesOf(c))
	require.NoError(t, err)
	require.Equal(t, []string{"Makefile:2: q:sub:plan_change", "a/main.go:3: search-index", "main.tf:1: search-index-dlq-hold"}, found)
}

// namesOf lists every name of a catalog, derived ones included, the longest first.
func namesOf(c *catalog.Catalog) []string {
	var names []string
	for _, q := range c.Queues {
		names = append(names, q.ID, q.PushSubscription())
		if q.Alias != "" {
			names = append(names, q.Alias)
		}
		if !q.DeadLetter.Drop {
			names = append(names, q.DeadLetter.Topic, q.DeadLetterHold(), q.DeadLetterPush())
		}
	}
	for _, topic := range c.OutboundTopics {
		if names = append(names, topic.ID); topic.Alias != "" {
			names = append(names, topic.Alias)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return len(b) - len(a) })
	return names
}

// strayNames reports each name in the Go, YAML, Terraform and Make files of a tree as
// file:line: name.
func strayNames(tree fs.FS, names []string) (found []string, err error) {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	word := regexp.MustCompile(`(?:^|[^A-Za-z0-9_-])(` + strings.Join(quoted, "|") + `)(?:$|[^A-Za-z0-9_-])`)
	err = fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if slices.Contains([]string{"catalog", "docs"}, path) || name == "testdata" || name == "bin" ||
				(strings.HasPrefix(name, ".") && !slices.Contains([]string{".", ".ci", ".github"}, name)) {
				return fs.SkipDir
			}
			return nil
		}
		read := name == "Makefile" || slices.Contains([]string{".go", ".yaml", ".yml", ".tf", ".tfvars", ".hcl"}, filepath.Ext(name))
		if !read || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		data, err := fs.ReadFile(tree, path)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(data), "\n") {
			if match := word.FindStringSubmatch(line); match != nil {
				found = append(found, fmt.Sprintf("%s:%d: %s", path, i+1, match[1]))
			}
		}
		return nil
	})
	return found, err
}
