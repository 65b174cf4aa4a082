package pii_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the tables of docs/personal-data.md anew")

// TestThePageOfPersonalDataHasTheDetectorsRecall measures how much of what is personal the
// detectors find, and how many ids they take for it by chance. The generators of both know
// nothing of the detectors.
func TestThePageOfPersonalDataHasTheDetectorsRecall(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it draws two million ids")
	}
	page := filepath.Join("..", "..", "docs", "personal-data.md")
	have, err := os.ReadFile(page)
	require.NoError(t, err)
	measured := measure(texts, drawn)
	want, err := written(string(have), measured.table())
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(have), "run: go test ./internal/pii -run Recall -update")
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

func TestAShareBelowAllIsBelowAHundredPercent(t *testing.T) {
	t.Parallel()
	require.Equal(t, "99.9 %", percent(99_999, 100_000))
	require.Equal(t, "100 %", percent(7, 7))
	require.Equal(t, "3.7 %", percent(379, 10_000))
}

func TestMarksThatAreGoneAreAMistake(t *testing.T) {
	t.Parallel()
	_, err := written("no marks", "x")
	require.ErrorContains(t, err, "personal-data.md")
	document, err := written(begin+"old\n"+end+"rest", "new\n")
	require.NoError(t, err)
	require.Equal(t, begin+"new\n"+end+"rest", document)
}
