package ops_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/console/ops"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// sale is an entry of a tenant's journal, of an amount that was paid in cash.
func sale(tenant, event, period string, amount int64) ledger.Entry {
	return ledger.Entry{
		Tenant: tenant, Kind: ledger.KindJournal, EventID: event, EventType: "t", Rule: "t", Period: period, OccurredAt: at, PostedAt: at,
		Lines: []ledger.Line{{Account: "cash", Currency: "EUR", Debit: amount}, {Account: "revenue", Currency: "EUR", Credit: amount}},
	}
}

func (r *rig) enter(t *testing.T, entries ...ledger.Entry) {
	t.Helper()
	for _, e := range entries {
		writes, err := ledger.Post(e)
		require.NoError(t, err)
		r.commit(t, writes...)
	}
}

func (r *rig) seal(t *testing.T) {
	t.Helper()
	_, err := seal.Sealer{Store: r.store, Origins: sealtest.Trusting{}, Now: func() time.Time { return at }}.Run(t.Context())
	require.NoError(t, err)
}

func (r *rig) points(t *testing.T, tenant, order, uid string) {
	t.Helper()
	writes, err := ledger.Credit(ledger.Move{
		Tenant: tenant, Order: order, EventID: "e-" + order, From: ledger.IssuedPoints(order), To: ledger.UserPoints(uid), Amount: 100, Currency: ledger.Points, CreatedAt: at,
	})
	require.NoError(t, err)
	r.commit(t, writes...)
}

func TestAnEntryIsShownByItsEventOrByItsID(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.enter(t, sale("default", "e1", "2026-03", 100))
	r.points(t, "default", "o1", "u1")
	id := ledger.EntryID("default", "e1")
	for _, path := range []string{"e1", id, "e1?tenant=default"} {
		got := r.ask(t, "/v1/ops/journal/entries/"+path, nil, nil)
		require.Equal(t, http.StatusOK, got.Code, got.Body.String())
		doc, err := r.store.Get(t.Context(), ledger.Key(id))
		require.NoError(t, err)
		entry, err := ledger.Read(doc)
		require.NoError(t, err)
		hash, err := entry.LeafHash()
		require.NoError(t, err)
		require.JSONEq(t, fmt.Sprintf(`{"id":%q,"tenant":"default","kind":"journal","event_id":"e1","event_type":"t","rule":"t","period":"2026-03",
			"occurred_at":"2026-03-02T10:15:00Z","posted_at":"2026-03-02T10:15:00Z","seal":0,"leaf":0,"hash":"%x",
			"lines":[{"account":"cash","currency":"EUR","debit":100,"credit":0},{"account":"revenue","currency":"EUR","debit":0,"credit":100}]}`, id, hash), got.Body.String())
	}
	r.seal(t)
	var shown ops.JournalEntry
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/journal/entries/e1", nil, &shown).Code)
	require.Equal(t, int64(1), shown.Seal)
	var list ops.List[ops.JournalEntry]
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/journal/entries?account=points:user:u1", nil, &list).Code)
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/journal/entries/"+list.Items[0].ID, nil, &shown).Code)
	require.Equal(t, "o1", shown.Order)
}

// listed are the events of all entries that a list has, page after page.
func (r *rig) listed(t *testing.T, query string) (events []string) {
	t.Helper()
	for next := ""; ; {
		var page ops.List[ops.JournalEntry]
		got := r.ask(t, "/v1/ops/journal/entries?limit=2&"+query+next, nil, &page)
		require.Equal(t, http.StatusOK, got.Code, got.Body.String())
		for _, e := range page.Items {
			events = append(events, e.EventID)
		}
		if page.Next == "" {
			return events
		}
		next = "&page=" + page.Next
	}
}

func TestEntriesAreListedByMonthAndByAccount(t *testing.T) {
	t.Parallel()
	r := open(t)
	rent := sale("default", "rent", "2026-03", 7)
	rent.Lines[0].Account, rent.Lines[1].Account = "rent", "cash"
	r.enter(t, sale("default", "e1", "2026-03", 1), sale("default", "e2", "2026-03", 2), sale("default", "e3", "2026-02", 3), sale("acme", "e1", "2026-03", 4), rent)
	for i, tenant := range []string{"default", "default", "default", "acme"} {
		r.points(t, tenant, fmt.Sprint("o", i), "u1")
	}
	for query, want := range map[string][]string{
		"period=2026-03&account=revenue":         {"e1", "e2"},
		"period=2026-03&account=cash":            {"e1", "e2", "rent"},
		"period=2026-02":                         {"e3"},
		"period=2026-03&tenant=acme":             {"e1", "e-o3"},
		"period=2026-03":                         {"e1", "e2", "rent", "e-o0", "e-o1", "e-o2"},
		"account=points:user:u1":                 {"e-o0", "e-o1", "e-o2"},
		"account=points:user:u1&tenant=acme":     {"e-o3"},
		"account=points:user:u1&period=2026-02":  {},
		"period=2026-03&account=points:user":     {"e-o0", "e-o1", "e-o2"},
		"period=2026-03&account=points:issued":   {"e-o0", "e-o1", "e-o2"},
		"period=2026-03&account=points:customer": {},
	} {
		require.ElementsMatch(t, want, r.listed(t, query), query)
	}
}

func TestAPageOfEntriesCostsWhatItReturns(t *testing.T) {
	t.Parallel()
	r := open(t)
	for i := range 30 {
		r.enter(t, sale("default", fmt.Sprint("e", i), "2026-03", 1), sale("default", fmt.Sprint("old", i), "2026-02", 1), sale("acme", fmt.Sprint("e", i), "2026-03", 1))
	}
	counter := &storetest.Counter{Store: r.store}
	r.over(counter)
	for i, query := range []string{"period=2026-03", "period=2026-03&account=cash"} {
		var page ops.List[ops.JournalEntry]
		require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/journal/entries?limit=10&"+query, nil, &page).Code)
		require.Len(t, page.Items, 10, "what was read was asked for")
		require.EqualValues(t, i+1, counter.Queries.Load(), query)
	}
	require.Zero(t, counter.Gets.Load())
}

func TestWhatIsAskedOfTheBooksWronglyIsRefused(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.enter(t, sale("default", "e1", "2026-03", 1))
	for path, code := range map[string]string{
		"entries": "period_needed", "entries?period=2026-3": "period_invalid", "entries?period=2026-13": "period_invalid", "entries?period=2026-03&limit=201": "limit_invalid",
		"entries?period=2026-03&page=x": "page_invalid", "entries?account=points:issued:o1": "account_invalid", "entries?account=a%20b&period=2026-03": "account_invalid",
		"entries?period=2026-03&tenant=a%2Fb": "tenant_invalid", "entries?month=2026-03": "parameter_unknown", "entries/e1?period=2026-03": "parameter_unknown",
		"entries/e9": "entry_unknown", "entries/e9/proof": "entry_unknown", "entries/e1/proof": "entry_unsealed", "entries/~": "entry_unknown",
		"balances": "period_needed", "balances?period=x": "period_invalid", "seals?page=0": "page_invalid", "seals?page=x": "page_invalid", "seals?limit=101": "limit_invalid",
		"verify?page=x": "page_invalid", "verify/rest?page=x": "page_invalid", "verify/rest?tenant=default": "parameter_unknown", "tenants?x=1": "parameter_unknown",
		"periods/2026-3": "refused", "periods?limit=0": "limit_invalid",
	} {
		got := r.ask(t, "/v1/ops/journal/"+path, nil, nil)
		require.GreaterOrEqual(t, got.Code, 400, path)
		require.Less(t, got.Code, 500, path)
		require.Contains(t, got.Body.String(), `"code":"`+code+`"`, path)
	}
	for path, test := range map[string]struct{ body, code string }{
		"periods/2026-02/close": {`{}`, "refused"}, "periods/2026-02/close?tenant=default": {`{"why":" "}`, "refused"}, "periods/2026-03/close": {`{"why":"w"}`, "period_not_over"},
		"periods/2026-02/reopen": {`nonsense`, "body_malformed"}, "entries/e1/revert": {`{"why":"w","period":"2026-02"}`, "body_malformed"}, "entries/e9/revert": {`{"why":"w"}`, "entry_unknown"},
	} {
		var problem struct {
			Code string `json:"code"`
		}
		require.GreaterOrEqual(t, r.change(t, http.MethodPost, "/v1/ops/journal/"+path, test.body, &problem), 400, path)
		require.Equal(t, test.code, problem.Code, path)
	}
	r.store.Down(true)
	for _, path := range []string{"entries?period=2026-03", "entries/e1", "entries/e1/proof", "balances?period=2026-03", "seals", "verify", "verify/rest", "tenants", "periods", "periods/2026-02"} {
		require.Equal(t, http.StatusServiceUnavailable, r.ask(t, "/v1/ops/journal/"+path, nil, nil).Code, path)
	}
}

// Whatever somebody has done to an entry, its page and its lines in lists say so, and nothing of the books
// is a server error.
func TestAnEntryThatWasChangedSaysSo(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct {
		sealed bool
		change func(fields map[string]any)
		// listed: it cannot be read, so lists say it, too.
		listed bool
	}{
		"sealed, and reads well":          {true, func(f map[string]any) { f["rule"] = "another" }, false},
		"sealed, and cannot be read":      {true, func(f map[string]any) { delete(f, "kind") }, true},
		"sealed, in another place":        {true, func(f map[string]any) { f["leaf"] = int64(7) }, false},
		"sealed, its amount changed":      {true, func(f map[string]any) { f["lines"].([]any)[0].(map[string]any)["debit"] = int64(9) }, true},
		"not sealed, and cannot be read":  {false, func(f map[string]any) { delete(f, "kind") }, true},
		"not sealed, its amount changed":  {false, func(f map[string]any) { f["lines"].([]any)[0].(map[string]any)["debit"] = int64(9) }, true},
		"sealed, and says that it is not": {true, func(f map[string]any) { delete(f, "leaf"); f["open"] = true }, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			r.enter(t, sale("default", "e1", "2026-03", 1), sale("default", "e2", "2026-03", 2))
			if test.sealed {
				r.seal(t)
			}
			id := ledger.EntryID("default", "e1")
			doc, err := r.store.Get(t.Context(), ledger.Key(id))
			require.NoError(t, err)
			test.change(doc.Fields)
			r.commit(t, store.Set(doc.Key, doc.Fields))

			var shown ops.JournalEntry
			require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/journal/entries/e1", nil, &shown).Code)
			require.True(t, shown.Changed)
			require.Equal(t, test.sealed, shown.Seal > 0)
			shown = ops.JournalEntry{}
			require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/journal/entries/e2", nil, &shown).Code)
			require.False(t, shown.Changed)
			var list ops.List[ops.JournalEntry]
			require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/journal/entries?period=2026-03", nil, &list).Code)
			require.Len(t, list.Items, 2)
			for _, item := range list.Items {
				require.Equal(t, test.listed && item.ID == id, item.Changed, item.ID)
			}
			var trial seal.TrialBalance
			require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/journal/balances?period=2026-03", nil, &trial).Code)
			want := int64(3)
			if !test.sealed {
				want = 2
				require.Equal(t, []string{id}, trial.Changed)
			}
			require.Equal(t, want, trial.Balances[0].Closing, "what is sealed counts as it was sealed")
			told := record("refunds", "default", "e1")
			told.Ref = id
			r.commit(t, own(told))
			require.True(t, r.event(t, "e1").Effect[0].Changed || !test.listed)
		})
	}
}

func TestBalancesOverASealThatWasChangedSaySo(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.enter(t, sale("default", "e1", "2026-03", 1))
	r.seal(t)
	key := store.Key{Collection: seal.Seals, ID: seal.ID("default", 1)}
	doc, err := r.store.Get(t.Context(), key)
	require.NoError(t, err)
	doc.Fields["count"] = int64(2)
	r.commit(t, store.Set(key, doc.Fields))
	got := r.ask(t, "/v1/ops/journal/balances?period=2026-03", nil, nil)
	require.Equal(t, http.StatusConflict, got.Code)
	require.Contains(t, got.Body.String(), "changed after it was sealed")
}

func TestSealsAreListedTheNewestFirst(t *testing.T) {
	t.Parallel()
	r := open(t)
	for i := range 5 {
		r.enter(t, sale("default", fmt.Sprint("e", i), "2026-03", 1))
		r.seal(t)
	}
	var numbers []int64
	for next := ""; ; {
		var page ops.List[seal.Seal]
		require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/journal/seals?limit=2"+next, nil, &page).Code)
		for _, s := range page.Items {
			require.NoError(t, s.Check(), "a seal that was read as JSON is what its hash says")
			numbers = append(numbers, s.Number)
		}
		if page.Next == "" {
			break
		}
		next = "&page=" + page.Next
	}
	require.Equal(t, []int64{5, 4, 3, 2, 1}, numbers)
	var none ops.List[seal.Seal]
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/journal/seals?tenant=acme", nil, &none).Code)
	require.Empty(t, none.Items)
}

func TestWhatAVerificationFindsIsLogged(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.enter(t, sale("default", "e1", "2026-03", 1), sale("default", "e2", "2026-03", 2))
	r.seal(t)
	r.commit(t, store.Delete(ledger.Key(ledger.EntryID("default", "e2")), 0))
	var part seal.Verified
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/journal/verify", nil, &part).Code)
	require.Len(t, part.Findings, 1)
	require.Equal(t, seal.Missing, part.Findings[0].Kind)
	require.Contains(t, r.log.String(), `"msg":"books do not verify","tenant":"default","kind":"missing","document":"entries/`+ledger.EntryID("default", "e2"))
}

func TestWhatAClosedMonthGotLateIsFoundWhereverItIsSealed(t *testing.T) {
	t.Parallel()
	r := open(t)
	late := func() []string {
		var shown ops.Period
		require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/journal/periods/2026-02", nil, &shown).Code)
		return shown.Late
	}
	before := sale("default", "before", "2026-02", 1)
	before.PostedAt = at.Add(-time.Hour)
	other := sale("default", "other", "2026-03", 1)
	r.enter(t, before)
	require.Empty(t, late(), "an open month takes all")
	closed := at.Add(-time.Minute)
	r.commit(t, store.Create(periodOf(t, r, "2026-02"), map[string]any{
		"tenant": "default", "period": "2026-02", "closed": true, "closes_at": closed, "who": "w", "why": "w", "since": closed,
	}))
	r.enter(t, other)
	require.Empty(t, late())
	r.seal(t)
	require.Empty(t, late())
	for i := range 25 { // over more seals than are read together
		one := sale("default", fmt.Sprint("late-", i), "2026-02", 1)
		one.PostedAt = at.Add(time.Duration(i) * time.Minute)
		r.enter(t, one)
		require.Len(t, late(), i+1)
		r.seal(t)
		require.Len(t, late(), i+1)
	}
	another := sale("acme", "late", "2026-02", 1)
	r.enter(t, another)
	require.Len(t, late(), 25, "another tenant's month is another")
}

// periodOf is the key of a month's document of the default tenant.
func periodOf(t *testing.T, r *rig, period string) store.Key {
	t.Helper()
	var one ops.Period
	require.Equal(t, http.StatusOK, r.change(t, http.MethodPost, "/v1/ops/journal/periods/"+period+"/close", `{"why":"w"}`, &one))
	page, err := r.store.Query(t.Context(), store.Query{Collection: "periods", Equal: map[string]any{"period": period}, Limit: 1})
	require.NoError(t, err)
	r.commit(t, store.Delete(page.Documents[0].Key, 0))
	return page.Documents[0].Key
}

func TestAProofOfAnotherTenantsEntryIsNotGivenByItsEvent(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.enter(t, sale("acme", "e1", "2026-03", 1))
	r.seal(t)
	require.Equal(t, http.StatusNotFound, r.ask(t, "/v1/ops/journal/entries/e1/proof", nil, nil).Code)
	var proof ops.Proof
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/journal/entries/e1/proof?tenant=acme", nil, &proof).Code)
	kept, _, err := seal.List(t.Context(), r.store, "acme", 0, 1)
	require.NoError(t, err)
	proven, err := seal.CheckProof([]byte(proof.Proof), kept)
	require.NoError(t, err)
	require.Equal(t, "acme", proven.Tenant)
}
