package webhook_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/customers"
	"billhook/internal/ingest/webhook"
	"billhook/internal/platform/store"
)

// customerDocuments is a store of one collection that counts how often it is asked.
type customerDocuments struct {
	fields map[string]map[string]any
	err    error
	asked  int
}

func (d *customerDocuments) Get(_ context.Context, key store.Key) (store.Document, error) {
	d.asked++
	if d.err != nil {
		return store.Document{}, d.err
	}
	for id, fields := range d.fields {
		if key == customers.Key("default", id) {
			return store.Document{Key: key, Fields: fields}, nil
		}
	}
	return store.Document{}, store.ErrNotFound
}

func TestACustomerIsLookedUpOnceInAWhile(t *testing.T) {
	t.Parallel()
	const known, unknown = time.Minute, 5 * time.Second
	now := fixed
	from := &customerDocuments{fields: map[string]map[string]any{"c1": {"uid": "u1"}}}
	directory := webhook.NewCustomers(from, func() time.Time { return now })
	for _, step := range []struct {
		sentence, id string
		after        time.Duration
		uid          string
		asked        int
	}{
		{"the store is asked", "c1", 0, "u1", 1},
		{"and its answer believed", "c1", known - 1, "u1", 1},
		{"but not for ever", "c1", 1, "u1", 2},
		{"that there is none is an answer too", "c2", 0, "", 3},
		{"believed", "c2", unknown - 1, "", 3},
		{"for a moment", "c2", 1, "", 4},
	} {
		now = now.Add(step.after)
		uid, ok, err := directory.UID(t.Context(), "default", step.id)
		require.NoError(t, err, step.sentence)
		require.Equal(t, step.uid, uid, step.sentence)
		require.Equal(t, step.uid != "", ok, step.sentence)
		require.Equal(t, step.asked, from.asked, step.sentence)
	}
}

func TestALookupThatFailsIsNoAnswerAndIsNotRemembered(t *testing.T) {
	t.Parallel()
	from := &customerDocuments{err: errDown, fields: map[string]map[string]any{"c1": {"uid": "u1"}}}
	directory := webhook.NewCustomers(from, func() time.Time { return fixed })
	_, ok, err := directory.UID(t.Context(), "default", "c1")
	require.ErrorIs(t, err, errDown)
	require.False(t, ok)
	from.err = nil
	uid, ok, err := directory.UID(t.Context(), "default", "c1")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "u1", uid)
}

func TestADocumentWithoutAValidUIDIsNoAnswer(t *testing.T) {
	t.Parallel()
	for name, fields := range map[string]map[string]any{
		"no uid": {}, "an empty one": {"uid": ""}, "a number": {"uid": int64(7)}, "an address": {"uid": "ilse.brandvold@example.org"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from := &customerDocuments{fields: map[string]map[string]any{"c1": fields}}
			_, ok, err := webhook.NewCustomers(from, func() time.Time { return fixed }).UID(t.Context(), "default", "c1")
			require.Error(t, err)
			require.False(t, ok)
			require.NotContains(t, err.Error(), "ilse")
		})
	}
}

func TestWhatIsRememberedOfCustomersIsBounded(t *testing.T) {
	t.Parallel()
	from := &customerDocuments{}
	directory := webhook.NewCustomers(from, func() time.Time { return fixed })
	ask := func(i int) int {
		before := from.asked
		_, _, err := directory.UID(t.Context(), "default", "c"+strconv.Itoa(i))
		require.NoError(t, err)
		return from.asked - before
	}
	for i := range 10_000 {
		ask(i)
	}
	require.Zero(t, ask(0), "ten thousand are remembered")
	ask(10_000)
	require.Equal(t, 1, ask(1), "and no more")
}
