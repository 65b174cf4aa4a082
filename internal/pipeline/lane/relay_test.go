package lane_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)

const topic = "updates"

var errBroker = errors.New("no answer")

// broker takes messages, but for those of one ordering key.
type broker struct {
	mu      sync.Mutex
	refuses string
	down    bool
	// after, if set, runs after a message is taken.
	after func()
	taken []contract.Message
}

func (b *broker) Publish(_ context.Context, to string, m contract.Message) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down || to != topic || (b.refuses != "" && m.OrderingKey == b.refuses) {
		return "", errBroker
	}
	b.taken = append(b.taken, m)
	if b.after != nil {
		b.after()
	}
	return fmt.Sprint(len(b.taken)), nil
}

// of returns the correlation ids of what was taken of an ordering key, in order.
func (b *broker) of(key string) []string {
	var ids []string
	for _, m := range b.taken {
		if m.OrderingKey == key {
			ids = append(ids, m.Attributes[contract.AttrCorrelationID])
		}
	}
	return ids
}

// reader counts the documents that a store hands out.
type reader struct {
	*storetest.Counter
	documents int
}

func (r *reader) Get(ctx context.Context, key store.Key) (store.Document, error) {
	doc, err := r.Counter.Get(ctx, key)
	if err == nil {
		r.documents++
	}
	return doc, err
}

func (r *reader) Query(ctx context.Context, query store.Query) (store.Page, error) {
	page, err := r.Counter.Query(ctx, query)
	r.documents += len(page.Documents)
	return page, err
}

// rig is a relay on a real store.
type rig struct {
	*lane.Relay
	db     *standin.Store
	faults *storetest.Faults
	read   *reader
	broker *broker
	now    time.Time
	events int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	r := &rig{db: db, broker: &broker{}, now: start, read: &reader{Counter: &storetest.Counter{Store: db}}}
	r.faults = &storetest.Faults{Store: r.read}
	r.Relay = &lane.Relay{Of: lane.Outbox, Store: r.faults, Publisher: r.broker, Now: func() time.Time { return r.now }}
	return r
}

// emission is one that says so by its correlation id.
func emission(key, says string) handler.Emission {
	return handler.Emission{To: topic, OrderingKey: key, Body: contract.Of(&contract.Envelope{Action: "renewal", CorrelationID: says})}
}

// emit commits an event's emissions and returns their lanes. Time passes.
func (r *rig) emit(t *testing.T, emissions ...handler.Emission) []string {
	t.Helper()
	r.events++
	r.now = r.now.Add(time.Millisecond)
	effect := handler.Effect{Emit: emissions}
	emitted, err := lane.Emit(declared(), handler.Event{Queue: "q", Tenant: "default", ID: fmt.Sprint("e-", r.events)}, &effect, r.now)
	require.NoError(t, err)
	_, err = r.db.Commit(t.Context(), effect.Writes)
	require.NoError(t, err)
	return emitted.Lanes
}

func (r *rig) lane(t *testing.T, id string) map[string]any {
	t.Helper()
	doc, err := r.db.Get(t.Context(), store.Key{Collection: lane.Outbox.Lanes(), ID: id})
	require.NoError(t, err)
	return doc.Fields
}

// left is how many documents the relay's kind has of entries and of lanes.
func (r *rig) left(t *testing.T) [2]int {
	t.Helper()
	var n [2]int
	for i, collection := range []string{r.Of.Entries(), r.Of.Lanes()} {
		page, err := r.db.Query(t.Context(), store.Query{Collection: collection, Limit: 1000})
		require.NoError(t, err)
		n[i] = len(page.Documents)
	}
	return n
}

// due runs over what is due, and returns the lanes that failed too.
func (r *rig) due(t *testing.T, limit int) (lane.Report, []string) {
	t.Helper()
	var failed []string
	report, err := r.Due(t.Context(), limit, func(lane string, err error) {
		require.Error(t, err)
		failed = append(failed, lane)
	})
	require.NoError(t, err)
	return report, failed
}

func TestAnEmissionsIDFollowsFromItsEventAndItsPlaceAlone(t *testing.T) {
	t.Parallel()
	event := handler.Event{Queue: "orders", Tenant: "default", ID: "e1", Type: "order.paid", Attempt: 1, MessageID: "m1", PublishedAt: start}
	again := event
	again.Attempt, again.Try, again.MessageID, again.PublishedAt = 4, 2, "m2", start.Add(time.Hour)
	require.Equal(t, lane.ID(event, 0), lane.ID(again, 0), "a repetition of the event says the same")
	seen := map[string]string{}
	for name, e := range map[string]handler.Event{
		"the event": event, "of another queue": {Queue: "refunds", Tenant: "default", ID: "e1"},
		"of another tenant": {Queue: "orders", Tenant: "other", ID: "e1"}, "another event": {Queue: "orders", Tenant: "default", ID: "e10"},
		"one whose parts run together": {Queue: "orders", Tenant: "default e", ID: "1"}, "and with quotes": {Queue: "orders", Tenant: `default" "e`, ID: "1"},
	} {
		for n := range 12 {
			id := lane.ID(e, n)
			require.Empty(t, seen[id], "%s, %d", name, n)
			seen[id] = name
		}
	}
}

func TestAnEmissionIsCommittedWithItsLane(t *testing.T) {
	t.Parallel()
	own := store.Create(store.Key{Collection: "own", ID: "x"}, nil)
	effect := handler.Effect{Writes: []store.Write{own}, Emit: []handler.Emission{
		emission("sub-1", "first"), emission("sub-2", "second"), emission("sub-1", "third"), emission("", "fourth"), emission("", "fifth"),
	}}
	event := handler.Event{Queue: "q", Tenant: "acme", ID: "e1"}
	at := start.Add(1500 * time.Nanosecond)
	emitted, err := lane.Emit(declared(), event, &effect, at)
	require.NoError(t, err)
	lanes := emitted.Lanes
	require.Len(t, lanes, 4, "those of no key have a lane each")
	require.Len(t, effect.Writes, 1+5+4)
	require.Equal(t, own, effect.Writes[0])
	at = at.Truncate(time.Microsecond)
	newest := map[string]string{}
	for n, w := range effect.Writes[1:6] {
		of, _, _ := strings.Cut(w.Key.ID, "-")
		require.Equal(t, store.OpCreate, w.Op, "an id that is there already is a conflict, and nothing to write over")
		require.Equal(t, lane.Outbox.Entries(), w.Key.Collection)
		require.Less(t, newest[of], w.Key.ID, "ids of a lane rise")
		newest[of] = w.Key.ID
		require.Equal(t, at, w.Fields["created_at"])
		require.Equal(t, []any{"q", "acme", "e1", topic}, []any{w.Fields["queue"], w.Fields["tenant"], w.Fields["event_id"], w.Fields["topic"]})
		var m contract.Message
		require.NoError(t, store.Decode(w.Fields["message"].(map[string]any), &m))
		require.Equal(t, effect.Emit[n].OrderingKey, m.OrderingKey)
		require.Equal(t, lane.ID(event, n), m.Attributes[contract.AttrEventID])
		require.Equal(t, "acme", m.Attributes[contract.AttrTenant])
		require.Equal(t, at.Format(time.RFC3339Nano), m.Attributes[contract.AttrFirstPublished])
		require.Equal(t, m.Attributes[contract.AttrEventType], m.Attributes[contract.AttrRoutingKey], "by which the topic's queues take it")
		if m.OrderingKey == "" {
			require.Equal(t, contract.UnknownOrderingKey, m.Attributes[contract.AttrOrderingKey])
		}
		body, err := declared().Contracts.Decode(contract.EnvelopeV1, m.Data)
		require.NoError(t, err)
		require.NoError(t, body.Validate())
		require.NoError(t, body.CheckAttributes(m.Attributes))
	}
	for i, w := range effect.Writes[6:] {
		require.Equal(t, store.Key{Collection: lane.Outbox.Lanes(), ID: lanes[i]}, w.Key)
		require.Equal(t, store.OpSet, w.Op, "a lane may be there already")
		require.Equal(t, map[string]any{"newest": newest[lanes[i]], "due_at": at.Add(30 * time.Second), "oldest_at": at}, w.Fields)
	}
}

func TestWhatNoBrokerTakesIsPermanentAndNothingIsToBeCommitted(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*handler.Emission){
		"a body that breaks its contract":  func(e *handler.Emission) { envelope(e).Action = "" },
		"an amount without a currency":     func(e *handler.Emission) { envelope(e).Payload.Amount = "1.00" },
		"an ordering key that is no id":    func(e *handler.Emission) { e.OrderingKey = "ilse@example.org" },
		"an ordering key of any length":    func(e *handler.Emission) { e.OrderingKey = strings.Repeat("x", 2000) },
		"a correlation id that is no id":   func(e *handler.Emission) { envelope(e).CorrelationID = "a/b" },
		"a string of the body not UTF-8":   func(e *handler.Emission) { envelope(e).Payload.Status = "\xff" },
		"a time of the body that is none":  func(e *handler.Emission) { envelope(e).Payload.OccurredAt = "yesterday" },
		"a negative number in its payload": func(e *handler.Emission) { envelope(e).Payload.Cycle = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := emission("sub-2", "bad")
			spoil(&bad)
			effect := handler.Effect{Emit: []handler.Emission{emission("sub-1", "good"), bad}}
			_, err := lane.Emit(declared(), handler.Event{Queue: "q", Tenant: "default", ID: "e1"}, &effect, start)
			require.Equal(t, retry.Verdict{Class: retry.Rejected, Reason: "emission_invalid", Counts: true}, retry.Decide(err))
			require.NotContains(t, err.Error(), "ilse")
		})
	}
}

func TestALaneOfManyEntriesIsPublishedInOrder(t *testing.T) {
	t.Parallel()
	for _, count := range []int{99, 100, 101, 200, 250} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			var want []string
			var lanes []string
			for len(want) < count {
				var some []handler.Emission
				for range min(20, count-len(want)) {
					want = append(want, fmt.Sprint("n", len(want)))
					some = append(some, emission("sub-1", want[len(want)-1]))
				}
				lanes = r.emit(t, some...)
			}
			published, err := r.Lane(t.Context(), lanes[0])
			require.NoError(t, err)
			require.Equal(t, count, published)
			require.Equal(t, want, r.broker.of("sub-1"))
			require.Equal(t, [2]int{}, r.left(t))
			require.EqualValues(t, (count+99)/100, r.read.Commits.Load(), "a commit removes a hundred")
		})
	}
}

// TestAnEntryOfTheSameMomentKeepsTheLane: a new entry at the very moment of the old one
// still makes the lane another one.
func TestAnEntryOfTheSameMomentKeepsTheLane(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lanes := r.emit(t, emission("sub-1", "first"))
	r.broker.after = func() {
		r.broker.after = nil
		r.now = r.now.Add(-time.Millisecond) // which emit adds again
		r.emit(t, emission("sub-1", "second"))
	}
	_, err := r.Lane(t.Context(), lanes[0])
	require.NoError(t, err)
	require.Equal(t, [2]int{}, r.left(t))
	require.Len(t, r.broker.taken, 2)
}

func TestWhatWasPublishedBeforeAFailureIsRemovedAndTheRestWaits(t *testing.T) {
	t.Parallel()
	for sentence, grows := range map[string]bool{"and is put off": false, "for what has come into the lane since it was read": true} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			want := []string{"first", "second", "third"}
			lanes := r.emit(t, emission("sub-1", want[0]), emission("sub-1", want[1]))
			if !grows {
				r.emit(t, emission("sub-1", want[2]))
			}
			created := start.Add(time.Millisecond)
			r.now = start.Add(time.Minute)
			r.broker.after = func() {
				r.broker.down = true
				if grows {
					r.emit(t, emission("sub-1", want[2]))
				}
			}
			published, err := r.Lane(t.Context(), lanes[0])
			require.ErrorIs(t, err, errBroker)
			require.NotContains(t, err.Error(), "put off", "that it waits now is no failure")
			require.Equal(t, 1, published)
			require.Equal(t, [2]int{2, 1}, r.left(t))
			if !grows {
				require.Equal(t, r.now.Add(r.now.Sub(created)/2), r.lane(t, lanes[0])["due_at"])
				require.Equal(t, created, r.lane(t, lanes[0])["oldest_at"])
			}
			r.broker.down, r.broker.after = false, nil
			_, err = r.Lane(t.Context(), lanes[0])
			require.NoError(t, err)
			require.Equal(t, want, r.broker.of("sub-1"), "none of them twice")
			require.Equal(t, [2]int{}, r.left(t))
		})
	}
}

func TestAPoisonedLaneHoldsUpNoOtherAndWaitsLongerEachTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.broker.refuses = "poison"
	bad := r.emit(t, emission("poison", "bad"))
	var before time.Duration
	for round := range 12 {
		says := fmt.Sprint("good-", round)
		r.emit(t, emission("sub-1", says))
		due, ok := r.lane(t, bad[0])["due_at"].(time.Time)
		require.True(t, ok)
		r.now = due.Add(30 * time.Second) // when the good one is due as well
		report, failed := r.due(t, 10)
		require.Equal(t, lane.Report{Lanes: 2, Failed: 1, Published: 1}, report)
		require.Equal(t, bad, failed)
		require.Equal(t, says, r.broker.taken[len(r.broker.taken)-1].Attributes[contract.AttrCorrelationID])
		again, ok := r.lane(t, bad[0])["due_at"].(time.Time)
		require.True(t, ok)
		wait := again.Sub(r.now)
		require.GreaterOrEqual(t, wait, before)
		require.Equal(t, lane.Wait(r.now.Sub(start.Add(time.Millisecond))), wait)
		before = wait
		report, _ = r.due(t, 10)
		require.Zero(t, report.Lanes, "it waits")
	}
	require.Equal(t, 10*time.Minute, before)
	r.broker.refuses = ""
	r.now = r.now.Add(10 * time.Minute)
	r.due(t, 10)
	require.Equal(t, [2]int{}, r.left(t))
}

// TestAnEntryThatCannotBeReadBecomesADeadLetterAndItsKeyGoesOn damages each of three entries of a lane in turn.
func TestAnEntryThatCannotBeReadBecomesADeadLetterAndItsKeyGoesOn(t *testing.T) {
	t.Parallel()
	for damaged := range 3 {
		for name, fault := range map[string]func(*rig){
			"nothing else is wrong":        func(*rig) {},
			"the removal is refused":       func(r *rig) { r.faults.FailBefore(1) },
			"the removal's answer is lost": func(r *rig) { r.faults.FailAfter(1) },
		} {
			t.Run(fmt.Sprint(damaged, ", ", name), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.Unreadable = func(doc store.Document, _ string, _ time.Time) []store.Write {
					return []store.Write{store.Set(store.Key{Collection: "letters", ID: doc.Key.ID}, doc.Fields)}
				}
				lanes := r.emit(t, emission("sub-1", "n0"), emission("sub-1", "n1"), emission("sub-1", "n2"))
				page, err := r.db.Query(t.Context(), store.Query{Collection: lane.Outbox.Entries(), Limit: 10})
				require.NoError(t, err)
				bad := page.Documents[damaged].Key
				_, err = r.db.Commit(t.Context(), []store.Write{store.Set(bad, map[string]any{"topic": "ilse@example.org"})})
				require.NoError(t, err)
				fault(r)
				_, _ = r.Lane(t.Context(), lanes[0])
				_, err = r.Lane(t.Context(), lanes[0])
				require.NoError(t, err)
				require.Equal(t, [2]int{}, r.left(t), "the key goes on")
				var first []string // copies of each message
				for _, says := range r.broker.of("sub-1") {
					if !slices.Contains(first, says) {
						first = append(first, says)
					}
				}
				require.Equal(t, slices.Delete([]string{"n0", "n1", "n2"}, damaged, damaged+1), first)
				kept, err := r.db.Get(t.Context(), store.Key{Collection: "letters", ID: bad.ID})
				require.NoError(t, err)
				require.Equal(t, map[string]any{"topic": "ilse@example.org"}, kept.Fields)
			})
		}
	}
}

func TestHowLongALaneWaits(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]time.Duration{
		-time.Hour: time.Second, 0: time.Second, time.Second: time.Second, 2 * time.Second: time.Second, 3 * time.Second: 1500 * time.Millisecond,
		time.Minute: 30 * time.Second, 20 * time.Minute: 10 * time.Minute, 21 * time.Minute: 10 * time.Minute, 1 << 62: 10 * time.Minute,
	} {
		require.Equal(t, want, lane.Wait(age), "%s", age)
	}
}

// TestTheCostOfARunDependsOnWhatIsDueAlone: a run over one due lane reads as much
// beside a thousand that are not due as beside none.
func TestTheCostOfARunDependsOnWhatIsDueAlone(t *testing.T) {
	t.Parallel()
	cost := func(t *testing.T, waiting int) [4]int64 {
		t.Helper()
		r := newRig(t)
		r.emit(t, emission("due", "due"))
		later := start.Add(time.Hour)
		for from := 0; from < waiting; from += 100 {
			var effect handler.Effect
			for i := range 100 {
				effect.Emit = append(effect.Emit, emission(fmt.Sprint("sub-", from+i), "later"))
			}
			_, err := lane.Emit(declared(), handler.Event{Queue: "q", Tenant: "default", ID: fmt.Sprint("later-", from)}, &effect, later)
			require.NoError(t, err)
			_, err = r.db.Commit(t.Context(), effect.Writes)
			require.NoError(t, err)
		}
		r.now = later
		report, _ := r.due(t, 500)
		require.Equal(t, lane.Report{Lanes: 1, Published: 1}, report)
		require.Equal(t, [2]int{waiting, waiting}, r.left(t))
		return [4]int64{r.read.Gets.Load(), r.read.Queries.Load(), r.read.Commits.Load(), int64(r.read.documents)}
	}
	require.Equal(t, [4]int64{1, 2, 1, 3}, cost(t, 0))
	require.Equal(t, [4]int64{1, 2, 1, 3}, cost(t, 1000))
}

func TestARunTakesTheLongestDueFirstAndSaysThatThereIsMore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 5 {
		r.emit(t, emission(fmt.Sprint("sub-", i), fmt.Sprint("n", i)))
	}
	report, _ := r.due(t, 2)
	require.Zero(t, report, "they are left to the worker that made them")
	r.now = start.Add(time.Hour)
	for _, want := range []lane.Report{{Lanes: 2, Published: 2, More: true}, {Lanes: 2, Published: 2, More: true}, {Lanes: 1, Published: 1}, {}} {
		report, failed := r.due(t, 2)
		require.Equal(t, want, report)
		require.Empty(t, failed)
	}
	var taken []string
	for _, m := range r.broker.taken {
		taken = append(taken, m.Attributes[contract.AttrCorrelationID])
	}
	// Lanes of one run go side by side.
	require.ElementsMatch(t, []string{"n0", "n1"}, taken[:2])
	require.ElementsMatch(t, []string{"n2", "n3"}, taken[2:4])
	require.Equal(t, "n4", taken[4])
}

func TestARunThatIsOutOfTimeLeavesTheRest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 3 {
		r.emit(t, emission(fmt.Sprint("sub-", i), "x"))
	}
	r.now = start.Add(time.Hour)
	ctx, stop := context.WithCancel(t.Context())
	r.broker.after = stop
	report, err := r.Due(ctx, 10, func(string, error) {})
	require.NoError(t, err)
	require.Equal(t, lane.Report{Lanes: 1, Failed: 1, Published: 1, More: true}, report, "it could not even remove what it had published")
	r.broker.after = nil
	report, _ = r.due(t, 10)
	require.Equal(t, lane.Report{Lanes: 3, Published: 3}, report)
	require.Equal(t, [2]int{}, r.left(t))
}

func TestTheLaneThatHasWaitedLongestIsFound(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	oldest := func() time.Duration {
		age, err := r.Oldest(t.Context())
		require.NoError(t, err)
		return age
	}
	require.Zero(t, oldest())
	r.broker.refuses = "poison"
	bad := r.emit(t, emission("poison", "first"))
	r.emit(t, emission("sub-1", "x"))
	created := start.Add(time.Millisecond)
	r.now = start.Add(time.Hour)
	require.Equal(t, r.now.Sub(created), oldest(), "due or not")
	r.due(t, 10)
	require.Equal(t, r.now.Sub(created), oldest(), "as old as before, though put off")
	r.now = start.Add(2 * time.Hour)
	r.emit(t, emission("poison", "second"))
	_, err := r.Lane(t.Context(), bad[0])
	require.Error(t, err)
	require.Equal(t, r.now.Sub(created), oldest(), "and what comes behind it is younger")
	r.broker.refuses = ""
	_, err = r.Lane(t.Context(), bad[0])
	require.NoError(t, err)
	require.Zero(t, oldest())
	r.faults.Down(true)
	_, err = r.Oldest(t.Context())
	require.Error(t, err)
	_, err = r.Due(t.Context(), 10, nil)
	require.Error(t, err)
}

// meeting is a broker at which two messages have to be at once.
type meeting struct{ here chan struct{} }

func (m meeting) Publish(ctx context.Context, _ string, _ contract.Message) (string, error) {
	select {
	case m.here <- struct{}{}:
	case <-m.here:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	return "1", nil
}

func TestLanesThatAreDueAtOnceDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 2 {
		r.emit(t, emission(fmt.Sprint("sub-", i), "x"))
	}
	relay := lane.Relay{Of: lane.Outbox, Store: r.db, Publisher: meeting{make(chan struct{})}, Now: func() time.Time { return start.Add(time.Hour) }, AtOnce: 2}
	report, err := relay.Due(t.Context(), 10, func(_ string, err error) { require.NoError(t, err) })
	require.NoError(t, err)
	require.Equal(t, lane.Report{Lanes: 2, Published: 2}, report)
}

// declared returns a catalog with the shipped contracts, and no queues.
var declared = sync.OnceValue(func() *catalog.Catalog {
	shipped, err := catalog.Load("")
	if err != nil {
		panic(err)
	}
	return &catalog.Catalog{Contracts: shipped.Contracts}
})

// envelope is what is emitted.
func envelope(e *handler.Emission) *contract.Envelope {
	m, err := contract.As[*contract.Envelope](e.Body)
	if err != nil {
		panic(err)
	}
	return m
}
