package e2e_test

import (
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
)

// failpoints returns the declared names by their constants.
func failpoints(t *testing.T) map[string]string {
	t.Helper()
	text := filetest.Read(t, "..", "internal", "platform", "failpoint", "names.go")
	names := map[string]string{}
	for _, declared := range regexp.MustCompile(`(?m)^\t(\w+) += "(.+)"$`).FindAllStringSubmatch(text, -1) {
		names[declared[1]] = declared[2]
	}
	require.NotEmpty(t, names)
	return names
}

// A fail point that kills no worker proves nothing, and one in two places would be two.
func TestEveryFailPointIsHitInOnePlaceAndKillsAWorker(t *testing.T) {
	t.Parallel()
	names := failpoints(t)
	var hits, killed []string
	hit := regexp.MustCompile(`failpoint\.Hit\((?:failpoint\.)?(\w+)`)
	collect := func(path string, _ fs.DirEntry, err error) error {
		of := regexp.MustCompile(`(_test|testdata/.*)\.go$`)
		if err == nil && strings.HasSuffix(path, ".go") && !of.MatchString(path) {
			for _, call := range hit.FindAllStringSubmatch(filetest.Read(t, path), -1) {
				hits = append(hits, call[1])
			}
		}
		return err
	}
	require.NoError(t, filepath.WalkDir(filepath.Join("..", "internal"), collect))
	require.ElementsMatch(t, slices.Collect(maps.Keys(names)), hits)
	for _, c := range crashCases {
		for _, point := range c.points {
			name, _, _ := strings.Cut(point, ":")
			killed = append(killed, name)
		}
	}
	slices.Sort(killed)
	require.Equal(t, slices.Sorted(maps.Values(names)), slices.Compact(killed))
}

// The names are searched in a production build, and in a crash build, which proves that the search works.
func TestAReleaseHasNoFailPoints(t *testing.T) {
	t.Parallel()
	onlyInFull(t)
	release, crash := filetest.Must(services())(t), filetest.Must(crashing())(t)
	for folder, want := range map[string]bool{release: false, crash: true} {
		binary := filetest.Read(t, folder, "worker")
		for _, word := range append(slices.Collect(maps.Values(failpoints(t))), "FAILPOINT") {
			require.Equal(t, want, strings.Contains(binary, word), "%s: %s", folder, word)
		}
	}
}
