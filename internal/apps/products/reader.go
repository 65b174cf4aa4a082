package products

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"billhook/catalog"
	"billhook/internal/pii"
	"billhook/internal/platform/store"
)

const (
	// RememberedFor is how long an answer is believed, counted from before it was asked for.
	// So long, at most, another process goes by what a product was worth before a change.
	RememberedFor = 30 * time.Second
	// maxRemembered bounds the products that are remembered.
	maxRemembered = 10_000
	// readTime bounds one read, which callers share.
	readTime = 5 * time.Second
)

// Reader reads what products are worth, through a cache of known ones. An unknown or retired
// product is read each time, since a person may just have set it. A value that is too old is not
// used, even if the store does not answer. It is safe for concurrent use.
type Reader struct {
	store store.Getter
	start map[string]catalog.Product
	now   func() time.Time

	reads singleflight.Group
	mu    sync.Mutex
	known map[string]worth // by the id of the document
}

type worth struct {
	points int64
	until  time.Time
}

// NewReader returns a reader; start is the catalog's products.
func NewReader(from store.Getter, start map[string]catalog.Product, now func() time.Time) *Reader {
	return &Reader{store: from, start: start, now: now, known: map[string]worth{}}
}

// Points returns what one piece of a tenant's product is worth; known reports whether orders may
// name it. An error means that this is not known now, or wraps ErrBroken.
func (r *Reader) Points(ctx context.Context, tenant, id string) (points int64, known bool, err error) {
	if points, ok := r.Remembered(tenant, id); ok {
		return points, true, nil
	}
	if !pii.ID.Valid(tenant) || !pii.ID.Valid(id) {
		return 0, false, nil
	}
	points, joined, err := r.read(ctx, tenant, id)
	if joined && err != nil && ctx.Err() == nil {
		// The read that another caller had begun may have ended before the product was set.
		points, _, err = r.read(ctx, tenant, id)
	}
	if errors.Is(err, ErrUnknown) {
		return 0, false, nil
	}
	return points, err == nil, err
}

// Remembered returns what one piece of a tenant's product is worth, where that is known without asking.
func (r *Reader) Remembered(tenant, id string) (points int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	remembered, ok := r.known[Key(tenant, id).ID]
	if !ok || !r.now().Before(remembered.until) {
		return 0, false
	}
	return remembered.points, true
}

// read reads the store, once for all concurrent callers; joined reports whether another caller had
// begun. For a retired product the error is ErrUnknown.
func (r *Reader) read(ctx context.Context, tenant, id string) (points int64, joined bool, err error) {
	began, name := new(bool), Key(tenant, id).ID
	done := r.reads.DoChan(name, func() (any, error) {
		*began = true
		until := r.now().Add(RememberedFor)
		alone, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTime)
		defer cancel()
		p, _, err := look(alone, r.store, r.start, tenant, id)
		if err == nil && p.State != Active {
			err = ErrUnknown
		}
		r.remember(name, worth{points: p.Points, until: until}, err)
		return p.Points, err
	})
	select {
	case result := <-done:
		points, _ = result.Val.(int64)
		return points, !*began, result.Err
	case <-ctx.Done():
		return 0, false, ctx.Err()
	}
}

// remember keeps what was read, unless something newer is there, and forgets what is
// unknown by now.
func (r *Reader) remember(name string, found worth, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil && !found.until.Before(r.known[name].until):
		if len(r.known) >= maxRemembered {
			clear(r.known) // rare, and cheaper than keeping count of what was asked for last
		}
		r.known[name] = found
	case errors.Is(err, ErrUnknown):
		delete(r.known, name)
	}
}

// Forget has the next question for a tenant's product ask the store.
func (r *Reader) Forget(tenant, id string) {
	name := Key(tenant, id).ID
	r.reads.Forget(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, name)
}
