package products

import (
	"context"
	"errors"
	"time"

	"billhook/catalog"
	"billhook/internal/pii"
	"billhook/internal/platform/cache"
	"billhook/internal/platform/store"
)

const (
	// RememberedFor is how long an answer is believed, and so how late another process notices a change.
	RememberedFor = 30 * time.Second
	// maxRemembered bounds the products that are remembered.
	maxRemembered = 10_000
	// readTime bounds one read, which callers share.
	readTime = 5 * time.Second
)

// Reader reads what products are worth, through a cache of known ones: a person may just have set an unknown
// one. A value that is too old is not used, even if the store does not answer. It is safe for concurrent use.
type Reader struct {
	store store.Getter
	start map[string]catalog.Product
	known *cache.Cache[int64] // points, by the id of the document
}

// NewReader returns a reader; start is the catalog's products.
func NewReader(from store.Getter, start map[string]catalog.Product, now func() time.Time) *Reader {
	return &Reader{store: from, start: start, known: cache.New[int64](maxRemembered, 0, now)}
}

// Points returns what one piece of a tenant's product is worth; known reports whether orders may
// name it. An error means that this is not known now, or wraps ErrBroken.
func (r *Reader) Points(ctx context.Context, tenant, id string) (points int64, known bool, err error) {
	if !pii.ID.Valid(tenant) || !pii.ID.Valid(id) {
		return 0, false, nil
	}
	points, err = r.known.Get(ctx, Key(tenant, id).ID, func(ctx context.Context) (int64, time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		p, err := look(ctx, r.store, r.start, tenant, id)
		if err == nil && p.State != Active {
			err = ErrUnknown
		}
		return p.Points, RememberedFor, err
	})
	if errors.Is(err, ErrUnknown) {
		return 0, false, nil
	}
	return points, err == nil, err
}

// Remembered returns what one piece of a tenant's product is worth, where that is known without asking.
func (r *Reader) Remembered(tenant, id string) (points int64, ok bool) {
	return r.known.Known(Key(tenant, id).ID)
}

// Forget has the next question for a tenant's product ask the store.
func (r *Reader) Forget(tenant, id string) { r.known.Forget(Key(tenant, id).ID) }
