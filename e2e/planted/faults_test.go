package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A fault whose text has moved, or whose test is gone, is found here, and not only by the run that plants
// them all.
func TestEveryFaultStandsInItsFileOnce(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	tests := map[string]string{} // the text of all tests of a package
	for _, f := range faults {
		text, err := os.ReadFile(filepath.Join(root, f.file))
		require.NoError(t, err, f.says)
		assert.Equal(t, 1, strings.Count(string(text), f.old), "%s: %s", f.says, f.old)
		assert.NotEqual(t, f.old, f.new, f.says)
		if tests[f.pkg] == "" {
			files, err := filepath.Glob(filepath.Join(root, f.pkg, "*_test.go"))
			require.NoError(t, err)
			for _, file := range files {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				tests[f.pkg] += "\n" + string(text)
			}
		}
		assert.True(t, strings.Contains(tests[f.pkg], "\nfunc "+f.test+"("), "%s: %s has no %s", f.says, f.pkg, f.test)
	}
}
