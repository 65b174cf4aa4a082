package endpoints_test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/endpoints"
	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

func TestAnEndpointGetsOnlyTheTypeTheTimeAndTheSubject(t *testing.T) {
	t.Parallel()
	w := open(t)
	added := w.add(t, endpoints.AddEndpoint{ID: "partner-1"})
	reads, commits := w.counter.Gets.Load(), w.counter.Commits.Load()
	effect := filetest.Must(w.send(t, event(t, "evt-1", "partner-1", "subscription.renewed")))(t)
	require.Equal(t, handler.Effect{Result: endpoints.Delivered}, effect)
	require.Equal(t, []sent{{
		endpoints.Address{ID: "partner-1", URL: "https://partner.example/hooks", Secrets: []string{added.Secret}},
		event(t, "evt-1", "partner-1", "subscription.renewed").CalleeKey(),
		`{"type":"subscription.renewed","timestamp":"2026-03-02T11:59:58Z","data":{"id":"sub-7"}}`,
	}}, w.poster.sent)
	require.Equal(t, []int64{1, 0}, []int64{w.counter.Gets.Load() - reads, w.counter.Commits.Load() - commits},
		"it reads one document")
}

func TestAnEventForAnotherEndpointOrTypeIsNotSent(t *testing.T) {
	t.Parallel()
	const unknown = endpoints.EndpointUnknown
	two := endpoints.AddEndpoint{Events: []string{"invoice.*", "subscription.#"}}
	for sentence, test := range map[string]struct {
		add           endpoints.AddEndpoint
		event, tenant string
		want          string
	}{
		"a type without a pattern":      {two, "order.paid", "default", endpoints.Filtered},
		"a type that a pattern matches": {two, "subscription.a.b", "default", endpoints.Delivered},
		"a type with one more word":     {two, "invoice.line.added", "default", endpoints.Filtered},
		"an endpoint of another tenant": {endpoints.AddEndpoint{Tenant: "other"}, "a", "default", unknown},
		"an event of another tenant":    {endpoints.AddEndpoint{}, "a", "other", unknown},
		"an unknown endpoint":           {endpoints.AddEndpoint{ID: "q"}, "a", "default", unknown},
	} {
		w := open(t)
		test.add.ID = cmp.Or(test.add.ID, "p")
		w.add(t, test.add)
		e := event(t, "evt-1", "p", test.event)
		e.Tenant = test.tenant
		effect, err := w.send(t, e)
		require.NoError(t, err, sentence)
		require.Equal(t, handler.Effect{Result: test.want}, effect, sentence)
		require.Equal(t, test.want == endpoints.Delivered, len(w.poster.sent) == 1, sentence)
	}
}

func (w *world) meanwhile(do func()) {
	w.poster.during = func() {
		w.poster.during = nil
		do()
	}
}

func TestAnEndpointEnabledDuringAFailedRequestStaysEnabledAndIsDisabledOnce(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.add(t, endpoints.AddEndpoint{ID: "p"})
	e := w.fails(t, "evt-1", "p")
	w.now = noon.Add(days)
	w.meanwhile(func() {
		require.NoError(t, filetest.ErrorOf(w.Enable(t.Context(), ada.Who, of("p"))))
	})
	require.EqualError(t, filetest.ErrorOf(w.send(t, e)), "callee_failed_503")
	require.Equal(t, endpoints.Enabled, w.get(t, "p").State)
	require.Equal(t, noon.Add(days), w.get(t, "p").FailingSince)

	// Of two concurrent failures, one disables the endpoint, and the other finds it disabled.
	w.poster.answers(410)
	w.poster.sent = nil
	w.meanwhile(func() {
		require.Len(t, filetest.Must(w.send(t, event(t, "evt-2", "p", "a")))(t).Emit, 1)
	})
	effect := filetest.Must(w.send(t, e))(t)
	require.Empty(t, effect.Emit)
	require.Equal(t, endpoints.EndpointDisabled, effect.Result)
	require.Len(t, w.poster.sent, 2)
}

func TestASuccessClearsAFailureBeforeItsEventIsCompleted(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.add(t, endpoints.AddEndpoint{ID: "p"})
	e := w.fails(t, "evt-1", "p")
	w.poster.answers(200)
	w.faults.FailBefore(1)
	_, err := w.send(t, e)
	require.Equal(t, retry.EveryMessage, retry.Decide(err).Scope)
	w.meanwhile(func() {
		require.NoError(t, filetest.ErrorOf(w.Rotate(t.Context(), ada.Who, of("p"))))
	})
	require.NoError(t, filetest.ErrorOf(w.send(t, e)))
	require.Zero(t, w.get(t, "p").FailingSince)
	require.NotZero(t, w.get(t, "p").OldSecretUntil, "the rotation is kept")
}

func TestASuccessDoesNotClearAConcurrentFailure(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.add(t, endpoints.AddEndpoint{ID: "p"})
	fails := func(id string) {
		w.now = w.now.Add(time.Minute)
		w.fails(t, id, "p")
		w.poster.answers(200)
	}
	fails("evt-1")
	w.meanwhile(func() {
		require.NoError(t, filetest.ErrorOf(w.Enable(t.Context(), ada.Who, of("p"))))
		fails("evt-2")
	})
	require.NoError(t, filetest.ErrorOf(w.send(t, event(t, "evt-3", "p", "a"))))
	require.Equal(t, noon.Add(2*time.Minute), w.get(t, "p").FailingSince)
}

func TestAnUnreadableEndpointGetsNoRequest(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.add(t, endpoints.AddEndpoint{ID: "p"})
	storetest.Edit(t, w.faults, endpoints.Key("p"), func(f map[string]any) { f["state"] = "halted" })
	_, err := w.send(t, event(t, "evt-1", "p", "a"))
	require.Equal(t, "endpoint_unreadable", retry.Decide(err).Reason)
	require.Empty(t, w.poster.sent)
}

func TestDeliveriesShowHowManyAttemptsSucceededAndHowLongTheyTook(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.add(t, endpoints.AddEndpoint{ID: "p"})
	begun := noon.Add(-time.Hour)
	tries := func(last int, log ...dedupe.Attempt) dedupe.Tries {
		ended := begun.Add(time.Duration(last) * time.Millisecond)
		return dedupe.Tries{Log: append(log, dedupe.Attempt{Begun: begun, Ended: ended, Outcome: retry.Processed})}
	}
	failed := dedupe.Attempt{
		Begun: begun, Ended: begun.Add(900 * time.Millisecond), Outcome: retry.Retry, Reason: "callee_failed_503",
	}
	for i, r := range []dedupe.Record{
		{Result: endpoints.Delivered, Tries: tries(40, failed)},
		{Result: endpoints.Delivered, Tries: tries(20)},
		{Result: endpoints.Filtered, Tries: tries(1)},
		{Status: dedupe.Processing, Tries: dedupe.Tries{Log: []dedupe.Attempt{{Begun: begun}}}},
		{Identity: dedupe.Identity{Tenant: "other"}, Result: endpoints.EndpointUnknown},
		{Identity: dedupe.Identity{EventType: "order.paid"}, Result: "credited"},
		{Identity: dedupe.Identity{OrderingKey: "q"}, Result: endpoints.Delivered},
	} {
		r.Queue, r.EventID, r.Status = "one-queue", fmt.Sprint("e", i), cmp.Or(r.Status, dedupe.Completed)
		r.CreatedAt, r.Attempts = noon.Add(time.Duration(i)*time.Second), int64(len(r.Log))
		r.Tenant, r.EventType = cmp.Or(r.Tenant, "default"), cmp.Or(r.EventType, "webhook_delivery")
		r.OrderingKey = cmp.Or(r.OrderingKey, "p")
		storetest.Put(t, w.Store, store.Create(dedupe.Key(r.Queue, r.Tenant, r.EventID), r.Fields()))
	}
	show := func(id string) (endpoints.Deliveries, error) {
		o, _ := console.NewCatalog(w.Operations()).Find("endpoints deliveries")
		answer, err := o.Call(t.Context(), ada.Who, console.Input{Path: map[string]string{"id": id}})
		found, _ := answer.(endpoints.Deliveries)
		return found, err
	}
	found := filetest.Must(show("p"))(t)
	require.Equal(t, []string{
		"2 of 3 attempts succeeded (66 %). An attempt took 40 ms in the median, 900 ms at most.",
		"The others failed with: callee_failed_503 1.",
	}, found.Notes())
	require.Equal(t, endpoints.Sent{
		EventID: "e0", Queue: "one-queue", At: noon, Status: dedupe.Completed, Result: endpoints.Delivered,
		Attempts: 2, Failure: "callee_failed_503", Milliseconds: 40,
	}, found.Items[3])
	require.Len(t, found.Items, 4)
	require.ErrorIs(t, filetest.ErrorOf(show("nobody")), endpoints.ErrUnknown)
}
