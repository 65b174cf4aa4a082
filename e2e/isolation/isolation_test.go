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
	require.NoError(t, run(t.Context(), []string{"-events", "5", "-rate", "100", "-rounds", "1"}, &table))
	for _, r := range rows() {
		require.Regexp(t, r.name+` +[1-9]`, table.String(), "each has been asked")
	}
}

func TestARowIsTheMedianOfItsRounds(t *testing.T) {
	t.Parallel()
	measured := func(p99 time.Duration, memory uint64) result {
		return result{waits: []time.Duration{time.Millisecond, p99, time.Hour}, memory: memory, asked: 7}
	}
	var table bytes.Buffer
	tell(&table, "a target", []pair{
		{measured(4*time.Millisecond, 8e6), measured(2*time.Millisecond, 4e6)},
		{measured(3*time.Millisecond, 3e6), measured(3*time.Millisecond, 3e6)},
		{measured(time.Second, 5e6), measured(time.Millisecond, 1e6)},
	})
	require.Equal(t, "a target\t7\t4.0 ms\tx 2.00\t4.0 ms\tx 2.00\t5.0 MB\tx 2.00\n", table.String())
}
