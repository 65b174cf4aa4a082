package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/compose/operations"
	"billhook/internal/console"
	"billhook/internal/filetest"
	"billhook/internal/inspect/events"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// office is a worker's ops API over books of two tenants, and a folder.
type office struct {
	server, folder string
	db             store.Store
	now            time.Time
}

// booksCatalog has one queue, whose events make entries.
var booksCatalog = &catalog.Catalog{Journal: catalog.Journal{
	Chart: map[string]catalog.Account{"cash": {Type: catalog.Asset}},
}, Queues: []catalog.Queue{
	{
		ID: "books", Handlers: map[string]catalog.Handler{
			"*.*.*": {Name: catalog.JournalPost}, "order.paid": {Name: "points.credit"},
		},
	},
}}

// openBooks opens books of two months: of the tenant default, invoices of February and March 2026 and the
// points of an order, all sealed on a day of March but the last invoice; of the tenant acme one invoice.
func openBooks(t *testing.T, day int) *office {
	t.Helper()
	d := &office{
		db: storetest.Open(t), folder: t.TempDir(), now: time.Date(2026, 3, day, 10, 15, 0, 0, time.UTC),
	}
	d.post(t, invoice("default", "in-1", 2, 11900, 1900, 0))
	d.post(t, invoice("default", "in-2", 3, 5000, 0, 1))
	d.post(t, invoice("acme", "in-1", 2, 700, 0, 2))
	writes := ledgertest.Credited(t, ledger.Move{
		Tenant: "default", Order: "o1", EventID: "paid-1", To: ledger.UserPoints("u1"), Amount: 1000,
		CreatedAt: d.now.Add(-time.Hour),
	})
	storetest.Put(t, d.db, append(writes, sealtest.Record(t, "books", writes[0]))...)
	d.seal(t)
	d.post(t, invoice("default", "in-3", 3, 250, 0, 9))
	now := func() time.Time { return d.now }
	d.server = serveAPI(t, operations.Apps{
		Store: d.db, Reads: events.Reads{Store: d.db, Now: now, Catalog: booksCatalog},
		Log:     slog.New(slog.DiscardHandler),
		Periods: &journal.Periods{Store: d.db, Now: now, NewID: uuid.NewString},
	})
	return d
}

// invoice is the entry of an invoice, on the second of a month of 2026.
func invoice(tenant, event string, month time.Month, amount, tax int64, minute int) ledger.Entry {
	at := time.Date(2026, month, 2, 9, minute, 0, 0, time.UTC)
	lines := []ledger.Line{
		{Account: "cash", Currency: "EUR", Debit: amount},
		{Account: "revenue", Currency: "EUR", Credit: amount - tax},
	}
	if tax > 0 {
		lines = append(lines, ledger.Line{Account: "tax-payable", Currency: "EUR", Credit: tax})
	}
	return ledger.Entry{
		Tenant: tenant, Kind: ledger.KindJournal, EventID: event, EventType: "billing.invoice.paid",
		Rule:   "billing.invoice.paid",
		Period: ledger.PeriodOf(at), OccurredAt: at, PostedAt: at, Lines: lines,
	}
}

func (d *office) post(t *testing.T, e ledger.Entry) {
	t.Helper()
	writes := filetest.Must(ledger.Post(e))(t)
	storetest.Put(t, d.db, append(writes, sealtest.Record(t, "books", writes[0]))...)
}

func (d *office) seal(t *testing.T) {
	sealtest.Seal(t, d.db, journal.Origins{Catalog: booksCatalog, Store: d.db}, d.now)
}

// says is what a command prints, run by ada, who is on the worker's machine.
func (d *office) says(t *testing.T, line string) string {
	t.Helper()
	return succeeds(t, onPlace, append(strings.Fields(line), "--server", d.server)...)
}

func (d *office) file(name string) string { return filepath.Join(d.folder, name) }

func TestTheBooksAreReadFromATerminal(t *testing.T) {
	t.Parallel()
	d := openBooks(t, 12)
	entry := ledger.EntryID("default", "in-1")
	steps := []step{
		{line: "journal balances --period 2026-03", want: `
ACCOUNT TYPE CURRENCY OPENING DEBIT CREDIT CLOSING
cash asset EUR 119.00 52.50 0.00 171.50
points:issued expense points 0 1000 0 1000
points:user liability points 0 0 1000 -1000
revenue - EUR -100.00 0.00 52.50 -152.50
tax-payable - EUR -19.00 0.00 0.00 -19.00
…total - EUR 0.00 52.50 52.50 0.00
…Summed up to seal 1, and 1 entries that are not sealed yet.
`},
		{line: "journal balances --period 2026-01", want: "\nThe books of default have nothing up to 2026-01.\n"},
		{
			line: "journal balances --from 2026-02 --to 2026-03 -o csv",
			want: "\nACCOUNT,TYPE,CURRENCY,OPENING,DEBIT,CREDIT,CLOSING\ncash,asset,EUR,0.00,171.50,0.00,171.50\n",
		},
		{line: "accounts statement cash --from 2026-02 --to 2026-03", want: `
TENANT default
MONTHS 2026-02/2026-03
ACCOUNT cash
…POSTED HAPPENED ENTRY EVENT TYPE KIND ACCOUNT CURRENCY DEBIT CREDIT BALANCE
2026-02-02T09:00:00Z 2026-02-02T09:00:00Z ENTRY-ID in-1 billing.invoice.paid journal cash EUR 119.00 0.00 119.00
…in-2 billing.invoice.paid journal cash EUR 50.00 0.00 169.00
…in-3 billing.invoice.paid journal cash EUR 2.50 0.00 171.50
EUR: opening 0.00, closing 171.50
`},
		{
			line: "accounts statement points:user:u1 --period 2026-03 -o csv",
			want: "credit,points:user:u1,points,0,1000,-1000\n",
		},
		{
			line: "accounts statement points:user:u1 --period 2026-04",
			want: "Nothing has moved on it.\npoints: opening -1000, closing -1000\n",
		},
		{
			line: "accounts statement points:issued --period 2026-03",
			want: "paid-1 - credit points:issued:o1 points 1000",
		},
		{line: "accounts statement rent --period 2026-03", want: "Nothing has moved on it."},
		{line: "journal ls --from 2025-12 --to 2026-03 --account cash -o csv", want: ",cash,EUR,119.00,0.00\n"},
	}
	for line, code := range map[string]string{
		"accounts statement points:issued:o1":                 "account_invalid",
		"ledger prove in-3":                                   "entry_unsealed",
		"journal balances --from 2026-02":                     "period_invalid",
		"journal balances --from 2026-03 --to 2026-02":        "the earlier first",
		"accounts statement cash --from 2026-03 --to 2026-02": "the earlier first",
		"ledger check-proof nowhere --seals seals":            "read:", "ledger compare nowhere": "read:",
	} {
		steps = append(steps, step{line: line, fails: code})
	}
	for i := range steps {
		steps[i].want = strings.ReplaceAll(steps[i].want, "ENTRY-ID", entry)
	}
	play(t, onPlace, d.server, steps)
}

func TestAMonthIsExportedWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	d := openBooks(t, 12)
	for i := range 230 { // more than a page
		d.post(t, invoice("default", fmt.Sprint("more-", i), 3, int64(i+1), 0, 10))
	}
	file := d.file("march.json")
	require.Empty(t, d.says(t, "journal ls --period 2026-03 -o json --out "+file))
	list := filetest.JSON[console.List[journal.Entry]](t, filetest.Read(t, file))
	require.Empty(t, list.Next)
	seen := map[string]bool{}
	for _, e := range list.Items {
		require.Equal(t, "2026-03", e.Period)
		require.Len(t, e.Hash, 64)
		seen[e.ID] = true
	}
	require.Len(t, seen, 233)

	out := d.says(t, "journal ls --period 2026-03 --account revenue -o csv --limit 0")
	rows := filetest.Must(csv.NewReader(strings.NewReader(out)).ReadAll())(t)
	require.Len(t, rows, 1+2*232, "a row for each line, of the entries that have the account")

	out = d.says(t, "accounts statement revenue --period 2026-03 -o json")
	whole := filetest.JSON[journal.Statement](t, out)
	require.Len(t, whole.Lines, 232)
	require.Equal(t, whole.Closing["EUR"], whole.Lines[231].Balance, "the parts are added up in one order")
	require.EqualValues(t, -10000-5000-250-230*231/2, whole.Closing["EUR"])

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	args := []string{"journal", "ls", "--period", "2026-03", "--out", d.file("none.json"), "--server", d.server}
	require.Error(t, programOf(t, nil, io.Discard).execute(ctx, args))
	require.Len(t, filetest.Must(os.ReadDir(d.folder))(t), 1, "what failed has left nothing")
}

func TestTheBooksAreVerifiedAndWhatIsWrongIsNamed(t *testing.T) {
	t.Parallel()
	d := openBooks(t, 12)
	kept, ofOne := d.file("seals.jsonl"), d.file("one.jsonl")
	const sound = "The books verify: nothing was found.\n"
	play(t, onPlace, d.server, []step{
		{line: "seals ls --all -o json --out " + kept},
		{line: "seals ls -o json --out " + ofOne},
		{line: "ledger verify", want: "SEALS 2\nSEALED ENTRIES 4\nENTRIES WITHOUT A SEAL 1\n…" + sound},
		{line: "ledger verify --tenant acme", want: "SEALS 1\n…" + sound},
		{line: "ledger compare " + ofOne, want: "KEPT SEALS 1\nTENANTS WITHOUT KEPT SEALS acme\n"},
		{line: "ledger compare " + kept + " --json", want: `"kept_seals": 2`},
		{line: "ledger compare " + kept, want: "Kept seals that are as they were: 2."},
	})
	// The same books, sealed on another day: only who has kept the seals finds it.
	other := openBooks(t, 13)
	text := filetest.Read(t, kept)
	spoiled := d.file("spoiled.jsonl")
	require.NoError(t, os.WriteFile(spoiled, []byte(strings.Replace(text, "11900", "11901", 1)), 0o600))
	empty := d.file("empty.jsonl")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	play(t, onPlace, other.server, []step{
		{line: "ledger verify", want: sound},
		{
			line: "ledger compare " + kept + " --wide", want: "\nresealed acme …\nresealed default seals/" +
				seal.ID("default", 1), fails: "the seals are not those that were kept: 2 findings",
		},
		{line: "ledger compare " + spoiled, fails: "seal 1 of default"},
		{line: "ledger compare " + empty, fails: "has no seal"},
	})

	id := ledger.EntryID("default", "in-2")
	doc := storetest.Get(t, d.db, ledger.Key(id))
	lines, _ := doc.Fields["lines"].([]any)
	lines[0].(map[string]any)["debit"], lines[1].(map[string]any)["credit"] = int64(5001), int64(5001)
	storetest.Put(t, d.db, store.Set(doc.Key, doc.Fields))
	play(t, onPlace, d.server, []step{
		{
			line: "ledger verify --wide", want: "\nchanged default entries/" + id + " 1 ",
			fails: "the books do not verify",
		},
		{line: "journal balances --period 2026-03", want: "\ntotal - EUR ", fails: ""},
		{
			line: "journal show in-2", want: " was changed after it was sealed. Verify", fails: "Entry " + id +
				" was changed",
		},
	})
	lines[0].(map[string]any)["debit"] = int64(5002) // it does not balance
	storetest.Put(t, d.db, store.Set(doc.Key, doc.Fields))
	play(t, onPlace, d.server, []step{
		{
			line: "journal show in-2", want: " was changed after it was sealed, and cannot be read any more.",
			fails: "Verify the books",
		},
		{line: "journal ls --period 2026-03 -o csv", fails: "Entry " + id + " was changed after it was posted"},
		{line: "journal balances --period 2026-03", want: "\nSummed up to seal 1"},
	})
	unsealed := ledger.Key(ledger.EntryID("default", "in-3"))
	storetest.Edit(t, d.db, unsealed, func(fields map[string]any) { delete(fields, "kind") })
	play(t, onPlace, d.server, []step{
		{
			line: "journal balances --period 2026-03", want: "left out: " + unsealed.ID,
			fails: "the books do not balance",
		},
		{line: "journal balances --period 2026-03 --json", want: unsealed.ID, fails: "the books do not balance"},
	})
}

func TestAProofIsCheckedByAStranger(t *testing.T) {
	t.Parallel()
	d := openBooks(t, 12)
	proof, of, forged, kept := d.file("in-1.proof"), d.file("acme.proof"), d.file("forged.proof"),
		d.file("seals.jsonl")
	d.says(t, "seals ls -o json --out "+kept)
	for line, file := range map[string]string{"ledger prove in-1": proof, "ledger prove in-1 --tenant acme": of} {
		require.NoError(t, os.WriteFile(file, []byte(d.says(t, line+" -o json")), 0o600))
	}
	require.NoError(t, os.WriteFile(forged,
		[]byte(strings.Replace(filetest.Read(t, proof), `"proof": "`, `"proof": "x`, 1)), 0o600))
	stranger := func(proof string) (string, error) {
		return say(t, nil, "ledger", "check-proof", proof, "--seals", kept)
	}
	out := filetest.Must(stranger(proof))(t)
	require.Contains(t, out, "in seal 1 of tenant default, which is the one that was kept.")
	require.Contains(t, out, `"event_id": "in-1"`)
	require.ErrorIs(t, filetest.ErrorOf(stranger(forged)), seal.ErrProof)
	require.ErrorContains(t, filetest.ErrorOf(stranger(of)), "no seal 1 of acme")
}
