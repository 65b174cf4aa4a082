package pauses_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/internal/filetest"
	"billhook/internal/inspect/pauses"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

var (
	noon   = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	orders = catalog.Queue{ID: "orders", Enabled: true}
)

type broker struct {
	stands pause.Standing
	// before, if set, is called once before the next change is made. Its error is in place of the change.
	before func() error
	unseen bool
}

func (b *broker) Standing(context.Context, catalog.Queue) (pause.Standing, error) {
	if b.unseen {
		return pause.Unknown, errors.New("PermissionDenied")
	}
	return b.stands, nil
}

func (b *broker) change(to pause.Standing) error {
	if before := b.before; before != nil {
		b.before = nil
		if err := before(); err != nil {
			return err
		}
	}
	b.stands = to
	return nil
}

func (b *broker) Pause(context.Context, catalog.Queue, time.Time) error {
	return b.change(pause.Paused)
}
func (b *broker) Resume(context.Context, catalog.Queue) error { return b.change(pause.Pushing) }

func operator(s store.Store, b *broker) *pauses.Operator {
	n := 0
	return &pauses.Operator{
		Store: s, Viewer: b, Switch: b, Now: func() time.Time { return noon.Add(time.Duration(n) * time.Second) },
		NewID: func() string { n++; return strconv.Itoa(n) },
	}
}

func by(why string) audit.Change { return of("ada", why) }

func of(who, why string) audit.Change {
	return audit.Change{Who: audit.Author{Proof: audit.Identity, Name: who}, Why: why}
}

func entries(t require.TestingT, s store.Store, queue string) []string {
	found := filetest.Must(audit.Subject{Kind: pauses.Kind, ID: queue}.All(context.Background(), s))(t)
	return filetest.Map(found, func(of audit.Entry) string { return of.Action })
}

func TestARefusedChangeChangesNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		queue catalog.Queue
		by    audit.Change
	}{
		"without a reason":           {orders, by(" ")},
		"without a name":             {orders, of("", "w")},
		"with a control character":   {orders, by("a\nb")},
		"of a queue that is not run": {catalog.Queue{ID: "orders"}, by("w")},
	} {
		db, b := storetest.Open(t), &broker{stands: pause.Pushing}
		_, err := operator(db, b).Set(t.Context(), test.queue, true, test.by)
		require.True(t, errors.Is(err, audit.ErrInvalid) || errors.Is(err, pauses.ErrInvalid), name)
		require.Equal(t, pause.Pushing, b.stands, name)
		require.Empty(t, entries(t, db, orders.ID), name)
	}
}

// What becomes of a change is what the subscription does afterwards, and not what was requested.
func TestTheOutcomeIsWhatTheSubscriptionDoes(t *testing.T) {
	t.Parallel()
	refused := func() error { return errors.New("PermissionDenied") }
	type row struct {
		broker  broker
		granted bool
		viewed  bool
		want    pause.Standing
		problem string
	}
	filetest.Each(t, map[string]row{
		"the broker refuses": {
			broker{stands: pause.Pushing, before: refused}, true, true, pause.Pushing, "PermissionDenied",
		},
		"the worker was not granted it": {broker{stands: pause.Pushing}, false, true, pause.Pushing, ""},
		"the worker may not even look":  {broker{stands: pause.Pushing}, false, false, pause.Unknown, ""},
		"the broker shows nothing": {
			broker{stands: pause.Pushing, unseen: true}, false, true, pause.Unknown, "PermissionDenied",
		},
		"there is no subscription":       {broker{stands: pause.Missing}, true, true, pause.Missing, ""},
		"it is paused already, unmarked": {broker{stands: pause.Unmarked}, true, true, pause.Paused, ""},
		"a pause was undone":             {broker{stands: pause.Undone}, true, true, pause.Paused, ""},
	}, func(t *testing.T, test row) {
		k := operator(storetest.Open(t), &test.broker)
		if !test.granted {
			k.Switch = nil
		}
		if !test.viewed {
			k.Viewer = nil
		}
		found := filetest.Must(k.Set(t.Context(), orders, true, by("w")))(t)
		require.NotNil(t, found.Pause, "it is recorded all the same")
		require.Equal(t, test.want, found.Subscription)
		require.Equal(t, test.problem, found.Problem)
		require.Equal(t, test.granted, found.Granted)
		require.Equal(t, test.want == pause.Paused, found.Settled())
	})
}

func TestAPauseThatCannotBeReadIsNotHiddenAndCanBeResumed(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	storetest.Put(t, db, store.Create(store.Key{Collection: pause.Collection, ID: orders.ID},
		map[string]any{"queue": "another"}))
	k := operator(db, &broker{stands: pause.Paused})
	require.ErrorIs(t, filetest.ErrorOf(pause.List(t.Context(), db)), pause.ErrBroken)
	require.ErrorIs(t, filetest.ErrorOf(k.Look(t.Context(), orders)), pause.ErrBroken)
	found := filetest.Must(k.Set(t.Context(), orders, false, by("w")))(t)
	require.True(t, found.Settled())
}

// The model: commands of several people, one beginning within another's change of the subscription, kills
// between the steps, refusals of the broker, and others who change the subscription without Billhook. A
// command that ends undisturbed leaves record and subscription at one, as it was requested: the record names
// who has paused the queue first, and the audit has an entry for each change of either.
func TestWhateverHappensTheNextCommandMendsIt(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		q := catalog.Queue{ID: "orders-" + strconv.Itoa(run), Enabled: true, MessageRetention: time.Hour}
		faults := &storetest.Faults{Store: db}
		b := &broker{stands: pause.Pushing}
		k := operator(faults, b)
		paused, changes, first := false, 0, (*pause.Pause)(nil)
		command := func(pauses bool) (pauses.PauseState, error) {
			who := rapid.SampledFrom([]string{"ada", "bob"}).Draw(t, "who")
			found, err := k.Set(context.Background(), q, pauses, of(who, "w"))
			if found.Changed {
				changes++
			}
			if found.Changed && found.Pause != nil && pauses {
				first = &pause.Pause{Queue: q.ID, Who: who, Why: "w", At: found.Pause.At}
			}
			return found, err
		}
		killed := errors.New("killed")
		settled := func(paused bool) pauses.PauseState {
			stands := map[bool]pause.Standing{true: pause.Paused, false: pause.Pushing}[paused]
			return pauses.PauseState{Queue: q.ID, Subscription: stands, Granted: true, RetentionSeconds: 3600}
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			asked := rapid.Bool().Draw(t, "pauses")
			switch rapid.SampledFrom([]string{"command", "command", "killed", "within", "past"}).Draw(t, "step") {
			case "command":
				follows, before := settled(paused).Subscription == b.stands, len(entries(t, db, q.ID))
				want := settled(asked)
				got := filetest.Must(command(asked))(t)
				if want.Changed = asked != paused; asked {
					want.Pause, want.KeptUntil = first, first.At.Add(time.Hour)
				}
				require.Equal(t, want, got)
				audited := entries(t, db, q.ID)
				action := map[bool]string{true: "pause", false: "resume"}[asked]
				switch added := strings.Join(audited[:len(audited)-before], " "); {
				case want.Changed:
					require.Equal(t, action, added)
				case follows:
					require.Empty(t, added)
				default:
					require.Equal(t, action+"_again", added, "it is mended by asking again")
				}
				paused = asked
			case "killed": // the record stands, and the subscription was not reached
				b.before = func() error { return killed }
				found := filetest.Must(command(asked))(t)
				require.True(t, found.Settled() || found.Problem == "killed")
				paused, b.before = asked, nil
			case "within": // another command comes and goes within this one's change
				var inner bool
				ran := false
				b.before = func() error {
					ran, inner = true, rapid.Bool().Draw(t, "the other pauses")
					_, err := command(inner)
					return err
				}
				found := filetest.Must(command(asked))(t)
				b.before = nil
				paused = asked
				if ran {
					paused = inner
				}
				require.True(t, found.Settled(), "%v", found)
				require.Equal(t, paused, found.Pause != nil)
			case "past":
				b.stands = rapid.SampledFrom([]pause.Standing{pause.Pushing, pause.Paused, pause.Undone, pause.Unmarked}).
					Draw(t, "somebody else")
			}
		}
		found := filetest.Must(command(paused))(t)
		require.True(t, found.Settled())
		require.False(t, found.Changed)
		require.Equal(t, found.Subscription, b.stands)
		again := func(action string) bool { return strings.HasSuffix(action, "_again") }
		require.Len(t, slices.DeleteFunc(entries(t, db, q.ID), again), changes)
	})
}
