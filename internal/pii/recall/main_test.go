package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheReadmeHasTheTablesThatTheCommandWrites(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it draws two million ids")
	}
	have, want, err := generate(filepath.Join("..", "..", ".."))
	require.NoError(t, err)
	require.Equal(t, want, have, "run: go run ./internal/pii/recall")
}

func TestAllButPhonesAreFoundAndNoIDIsRefused(t *testing.T) {
	t.Parallel()
	r := measure(1000, 5000)
	for _, one := range r.recalls {
		if one.kind != "phone" {
			require.Equal(t, [3]int{r.texts, r.texts, r.texts}, one.found, "%s %s", one.kind, one.name)
		}
	}
	for _, one := range r.refused {
		if one.chance {
			require.Less(t, one.hits, r.drawn/20, one.name)
			continue
		}
		require.Zero(t, one.hits, one.name)
	}
}

func TestTheSameSeedDrawsTheSame(t *testing.T) {
	t.Parallel()
	first, second := measure(20, 20), measure(20, 20)
	require.Equal(t, first.table(), second.table())
}

func TestWhatIsNotAllIsNotAHundredPercent(t *testing.T) {
	t.Parallel()
	require.Equal(t, "99.9 %", percent(99_999, 100_000))
	require.Equal(t, "100 %", percent(7, 7))
	require.Equal(t, "3.7 %", percent(379, 10_000))
}

func TestMarksThatAreGoneAreAMistake(t *testing.T) {
	t.Parallel()
	_, err := written("no marks", "x")
	require.ErrorContains(t, err, "README.md")
	document, err := written(begin+"old\n"+end+"rest", "new\n")
	require.NoError(t, err)
	require.Equal(t, begin+"new\n"+end+"rest", document)
}
