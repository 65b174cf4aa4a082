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
	"billhook/internal/apps/ledger"
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// ownProcesses skips a long test with processes of its own in short mode, which the race
// detector uses: it does not see other processes.
func ownProcesses(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs without -short")
	}
}

// TestAThousandDeadLettersAreReplayedThroughTwoKills replays dead letters of 50 customers on
// Google's emulators. Twice on the way it kills the worker, which runs the replay and handles
// the messages.
func TestAThousandDeadLettersAreReplayedThroughTwoKills(t *testing.T) {
	t.Parallel()
	ownProcesses(t)
	broker, database := emulatortest.PubSub(t), emulatortest.Firestore(t)
	c, err := catalog.Load("")
	require.NoError(t, err)
	q, _ := c.Queue(e2e.Queue)
	project := "replay-" + uuid.NewString()
	r, err := e2e.StartReal(t.Context(), e2e.Site{
		Folder: t.TempDir(), Project: project, Broker: broker, Database: database, Provision: e2e.Provisioned(project, c),
	})
	require.NoError(t, err)
	t.Cleanup(r.Close)

	const letters, customers = 1000, 50
	// The writes are collected for few commits: the emulator copies a table of all documents for
	// each commit.
	var collected []store.Write
	began, kept := time.Now().Add(-time.Hour), &storetest.Faults{Store: r.Store, OnCommit: func(_ context.Context, writes []store.Write, _ func() error) error {
		collected = append(collected, writes...)
		return nil
	}}
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
	for some := range slices.Chunk(collected, store.MaxWrites/2) {
		_, err := r.Store.Commit(t.Context(), some)
		require.NoError(t, err)
	}

	base := r.WorkerURL() // a restarted worker has the same address
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
	go func() { // repeats the request until the operation ends, as `billhook dlq replay` does
		defer close(ran)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for op := op; op.Progress != deadletter.Finished; {
			_ = ask(http.MethodPost, "/v1/ops/operations/"+op.ID+"/run", struct{}{}, &op) // repeated by the loop
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
	// The task publishes what the killed workers had committed and not published.
	credited := func() int64 {
		var sum int64
		for customer := range customers {
			doc, err := r.Store.Get(t.Context(), ledger.UserPoints(fmt.Sprint("replay-user-", customer)).Key("default"))
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
		// Each letter has at least one line. Reading 50 accounts is slow, so the lines are
		// checked first.
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
	require.NotZero(t, op.FinishedAt)
}
