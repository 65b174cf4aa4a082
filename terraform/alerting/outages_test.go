package alerting_test

import (
	"maps"
	"slices"
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
			w.webhooks("generic", "202").adds(0, w.minutes, 1)
		},
		[]string{"webhooks-stopped/paynow"}, 6*hour + 15, nil,
	},
	{
		"producers of a busy shop are gone", busy,
		func(w *world) { w.webhooks("generic", "202").adds(0, broken, 2) },
		[]string{"webhooks-stopped/generic"}, 6*hour + 15, nil,
	},
	{
		"half of a queue's pushes fail", busy,
		func(w *world) { w.pushes(w.paid(), "remote_server_5xx").adds(broken, broken+hour, 15) },
		[]string{"push-failures"}, 15, nil,
	},
	{
		"a worker of a quiet shop is gone", quiet,
		func(w *world) {
			w.unscheduled(broken, w.minutes)
			w.waits(broken+20, w.minutes)
			for minute := broken + 20; minute < w.minutes; minute += 10 {
				w.pushes(w.paid(), "unreachable").add(minute, 1)
			}
		},
		[]string{"tasks-stopped", "oldest-unacked"}, 55, nil,
	},
	{
		"the scheduler calls nobody", quiet,
		func(w *world) { w.unscheduled(broken, w.minutes) },
		[]string{"tasks-stopped"}, 25, nil,
	},
	{
		"the database does not answer", busy,
		func(w *world) {
			for _, q := range w.enabled() {
				w.pushes(q, "ack").drop(broken, broken+hour)
				w.pushes(q, "remote_server_5xx").adds(broken, broken+hour, 10)
			}
			w.unscheduled(broken, broken+hour)
			w.waits(broken, broken+hour)
		},
		[]string{"push-failures", "tasks-stopped"}, 25, []string{"oldest-unacked"},
	},
	{
		"a message is a dead letter, and nobody looks for a day", quiet,
		func(w *world) {
			w.logged("distribution", "open-dead-letters", "queue", w.paid().ID).set(broken, w.minutes, 1)
			w.logged("distribution", "oldest-dead-letter-seconds", "queue", w.paid().ID).grows(broken, w.minutes, 60)
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
		func(w *world) { w.oldest(w.paid().DeadLetterPush()).grows(broken, broken+hour, 60) },
		[]string{"dead-letters-unkept"}, 15, nil,
	},
	{
		"a sale is more than the workers manage", busy,
		func(w *world) {
			for _, q := range w.enabled() {
				w.depth(q.PushSubscription()).grows(broken, broken+2*hour, 1000)
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
	{"messages stay in the outbox", quiet, leftBehind("relay-outbox"), []string{"outbox-stuck"}, 25, nil},
	{"entries stay without a seal", quiet, leftBehind("seal-journal"), []string{"unsealed"}, 25, nil},
	{"somebody changes the books", quiet, counts("books-untrue", "kind", 1), []string{"books-untrue"}, 10, nil},
	{"an event was claimed and never finished", quiet, counts("orphans", "queue", 1), []string{"orphans"}, 10, nil},
	{"somebody undoes a pause", quiet, counts("pauses-undone", "queue", 10), []string{"pause-undone"}, 10, nil},
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
	left := policiesOf(t, func() (map[string]policy, error) { return read([]string{}, []string{off.ID}) })
	w.oldest(off.PushSubscription()).grows(0, w.minutes, 60)
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
	w.oldest(w.paid().PushSubscription()).grows(from, to, 60)
}

// leftBehind is a task that leaves something undone for longer and longer.
func leftBehind(task string) func(*world) {
	return func(w *world) {
		w.logged("distribution", "oldest-seconds", "task", task).grows(broken, broken+hour, 60)
	}
}

// counts is a metric of log lines that counts something in each of some minutes.
func counts(metric, label string, minutes int) func(*world) {
	return func(w *world) {
		value := "changed"
		if label == "queue" {
			value = w.paid().ID
		}
		w.logged("counter", metric, label, value).adds(broken, broken+minutes, 1)
	}
}

// unscheduled has the tasks called by nobody.
func (w *world) unscheduled(from, to int) {
	for _, task := range called() {
		w.logged("counter", "tasks-done", "task", task).drop(from, to)
	}
}

// No page of an outage opens twice for one cause. An alert that no outage of these rings might never ring.
func TestEachPolicyTellsItsOutageInTimeAndOnce(t *testing.T) {
	t.Parallel()
	var tells []string
	for _, outage := range outages {
		tells = append(tells, outage.pages...)
		t.Run(outage.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 4*day, 3)
			w.runs(outage.visitors)
			outage.breaks(w)
			first, groups, told := map[string]int{}, map[string]bool{}, pages(t, w, policies(t))
			for _, p := range told {
				require.GreaterOrEqual(t, p.minute, broken, "%s, before anything broke", p)
				require.Contains(t, slices.Concat(outage.pages, outage.beside), p.policy, "%s, beside what is broken", p)
				if _, known := first[p.policy]; !known {
					first[p.policy] = p.minute
				}
				require.False(t, groups[p.policy+" "+p.group], "%s is told twice", p)
				groups[p.policy+" "+p.group] = true
			}
			for _, name := range outage.pages {
				require.Contains(t, first, name, "%v", told)
				require.LessOrEqual(t, first[name], broken+outage.within, "%s comes late", name)
			}
		})
	}
	slices.Sort(tells)
	require.Equal(t, slices.Sorted(maps.Keys(policies(t))), slices.Compact(tells))
}
