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
var booksCatalog = &catalog.Catalog{
	Journal: catalog.Journal{Chart: map[string]catalog.Account{"cash": {Type: catalog.Asset}}},
	Queues: []catalog.Queue{{ID: "books", Handlers: map[string]catalog.Handler{
		"*.*.*": {Name: catalog.JournalPost}, "order.paid": {Name: "points.credit"},
	}}},
}

// openBooks opens books of two months: of the tenant default, invoices of February and March 2026 and the
// points of an order, all sealed on a day of March but the last invoice; of the tenant acme one invoice.
func openBooks(t *testing.T, day int) *office {
	t.Helper()
	d := &office{db: storetest.Open(t), folder: t.TempDir()}
	d.now = time.Date(2026, 3, day, 10, 15, 0, 0, time.UTC)
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
		Log: slog.New(slog.DiscardHandler), Periods: &journal.Periods{Store: d.db, Now: now, NewID: uuid.NewString},
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
		Rule: "billing.invoice.paid", Period: ledger.PeriodOf(at), OccurredAt: at, PostedAt: at, Lines: lines,
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

// says is the output of a command, run by ada on the worker's machine.
func (d *office) says(t *testing.T, line string) string {
	t.Helper()
	return succeeds(t, onPlace, append(strings.Fields(line), "--server", d.server)...)
}

func (d *office) file(name string) string { return filepath.Join(d.folder, name) }

func TestTheBooksAreReadFromATerminal(t *testing.T) {
	t.Parallel()
	d := openBooks(t, 12)
	steps := walk(t, "the books are read", "{in-1}", ledger.EntryID("default", "in-1"))
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
	require.Len(t, rows, 1+2*232, "a row for each line of the entries with the account")

	out = d.says(t, "accounts statement revenue --period 2026-03 -o json")
	whole := filetest.JSON[journal.Statement](t, out)
	require.Len(t, whole.Lines, 232)
	require.Equal(t, whole.Closing["EUR"], whole.Lines[231].Balance, "the parts are added up in one order")
	require.EqualValues(t, -10000-5000-250-230*231/2, whole.Closing["EUR"])

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	args := []string{"journal", "ls", "--period", "2026-03", "--out", d.file("none.json"), "--server", d.server}
	require.Error(t, programOf(t, nil, io.Discard).execute(ctx, args))
	require.Len(t, filetest.Must(os.ReadDir(d.folder))(t), 1, "a failed export leaves no file")
}

func TestTheBooksAreVerifiedAndEachFindingIsNamed(t *testing.T) {
	t.Parallel()
	d, id := openBooks(t, 12), ledger.EntryID("default", "in-2")
	unsealed := ledger.Key(ledger.EntryID("default", "in-3"))
	names := []string{
		"{kept}", d.file("kept"), "{one}", d.file("one"), "{spoiled}", d.file("spoiled"), "{empty}",
		d.file("empty"),
		"{seal}", seal.ID("default", 1), "{entry}", id, "{unsealed}", unsealed.ID,
	}
	play(t, onPlace, d.server, walk(t, "the books verify", names...))
	// The same books sealed on another day differ from the kept seals alone.
	other := openBooks(t, 13)
	spoiled := strings.Replace(filetest.Read(t, d.file("kept")), "11900", "11901", 1)
	require.NoError(t, os.WriteFile(d.file("spoiled"), []byte(spoiled), 0o600))
	require.NoError(t, os.WriteFile(d.file("empty"), nil, 0o600))
	play(t, onPlace, other.server, walk(t, "books that were sealed again differ from the kept seals", names...))

	doc := storetest.Get(t, d.db, ledger.Key(id))
	lines, _ := doc.Fields["lines"].([]any)
	lines[0].(map[string]any)["debit"], lines[1].(map[string]any)["credit"] = int64(5001), int64(5001)
	storetest.Put(t, d.db, store.Set(doc.Key, doc.Fields))
	play(t, onPlace, d.server, walk(t, "a changed entry is found", names...))
	lines[0].(map[string]any)["debit"] = int64(5002)
	storetest.Put(t, d.db, store.Set(doc.Key, doc.Fields))
	play(t, onPlace, d.server, walk(t, "an entry that does not balance is found", names...))
	storetest.Edit(t, d.db, unsealed, func(fields map[string]any) { delete(fields, "kind") })
	play(t, onPlace, d.server, walk(t, "an entry that cannot be read is left out", names...))
}

func TestAProofIsCheckedWithoutTheWorker(t *testing.T) {
	t.Parallel()
	d := openBooks(t, 12)
	proof, acme, forged, kept := d.file("in-1.proof"), d.file("acme.proof"), d.file("forged.proof"),
		d.file("kept")
	d.says(t, "seals ls -o json --out "+kept)
	text := d.says(t, "ledger prove in-1 -o json")
	for file, text := range map[string]string{
		proof: text, forged: strings.Replace(text, `"proof": "`, `"proof": "x`, 1),
		acme: d.says(t, "ledger prove in-1 --tenant acme -o json"),
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	check := func(proof string) (string, error) {
		return say(t, nil, "ledger", "check-proof", proof, "--seals", kept)
	}
	out := filetest.Must(check(proof))(t)
	require.Contains(t, out, "in seal 1 of tenant default, which is the one that was kept.")
	require.Contains(t, out, `"event_id": "in-1"`)
	require.ErrorIs(t, filetest.ErrorOf(check(forged)), seal.ErrProof)
	require.ErrorContains(t, filetest.ErrorOf(check(acme)), "no seal 1 of acme")
}
