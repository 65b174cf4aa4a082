package ops_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/console/ops"
	"billhook/internal/dedupe"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// waiting is a timer for a tail: it is over at once, and says that so much time has passed.
func waiting(passed time.Duration) func(time.Duration) (<-chan time.Time, func() bool) {
	return func(time.Duration) (<-chan time.Time, func() bool) {
		tick := make(chan time.Time, 1)
		tick <- at.Add(passed)
		return tick, func() bool { return true }
	}
}

// watched is an API whose tails look again at once, on a clock that the test sets.
type watched struct {
	*ops.API
	store *storetest.Faults
	now   time.Time
}

func watch(t *testing.T) *watched {
	t.Helper()
	r := open(t)
	w := &watched{store: r.store, now: at}
	w.API = r.over(r.store, func(api *ops.API) { api.Now, api.Timer = func() time.Time { return w.now }, waiting(0) })
	return w
}

// write commits a record as it is now.
func (w *watched) write(t require.TestingT, id string, status dedupe.Status, created, updated time.Time) {
	r := record("orders", "default", id)
	r.Status, r.CreatedAt, r.UpdatedAt = status, created, updated
	_, err := w.store.Store.Commit(context.Background(), []store.Write{store.Set(dedupe.Key(r.Queue, r.Tenant, r.EventID), r.Fields())})
	require.NoError(t, err)
}

var errEnough = errors.New("enough")

// looks runs a tail with a step behind each look, and returns what the looks have shown.
func (w *watched) looks(t require.TestingT, query, after string, steps ...func()) (shown []ops.Look) {
	err := w.Tail(context.Background(), query, after, func(look ops.Look) error {
		if shown = append(shown, look); len(shown) > len(steps) {
			return errEnough
		}
		steps[len(shown)-1]()
		return nil
	})
	require.ErrorIs(t, err, errEnough)
	return shown
}

// said are the lines of looks, such as e1:COMPLETED.
func said(looks ...ops.Look) (lines []string) {
	for _, look := range looks {
		for _, l := range look.Items {
			lines = append(lines, l.EventID+":"+string(l.Status))
		}
	}
	return lines
}

func TestATailSaysThatMoreHasComeInThanItShowsAndReadsNoMore(t *testing.T) {
	t.Parallel()
	w := watch(t)
	counted := &storetest.Counter{Store: w.store}
	w.Store = counted
	burst := func(name string, number int, from time.Time) func() {
		return func() {
			require.LessOrEqual(t, counted.Reads.Swap(0), int64(100+48+50))
			for i := range number {
				moment := from.Add(time.Duration(i) * time.Millisecond)
				w.write(t, fmt.Sprint(name, i), dedupe.Failed, moment, moment)
			}
		}
	}
	for i := range 25 {
		long := at.Add(time.Duration(i-100) * time.Minute)
		w.write(t, fmt.Sprintf("old%02d", i), dedupe.Completed, long, long)
	}
	shown := w.looks(t, "", "", burst("a", 1, at), burst("b", 101, at.Add(time.Second)), burst("c", 99, at.Add(2*time.Second)), burst("d", 0, at))
	for i, skipped := range []bool{false, false, true, false, false} {
		require.Equal(t, skipped, shown[i].Skipped, "look %d", i)
	}
	require.Len(t, shown[0].Items, 20, "the newest, to begin with")
	require.Equal(t, "old05:COMPLETED", said(shown[0])[0], "the oldest first")
	require.Len(t, shown[2].Items, 100)
	require.Equal(t, "b1:FAILED", said(shown[2])[0], "the newest are shown")
	require.Len(t, shown[3].Items, 99)
}

func TestATailOfAStatusShowsWhatComesToIt(t *testing.T) {
	t.Parallel()
	w := watch(t)
	w.write(t, "e1", dedupe.Failed, at.Add(-5*time.Hour), at.Add(-time.Minute))
	w.write(t, "e2", dedupe.Completed, at, at)
	shown := w.looks(t, "status=dead_lettered", "",
		func() { w.write(t, "e1", dedupe.DeadLettered, at.Add(-5*time.Hour), at.Add(time.Second)) })
	require.Empty(t, said(shown[0]))
	require.Equal(t, []string{"e1:DEAD_LETTERED"}, said(shown[1]), "however old it is")
	shown = w.looks(t, "status=FAILED", "",
		func() { w.write(t, "e3", dedupe.Failed, at, at) },
		func() { w.write(t, "e3", dedupe.Completed, at, at.Add(time.Second)) })
	require.Equal(t, []string{"e3:FAILED", "e3:COMPLETED"}, said(shown...), "and what becomes of it")
}

func TestATailIsFilteredAndServerSentEvents(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, own(record("orders", "default", "e1")), own(record("refunds", "default", "e2")))
	got := r.send(t, http.MethodGet, "/v1/ops/events/tail?queue=orders", "")
	require.Equal(t, []string{"text/event-stream", "no-store"}, []string{got.Header().Get("Content-Type"), got.Header().Get("Cache-Control")})
	const begins = "retry: 2000\n\nid: 1772446500000000.1772446500000000.1772446500000000\nevent: lines\ndata: {\"items\":[{\"event_id\":\"e1\","
	require.Equal(t, begins, got.Body.String()[:len(begins)])
	require.True(t, strings.HasSuffix(got.Body.String(), `"skipped":false}`+"\n\n"))
	require.Equal(t, "retry: 2000\n\n:\n\n", r.get(t, "events/tail?status=FAILED", nil), "a comment where nothing has happened")
	for _, id := range []string{"x", "1.2", "1.2.3.4", "1.2.x", "-1.2.3", "99999999999999999999.1.1"} {
		r.refuses(t, http.MethodGet, "/v1/ops/events/tail", "", http.StatusBadRequest, "last_event_id_invalid", header("Last-Event-ID", id))
	}
}

// deadlines notes which are set on a connection.
type deadlines struct {
	*httptest.ResponseRecorder
	read  []time.Time
	write []time.Time
	fails bool
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.read = append(d.read, t)
	return nil
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.write = append(d.write, t)
	return nil
}

func (d *deadlines) Write(text []byte) (int, error) {
	if d.fails {
		return 0, context.DeadlineExceeded
	}
	return d.ResponseRecorder.Write(text)
}

func TestAStreamHasADeadlineForEachEventAndNoneForItsRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun, connection := time.Now(), &deadlines{ResponseRecorder: httptest.NewRecorder()}
		stream := ops.NewStream(connection)
		require.False(t, stream.Begun())
		require.NoError(t, stream.Beat())
		<-time.After(time.Hour)
		require.NoError(t, stream.Send("1", "lines", []int{1}))
		require.Equal(t, []time.Time{{}}, connection.read)
		require.Equal(t, []time.Time{begun.Add(5 * time.Second), begun.Add(time.Hour + 5*time.Second)}, connection.write)
		require.True(t, connection.Flushed)
		connection.fails = true
		require.ErrorIs(t, stream.Beat(), context.DeadlineExceeded, "a client that takes nothing ends it")
	})
}

// TestWhoeverReconnectsKnowsEveryRecordAsItIs holds tails to what is stored: the last that a client was
// told of each record is how it is, whatever was committed late, and whenever it asked anew.
func TestWhoeverReconnectsKnowsEveryRecordAsItIs(t *testing.T) {
	t.Parallel()
	w := watch(t)
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		w.now = w.now.Add(24 * time.Hour)
		type stateAt struct {
			status  dedupe.Status
			updated time.Time
		}
		stored, told, before := map[string]string{}, map[string]string{}, map[string]stateAt{}
		created := map[string]time.Time{}
		var after string
		change := func() {
			for range rapid.IntRange(0, 4).Draw(t, "changes") {
				w.now = w.now.Add(time.Duration(rapid.IntRange(0, 90_000).Draw(t, "ms")) * time.Millisecond)
				id := fmt.Sprintf("r%d-e%d", run, rapid.IntRange(0, 30).Draw(t, "event"))
				if stored[id] == string(dedupe.Completed) {
					continue
				}
				moment := w.now.Add(-time.Duration(rapid.IntRange(0, 5_000).Draw(t, "late")) * time.Millisecond)
				if created[id].IsZero() {
					created[id] = moment
				}
				status := rapid.SampledFrom([]dedupe.Status{dedupe.Processing, dedupe.Failed, dedupe.Completed}).Draw(t, "status")
				stored[id] = string(status)
				w.write(t, id, status, created[id], w.now)
			}
		}
		for range rapid.IntRange(1, 5).Draw(t, "connections") {
			clear(before) // whoever connects anew may be told again
			steps := make([]func(), rapid.IntRange(1, 4).Draw(t, "looks"))
			for i := range steps {
				steps[i] = change
			}
			for _, look := range w.looks(t, "", after, steps...) {
				after = look.ID
				require.True(t, slices.IsSortedFunc(look.Items, func(a, b ops.Line) int { return a.UpdatedAt.Compare(b.UpdatedAt) }), "in the order in which it happened")
				for _, l := range look.Items {
					require.NotEqual(t, stateAt{l.Status, l.UpdatedAt}, before[l.EventID], "what stays as it is, is not repeated")
					before[l.EventID] = stateAt{l.Status, l.UpdatedAt}
					told[l.EventID] = string(l.Status)
				}
			}
			change()
		}
		for _, look := range w.looks(t, "", after) {
			for _, l := range look.Items {
				told[l.EventID] = string(l.Status)
			}
		}
		for id, status := range stored {
			require.Equal(t, status, told[id], id)
		}
	})
}

func TestATailThatCannotLookSaysSoAndGoesOn(t *testing.T) {
	t.Parallel()
	w := watch(t)
	shown := w.looks(t, "", "",
		func() { w.store.Down(true) },
		func() {
			w.store.Down(false)
			w.write(t, "e1", dedupe.Completed, at, at)
		})
	require.Equal(t, "store_unavailable", shown[1].Problem.Code)
	require.Empty(t, shown[1].ID, "the next tail looks at its time again")
	require.Equal(t, []string{"e1:COMPLETED"}, said(shown[2]))

	w.store.Down(true)
	err := w.Tail(t.Context(), "", "", func(ops.Look) error { return nil })
	require.Error(t, err, "a tail begins with a look")
}

// stalled is a store that does not answer.
type stalled struct{ store.Store }

func (stalled) Query(ctx context.Context, _ store.Query) (store.Page, error) {
	<-ctx.Done()
	return store.Page{}, ctx.Err()
}

func TestALookAtAStalledStoreEndsAfterFourSeconds(t *testing.T) {
	t.Parallel()
	w := watch(t)
	w.Store = stalled{w.store}
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		require.ErrorIs(t, w.Tail(t.Context(), "", "", func(ops.Look) error { return nil }), context.DeadlineExceeded)
		require.Equal(t, 4*time.Second, time.Since(begun))
	})
}

func TestAProcessServesEightTailsAtMostAndNoneWhenItDrains(t *testing.T) {
	t.Parallel()
	w := watch(t)
	w.Timer = func(time.Duration) (<-chan time.Time, func() bool) { return nil, func() bool { return true } }
	inside, left := make(chan struct{}), make(chan error, ops.Tails)
	tail := func(ctx context.Context) error {
		return w.Tail(ctx, "", "", func(ops.Look) error { inside <- struct{}{}; return nil })
	}
	refused := func(status int) {
		problem := (*serve.Problem)(nil)
		require.ErrorAs(t, tail(t.Context()), &problem)
		require.Equal(t, status, problem.Status)
		require.Positive(t, problem.RetryAfter)
	}
	ctx, leave := context.WithCancel(t.Context())
	for i := range ops.Tails {
		go func() { left <- tail([]context.Context{ctx, t.Context()}[min(i, 1)]) }()
		<-inside
	}
	refused(http.StatusTooManyRequests)
	leave()
	require.NoError(t, <-left)
	go func() { left <- tail(t.Context()) }()
	<-inside
	w.Drain()
	w.Drain()
	for range ops.Tails {
		require.NoError(t, <-left)
	}
	refused(http.StatusServiceUnavailable)
}

func TestATailEndsAfterTenMinutes(t *testing.T) {
	t.Parallel()
	w := watch(t)
	for passed, looks := range map[time.Duration]int{10*time.Minute - 1: 2, 10 * time.Minute: 1} {
		w.Timer = waiting(passed)
		seen := 0
		require.NoError(t, w.Tail(t.Context(), "", "", func(ops.Look) error {
			if seen++; seen == looks {
				w.Timer = waiting(10 * time.Minute)
			}
			return nil
		}))
		require.Equal(t, looks, seen)
	}
}
