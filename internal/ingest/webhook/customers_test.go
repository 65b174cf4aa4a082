package webhook_test

import (
	"context"
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

func TestALookupThatFailsAndADocumentWithoutAValidUIDAreNoAnswer(t *testing.T) {
	t.Parallel()
	for name, from := range map[string]*customerDocuments{
		"the store is down": {err: errDown},
		"no uid":            {fields: map[string]map[string]any{"c1": {}}},
		"an empty one":      {fields: map[string]map[string]any{"c1": {"uid": ""}}},
		"a number":          {fields: map[string]map[string]any{"c1": {"uid": int64(7)}}},
		"an address":        {fields: map[string]map[string]any{"c1": {"uid": "ilse.brandvold@example.org"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directory := webhook.NewCustomers(from, func() time.Time { return fixed })
			for asked := range 2 { // it is not remembered
				_, ok, err := directory.UID(t.Context(), "default", "c1")
				require.Error(t, err)
				require.False(t, ok)
				if from.err != nil {
					require.ErrorIs(t, err, from.err)
				} else {
					require.NotContains(t, err.Error(), "ilse")
				}
				require.Equal(t, asked+1, from.asked)
			}
		})
	}
}
