package importtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A server without timeouts is occupied by slow senders and readers.
func TestEveryServerHasItsTimeouts(t *testing.T) {
	t.Parallel()
	found := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			literal, ok := node.(*ast.CompositeLit)
			if !ok || types.ExprString(literal.Type) != "http.Server" {
				return true
			}
			found++
			set := map[string]bool{}
			for _, element := range literal.Elts {
				set[types.ExprString(element.(*ast.KeyValueExpr).Key)] = true
			}
			require.True(t, set["ReadHeaderTimeout"] && set["WriteTimeout"], files.Position(literal.Pos()))
			return true
		})
		return nil
	}))
	require.GreaterOrEqual(t, found, 2)
}
