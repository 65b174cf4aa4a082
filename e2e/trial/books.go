package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"time"

	"billhook/catalog"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/filetest"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// books posts journal entries of many tenants to an embedded store, seals and verifies all, proves one, and
// prints the cost of each step. It fails if verification finds a fault, or misses a changed entry.
func books(flags *flag.FlagSet) func(*run) {
	entries := flags.Int("entries", 100_000, "entries")
	tenants := flags.Int("tenants", 20, "tenants")
	return func(r *run) {
		b, began := &ledgers{&storetest.Counter{Store: r.temporary()}, r}, time.Now()
		row := r.table("", "seconds", "gets", "queries", "commits", "written", "calls/entry", "written/entry")
		step := func(name string) {
			gets, queries, commits, written := b.Gets.Swap(0), b.Queries.Swap(0), b.Commits.Swap(0), b.Written.Swap(0)
			perEntry := func(n int64) string { return fmt.Sprintf("%.4f", float64(n)/float64(*entries)) }
			row(name, fmt.Sprintf("%.1f", time.Since(began).Seconds()), gets, queries, commits, written,
				perEntry(gets+queries+commits), perEntry(written))
			began = time.Now()
		}
		b.post(*entries, *tenants)
		step("post")
		sealed := filetest.Must(seal.Sealer{Store: b, Origins: b.origins(), Now: time.Now}.Run(r.ctx))(r)
		if sealed.Entries != *entries {
			r.broken("%d of %d entries were sealed", sealed.Entries, *entries)
		}
		step("seal")
		if n := b.verify(); n > 0 {
			r.broken("%d findings in books that nobody has changed", n)
		}
		step("verify")
		for i := range *tenants {
			r.must(filetest.ErrorOf(seal.Balances(r.ctx, b, tenant(i), "2026-11", "2026-11")))
		}
		step("balances")
		r.printf("%d seals; balances were read once for each tenant\n", sealed.Seals)
		id := ledger.EntryID(tenant(0), "event-000000")
		text := filetest.Must(seal.Prove(b.ctx, b, id))(b)
		kept, _ := filetest.Both(seal.List(b.ctx, b, tenant(0), store.Cursor{ID: "2"}, 1))(b)
		b.must(filetest.ErrorOf(seal.CheckProof(text, kept)))
		b.printf("a proof has %d bytes\n", len(text))
		storetest.Put(b, b, store.Increment(ledger.Key(id), map[string]int64{"more": 1}, nil))
		if n := b.verify(); n != 1 {
			b.broken("%d findings after one change", n)
		}
	}
}

type ledgers struct {
	*storetest.Counter
	*run
}

const journalQueue = "books"

func (b *ledgers) origins() journal.Origins {
	return journal.Origins{Store: b, Catalog: &catalog.Catalog{Queues: []catalog.Queue{
		{ID: journalQueue, Handlers: map[string]catalog.Handler{"*.*.*": {Name: catalog.JournalPost}}},
	}}}
}

func tenant(i int) string { return fmt.Sprintf("tenant-%02d", i) }

func (b *ledgers) post(entries, tenants int) {
	dice := rand.New(rand.NewPCG(1, 2)) // the same books every time
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for i := range entries {
		amount, event := 100+dice.Int64N(1_000_000), fmt.Sprintf("event-%06d", i)
		at = at.Add(time.Second)
		entry := ledgertest.Sale(tenant(i%tenants), event, ledger.PeriodOf(at), amount, at)
		entry.EventType, entry.Rule = "ecommerce.order.completed", "ecommerce.order.completed"
		entry.Lines = []ledger.Line{
			{Account: "1200:receivable", Currency: "SGD", Debit: amount},
			{Account: "4000:revenue", Currency: "SGD", Credit: amount - amount/10},
			{Account: "2200:tax", Currency: "SGD", Credit: amount / 10},
		}
		writes := filetest.Must(ledger.Post(entry))(b)
		storetest.Put(b, b, append(writes, sealtest.Record(b, journalQueue, writes[0]))...)
	}
}

func (b *ledgers) verify() (findings int) {
	found := filetest.Must(sealtest.Findings(b.ctx, seal.Verifier{From: b, Origins: b.origins()}))(b)
	for _, f := range found {
		b.printf("%s %s: %s\n", f.Kind, f.Document, f.Detail)
	}
	return len(found)
}
