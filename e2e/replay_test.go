package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/emulator/emulatortest"
	"billhook/internal/contract"
	"billhook/internal/deadletter"
	"billhook/internal/ledger"
	"billhook/internal/ops"
	"billhook/internal/store"
	"billhook/internal/worker"
)

// ownProcesses skips a long test of processes of their own where time is short: under
// the race detector, which sees nothing of them.
func ownProcesses(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs without -short")
	}
}

// gathering keeps what is committed, to be committed together: the emulator copies a
// table of all its documents for each commit.
type gathering struct {
	worker.Store
	writes []store.Write
}

func (g *gathering) Commit(_ context.Context, writes []store.Write) ([]store.Version, error) {
	g.writes = append(g.writes, writes...)
	return make([]store.Version, len(writes)), nil
}

// TestAThousandDeadLettersAreReplayedThroughTwoKills replays dead letters of 50
// customers on Google's emulators, and kills the worker that does it, and that handles
// them, twice on the way.
func TestAThousandDeadLettersAreReplayedThroughTwoKills(t *testing.T) {
	t.Parallel()
	ownProcesses(t)
	broker, database := emulatortest.PubSub(t), emulatortest.Firestore(t)
	c, err := catalog.Load("")
	require.NoError(t, err)
	q, _ := c.Queue(e2e.Queue)
	project := "replay-" + uuid.NewString()
	r, err := e2e.StartReal(t.Context(), t.TempDir(), project, broker, database, e2e.Provisioned(project, c))
	require.NoError(t, err)
	t.Cleanup(r.Close)

	const letters, customers = 1000, 50
	began, kept := time.Now().Add(-time.Hour), &gathering{Store: r.Store}
	for i := range letters {
		n, customer := fmt.Sprintf("8000000%05d", i), fmt.Sprint("replay-user-", i%customers)
		body := &contract.PayNow{EventID: n, EventType: contract.OrderPaid, Timestamp: "2026-03-02T10:15:00Z", Data: contract.PayNowData{
			Order: &contract.Order{ID: n + "1", Items: []contract.Item{{ProductID: points, Quantity: 1}}},
		}}
		data, err := contract.Of(body).Append(nil)
		require.NoError(t, err)
		_, err = deadletter.Keep(t.Context(), kept, q, contract.Message{Data: data, Attributes: map[string]string{
			"event_id": n, "event_type": contract.OrderPaid, "ordering_key": customer, "uid": customer, "contract": contract.PayNowV1,
			"dead_letter_reason": "unknown_product", "dead_letter_status": "400", "source_message_id": fmt.Sprint(10_000 + i),
			"first_published_at": began.Add(time.Duration(i) * time.Millisecond).Format(time.RFC3339Nano),
		}}, fmt.Sprint(90_000+i), time.Now())
		require.NoError(t, err)
	}
	for some := range slices.Chunk(kept.writes, store.MaxWrites/2) {
		_, err := r.Store.Commit(t.Context(), some)
		require.NoError(t, err)
	}

	base := r.WorkerURL() // which a restarted worker has, too
	ask := func(method, path string, question, answer any) error {
		body, err := json.Marshal(question)
		require.NoError(t, err)
		request, err := http.NewRequestWithContext(t.Context(), method, base+path, bytes.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("X-Operator", "drill")
		got, err := e2e.Do(request)
		if err != nil {
			return err
		}
		if got.Status >= 300 {
			return fmt.Errorf("%d %s", got.Status, got.Code)
		}
		return json.Unmarshal([]byte(got.Body), answer)
	}
	var op deadletter.Operation
	require.NoError(t, ask(http.MethodPost, "/v1/ops/dead-letters/replay", ops.Request{
		Filter: deadletter.Filter{Queue: e2e.Queue}, Why: "the product is known now", Expect: letters, Rate: 1000,
	}, &op))
	ran := make(chan struct{})
	go func() { // as `billhook dlq replay` does: asks again, whatever becomes of the worker
		defer close(ran)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for op := op; op.Progress != deadletter.Finished; {
			_ = ask(http.MethodPost, "/v1/ops/operations/"+op.ID+"/run", struct{}{}, &op) // asked again
			select {
			case <-tick.C:
			case <-t.Context().Done():
				return
			}
		}
	}()
	for _, after := range []int64{150, 550} {
		require.Eventually(t, func() bool {
			found, err := (&deadletter.Operator{Store: r.Store}).Operation(t.Context(), op.ID)
			require.NoError(t, err)
			require.Less(t, found.Done, int64(letters), "it is killed on the way")
			return found.Done >= after
		}, patience, 60*time.Millisecond)
		r.KillWorker()
		require.NoError(t, r.RestartWorker(t.Context()))
	}
	<-ran
	// What the dead workers had committed and not published is published by the task.
	credited := func() int64 {
		var sum int64
		for customer := range customers {
			doc, err := r.Store.Get(t.Context(), ledger.UserPoints(fmt.Sprint("replay-user-", customer)).Key())
			if err == nil {
				balance, _ := doc.Fields["balance"].(int64)
				sum += balance
			}
		}
		return sum
	}
	require.Eventually(t, func() bool {
		_, err := r.Task(t.Context(), "relay-outbox")
		require.NoError(t, err)
		// Each has a line of its own at least; 50 accounts a second are much to look at.
		return len(r.Log.Deliveries("")) >= letters && credited() >= letters*1000
	}, 2*patience, time.Second)
	require.EqualValues(t, letters*1000, credited(), "each handled once")

	last := map[int]int{}
	for _, d := range r.Log.Deliveries("") {
		if d.Outcome != "processed" {
			continue
		}
		var n int
		_, err := fmt.Sscanf(d.EventID, "8000000%05d", &n)
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, last[n%customers], "in order per key")
		last[n%customers] = n
	}
	require.NoError(t, ask(http.MethodGet, "/v1/ops/operations/"+op.ID, struct{}{}, &op))
	require.Equal(t, deadletter.Finished, op.Progress)
	require.Equal(t, []int64{letters, letters, 0}, []int64{op.Total, op.Done, op.Skipped}, "the audit is complete")
	require.Equal(t, "local:drill", op.Who)
	require.NotNil(t, op.FinishedAt)
}
