// Package journaltest compares the journal with a model in memory, on a given store.
package journaltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/dedupe/dedupetest"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

// Queue is the queue whose handlers run; remember is how long its records are kept.
const (
	Queue    = "books"
	remember = 48 * 24 * time.Hour
)

// Message returns the body of a message, as the queue has decoded it.
func Message(
	t require.TestingT, c *catalog.Catalog, id, eventType string, at time.Time, data string,
) contract.Body {
	text := fmt.Sprintf(`{"id":%q,"type":%q,"timestamp":%q,"version":1,"data":%s}`, id, eventType,
		at.Format(time.RFC3339Nano), data)
	body, err := c.Contracts.Decode(contract.MessageV1, []byte(text))
	require.NoError(t, err, text)
	require.NoError(t, body.Validate(), text)
	return body
}

// Bench runs the handlers as the worker does: it commits each effect and its emissions with the record of the
// event.
type Bench struct {
	Catalog  *catalog.Catalog
	Store    store.Store
	Calendar *journal.Calendar
	Now      func() time.Time
	registry *handler.Registry
	tokens   int
}

// NewBench returns a bench on a store, with the calendar of one instance.
func NewBench(c *catalog.Catalog, s store.Store, now func() time.Time) *Bench {
	b := &Bench{
		Catalog: c, Store: s, Calendar: journal.NewCalendar(s, now), Now: now, registry: handler.NewRegistry(),
	}
	journal.Register(b.registry, journal.Deps{Catalog: c, Store: s, Calendar: b.Calendar, Now: now})
	return b
}

// Deliver handles an event of a tenant once. With known it reads the record first. The record has the result
// and reference of the run that completed it.
func (b *Bench) Deliver(
	ctx context.Context, tenant string, body contract.Body, known bool,
) (seen dedupe.Seen, run *dedupe.Run, err error) {
	id, eventType := body.Identity()
	hash, err := body.PayloadHash()
	if err != nil {
		return 0, nil, err
	}
	event := handler.Event{Queue: Queue, Tenant: tenant, ID: id, Type: eventType, Body: body}
	once := &dedupe.Once{
		Store: b.Store, Now: b.Now, NewToken: func() string {
			b.tokens++
			return "token-" + strconv.Itoa(b.tokens)
		},
	}
	identity := dedupe.Identity{
		Queue: Queue, Tenant: tenant, EventID: id, EventType: eventType, PayloadHash: hash,
	}
	run = once.Begin(dedupe.Key(Queue, tenant, id), dedupe.Record{Identity: identity}, remember)
	name := catalog.JournalPost
	if slices.Contains([]string{"billing.invoice.reverted"}, eventType) {
		name = catalog.JournalRevert
	}
	h, _ := b.registry.Lookup(name)
	seen, err = dedupetest.Effect(ctx, run, event, known,
		func(ctx context.Context, event handler.Event) (handler.Effect, error) {
			effect, err := h.Tx(ctx, event)
			if err == nil {
				_, err = lane.Emit(b.Catalog, event, &effect, b.Now())
			}
			return effect, err
		})
	return seen, run, err
}

// posted is the model of an event that has an entry.
type posted struct {
	tenant, id string
	data       string
	at         time.Time
	amount     int64 // debited, in cents
	reversed   bool
	reverter   string // the last event that has reverted it
}

// books is the model: the specification of the journal.
type books struct {
	*Bench
	faults   *storetest.Faults
	reverter *journal.Reverter
	clock    atomic.Int64 // the calendar reads it in a goroutine of its own
	events   []*posted
	reverts  []string // the ids of events that revert
}

func (b *books) now() time.Time { return time.Unix(0, b.clock.Load()).UTC() }

var tenants = []string{"acme", "globex"}

// Run delivers events any number of times, in any order, with lost answers of the store. It checks that an
// event has one entry, which balances in each currency, that an entry has one reversal, which is its exact
// opposite, and that the books have no other entries.
func Run(t *testing.T, open func(t testing.TB) store.Store) {
	t.Helper()
	shipped, db, round := catalogtest.Shipped(), open(t), 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		b := &books{faults: &storetest.Faults{Store: db}}
		b.clock.Store(time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC).UnixNano())
		b.Bench = NewBench(shipped, b.faults, b.now)
		ids := 0
		b.reverter = &journal.Reverter{
			Store: b.faults, Catalog: shipped, Now: b.Now, NewID: func() string {
				ids++
				return fmt.Sprintf("%d-%d", round, ids)
			},
		}
		rt.Repeat(map[string]func(*rapid.T){
			"an event is delivered":          func(rt *rapid.T) { b.first(rt, round) },
			"an event is redelivered":        b.redelivered,
			"an id has another payload":      b.conflict,
			"a record expires":               b.expires,
			"an event reverts another":       func(rt *rapid.T) { b.revert(rt, round) },
			"a person reverts an event":      b.revertByHand,
			"an event reverts a missing one": func(rt *rapid.T) { b.revertMissing(rt, round) },
			"an event reverts a reversal":    func(rt *rapid.T) { b.revertIrreversible(rt, round) },
			"":                               func(*rapid.T) { b.clock.Add(int64(time.Second)) },
		})
		b.check(rt)
	})
}

// tries delivers until the store answers, as the broker does.
func (b *books) tries(
	t *rapid.T, tenant string, body contract.Body,
) (seen dedupe.Seen, run *dedupe.Run, err error) {
	b.faults.FailBefore(rapid.IntRange(0, 1).Draw(t, "refused"))
	b.faults.FailAfter(rapid.IntRange(0, 1).Draw(t, "lost"))
	known := rapid.Bool().Draw(t, "known")
	for range 5 {
		seen, run, err = b.Deliver(context.Background(), tenant, body, known)
		if err == nil || retry.Decide(err).Class.Terminal() || retry.Decide(err).Scope == retry.OtherEvent {
			break
		}
		known = true
	}
	b.faults.FailBefore(0)
	b.faults.FailAfter(0)
	return seen, run, err
}

func (b *books) pick(t *rapid.T) *posted {
	if len(b.events) == 0 {
		t.Skip("nothing is posted")
	}
	return rapid.SampledFrom(b.events).Draw(t, "event")
}

func (b *books) first(t *rapid.T, round int) {
	amount := rapid.Int64Range(1, 1_000_000).Draw(t, "amount")
	tax := rapid.Int64Range(0, amount).Draw(t, "tax")
	e := &posted{
		tenant: rapid.SampledFrom(tenants).Draw(t, "tenant"), id: fmt.Sprintf("inv-%d-%d", round, len(b.events)),
		amount: amount, at: b.now(),
		data: fmt.Sprintf(`{"invoice_id":"i1","amount":"%d.%02d","currency":"EUR","tax_amount":"%d.%02d"}`,
			amount/100, amount%100, tax/100, tax%100),
	}
	seen, run, err := b.tries(t, e.tenant, b.body(t, e))
	require.NoError(t, err)
	require.Contains(t, []dedupe.Seen{dedupe.Own, dedupe.Done}, seen)
	require.Equal(t, ledger.EntryID(e.tenant, e.id), run.Record.Ref)
	b.events = append(b.events, e)
}

func (b *books) body(t *rapid.T, e *posted) contract.Body {
	return Message(t, b.Catalog, e.id, "billing.invoice.paid", e.at, e.data)
}

func (b *books) redelivered(t *rapid.T) {
	e := b.pick(t)
	again := *e
	if rapid.Bool().Draw(t, "with another time") {
		again.at = e.at.AddDate(0, -2, 0)
	}
	_, run, err := b.tries(t, e.tenant, b.body(t, &again))
	require.NoError(t, err)
	require.Equal(t, ledger.EntryID(e.tenant, e.id), run.Record.Ref, "a duplicate names the entry")
}

// conflict delivers another payload under an event's id, perhaps after its record has expired.
func (b *books) conflict(t *rapid.T) {
	e := *b.pick(t)
	e.data = `{"invoice_id":"i1","amount":"10000.01","currency":"EUR"}` // no other event has this amount
	seen, _, err := b.tries(t, e.tenant, b.body(t, &e))
	if err != nil {
		require.Equal(t, "entry_conflict", retry.Decide(err).Reason)
		return
	}
	require.Equal(t, dedupe.Differs, seen)
}

func (b *books) expires(t *rapid.T) {
	e := b.pick(t)
	_, err := b.Store.Commit(context.Background(),
		[]store.Write{store.Delete(dedupe.Key(Queue, e.tenant, e.id), 0)})
	require.NoError(t, err)
}

func (b *books) reverting(t *rapid.T, round int, reverts string) (id string, body contract.Body) {
	id = fmt.Sprintf("revert-%d-%d", round, len(b.reverts))
	b.reverts = append(b.reverts, id)
	return id, Message(t, b.Catalog, id, "billing.invoice.reverted", b.now(),
		fmt.Sprintf(`{"reverts":%q}`, reverts))
}

func (b *books) revert(t *rapid.T, round int) {
	e := b.pick(t)
	id, body := b.reverting(t, round, e.id)
	_, run, err := b.tries(t, e.tenant, body)
	require.NoError(t, err)
	require.Equal(t, ledger.ReversalID(ledger.EntryID(e.tenant, e.id)), run.Record.Ref)
	if e.reversed {
		require.Equal(t, journal.RevertedBefore, run.Record.Result)
	} else {
		require.Equal(t, journal.Reverted, run.Record.Result)
		require.Equal(t, id, b.entry(t, run.Record.Ref).EventID)
	}
	e.reversed, e.reverter = true, id
}

// revertIrreversible reverts a reversal, and an event without an entry.
func (b *books) revertIrreversible(t *rapid.T, round int) {
	e := b.pick(t)
	free := posted{
		tenant: e.tenant, id: "free-" + e.id, at: b.now(),
		data: `{"invoice_id":"i1","amount":"0.00","currency":"EUR"}`,
	}
	_, run, err := b.tries(t, e.tenant, b.body(t, &free))
	require.NoError(t, err)
	require.Equal(t, journal.NothingToPost, run.Record.Result)
	for reverts, want := range map[string]string{free.id: "original_without_entry", e.reverter: "irreversible"} {
		if reverts != "" {
			_, body := b.reverting(t, round, reverts)
			_, _, err = b.tries(t, e.tenant, body)
			require.Equal(t, want, retry.Decide(err).Reason)
		}
	}
}

func (b *books) revertByHand(t *rapid.T) {
	e := b.pick(t)
	b.faults.FailAfter(rapid.IntRange(0, 1).Draw(t, "lost"))
	for {
		reversal, err := b.reverter.Revert(context.Background(), e.tenant, e.id,
			audit.Change{Who: audit.Author{Proof: audit.Identity, Name: "ada"}, Why: "typo"})
		if err != nil && !errors.Is(err, journal.ErrReverted) {
			continue // the store did not answer
		}
		require.Equal(t, ledger.ReversalID(ledger.EntryID(e.tenant, e.id)), reversal.ID)
		e.reversed = true
		b.faults.FailAfter(0) // if the reversal exists, nothing was committed
		return
	}
}

func (b *books) revertMissing(t *rapid.T, round int) {
	e := b.pick(t)
	for reverts, tenant := range map[string]string{"inv-none": e.tenant, e.id: "initech"} {
		_, body := b.reverting(t, round, reverts)
		_, _, err := b.tries(t, tenant, body)
		means := retry.Decide(err)
		require.Equal(t, []any{"original_missing", retry.OtherEvent}, []any{means.Reason, means.Scope},
			"as is another tenant's event")
	}
}

// check compares all entries of the model's events with the model.
func (b *books) check(t *rapid.T) {
	for _, e := range b.events {
		id := ledger.EntryID(e.tenant, e.id)
		entry := b.entry(t, id)
		require.Equal(t, e.id, entry.EventID)
		require.Equal(t, e.amount, entry.Lines[0].Debit)
		left := int64(0)
		for _, line := range entry.Lines {
			require.NotEqual(t, line.Debit > 0, line.Credit > 0)
			require.Equal(t, "EUR", line.Currency)
			left += line.Debit - line.Credit
		}
		require.Zero(t, left)
		doc, err := b.Store.Get(context.Background(), ledger.Key(ledger.ReversalID(id)))
		require.Equal(t, e.reversed, err == nil, err)
		if !e.reversed {
			continue
		}
		reversal := filetest.Must(ledger.Read(doc))(t)
		require.Len(t, reversal.Lines, len(entry.Lines))
		for i, line := range reversal.Lines {
			line.Debit, line.Credit = line.Credit, line.Debit
			require.Equal(t, entry.Lines[i], line)
		}
	}
	for _, id := range b.reverts {
		for _, tenant := range append(tenants, "initech") {
			_, err := b.Store.Get(context.Background(), ledger.Key(ledger.EntryID(tenant, id)))
			require.ErrorIs(t, err, store.ErrNotFound, "an event that reverts has no entry but the reversal")
		}
	}
}

func (b *books) entry(t *rapid.T, id string) ledger.Entry {
	doc := filetest.Must(b.Store.Get(context.Background(), ledger.Key(id)))(t)
	entry := filetest.Must(ledger.Read(doc))(t)
	return entry
}
