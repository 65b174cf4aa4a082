package alerting_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/pipeline/tasks"
)

const broken = 2*day + 9*hour

// outages are what must be reported, by which policies, and within how many minutes. Those beside it may
// report the same outage; any other page is one too many.
var outages = []struct {
	name     string
	visitors shop
	pages    string
	within   int
	beside   string
	breaks   func(w *world)
}{
	{"the webhook service answers 5xx", busy, "ingest-errors", 10, "", func(w *world) {
		w.webhookFails(broken, broken+2*hour, 1)
	}},
	{
		"the webhook service of a quiet shop answers 5xx, and its sender repeats", quiet,
		"ingest-errors", 30, "", func(w *world) {
			for _, after := range []int{0, 1, 3, 7, 15, 25} {
				w.answered("5xx").add(broken+after, 1)
			}
		},
	},
	{"a tenth of a busy shop's webhooks is answered late", busy, "ingest-latency", 15, "", func(w *world) {
		for minute := broken; minute < broken+hour; minute += 10 {
			w.answeredIn().set(minute, minute+1, 3000)
		}
	}},
	{"two in a hundred webhooks fail for hours", busy, "slo-burn", 3 * hour, "", func(w *world) {
		w.webhookFails(broken, broken+6*hour, 0.02)
	}},
	{
		"the sender of a quiet shop is gone, and producers still send", quiet,
		"webhooks-stopped/paynow", day + 15, "", func(w *world) {
			w.webhooks("paynow", "202").drop(broken, w.minutes)
			w.webhooks("generic", "202").adds(0, w.minutes, 1)
		},
	},
	{"producers of a busy shop are gone", busy, "webhooks-stopped/generic", 6*hour + 15, "", func(w *world) {
		w.webhooks("generic", "202").adds(0, broken, 2)
	}},
	{
		"the secret of a quiet shop is another one at its sender", quiet,
		"webhooks-refused/paynow", 3 * hour, "", func(w *world) {
			w.refuses("paynow", "paynow", "401")
		},
	},
	{"producers sign with an old secret", busy, "webhooks-refused/generic", 15, "", func(w *world) {
		w.webhooks("generic", "401").adds(broken, broken+hour, 1)
	}},
	{
		"the address of a quiet shop's sender is gone", quiet,
		"webhooks-refused/unknown", 3 * hour, "", func(w *world) {
			w.refuses("paynow", "unknown", "404")
		},
	},
	{"half of a queue's pushes fail", busy, "push-failures", 15, "", func(w *world) {
		w.pushes(w.paid(), "remote_server_5xx").adds(broken, broken+hour, 15)
	}},
	{"a worker of a quiet shop is gone", quiet, "tasks-stopped oldest-unacked", 55, "", func(w *world) {
		w.unscheduled(broken, w.minutes)
		w.waits(broken+20, w.minutes)
		for minute := broken + 20; minute < w.minutes; minute += 10 {
			w.pushes(w.paid(), "unreachable").add(minute, 1)
		}
	}},
	{"the scheduler calls nobody", quiet, "tasks-stopped", 25, "", func(w *world) {
		w.unscheduled(broken, w.minutes)
	}},
	{
		"the database does not answer", busy,
		"push-failures tasks-stopped", 25, "oldest-unacked", func(w *world) {
			for _, q := range w.catalog.Enabled() {
				w.pushes(q, "ack").drop(broken, broken+hour)
				w.pushes(q, "remote_server_5xx").adds(broken, broken+hour, 10)
			}
			w.unscheduled(broken, broken+hour)
			w.waits(broken, broken+hour)
		},
	},
	{
		"a message is a dead letter, and nobody looks for a day", quiet,
		"dead-letters oldest-dead-letter-warning oldest-dead-letter", 4*hour + 10, "", func(w *world) {
			open, oldest := w.letters(w.paid().ID)
			open.set(broken, w.minutes, 1)
			oldest.grows(broken, w.minutes, 60)
		},
	},
	{"more dead letters than is normal", quiet, "dead-letters-warning", 10, "", func(w *world) {
		for _, q := range w.catalog.Enabled() {
			if !q.DeadLetter.Drop && q.DeadLetter.WarnAbove < q.DeadLetter.AlertAbove {
				open, _ := w.letters(q.ID)
				open.set(broken, broken+20, float64(q.DeadLetter.AlertAbove))
			}
		}
	}},
	{"dead letters do not reach the store", quiet, "dead-letters-unkept", 15, "", func(w *world) {
		w.oldest(w.paid().DeadLetterPush()).grows(broken, broken+hour, 60)
	}},
	{
		"a sale is more than the workers manage", busy,
		"backlog-warning backlog backlog-full max-instances", 2*hour + 10, "", func(w *world) {
			for _, q := range w.catalog.Enabled() {
				w.depth(q.PushSubscription()).grows(broken, broken+2*hour, 1000)
			}
			w.instances(webhookService).set(broken, broken+2*hour, 10)
			for pool, most := range w.pools() {
				w.instances("billhook-worker-"+pool).set(broken, broken+2*hour, float64(most))
			}
		},
	},
	{"answers come later than the ack deadline", busy, "ack-deadline", 40, "", func(w *world) {
		for minute := 0; minute < hour; minute += 10 {
			w.pushes(w.paid(), "deadline_exceeded").add(broken+minute, 1)
		}
	}},
	{"messages stay in the outbox", quiet, "outbox-stuck", 25, "", leftBehind("relay-outbox")},
	{"entries stay without a seal", quiet, "unsealed", 25, "", leftBehind("seal-journal")},
	{"somebody changes the books", quiet, "books-untrue", 10, "", counts("books-untrue", "kind", 1)},
	{"an event was claimed and never finished", quiet, "orphans", 10, "", counts("orphans", "queue", 1)},
	{"somebody undoes a pause", quiet, "pause-undone", 10, "", counts("pauses-undone", "queue", 10)},
	{"somebody reads a secret", quiet, "secret-access", 10, "", func(w *world) {
		w.one("counter", "audited_resource", "logging.googleapis.com/user/billhook-secret-access",
			"metric.labels.secret", "billhook-ops-token").add(broken, 1)
	}},
	{"records are deleted days too late", quiet, "ttl-dead", 10, "", func(w *world) {
		w.ttlDelay().set(broken, broken+3*hour, 4*24*3600)
	}},
}

func (w *world) webhookFails(from, to int, share float64) {
	for minute := from; minute < to; minute++ {
		failed := 0.0
		for range int(w.answered("2xx").at(minute)) {
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

// refuses answers a sender's webhooks with a status until the shop closes; it repeats each of them.
func (w *world) refuses(sender, source, status string) {
	until := broken + 13*hour
	for minute := broken; minute < until; minute++ {
		for _, after := range []int{0, 1, 5, 30} {
			w.webhooks(source, status).add(minute+after, w.webhooks(sender, "202").at(minute))
		}
	}
	w.webhooks(sender, "202").drop(broken, until)
}

func (w *world) waits(from, to int) {
	w.oldest(w.paid().PushSubscription()).grows(from, to, 60)
}

func leftBehind(task string) func(*world) {
	return func(w *world) {
		w.logged("distribution", "oldest-seconds", "task", task).grows(broken, broken+hour, 60)
	}
}

func counts(metric, label string, minutes int) func(*world) {
	return func(w *world) {
		value := "changed"
		if label == "queue" {
			value = w.paid().ID
		}
		w.logged("counter", metric, label, value).adds(broken, broken+minutes, 1)
	}
}

func (w *world) unscheduled(from, to int) {
	for _, task := range tasks.Scheduled {
		w.logged("counter", "tasks-done", "task", task).drop(from, to)
	}
}

// No page of an outage opens twice for one cause. An alert that no outage of these rings might never ring.
func TestEachPolicyReportsItsOutageInTimeAndOnce(t *testing.T) {
	t.Parallel()
	var reported []string
	for _, outage := range outages {
		want := strings.Fields(outage.pages)
		reported = append(reported, want...)
		t.Run(outage.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 4*day, 3, outage.visitors)
			outage.breaks(w)
			first, groups, opened := map[string]int{}, map[string]bool{}, pages(t, w, policies(t))
			for _, p := range opened {
				require.GreaterOrEqual(t, p.minute, broken, "%s, before anything broke", p)
				require.Contains(t, append(strings.Fields(outage.beside), want...), p.policy,
					"%s, beside what is broken", p)
				if _, known := first[p.policy]; !known {
					first[p.policy] = p.minute
				}
				require.False(t, groups[p.policy+" "+p.group], "%s is reported twice", p)
				groups[p.policy+" "+p.group] = true
			}
			for _, name := range want {
				require.Contains(t, first, name, "%v", opened)
				require.LessOrEqual(t, first[name], broken+outage.within, "%s comes late", name)
			}
		})
	}
	slices.Sort(reported)
	require.Equal(t, slices.Sorted(maps.Keys(policies(t))), slices.Compact(reported))
}
