package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/audit"
	"billhook/internal/contract"
	"billhook/internal/deadletter"
	"billhook/internal/ops"
	"billhook/internal/retry"
	"billhook/internal/standin"
	"billhook/internal/store"
)

// graveyard is the ops API of a worker with dead letters, where the broker's part is played by fates.
type graveyard struct {
	db     *standin.Store
	server string
	queue  catalog.Queue
	// fates are what becomes of the replay of each event; none: nothing is heard of it.
	fates map[string]func(*testing.T, *graveyard, contract.Message)
	ids   atomic.Int64
}

// fine and dead are how a replay ends.
func fine(t *testing.T, d *graveyard, m contract.Message) {
	t.Helper()
	require.NoError(t, deadletter.Settle(t.Context(), d.db, m, deadletter.Ending{State: deadletter.Processed, Outcome: retry.Processed, At: time.Now()}))
}

func dead(t *testing.T, d *graveyard, m contract.Message) {
	t.Helper()
	m.Attributes["dead_letter_reason"], m.Attributes["dead_letter_detail"] = "order_not_seen", "attempts_exhausted"
	_, err := deadletter.Keep(t.Context(), d.db, d.queue, m, "again", time.Now())
	require.NoError(t, err)
}

func openGraveyard(t *testing.T, fourEyes bool, fates ...func(*testing.T, *graveyard, contract.Message)) *graveyard {
	t.Helper()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	d := &graveyard{db: db, fates: map[string]func(*testing.T, *graveyard, contract.Message){}, queue: catalog.Queue{
		ID: "orders", Enabled: true, FourEyes: fourEyes, DeadLetter: catalog.DeadLetter{Topic: "orders-dlq", Retention: time.Hour},
	}}
	for n, fate := range fates {
		event := fmt.Sprint("e", n)
		d.fates[event] = fate
		_, err := deadletter.Keep(t.Context(), db, d.queue, contract.Message{Data: []byte(`{}`), Attributes: map[string]string{
			"event_id": event, "event_type": "order.paid", "dead_letter_reason": "unknown_product", "source_message_id": fmt.Sprint(100 + n),
		}}, fmt.Sprint(900+n), time.Now().Add(-time.Minute))
		require.NoError(t, err)
	}
	queues := &catalog.Catalog{Queues: []catalog.Queue{d.queue}}
	router := chi.NewRouter()
	(&ops.API{
		Reads: ops.Reads{Store: db, Now: time.Now, Catalog: queues}, Log: slog.New(slog.DiscardHandler), Access: ops.Access{Tokens: []string{opsToken}},
		Operator: &deadletter.Operator{
			Store: db, Queue: queues.Queue, Now: time.Now, NewID: func() string { return fmt.Sprint("id-", d.ids.Add(1)) },
			Wait: func(context.Context, time.Duration) error { return nil }, Relay: func(context.Context, string) error { d.play(t); return nil },
		},
	}).Routes(router)
	server := httptest.NewServer(router)
	t.Cleanup(server.Close)
	d.server = server.URL
	return d
}

// play lets each replay that is under way come to its end.
func (d *graveyard) play(t *testing.T) {
	t.Helper()
	page, err := d.db.Query(t.Context(), store.Query{Collection: deadletter.Collection, Equal: map[string]any{"state": "replayed"}, Limit: 100})
	require.NoError(t, err)
	for _, doc := range page.Documents {
		item, err := deadletter.ItemOf(doc)
		require.NoError(t, err)
		item.ReplayCount-- // as it was when its message was made
		if fate := d.fates[item.EventID]; fate != nil {
			fate(t, d, item.Replay(d.queue))
		}
	}
}

func (d *graveyard) say(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := say(t, map[string]string{"OPS_TOKEN": opsToken, "OPS_OPERATOR": "ada"}, append(args, "--server", d.server)...)
	return out, err
}

func TestAReplaySaysWhatBecameOfEach(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fates []func(*testing.T, *graveyard, contract.Message)
		args  []string
		want  []string
		fails string
	}{
		"when all are processed": {
			[]func(*testing.T, *graveyard, contract.Message){fine, fine}, nil,
			[]string{"operation id-1: 0 of 2", "replay: 2 done, 0 passed by", "e0     processed", "e1     processed", "2 processed"}, "",
		},
		"when one is dead again": {
			[]func(*testing.T, *graveyard, contract.Message){fine, dead}, nil,
			[]string{"e1     dead again  order_not_seen attempts_exhausted", "1 processed, 1 dead again"}, "1 of 2 are not processed",
		},
		"when nothing is heard of one": {
			[]func(*testing.T, *graveyard, contract.Message){fine, nil}, []string{"--wait", "1ms"},
			[]string{"e1     still waiting", "1 processed, 1 still waiting", "events show"}, "1 of 2 are not processed",
		},
		"when nobody wants to know": {
			[]func(*testing.T, *graveyard, contract.Message){fine, nil}, []string{"--no-wait"}, []string{"replay: 2 done, 0 passed by"}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openGraveyard(t, false, test.fates...)
			out, err := d.say(t, append([]string{"dlq", "replay", "orders", "--yes", "--why", "mended"}, test.args...)...)
			for _, want := range test.want {
				require.Contains(t, out, want)
			}
			if test.fails == "" {
				require.NoError(t, err, out)
				return
			}
			require.ErrorContains(t, err, test.fails, out)
			require.ErrorContains(t, err, "dlq operations show id-1")
		})
	}
}

func TestAReplaySaysTheSameInJSON(t *testing.T) {
	t.Parallel()
	d := openGraveyard(t, false, fine, dead, nil)
	out, err := d.say(t, "dlq", "replay", "orders", "--yes", "--why", "mended", "--wait", "1ms", "--json")
	require.Error(t, err)
	var whole report
	require.NoError(t, json.Unmarshal([]byte(out), &whole), out)
	require.Equal(t, deadletter.Outcomes{Processed: 1, DeadAgain: 1, Waiting: 1}, *whole.Outcomes)
	var states []deadletter.State
	for _, item := range whole.Items {
		states = append(states, item.State)
	}
	require.Equal(t, []deadletter.State{deadletter.Open, deadletter.Replayed, deadletter.Processed}, states, "those first that need a person")
	out, err = d.say(t, "dlq", "operations", "show", "id-1", "--json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(out), &whole), out)
	require.EqualValues(t, 3, whole.Done)
}

func TestAnOperationThatWaitsIsRejectedOrCancelledFromATerminal(t *testing.T) {
	t.Parallel()
	d := openGraveyard(t, true, fine)
	replay := func(more ...string) (string, error) {
		return d.say(t, append([]string{"dlq", "replay", "orders", "--yes", "--why", "mended"}, more...)...)
	}
	out, err := replay()
	require.ErrorContains(t, err, "waits for approval", "nothing is processed")
	require.Contains(t, out, "dlq reject id-1 --why")
	_, err = d.say(t, "dlq", "reject", "id-1", "--why", "no")
	require.ErrorContains(t, err, "somebody else rejects it")
	out, err = d.say(t, "dlq", "cancel", "id-1", "--why", "the wrong queue")
	require.NoError(t, err)
	require.Contains(t, out, "operation id-1 is cancelled, by token:ada: 0 of 1 were done")
	_, err = replay("--no-wait")
	require.NoError(t, err)
	all, err := d.say(t, "dlq", "operations")
	require.NoError(t, err)
	id := all[strings.LastIndex(all, "\nid-")+1:]
	id, _, _ = strings.Cut(id, " ")
	out, err = say(t, map[string]string{"OPS_TOKEN": opsToken, "OPS_OPERATOR": "bob"}, "dlq", "reject", id, "--why", "ask first", "--server", d.server)
	require.NoError(t, err)
	require.Contains(t, out, "is rejected, by token:bob")
	out, err = d.say(t, "dlq", "operations", "show", id)
	require.NoError(t, err)
	for _, want := range []string{"rejected", "token:bob", "ask first", "0 of 1"} {
		require.Contains(t, out, want)
	}
}

// What a release before has kept is shown, and reaches no terminal.
func TestOldReasonsAreShownEscaped(t *testing.T) {
	t.Parallel()
	d := openGraveyard(t, false)
	op := deadletter.Operation{
		Kind: deadletter.Discard, Filter: deadletter.Filter{Queue: "orders"}, Who: "eve\u202e", Why: "lost\x1b[2J\u009b1m\nfound", Rate: 50,
		Progress: deadletter.Cancelled, EndedBy: "eve\x1b", EndedWhy: "\u2066", CreatedAt: time.Now(),
	}
	_, err := d.db.Commit(t.Context(), []store.Write{store.Create(store.Key{Collection: audit.Collection, ID: "old"}, store.Encode(&op))})
	require.NoError(t, err)
	for _, args := range [][]string{{"dlq", "operations"}, {"dlq", "operations", "--json"}, {"dlq", "operations", "show", "old"}, {"dlq", "operations", "show", "old", "--json"}, {"dlq", "continue", "old"}} {
		out, err := d.say(t, args...)
		require.NoError(t, err)
		for _, line := range strings.Split(out, "\n") {
			require.Equal(t, line, audit.Escape(line), "%s", args)
		}
		if !slices.Contains(args, "continue") {
			require.Contains(t, out, `\u202e`)
		}
	}
}
