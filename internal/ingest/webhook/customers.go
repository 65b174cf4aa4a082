package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"billhook/internal/apps/customers"
	"billhook/internal/pii"
	"billhook/internal/platform/store"
)

// Getter reads one document.
type Getter interface {
	// Get returns the document, or an error wrapping store.ErrNotFound. Any other error
	// means that nothing is known.
	Get(ctx context.Context, key store.Key) (store.Document, error)
}

// How long an answer is remembered. A uid seldom changes, so it is kept longer. A customer
// without a uid may get one at any moment.
const (
	knownFor     = time.Minute
	unknownFor   = 5 * time.Second
	maxCustomers = 10_000
)

// Customers finds the uid of a PayNow customer in the store, and remembers some. It
// is safe for concurrent use.
type Customers struct {
	store Getter
	now   func() time.Time

	mu    sync.Mutex
	known map[string]customer
}

type customer struct {
	uid   string
	until time.Time
}

// NewCustomers returns a lookup in the store.
func NewCustomers(from Getter, now func() time.Time) *Customers {
	return &Customers{store: from, now: now, known: map[string]customer{}}
}

// UID returns the uid of a tenant's customer; ok reports whether there is one. An error means
// that it is not known whether there is.
func (c *Customers) UID(ctx context.Context, tenant, id string) (uid string, ok bool, err error) {
	key, now := customers.Key(tenant, id), c.now()
	c.mu.Lock()
	remembered, hit := c.known[key.ID]
	c.mu.Unlock()
	if hit && now.Before(remembered.until) {
		return remembered.uid, remembered.uid != "", nil
	}
	doc, err := c.store.Get(ctx, key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		c.remember(key.ID, customer{until: now.Add(unknownFor)})
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("webhook: look up customer: %w", err)
	}
	uid, _ = doc.Fields["uid"].(string)
	if !pii.UID.Valid(uid) {
		return "", false, errors.New("webhook: customer document holds no valid uid")
	}
	c.remember(key.ID, customer{uid: uid, until: now.Add(knownFor)})
	return uid, true, nil
}

func (c *Customers) remember(id string, found customer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= maxCustomers {
		clear(c.known) // rare, and cheaper than a list of the least recently used
	}
	c.known[id] = found
}
