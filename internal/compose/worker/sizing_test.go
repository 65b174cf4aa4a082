package worker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/compose/worker/workertest"
	"billhook/internal/filetest"
)

func TestABurstAndAStallOfTheStoreAreWaitedOut(t *testing.T) {
	t.Parallel()
	const soon = 100 * time.Millisecond
	type load = workertest.Load
	type row struct {
		load
		from int           // the second
		most time.Duration // the p99 of all that come from then on
	}
	filetest.Each(t, map[string]row{
		"a burst":        {load{PerSecond: 490, Burst: 1000, Seconds: 4}, 2, 600 * time.Millisecond},
		"a stall of 5 s": {load{PerSecond: 490, Stall: 5 * time.Second, Seconds: 11}, 10, soon},
		"almost 10 s":    {load{PerSecond: 50, Stall: 9900 * time.Millisecond, Seconds: 14}, 13, soon},
	}, func(t *testing.T, test row) {
		synctest.Test(t, func(t *testing.T) {
			credit := lives["a credit"]
			test.Queue, test.EventType = credit.queue, credit.eventType
			found := workertest.Simulate(t, test.load)
			require.Zero(t, found.Refused)
			require.LessOrEqual(t, found.Within(test.from), test.most)
		})
	})
}
