package ops

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/dedupe"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

// journalRoutes adds the routes of the books: entries, balances, seals and proofs.
func (a *API) journalRoutes(r chi.Router) {
	r.Get("/journal/tenants", answer(a, a.listTenants))
	r.Get("/journal/entries", answer(a, a.listEntries))
	r.Get("/journal/entries/{entry}", answer(a, a.showEntry))
	r.Get("/journal/entries/{entry}/proof", answer(a, a.prove))
	r.Get("/journal/balances", answer(a, a.balances))
	r.Get("/journal/seals", answer(a, a.listSeals))
	r.Get("/journal/verify", answer(a, a.verify))
	r.Get("/journal/verify/rest", answer(a, a.verifyRest))
}

var (
	errNoEntry = errors.New("ops: there is no entry of that id")
	errBooks   = serve.Refuse(http.StatusInternalServerError, "books_broken", "What is stored of the books cannot be read; billhook ledger verify says which document it is.")
	errChanged = serve.Refuse(http.StatusConflict, "books_changed", "An entry or a seal that this needs was changed after it was sealed, or after it was posted, and cannot be read; billhook ledger verify names it.")
)

// journalRungs are how the API answers errors about the books.
var journalRungs = []serve.Rung{
	{Of: errNoEntry, As: serve.Refuse(http.StatusNotFound, "entry_unknown", "The tenant's books have no entry of that id, nor one that an event of that id has made.")},
	{Of: seal.ErrNoEntry, As: serve.Refuse(http.StatusNotFound, "entry_unknown", "The books have no entry of that id.")},
	{Of: seal.ErrUnsealed, As: serve.Refuse(http.StatusConflict, "entry_unsealed", "The entry is not sealed yet, and nothing proves it before; the task seal-journal seals it, so ask again.")},
	{Of: seal.ErrPage, As: serve.Refuse(http.StatusBadRequest, "page_invalid", "The page is the next of an earlier answer.")},
	{Of: seal.ErrBroken, As: errChanged},
	{Of: seal.ErrOverflow, As: errBooks},
	{Of: ledger.ErrBroken, As: errChanged},
}

// JournalEntry is an entry of the books.
type JournalEntry struct {
	ledger.Entry
	// Hash is the entry's leaf hash in hex: what its seal holds of it. An entry that cannot be read has none.
	Hash string `json:"hash"`
	// Changed: the entry was changed after it was sealed, or after it was posted where it has no seal. One
	// that cannot be read any more is shown without its lines. Lists compare no entry with its seal.
	Changed bool `json:"changed,omitempty"`
	// RevertedBy is the id of the entry that reverses this one. Lists leave it out: the reversal
	// itself names what it reverts.
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

func (a *API) showEntry(r *http.Request) (JournalEntry, error) {
	params := read(r, "tenant")
	tenant := params.tenant()
	if err := params.err(); err != nil {
		return JournalEntry{}, err
	}
	return a.Entry(r.Context(), tenant, param(r, "entry"))
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
func (a *API) listEntries(r *http.Request) (list List[JournalEntry], err error) {
	params := read(r, "tenant", "period", "account", "limit", "page")
	tenant, period, account := params.tenant(), params.period(), params.key("account")
	limit, at := params.limit(most, maxEntries), params.page("entries", Place{})
	query := store.Query{Collection: ledger.Entries, After: at.Cursor, Limit: limit}
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
	if err = params.err(); err != nil {
		return list, err
	}
	page, err := a.Store.Query(r.Context(), query)
	if err != nil {
		return list, err
	}
	var items []JournalEntry
	for _, doc := range page.Documents {
		entry := journalEntry(doc)
		if entry.Tenant == tenant && (period == "" || entry.Period == period) {
			items = append(items, entry)
		}
	}
	return listOf(items, params.next("entries", at, page.Next)), nil
}

func (a *API) listTenants(r *http.Request) (List[string], error) {
	if err := read(r).err(); err != nil {
		return List[string]{}, err
	}
	tenants, err := seal.Tenants(r.Context(), a.Store)
	return listOf(tenants, ""), err
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

// listSeals answers a tenant's seals, the newest first.
func (a *API) listSeals(r *http.Request) (list List[seal.Seal], err error) {
	params := read(r, "tenant", "limit", "page")
	tenant, limit, at := params.tenant(), params.limit(most, most), params.page("seals", Place{})
	if err = params.err(); err != nil {
		return list, err
	}
	before, _ := strconv.ParseInt(at.ID, 10, 64) // 0 is the newest
	seals, next, err := seal.List(r.Context(), a.Store, tenant, before, limit)
	list = listOf(seals, "")
	if next > 0 {
		list.Next = params.next("seals", at, store.Cursor{ID: strconv.FormatInt(next, 10)})
	}
	return list, err
}

// verifier checks the books.
func (a Reads) verifier() seal.Verifier {
	return seal.Verifier{From: a.Store, Origins: journal.Origins{Catalog: a.Catalog, Store: a.Store}}
}

// verify answers a part of the verification of a tenant's books. The parameter page is the next of
// the part before.
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

// verified logs what a part of a verification found, and passes the part on.
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

func (a *API) prove(r *http.Request) (Proof, error) {
	params := read(r, "tenant")
	tenant := params.tenant()
	if err := params.err(); err != nil {
		return Proof{}, err
	}
	id := entryID(tenant, param(r, "entry"))
	text, err := seal.Prove(r.Context(), a.Store, id)
	return Proof{Entry: id, Proof: string(text)}, err
}
