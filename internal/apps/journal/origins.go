package journal

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/dedupe"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Origins finds the record of the event or the audit entry of the person that made an entry.
type Origins struct {
	Catalog *catalog.Catalog
	Store   ledger.Reader
}

// makers has the handler that makes entries of each kind. Entries of other kinds are made only by people.
var makers = map[ledger.Kind]string{
	ledger.KindJournal: catalog.JournalPost, ledger.KindJournalReversal: catalog.JournalRevert,
	ledger.KindCredit: "points.credit", ledger.KindReversal: "points.reverse",
}

// Vouched reports whether the record of the entry's event names the entry, or the audit names its author.
// Records expire after weeks, so it is false for older entries. The error is a read error.
func (o Origins) Vouched(ctx context.Context, e ledger.Entry) (bool, error) {
	maker, made := makers[e.Kind]
	for _, q := range o.Catalog.Queues {
		for _, h := range q.Handlers {
			if made && h.Name == maker {
				if recorded, err := o.recorded(ctx, q.ID, e); recorded || err != nil {
					return recorded, err
				}
				break // all event types of a queue have the same records
			}
		}
	}
	switch e.Kind {
	case ledger.KindJournalReversal:
		return o.audited(ctx, KindEntry, e.Tenant, e.Reverts, "reversal", e.ID)
	case ledger.KindTransferOut, ledger.KindTransferIn:
		return o.transferred(ctx, e)
	default:
		return false, nil
	}
}

// Made counts the records of a tenant's events that were committed with the entries that they made. The error
// is a read error.
func (o Origins) Made(ctx context.Context, tenant string, from, to time.Time) (all int64, err error) {
	for shard := range int64(dedupe.Shards) {
		n, err := store.Count(ctx, o.Store, store.Query{
			Collection: dedupe.Collection, Equal: map[string]any{"tenant": tenant, "shard": shard},
			Limit: math.MaxInt32,
			// after all ids
			Due:   &store.Due{Field: "committed_at", Until: to},
			After: store.Cursor{At: from.Add(-time.Microsecond), ID: "~"},
		})
		if err != nil {
			return 0, err
		}
		all += n
	}
	return all, nil
}

func (o Origins) recorded(ctx context.Context, queue string, e ledger.Entry) (bool, error) {
	doc, err := store.Find(ctx, o.Store, dedupe.Key(queue, e.Tenant, e.EventID))
	if err != nil {
		return false, err
	}
	record, err := dedupe.FromDocument(doc)
	return err == nil && record.Made() == e.ID, nil
}

// audited reports whether an audit entry of a tenant's subject has a value after the change.
func (o Origins) audited(ctx context.Context, kind, tenant, subject, name, value string) (bool, error) {
	changes, err := audit.Subject{Kind: kind, Tenant: tenant, ID: subject}.All(ctx, o.Store)
	switch {
	case errors.Is(err, audit.ErrBroken), errors.Is(err, store.ErrInvalid):
		return false, nil
	case err != nil:
		return false, err
	}
	return slices.ContainsFunc(changes, func(change audit.Entry) bool {
		return change.After[name] == value
	}), nil
}

// transferred reports whether a person has linked the customer whose points the entry moves. The first half
// of a transfer names the customer.
func (o Origins) transferred(ctx context.Context, e ledger.Entry) (bool, error) {
	doc := e.Document
	if e.Kind == ledger.KindTransferIn {
		in, err := ledger.MoveFromDocument(doc)
		if err != nil {
			return false, nil //nolint:nilerr // nothing vouches for an unreadable entry
		}
		if doc, err = store.Find(ctx, o.Store, ledger.Key(in.Before())); err != nil {
			return false, err
		}
	}
	out, err := ledger.MoveFromDocument(doc)
	if err != nil || out.Kind != ledger.KindTransferOut || out.EventID != e.EventID {
		return false, nil //nolint:nilerr // nor for one after an unreadable entry
	}
	customer, guest := strings.CutPrefix(string(out.From), string(ledger.CustomerPoints("")))
	if !guest {
		return false, nil
	}
	return o.audited(ctx, customers.AuditKind, e.Tenant, customer, "operation", e.EventID)
}

// Closings returns the time from which each closed month of a tenant takes no entries.
func (o Origins) Closings(ctx context.Context, tenant string) (map[string]time.Time, error) {
	closings := map[string]time.Time{}
	query := store.Query{Collection: PeriodsCollection, IDPrefix: periodPrefix(tenant), Limit: store.MaxPage}
	for doc, err := range store.Each(ctx, o.Store, query) {
		if err != nil {
			return nil, err
		}
		if at, closed := doc.Fields["closes_at"].(time.Time); closed {
			closings[strings.TrimPrefix(doc.Key.ID, query.IDPrefix)] = at
		}
	}
	return closings, nil
}
