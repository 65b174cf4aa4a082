package main

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"billhook/internal/filetest"
)

func TestEachAcceptedSurvivorNamesAFunctionOfAMeasuredPackageAndAReason(t *testing.T) {
	t.Parallel()
	var accepted []acceptance
	require.NoError(t, yaml.Unmarshal(acceptedFile, &accepted))
	require.NotEmpty(t, accepted)
	named := map[place]bool{}
	for _, a := range accepted {
		require.Contains(t, packages, a.Package)
		require.NotEmpty(t, a.Mutation, "%s", a.place)
		require.NotEmpty(t, a.Why, "%s", a.place)
		require.False(t, named[a.place], "%s is listed twice", a.place)
		named[a.place] = true
	}
	for _, pkg := range packages {
		paths := filetest.Must(filepath.Glob(filepath.Join("..", "..", pkg, "*.go")))(t)
		require.NotEmpty(t, paths, "%s is no package", pkg)
		for _, path := range paths {
			functions := filetest.Must(functionsOf(path))(t)
			maps.DeleteFunc(named, func(p place, _ bool) bool {
				return p.Package == pkg && slices.Contains(functions, p.Function)
			})
		}
	}
	require.Empty(t, named, "there are no such functions")
}

func TestASurvivorThatIsNotAcceptedIsRefusedAndAKilledOneReported(t *testing.T) {
	t.Parallel()
	found := score{pkg: "p", lines: map[place][]string{
		{"p", "Known", "NEGATION"}: {"a.go:1", "a.go:2"},
		{"p", "More", "NEGATION"}:  {"a.go:7", "a.go:8"},
		{"p", "New", "NEGATION"}:   {"a.go:9"},
	}}
	unknown, stale := judge(found, []acceptance{
		{place: place{"p", "Known", "NEGATION"}, Times: 2},
		{place: place{"p", "More", "NEGATION"}},
		{place: place{"p", "Killed", "NEGATION"}},
		{place: place{"other", "Killed", "NEGATION"}},
	})
	require.Len(t, unknown, 2)
	require.Contains(t, unknown[0], "More")
	require.Contains(t, unknown[1], "New")
	require.Len(t, stale, 1)
	require.Contains(t, stale[0], "Killed")
}
