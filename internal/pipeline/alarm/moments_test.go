package alarm_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/pipeline/alarm"
)

// start is a whole second, and so a moment.
var start = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)

func TestATimeIsRoundedUpToAQuarterOfASecond(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ at, want time.Time }{
		"a moment":               {start, start},
		"a nanosecond after it":  {start.Add(1), start.Add(alarm.Step)},
		"a nanosecond before it": {start.Add(-1), start},
		"between two":            {start.Add(100 * time.Millisecond), start.Add(alarm.Step)},
		"another zone":           {start.Add(300 * time.Millisecond).In(time.FixedZone("", 5*3600+1800)), start.Add(2 * alarm.Step)},
		"before 1970":            {time.Date(1969, 12, 31, 23, 59, 59, 600e6, time.UTC), time.Date(1969, 12, 31, 23, 59, 59, 750e6, time.UTC)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, alarm.Moment(test.at))
		})
	}
}

func TestAMomentIsInTheSetUntilItIsPast(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var requested alarm.Moments
		model := map[time.Time]bool{}
		now := start
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			moment := alarm.Moment(now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond))
			require.Equal(t, model[moment], requested.Has(moment))
			require.True(t, requested.Add(moment))
			model[moment] = true
			if rapid.Bool().Draw(t, "pass") {
				now = now.Add(time.Duration(rapid.IntRange(0, 2_000_000_000).Draw(t, "ns")))
				past := false
				for m := range model {
					if !m.After(now) {
						past = true
						delete(model, m)
					}
				}
				require.Equal(t, past, requested.Past(now))
			}
			first, ok := requested.First()
			require.Equal(t, len(model) > 0, ok)
			for m := range model {
				require.False(t, m.Before(first))
				require.True(t, requested.Has(m))
			}
		}
	})
}
