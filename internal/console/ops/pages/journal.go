package pages

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/console/ops"
	"billhook/internal/platform/serve"
)

// journalRoutes adds the pages of the books.
func (p *Pages) journalRoutes(r chi.Router) {
	p.page(r, "/journal", "journal.html", p.journal)
	p.page(r, "/journal/entries", "journal_entries.html", p.journalEntries)
	p.page(r, "/journal/entries/{entry}", "journal_entry.html", p.journalEntry)
	p.page(r, "/journal/entries/{entry}/proof", "journal_proof.html", p.proof)
	p.outcome(r, "/journal/verify", "journal_verify.html", p.verifyForm, p.verify)
}

// journalPage are the books of a tenant.
type journalPage struct {
	Tenants        []string
	Tenant, Period string
	Seals          ops.List[seal.Seal]
	Trial          seal.TrialBalance
	// Left is how many accounts are not shown.
	Left   int
	Uneven []string
}

func (p *Pages) journal(v *visit) (any, error) {
	page := journalPage{Tenant: v.tenant(), Period: cmp.Or(v.query("period"), ledger.PeriodOf(v.now))}
	var tenants ops.List[string]
	if err := v.get("/v1/ops/journal/tenants", &tenants); err != nil {
		return nil, err
	}
	page.Tenants = tenants.Items[:min(len(tenants.Items), shownTenants)]
	if err := v.get(with("/v1/ops/journal/seals", "tenant", page.Tenant, "limit", recent, "page", v.query("page")), &page.Seals); err != nil {
		return nil, err
	}
	if err := v.get(with("/v1/ops/journal/balances", "tenant", page.Tenant, "period", page.Period), &page.Trial); err != nil {
		return nil, err
	}
	page.Uneven = uneven(page.Trial.Balances)
	if page.Left = len(page.Trial.Balances) - shownBalances; page.Left > 0 {
		page.Trial.Balances = page.Trial.Balances[:shownBalances]
	}
	return page, nil
}

// shownTenants is how many tenants a page proposes.
const shownTenants = 50

// journalEntriesPage are the entries of a month, or those of an account.
type journalEntriesPage struct {
	ops.List[ops.JournalEntry]
	Tenant, Period, Account string
}

func (p *Pages) journalEntries(v *visit) (any, error) {
	page := journalEntriesPage{Tenant: v.tenant(), Period: v.query("period"), Account: v.query("account")}
	if page.Period == "" && ledger.Control(page.Account) == page.Account {
		page.Period = ledger.PeriodOf(v.now)
	}
	path := with("/v1/ops/journal/entries", "tenant", page.Tenant, "period", page.Period, "account", page.Account, "limit", rows, "page", v.query("page"))
	err := v.get(path, &page.List)
	return page, err
}

func (p *Pages) journalEntry(v *visit) (any, error) {
	var entry ops.JournalEntry
	err := v.get(with(href("/v1/ops/journal/entries/%s", v.param("entry")), "tenant", v.tenant()), &entry)
	return entry, err
}

func (p *Pages) proof(v *visit) (any, error) {
	var proof ops.Proof
	err := v.get(with(href("/v1/ops/journal/entries/%s/proof", v.param("entry")), "tenant", v.tenant()), &proof)
	return proof, err
}

// verification is how far a verification has come, over all its parts.
type verification struct {
	Tenant string
	// Begun: a part was verified. Rest: what is left is entries that no tenant's chain knows.
	Begun, Rest bool
	// Next is where the next part begins; with Rest false and Next empty before Begun, at the beginning.
	Next                     string
	Seals, Entries, Unsealed int64
	// Found counts the findings of all parts, and Findings are those of this one.
	Found    int64
	Findings []seal.Finding
	Done     bool
}

func (p *Pages) verifyForm(v *visit) (any, error) { return verification{Tenant: v.tenant()}, nil }

// verifyFor is how long the parts of one request take together; a part that has begun is brought to its
// end.
const verifyFor = time.Second / 2

var errTooLong = serve.Refuse(http.StatusUnprocessableEntity, "too_long", "A part of these books takes longer than a page may; billhook ledger verify has the time.")

// verify checks part after part of a tenant's books until they end, something is found, or the time is
// up. The form that follows goes on from there.
func (p *Pages) verify(v *visit) (any, error) {
	done := verification{Tenant: cmp.Or(v.form("tenant"), v.tenant()), Begun: true, Rest: v.form("rest") == "true", Next: v.form("next")}
	for field, into := range map[string]*int64{"seals": &done.Seals, "entries": &done.Entries, "unsealed": &done.Unsealed, "found": &done.Found} {
		*into, _ = strconv.ParseInt(v.form(field), 10, 64) // what the form before has counted; at its beginning nothing
	}
	for begun, first := p.Now(), true; ; first = false {
		path := with("/v1/ops/journal/verify", "tenant", done.Tenant, "page", done.Next)
		if done.Rest {
			path = with("/v1/ops/journal/verify/rest", "page", done.Next)
		}
		var part seal.Verified
		late, err := v.partly(http.MethodGet, path, nil, &part)
		switch {
		case err != nil:
			return nil, err
		case late && first:
			return nil, errTooLong
		case late: // it is the first of the next request
			return done, nil
		}
		done.Seals, done.Entries, done.Unsealed = done.Seals+part.Seals, done.Entries+part.Entries, done.Unsealed+part.Unsealed
		done.Found, done.Findings, done.Next = done.Found+int64(len(part.Findings)), part.Findings, part.Next
		if done.Next == "" {
			done.Done, done.Rest = done.Rest, true
		}
		if done.Done || len(part.Findings) > 0 || p.Now().Sub(begun) > verifyFor {
			done.Findings = done.Findings[:min(len(done.Findings), shownFindings)]
			return done, nil
		}
	}
}

// shownFindings is how many findings of a part are shown. The worker's log has them all.
const shownFindings = 100
