package alerting_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// broken is when each outage begins: on the third day, in the morning.
const broken = 2*day + 9*hour

// outages are what must be told, by which policies, and within how many minutes. Those beside it may
// tell of the same outage; any other page is one too many.
var outages = []struct {
	name     string
	visitors shop
	breaks   func(w *world)
	pages    []string
	within   int
	beside   []string
}{
	{
		"the door answers 5xx", busy,
		func(w *world) { w.doorFails(broken, broken+2*hour, 1) },
		[]string{"ingest-errors"}, 10, nil,
	},
	{
		"the door of a quiet shop answers 5xx, and its sender repeats", quiet,
		func(w *world) {
			for _, after := range []int{0, 1, 3, 7, 15, 25} {
				w.answered("5xx").add(broken+after, 1)
			}
		},
		[]string{"ingest-errors"}, 30, nil,
	},
	{
		"two in a hundred webhooks fail for hours", busy,
		func(w *world) { w.doorFails(broken, broken+6*hour, 0.02) },
		[]string{"slo-burn"}, 3 * hour, nil,
	},
	{
		"the sender of a busy shop is gone, and producers still send", busy,
		func(w *world) {
			w.webhooks("paynow", "202").drop(broken, w.minutes)
			for minute := range w.minutes {
				w.webhooks("generic", "202").add(minute, 1)
			}
		},
		[]string{"webhooks-stopped/paynow"}, 6*hour + 15, nil,
	},
	{
		"producers of a busy shop are gone", busy,
		func(w *world) {
			for minute := range broken {
				w.webhooks("generic", "202").add(minute, 2)
			}
		},
		[]string{"webhooks-stopped/generic"}, 6*hour + 15, nil,
	},
	{
		"half of a queue's pushes fail", busy,
		func(w *world) {
			for minute := broken; minute < broken+hour; minute++ {
				w.pushes(w.paid(), "remote_server_5xx").add(minute, 15)
			}
		},
		[]string{"push-failures"}, 15, nil,
	},
	{
		"a worker of a quiet shop is gone", quiet,
		func(w *world) {
			for task := range slices.Values(called()) {
				w.logged("counter", "tasks-done", "task", task).drop(broken, w.minutes)
			}
			w.waits(broken+20, w.minutes)
			for minute := broken + 20; minute < w.minutes; minute += 10 {
				w.pushes(w.paid(), "unreachable").add(minute, 1)
			}
		},
		[]string{"tasks-stopped", "oldest-unacked"}, 55, nil,
	},
	{
		"the scheduler calls nobody", quiet,
		func(w *world) {
			for task := range slices.Values(called()) {
				w.logged("counter", "tasks-done", "task", task).drop(broken, w.minutes)
			}
		},
		[]string{"tasks-stopped"}, 25, nil,
	},
	{
		"the database does not answer", busy,
		func(w *world) {
			for _, q := range w.enabled() {
				w.pushes(q, "ack").drop(broken, broken+hour)
				for minute := broken; minute < broken+hour; minute++ {
					w.pushes(q, "remote_server_5xx").add(minute, 10)
				}
			}
			for task := range slices.Values(called()) {
				w.logged("counter", "tasks-done", "task", task).drop(broken, broken+hour)
			}
			w.waits(broken, broken+hour)
		},
		[]string{"push-failures", "tasks-stopped"}, 25, []string{"oldest-unacked"},
	},
	{
		"a message is a dead letter, and nobody looks for a day", quiet,
		func(w *world) {
			w.logged("distribution", "open-dead-letters", "queue", w.paid().ID).set(broken, w.minutes, 1)
			for minute := broken; minute < w.minutes; minute++ {
				w.logged("distribution", "oldest-dead-letter-seconds", "queue", w.paid().ID).set(minute, minute+1, float64(60*(minute-broken)))
			}
		},
		[]string{"dead-letters", "oldest-dead-letter-warning", "oldest-dead-letter"}, 4*hour + 10, nil,
	},
	{
		"more dead letters than is normal", quiet,
		func(w *world) {
			for _, q := range w.enabled() {
				if !q.DeadLetter.Drop && q.DeadLetter.WarnAbove < q.DeadLetter.AlertAbove {
					w.logged("distribution", "open-dead-letters", "queue", q.ID).set(broken, broken+20, float64(q.DeadLetter.AlertAbove))
				}
			}
		},
		[]string{"dead-letters-warning"}, 10, nil,
	},
	{
		"dead letters do not reach the store", quiet,
		func(w *world) {
			for minute := range hour {
				w.oldest(w.paid().DeadLetterPush()).set(broken+minute, broken+minute+1, float64(60*minute))
			}
		},
		[]string{"dead-letters-unkept"}, 15, nil,
	},
	{
		"a sale is more than the workers manage", busy,
		func(w *world) {
			for _, q := range w.enabled() {
				for minute := range 2 * hour {
					w.depth(q.PushSubscription()).set(broken+minute, broken+minute+1, float64(1000*minute))
				}
			}
			w.instances(doorService).set(broken, broken+2*hour, 10)
			for pool, most := range w.pools() {
				w.instances("billhook-worker-"+pool).set(broken, broken+2*hour, float64(most))
			}
		},
		[]string{"backlog-warning", "backlog", "backlog-full", "max-instances"}, 2*hour + 10, nil,
	},
	{
		"answers come later than the ack deadline", busy,
		func(w *world) {
			for minute := 0; minute < hour; minute += 10 {
				w.pushes(w.paid(), "deadline_exceeded").add(broken+minute, 1)
			}
		},
		[]string{"ack-deadline"}, 40, nil,
	},
	{
		"messages stay in the outbox", quiet,
		func(w *world) { w.leftBehind("relay-outbox") },
		[]string{"outbox-stuck"}, 25, nil,
	},
	{
		"entries stay without a seal", quiet,
		func(w *world) { w.leftBehind("seal-journal") },
		[]string{"unsealed"}, 25, nil,
	},
	{
		"somebody changes the books", quiet,
		func(w *world) { w.logged("counter", "books-untrue", "kind", "changed").add(broken, 1) },
		[]string{"books-untrue"}, 10, nil,
	},
	{
		"an event was claimed and never finished", quiet,
		func(w *world) { w.logged("counter", "orphans", "queue", w.paid().ID).add(broken, 1) },
		[]string{"orphans"}, 10, nil,
	},
	{
		"somebody undoes a pause", quiet,
		func(w *world) {
			for minute := range 10 {
				w.logged("counter", "pauses-undone", "queue", w.paid().ID).add(broken+minute, 1)
			}
		},
		[]string{"pause-undone"}, 10, nil,
	},
	{
		"records are deleted days too late", quiet,
		func(w *world) { w.ttlDelay().set(broken, broken+3*hour, 4*24*3600) },
		[]string{"ttl-dead"}, 10, nil,
	},
}

// A queue that is off and kept stands in no series of a queue that runs.
func TestWhatWaitsOnAKeptQueueIsToldBeforeItIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 30*day, 1)
	w.runs(quiet)
	off := w.paid()
	left := policiesWithout(t, off.ID)
	for minute := range w.minutes {
		w.oldest(off.PushSubscription()).set(minute, minute+1, float64(60*minute))
	}
	told := pages(t, w, left)
	require.Len(t, told, 1)
	require.Equal(t, "kept-backlog", told[0].policy)
	require.Less(t, told[0].minute, int(off.MessageRetention.Minutes())-7*day, "there is a week to decide")
}

// doorFails answers a share of the webhooks with 5xx.
func (w *world) doorFails(from, to int, share float64) {
	for minute := from; minute < to; minute++ {
		taken := w.answered("2xx").points[minute]
		if taken != taken { // no webhook in this minute
			continue
		}
		failed := 0.0
		for range int(taken) {
			if w.rand.Float64() < share {
				failed++
			}
		}
		w.answered("5xx").add(minute, failed)
		w.answered("2xx").add(minute, -failed)
		w.webhooks("paynow", "202").add(minute, -failed)
		w.webhooks("paynow", "503").add(minute, failed)
	}
}

// waits is a message of the sender's queue that nobody takes.
func (w *world) waits(from, to int) {
	for minute := from; minute < to; minute++ {
		w.oldest(w.paid().PushSubscription()).set(minute, minute+1, float64(60*(minute-from)))
	}
}

// leftBehind is a task that leaves something undone for longer and longer.
func (w *world) leftBehind(task string) {
	for minute := range hour {
		w.logged("distribution", "oldest-seconds", "task", task).set(broken+minute, broken+minute+1, float64(60*minute))
	}
}

func TestAnOutagePagesTheRightOneInTime(t *testing.T) {
	t.Parallel()
	for _, outage := range outages {
		t.Run(outage.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 4*day, 3)
			w.runs(outage.visitors)
			outage.breaks(w)
			first, told := map[string]int{}, pages(t, w, policies(t))
			for _, p := range told {
				require.GreaterOrEqual(t, p.minute, broken, "%s, before anything broke", p)
				require.Contains(t, slices.Concat(outage.pages, outage.beside), p.policy, "%s, beside what is broken", p)
				if _, known := first[p.policy]; !known {
					first[p.policy] = p.minute
				}
			}
			for _, name := range outage.pages {
				require.Contains(t, first, name, "%v", told)
				require.LessOrEqual(t, first[name], broken+outage.within, "%s comes late", name)
			}
		})
	}
}

// An alert that no outage of these rings might never ring.
func TestEveryPolicyHasAnOutageThatItTells(t *testing.T) {
	t.Parallel()
	told := map[string]bool{}
	for _, outage := range outages {
		for _, name := range outage.pages {
			told[name] = true
		}
	}
	for name := range policies(t) {
		require.True(t, told[name], name)
		delete(told, name)
	}
	require.Empty(t, told)
}

// An outage is told once for each cause and queue that it stops: no page of it opens twice.
func TestAnOutageIsToldOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4*day, 3)
	w.runs(busy)
	w.doorFails(broken, broken+2*hour, 1)
	require.Len(t, pages(t, w, policies(t)), 1)
	half := newWorld(t, 4*day, 3)
	half.runs(busy)
	for minute := broken; minute < broken+hour; minute++ {
		half.pushes(half.paid(), "remote_server_5xx").add(minute, 15)
	}
	told := pages(t, half, policies(t))
	require.Len(t, told, 1)
	require.True(t, strings.HasPrefix(told[0].group, half.paid().ID), "the incident names the queue")
}
