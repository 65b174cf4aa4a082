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

// A fail point that kills no worker proves nothing, and one in two places would be two. A release has none.
func TestEveryFailPointIsHitInOnePlaceAndKillsAWorker(t *testing.T) {
	t.Parallel()
	text := filetest.Read(t, "..", "internal", "platform", "failpoint", "names.go")
	names := map[string]string{} // by their constants
	for _, declared := range regexp.MustCompile(`(?m)^\t(\w+) += "(.+)"$`).FindAllStringSubmatch(text, -1) {
		names[declared[1]] = declared[2]
	}
	require.NotEmpty(t, names)
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
	if testing.Short() {
		return // it compiles both
	}
	release := filetest.Read(t, filetest.Must(services())(t), "worker")
	crash := filetest.Read(t, filetest.Must(crashing())(t), "worker")
	for _, name := range append(slices.Sorted(maps.Values(names)), "FAILPOINT") {
		require.False(t, strings.Contains(release, name), "%s is in a release", name)
		require.True(t, strings.Contains(crash, name), "the search finds %s", name)
	}
}
