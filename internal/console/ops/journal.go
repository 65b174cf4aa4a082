package ops

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/dedupe"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

// journalRoutes adds the routes of the books: entries, balances, seals and proofs, and how people close and reopen
// months and revert entries.
func (a *API) journalRoutes(r chi.Router) {
	r.Get("/journal/tenants", plain(a, a.listTenants))
	r.Get("/journal/entries", answer(a, a.listEntries))
	r.Get("/journal/entries/{entry}", shown(a, "entry", a.Entry))
	r.Get("/journal/entries/{entry}/proof", shown(a, "entry", a.prove))
	r.Get("/journal/balances", answer(a, a.balances))
	r.Get("/journal/seals", answer(a, a.listSeals))
	r.Get("/journal/verify", answer(a, a.verify))
	r.Get("/journal/verify/rest", answer(a, a.verifyRest))
	r.Get("/journal/periods", answer(a, a.listPeriods))
	r.Get("/journal/periods/{period}", shown(a, "period", a.showPeriod))
	r.Post("/journal/periods/{period}/close", changed(a, "period", adviceOfWhy, a.changePeriod("closed", a.Periods.Close)))
	r.Post("/journal/periods/{period}/reopen", changed(a, "period", adviceOfWhy, a.changePeriod("reopened", a.Periods.Reopen)))
	r.Post("/journal/entries/{entry}/revert", changed(a, "entry", adviceOfWhy, a.revertEntry))
}

var errNoEntry = errors.New("ops: there is no entry of that id")

// JournalEntry is an entry of the books.
type JournalEntry struct {
	ledger.Entry
	// Hash is the entry's leaf hash in hex: what its seal holds of it. An entry that cannot be read has none.
	Hash string `json:"hash"`
	// Changed: the entry was changed after it was sealed, or after it was posted where it has no seal.
	Changed bool `json:"changed,omitempty"`
	// RevertedBy is the id of the entry that reverses this one.
	RevertedBy string `json:"reverted_by,omitempty"`
}

// journalEntry reads the document of an entry. One that was changed so that it cannot be read says so.
func journalEntry(doc store.Document) JournalEntry {
	entry, err := ledger.Read(doc)
	var hash []byte
	if err == nil {
		hash, err = entry.LeafHash()
	}
	if err != nil {
		changed := JournalEntry{Entry: ledger.Entry{ID: doc.Key.ID, Lines: []ledger.Line{}}, Changed: true}
		changed.Tenant, _ = doc.Fields["tenant"].(string)
		changed.Period, _ = doc.Fields["period"].(string)
		changed.EventID, _ = doc.Fields["event_id"].(string)
		changed.Seal, _ = doc.Fields["seal"].(int64)
		return changed
	}
	return JournalEntry{Entry: entry, Hash: hex.EncodeToString(hash)}
}

// Entry returns an entry, by its id or by that of the event that made it.
func (a Reads) Entry(ctx context.Context, tenant, id string) (JournalEntry, error) {
	doc, err := a.Store.Get(ctx, ledger.Key(entryID(tenant, id)))
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrInvalid) {
		return JournalEntry{}, errNoEntry
	}
	if err != nil {
		return JournalEntry{}, err
	}
	entry := journalEntry(doc)
	if !entry.Changed {
		same, err := seal.Unchanged(ctx, a.Store, entry.Entry)
		if err != nil {
			return JournalEntry{}, err
		}
		entry.Changed = !same
	}
	if entry.Kind != ledger.KindJournal {
		return entry, nil
	}
	switch _, err := a.Store.Get(ctx, ledger.Key(ledger.ReversalID(entry.ID))); {
	case err == nil:
		entry.RevertedBy = ledger.ReversalID(entry.ID)
	case !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrInvalid):
		return JournalEntry{}, err
	}
	return entry, nil
}

// entryID is the id of the entry that a person means: one with a tilde is an entry's own, for the
// id of an event has none.
func entryID(tenant, id string) string {
	if strings.Contains(id, "~") {
		return id
	}
	return ledger.EntryID(tenant, id)
}

// tenant is the tenant whose books are meant: that of events without one where none is named.
func (p *parameters) tenant() string {
	if p.values.Get("tenant") == "" {
		return dedupe.DefaultTenant
	}
	return p.id("tenant")
}

// period is a month; empty where there is none.
func (p *parameters) period() string {
	return p.valid("period", ledger.IsPeriod, "a year and a month such as 2026-11")
}

// maxEntries bounds a page of entries: each may have ledger.MaxLines.
const maxEntries = 200

// listEntries answers the entries of a tenant's period, or those of an account in it, in the order
// of their ids. Those of an account of points that is no control account are found in all periods
// at once, and the parameter period leaves out others.
func (a *API) listEntries(r *http.Request) (List[JournalEntry], error) {
	params := read(r, "tenant", "period", "account", "limit", "page")
	tenant, period, account := params.tenant(), params.period(), params.key("account")
	query := store.Query{Collection: ledger.Entries}
	switch single := account != "" && ledger.Control(account) != account; {
	case single && strings.HasPrefix(account, string(ledger.IssuedPoints(""))):
		params.refuse("account_invalid", "What was issued for one order has no list of its own; ask for the account points:issued, or for the account of the user.")
	case single:
		query.Equal = map[string]any{ledger.FieldAccount: account}
	case period == "":
		params.refuse("period_needed", "Name a period such as 2026-11.")
	case account != "":
		query.Contains = map[string]string{ledger.FieldPostings: ledger.PostingKey(tenant, period, account)}
	default:
		query.Equal = map[string]any{ledger.FieldBook: ledger.BookKey(tenant, period)}
	}
	return pagedBy(params, "entries", Place{}, params.limit(most, maxEntries), func(at Place, limit int) (items []JournalEntry, next store.Cursor, err error) {
		query.After, query.Limit = at.Cursor, limit
		page, err := a.Store.Query(r.Context(), query)
		for _, doc := range page.Documents {
			entry := journalEntry(doc)
			if entry.Tenant == tenant && (period == "" || entry.Period == period) {
				items = append(items, entry)
			}
		}
		return items, page.Next, err
	})
}

func (a *API) listTenants(ctx context.Context) (List[string], error) {
	tenants, err := seal.Tenants(ctx, a.Store)
	return pageOf(tenants, ""), err
}

func (a *API) balances(r *http.Request) (seal.TrialBalance, error) {
	params := read(r, "tenant", "period")
	tenant, period := params.tenant(), params.period()
	if period == "" {
		params.refuse("period_needed", "Name a period such as 2026-11.")
	}
	if err := params.err(); err != nil {
		return seal.TrialBalance{}, err
	}
	return seal.Balances(r.Context(), a.Store, tenant, period)
}

func (a *API) listSeals(r *http.Request) (List[seal.Seal], error) {
	params := read(r, "tenant", "limit", "page")
	tenant := params.tenant()
	return paged(params, "seals", Place{}, most, func(at Place, limit int) ([]seal.Seal, store.Cursor, error) {
		before, _ := strconv.ParseInt(at.ID, 10, 64) // 0 is the newest
		seals, next, err := seal.List(r.Context(), a.Store, tenant, before, limit)
		if next == 0 {
			return seals, store.Cursor{}, err
		}
		return seals, store.Cursor{ID: strconv.FormatInt(next, 10)}, err
	})
}

func (a Reads) verifier() seal.Verifier {
	return seal.Verifier{From: a.Store, Origins: journal.Origins{Catalog: a.Catalog, Store: a.Store}}
}

// verify answers a part of the verification of a tenant's books.
func (a *API) verify(r *http.Request) (seal.Verified, error) {
	params := read(r, "tenant", "page")
	tenant, at := params.tenant(), params.page("verify", Place{})
	if err := params.err(); err != nil {
		return seal.Verified{}, err
	}
	part, err := a.verifier().Page(r.Context(), tenant, at.ID)
	part.Next = params.next("verify", at, store.Cursor{ID: part.Next})
	return a.verified(r, part, err)
}

// verifyRest answers a part of the verification of entries that no tenant's chain knows.
func (a *API) verifyRest(r *http.Request) (seal.Verified, error) {
	params := read(r, "page")
	at := params.page("verify rest", Place{})
	if err := params.err(); err != nil {
		return seal.Verified{}, err
	}
	part, err := a.verifier().Rest(r.Context(), at.ID)
	part.Next = params.next("verify rest", at, store.Cursor{ID: part.Next})
	return a.verified(r, part, err)
}

func (a *API) verified(r *http.Request, part seal.Verified, err error) (seal.Verified, error) {
	part.Findings = append([]seal.Finding{}, part.Findings...)
	for _, found := range part.Findings {
		found.Log(r.Context(), a.Log)
	}
	return part, err
}

// Proof is the proof that an entry stands in its seal.
type Proof struct {
	// Entry is the entry's id.
	Entry string `json:"entry"`
	// Proof is the text that billhook ledger check-proof and other people's tools read.
	Proof string `json:"proof"`
}

func (a *API) prove(ctx context.Context, tenant, id string) (Proof, error) {
	id = entryID(tenant, id)
	text, err := seal.Prove(ctx, a.Store, id)
	return Proof{Entry: id, Proof: string(text)}, err
}

// Period is a month of a tenant's books as it stands.
type Period struct {
	journal.Period
	// Late are the ids of entries that were posted in it after it was closed, at most 100.
	Late []string `json:"late"`
}

func (a *API) listPeriods(r *http.Request) (List[journal.Period], error) {
	params := read(r, "tenant", "limit", "page")
	tenant := params.tenant()
	return paged(params, "periods", Place{}, most, func(at Place, limit int) ([]journal.Period, store.Cursor, error) {
		return a.Periods.List(r.Context(), tenant, at.Cursor, limit)
	})
}

func (a *API) showPeriod(ctx context.Context, tenant, period string) (shown Period, err error) {
	if shown.Period, err = a.Periods.Get(ctx, tenant, period); err == nil {
		shown.Late, err = a.Late(ctx, shown.Period)
	}
	return shown, err
}

// Late finds the entries that were posted in a period from the moment on from which it is closed,
// at most 100 and a page. It reads the seals behind that moment, back from the last one that has
// entries of the period, and what is not sealed.
func (a Reads) Late(ctx context.Context, p journal.Period) ([]string, error) {
	late := []string{}
	if p.ClosesAt.IsZero() || a.Now().Before(p.ClosesAt) {
		return late, nil
	}
	find := func(equal map[string]any) error {
		query := store.Query{Collection: ledger.Entries, Equal: equal, Limit: store.MaxPage}
		for {
			page, err := a.Store.Query(ctx, query)
			if err != nil {
				return err
			}
			for _, doc := range page.Documents {
				entry, err := ledger.Read(doc)
				if err != nil {
					return err
				}
				if entry.Tenant == p.Tenant && entry.Period == p.Period && !entry.PostedAt.Before(p.ClosesAt) {
					late = append(late, entry.ID)
				}
			}
			if query.After = page.Next; query.After.IsZero() || len(late) >= most {
				return nil
			}
		}
	}
	if err := find(map[string]any{ledger.FieldUnsealed: p.Tenant}); err != nil {
		return nil, err
	}
	newest, _, err := seal.List(ctx, a.Store, p.Tenant, 0, 1)
	if err != nil || len(newest) == 0 {
		return late, err
	}
	for before := newest[0].Periods[p.Period] + 1; before > 1 && len(late) < most; {
		seals, next, err := seal.List(ctx, a.Store, p.Tenant, before, sealsAtOnce)
		if err != nil {
			return nil, err
		}
		for _, s := range seals {
			if s.SealedAt.Before(p.ClosesAt.Add(-clocksDiffer)) || len(late) >= most {
				return late, nil
			}
			if _, touched := s.Totals[p.Period]; touched {
				if err := find(map[string]any{"tenant": p.Tenant, "seal": s.Number}); err != nil {
					return nil, err
				}
			}
		}
		before = next
	}
	return late, nil
}

const (
	// sealsAtOnce is how many seals are read together.
	sealsAtOnce = 10
	// clocksDiffer is how far the clock that sealed an entry may be behind the one that posted it.
	clocksDiffer = time.Minute
)

func (a *API) changePeriod(done string, change func(ctx context.Context, tenant, period string, by journal.Change) (journal.Period, error)) func(context.Context, string, string, journal.Change) (journal.Period, error) {
	return func(ctx context.Context, tenant, of string, by journal.Change) (journal.Period, error) {
		by.Who = Author(ctx)
		period, err := change(ctx, tenant, of, by)
		a.done(err).LogAttrs(ctx, slog.LevelInfo, "period changed", slog.String("how", done), slog.String("tenant", tenant),
			slog.String("period", period.Period), slog.String("state", string(period.State)), slog.String("who", by.Who.String()))
		return period, err
	}
}

func (a *API) revertEntry(ctx context.Context, tenant, entry string, by journal.Change) (ledger.Entry, error) {
	by.Who = Author(ctx)
	reversal, err := a.Reverter.Revert(ctx, tenant, entry, by)
	if errors.Is(err, journal.ErrReverted) {
		return ledger.Entry{}, serve.Refuse(http.StatusConflict, "entry_reverted", "The entry is reverted already, by "+reversal.ID+".")
	}
	a.done(err).LogAttrs(ctx, slog.LevelInfo, "entry reverted", slog.String("tenant", tenant), slog.String("entry", reversal.Reverts),
		slog.String("reversal", reversal.ID), slog.String("who", by.Who.String()))
	return reversal, err
}
