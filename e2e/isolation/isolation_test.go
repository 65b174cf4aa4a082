package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAShortRunMeasuresEveryTargetAndLosesNoPayment(t *testing.T) {
	t.Parallel()
	var table bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-events", "5", "-rate", "100"}, &table))
	for _, r := range rows() {
		require.Regexp(t, r.name+` +[1-9]`, table.String(), "each has been asked")
	}
}

func TestAQuantileIsOfTheSortedWaits(t *testing.T) {
	t.Parallel()
	var r result
	for i := range 100 {
		r.waits = append(r.waits, time.Duration(100-i))
	}
	require.Equal(t, []time.Duration{1, 50, 99}, []time.Duration{r.quantile(0), r.quantile(0.50), r.quantile(0.99)})
}
