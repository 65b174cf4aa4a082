// Package ratestest compares the counting of rates with a model in memory, for every store of the program.
package ratestest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

// start is late in an hour and in a day, so that both end soon.
var start = time.Date(2026, 3, 2, 22, 50, 0, 0, time.UTC)

type bucket struct {
	at    time.Time
	queue string
}

type numbers map[bucket]rates.Counts

type instance struct {
	*rates.Recorder

	faults  *storetest.Faults
	counted map[string]rates.Counts // not yet flushed, by queue
}

// world is a store, its instances, and the expected numbers.
type world struct {
	db        store.Store
	now       time.Time
	run       string
	seq       int
	instances []*instance
	added     numbers
	between   func() // if set, runs once, before the next commit
}

// Run checks that counts are added once, and twice if an answer was lost. All runs share a store.
func Run(t *testing.T, open func(t testing.TB) store.Store) {
	t.Helper()
	db, runs := open(t), 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		// Each run has its own year on the store.
		w := &world{db: db, now: start.AddDate(runs, 0, 0), run: fmt.Sprint("r", runs), added: numbers{}}
		for range 3 {
			w.begin()
		}
		t.Repeat(map[string]func(*rapid.T){
			"a delivery":               w.deliver,
			"another delivery":         w.deliver,
			"a flush":                  func(t *rapid.T) { w.flush(t, w.draw(t)) },
			"a commit that is refused": func(t *rapid.T) { one := w.draw(t); fails(one, one.faults.FailBefore) },
			"an answer that is lost":   func(t *rapid.T) { one := w.draw(t); fails(one, one.faults.FailAfter) },
			"another adds in the middle": func(t *rapid.T) {
				one, other := w.draw(t), w.draw(t)
				if one == other {
					return
				}
				w.between = func() { w.flush(t, other) }
				w.flush(t, one)
				w.between = nil
			},
			"an instance is killed": w.kill,
			"time passes": func(t *rapid.T) {
				w.now = w.now.Add(rapid.SampledFrom(
					[]time.Duration{time.Second, 15 * time.Second, 20 * time.Minute, 5 * time.Hour}).Draw(t, "time"))
			},
			"": w.check,
		})
	})
}

func (w *world) begin() {
	w.seq++
	one := &instance{counted: map[string]rates.Counts{}}
	one.faults = &storetest.Faults{
		Store: w.db, OnCommit: func(_ context.Context, writes []store.Write, do func() error) error {
			if meanwhile := w.between; meanwhile != nil {
				w.between = nil
				meanwhile()
			}
			err := do()
			if err == nil {
				w.applied(one, writes)
			}
			return err
		},
	}
	one.Recorder = rates.NewRecorder(rates.Config{
		Store: one.faults, Self: rates.Service{Instance: fmt.Sprint(w.run, "-", w.seq), Name: "worker"},
		Now: func() time.Time { return w.now },
	})
	w.instances = append(w.instances, one)
}

func (w *world) applied(one *instance, writes []store.Write) {
	for _, write := range writes {
		hour, err := time.Parse("hour-2006010215", write.Key.ID[:min(15, len(write.Key.ID))])
		if err != nil {
			continue
		}
		for queue, counts := range one.counted {
			at := bucket{hour, queue}
			w.added[at] = w.added[at].Plus(counts)
		}
	}
}

func (w *world) draw(t *rapid.T) *instance {
	return w.instances[rapid.IntRange(0, len(w.instances)-1).Draw(t, "instance")]
}

func (w *world) deliver(t *rapid.T) {
	one, queue := w.draw(t), rapid.SampledFrom(queues).Draw(t, "queue")
	for range rapid.IntRange(1, 3).Draw(t, "deliveries") {
		counts := one.counted[queue]
		switch rapid.IntRange(0, 4).Draw(t, "what") {
		case 0:
			one.Arrived(queue)
			counts.In++
		case 1:
			one.Ended(queue, retry.Processed, 1)
			counts.Processed++
		case 2:
			one.Ended(queue, retry.Retry, 1)
			counts.Failed++
		case 3:
			one.Ended(queue, retry.DeadLettered, 2)
			counts.Dead++
		default:
			one.Ended(queue, retry.Duplicate, 0)
			counts.Other++
		}
		one.counted[queue] = counts
	}
}

func (w *world) flush(t require.TestingT, one *instance) {
	require.NoError(t, one.Flush(context.Background()))
	one.counted = map[string]rates.Counts{}
}

// fails flushes an instance while the fault is set.
func fails(one *instance, fault func(n int)) {
	fault(1)
	if err := one.Flush(context.Background()); err == nil {
		one.counted = map[string]rates.Counts{}
	}
	fault(0)
}

// kill ends an instance, whose counts are lost.
func (w *world) kill(t *rapid.T) {
	i := rapid.IntRange(0, len(w.instances)-1).Draw(t, "killed")
	w.instances = append(w.instances[:i], w.instances[i+1:]...)
	w.begin()
}

var queues = []string{"orders", "refunds"}

func (w *world) check(t *rapid.T) {
	for _, unit := range []rates.Unit{rates.Hour, rates.Day} {
		want := numbers{}
		for at, counts := range w.added {
			of := bucket{unit.Of(at.at), at.queue}
			want[of] = want[of].Plus(counts)
		}
		most := int(map[rates.Unit]time.Duration{rates.Hour: rates.KeptHours, rates.Day: rates.KeptDays}[unit] /
			time.Duration(unit))
		series, err := rates.Series(context.Background(), w.db, unit, most, w.now, queues...)
		require.NoError(t, err)
		first := unit.Of(w.now).Add(-time.Duration(most-1) * time.Duration(unit))
		got := numbers{}
		for queue, buckets := range series {
			for _, b := range buckets {
				if b.Counts != (rates.Counts{}) {
					got[bucket{b.At, queue}] = b.Counts
				}
			}
		}
		for at := range want {
			if at.at.Before(first) {
				delete(want, at)
			}
		}
		require.Equal(t, want, got)
	}
}
