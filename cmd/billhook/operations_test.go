package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/compose/operations"
	"billhook/internal/contract"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/pipeline/events"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// fate is what becomes of a replay.
type fate func(*testing.T, *graveyard, contract.Message)

// graveyard is the ops API of a worker with dead letters, where the broker's part is played by fates.
type graveyard struct {
	db     *standin.Store
	server string
	queue  catalog.Queue
	// fates are what becomes of the replay of each event; none: nothing is heard of it.
	fates map[string]fate
	ids   atomic.Int64
	// between is called before each request of ada's is answered; nil: nothing happens then.
	between func(path string)
}

// fortune is a worker that would process everything, and call a gateway for it.
type fortune struct{ *catalog.Catalog }

func (fortune) Try(_ context.Context, m dryrun.Message) (dryrun.Trial, error) {
	return dryrun.Trial{
		Queue: m.Queue, EventID: m.Attributes["event_id"], Outcome: dryrun.Calls,
		Calls: []handler.Call{{Target: "gateway", Method: http.MethodPost, Path: "/v1/refunds", ID: "key", Body: jsontext.Value(`{"amount":1250}`)}},
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

func openGraveyard(t *testing.T, fourEyes bool, fates ...fate) *graveyard {
	t.Helper()
	db := openStore(t)
	d := &graveyard{db: db, fates: map[string]fate{}, queue: catalog.Queue{
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
	api := routed(operations.Apps{
		Reads: events.Reads{Store: db, Now: time.Now, Catalog: queues},
		Tries: &dryrun.Trials{Store: db, Now: time.Now, Worker: func(map[string]string) (dryrun.Worker, error) { return fortune{queues}, nil }},
		Letters: &deadletter.Operator{
			Store: db, Queue: queues.Queue, Now: time.Now, NewID: func() string { return fmt.Sprint("id-", d.ids.Add(1)) },
			Wait: func(context.Context, time.Duration) error { return nil }, Relay: func(context.Context, string) error { d.play(t); return nil },
		},
	})
	d.server = listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.between != nil && r.Header.Get("X-Operator") == "ada" {
			d.between(r.URL.Path)
		}
		api.ServeHTTP(w, r)
	}))
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

// as runs a command as somebody who is on the worker's machine.
func (d *graveyard) as(t *testing.T, who, line string) (string, error) {
	t.Helper()
	return say(t, map[string]string{"OPS_OPERATOR": who, "COLUMNS": "200"}, append(words(line), "--server", d.server)...)
}

const replay = "dlq replay orders --yes --why mended"

func TestAReplaySaysWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fates             []fate
		with, want, fails string
	}{
		"when all are processed":             {[]fate{fine, fine}, "", "operation id-1: 2 of 2; 2 processed…DONE 2…", ""},
		"when one is dead again":             {[]fate{fine, dead}, "", "1 processed, 1 dead again…", "operations items id-1"},
		"when nothing is heard of one":       {[]fate{fine, nil}, " --wait 1500ms", "1 still waiting…It goes on by itself. Look on: bin/billhook operations run id-1", "not all are processed: 1 processed, 1 still waiting"},
		"when nobody wants to know":          {[]fate{fine, nil}, " --wait 0", "PROGRESS running", ""},
		"when one is named by its beginning": {[]fate{fine, fine}, " <first>", "operation id-1: 1 of 1; 1 processed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openGraveyard(t, false, test.fates...)
			with := strings.ReplaceAll(test.with, "<first>", deadletter.ItemID(d.queue, "100", contract.Message{Data: []byte(`{}`)})[:12])
			play(t, onPlace, d.server, []step{{line: replay + with, want: test.want, fails: test.fails}})
		})
	}
}

func TestTheSecondPersonSeesThePreviewConfirmsAndWaits(t *testing.T) {
	t.Parallel()
	d := openGraveyard(t, true, fine, fine)
	first, err := d.as(t, "ada", replay)
	require.ErrorContains(t, err, "waits for the approval of somebody else")
	seen, _, _ := strings.Cut(first, "OPERATION")
	require.Contains(t, seen, `call gateway POST /v1/refunds, id key: {"amount":1250}`)
	out, err := d.as(t, "bob", "operations approve id-1 --why checked")
	require.ErrorContains(t, err, "nothing was changed", "nobody has typed a number")
	require.Contains(t, out, seen, "the same as the first has seen")
	require.Contains(t, out, "Type id-1 to approve it: ")
	out, err = d.as(t, "bob", "operations approve id-1 --why checked --yes")
	require.NoError(t, err, out)
	require.Contains(t, out, "2 processed")
}

// Two people replay the same. The second has looked when the first begins, and is told that it has changed; or others
// have dealt with a part by then, which is passed by.
func TestWhoReplaysWhatOthersHaveDealtWithIsTold(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ when, bob, want, fails string }{
		"another was faster":                   {"/dead-letters/replay", replay, "DEAD LETTERS 2", "0 items match now, not 2; look at them again"},
		"another takes one after it was begun": {"/run", replay + " --event-id e0", "operation id-1: 1 of 2; 1 processed, 1 passed by", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, done := openGraveyard(t, false, fine, fine), false
			d.between = func(path string) {
				if strings.HasSuffix(path, test.when) && !done {
					done = true
					_, _ = d.as(t, "bob", test.bob) // what becomes of it is part of what ada is told
				}
			}
			play(t, onPlace, d.server, []step{{line: replay, want: test.want, fails: test.fails}})
			require.True(t, done)
		})
	}
}

func TestAnIdIsShortInAListAndTakenSo(t *testing.T) {
	t.Parallel()
	d := openGraveyard(t, false, fine, fine)
	whole := deadletter.ItemID(d.queue, "100", contract.Message{Data: []byte(`{}`)})
	play(t, onPlace, d.server, []step{
		{line: "dlq ls orders", want: "\n" + whole[:12] + " "},
		{line: "dlq ls orders -o csv", want: "\n" + whole + ","},
		{line: "dlq ls orders --wide", want: "\n" + whole + " "},
		{line: "dlq show " + whole[:12], want: "ID " + whole},
		{line: "dlq show " + whole[:3], fails: "There is nothing of that id"},
		{line: "dlq payload " + whole[:12] + " --why OPS-7 --yes", want: "ID " + whole},
	})
	for _, end := range []string{"a", "b"} {
		item := deadletter.Item{Queue: "orders", State: deadletter.Open, Kept: time.Now(), Expires: time.Now().Add(time.Hour)}
		commit(t, d.db, store.Create(store.Key{Collection: deadletter.Collection, ID: "0123456789abcdef-" + end}, store.Encode(&item)))
	}
	_, err := d.as(t, "ada", "dlq show 0123456789ab")
	require.ErrorContains(t, err, "The ids 0123456789abcdef-a and 0123456789abcdef-b begin so; name more of one. (id_ambiguous)")
	require.Equal(t, misused, serve.ExitCode(err))
	play(t, onPlace, d.server, []step{{line: "dlq ls orders", want: "\n0123456789abcdef-"}})
}
