package lane_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// fate is what becomes of one call of a relay.
type fate string

const (
	answered fate = "answered"
	// refused: nothing happens, and nobody says why.
	refused fate = "refused"
	// lost: it happens, and the answer is lost.
	lost fate = "done, answer lost"
	// crash: the relay is gone; nothing that it calls any more happens.
	crash fate = "never made"
	// severed: the call is the last thing that the relay has done.
	severed fate = "done, and then the relay is gone"
)

// fates are what is drawn: most calls are answered.
var fates = []fate{answered, answered, answered, answered, answered, refused, lost, crash, severed}

var errFate = errors.New("no answer")

// actor is a relay that stops before every call until it is told how that goes.
type actor struct {
	db      *standin.Store
	publish func(contract.Message)
	fate    chan fate
	// stopped is sent to before every call, and closed at the end.
	stopped chan struct{}
	running bool
	gone    bool
}

// call makes one call, as it is fated.
func (a *actor) call(do func() error) error {
	if a.gone {
		return errFate
	}
	a.stopped <- struct{}{}
	next := <-a.fate
	a.gone = next == crash || next == severed
	if next == refused || next == crash {
		return errFate
	}
	if err := do(); err != nil || next == answered {
		return err
	}
	return errFate
}

// store is the relay's store.
func (a *actor) store() store.Store {
	return &storetest.Faults{Store: a.db, OnRead: a.call, OnCommit: func(_ context.Context, _ []store.Write, do func() error) error { return a.call(do) }}
}

func (a *actor) Publish(_ context.Context, _ string, m contract.Message) (id string, err error) {
	return "1", a.call(func() error {
		a.publish(m)
		return nil
	})
}

// world is the outbox, two relays, and what must be true.
type world struct {
	db     *standin.Store
	now    time.Time
	actors []*actor
	events int
	// committed and published are event ids by ordering key, in order.
	committed, published map[string][]string
	lanes                map[string]string
}

// start has a relay that is not running run, up to its first call.
func (a *actor) start(of lane.Kind, now *time.Time, run func(*lane.Relay)) {
	a.running, a.gone, a.stopped = true, false, make(chan struct{})
	relay := &lane.Relay{Of: of, Store: a.store(), Publisher: a, Now: func() time.Time { return *now }}
	stopped := a.stopped
	go func() {
		defer close(stopped)
		run(relay)
	}()
	_, a.running = <-stopped
}

// due is a run over what is due.
func due(relay *lane.Relay) {
	_, _ = relay.Due(context.Background(), 2, func(string, error) {}) // what failed is found again
}

// run starts a relay: on one lane, as a worker does after its commit, or on what is due.
func (w *world) run(a *actor, one string) {
	a.start(lane.Outbox, &w.now, func(relay *lane.Relay) {
		if one == "" {
			due(relay)
			return
		}
		_, _ = relay.Lane(context.Background(), one) // what failed is found again
	})
}

// step lets a running relay make the call that it stands before.
func (a *actor) step(next fate) {
	a.fate <- next
	_, a.running = <-a.stopped
}

// effect commits one to three emissions of an event.
func (w *world) effect(t *rapid.T) {
	w.events++
	effect := handler.Effect{}
	event := handler.Event{Queue: "q", Tenant: "default", ID: fmt.Sprint("e-", w.events)}
	keys := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "a", "b", "c"}), 1, 3).Draw(t, "ordering keys")
	for _, key := range keys {
		effect.Emit = append(effect.Emit, emission(key, "x"))
	}
	emitted, err := lane.Emit(declared(), event, &effect, w.now)
	require.NoError(t, err)
	if rapid.IntRange(0, 9).Draw(t, "the commit fails") == 0 {
		return
	}
	_, err = w.db.Commit(context.Background(), effect.Writes)
	require.NoError(t, err)
	for n, key := range keys {
		w.committed[key] = append(w.committed[key], lane.ID(event, n))
	}
	for _, lane := range emitted.Lanes {
		w.lanes[lane] = lane
	}
}

// relay starts the relay, or lets it go on by one call.
func (w *world) relay(i int) func(*rapid.T) {
	return func(t *rapid.T) {
		a := w.actors[i]
		if a.running {
			a.step(rapid.SampledFrom(fates).Draw(t, "the call is"))
			return
		}
		lane := ""
		if lanes := slices.Sorted(maps.Keys(w.lanes)); len(lanes) > 0 && rapid.Bool().Draw(t, "after a commit") {
			lane = rapid.SampledFrom(lanes).Draw(t, "lane")
		}
		w.run(a, lane)
	}
}

func (w *world) pass(t *rapid.T) {
	w.now = w.now.Add(rapid.SampledFrom([]time.Duration{time.Microsecond, time.Second, 31 * time.Second, time.Hour}).Draw(t, "time"))
}

// check holds what must be true at every moment.
func (w *world) check(t *rapid.T) {
	w.now = w.now.Add(time.Microsecond)
	waiting, lanes := map[string]bool{}, map[string]bool{}
	page, err := w.db.Query(context.Background(), store.Query{Collection: lane.Outbox.Lanes(), Limit: 1000})
	require.NoError(t, err)
	for _, lane := range page.Documents {
		lanes[lane.Key.ID] = true
	}
	page, err = w.db.Query(context.Background(), store.Query{Collection: lane.Outbox.Entries(), Limit: 1000})
	require.NoError(t, err)
	for _, entry := range page.Documents {
		var message contract.Message
		require.NoError(t, store.Decode(entry.Fields["message"].(map[string]any), &message))
		waiting[message.Attributes[contract.AttrEventID]] = true
		lane, _, _ := strings.Cut(entry.Key.ID, "-")
		require.True(t, lanes[lane], "an entry without a lane is found by nobody")
	}
	for key, ids := range w.published {
		var first []string
		for _, id := range ids {
			if !slices.Contains(first, id) {
				first = append(first, id)
			}
		}
		committed := w.committed[key]
		require.LessOrEqual(t, len(first), len(committed))
		require.Equal(t, committed[:len(first)], first, "the first of each message comes in order, and none that is not committed")
	}
	for key, ids := range w.committed {
		for _, id := range ids {
			require.True(t, waiting[id] || slices.Contains(w.published[key], id), "a message is lost")
		}
	}
}

// settle lets everything end without a fault.
func settle(actors []*actor) {
	for _, a := range actors {
		for a.running {
			a.step(answered)
		}
	}
}

// TestWhateverRelaysDoEveryMessageComesInOrder drives two relays through the outbox,
// call by call, in any order, while effects add to it and time passes: calls fail, or
// are done and not answered, and relays die at any of them.
func TestWhateverRelaysDoEveryMessageComesInOrder(t *testing.T) {
	t.Parallel()
	dir, rounds := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		rounds++
		db, err := standin.OpenTemporaryStore(filepath.Join(dir, fmt.Sprint(rounds)))
		require.NoError(t, err)
		w := &world{db: db, now: start, committed: map[string][]string{}, published: map[string][]string{}, lanes: map[string]string{}}
		for range 2 {
			w.actors = append(w.actors, &actor{db: db, fate: make(chan fate), publish: func(m contract.Message) {
				w.published[m.OrderingKey] = append(w.published[m.OrderingKey], m.Attributes[contract.AttrEventID])
			}})
		}
		defer func() {
			settle(w.actors)
			require.NoError(t, db.Close())
		}()
		t.Repeat(map[string]func(*rapid.T){
			"an effect":   w.effect,
			"relay one":   w.relay(0),
			"relay one +": w.relay(0),
			"relay two":   w.relay(1),
			"relay two +": w.relay(1),
			"time passes": w.pass,
			"":            w.check,
		})
		settle(w.actors)
		for range 4 { // of two lanes each; there are three
			w.now = w.now.Add(11 * time.Minute)
			w.run(w.actors[0], "")
			settle(w.actors)
		}
		w.check(t)
		for key, ids := range w.committed {
			for _, id := range ids {
				require.Contains(t, w.published[key], id, "a message is not published")
			}
		}
		for _, collection := range []string{lane.Outbox.Entries(), lane.Outbox.Lanes()} {
			page, err := w.db.Query(context.Background(), store.Query{Collection: collection, Limit: 10})
			require.NoError(t, err)
			require.Empty(t, page.Documents, "a lane is there as long as its entries")
		}
	})
}
