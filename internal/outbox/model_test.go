package outbox_test

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
	"billhook/internal/embedded"
	"billhook/internal/handler"
	"billhook/internal/outbox"
	"billhook/internal/store"
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

var errFate = errors.New("no answer")

// actor is a relay that stops before every call until it is told how that goes.
type actor struct {
	w    *world
	fate chan fate
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

func (a *actor) Get(ctx context.Context, key store.Key) (doc store.Document, err error) {
	err = a.call(func() error {
		doc, err = a.w.db.Get(ctx, key)
		return err
	})
	return doc, err
}

func (a *actor) Commit(ctx context.Context, writes []store.Write) (versions []store.Version, err error) {
	err = a.call(func() error {
		versions, err = a.w.db.Commit(ctx, writes)
		return err
	})
	return versions, err
}

func (a *actor) Query(ctx context.Context, query store.Query) (page store.Page, err error) {
	err = a.call(func() error {
		page, err = a.w.db.Query(ctx, query)
		return err
	})
	return page, err
}

func (a *actor) Publish(_ context.Context, _ string, m contract.Message) (id string, err error) {
	return "1", a.call(func() error {
		a.w.published[m.OrderingKey] = append(a.w.published[m.OrderingKey], m.Attributes[contract.AttrEventID])
		return nil
	})
}

// world is the outbox, two relays, and what must be true.
type world struct {
	db     *embedded.Store
	now    time.Time
	actors []*actor
	events int
	// committed and published are event ids by ordering key, in order.
	committed, published map[string][]string
	lanes                map[string]string
}

// run starts a relay that is not running: on one lane, as a worker does after its
// commit, or on what is due.
func (w *world) run(a *actor, lane string) {
	a.running, a.gone, a.stopped = true, false, make(chan struct{})
	relay := &outbox.Relay{Store: a, Publisher: a, Now: func() time.Time { return w.now }}
	stopped := a.stopped
	go func() {
		defer close(stopped)
		if lane != "" {
			_, _ = relay.Lane(context.Background(), lane) // what failed is found again
			return
		}
		_, _ = relay.Due(context.Background(), 2, func(string, error) {})
	}()
	_, a.running = <-stopped
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
	lanes, err := outbox.Add(contracts(), event, &effect, w.now)
	require.NoError(t, err)
	if rapid.IntRange(0, 9).Draw(t, "the commit fails") == 0 {
		return
	}
	_, err = w.db.Commit(context.Background(), effect.Writes)
	require.NoError(t, err)
	for n, key := range keys {
		w.committed[key] = append(w.committed[key], outbox.ID(event, n))
	}
	for _, lane := range lanes {
		w.lanes[lane] = lane
	}
}

// relay starts the relay, or lets it go on by one call.
func (w *world) relay(i int) func(*rapid.T) {
	return func(t *rapid.T) {
		a := w.actors[i]
		if a.running {
			a.step(rapid.SampledFrom([]fate{answered, answered, answered, answered, answered, refused, lost, crash, severed}).Draw(t, "the call is"))
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
	page, err := w.db.Query(context.Background(), store.Query{Collection: outbox.KeysCollection, Limit: 1000})
	require.NoError(t, err)
	for _, lane := range page.Documents {
		lanes[lane.Key.ID] = true
	}
	page, err = w.db.Query(context.Background(), store.Query{Collection: outbox.Collection, Limit: 1000})
	require.NoError(t, err)
	for _, entry := range page.Documents {
		message, ok := contract.MessageOf(entry.Fields["message"].(map[string]any))
		require.True(t, ok)
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
func (w *world) settle() {
	for _, a := range w.actors {
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
		db, err := embedded.OpenTemporaryStore(filepath.Join(dir, fmt.Sprint(rounds)))
		require.NoError(t, err)
		w := &world{db: db, now: start, committed: map[string][]string{}, published: map[string][]string{}, lanes: map[string]string{}}
		for range 2 {
			w.actors = append(w.actors, &actor{w: w, fate: make(chan fate)})
		}
		defer func() {
			w.settle()
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
		w.settle()
		for range 4 { // of two lanes each; there are three
			w.now = w.now.Add(11 * time.Minute)
			w.run(w.actors[0], "")
			w.settle()
		}
		w.check(t)
		for key, ids := range w.committed {
			for _, id := range ids {
				require.Contains(t, w.published[key], id, "a message is not published")
			}
		}
		for _, collection := range []string{outbox.Collection, outbox.KeysCollection} {
			page, err := w.db.Query(context.Background(), store.Query{Collection: collection, Limit: 10})
			require.NoError(t, err)
			require.Empty(t, page.Documents, "a lane is there as long as its entries")
		}
	})
}
