package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheDocumentHasTheTableThatTheCommandWrites(t *testing.T) {
	t.Parallel()
	have, want, err := generate(filepath.Join("..", ".."))
	require.NoError(t, err)
	require.Equal(t, want, have, "run: go run ./docs/cost")
}

func TestAMonthIsPricedBeyondWhatIsFree(t *testing.T) {
	t.Parallel()
	credit := operations{writes: 3, deletes: 1}
	// By hand: three million writes and a million deletes.
	require.InDelta(t, 5.60, price(1_000_000, credit, 900).firestore, 0.001)
	require.Zero(t, price(1_000_000, credit, 900).pubsub, "2 GB of 10 GiB")
	require.InDelta(t, 20_000_000-180_000, price(100_000_000, credit, 900).cpu/cpuSecond, 0.01)
	// 200 GB less 10 GiB.
	require.InDelta(t, (200e9-10*1024*1024*1024)/1024/1024/1024/1024*40, price(100_000_000, credit, 900).pubsub, 0.001)
}

func TestARowThatIsGoneIsAMistake(t *testing.T) {
	t.Parallel()
	_, err := counted("| duplicate | 1 | 1, refused | 0 |\n")
	require.ErrorContains(t, err, "exactly-once.md")
	_, err = written("no marks", "x")
	require.Error(t, err)
}
