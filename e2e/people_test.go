package e2e_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"billhook/e2e"
	"billhook/internal/inspect/bulk"
	"billhook/internal/pipeline/deadletter"
)

// The worker runs the operations that people begin in a process of their own, also when that is killed.
func TestPeopleAndPushesAreServedByTwoProcesses(t *testing.T) {
	t.Parallel()
	onlyInFull(t)
	s, r := startReal(t, site{
		Project: "people-" + uuid.NewString(), CatalogDir: shortWaits(t), Queues: paynowQueues, Serves: "pushes",
	})
	people := func() *e2e.Process {
		p, err := r.start("people")
		require.NoError(t, err)
		t.Cleanup(p.Kill)
		s.opsURL = p.URL
		return p
	}
	first := people()
	var buried []e2e.Order
	for range 4 {
		o := s.newOrder()
		o.Lines = []e2e.Line{{Product: e2e.UnknownProduct, Quantity: 1, Price: 500}}
		s.accepted(t, o.JSON())
		buried = append(buried, o)
	}
	for _, o := range buried {
		require.Equal(t, deadletter.Open, s.deadLetter(t, e2e.Queue, o.EventID).State)
	}
	s.ask(t, http.MethodPut, "/v1/ops/products/"+e2e.UnknownProduct,
		map[string]any{"points": 500, "why": "sold since today"}, nil)

	// One a second, so that the process for people is killed between two.
	var op bulk.Operation
	replay := map[string]any{"queue": e2e.Queue, "expect": 4, "rate": 1, "why": "it is sold now"}
	s.ask(t, http.MethodPost, "/v1/ops/dead-letters/replay", replay, &op)
	s.ask(t, http.MethodPost, "/v1/ops/operations/"+op.ID+"/run", nil, &op)
	require.Equal(t, bulk.Running, op.Progress)
	var ran errgroup.Group
	ran.Go(func() error { _, err := s.task(t.Context(), "run-operations"); return err })
	require.Eventually(t, func() bool {
		s.ask(t, http.MethodGet, "/v1/ops/operations/"+op.ID, nil, &op)
		return op.Done > 0
	}, patience, pollInterval)
	first.Kill()
	require.Less(t, op.Done, int64(4), "the operation is not finished")
	require.NoError(t, ran.Wait())
	people()
	for _, o := range buried {
		s.until(t, o.EventID, "processed")
		require.Equal(t, int64(500), s.balance(t, o.UID))
	}
	s.ask(t, http.MethodGet, "/v1/ops/operations/"+op.ID, nil, &op)
	require.Equal(t, []any{bulk.Finished, int64(4)}, []any{op.Progress, op.Done})
}
