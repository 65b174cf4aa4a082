package lane_test

import (
	"context"
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
	"billhook/internal/dedupe/dedupetest"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/boltstore"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// actor is a relay that stops before each call until the model decides its outcome.
type actor struct {
	dedupetest.Worker

	publish func(contract.Message)
}

func (a *actor) Publish(_ context.Context, _ string, m contract.Message) (id string, err error) {
	return "1", a.Call(func() error {
		a.publish(m)
		return nil
	})
}

// stage is a store with two relays, which run call by call, in any order.
type stage struct {
	db     store.Store
	now    time.Time
	of     lane.Kind
	actors []*actor
}

// play checks a model. publish takes the messages that the relays publish.
func play(
	t *testing.T, of lane.Kind, model func(*rapid.T, *stage) (publish func(contract.Message), run func()),
) {
	t.Helper()
	dir, rounds := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		rounds++
		db := filetest.Must(boltstore.OpenTemporary(filepath.Join(dir, fmt.Sprint(rounds))))(t)
		s := &stage{db: db, now: start, of: of}
		defer func() {
			s.settle()
			require.NoError(t, db.Close())
		}()
		publish, run := model(t, s)
		for range 2 {
			s.actors = append(s.actors, &actor{publish: publish})
		}
		run()
	})
}

// start starts an idle relay, up to its first call: on one lane, as a worker does after its commit, or on due
// ones.
func (s *stage) start(a *actor, one string) {
	relay := &lane.Relay{
		Of: s.of, Store: a.Store(s.db), Publisher: a, Now: func() time.Time { return s.now }, Unreadable: bury,
	}
	a.Start(func() {
		if one == "" { // a failed lane is found again
			_, _ = relay.Due(context.Background(), 2, func(string, error) {})
			return
		}
		_, _ = relay.Lane(context.Background(), one)
	})
}

// relay starts a relay, or has it make one call. lanes are those that it may start on.
func (s *stage) relay(i int, lanes func() []string) func(*rapid.T) {
	return func(t *rapid.T) {
		a := s.actors[i]
		if a.Running {
			a.Step(rapid.SampledFrom(dedupetest.Fates).Draw(t, "the call is"))
			return
		}
		s.start(a, rapid.SampledFrom(append(lanes(), "")).Draw(t, "lane"))
	}
}

func (s *stage) settle() {
	for _, a := range s.actors {
		a.Settle()
	}
}

func bury(doc store.Document, _ string, _ time.Time) []store.Write {
	return []store.Write{store.Set(store.Key{Collection: "dead", ID: doc.Key.ID}, doc.Fields)}
}

type outbox struct {
	*stage
	events int
	// committed and published are event ids by ordering key, in order.
	committed, published map[string][]string
	lanes                []string
	// damaged are the event ids of unreadable entries, by the entry's id.
	damaged map[string]string
}

// effect commits one to three emissions of an event.
func (o *outbox) effect(t *rapid.T) {
	o.events++
	effect := handler.Effect{}
	event := handler.Event{Queue: "q", Tenant: "default", ID: fmt.Sprint("e-", o.events)}
	keys := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "a", "b", "c"}), 1, 3).Draw(t, "ordering keys")
	for _, key := range keys {
		effect.Emit = append(effect.Emit, emission(key, "x"))
	}
	emitted := filetest.Must(lane.Emit(declared, event, &effect, o.now))(t)
	if rapid.IntRange(0, 9).Draw(t, "the commit fails") == 0 {
		return
	}
	storetest.Put(t, o.db, effect.Writes...)
	for n, key := range keys {
		o.committed[key] = append(o.committed[key], lane.ID(event, n))
	}
	o.lanes = append(o.lanes, emitted.Lanes...)
}

func (o *outbox) damage(t *rapid.T) {
	entries := storetest.All(t, o.db, lane.Outbox.Entries())
	if len(entries) == 0 || len(o.damaged) > 2 {
		return
	}
	bad := rapid.SampledFrom(entries).Draw(t, "entry")
	if o.damaged[bad.Key.ID] == "" {
		o.damaged[bad.Key.ID] = bad.Fields["emits"].(string)
		storetest.Put(t, o.db, store.Set(bad.Key, map[string]any{"topic": "x"}))
	}
}

// check holds the invariants after each step.
func (o *outbox) check(t *rapid.T) {
	o.now = o.now.Add(time.Microsecond)
	there, lanes := map[string]bool{}, map[string]bool{}
	for _, lane := range storetest.All(t, o.db, lane.Outbox.Lanes()) {
		lanes[lane.Key.ID] = true
	}
	for _, entry := range storetest.All(t, o.db, lane.Outbox.Entries()) {
		id, _ := entry.Fields["emits"].(string)
		there[id], there[o.damaged[entry.Key.ID]] = true, true
		lane, _, _ := strings.Cut(entry.Key.ID, "-")
		require.True(t, lanes[lane], "each entry has a lane")
	}
	for _, dead := range storetest.All(t, o.db, "dead") {
		there[o.damaged[dead.Key.ID]] = true
	}
	unreadable := slices.Collect(maps.Values(o.damaged))
	for key, committed := range o.committed {
		first, readable := []string{}, []string{}
		for _, id := range o.published[key] {
			if !slices.Contains(first, id) && !slices.Contains(unreadable, id) {
				first = append(first, id)
			}
		}
		for _, id := range committed {
			require.True(t, there[id] || slices.Contains(o.published[key], id), "no message is lost")
			if !slices.Contains(unreadable, id) {
				readable = append(readable, id)
			}
		}
		require.LessOrEqual(t, len(first), len(readable))
		require.Equal(t, readable[:len(first)], first,
			"first copies are published in order, and only committed messages")
	}
}

// TestMessagesArePublishedInOrderWithAnyRelays drives two relays through the outbox while effects add to it,
// entries are damaged and time passes. Calls fail, or lose their answers, and relays die at any of them.
func TestMessagesArePublishedInOrderWithAnyRelays(t *testing.T) {
	t.Parallel()
	play(t, lane.Outbox, func(t *rapid.T, s *stage) (func(contract.Message), func()) {
		o := &outbox{
			stage: s, committed: map[string][]string{}, published: map[string][]string{}, damaged: map[string]string{},
		}
		lanes := func() []string { return slices.Clone(o.lanes) }
		publish := func(m contract.Message) {
			o.published[m.OrderingKey] = append(o.published[m.OrderingKey], m.Attributes[contract.AttrEventID])
		}
		return publish, func() {
			t.Repeat(map[string]func(*rapid.T){
				"an effect": o.effect, "an effect +": o.effect, "an entry is damaged": o.damage,
				"relay one": o.relay(0, lanes), "relay one +": o.relay(0, lanes), "relay two": o.relay(1, lanes),
				"relay two +": o.relay(1, lanes),
				"time passes": func(t *rapid.T) {
					o.now = o.now.Add(rapid.SampledFrom(
						[]time.Duration{time.Microsecond, time.Second, 31 * time.Second, time.Hour}).Draw(t, "time"))
				},
				"": o.check,
			})
			o.settle()
			for range 4 { // of two lanes each; there are three
				o.now = o.now.Add(11 * time.Minute)
				o.start(o.actors[0], "")
				o.settle()
			}
			o.check(t)
			require.Empty(t, storetest.All(t, o.db, lane.Outbox.Entries()),
				"every message is published or dead-lettered")
			require.Empty(t, storetest.All(t, o.db, lane.Outbox.Lanes()), "no lane remains without entries")
		}
	})
}
