package retry_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/retry"
)

func TestAPolicyWaits(t *testing.T) {
	t.Parallel()
	schedule := retry.Policy{Schedule: []time.Duration{0, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}}
	doubling := retry.Policy{Base: 10 * time.Second, Multiplier: 2, Max: 600 * time.Second}
	jittered := retry.Policy{Base: 60 * time.Second, Multiplier: 2, Max: 3600 * time.Second, Jitter: 30 * time.Second}
	for name, test := range map[string]struct {
		policy retry.Policy
		failed int
		dice   float64
		want   time.Duration
	}{
		"5 s after the first attempt of the schedule": {schedule, 1, 0.9, 5 * time.Second},
		"30 s after its second":                       {schedule, 2, 0.9, 30 * time.Second},
		"2 min after its third":                       {schedule, 3, 0.9, 2 * time.Minute},
		"10 min after its fourth":                     {schedule, 4, 0.9, 10 * time.Minute},
		"10 min after its fifth, and ever after":      {schedule, 5, 0.9, 10 * time.Minute},
		"a schedule of one entry, always that":        {retry.Policy{Schedule: []time.Duration{time.Second}}, 7, 0, time.Second},
		"the base first":                              {doubling, 1, 0, 10 * time.Second},
		"twice the base then":                         {doubling, 2, 0, 20 * time.Second},
		"320 s after the sixth":                       {doubling, 6, 0, 320 * time.Second},
		"the cap where doubling would pass it":        {doubling, 7, 0, 600 * time.Second},
		"the cap for ever":                            {doubling, 1_000_000, 0, 600 * time.Second},
		"the base for an attempt that never was":      {doubling, 0, 0, 10 * time.Second},
		"half the jitter on top":                      {jittered, 1, 0.5, 75 * time.Second},
		"no more than the cap with jitter":            {jittered, 7, 0.999, 3600 * time.Second},
		"the base alone without a multiplier":         {retry.Policy{Base: time.Second}, 9, 0, time.Second},
		"nothing without a base, however often":       {retry.Policy{Multiplier: 2, Max: time.Minute}, 1_000_000, 0, 0},
		"no overflow without a cap":                   {retry.Policy{Base: time.Second, Multiplier: 2}, 1_000_000, 0, math.MaxInt64 / 2},
		"nothing from an empty policy":                {retry.Policy{}, 3, 0.5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, test.policy.Wait(test.failed, test.dice))
		})
	}
}

func TestAnyPolicyStaysInItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		policy := retry.Policy{
			Base:       time.Duration(rapid.Int64Range(0, int64(2*time.Hour)).Draw(t, "base")),
			Multiplier: rapid.Float64Range(0, 1000).Draw(t, "multiplier"),
			Max:        time.Duration(rapid.Int64Range(1, int64(24*time.Hour)).Draw(t, "max")),
			Jitter:     time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "jitter")),
		}
		failed := rapid.IntRange(1, 1_000_000).Draw(t, "failed")
		dice := rapid.Float64Range(0, 0.999999).Draw(t, "dice")

		wait := policy.Wait(failed, dice)
		require.GreaterOrEqual(t, wait, time.Duration(0))
		require.LessOrEqual(t, wait, policy.Max)
		require.GreaterOrEqual(t, wait, policy.Wait(failed, 0), "jitter only adds")
		require.LessOrEqual(t, policy.Wait(failed, 0), policy.Wait(failed+1, 0), "without jitter no wait is shorter than the one before")
	})
}
