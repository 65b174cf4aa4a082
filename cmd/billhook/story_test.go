package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/console/ops"
	"billhook/internal/dedupe"
	"billhook/internal/retry"
)

func TestAnEventIsShownAsItsStory(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)
	var out bytes.Buffer
	p := &program{stdout: &out}
	had, has := int64(-250), int64(1000)
	lines := []ledger.Line{{Account: "cash", Currency: "EUR", Debit: 1250}, {Account: "revenue", Currency: "EUR", Credit: 1250}}
	p.printEvent(ops.Event{
		LogLink: "https://log.example/",
		Effect: []ops.Posted{{JournalEntry: ops.JournalEntry{Entry: ledger.Entry{ID: "x1", Kind: ledger.KindJournal, Lines: lines}}, Balances: []ops.Balance{
			{Account: "cash", Currency: "EUR", Before: &had, After: &has, Seal: 7}, {Account: "revenue", Currency: "EUR"},
			{Account: "points:user:u1", Currency: "points", Before: &had, After: &has}, {Account: "points:user:u2", Currency: "points"},
		}}},
		Line:   ops.Line{EventID: "e1", Status: dedupe.Failed, Queue: "orders", Attempts: 2},
		Places: []ops.Spot{{Place: ops.PlaceDelayed, Until: at, OrderingKey: "u1", Behind: "e0"}, {Place: ops.PlacePaused, Queue: "orders", Since: at, Who: "ilse", Why: "a\x1b[31m"}},
		Emissions: []ops.Emission{
			{EventID: "e2", EventType: "mail", Queue: "mails", State: ops.EmissionProcessed}, {EventID: "e3", EventType: "hit", Queue: "hits", State: ops.EmissionPublished},
			{EventID: "e4", EventType: "sms", Queue: "phones", State: ops.EmissionDeadLettered, Reason: "callee_refused"},
		},
		History: []ops.Step{
			{At: at.Add(-time.Second), What: ops.StepReceived},
			{At: at, What: ops.StepPublished},
			{At: at, What: ops.StepSilent, Delivery: 1, Last: 2, MessageID: "17"},
			{At: at, What: ops.StepTried, End: at.Add(12 * time.Millisecond), Attempt: 1, Delivery: 3, Instance: "i1", Outcome: retry.Retry, Reason: "handler_error", NextAt: at.Add(time.Minute)},
			{At: at.Add(time.Minute), What: ops.StepTried, Attempt: 2, Delivery: 4, Instance: "i2"},
			{At: at, What: ops.StepTried, End: at, Attempt: 3, Instance: "i3", Outcome: retry.Processed, Trace: "0af7"},
			{At: at, What: ops.StepReplayed, Who: "ilse", Operation: "op1", Why: "mended"},
		},
	})
	text := string(bytes.Join(bytes.Fields(out.Bytes()), []byte(" "))) // wherever its lines are wrapped
	for _, want := range []string{
		"e1 FAILED", "waits kept until 2026-03-02T10:15:00Z, in the line of ordering key u1 behind event e0", "is paused since 2026-03-02T10:15:00Z by ilse",
		"2026-03-02T10:14:59Z received by the door", "emitted mail to mails, event e2: processed", "emitted hit to hits, event e3: published;", "emitted sms to phones, event e4: dead-lettered: callee_refused",
		"deliveries 1 to 2 of message 17: no word",
		"attempt 1, delivery 3, instance i1: retry handler_error after 12ms; the next was due at 2026-03-02T10:16:00Z",
		"attempt 2, delivery 4, instance i2: no end",
		"replayed by ilse, operation op1: mended", "attempt 3, instance i3: processed after 0s, trace 0af7", "log https://log.example/",
		"moved journal x1: debit cash 12.50 EUR; credit revenue 12.50 EUR", "cash had -2.50 before seal 7, and 10.00 EUR after it",
		"revenue: its balances are known once the entry is sealed", "points:user:u1 had -250 before, and 1000 points after", "points:user:u2: too much has moved on it",
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "\x1b")
}

func TestAnEventIsAskedForByItsQueueAndTenant(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = r.URL.RequestURI()
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(server.Close)
	for flags, want := range map[string]string{
		"": "", "--queue q:orders": "?queue=q%3Aorders", "--tenant acme": "?tenant=acme", "--tenant acme --queue orders": "?queue=orders&tenant=acme",
	} {
		_, err := say(t, nil, append([]string{"events", "show", "e1", "--server", server.URL}, strings.Fields(flags)...)...)
		require.NoError(t, err)
		mu.Lock()
		require.Equal(t, "/v1/ops/events/e1"+want, asked)
		mu.Unlock()
	}
}

func TestAnUnknownEventIsLookedForInTheLogs(t *testing.T) {
	t.Parallel()
	err := unknownEvent("e1", &problemError{Code: "event_unknown", Detail: "No worker has recorded it."})
	require.ErrorContains(t, err, "No worker has recorded it.")
	require.ErrorContains(t, err, `jsonPayload.event_id="e1"`)
	other := &problemError{Code: "queue_needed"}
	require.Equal(t, error(other), unknownEvent("e1", other))
}
