package alerting_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/filetest"
)

const month = 30 * day

// quietMonth is what a small shop's month is: few webhooks and none at night, single failures that mend
// themselves, two deployments a week, nothing that expires, a dead letter that somebody deals with.
func quietMonth(t *testing.T, seed uint64) *world {
	t.Helper()
	w := newWorld(t, month, seed, quiet)
	queues := w.catalog.Enabled()
	for d := range 30 {
		at := d*day + 8*hour + w.rand.IntN(14*hour)
		if d%3 == 0 { // a 5xx, and the sender's next try
			w.answered("5xx").add(at, 1)
			w.answered("2xx").add(at+1+w.rand.IntN(5), 1)
		}
		if d%2 == 0 {
			w.failsOnce(queues[w.rand.IntN(len(queues))], d*day+w.rand.IntN(day))
		}
		if d%7 == 1 { // an answer that came too late
			w.pushes(queues[w.rand.IntN(len(queues))], "deadline_exceeded").add(at, 1)
		}
		if d%7 == 2 || d%7 == 4 {
			w.deployment(at)
		}
		if d%7 == 3 { // an unknown sender calls at night
			w.webhooks("paynow", "401").add(d*day+3*hour, 1)
			w.webhooks("unknown", "404").add(d*day+3*hour, 2)
		}
		if d == 11 { // the first records expire, and TTL removes them within a day
			w.ttlDelay().set(at, at+hour, 20*3600)
			w.one("counter", "firestore.googleapis.com/Database",
				"firestore.googleapis.com/document/ttl_deletion_count", "resource.labels.database_id",
				"billhook").add(at, 3)
		}
	}
	for _, q := range queues { // few open dead letters, where few are normal
		if !q.DeadLetter.Drop && q.DeadLetter.WarnAbove > 0 && q.DeadLetter.WarnAbove < q.DeadLetter.AlertAbove {
			open, oldest := w.letters(q.ID)
			open.set(17*day, 17*day+40, 1)
			oldest.grows(17*day, 17*day+40, 60)
			break
		}
	}
	return w
}

// failsOnce is one message that fails until its last attempt, which succeeds. Where its waits are the
// broker's, which are ten minutes at most, its age grows over all of them; else the worker keeps it, and
// the broker has each of its attempts acknowledged.
func (w *world) failsOnce(q catalog.Queue, at int) {
	minute, answer := at, "ack"
	if q.BrokerKeepsTime() {
		answer = "remote_server_5xx"
	}
	for attempt := 1; attempt < q.MaxAttempts; attempt++ {
		w.pushes(q, answer).add(minute, 1)
		minute += int(min(q.Backoff.Wait(attempt, 0.99).Minutes()+1, 10))
	}
	w.pushes(q, "ack").add(minute, 1)
	if !q.BrokerKeepsTime() {
		return
	}
	w.depth(q.PushSubscription()).set(at, minute, 1)
	w.oldest(q.PushSubscription()).grows(at, minute, 60)
}

// deployment is new revisions of all services at once: a webhook and some pushes meet an instance that
// ends, tasks miss a run or two, and for some minutes there are twice the instances.
func (w *world) deployment(at int) {
	w.answered("5xx").add(at, 2)
	w.answered("2xx").add(at+2, 2)
	w.answeredIn().set(at+2, at+3, 6000/w.answered("2xx").points[at+2]) // the two wait for an instance
	for _, q := range w.catalog.Enabled() {
		w.pushes(q, "remote_server_5xx").add(at, 1)
		w.pushes(q, "unreachable").add(at, 1)
		w.pushes(q, "ack").add(at+2, 2)
		w.oldest(q.PushSubscription()).set(at, at+2, 90)
		w.depth(q.PushSubscription()).set(at, at+2, 2)
	}
	w.unscheduled(at, at+3)
	w.instances(webhookService).set(at, at+5, 2)
	for pool := range w.pools() {
		w.instances("billhook-worker-"+pool).set(at, at+5, 2)
	}
}

// Of the shops between, fortnights have the same single failures and deployments, and nights that are only
// quieter.
func TestNobodyIsPagedWhereAllIsWell(t *testing.T) {
	t.Parallel()
	filetest.Each(t, map[string]func(t *testing.T) *world{
		"a quiet shop's month":    func(t *testing.T) *world { t.Helper(); return quietMonth(t, 0) },
		"another one's":           func(t *testing.T) *world { t.Helper(); return quietMonth(t, 1) },
		"forty customers an hour": func(t *testing.T) *world { t.Helper(); return fortnight(t, fair) },
		"twenty a minute":         func(t *testing.T) *world { t.Helper(); return fortnight(t, busy) },
	}, func(t *testing.T, of func(t *testing.T) *world) {
		require.Empty(t, pages(t, of(t), policies(t)))
	})
}

// The control: of a share, a burn rate or a silence each least number is needed.
func TestTheSameMonthOrFortnightPagesWithoutTheLeastNumbers(t *testing.T) {
	t.Parallel()
	seldom := newWorld(t, 14*day, 7, func(minute int) float64 {
		return map[bool]float64{true: 1}[minute%(3*day) == 12*hour]
	})
	worlds, tried := []*world{quietMonth(t, 0), fortnight(t, fair), seldom}, 0
	for name, p := range policies(t) {
		alone := slices.DeleteFunc(slices.Clone(p.Conditions), func(c condition) bool {
			return strings.HasPrefix(c.Name, "at least ")
		})
		// of whom there is none
		if len(alone) == 0 || len(alone) == len(p.Conditions) || strings.HasSuffix(name, "/generic") {
			continue
		}
		tried++
		p.Conditions = alone
		paged := func(w *world) bool { return len(evaluate(t, w, name, p)) > 0 }
		require.True(t, slices.ContainsFunc(worlds, paged), name)
	}
	require.Equal(t, 6, tried)
}

func fortnight(t *testing.T, visitors shop) *world {
	t.Helper()
	w := newWorld(t, 14*day, 7, visitors)
	for d := range 14 {
		w.failsOnce(w.paid(), d*day+9*hour)
		w.deployment(d*day + 15*hour)
		for h := range 8 {
			w.answered("5xx").add(d*day+(10+h)*hour, 1)
		}
	}
	return w
}
