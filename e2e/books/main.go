// Command books posts journal entries of many tenants to a store of the embedded kind, seals them as
// the task does, verifies all of it, and proves one entry. It prints what each step cost: seconds,
// calls of the store, documents. It exits 1 if anything is found wrong, or if a change that it makes
// at the end is not found.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"billhook/catalog"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/dedupe"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

func main() {
	entries := flag.Int("entries", 100_000, "entries")
	tenants := flag.Int("tenants", 20, "tenants")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *entries, *tenants); err != nil {
		fmt.Fprintln(os.Stderr, "books:", err)
		os.Exit(1)
	}
}

// books is the store, and what the steps cost.
type books struct {
	*storetest.Counter

	out     io.Writer
	entries int
	last    [4]int64
	began   time.Time
}

func run(ctx context.Context, out io.Writer, entries, tenants int) error {
	folder, err := os.MkdirTemp("", "books-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	db, err := standin.OpenTemporaryStore(filepath.Join(folder, "store.db"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	b := &books{Counter: &storetest.Counter{Store: db}, out: out, entries: entries, began: time.Now()}
	b.printf("%d entries of %d tenants, on the embedded store\n", entries, tenants)
	b.printf("%-10s %9s %9s %9s %9s %9s %16s %16s\n", "", "seconds", "gets", "queries", "commits", "written", "calls per entry", "written per entry")
	if err := b.post(ctx, tenants); err != nil {
		return err
	}
	b.step("post")
	sealed, err := seal.Sealer{Store: b, Origins: b.origins(), Now: time.Now}.Run(ctx)
	if err != nil {
		return err
	}
	if sealed.Entries != entries {
		return fmt.Errorf("%d of %d entries were sealed", sealed.Entries, entries)
	}
	b.step("seal")
	if n, err := b.verify(ctx); err != nil || n > 0 {
		return errors.Join(err, fmt.Errorf("%d findings in books that nobody has changed", n))
	}
	b.step("verify")
	for i := range tenants {
		if _, err := seal.Balances(ctx, b, tenant(i), "2026-11"); err != nil {
			return err
		}
	}
	b.step("balances")
	b.printf("%d seals; balances are those of each tenant once\n", sealed.Seals)
	return b.prove(ctx)
}

func (b *books) printf(format string, values ...any) { _, _ = fmt.Fprintf(b.out, format, values...) }

// step prints what was done since the step before.
func (b *books) step(name string) {
	now := [4]int64{b.Gets.Load(), b.Queries.Load(), b.Commits.Load(), b.Written.Load()}
	d := [4]int64{}
	for i := range now {
		d[i] = now[i] - b.last[i]
	}
	b.last = now
	each := func(n int64) float64 { return float64(n) / float64(b.entries) }
	b.printf("%-10s %9.1f %9d %9d %9d %9d %16.4f %16.4f\n", name, time.Since(b.began).Seconds(), d[0], d[1], d[2], d[3], each(d[0]+d[1]+d[2]), each(d[3]))
	b.began = time.Now()
}

// queue is where the events come from.
const queue = "books"

// origins are those of the events of the queue.
func (b *books) origins() journal.Origins {
	return journal.Origins{Store: b, Catalog: &catalog.Catalog{Queues: []catalog.Queue{
		{ID: queue, Handlers: map[string]catalog.Handler{"*.*.*": {Name: catalog.JournalPost}}},
	}}}
}

func tenant(i int) string { return fmt.Sprintf("tenant-%02d", i) }

// post posts each entry with a record beside it, as the worker does, in one commit.
func (b *books) post(ctx context.Context, tenants int) error {
	dice := rand.New(rand.NewPCG(1, 2)) // the same books every time
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for i := range b.entries {
		amount, event := 100+dice.Int64N(1_000_000), fmt.Sprintf("event-%06d", i)
		at = at.Add(time.Second)
		entry := ledger.Entry{
			Tenant: tenant(i % tenants), Kind: ledger.KindJournal, EventID: event, EventType: "ecommerce.order.completed", Rule: "ecommerce.order.completed",
			Period: ledger.PeriodOf(at), OccurredAt: at, PostedAt: at,
			Lines: []ledger.Line{
				{Account: "1200:receivable", Currency: "SGD", Debit: amount}, {Account: "4000:revenue", Currency: "SGD", Credit: amount - amount/10},
				{Account: "2200:tax", Currency: "SGD", Credit: amount / 10},
			},
		}
		writes, err := ledger.Post(entry)
		if err != nil {
			return err
		}
		record := dedupe.Record{Queue: queue, Tenant: entry.Tenant, EventID: event, EventType: entry.EventType, Status: dedupe.Completed, Ref: writes[0].Key.ID}
		if _, err := b.Commit(ctx, append(writes, store.Create(dedupe.Key(queue, entry.Tenant, event), store.Encode(&record)))); err != nil {
			return err
		}
	}
	return nil
}

func (b *books) verify(ctx context.Context) (findings int, err error) {
	err = seal.Verifier{From: b, Origins: b.origins()}.All(ctx, func(f seal.Finding) {
		findings++
		b.printf("%s %s: %s\n", f.Kind, f.Document, f.Detail)
	})
	return findings, err
}

// prove proves an entry, and has one that was changed be found.
func (b *books) prove(ctx context.Context) error {
	id := ledger.EntryID(tenant(0), "event-000000")
	text, err := seal.Prove(ctx, b, id)
	if err != nil {
		return err
	}
	kept, _, err := seal.List(ctx, b, tenant(0), 2, 1)
	if err != nil {
		return err
	}
	if _, err := seal.CheckProof(text, kept); err != nil {
		return err
	}
	b.printf("a proof has %d bytes\n", len(text))
	doc, err := b.Get(ctx, ledger.Key(id))
	if err != nil {
		return err
	}
	doc.Fields["event_type"] = "ecommerce.order.complexed"
	if _, err := b.Commit(ctx, []store.Write{store.Set(doc.Key, doc.Fields)}); err != nil {
		return err
	}
	if n, err := b.verify(ctx); err != nil || n != 1 {
		return errors.Join(err, fmt.Errorf("%d findings after one change", n))
	}
	return nil
}
