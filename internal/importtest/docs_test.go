package importtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWhatTheDocumentsNameExists checks make targets, links, and the variables of the
// README's table.
func TestWhatTheDocumentsNameExists(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		return string(text)
	}
	makefile := read("Makefile")
	documents := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md", filepath.Join("docs", "design.md"), filepath.Join("docs", "exactly-once.md")}
	for _, document := range documents {
		text := read(document)
		for _, match := range regexp.MustCompile("(?:`|\n|^)make ([a-z][a-z-]*)").FindAllStringSubmatch(text, -1) {
			require.Contains(t, makefile, "\n"+match[1]+":", "%s names make %s", document, match[1])
		}
		for _, match := range regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`).FindAllStringSubmatch(text, -1) {
			if !strings.Contains(match[1], "://") {
				require.FileExists(t, filepath.Join(root, filepath.Dir(document), match[1]), document)
			}
		}
	}
	code := read("cmd/webhook/run.go") + read("cmd/worker/run.go") + read("cmd/billhook/run.go") + read("catalog/sources.yaml") +
		read("internal/gcp/firestore/firestore.go")
	table, _, _ := strings.Cut(read("README.md"), "## Add a queue")
	_, table, _ = strings.Cut(table, "## Configuration")
	variables := regexp.MustCompile("`([A-Z][A-Z_]{2,})`").FindAllStringSubmatch(table, -1)
	require.NotEmpty(t, variables)
	for _, match := range variables {
		if match[1] != "INFO" {
			require.Contains(t, code, match[1])
		}
	}
}
