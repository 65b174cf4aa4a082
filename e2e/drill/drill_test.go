package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

// TestANightOnCallIsSpentWithTheRunbook runs the drill on the stand-ins. The numbers of seconds are not
// asserted: they are the machine's.
func TestANightOnCallIsSpentWithTheRunbook(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), []string{"-stack", "dev"}, &out), out.String())
	said := out.String()
	c, err := catalog.Load("")
	require.NoError(t, err)
	for _, i := range incidentsOf(c) {
		require.Contains(t, said, "ALERT on "+i.queue)
		require.Regexp(t, `(?m)^`+i.name+`( +\d+\.\d){4}$`, said)
	}
	require.Contains(t, said, `$ bin/billhook products set 502113004410000777 --points 500 --why "sold since today"`)
}

func TestADrillRefusesAStackThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, run(t.Context(), []string{"-stack", "production"}, &strings.Builder{}), "-stack")
}
