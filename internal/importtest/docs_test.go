package importtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/internal/filetest"
)

const root = "../.."

func read(t *testing.T, path string) string { return filetest.Read(t, root, path) }

func matches(text, expression string) (all []string) {
	for _, match := range regexp.MustCompile(expression).FindAllStringSubmatch(text, -1) {
		all = append(all, match[1])
	}
	return all
}

func documents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"README.md", "CONTRIBUTING.md", "docs/*.md", "docs/*/*.md", "terraform/*.md"} {
		found := filetest.Must(filepath.Glob(filepath.Join(root, pattern)))(t)
		for _, path := range found {
			path := filetest.Must(filepath.Rel(root, path))(t)
			all[path] = read(t, path)
		}
	}
	require.Greater(t, len(all), 35, "the runbooks are among them")
	return all
}

func TestWhatTheDocumentsNameExists(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, folder := range []string{"cmd", "internal", "catalog", "terraform"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") || !slices.Contains([]string{".go", ".yaml", ".tf"}, filepath.Ext(path)) {
				return err
			}
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		}))
	}
	var tests strings.Builder
	require.NoError(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			text, err := os.ReadFile(path)
			tests.Write(text)
			return err
		}
		return err
	}))
	code, makefile, words := all.String(), read(t, "Makefile"), map[string]bool{}
	for _, word := range regexp.MustCompile(`\w+`).FindAllString(code, -1) {
		words[word] = true
	}
	contains := func(document, in, what string) { // require.Contains would print the whole source on failure
		require.True(t, strings.Contains(in, what), "%s: there is no %s", document, what)
	}
	texts, seen := documents(t), 0
	texts["CHANGELOG.md"] = read(t, "CHANGELOG.md")
	for document, text := range texts {
		for _, target := range matches(text, "(?:`|\n|^)make ([a-z][a-z/-]*)") {
			contains(document, makefile, "\n"+target+":")
		}
		for _, link := range matches(text, `\]\(([^)#]+)[^)]*\)`) {
			if !strings.Contains(link, "://") {
				require.FileExists(t, filepath.Join(root, filepath.Dir(document), link), document)
			}
		}
		if document == "CHANGELOG.md" { // it tells of what was
			continue
		}
		headings := matches(text, `(?m)^(## .*)$`)
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(headings))), len(headings), "a section stands twice in %s", document)
		for _, path := range matches(text, "`((?:internal|cmd|e2e|emulator|catalog|terraform|docs)/[a-z0-9/_.-]+)`") {
			if !strings.Contains(path, "parcels") && !slices.Contains([]string{"terraform/backend.tf", "terraform/terraform.tfvars", "terraform/.terraform.lock.hcl"}, path) { // what the page has its reader write
				require.NoError(t, filetest.ErrorOf(os.Stat(filepath.Join(root, path))), document)
				seen++
			}
		}
		for _, test := range matches(text, `\b((?:Test|Fuzz|Benchmark)[A-Z]\w+)`) {
			contains(document, tests.String(), "\nfunc "+test+"(")
		}
		for _, metric := range matches(text, `\b(billhook_[a-z_]+)`) {
			contains(document, code, `("`+metric+`", "`)
		}
		for _, line := range matches(text, `"message":"([^"]+)"`) {
			contains(document, code, `"`+line+`"`)
		}
		for _, task := range matches(strings.ReplaceAll(text, "cloud.google.com/tasks/", ""), `/tasks/([a-z-]+)`) {
			contains(document, code, `"`+task+`"`)
		}
		if strings.Contains(document, "runbooks") || strings.Contains(document, "deployment") || strings.Contains(document, "installation") {
			for _, name := range matches(text, "`([A-Z]+_[A-Z_]+|[a-z]+_[a-z_]+)`") {
				require.True(t, words[name], "%s names %s", document, name)
			}
		}
		for _, folder := range matches(text, `go run \./([a-z0-9/]+)`) {
			require.DirExists(t, filepath.Join(root, folder), document)
		}
	}
	require.Greater(t, seen, 50)
}

func TestNoPageIsTooLongToRead(t *testing.T) {
	t.Parallel()
	for document, text := range documents(t) {
		most := 350
		if document == "README.md" {
			most = 160
		}
		require.LessOrEqual(t, strings.Count(text, "\n"), most, document)
	}
}

func TestTheQueueOfTheREADMEIsSound(t *testing.T) {
	t.Parallel()
	_, block, _ := strings.Cut(read(t, "README.md"), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	text := read(t, "catalog/queues.yaml")
	if !strings.Contains(text, block) { // else somebody has followed the page
		text = strings.Replace(text, "\nqueues:\n", "\nqueues:\n"+block, 1)
	}
	with := filetest.Must(catalogtest.Shipped().With(map[string]string{"queues.yaml": text}))(t)
	_, id, _ := strings.Cut(block, "- id: ")
	id, _, _ = strings.Cut(id, "\n")
	_, found := with.Queue(id)
	require.True(t, found, id)
}
