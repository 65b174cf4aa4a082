package standin_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/platform/standin"
)

// TestUndeliveredMessagesSurviveARestart closes a simulator whose messages wait in every
// possible way, and delivers them by the next one.
func TestUndeliveredMessagesSurviveARestart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "broker.json")
	config := standin.SimulatorConfig{Topics: []string{"dead"}, Subscriptions: []standin.Subscription{
		{ID: "ordered", Topic: "orders", Path: "/push", Ordered: true, AckDeadline: time.Minute, MinimumBackoff: time.Second, MaximumBackoff: time.Minute, DeadLetterTopic: "dead", MaxDeliveryAttempts: 20},
		{ID: "loose", Topic: "loose", Path: "/push", AckDeadline: time.Minute, MinimumBackoff: time.Hour, MaximumBackoff: time.Hour},
		{ID: "hold", Topic: "dead"},
	}}
	first := newBench(t, func(r received) (int, error) {
		if r.text() == "t00" {
			return http.StatusNoContent, nil
		}
		return http.StatusInternalServerError, nil
	}, config)
	loaded, err := first.Load(path)
	require.NoError(t, err, "there is nothing yet")
	require.Zero(t, loaded)
	for i := range 12 {
		first.publish(fmt.Sprint("k", i%2), fmt.Sprintf("t%02d", i))
	}
	for topic, text := range map[string]string{"loose": "loose", "dead": "held"} {
		_, err = first.Publish(t.Context(), topic, contract.Message{Data: []byte(text), Attributes: map[string]string{"event_id": text}})
		require.NoError(t, err)
	}
	first.advance(10 * time.Second)
	require.ErrorContains(t, first.Save(path), "not closed")
	require.NoError(t, first.Close())
	require.NoError(t, first.Save(path))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	attempts := first.worker.pushes()

	second := newBench(t, always(http.StatusNoContent), config) // its clock was set back
	loaded, err = second.Load(path)
	require.NoError(t, err)
	require.Equal(t, standin.Loaded{Waiting: 12}, loaded)
	second.publish("k0", "t99")
	held := second.Held("hold")
	require.Len(t, held, 1)
	require.Equal(t, first.Held("hold"), held)
	require.NoError(t, second.Idle(t.Context()))
	got, ids := map[string][]string{}, map[string]bool{held[0].ID: true}
	for _, push := range second.worker.pushes() {
		got[push.Message.OrderingKey] = append(got[push.Message.OrderingKey], push.text())
		require.False(t, ids[push.Message.MessageID], "an id of its own")
		ids[push.Message.MessageID] = true
		before := 0
		for _, attempt := range attempts {
			if attempt.text() == push.text() && push.text() != "loose" {
				require.Equal(t, attempt.Message, push.Message)
				before++
			}
		}
		if push.Message.OrderingKey != "" {
			require.Equal(t, before+1, push.DeliveryAttempt, "it is counted on")
		}
	}
	require.Equal(t, map[string][]string{
		"k0": {"t02", "t04", "t06", "t08", "t10", "t99"}, "k1": {"t01", "t03", "t05", "t07", "t09", "t11"}, "": {"loose"},
	}, got, "each once, in order per key, what is new behind")

	require.NoError(t, second.Close())
	require.NoError(t, second.Save(path))
	third := newBench(t, always(http.StatusNoContent), standin.SimulatorConfig{})
	loaded, err = third.Load(path)
	require.NoError(t, err)
	require.Equal(t, standin.Loaded{Gone: 1}, loaded, "what a subscription held that is no more")
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err = third.Load(path)
	require.Error(t, err)
}

// TestWhatWaitsOutlivesAKilledProcess leaves a simulator as a kill does, without Close and Save.
func TestWhatWaitsOutlivesAKilledProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "broker.json")
	config := standin.SimulatorConfig{Topics: []string{"dead"}, Subscriptions: []standin.Subscription{
		{ID: "ordered", Topic: "orders", Path: "/push", Ordered: true, AckDeadline: time.Minute, MinimumBackoff: time.Hour, MaximumBackoff: time.Hour},
		{ID: "hold", Topic: "dead"},
	}}
	start := func(status int, first ...string) *bench {
		b := newBench(t, func(r received) (int, error) {
			if len(first) > 0 && r.text() == first[0] {
				return http.StatusNoContent, nil
			}
			return status, nil
		}, config)
		return b
	}
	killed := start(http.StatusInternalServerError, "t0")
	_, err := killed.Load(path)
	require.NoError(t, err)
	for i := range 4 {
		killed.publish("k", fmt.Sprint("t", i))
	}
	_, err = killed.Publish(t.Context(), "dead", contract.Message{Data: []byte("held"), Attributes: map[string]string{"event_id": "held"}})
	require.NoError(t, err)
	require.NoError(t, killed.Settled(t.Context()))
	kept, err := os.ReadFile(path + ".log")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path+".log", append(kept, `{"subscription":"ordered","got":{"id":"9`...), 0o600), "the kill cuts a line off")

	again := start(http.StatusInternalServerError)
	loaded, err := again.Load(path)
	require.NoError(t, err)
	require.Equal(t, standin.Loaded{Waiting: 3}, loaded, "what was acknowledged is not delivered again")
	require.NoError(t, os.WriteFile(path+".log", kept, 0o600), "a kill before the log is emptied")

	last := start(http.StatusNoContent)
	loaded, err = last.Load(path)
	require.NoError(t, err)
	require.Equal(t, standin.Loaded{Waiting: 3}, loaded)
	require.NoError(t, last.Idle(t.Context()))
	var got []string
	for _, push := range last.worker.pushes() {
		got = append(got, push.text())
	}
	require.Equal(t, []string{"t1", "t2", "t3"}, got, "each once, in order")
	require.Len(t, last.Held("hold"), 1)
	require.NoError(t, last.Close())
	require.NoError(t, last.Save(path))
	require.NoFileExists(t, path+".log")
}

func TestAStoreInUseIsNamedInTheError(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	db, err := standin.OpenStore(path)
	require.NoError(t, err)
	_, err = standin.OpenStore(path)
	require.ErrorIs(t, err, standin.ErrInUse)
	require.NoError(t, db.Close())
}
