// Package filetest has helpers of tests: they read files and results, compare output with the file that
// records it, and run tables of tests and tests in bubbles of time. It owns the flag -update, which writes
// such files anew. It refuses to guess: a missing file, mark or result ends the test.
package filetest

import (
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// Update is whether a test writes what it records, instead of comparing it.
var Update = flag.Bool("update", false, "write what tests record anew")

func helps(t require.TestingT) func() {
	if h, ok := t.(interface{ Helper() }); ok {
		return h.Helper
	}
	return func() {}
}

// Must returns the result of a call that has to succeed, as in Must(call())(t).
func Must[T any](answer T, err error) func(require.TestingT) T {
	return func(t require.TestingT) T {
		helps(t)()
		require.NoError(t, err)
		return answer
	}
}

// Both returns the two results of a call that has to succeed.
func Both[T, U any](one T, other U, err error) func(require.TestingT) (T, U) {
	return func(t require.TestingT) (T, U) {
		helps(t)()
		require.NoError(t, err)
		return one, other
	}
}

// ErrorOf returns the error of a call whose result does not matter.
func ErrorOf[T any](_ T, err error) error { return err }

// Map returns the results of a function for each element of a list; nil for an empty one.
func Map[T, R any](list []T, result func(T) R) (all []R) {
	for _, one := range list {
		all = append(all, result(one))
	}
	return all
}

// Each runs a parallel subtest for each row of a table, under its name.
func Each[T any](t *testing.T, table map[string]T, test func(t *testing.T, row T)) {
	t.Helper()
	for name, row := range table {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, row)
		})
	}
}

// JSON decodes a text.
func JSON[T any, S ~string | ~[]byte](t require.TestingT, text S) (answer T) {
	helps(t)()
	require.NoError(t, json.Unmarshal([]byte(text), &answer), string(text))
	return answer
}

// Read returns the file at the parts of a path.
func Read(t require.TestingT, path ...string) string {
	helps(t)()
	return string(Must(os.ReadFile(filepath.Join(path...)))(t))
}

// YAML decodes the file at the parts of a path. A key without a field is an error.
func YAML[T any](t require.TestingT, path ...string) (all T) {
	helps(t)()
	decoder := yaml.NewDecoder(strings.NewReader(Read(t, path...)))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&all), filepath.Join(path...))
	return all
}

// Tree returns the texts of the files below a folder whose paths, from there and with slashes, are wanted.
func Tree(t require.TestingT, folder string, wanted func(path string) bool) map[string]string {
	helps(t)()
	texts := map[string]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(folder), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err == nil && entry.IsDir() && slices.Contains([]string{".git", "bin", ".terraform"}, entry.Name()):
			return fs.SkipDir
		case err == nil && !entry.IsDir() && wanted(path):
			texts[path] = Read(t, folder, path)
		}
		return err
	}))
	return texts
}

// IsSource reports whether a path is that of Go code outside tests and kits for tests.
func IsSource(path string) bool {
	return filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go") &&
		!strings.HasSuffix(filepath.Dir(path), "test")
}

// Replace replaces each old text in the file at the parts of a path. There has to be one.
func Replace(t require.TestingT, old, replacement string, path ...string) {
	helps(t)()
	text, file := Read(t, path...), filepath.Join(path...)
	require.Contains(t, text, old, file)
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, old, replacement)), 0o600))
}

// Recorded compares a text with the file that records it.
func Recorded(t require.TestingT, text string, path ...string) {
	helps(t)()
	if *Update {
		require.NoError(t, os.WriteFile(filepath.Join(path...), []byte(text), 0o600))
	}
	require.Equal(t, Read(t, path...), text, "go test with -update writes it anew")
}

// Part compares a text with the part of a file between two marks, which have to be there.
func Part(t require.TestingT, text, begin, end string, path ...string) {
	helps(t)()
	before, rest, begins := strings.Cut(Read(t, path...), begin)
	_, after, ends := strings.Cut(rest, end)
	require.True(t, begins && ends, "%s has lost its marks %s and %s", filepath.Join(path...), begin, end)
	Recorded(t, before+begin+text+end+after, path...)
}
