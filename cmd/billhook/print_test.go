package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What another release has stored is shown, and moves neither the cursor nor the columns.
func TestACellOfATableControlsNoTerminal(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := &program{stdout: &out}
	p.table([]string{"WHO", "WHY"}, [][]string{{"ada", "lost\x1b[2J\nand\tfound"}, {"", "größer"}})
	require.Equal(t, "WHO  WHY\nada  lost\\x1b[2J\\nand\\tfound\n-    größer\n", out.String())
}

func TestATimeIsPrintedInUTCWithItsZone(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 2, 10, 15, 0, 987, time.FixedZone("", 3600))
	require.Equal(t, "2026-03-02T09:15:00Z", when(at))
	require.Empty(t, when(time.Time{}))
}
