package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/console"
	"billhook/internal/pii"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// PeriodsCollection holds each period of a tenant that was ever closed, and a count of the changes.
const PeriodsCollection = "periods"

// Kind is the audit's kind of subject for periods.
const Kind = "period"

// Notice is how long after the request a period is closed: longer than an instance uses its calendar, plus
// the time that a handler may take after that.
const Notice = 2 * time.Minute

// The errors of people's changes. After any other error, the change may have been made.
var (
	ErrNotOver = console.Refuse(console.Conflict, "period_not_over",
		"The month is not over yet, in UTC; it can be closed when it is.")
	ErrBroken = errors.New("journal: stored document is not readable")
)

// State says whether a period takes entries.
type State string

// The states of a period.
const (
	Open    State = "open"    // it takes entries
	Closing State = "closing" // it takes entries until ClosesAt
	Closed  State = "closed"  // it takes none
)

// Period is a month of a tenant's books.
type Period struct {
	Tenant string `json:"tenant" store:"tenant,required" show:"Tenant,detail"`
	// Month is the period, such as 2026-11, in UTC.
	Month string `json:"period" store:"period,required" show:"Month" link:"journal/periods/{period}"`
	State State  `json:"state" show:"State"`
	// ClosesAt is the time from which it takes no entries; zero: it is open.
	ClosesAt time.Time `json:"closes_at,omitzero" store:"closes_at,omitzero" show:"Closed from"`
	// Who closed or reopened it, why, and when; empty: nobody.
	Who   string    `json:"who,omitempty" store:"who" show:"By"`
	Why   string    `json:"why,omitempty" store:"why" show:"Why"`
	Since time.Time `json:"since,omitzero" store:"since,omitzero" show:"Since,detail"`
	// Reopening is the request of one person, which waits for a second.
	Reopening *Request `json:"reopening,omitempty" store:"reopening,omitzero" show:"Reopening asked by,less"`
	// Version is the document's version, which a change may require; 0: there is no document.
	Version store.Version `json:"version"`
	Closed  bool          `json:"-" store:"closed,omitzero"`
}

// Notes says what the state means.
func (p Period) Notes() []string {
	switch {
	case p.Reopening != nil:
		return []string{p.Month + " opens again when a second person asks for it, after " + p.Reopening.Who + "."}
	case p.State == Closing:
		return []string{p.Month + " takes entries until " + p.ClosesAt.UTC().Format(time.RFC3339) + "."}
	default:
		return nil
	}
}

// Allows reports whether the month can be closed, or opened again.
func (p Period) Allows(verb string) bool {
	switch verb {
	case "close": // which withdraws a request to reopen, too
		return p.State == Open || p.Reopening != nil
	case "reopen":
		return p.State != Open
	default:
		return true
	}
}

// Request is one person's request to reopen a period.
type Request struct {
	Who string    `json:"who" store:"who"`
	Why string    `json:"why" store:"why"`
	At  time.Time `json:"at" store:"at"`
}

func (r Request) String() string {
	return r.Who + " on " + r.At.UTC().Format(time.RFC3339) + ": " + r.Why
}

// changesKey counts the changes, so that one read shows whether a read list of periods is current.
var changesKey = store.Key{Collection: PeriodsCollection, ID: "~changes"}

const fieldChanges = "number"

// periodKey is the key of a period's document. The ids of a tenant's periods have a common prefix.
func periodKey(tenant, period string) store.Key {
	return store.Key{Collection: PeriodsCollection, ID: periodPrefix(tenant) + period}
}

func periodPrefix(tenant string) string { return store.ID(tenant) + "~" }

// ReadPeriod reads a period's document, with the state at a time.
func ReadPeriod(doc store.Document, now time.Time) (Period, error) {
	p := Period{Version: doc.Version}
	if err := store.Decode(doc.Fields, &p); err != nil {
		return Period{}, fmt.Errorf("%w: %s", ErrBroken, doc.Key)
	}
	p.State = p.stateAt(now)
	return p, nil
}

func (p Period) stateAt(now time.Time) State {
	switch {
	case p.ClosesAt.IsZero():
		return Open
	case now.Before(p.ClosesAt):
		return Closing
	default:
		return Closed
	}
}

func (p Period) side() map[string]any {
	side := map[string]any{"closed": !p.ClosesAt.IsZero()}
	if p.Reopening != nil {
		side["reopening_by"] = p.Reopening.Who
	}
	return side
}

// Periods shows the periods of tenants, and closes and reopens them. Every field is required.
type Periods struct {
	Store store.Store
	Now   func() time.Time
	// NewID returns a random id for the audit entry.
	NewID func() string
}

// Get returns a period. One that was never closed is open. The error wraps audit.ErrInvalid or ErrBroken, or
// is a read error.
func (p *Periods) Get(ctx context.Context, tenant, period string) (Period, error) {
	if err := checkPeriod(tenant, period); err != nil {
		return Period{}, err
	}
	doc, err := store.Find(ctx, p.Store, periodKey(tenant, period))
	if err != nil {
		return Period{}, fmt.Errorf("journal: %w", err)
	}
	return p.read(doc, tenant, period)
}

// Close closes a period that is over, after Notice. A closed one stays closed, and a request to reopen it is
// withdrawn. The error is ErrNotOver, wraps ErrBroken, or is as in audit.Change.Update.
func (p *Periods) Close(ctx context.Context, tenant, period string, by audit.Change) (Period, error) {
	return p.change(ctx, tenant, period, by,
		func(before Period, now time.Time) (after Period, action string, err error) {
			switch after = before; {
			case period >= ledger.PeriodOf(now):
				return Period{}, "", ErrNotOver
			case before.ClosesAt.IsZero():
				after.ClosesAt, after.Who, after.Why, after.Since, after.Reopening = now.Add(Notice), by.Who.String(),
					by.Why, now, nil
				return after, "close", nil
			case before.Reopening != nil:
				after.Reopening = nil
				return after, "keep_closed", nil
			}
			return after, "", nil
		})
}

// Reopen opens a closed period again once two people have requested it; it stores the request of the first.
// The error is as in Close, or one of audit.TwoPeople.
func (p *Periods) Reopen(ctx context.Context, tenant, period string, by audit.Change) (Period, error) {
	return p.change(ctx, tenant, period, by,
		func(before Period, now time.Time) (after Period, action string, err error) {
			switch after = before; {
			case before.ClosesAt.IsZero():
				return after, "", nil
			case before.Reopening == nil:
				after.Reopening = &Request{Who: by.Who.String(), Why: by.Why, At: now}
				return after, "ask_to_reopen", audit.TwoPeople("", by.Who)
			}
			after.ClosesAt, after.Who, after.Why, after.Since, after.Reopening = time.Time{}, by.Who.String(),
				by.Why, now, nil
			return after, "reopen", audit.TwoPeople(before.Reopening.Who, by.Who)
		})
}

func checkPeriod(tenant, period string) error {
	if !pii.ID.Valid(tenant) {
		return audit.ErrID
	}
	if !ledger.IsPeriod(period) {
		return fmt.Errorf("%w: a period is a month, such as 2026-11", audit.ErrInvalid)
	}
	return nil
}

func (p *Periods) read(doc store.Document, tenant, period string) (Period, error) {
	if doc.Version == 0 {
		return Period{Tenant: tenant, Month: period, State: Open}, nil
	}
	return ReadPeriod(doc, p.Now())
}

// change commits the decided change of a period with its audit entry. An empty action changes nothing.
func (p *Periods) change(
	ctx context.Context, tenant, period string, by audit.Change,
	decide func(before Period, now time.Time) (after Period, action string, err error),
) (Period, error) {
	if err := checkPeriod(tenant, period); err != nil {
		return Period{}, err
	}
	var after Period
	now, of := p.Now().UTC().Truncate(time.Microsecond), audit.Subject{Kind: Kind, Tenant: tenant, ID: period}
	_, err := by.Update(ctx, p.Store, periodKey(tenant, period), of, now, p.NewID(),
		func(doc store.Document) (made audit.Made, err error) {
			before, err := p.read(doc, tenant, period)
			if err != nil {
				return made, err
			}
			if after, made.Action, err = decide(before, now); err != nil || made.Action == "" {
				return made, err
			}
			after.State, after.Closed = after.stateAt(now), !after.ClosesAt.IsZero()
			made.Before, made.After = before.side(), after.side()
			made.Writes = []store.Write{
				store.Replace(doc.Key, doc.Version, store.Encode(&after)),
				store.Increment(changesKey, map[string]int64{fieldChanges: 1}, nil),
			}
			made.Version = &after.Version
			return made, nil
		})
	return after, err
}

// Month is a month of a tenant's books with its trial balance.
type Month struct {
	Period
	Books seal.TrialBalance `json:"books" show:"*"`
}

// Alerts reports whether the month's books are broken.
func (m Month) Alerts() bool { return m.Books.Alerts() }

// Notes says what the month's state means, and what its books say.
func (m Month) Notes() []string { return slices.Concat(m.Period.Notes(), m.Books.Notes()) }

// Months returns the months of a tenant that have sealed entries or were ever closed, and the current one,
// newest first. The error is as in Get, or of reading the seals.
func (p *Periods) Months(ctx context.Context, tenant string) ([]Period, error) {
	if !pii.ID.Valid(tenant) {
		return nil, audit.ErrID
	}
	months, err := seal.Months(ctx, p.Store, tenant)
	if err != nil {
		return nil, err
	}
	query := store.Query{Collection: PeriodsCollection, IDPrefix: periodPrefix(tenant)}
	all, err := store.All(ctx, p.Store, query, func(doc store.Document) (Period, error) {
		return ReadPeriod(doc, p.Now())
	})
	if err != nil {
		return nil, err
	}
	for _, month := range append(months, ledger.PeriodOf(p.Now())) {
		if !slices.ContainsFunc(all, func(known Period) bool { return known.Month == month }) {
			all = append(all, Period{Tenant: tenant, Month: month, State: Open})
		}
	}
	slices.SortFunc(all, func(a, b Period) int { return cmp.Compare(b.Month, a.Month) })
	return all, nil
}

// PeriodOf names a month.
type PeriodOf struct {
	console.Owned
	Period string `json:"-" path:"period" validate:"required" help:"month"`
}

// ChangePeriod closes a month, or opens it again.
type ChangePeriod struct {
	PeriodOf
	console.Edit
}

func (p *Periods) operations() []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "periods ls", Path: "GET /v1/ops/journal/periods", Errors: failures,
			Summary: "List the months of a tenant's books: who closed or reopened each, and which wait for a " +
				"second person",
		}, func(ctx context.Context, _ audit.Author, in console.OwnedList) (console.List[Period], error) {
			months, err := p.Months(ctx, in.Tenant)
			if in.After.ID != "" {
				months = slices.DeleteFunc(months, func(m Period) bool { return m.Month >= in.After.ID })
			}
			next := store.Cursor{}
			if len(months) > in.Limit {
				months, next.ID = months[:in.Limit], months[in.Limit-1].Month
			}
			return console.ListOf(months, next), err
		}),
		console.New(console.Row{
			Name: "periods show", Path: "GET /v1/ops/journal/periods/{period}", Errors: failures,
			Summary: "Show a month: whether it is open, and its totals",
		}, func(ctx context.Context, _ audit.Author, in PeriodOf) (m Month, err error) {
			if m.Period, err = p.Get(ctx, in.Tenant, in.Period); err == nil {
				m.Books, err = seal.Balances(ctx, p.Store, in.Tenant, in.Period, in.Period)
			}
			return m, err
		}),
		console.New(console.Row{
			Name: "periods close", Path: "POST /v1/ops/journal/periods/{period}/close", Needs: console.Reason,
			Before:  "periods show",
			Summary: "Close a month that is over: no more entries are posted to it", Errors: failures,
			Help: "It takes no entries from two minutes after that. An event of the month becomes a dead letter " +
				"with the reason " +
				"period_closed. Two people are needed to open it again.",
		}, func(ctx context.Context, by audit.Author, in ChangePeriod) (Period, error) {
			return p.Close(ctx, in.Tenant, in.Period, in.By(by))
		}),
		console.New(console.Row{
			Name: "periods reopen", Path: "POST /v1/ops/journal/periods/{period}/reopen", Needs: console.TwoPeople,
			Before:  "periods show",
			Summary: "Reopen a closed month; a second person has to ask for the same", Errors: failures,
			Help: "The first request is kept until a second person asks for the same.",
		}, func(ctx context.Context, by audit.Author, in ChangePeriod) (Period, error) {
			return p.Reopen(ctx, in.Tenant, in.Period, in.By(by))
		}),
	}
}
