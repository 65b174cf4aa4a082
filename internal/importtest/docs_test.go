package importtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

// TestTheTargetsLinksAndVariablesOfTheDocumentsExist checks the make targets, the links, and the variables in the
// table of docs/configuration.md.
func TestTheTargetsLinksAndVariablesOfTheDocumentsExist(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		return string(text)
	}
	makefile := read("Makefile")
	for _, document := range append(documents(t, root), "CHANGELOG.md") {
		text := read(document)
		for _, match := range regexp.MustCompile("(?:`|\n|^)make ([a-z][a-z/-]*)").FindAllStringSubmatch(text, -1) {
			require.Contains(t, makefile, "\n"+match[1]+":", "%s names make %s", document, match[1])
		}
		for _, match := range regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`).FindAllStringSubmatch(text, -1) {
			if !strings.Contains(match[1], "://") {
				require.FileExists(t, filepath.Join(root, filepath.Dir(document), match[1]), document)
			}
		}
	}
	code := read("cmd/webhook/main.go") + read("cmd/worker/main.go") + read("cmd/billhook/main.go") + read("catalog/sources.yaml") + read("catalog/targets.yaml") +
		read("internal/platform/gcp/firestore/firestore.go")
	table, _, _ := strings.Cut(read("docs/configuration.md"), "## Tasks")
	variables := regexp.MustCompile("`([A-Z][A-Z_]{2,})`").FindAllStringSubmatch(table, -1)
	require.NotEmpty(t, variables)
	for _, match := range variables {
		if match[1] != "INFO" {
			require.Contains(t, code, match[1])
		}
	}
}

// documents lists the documents for users, without the changelog.
func documents(t *testing.T, root string) []string {
	t.Helper()
	all := []string{"README.md", "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*.md", "docs/runbooks/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, path := range found {
			path, err := filepath.Rel(root, path)
			require.NoError(t, err)
			all = append(all, path)
		}
	}
	require.Greater(t, len(all), 12, "the runbooks are among them")
	return all
}

// TestTheCommandsOfTheDocumentsExist runs each command of the documents with --help and looks
// for its flags there.
func TestTheCommandsOfTheDocumentsExist(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	program := filepath.Join(t.TempDir(), "billhook")
	said, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", program, "billhook/cmd/billhook").CombinedOutput()
	require.NoError(t, err, string(said))
	helps := map[string]string{}
	help := func(words []string) string {
		key := strings.Join(words, " ")
		if _, ok := helps[key]; !ok {
			said, err := exec.CommandContext(t.Context(), program, append(words, "--help")...).CombinedOutput()
			require.NoError(t, err, string(said))
			helps[key] = string(said)
		}
		return helps[key]
	}
	command := regexp.MustCompile("bin/billhook((?: [a-z]+)+)([^\n`#]*)")
	flag := regexp.MustCompile(`(?:^| )(--[a-z][a-z-]*)`)
	seen := 0
	for _, document := range documents(t, root) {
		text, err := os.ReadFile(filepath.Join(root, document))
		require.NoError(t, err)
		for _, match := range command.FindAllStringSubmatch(string(text), -1) {
			words := strings.Fields(match[1])
			written := len(words)
			for len(words) > 1 && !strings.Contains(help(words), "\n  billhook "+strings.Join(words, " ")) {
				words = words[:len(words)-1]
			}
			about := help(words)
			if len(words) < written { // the rest may be arguments, such as the name of a source
				require.NotContains(t, about, "Available Commands:", "%s names bin/billhook%s", document, match[1])
			}
			require.Contains(t, about, "\n  billhook "+strings.Join(words, " "), "%s names bin/billhook%s", document, match[1])
			for _, name := range flag.FindAllStringSubmatch(match[2], -1) {
				require.Contains(t, about, name[1]+" ", "%s names bin/billhook%s%s", document, match[1], match[2])
			}
			seen++
		}
	}
	require.Greater(t, seen, 30)
}

// TestTheMetricsAndLogLinesOfTheDocumentsExist checks metrics, log lines, reasons, tasks and variables.
func TestTheMetricsAndLogLinesOfTheDocumentsExist(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
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
	code := all.String()
	contains := func(document, what string) { // require.Contains would print the whole source on failure
		require.True(t, strings.Contains(code, what), "%s: the code has no %s", document, what)
	}
	for _, document := range documents(t, root) {
		file, err := os.ReadFile(filepath.Join(root, document))
		require.NoError(t, err)
		text := string(file)
		for _, metric := range regexp.MustCompile(`\bbillhook_[a-z_]+`).FindAllString(text, -1) {
			contains(document, `("`+metric+`", "`)
		}
		for _, line := range regexp.MustCompile(`"message":"([^"]+)"`).FindAllStringSubmatch(text, -1) {
			contains(document, `"`+line[1]+`"`)
		}
		ours := strings.ReplaceAll(text, "cloud.google.com/tasks/", "")
		for _, task := range regexp.MustCompile(`/tasks/([a-z-]+)`).FindAllStringSubmatch(ours, -1) {
			contains(document, `"/tasks/`+task[1]+`"`)
		}
		if strings.Contains(document, "runbooks") || strings.Contains(document, "deploying") {
			for _, name := range regexp.MustCompile("`([A-Z]+_[A-Z_]+|[a-z]+_[a-z_]+)`").FindAllStringSubmatch(text, -1) {
				require.True(t, regexp.MustCompile(`\b`+name[1]+`\b`).MatchString(code), "%s names %s", document, name[1])
			}
		}
		for _, folder := range regexp.MustCompile(`go run \./([a-z0-9/]+)`).FindAllStringSubmatch(text, -1) {
			require.DirExists(t, filepath.Join(root, folder[1]), document)
		}
	}
}

func TestThePathsOfTheDocumentsExist(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	seen := 0
	for _, document := range documents(t, root) {
		text, err := os.ReadFile(filepath.Join(root, document))
		require.NoError(t, err)
		for _, path := range regexp.MustCompile("`((?:internal|cmd|e2e|emulator|catalog|terraform|docs)/[a-z0-9/_.-]+)`").FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(path[1], "parcels") || path[1] == "terraform/backend.tf" { // what the page has its reader write
				continue
			}
			_, err := os.Stat(filepath.Join(root, path[1]))
			require.NoError(t, err, document)
			seen++
		}
	}
	require.Greater(t, seen, 50)
}

func TestTheQueueOfTheREADMEIsSound(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	_, block, _ := strings.Cut(string(readme), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	queues, err := os.ReadFile(filepath.Join(root, "catalog", "queues.yaml"))
	require.NoError(t, err)
	shipped, err := catalog.Load("")
	require.NoError(t, err)
	with, err := shipped.With(map[string]string{"queues.yaml": strings.Replace(string(queues), "\nqueues:\n", "\nqueues:\n"+block, 1)})
	require.NoError(t, err)
	require.Len(t, with.Queues, len(shipped.Queues)+1)
}
