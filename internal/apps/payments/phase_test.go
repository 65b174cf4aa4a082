package payments_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/payments"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

var (
	phaseKey  = store.Key{Collection: payments.PhasesCollection, ID: dedupe.Key("refunds", "default", "r-1").ID}
	refundKey = store.Key{Collection: payments.RefundsCollection, ID: store.ID("default", "pay-1")}
)

type memory struct {
	docs     map[store.Key]store.Document
	last     store.Version
	onCommit func() error // before each commit
}

func newMemory() *memory {
	return &memory{docs: map[store.Key]store.Document{}, onCommit: func() error { return nil }}
}

func (m *memory) Get(_ context.Context, key store.Key) (store.Document, error) {
	if doc, ok := m.docs[key]; ok {
		return doc, nil
	}
	return store.Document{}, store.ErrNotFound
}

func (m *memory) Commit(_ context.Context, writes []store.Write) (versions []store.Version, err error) {
	if err := errors.Join(m.onCommit(), store.CheckWrites(writes)); err != nil {
		return nil, err
	}
	for _, w := range writes {
		if m.docs[w.Key].Version != w.Version {
			return nil, store.ErrStale
		}
	}
	for _, w := range writes {
		versions = append(versions, m.set(w.Key, w.Fields))
	}
	return versions, nil
}

func (m *memory) set(key store.Key, fields map[string]any) store.Version {
	m.last++
	m.docs[key] = store.Document{Key: key, Fields: fields, Version: m.last}
	return m.last
}

func (m *memory) state(key store.Key) string {
	state, _ := m.docs[key].Fields["state"].(string)
	return state
}

func TestAPhaseIsWrittenWithTheRefundAndCountsForItsTime(t *testing.T) {
	t.Parallel()
	m, b, now := newMemory(), newBank("fail"), noon
	h := payments.Refunds{Gateway: b, Store: m, Now: func() time.Time { return now }, RememberFor: time.Hour}.Leased().Leased()
	event, other := refundOf("r-1", "pay-1", ""), refundOf("r-2", "pay-1", "")
	_, err := h.Do(t.Context(), event)
	require.ErrorIs(t, err, errLost)
	want := map[string]any{
		"queue": "refunds", "tenant": "default", "event_id": "r-1", "state": "prepared", "result": "", "reason": "",
		"created_at": noon, "updated_at": noon,
	}
	require.Equal(t, want, m.docs[phaseKey].Fields, "what is reserved does not expire")
	_, err = h.Do(t.Context(), other)
	requireVerdict(t, err, retry.Missing("refund_under_way", nil))

	now, b.does = noon.Add(1000*time.Hour), []string{"decline"}
	_, err = h.Do(t.Context(), event)
	requireVerdict(t, err, retry.Permanent("refund_declined", nil))
	want["state"], want["reason"], want["updated_at"], want["expire_at"] = "rolled_back", "refund_declined", now, now.Add(time.Hour)
	require.Equal(t, want, m.docs[phaseKey].Fields)

	clear(b.keys)
	now = now.Add(time.Hour - 1)
	_, err = h.Do(t.Context(), event)
	requireVerdict(t, err, retry.Permanent("refund_declined", nil))
	_, _, err = h.Reconcile(t.Context(), event)
	requireVerdict(t, err, retry.Permanent("refund_declined", nil))
	now = now.Add(1)
	_, done, err := h.Reconcile(t.Context(), event)
	require.NoError(t, err)
	require.False(t, done, "after its time the same event is a new one")
	effect, err := h.Do(t.Context(), event)
	require.NoError(t, err)
	require.Equal(t, "refunded", effect.Result)
	require.Equal(t, []any{"committed", "refunded", now}, []any{m.state(phaseKey), m.docs[phaseKey].Fields["result"], m.docs[phaseKey].Fields["created_at"]})
}

// Each of the three commits meets somebody else's change to the refund, or the store's refusal.
func TestACommitThatFailsIsDecidedAgainOrSaysWhy(t *testing.T) {
	t.Parallel()
	foreign := func(m *memory, _ int) error {
		fields := map[string]any{"payment_id": "pay-1", "tenant": "default", "state": "refused", "queue": "refunds", "event_id": "r-0", "reserved_at": noon}
		if there, ok := m.docs[refundKey]; ok {
			fields = there.Fields
		}
		m.set(refundKey, fields)
		return nil
	}
	for name, test := range map[string]struct {
		befalls func(m *memory, commit int) error // the commits under test, from 0
		want    error
		commits int
	}{
		"two changes": {func(m *memory, n int) error {
			return map[bool]func(*memory, int) error{true: foreign, false: well}[n < 2](m, n)
		}, nil, 3},
		"three changes":   {foreign, retry.Busy("contention", nil), 3},
		"a store down":    {func(*memory, int) error { return errLost }, retry.Outage("store_unavailable", nil), 1},
		"invalid writes":  {func(*memory, int) error { return store.ErrInvalid }, retry.Permanent("effect_invalid", nil), 1},
		"a removed phase": {func(m *memory, _ int) error { delete(m.docs, phaseKey); return store.ErrStale }, retry.Transient("phase_lost", nil), 1},
	} {
		for step, gateway := range map[string]*bank{"reserve": newBank(), "confirm": newBank(), "roll back": newBank("decline")} {
			if step == "reserve" && name == "a removed phase" {
				continue
			}
			m, tried := newMemory(), 0
			m.onCommit = func() error {
				if step != "reserve" && m.state(phaseKey) == "" && tried == 0 {
					return nil
				}
				tried++
				return test.befalls(m, tried-1)
			}
			want := test.want
			if want == nil && step == "roll back" {
				want = retry.Permanent("refund_declined", nil)
			}
			_, err := refunding(m, gateway).Do(t.Context(), refundOf("r-1", "pay-1", ""))
			require.Equal(t, retry.Decide(want), retry.Decide(err), "%s: %s", step, name)
			commits := test.commits
			if step == "reserve" && name == "two changes" {
				commits++ // the settlement's
			}
			require.Equal(t, commits, tried, "%s: %s", step, name)
		}
	}
}

func well(*memory, int) error { return nil }

func TestAnUnknownOutcomeKeepsTheReservationAndIsAskedForAgainByTheSameOrder(t *testing.T) {
	t.Parallel()
	for _, unknown := range []error{
		errLost, retry.Down("gateway_down", nil), retry.Conflicting("key_reused", nil), retry.Unreadable("bad_answer", nil),
		retry.Transient("again", retry.Permanent("declined", nil)),
	} {
		m, d, event := newMemory(), &desk{err: unknown}, refundOf("r-1", "pay-1", "9.99")
		_, err := refunding(m, d).Do(t.Context(), event)
		require.Equal(t, unknown, err)
		require.Equal(t, []string{"prepared", "under_way"}, []string{m.state(phaseKey), m.state(refundKey)})
		require.Empty(t, d.asked, "a first attempt has nothing to ask for")
		d.err = nil
		_, err = refunding(m, d).Do(t.Context(), again(event))
		require.Error(t, err)
		order := event.CalleeKey() + ` {"event_id":"` + event.CalleeKey() + `","tenant":"default","source_event_id":"r-1","action":"refund","payment_id":"pay-1","subscription_id":"sub-1","correlation_id":"sub-1","amount":"9.99","currency":"EUR"}`
		require.Equal(t, []string{order, order}, d.orders)
	}
}

func TestADocumentThatCannotBeReadIsRetriedAndNotTakenForAbsent(t *testing.T) {
	t.Parallel()
	phase, refund := retry.Transient("phase_unreadable", nil), retry.Transient("refund_unreadable", nil)
	for name, test := range map[string]struct {
		key    store.Key
		change func(fields map[string]any)
		want   error
	}{
		"a phase without a state":               {phaseKey, func(f map[string]any) { delete(f, "state") }, phase},
		"a phase in a state of no kind":         {phaseKey, func(f map[string]any) { f["state"] = "begun" }, phase},
		"a result of no text":                   {phaseKey, func(f map[string]any) { f["result"] = int64(1) }, phase},
		"a settled one that would never expire": {phaseKey, func(f map[string]any) { delete(f, "expire_at") }, phase},
		"no time of creation":                   {phaseKey, func(f map[string]any) { delete(f, "created_at") }, phase},
		"a refund in a state of no refund":      {refundKey, func(f map[string]any) { f["state"] = "gone" }, refund},
		"a refund for no event":                 {refundKey, func(f map[string]any) { delete(f, "event_id") }, refund},
		"nothing of a refund":                   {refundKey, func(f map[string]any) { clear(f) }, refund},
	} {
		m, b := newMemory(), newBank("decline")
		h, event := refunding(m, b), refundOf("r-1", "pay-1", "")
		_, err := h.Do(t.Context(), event)
		requireVerdict(t, err, retry.Permanent("refund_declined", nil))
		test.change(m.docs[test.key].Fields)
		_, err = h.Do(t.Context(), event)
		requireVerdict(t, err, test.want)
		_, _, err = h.Reconcile(t.Context(), event)
		requireVerdict(t, err, test.want)
		_, err = h.Plan(t.Context(), event)
		requireVerdict(t, err, test.want)
		_, err = payments.FindRefund(t.Context(), m, "default", "pay-1")
		require.Equal(t, test.key == refundKey, err != nil, name)
		require.Equal(t, 1, b.orders, name)
	}
}

func TestAPlanSaysWhatWouldBeReservedAndRequested(t *testing.T) {
	t.Parallel()
	m, b := newMemory(), newBank("fail", "decline")
	h, event := refunding(m, b), refundOf("r-1", "pay-1", "9.99")
	fresh, err := h.Plan(t.Context(), event)
	require.NoError(t, err)
	require.Len(t, fresh.Writes, 2, "the phase document, and what is reserved")
	require.Equal(t, []string{"gateway", event.CalleeKey()}, []string{fresh.Calls[0].Target, fresh.Calls[0].ID})
	require.Empty(t, m.docs, "a plan does nothing")

	_, err = h.Do(t.Context(), event)
	require.ErrorIs(t, err, errLost)
	reserved, err := h.Plan(t.Context(), event)
	require.NoError(t, err)
	require.Equal(t, handler.Plan{Calls: fresh.Calls}, reserved, "it is reserved already")
	_, err = h.Plan(t.Context(), refundOf("r-2", "pay-1", "9.99"))
	requireVerdict(t, err, retry.Missing("refund_under_way", nil))

	_, err = h.Do(t.Context(), event)
	requireVerdict(t, err, retry.Permanent("refund_declined", nil))
	_, err = h.Plan(t.Context(), event)
	requireVerdict(t, err, retry.Permanent("refund_declined", nil))
	_, err = h.Do(t.Context(), refundOf("r-2", "pay-1", "9.99"))
	require.NoError(t, err)
	done, err := h.Plan(t.Context(), refundOf("r-2", "pay-1", "9.99"))
	require.NoError(t, err)
	require.Equal(t, handler.Plan{Effect: handler.Effect{Result: "refunded"}}, done, "it is done already")
}
