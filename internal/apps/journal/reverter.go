package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"billhook/catalog"
	"billhook/internal/apps/ledger"
	"billhook/internal/pii"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// KindEntry is what the audit calls an entry that a person has reverted; the subject is its id.
const KindEntry = "entry"

// The errors of Revert, beside audit.ErrInvalid and ErrBroken.
var (
	// ErrUnknown: the tenant's journal has no such entry.
	ErrUnknown = errors.New("journal: no such entry")
	// ErrReversal: the entry is a reversal, which nobody reverts.
	ErrReversal = errors.New("journal: the entry is a reversal")
	// ErrReverted: the entry has been reverted before.
	ErrReverted = errors.New("journal: the entry is reverted already")
)

// Reverter makes reversals at a person's word. Every field but Committed is required.
type Reverter struct {
	Store   store.Store
	Catalog *catalog.Catalog
	Now     func() time.Time
	// NewID names the operation, as the id of an event would; random.
	NewID func() string
	// Committed hears of the lanes whose messages can be published now; nil: the relay finds them.
	Committed func(ctx context.Context, lanes []string)
}

// Revert takes back an entry of a tenant, by the id of its event or by its own. The reversal counts in the
// month that runs. It is committed with an entry of the audit and with its messages.
//
// The error is ErrUnknown, ErrReversal, or ErrReverted, with the reversal that stands; or wraps
// audit.ErrInvalid or ErrBroken; or says that nothing is known: then a second call tells.
func (r *Reverter) Revert(ctx context.Context, tenant, entry string, by audit.Change) (ledger.Entry, error) {
	original, err := r.read(ctx, ledger.IDOf(tenant, entry))
	switch {
	case !pii.ID.Valid(tenant):
		return ledger.Entry{}, audit.ErrID
	case err != nil:
		return ledger.Entry{}, err
	case original.Tenant != tenant, original.Kind != ledger.KindJournal && original.Kind != ledger.KindJournalReversal:
		return ledger.Entry{}, ErrUnknown
	case original.Kind == ledger.KindJournalReversal:
		return ledger.Entry{}, ErrReversal
	}
	now := r.Now().UTC().Truncate(time.Microsecond)
	operation := "by-hand-" + r.NewID()
	reversal, err := original.Reversal(operation, ledger.PeriodOf(now), now)
	if err != nil {
		return ledger.Entry{}, fmt.Errorf("%w: %w", audit.ErrInvalid, err)
	}
	var effect handler.Effect
	if effect.Writes, err = ledger.Post(reversal); err == nil {
		effect.Emit, err = emissionsOf(reversal, original.EventID, r.Catalog.EmitsOf(catalog.JournalRevert))
	}
	if err != nil {
		return ledger.Entry{}, fmt.Errorf("%w: %w", audit.ErrInvalid, err)
	}
	queue, _ := r.Catalog.HandledBy(catalog.JournalRevert)
	emitted, err := lane.Emit(r.Catalog, handler.Event{Queue: queue.ID, Tenant: tenant, ID: operation}, &effect, now)
	if err != nil {
		return ledger.Entry{}, fmt.Errorf("%w: %w", audit.ErrInvalid, err)
	}
	writes, err := audit.Entry{
		Kind: KindEntry, Tenant: tenant, Subject: original.ID, Action: "revert", At: now, After: map[string]any{"reversal": reversal.ID},
	}.By(by).With(r.NewID(), effect.Writes...)
	if err != nil {
		return ledger.Entry{}, err
	}
	_, err = r.Store.Commit(ctx, writes)
	switch {
	case errors.Is(err, store.ErrExists):
		before, err := r.read(ctx, reversal.ID)
		if err != nil {
			return ledger.Entry{}, err
		}
		return before, ErrReverted
	case err != nil:
		return ledger.Entry{}, fmt.Errorf("journal: revert: %w", err)
	}
	if r.Committed != nil {
		r.Committed(ctx, emitted.Lanes)
	}
	return reversal, nil
}

// read reads an entry past every cache.
func (r *Reverter) read(ctx context.Context, id string) (ledger.Entry, error) {
	key := ledger.Key(id)
	if err := store.CheckKey(key); err != nil {
		return ledger.Entry{}, ErrUnknown
	}
	doc, err := r.Store.Get(ctx, key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return ledger.Entry{}, ErrUnknown
	case err != nil:
		return ledger.Entry{}, fmt.Errorf("journal: read entry: %w", err)
	}
	entry, err := ledger.Read(doc)
	if err != nil {
		return ledger.Entry{}, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return entry, nil
}
