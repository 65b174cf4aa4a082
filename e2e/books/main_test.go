package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheBooksOfAFewTenantsAreSealedAndVerified(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, 1500, 3), out.String())
	require.Contains(t, out.String(), "a proof has")
	require.Contains(t, out.String(), "changed entries/")
}
