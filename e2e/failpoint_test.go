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

// failpoints returns the declared names by their constants.
func failpoints(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "internal", "platform", "failpoint", "names.go"), nil, 0)
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

// hits returns the arguments of all calls of failpoint.Hit: the constants, or other expressions
// as written.
func hits(t *testing.T, tree fs.FS) []string {
	t.Helper()
	var found []string
	require.NoError(t, fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != ".":
			return fs.SkipDir
		case entry.IsDir() && entry.Name() == "testdata": // other programs
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

// A fail point that kills no worker proves nothing. One in two places is two.
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

// TestAReleaseHasNoFailPoints looks for the names in a production build. It also looks in a
// crash build, which proves that the search works.
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
