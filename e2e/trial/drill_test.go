package main

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

// The numbers of seconds are not asserted: they are the machine's.
func TestANightOnCallIsSpentWithTheRunbook(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds and starts the program")
	}
	t.Parallel()
	var out strings.Builder
	require.NoError(t, try(t.Context(), &out, "drill", "-stack", "dev"), out.String())
	said := out.String()
	c, err := catalog.Load("")
	require.NoError(t, err)
	for _, i := range incidents(c) {
		require.Contains(t, said, "ALERT on "+i.queue)
		require.Regexp(t, `(?m)^`+i.name+`( +\d+\.\d){4}$`, said)
	}
	require.Contains(t, said, `$ bin/billhook products set 502113004410000777 --points 500 --why "sold since today"`)
}

func TestATrialRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, try(t.Context(), io.Discard, "drill", "-stack", "production"), "-stack")
	require.ErrorContains(t, try(t.Context(), io.Discard, "flashsale", "-stack", "production"), "-stack")
	require.ErrorContains(t, try(t.Context(), io.Discard, "chaos", "-arms", "tx,legs"), "legs")
	require.ErrorContains(t, try(t.Context(), io.Discard, "chess"), "chaos")
}

func TestABookThatNobodyHasChangedIsProvenAndAChangeIsFound(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, try(t.Context(), &out, "books", "-entries", "40", "-tenants", "2"), out.String())
	require.Contains(t, out.String(), "changed entries/")
}
