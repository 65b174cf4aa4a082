package e2e_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/e2e"
)

// failpoints are the names that the package declares, by their constants.
func failpoints(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "internal", "failpoint", "names.go"), nil, 0)
	require.NoError(t, err)
	names := map[string]string{}
	ast.Inspect(file, func(node ast.Node) bool {
		if spec, ok := node.(*ast.ValueSpec); ok {
			for i, name := range spec.Names {
				value, err := strconv.Unquote(spec.Values[i].(*ast.BasicLit).Value)
				require.NoError(t, err)
				names[name.Name] = value
			}
		}
		return true
	})
	require.NotEmpty(t, names)
	return names
}

// hits are the constants that the program passes to failpoint.Hit, each as often as it
// does. Anything else that it passes stands there as it is written.
func hits(t *testing.T, tree fs.FS) []string {
	t.Helper()
	var found []string
	require.NoError(t, fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != ".":
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(tree, path)
		if err != nil {
			return err
		}
		const call = "failpoint.Hit("
		for line := range strings.Lines(string(text)) {
			if _, rest, ok := strings.Cut(line, call); ok {
				argument, _, _ := strings.Cut(rest, ")")
				found = append(found, strings.TrimPrefix(argument, "failpoint."))
			}
		}
		return nil
	}))
	return found
}

// A fail point that no worker ever dies at proves nothing, and one that stands in two
// places is two.
func TestEveryFailPointIsHitInOnePlaceAndKillsAWorker(t *testing.T) {
	t.Parallel()
	names := failpoints(t)
	declared := slices.Sorted(maps.Keys(names))
	require.Equal(t, declared, slices.Sorted(slices.Values(hits(t, os.DirFS("..")))))
	killed := map[string]bool{}
	for _, c := range crashCases {
		for _, point := range c.points {
			name, _, _ := strings.Cut(point, ":")
			killed[name] = true
		}
	}
	require.Equal(t, slices.Sorted(maps.Values(names)), slices.Sorted(maps.Keys(killed)))
}

// TestAReleaseHasNoFailPoints looks for their names in what is built for production,
// and, so that looking proves something, in what is built for the crashes.
func TestAReleaseHasNoFailPoints(t *testing.T) {
	t.Parallel()
	words := append(slices.Collect(maps.Values(failpoints(t))), "FAILPOINT")
	for name, test := range map[string]struct {
		tags []string
		want bool
	}{
		"a release holds none":          {nil, false},
		"a build for crashes holds all": {[]string{"failpoints"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			require.NoError(t, e2e.Build(t.Context(), folder, test.tags...))
			binary, err := os.ReadFile(filepath.Join(folder, "worker"))
			require.NoError(t, err)
			for _, word := range words {
				require.Equal(t, test.want, bytes.Contains(binary, []byte(word)), word)
			}
		})
	}
}
