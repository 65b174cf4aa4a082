package lane_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

var start = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)

const topic = "updates"

var errBroker = errors.New("no answer")

// broker accepts messages, except those of one ordering key.
type broker struct {
	refuses string
	down    bool
	after   func()
	taken   []contract.Message
}

func (b *broker) Publish(_ context.Context, to string, m contract.Message) (string, error) {
	if b.down || to != topic || (b.refuses != "" && m.OrderingKey == b.refuses) {
		return "", errBroker
	}
	b.taken = append(b.taken, m)
	if b.after != nil {
		b.after()
	}
	return fmt.Sprint(len(b.taken)), nil
}

func (b *broker) published() []string {
	return filetest.Map(b.taken, func(m contract.Message) string { return m.Attributes["correlation_id"] })
}

type rig struct {
	*lane.Relay
	db     store.Store
	faults *storetest.Faults
	calls  *storetest.Counter
	broker *broker
	now    time.Time
	events int
}

func newRig(t *testing.T, of lane.Kind) *rig {
	t.Helper()
	r := &rig{db: storetest.Open(t), broker: &broker{}, now: start}
	r.calls = &storetest.Counter{Store: r.db}
	r.faults = &storetest.Faults{Store: r.calls}
	r.Relay = &lane.Relay{Of: of, Store: r.faults, Publisher: r.broker, Now: func() time.Time { return r.now }}
	return r
}

// emission is named by its correlation id.
func emission(key, name string) handler.Emission {
	return handler.Emission{
		To: topic, OrderingKey: key, Body: contract.Of(&contract.Envelope{Action: "renewal", CorrelationID: name}),
	}
}

var declared = catalogtest.Contracts()

func (r *rig) commit(t *testing.T, event handler.Event, effect handler.Effect) (lane.Emitted, error) {
	t.Helper()
	emitted := filetest.Must(lane.Emit(declared, event, &effect, r.now))(t)
	_, err := r.db.Commit(t.Context(), effect.Writes)
	return emitted, err
}

// emit commits the emissions of a new event and returns their lanes. Time passes.
func (r *rig) emit(t *testing.T, emissions ...handler.Emission) []string {
	t.Helper()
	r.events++
	r.now = r.now.Add(time.Millisecond)
	emitted, err := r.commit(t, handler.Event{Queue: "q", Tenant: "default", ID: fmt.Sprint("e-", r.events)},
		handler.Effect{Emit: emissions})
	require.NoError(t, err)
	return emitted.Lanes
}

func (r *rig) moment(t *testing.T, id, field string) time.Time {
	t.Helper()
	doc := storetest.Get(t, r.db, store.Key{Collection: lane.Outbox.Lanes(), ID: id})
	at, _ := doc.Fields[field].(time.Time)
	return at
}

// left is how many entries and lanes of the relay's kind there are.
func (r *rig) left(t *testing.T) [2]int {
	t.Helper()
	return [2]int{len(storetest.All(t, r.db, r.Of.Entries())), len(storetest.All(t, r.db, r.Of.Lanes()))}
}

func (r *rig) due(t *testing.T, limit int) (report lane.Report, failed []string) {
	t.Helper()
	report = filetest.Must(r.Due(t.Context(), limit, func(lane string, err error) {
		require.Error(t, err)
		failed = append(failed, lane)
	}))(t)
	return report, failed
}

func (r *rig) oldest(t *testing.T) time.Duration {
	t.Helper()
	return filetest.Must(r.Oldest(t.Context()))(t)
}

func TestLaneOfManyEntriesIsPublishedInOrder(t *testing.T) {
	t.Parallel()
	for _, count := range []int{100, 101, 200} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, lane.Outbox)
			var want, lanes []string
			for len(want) < count {
				want = append(want, fmt.Sprint("n", len(want)))
				lanes = r.emit(t, emission("sub-1", want[len(want)-1]))
			}
			require.Equal(t, count, filetest.Must(r.Lane(t.Context(), lanes[0]))(t))
			require.Equal(t, want, r.broker.published())
			require.Equal(t, [2]int{}, r.left(t))
			require.EqualValues(t, (count+99)/100, r.calls.Commits.Load(), "a commit removes a hundred")
		})
	}
}

// TestEntryAddedAtTheSameTimeKeepsTheLane: a new entry changes the version of its lane also where it has the
// time of the old one.
func TestEntryAddedAtTheSameTimeKeepsTheLane(t *testing.T) {
	t.Parallel()
	r := newRig(t, lane.Outbox)
	lanes := r.emit(t, emission("sub-1", "first"))
	r.broker.after = func() {
		r.broker.after = nil
		r.now = r.now.Add(-time.Millisecond) // which emit adds again
		r.emit(t, emission("sub-1", "second"))
	}
	require.NoError(t, filetest.ErrorOf(r.Lane(t.Context(), lanes[0])))
	require.Equal(t, [2]int{}, r.left(t))
	require.Len(t, r.broker.taken, 2)
}

func TestEntriesPublishedBeforeAFailureAreNotPublishedAgain(t *testing.T) {
	t.Parallel()
	filetest.Each(t, map[string]bool{
		"where the lane is unchanged": false, "where the lane has a new entry": true,
	}, func(t *testing.T, grows bool) {
		r := newRig(t, lane.Outbox)
		want := []string{"first", "second"}
		lanes := r.emit(t, emission("sub-1", want[0]), emission("sub-1", want[1]))
		r.broker.after = func() {
			if r.broker.down = true; grows {
				want = append(want, "third")
				r.emit(t, emission("sub-1", "third"))
			}
		}
		published, err := r.Lane(t.Context(), lanes[0])
		require.EqualError(t, err, fmt.Sprintf("lane: entry %s: no answer",
			storetest.All(t, r.db, lane.Outbox.Entries())[0].Key.ID), "a lane with a new entry is no failure")
		require.Equal(t, 1, published)
		r.broker.down, r.broker.after = false, nil
		require.NoError(t, filetest.ErrorOf(r.Lane(t.Context(), lanes[0])))
		require.Equal(t, want, r.broker.published())
		require.Equal(t, [2]int{}, r.left(t))
	})
}

func TestFailingLaneDelaysNoOtherAndWaitsLongerEachTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, lane.Outbox)
	require.Zero(t, r.oldest(t))
	r.broker.refuses = "poison"
	bad := r.emit(t, emission("poison", "bad"))[0]
	created := r.now
	var before time.Duration
	for round := range 14 {
		r.emit(t, emission("sub-1", fmt.Sprint("good-", round)))
		if round == 2 {
			r.emit(t, emission("poison", "younger"))
		}
		r.now = r.moment(t, bad, "due_at").Add(30 * time.Second) // when the good one is due as well
		report, failed := r.due(t, 10)
		require.Equal(t, lane.Report{Lanes: 2, Failed: 1, Published: 1}, report)
		require.Equal(t, []string{bad}, failed)
		require.Equal(t, r.now.Sub(created), r.oldest(t), "the messages behind it are younger")
		wait := r.moment(t, bad, "due_at").Sub(r.now)
		require.GreaterOrEqual(t, wait, before)
		require.Equal(t, lane.Wait(r.now.Sub(created)).Truncate(time.Microsecond), wait)
		before = wait
		report, _ = r.due(t, 10)
		require.Zero(t, report.Lanes, "it waits")
	}
	require.Equal(t, 10*time.Minute, before)
	r.broker.refuses = ""
	r.now = r.now.Add(10 * time.Minute)
	r.due(t, 10)
	require.Equal(t, [2]int{}, r.left(t))
	require.Zero(t, r.oldest(t))
}

func TestLaneWaitsHalfTheAgeOfItsOldestEntryWithinBounds(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]time.Duration{
		-time.Hour: time.Second, 0: time.Second, 2 * time.Second: time.Second,
		3 * time.Second:  1500 * time.Millisecond,
		20 * time.Minute: 10 * time.Minute, 21 * time.Minute: 10 * time.Minute, 1 << 62: 10 * time.Minute,
	} {
		require.Equal(t, want, lane.Wait(age), "%s", age)
	}
}

// TestNewMessageOfADelayedLaneKeepsTheAgeOfTheOldest: that age has an alert.
func TestNewMessageOfADelayedLaneKeepsTheAgeOfTheOldest(t *testing.T) {
	t.Parallel()
	r, l := newLine(t)
	r.broker.down = true
	r.now = start.Add(time.Hour)
	r.due(t, 10)
	l.now = r.now.Add(time.Minute)
	l.keep(t, message("e2"), time.Time{})
	require.Equal(t, time.Hour, r.oldest(t))
}

func TestCostOfARunDependsOnlyOnDueMessages(t *testing.T) {
	t.Parallel()
	for _, waiting := range []int{0, 1000} {
		r := newRig(t, lane.Outbox)
		r.emit(t, emission("due", "due"))
		r.now = start.Add(time.Hour)
		for from := 0; from < waiting; from += 100 {
			var effect handler.Effect
			for i := range 100 {
				effect.Emit = append(effect.Emit, emission(fmt.Sprint("sub-", from+i), "later"))
			}
			_, err := r.commit(t, handler.Event{Queue: "q", Tenant: "default", ID: fmt.Sprint("later-", from)}, effect)
			require.NoError(t, err)
		}
		report, _ := r.due(t, 500)
		require.Equal(t, lane.Report{Lanes: 1, Published: 1}, report)
		require.Equal(t, [2]int{waiting, waiting}, r.left(t))
		require.Equal(t, [3]int64{1, 2, 1},
			[3]int64{r.calls.Gets.Load(), r.calls.Queries.Load(), r.calls.Commits.Load()})
	}
}

func TestRunTakesTheLongestDueFirstAndReportsWhatItLeaves(t *testing.T) {
	t.Parallel()
	r := newRig(t, lane.Outbox)
	for i := range 5 {
		r.emit(t, emission(fmt.Sprint("sub-", i), fmt.Sprint("n", i)))
	}
	report, _ := r.due(t, 2)
	require.Zero(t, report, "new lanes are left to the worker that made them")
	r.now = start.Add(time.Hour)
	for _, want := range []lane.Report{
		{Lanes: 2, Published: 2, More: true}, {Lanes: 2, Published: 2, More: true}, {Lanes: 1, Published: 1}, {},
	} {
		report, failed := r.due(t, 2)
		require.Equal(t, want, report)
		require.Empty(t, failed)
	}
	require.Equal(t, []string{"n0", "n1", "n2", "n3", "n4"}, r.broker.published())
	r.faults.Down(true)
	require.Error(t, filetest.ErrorOf(r.Oldest(t.Context())))
	require.Error(t, filetest.ErrorOf(r.Due(t.Context(), 10, nil)))
	r.faults.Down(false)

	for i := range 3 {
		r.emit(t, emission(fmt.Sprint("sub-", i), "x"))
	}
	r.now = r.now.Add(time.Hour)
	ctx, stop := context.WithCancel(t.Context())
	r.broker.after = stop
	report = filetest.Must(r.Due(ctx, 10, func(string, error) {}))(t)
	require.Equal(t, lane.Report{Lanes: 1, Failed: 1, Published: 1, More: true}, report,
		"it could not even remove what it had published")
	r.broker.after = nil
	report, _ = r.due(t, 10)
	require.Equal(t, lane.Report{Lanes: 3, Published: 3}, report)
	require.Equal(t, [2]int{}, r.left(t))
}

// meeting is a broker that confirms once two messages wait.
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

func TestLanesDueAtTheSameTimeAreRelayedConcurrently(t *testing.T) {
	t.Parallel()
	r := newRig(t, lane.Outbox)
	r.emit(t, emission("sub-1", "x"), emission("sub-2", "x"))
	r.Publisher, r.AtOnce, r.now = meeting{make(chan struct{})}, 2, start.Add(time.Hour)
	report, _ := r.due(t, 10)
	require.Equal(t, lane.Report{Lanes: 2, Published: 2}, report)
}
