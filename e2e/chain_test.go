package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/dedupe"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

// newSubscription returns an event about a new subscription.
func (s *stack) newSubscription() samples.Event {
	n := fmt.Sprint(700000000000000000 + s.seq.Add(1)*100)
	return samples.Event{EventID: n, SubscriptionID: n + "4", CustomerID: n + "3", UID: "uid-" + n}
}

// next returns a later event of the same subscription.
func (s *stack) next(of samples.Event) samples.Event {
	of.EventID = s.newSubscription().EventID
	return of
}

// emitted waits for the event's effect and returns the id of the emitted event.
func (s *stack) emitted(t *testing.T, eventID string) string {
	t.Helper()
	emitted := s.emits(t, e2e.Queue, eventID)
	require.Len(t, emitted, 1)
	return emitted[0]
}

func renewal(t *testing.T, s *stack) {
	e := s.newSubscription()
	body := samples.Read(samples.SubscriptionRenewed, e)
	s.accepted(t, body)
	told := s.emitted(t, e.EventID)
	s.until(t, told, "processed")
	require.Equal(t, 1, s.service.Applied(told))
	delivery := s.deliveriesOf(told)[0]
	require.Equal(t, "renewal", delivery.Action)
	require.Equal(t, e.SubscriptionID, delivery.SubscriptionID)

	s.accepted(t, body)
	s.until(t, e.EventID, "duplicate")
	later := s.next(e)
	s.accepted(t, samples.Read(samples.SubscriptionCanceled, later))
	cancellation := s.emitted(t, later.EventID)
	s.until(t, cancellation, "processed")
	require.Equal(t, "cancellation", s.deliveriesOf(cancellation)[0].Action)
	require.Len(t, s.deliveriesOf(told), 1, "the duplicate is not sent")

	waiting, err := lane.Longest(t.Context(), s.store, lane.Outbox, time.Now(), 10)
	require.NoError(t, err)
	require.Empty(t, waiting, "nothing is left in the outbox")
}

func subscriptionOrder(t *testing.T, s *stack) {
	first := s.newSubscription()
	var want []string
	e := first
	// Trials have no uid: PayNow's events about them have the customer's ordering key.
	for _, sample := range []string{
		samples.SubscriptionActivated, samples.SubscriptionRenewed, samples.SubscriptionRenewed,
		samples.SubscriptionRenewed, samples.SubscriptionRenewed, samples.SubscriptionCanceled,
	} {
		s.accepted(t, samples.Read(sample, e))
		want = append(want, e.EventID)
		e = s.next(e)
	}
	for i, eventID := range want {
		want[i] = s.emitted(t, eventID)
	}
	for _, id := range want {
		s.until(t, id, "processed")
	}
	var got []string
	for _, d := range s.service.Deliveries() {
		if d.SubscriptionID == first.SubscriptionID {
			got = append(got, d.EventID)
		}
	}
	require.Equal(t, want, got, "one subscription's news arrive in order")
}

// serviceForgets: the service applies the webhook and cuts the connection. Only a GET can tell
// that it was applied.
func serviceForgets(t *testing.T, s *stack) {
	require.NoError(t, s.service.Tell(standin.Forget, 1))
	e := s.newSubscription()
	s.accepted(t, samples.Read(samples.SubscriptionRenewed, e))
	told := s.emitted(t, e.EventID)
	deliveries := s.until(t, told, "processed")
	require.Equal(t, 2, deliveries[len(deliveries)-1].Attempt)
	require.Equal(t, 1, s.service.Applied(told))
	require.Len(t, s.deliveriesOf(told), 1, "Reconcile has found it: nothing is posted twice")
}

// relayed kills the worker after the commit, before it publishes what it emitted.
func relayed(t *testing.T, s *stack) {
	e := s.newSubscription()
	for !s.crash(t, true, e.EventID, func() { s.accepted(t, samples.Read(samples.SubscriptionRenewed, e)) }) {
		s.until(t, e.EventID, "processed")
		e = s.newSubscription()
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var doc store.Document
	require.Eventually(t, func() bool {
		var err error
		doc, err = s.store.Get(ctx, dedupe.Key(e2e.Queue, dedupe.DefaultTenant, e.EventID))
		if errors.Is(err, store.ErrNotFound) {
			return false
		}
		require.NoError(t, err)
		return true
	}, patience, pollInterval)
	record, err := dedupe.FromDocument(doc)
	require.NoError(t, err)
	require.Len(t, record.Emitted, 1)
	told := record.Emitted[0].EventID
	waiting := s.documents(t, lane.Outbox.Entries())
	require.Contains(t, waiting, e.EventID)
	requireNothingPersonal(t, waiting)
	// For half a minute the lane belongs to its worker. Then the task publishes it.
	require.Eventually(t, func() bool { return s.relay(t) > 0 }, patience, time.Second)
	s.until(t, told, "processed")
	require.Equal(t, 1, s.service.Applied(told))
	require.Equal(t, 0, s.relay(t))
}

// relay calls the task and returns how many messages it published.
func (s *stack) relay(t *testing.T) int {
	t.Helper()
	done, err := s.task(t.Context(), "relay-outbox")
	require.NoError(t, err)
	published, ok := done["published"].(float64)
	require.True(t, ok, done)
	return int(published)
}
