package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A fault whose text has moved is found here, and not only by the run that plants them all.
func TestEveryFaultStandsInItsFileOnce(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	for _, f := range faults {
		text, err := os.ReadFile(filepath.Join(root, f.file))
		assert.NoError(t, err, f.says)
		assert.Equal(t, 1, strings.Count(string(text), f.old), "%s: %s", f.says, f.old)
		assert.NotEqual(t, f.old, f.new, f.says)
		assert.DirExists(t, filepath.Join(root, f.pkg), f.says)
	}
}
