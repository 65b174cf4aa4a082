package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/standin"
)

func TestStoredLanesAreWhatTheyWere(t *testing.T) {
	t.Parallel()
	requireDocuments(t, "lanes", lanes)
}

func lanes(t *testing.T, db *standin.Store) {
	batch := lane.NewBatch(noon)
	from := lane.Source{Queue: "orders", Tenant: "default", EventID: "e1"}
	batch.Add("orders", "id-1", contract.Message{Data: []byte("{}"), Attributes: map[string]string{"event_id": "id-1"}, OrderingKey: "u1"}, from)
	batch.Add("orders", "id-2", contract.Message{Data: []byte("\xff")}, from)
	commit(t, db, batch.Writes()...)

	waiting := lane.Waiting{
		Topic: "orders", Message: contract.Message{Data: []byte("{}"), Attributes: map[string]string{"event_id": "e2"}}, FirstPublished: noon.Add(-time.Hour),
		MessageID: "m1", Tenant: "default", EventID: "e2", Due: noon.Add(time.Minute),
	}
	for _, key := range []string{"u1", ""} {
		l, err := lane.Open(t.Context(), db, lane.Name{Queue: "orders", OrderingKey: key, Message: "m1"})
		require.NoError(t, err)
		_, writes, err := l.Put(waiting, noon)
		require.NoError(t, err)
		commit(t, db, writes...)
	}
	l, err := lane.Open(t.Context(), db, lane.Name{Queue: "orders", OrderingKey: "u1"})
	require.NoError(t, err)
	waiting.Due = time.Time{}
	_, writes, err := l.Put(waiting, noon)
	require.NoError(t, err)
	commit(t, db, writes...)
}
