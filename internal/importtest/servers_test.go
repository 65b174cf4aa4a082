package importtest

import (
	"go/ast"
	"go/parser"
	"go/token"
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
	root := filepath.Join("..", "..")
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
			if !ok {
				return true
			}
			name, ok := literal.Type.(*ast.SelectorExpr)
			if !ok || name.Sel.Name != "Server" {
				return true
			}
			if from, isName := name.X.(*ast.Ident); !isName || from.Name != "http" {
				return true
			}
			found++
			set := map[string]bool{}
			for _, element := range literal.Elts {
				if pair, isPair := element.(*ast.KeyValueExpr); isPair {
					if key, isName := pair.Key.(*ast.Ident); isName {
						set[key.Name] = true
					}
				}
			}
			for _, timeout := range []string{"ReadHeaderTimeout", "WriteTimeout"} {
				require.True(t, set[timeout], "%s: http.Server without %s", files.Position(literal.Pos()), timeout)
			}
			return true
		})
		return nil
	}))
	require.GreaterOrEqual(t, found, 2)
}
