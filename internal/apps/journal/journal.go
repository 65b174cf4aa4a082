// Package journal makes entries of the books from financial events, by the rules of catalog/journal.yaml. It
// owns the rules' entries, reversals by events and by people, the periods that people close, and the events
// that entries emit. Posting reads nothing. The package keeps no balances, and does not seal.
package journal

import (
	"context"
	"errors"
	"slices"
	"time"

	"billhook/catalog"
	"billhook/internal/apps/ledger"
	"billhook/internal/contract"
	"billhook/internal/contract/money"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// The results that a record keeps.
const (
	Posted         = "posted"          // its entry is in the books
	PostedBefore   = "posted_before"   // its entry was posted, and its record has expired since
	Unmapped       = "unmapped"        // the event type has no rule
	NothingToPost  = "nothing_to_post" // all of its amounts are 0
	Reverted       = "reverted"        // the opposite of the entry is in the books
	RevertedBefore = "reverted_before" // another event or a person has reverted the entry
)

// The types of the events that entries emit.
const (
	TypePosted   = "fis.journal.posted"
	TypeReverted = "fis.journal.reverted"
)

// Deps is what the handlers work with.
type Deps struct {
	Catalog *catalog.Catalog
	// Store is read if an event reverts another, or if the entry exists already.
	Store    store.Getter
	Calendar *Calendar
	Now      func() time.Time
}

// Register adds the two handlers, which emit to the catalog's queues and topics for each.
func Register(r *handler.Registry, deps Deps) {
	for name, handle := range map[string]func(Deps, []string) handler.Tx{
		catalog.JournalPost: post, catalog.JournalRevert: revert,
	} {
		emits := deps.Catalog.EmitsOf(name)
		r.Tx(name, handle(deps, emits), emits...)
	}
}

// post makes the entry of an event, by the rule of its type. The event is posted once, even after its record
// has expired, and another payload under its id is a permanent conflict.
func post(deps Deps, emits []string) handler.Tx {
	return func(ctx context.Context, event handler.Event) (handler.Effect, error) {
		rule, mapped := deps.Catalog.Journal.Rule(event.Type)
		switch {
		case !mapped && deps.Catalog.Journal.Unmapped == catalog.IgnoreUnmapped:
			return handler.Effect{Result: Unmapped}, nil
		case !mapped:
			return handler.Effect{}, retry.Permanent(Unmapped, nil)
		}
		lines, err := Lines(rule, event.Body)
		if err != nil {
			return handler.Effect{}, err
		}
		if len(lines) == 0 {
			return handler.Effect{Result: NothingToPost}, nil
		}
		occurred, err := occurredAt(event)
		if err != nil {
			return handler.Effect{}, err
		}
		entry := ledger.Entry{
			ID: ledger.EntryID(event.Tenant, event.ID), Tenant: event.Tenant, Kind: ledger.KindJournal,
			EventID: event.ID, EventType: event.Type, Rule: rule.Name,
			Period: ledger.PeriodOf(occurred), OccurredAt: occurred, PostedAt: deps.Now(), Lines: lines,
		}
		if event.Try > 0 { // the record or the entry has refused a commit
			switch before, there, err := read(ctx, deps.Store, entry.ID); {
			case err != nil:
				return handler.Effect{}, err
			case there && (before.EventType != entry.EventType || !slices.Equal(before.Lines, entry.Lines)):
				return handler.Effect{}, retry.Conflicting("entry_conflict", nil)
			case there:
				return handler.Effect{Result: PostedBefore, Ref: entry.ID}, nil
			}
		}
		return effectOf(ctx, deps, entry, "", emits)
	}
}

func revert(deps Deps, emits []string) handler.Tx {
	return func(ctx context.Context, event handler.Event) (handler.Effect, error) {
		reverts := event.Body.Text("reverts")
		original, there, err := read(ctx, deps.Store, ledger.EntryID(event.Tenant, reverts))
		if err == nil && !there {
			err = missing(ctx, deps.Store, event, reverts)
		}
		if err != nil {
			return handler.Effect{}, err
		}
		occurred, err := occurredAt(event)
		if err != nil {
			return handler.Effect{}, err
		}
		if before, there, err := read(ctx, deps.Store, ledger.ReversalID(original.ID)); err != nil {
			return handler.Effect{}, err
		} else if there {
			return handler.Effect{Result: RevertedBefore, Ref: before.ID}, nil
		}
		reversal, err := original.Reversal(event.ID, ledger.PeriodOf(occurred), deps.Now())
		if err != nil {
			return handler.Effect{}, retry.Permanent("irreversible", err)
		}
		reversal.EventType, reversal.OccurredAt = event.Type, occurred
		return effectOf(ctx, deps, reversal, reverts, emits)
	}
}

func missing(ctx context.Context, from store.Getter, event handler.Event, reverts string) error {
	doc, err := store.Find(ctx, from, dedupe.Key(event.Queue, event.Tenant, reverts))
	if err != nil {
		return retry.Outage("store_unavailable", err)
	}
	switch record, unread := dedupe.FromDocument(doc); {
	case unread != nil, record.Status != dedupe.Completed:
		return retry.Missing("original_missing", nil)
	case record.Result == Reverted || record.Result == RevertedBefore:
		return retry.Permanent("irreversible", nil) // the original is a reversal itself
	default:
		return retry.Permanent("original_without_entry", nil)
	}
}

// effectOf posts an entry, unless its period is closed, and emits its event. reverts is the event that it
// reverts.
func effectOf(
	ctx context.Context, deps Deps, entry ledger.Entry, reverts string, emits []string,
) (handler.Effect, error) {
	switch now, rules := deps.Now(), deps.Catalog.Journal; {
	case entry.OccurredAt.After(now.Add(rules.Ahead)):
		return handler.Effect{}, retry.Permanent("occurred_in_the_future", nil)
	case entry.OccurredAt.Before(now.Add(-rules.Behind)):
		return handler.Effect{}, retry.Permanent("occurred_too_long_ago", nil)
	}
	closed, err := deps.Calendar.Closed(ctx, entry.Tenant, entry.Period)
	switch {
	case err != nil:
		return handler.Effect{}, err
	case closed:
		return handler.Effect{}, &retry.Error{
			Verdict:  retry.Verdict{Class: retry.Rejected, Reason: "period_closed", Counts: true},
			Subjects: []string{entry.Period},
		}
	}
	effect := handler.Effect{Result: Posted, Ref: entry.ID}
	if reverts != "" {
		effect.Result = Reverted
	}
	if effect.Writes, err = ledger.Post(entry); err == nil {
		effect.Emit, err = emissionsOf(entry, reverts, emits)
	}
	if err != nil {
		return handler.Effect{}, retry.Permanent("entry_invalid", err)
	}
	return effect, nil
}

func emissionsOf(entry ledger.Entry, reverts string, emits []string) (all []handler.Emission, err error) {
	data := posted{EventID: entry.EventID, EventType: entry.EventType, Reverts: reverts, Period: entry.Period}
	kind, key := TypePosted, entry.EventID
	if reverts != "" {
		kind, key = TypeReverted, reverts
	}
	for _, line := range entry.Lines {
		text, err := money.Format(line.Debit+line.Credit, line.Currency) // one of them is 0
		if err != nil {
			return nil, err
		}
		one := postedLine{Account: line.Account, Currency: line.Currency}
		if line.Debit > 0 {
			one.Debit = text
		} else {
			one.Credit = text
		}
		data.Lines = append(data.Lines, one)
	}
	for _, to := range emits {
		all = append(all, handler.Emission{
			To: to, RoutingKey: kind, OrderingKey: key,
			Body: contract.Of(&contract.Event{Type: kind, Version: 1, Data: data}),
		})
	}
	return all, nil
}

type posted struct {
	EventID   string       `json:"event_id"`
	EventType string       `json:"event_type,omitempty"`
	Reverts   string       `json:"reverts,omitempty"`
	Period    string       `json:"period"`
	Lines     []postedLine `json:"lines"`
}

type postedLine struct {
	Account  string `json:"account"`
	Currency string `json:"currency"`
	Debit    string `json:"debit,omitempty"`
	Credit   string `json:"credit,omitempty"`
}

// Lines returns the lines that a rule makes of an event's body, without lines of 0. They balance, because the
// catalog has checked the rule. The error is terminal.
func Lines(rule catalog.Rule, body contract.Body) (lines []ledger.Line, err error) {
	for _, part := range rule.Lines {
		currency := part.Currency
		if part.CurrencyMember() {
			currency = body.Text(part.Currency)
		}
		var sum int64
		for _, term := range part.Amount {
			member, minus := catalog.Term(term)
			amount, err := amountOf(body, member, currency)
			if err != nil {
				return nil, err
			}
			if minus {
				amount = -amount
			}
			sum += amount // 50 of ledger.MaxAmount fit
		}
		line := ledger.Line{Account: part.Account(), Currency: currency}
		switch {
		case sum == 0:
			continue
		case sum < 0:
			return nil, retry.Permanent("amount_negative", nil)
		case sum > ledger.MaxAmount:
			return nil, retry.Permanent("amount_too_large", nil)
		case part.Debit != "":
			line.Debit = sum
		default:
			line.Credit = sum
		}
		lines = append(lines, line)
	}
	return lines, nil
}

func amountOf(body contract.Body, member, currency string) (int64, error) {
	if !body.Declared(member) {
		return 0, retry.Permanent("rule_unfit", nil)
	}
	minor := body.Number(member)
	if text := body.Text(member); text != "" {
		var err error
		if minor, err = money.Parse(text, currency); err != nil {
			return 0, retry.Permanent("amount_invalid", err)
		}
	}
	if minor > ledger.MaxAmount || minor < -ledger.MaxAmount { // an integer: the contract bounds decimal amounts
		return 0, retry.Permanent("amount_too_large", nil)
	}
	return minor, nil
}

func occurredAt(event handler.Event) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, event.Body.Time())
	if err != nil {
		return time.Time{}, retry.Permanent("time_invalid", nil)
	}
	return at, nil
}

// read reads an entry, if it exists. The error is marked.
func read(ctx context.Context, from store.Getter, id string) (entry ledger.Entry, there bool, err error) {
	entry, err = store.Read(ctx, from, ledger.Key(id), store.ErrNotFound, ledger.Read)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return entry, false, nil
	case errors.Is(err, ledger.ErrBroken):
		err = retry.Permanent("entry_broken", err)
	case err != nil:
		err = retry.Outage("store_unavailable", err)
	}
	return entry, true, err
}
