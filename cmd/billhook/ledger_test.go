// This file is over 400 lines: the commands of the books are tried on one set of books.

package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/console/ops"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

// desk is a worker's ops API over books of two tenants, and a terminal.
type desk struct {
	server, folder string
	db             store.Store
	now            time.Time
}

// booksCatalog has one queue, whose events make entries.
var booksCatalog = &catalog.Catalog{Queues: []catalog.Queue{
	{ID: "books", Handlers: map[string]catalog.Handler{"*.*.*": {Name: catalog.JournalPost}, "order.paid": {Name: "points.credit"}}},
}}

// books of two months: of the tenant default, invoices of February and March 2026 and the points
// of an order, all sealed but the last invoice; of the tenant acme one invoice.
func openDesk(t *testing.T) *desk {
	t.Helper()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	d := &desk{db: db, folder: t.TempDir(), now: time.Date(2026, 3, 12, 10, 15, 0, 0, time.UTC)}
	for i, e := range []struct {
		tenant, event string
		month         time.Month
		amount, tax   int64
	}{{"default", "in-1", 2, 11900, 1900}, {"default", "in-2", 3, 5000, 0}, {"acme", "in-1", 2, 700, 0}} {
		d.post(t, d.entry(e.tenant, e.event, e.month, e.amount, e.tax, i))
	}
	writes, err := ledger.Credit(ledger.Move{
		Tenant: "default", Order: "o1", EventID: "paid-1", From: ledger.IssuedPoints("o1"), To: ledger.UserPoints("u1"), Amount: 1000, Currency: ledger.Points, CreatedAt: d.now.Add(-time.Hour),
	})
	require.NoError(t, err)
	d.commit(t, append(writes, sealtest.Record(t, "books", writes[0])))
	d.seal(t)
	d.post(t, d.entry("default", "in-3", 3, 250, 0, 9))

	router := chi.NewRouter()
	now := func() time.Time { return d.now }
	(&ops.API{
		Reads: ops.Reads{Store: db, Now: now, Catalog: booksCatalog}, Log: slog.New(slog.DiscardHandler), Access: ops.Access{Tokens: []string{opsToken}, OpenOnLoopback: true},
		Periods:  &journal.Periods{Store: db, Now: now, NewID: uuid.NewString},
		Reverter: &journal.Reverter{Store: db, Catalog: booksCatalog, Now: now, NewID: uuid.NewString},
	}).Routes(router)
	server := httptest.NewServer(router)
	t.Cleanup(server.Close)
	d.server = server.URL
	return d
}

// entry is that of an invoice, on the second of a month of 2026.
func (d *desk) entry(tenant, event string, month time.Month, amount, tax int64, minute int) ledger.Entry {
	at := time.Date(2026, month, 2, 9, minute, 0, 0, time.UTC)
	lines := []ledger.Line{{Account: "cash", Currency: "EUR", Debit: amount}, {Account: "revenue", Currency: "EUR", Credit: amount - tax}}
	if tax > 0 {
		lines = append(lines, ledger.Line{Account: "tax-payable", Currency: "EUR", Credit: tax})
	}
	return ledger.Entry{
		Tenant: tenant, Kind: ledger.KindJournal, EventID: event, EventType: "billing.invoice.paid", Rule: "billing.invoice.paid",
		Period: ledger.PeriodOf(at), OccurredAt: at, PostedAt: at, Lines: lines,
	}
}

func (d *desk) post(t *testing.T, e ledger.Entry) {
	t.Helper()
	writes, err := ledger.Post(e)
	require.NoError(t, err)
	d.commit(t, append(writes, sealtest.Record(t, "books", writes[0])))
}

func (d *desk) commit(t *testing.T, writes []store.Write) {
	t.Helper()
	_, err := d.db.Commit(t.Context(), writes)
	require.NoError(t, err)
}

func (d *desk) seal(t *testing.T) {
	t.Helper()
	_, err := seal.Sealer{Store: d.db, Origins: journal.Origins{Catalog: booksCatalog, Store: d.db}, Now: func() time.Time { return d.now }}.Run(t.Context())
	require.NoError(t, err)
}

// says runs a command of the ledger with the arguments that a line has, as a person with an identity.
func (d *desk) says(t *testing.T, who, line string) (string, error) {
	t.Helper()
	return say(t, map[string]string{"OPS_OPERATOR": who}, append(append([]string{"ledger"}, strings.Fields(line)...), "--server", d.server)...)
}

// mustSay runs a command of ada's that succeeds.
func (d *desk) mustSay(t *testing.T, line string) string {
	t.Helper()
	out, err := d.says(t, "ada", line)
	require.NoError(t, err, out)
	return out
}

func (d *desk) file(name string) string { return filepath.Join(d.folder, name) }

func TestTheBooksAreReadFromATerminal(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	for line, want := range map[string]string{
		"balances --period 2026-03": `
ACCOUNT        CURRENCY  OPENING  DEBIT  CREDIT  CLOSING
cash           EUR       119.00   52.50  0.00    171.50
points:issued  points    0        1000   0       1000
points:user    points    0        0      1000    -1000
revenue        EUR       -100.00  0.00   52.50   -152.50
tax-payable    EUR       -19.00   0.00   0.00    -19.00
Summed up to seal 1, and 1 entries that are not sealed yet.
`,
		"balances --period 2026-01": "\nThe books of default have nothing up to 2026-01.\n",
		"statement cash --period 2026-03": `
cash of default, 2026-03
POSTED                EVENT  KIND     ACCOUNT  DEBIT  CREDIT  BALANCE  CURRENCY
opening               -      -        -        -      -       119.00   EUR
2026-03-02T09:01:00Z  in-2   journal  cash     50.00  -       169.00   EUR
2026-03-02T09:09:00Z  in-3   journal  cash     2.50   -       171.50   EUR
closing               -      -        -        -      -       171.50   EUR
`,
		"statement points:user:u1 --period 2026-03": `
points:user:u1 of default, 2026-03
POSTED                EVENT   KIND    ACCOUNT         DEBIT  CREDIT  BALANCE  CURRENCY
opening               -       -       -               -      -       0        points
2026-03-12T09:15:00Z  paid-1  credit  points:user:u1  -      1000    -1000    points
closing               -       -       -               -      -       -1000    points
`,
		"statement points:issued --period 2026-03":  "2026-03-12T09:15:00Z  paid-1  credit  points:issued:o1  1000",
		"statement points:user:u1 --period 2026-04": "opening  -      -     -        -      -       -1000    points\nclosing",
		"statement rent --period 2026-03":           "Nothing has moved on it.",
		"statement cash --period 2026-02 --csv": `
posted_at,occurred_at,entry,event_id,event_type,kind,account,currency,debit,credit,balance,seal
,,,,,opening,cash,EUR,,,0.00,
2026-02-02T09:00:00.000000Z,2026-02-02T09:00:00.000000Z,ENTRY-default~in-1,in-1,billing.invoice.paid,journal,cash,EUR,119.00,,119.00,1
,,,,,total,cash,EUR,119.00,0.00,,
,,,,,closing,cash,EUR,,,119.00,
`,
		"statement cash --from 2026-02 --to 2026-03": `
cash of default, 2026-02/2026-03
POSTED                EVENT  KIND     ACCOUNT  DEBIT   CREDIT  BALANCE  CURRENCY
opening               -      -        -        -       -       0.00     EUR
2026-02-02T09:00:00Z  in-1   journal  cash     119.00  -       119.00   EUR
2026-03-02T09:01:00Z  in-2   journal  cash     50.00   -       169.00   EUR
2026-03-02T09:09:00Z  in-3   journal  cash     2.50    -       171.50   EUR
closing               -      -        -        -       -       171.50   EUR
`,
		"statement points:user:u1 --from 2026-02 --to 2026-03 --csv": ",total,points:user:u1,points,0,1000,,\n,,,,,closing,points:user:u1,points,,,-1000,\n",
		"balances --from 2026-02 --to 2026-03 --csv": `
tenant,period,account,currency,opening,debit,credit,closing
default,2026-02/2026-03,cash,EUR,0.00,171.50,0.00,171.50
default,2026-02/2026-03,points:issued,points,0,1000,0,1000
default,2026-02/2026-03,points:user,points,0,0,1000,-1000
default,2026-02/2026-03,revenue,EUR,0.00,0.00,152.50,-152.50
default,2026-02/2026-03,tax-payable,EUR,0.00,0.00,19.00,-19.00
default,2026-02/2026-03,total,EUR,0.00,171.50,171.50,0.00
default,2026-02/2026-03,total,points,0,1000,1000,0
`,
		"export --from 2025-12 --to 2026-03 --account cash --csv": "default,2025-12/2026-03,,,,total,,,,,,EUR,171.50,171.50,,\n",
		"show in-1": `
ENTRY-default~in-1  journal
  event        in-1
  type         billing.invoice.paid
  rule         billing.invoice.paid
  period       2026-02
  occurred     2026-02-02T09:00:00Z
  posted       2026-02-02T09:00:00Z
  seal         1, place 0
  hash         HASH
ACCOUNT      DEBIT   CREDIT  CURRENCY
cash         119.00  -       EUR
revenue      -       100.00  EUR
tax-payable  -       19.00   EUR
`,
		"show in-3":               "seal         none yet",
		"show in-1 --tenant acme": "-acme~in-1  journal",
		"periods":                 "No month of default was ever closed.",
	} {
		out, err := d.says(t, "ada", line)
		require.NoError(t, err, line)
		var shown ops.JournalEntry
		text, err := d.says(t, "ada", "show in-1 --json")
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal([]byte(text), &shown))
		want = strings.NewReplacer("ENTRY-default~in-1", shown.ID, "HASH", shown.Hash).Replace(want)
		require.Contains(t, "\n"+out, want, line)
	}
	for line, code := range map[string]string{
		"show in-9": "entry_unknown", "show a~b": "entry_unknown", "show in-1 --tenant nobody": "entry_unknown",
		"balances --period 2026-3": "period_invalid", "statement points:issued:o1": "account_invalid", "export --account points:issued:o1": "account_invalid",
		"prove in-3": "entry_unsealed", "prove in-9": "entry_unknown", "close 2026-03 --why w --yes": "period_not_over", "close March --why w --yes": "refused",
		"revert in-9 --why w --yes": "entry_unknown", "close 2026-02": "--why", "export --seals --csv": "--seals goes with",
		"export --json --csv": "--json goes with", "balances --from 2026-02": "[to]", "balances --from 2026-03 --to 2026-02": "the earlier first",
		"statement cash --from 1900-01 --to 2026-02": "more than 120 months", "balances --period 2026-02 --from 2026-01 --to 2026-03": "[from period]", "check-proof nowhere --seals seals": "read:", "verify --seals nowhere": "read:",
	} {
		_, err := d.says(t, "ada", line)
		require.ErrorContains(t, err, code, line)
	}
}

func TestAMonthIsExportedWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	for i := range 230 { // more than a page
		d.post(t, d.entry("default", fmt.Sprint("more-", i), 3, int64(i+1), 0, 10))
	}
	file := d.file("march.jsonl")
	out, err := d.says(t, "ada", "export --period 2026-03 --out "+file)
	require.NoError(t, err)
	require.Equal(t, "233 written to "+file+"\n", out)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		var e ops.JournalEntry
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		require.Equal(t, "2026-03", e.Period)
		require.Len(t, e.Hash, 64)
		seen[e.ID] = true
	}
	require.Len(t, seen, 233)

	out, err = d.says(t, "ada", "export --period 2026-03 --account revenue --csv")
	require.NoError(t, err)
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 1+2*232+1, "a row for each line, of the entries that have the account, and their sum")
	out, err = d.says(t, "ada", "export --period 2026-02 --json")
	require.NoError(t, err)
	var list ops.List[ops.JournalEntry]
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	require.Len(t, list.Items, 1)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	gone := d.file("none.jsonl")
	require.Error(t, run(ctx, []string{"ledger", "export", "--period", "2026-03", "--out", gone, "--server", d.server}, func(string) string { return "" }, &strings.Builder{}))
	left, err := os.ReadDir(d.folder)
	require.NoError(t, err)
	require.Len(t, left, 1, "what failed has left nothing")
}

func TestTheBooksAreVerifiedAndWhatIsWrongIsNamed(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	kept := d.file("seals.jsonl")
	_, err := d.says(t, "ada", "export --seals --out "+kept)
	require.NoError(t, err)
	for _, line := range []string{"verify", "verify --seals " + kept, "verify --tenant acme"} {
		out, err := d.says(t, "ada", line)
		require.NoError(t, err, out)
		require.Contains(t, out, "0 findings.\n", line)
	}
	// The seals of all tenants are kept, unless one is named; of whom none is kept, verify says so.
	require.NotContains(t, d.mustSay(t, "verify --seals "+kept), "has no seal of it")
	d.mustSay(t, "export --seals --tenant default --out "+kept)
	out := d.mustSay(t, "verify --seals "+kept)
	require.Contains(t, out, "acme: the file has no seal of it")
	require.NotContains(t, out, "default: the file")
	d.mustSay(t, "export --seals --out "+kept)
	require.Contains(t, d.mustSay(t, "verify --seals "+kept+" --json"), `"kept_seals": 2`)
	out, err = d.says(t, "ada", "verify")
	require.NoError(t, err)
	require.Contains(t, out, "2 seals, 4 sealed entries and 1 unsealed ones of 2 tenants: 0 findings.")

	id := ledger.EntryID("default", "in-2")
	doc, err := d.db.Get(t.Context(), ledger.Key(id))
	require.NoError(t, err)
	lines, _ := doc.Fields["lines"].([]any)
	for i, side := range []string{"debit", "credit"} {
		line, _ := lines[i].(map[string]any)
		line[side] = int64(5001)
	}
	d.commit(t, []store.Write{store.Set(doc.Key, doc.Fields)})
	out, err = d.says(t, "ada", "verify")
	require.ErrorContains(t, err, "the books do not verify")
	require.Contains(t, out, "changed: entries/"+id+" of default, seal 1: ")
	require.Contains(t, d.mustSay(t, "show in-2"), "  changed      after it was sealed\n")
	lines[0].(map[string]any)["debit"] = int64(5002)
	d.commit(t, []store.Write{store.Set(doc.Key, doc.Fields)})
	require.Contains(t, d.mustSay(t, "show in-2"), "  changed      after it was sealed: it cannot be read\n")
	_, err = d.says(t, "ada", "export --period 2026-03 --csv")
	require.ErrorContains(t, err, "entry "+id+" was changed after it was sealed")
	out, err = d.says(t, "ada", "verify --json")
	require.ErrorContains(t, err, "the books do not verify")
	var v verification
	require.NoError(t, json.Unmarshal([]byte(out), &v))
	require.Equal(t, []string{"acme", "default"}, v.Tenants)
	require.NotEmpty(t, v.Findings)
}

func TestBooksThatWereSealedAgainAreFoundByTheSealsThatWereKept(t *testing.T) {
	t.Parallel()
	d, other := openDesk(t), openDesk(t)
	kept := d.file("seals.jsonl")
	_, err := d.says(t, "ada", "export --seals --out "+kept)
	require.NoError(t, err)
	_, err = other.says(t, "ada", "verify")
	require.NoError(t, err)
	other.now = other.now.Add(time.Hour) // what it seals from now on has other hashes
	out, err := other.says(t, "ada", "verify --seals "+kept)
	require.NoError(t, err, "the same books, sealed at the same moment: "+out)

	// The same entries, sealed at another moment.
	for _, collection := range []string{seal.Seals, seal.Leaves, seal.Heads} {
		page, err := other.db.Query(t.Context(), store.Query{Collection: collection, Limit: store.MaxPage})
		require.NoError(t, err)
		for _, doc := range page.Documents {
			other.commit(t, []store.Write{store.Delete(doc.Key, 0)})
		}
	}
	page, err := other.db.Query(t.Context(), store.Query{Collection: ledger.Entries, Limit: store.MaxPage})
	require.NoError(t, err)
	for _, doc := range page.Documents {
		delete(doc.Fields, "seal")
		delete(doc.Fields, "leaf")
		doc.Fields[ledger.FieldOpen], doc.Fields[ledger.FieldUnsealed] = true, doc.Fields["tenant"]
		other.commit(t, []store.Write{store.Set(doc.Key, doc.Fields)})
	}
	out, err = other.says(t, "ada", "verify --seals "+kept)
	require.ErrorContains(t, err, "the books do not verify")
	require.Contains(t, out, "the seal that was kept is gone")
	other.seal(t)
	out, err = other.says(t, "ada", "verify")
	require.NoError(t, err, "nothing here tells that they were sealed again: "+out)
	out, err = other.says(t, "ada", "verify --seals "+kept)
	require.ErrorContains(t, err, "the books do not verify")
	require.Contains(t, out, "resealed: seals/"+seal.ID("default", 1))

	text, err := os.ReadFile(kept)
	require.NoError(t, err)
	spoiled := other.file("spoiled.jsonl")
	require.NoError(t, os.WriteFile(spoiled, []byte(strings.Replace(string(text), "11900", "11901", 1)), 0o600))
	_, err = other.says(t, "ada", "verify --seals "+spoiled)
	require.ErrorContains(t, err, "seal 1 of default")
}

func TestAProofIsCheckedByAStranger(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	proof, kept := d.file("in-1.proof"), d.file("seals.jsonl")
	_, err := d.says(t, "ada", "prove in-1 --out "+proof)
	require.NoError(t, err)
	_, err = d.says(t, "ada", "export --seals --tenant default --out "+kept)
	require.NoError(t, err)
	stranger := func(proof string, more ...string) (string, error) {
		return say(t, nil, append([]string{"ledger", "check-proof", proof, "--seals", kept}, more...)...)
	}
	out, err := stranger(proof)
	require.NoError(t, err)
	require.Contains(t, out, "in seal 1 of tenant default, which is the one that was kept.")
	require.Contains(t, out, `"event_id":"in-1"`)
	text, err := os.ReadFile(proof)
	require.NoError(t, err)
	forged := d.file("forged.proof")
	require.NoError(t, os.WriteFile(forged, append([]byte("x"), text...), 0o600))
	_, err = stranger(forged)
	require.ErrorIs(t, err, seal.ErrProof)
	of := d.file("acme.proof")
	_, err = d.says(t, "ada", "prove in-1 --tenant acme --out "+of)
	require.NoError(t, err)
	_, err = stranger(of)
	require.ErrorContains(t, err, "no seal 1 of acme")
	out, err = stranger(proof, "--json")
	require.NoError(t, err)
	var proven seal.Proven
	require.NoError(t, json.Unmarshal([]byte(out), &proven))
	require.EqualValues(t, 1, proven.Seal)
}

func TestAMonthIsClosedByOneAndReopenedByTwo(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	out, err := d.says(t, "ada", "close 2026-02 --dry-run")
	require.NoError(t, err)
	require.Contains(t, out, "2026-02 of default is open.\n")
	require.Contains(t, out, "revenue      EUR       0.00     0.00    100.00  -100.00")
	out, err = d.says(t, "ada", "close 2026-02 --why the-books-are-done --yes")
	require.NoError(t, err)
	require.Contains(t, out, "2026-02 of default is closing, and closed from 2026-03-12T10:17:00Z.\n")
	d.now = d.now.Add(time.Hour)
	out, err = d.says(t, "ada", "periods")
	require.NoError(t, err)
	require.Contains(t, out, "2026-02  closed  2026-03-12T10:17:00Z  local:ada  the-books-are-done  -")

	// What a worker posts nevertheless is found, sealed or not.
	late := d.entry("default", "late", 2, 100, 0, 0)
	late.PostedAt = d.now
	d.post(t, late)
	for range 2 {
		out, err = d.says(t, "ada", "verify --tenant default")
		require.ErrorContains(t, err, "1 findings")
		require.Regexp(t, "late: entries/"+ledger.EntryID("default", "late")+" of default(, seal 2)?: the entry was posted in 2026-02 after that was closed\n", out)
		d.seal(t)
	}

	out, err = d.says(t, "ada", "reopen 2026-02 --why a-late-invoice --yes")
	require.NoError(t, err)
	require.Contains(t, out, "2026-02 of default is closed since 2026-03-12T10:17:00Z; to open it again a second person must ask for it, after local:ada.\n")
	_, err = d.says(t, "ada", "reopen 2026-02 --why a-late-invoice --yes")
	require.ErrorContains(t, err, "second_person_needed", "one person asks twice")
	_, err = say(t, asAda, "ledger", "reopen", "2026-02", "--why", "w", "--yes", "--server", d.server)
	require.ErrorContains(t, err, "identity_needed", "nobody knows who holds a token")
	out, err = d.says(t, "bea", "reopen 2026-02 --why a-late-invoice --yes")
	require.NoError(t, err)
	require.Contains(t, out, "local:ada asked for it")
	require.Contains(t, out, "2026-02 of default is open.\n")
	out, err = d.says(t, "ada", "verify --tenant default")
	require.NoError(t, err, out)
}

func TestAnEntryIsRevertedOnce(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	id := ledger.EntryID("default", "in-1")
	out, err := d.says(t, "ada", "revert in-1 --why a-typo --dry-run")
	require.NoError(t, err)
	require.Contains(t, out, "tax-payable  -       19.00   EUR")
	out, err = d.says(t, "ada", "revert in-1 --why a-typo --yes")
	require.NoError(t, err)
	require.Contains(t, out, "Reverted by "+ledger.ReversalID(id)+", in 2026-03.\n")
	_, err = d.says(t, "ada", "revert "+id+" --why a-typo --yes")
	require.ErrorContains(t, err, "The entry is reverted already, by "+ledger.ReversalID(id))
	_, err = d.says(t, "ada", "revert "+ledger.ReversalID(id)+" --why a-typo --yes")
	require.ErrorContains(t, err, "entry_is_reversal")
	out, err = d.says(t, "ada", "show in-1")
	require.NoError(t, err)
	require.Contains(t, out, "reverted by  "+ledger.ReversalID(id))
	out, err = d.says(t, "ada", "balances --period 2026-03")
	require.NoError(t, err)
	require.Contains(t, out, "tax-payable    EUR       -19.00   19.00   0.00    0.00")
}

// The page of the books shows each command that people use, with flags and arguments that it takes.
func TestThePageOfTheBooksShowsCommandsThatThereAre(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/ledger.md")
	require.NoError(t, err)
	quoted := regexp.MustCompile(`"[^"]*"|<[^>]*>`)
	shown := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^billhook (ledger [^#\n]*)`).FindAllStringSubmatch(string(page), -1) {
		root, err := commands(func(string) string { return "" }, io.Discard)
		require.NoError(t, err)
		command, rest, err := root.Find(strings.Fields(quoted.ReplaceAllString(line[1], "x")))
		require.NoError(t, err, line[1])
		require.NoError(t, command.ParseFlags(rest), line[1])
		require.NoError(t, command.ValidateArgs(command.Flags().Args()), line[1])
		shown[command.Name()] = true
	}
	for _, name := range []string{"balances", "statement", "show", "export", "verify", "prove", "check-proof", "close", "periods", "reopen", "revert"} {
		require.True(t, shown[name], name)
	}
}
