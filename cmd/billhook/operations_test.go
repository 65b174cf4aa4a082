package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// graveyard is the ops API of a worker with dead letters, where the broker's part is played by fates.
type graveyard struct {
	db     *standin.Store
	server string
	queue  catalog.Queue
	// fates are what becomes of the replay of each event; none: nothing is heard of it.
	fates map[string]func(*testing.T, *graveyard, contract.Message)
	ids   atomic.Int64
	// between is called before each request of ada's is answered; nil: nothing happens then.
	between func(path string)
}

// fortune is a worker that would process everything, and call a gateway for it.
type fortune struct{ *catalog.Catalog }

func (fortune) Try(_ context.Context, m dryrun.Message) (dryrun.Trial, error) {
	return dryrun.Trial{
		Queue: m.Queue, EventID: m.Attributes["event_id"], Outcome: dryrun.Calls,
		Calls: []dryrun.Call{{Target: "gateway", Method: http.MethodPost, Path: "/v1/refunds", ID: "key", Body: jsontext.Value(`{"amount":1250}`)}},
	}, nil
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
		Reads: ops.Reads{Store: db, Now: time.Now, Catalog: queues}, Log: slog.New(slog.DiscardHandler), Access: ops.Access{Tokens: []string{opsToken}, OpenOnLoopback: true},
		Tries: &dryrun.Desk{Store: db, Now: time.Now, Worker: func(map[string]string) (dryrun.Worker, error) { return fortune{queues}, nil }},
		Operator: &deadletter.Operator{
			Store: db, Queue: queues.Queue, Now: time.Now, NewID: func() string { return fmt.Sprint("id-", d.ids.Add(1)) },
			Wait: func(context.Context, time.Duration) error { return nil }, Relay: func(context.Context, string) error { d.play(t); return nil },
		},
	}).Routes(router)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.between != nil && r.Header.Get("X-Operator") == "ada" {
			d.between(r.URL.Path)
		}
		router.ServeHTTP(w, r)
	}))
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
	return d.as(t, "ada", args...)
}

// as runs a command as somebody who is on the worker's machine.
func (d *graveyard) as(t *testing.T, who string, args ...string) (string, error) {
	t.Helper()
	return say(t, map[string]string{"OPS_OPERATOR": who, "COLUMNS": "200"}, append(args, "--server", d.server)...)
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
	require.Contains(t, out, "operation id-1 is cancelled, by local:ada: 0 of 1 were done")
	_, err = replay("--no-wait")
	require.NoError(t, err)
	all, err := d.say(t, "dlq", "operations")
	require.NoError(t, err)
	id := all[strings.LastIndex(all, "\nid-")+1:]
	id, _, _ = strings.Cut(id, " ")
	out, err = d.as(t, "bob", "dlq", "reject", id, "--why", "ask first")
	require.NoError(t, err)
	require.Contains(t, out, "is rejected, by local:bob")
	out, err = d.say(t, "dlq", "operations", "show", id)
	require.NoError(t, err)
	for _, want := range []string{"rejected", "local:bob", "ask first", "0 of 1"} {
		require.Contains(t, out, want)
	}
}

func TestTheSecondPersonSeesThePreviewAndConfirmsFromATerminal(t *testing.T) {
	t.Parallel()
	d := openGraveyard(t, true, fine, fine)
	token := map[string]string{"OPS_TOKEN": opsToken, "OPS_OPERATOR": "ada"}
	_, err := say(t, token, "dlq", "replay", "orders", "--yes", "--why", "mended", "--server", d.server)
	require.ErrorContains(t, err, "identity_needed", "nobody knows who holds a token")
	first, err := d.say(t, "dlq", "replay", "orders", "--yes", "--why", "mended", "--no-wait")
	require.NoError(t, err)
	seen, _, _ := strings.Cut(first, "Operation id-")
	require.Contains(t, seen, `call      gateway POST /v1/refunds, id key`)
	require.Contains(t, seen, `{"amount":1250}`)

	_, err = d.say(t, "dlq", "approve", "id-1", "--yes", "--why", "checked")
	require.ErrorContains(t, err, "second_person_needed")
	_, err = say(t, token, "dlq", "approve", "id-1", "--yes", "--why", "checked", "--server", d.server)
	require.ErrorContains(t, err, "identity_needed")
	out, err := d.as(t, "bob", "dlq", "approve", "id-1", "--why", "checked")
	require.ErrorContains(t, err, "nothing was changed", "nobody has typed a number")
	require.Contains(t, out, "begun by local:ada on ")
	require.Contains(t, out, ": mended\n"+seen, "the same as the first has seen")
	require.Contains(t, out, "Type 2 to approve it: ")
	_, err = d.as(t, "bob", "dlq", "approve", "id-1", "--yes", "--why", " ")
	require.Equal(t, misused, exitOf(err))
	out, err = d.as(t, "bob", "dlq", "approve", "id-1", "--yes", "--why", "checked")
	require.NoError(t, err, out)
	require.Contains(t, out, "2 processed")
	out, err = d.say(t, "dlq", "operations", "show", "id-1")
	require.NoError(t, err)
	require.Regexp(t, `approved by +local:bob\napproved why +checked`, out)
}

// TestPeopleWhoReplayTheSameDeadLettersTogetherAllSucceed runs two shells. The second has looked when the first
// begins, and comes to what the first has left: to nothing, to a part, or to what another has discarded.
func TestPeopleWhoReplayTheSameDeadLettersTogetherAllSucceed(t *testing.T) {
	t.Parallel()
	bob := func(args ...string) func(*testing.T, *graveyard) {
		return func(t *testing.T, d *graveyard) {
			t.Helper()
			_, err := d.as(t, "bob", append(args, "--yes", "--why", "mended")...)
			require.NoError(t, err)
		}
	}
	for name, test := range map[string]struct {
		fates   []func(*testing.T, *graveyard, contract.Message)
		looked  func(*testing.T, *graveyard) // what happens between her look and her operation
		begun   func(*testing.T, *graveyard) // and what between that and its run
		want    []string
		missing string
	}{
		"another was faster with all": {
			[]func(*testing.T, *graveyard, contract.Message){fine, fine}, bob("dlq", "replay", "orders"), nil,
			[]string{"Others have dealt with all of them meanwhile.", "e0     processed, by local:bob", "e1     processed, by local:bob"}, "",
		},
		"another was faster with one": {
			[]func(*testing.T, *graveyard, contract.Message){fine, fine}, bob("dlq", "replay", "orders", "--event", "e0"), nil,
			[]string{"replay: 1 done, 0 passed by", "e0     processed, by local:bob", "e1     processed "}, "",
		},
		"another takes one after it was begun": {
			[]func(*testing.T, *graveyard, contract.Message){fine, fine}, nil, bob("dlq", "replay", "orders", "--event", "e0"),
			[]string{"replay: 1 done, 1 passed by", "e0     processed, by local:bob", "e1     processed "}, "",
		},
		"another takes all after it was begun": {
			[]func(*testing.T, *graveyard, contract.Message){fine, fine}, nil, bob("dlq", "replay", "orders"),
			[]string{"replay: 0 done, 2 passed by", "e0     processed, by local:bob", "e1     processed, by local:bob"}, "",
		},
		"another has discarded one": {
			[]func(*testing.T, *graveyard, contract.Message){fine, fine}, bob("dlq", "discard", "orders", "--event", "e0"), nil,
			[]string{"e0     discarded, by local:bob", "e1     processed "}, "1 of 2 are not processed",
		},
		"another has done one by hand": {
			[]func(*testing.T, *graveyard, contract.Message){fine, fine}, nil, bob("dlq", "complete", "orders", "--event", "e0"),
			[]string{"e0     completed by hand, by local:bob", "e1     processed "}, "1 of 2 are not processed",
		},
		"the other's is dead again": {
			[]func(*testing.T, *graveyard, contract.Message){dead, fine}, nil, func(t *testing.T, d *graveyard) {
				t.Helper()
				_, err := d.as(t, "bob", "dlq", "replay", "orders", "--event", "e0", "--yes", "--why", "mended")
				require.ErrorContains(t, err, "1 of 1 are not processed")
			},
			[]string{"e0     still open ", "e1     processed "}, "1 of 2 are not processed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openGraveyard(t, false, test.fates...)
			d.between = func(path string) {
				var then func(*testing.T, *graveyard)
				switch {
				case strings.HasSuffix(path, "/dead-letters/replay"):
					then, test.looked = test.looked, nil
				case strings.HasSuffix(path, "/run"):
					then, test.begun = test.begun, nil
				}
				if then != nil {
					then(t, d)
				}
			}
			out, err := d.say(t, "dlq", "replay", "orders", "--yes", "--why", "mended")
			for _, want := range test.want {
				require.Contains(t, out, want)
			}
			if test.missing == "" {
				require.NoError(t, err, out)
				return
			}
			require.ErrorContains(t, err, test.missing, out)
		})
	}
}
