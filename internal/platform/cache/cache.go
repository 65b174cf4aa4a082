// Package cache owns what a process remembers of answers that cost a question: how many, for how long, and
// that those who miss the same one at once share the question. It refuses to remember an error, and to know
// what it holds.
package cache

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/singleflight"
)

// Forever is how long an answer is good that only makes room for those used later.
const Forever = time.Duration(math.MaxInt64)

// Load asks for a value, and says for how long the answer is good; "there is none" is such an answer too. The
// end of the caller's context does not end it, since others wait for it: it bounds its time itself.
type Load[V any] func(ctx context.Context) (value V, good time.Duration, err error)

// Cache remembers values by key. It is safe for concurrent use.
type Cache[V any] struct {
	now func() time.Time

	loads singleflight.Group
	mu    sync.Mutex
	known *simplelru.LRU[string, entry[V]]
	// changes counts what callers have put and forgotten: what was loaded meanwhile may be from before.
	changes int
}

type entry[V any] struct {
	value        V
	since, until time.Time
}

// New returns a cache of the values used last: at most most, and at least one.
func New[V any](most int, now func() time.Time) *Cache[V] {
	known, _ := simplelru.NewLRU[string, entry[V]](max(1, most), nil) // it refuses a size that is not positive
	return &Cache[V]{now: now, known: known}
}

// Known returns a value that is good, without asking for it.
func (c *Cache[V]) Known(key string) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, _ := c.known.Get(key)
	if now := c.now(); now.Before(e.since) || !now.Before(e.until) {
		return value, false
	}
	return e.value, true
}

// Get returns a value that is good, and loads it where there is none. The error is that of the load or of
// ctx.
func (c *Cache[V]) Get(ctx context.Context, key string, load Load[V]) (V, error) {
	if value, ok := c.Known(key); ok {
		return value, nil
	}
	loaded, own := c.load(ctx, key, load)
	for again := true; ; again = false {
		select {
		case result := <-loaded:
			if result.Err != nil && !*own && again && ctx.Err() == nil {
				// Another caller's load may have failed before this caller asked.
				loaded, own = c.load(ctx, key, load)
				continue
			}
			value, _ := result.Val.(V)
			return value, result.Err
		case <-ctx.Done():
			var none V
			return none, ctx.Err()
		}
	}
}

// load joins the load of the key that is under way, or begins one, which own then says.
func (c *Cache[V]) load(
	ctx context.Context, key string, load Load[V],
) (loaded <-chan singleflight.Result, own *bool) {
	own = new(bool)
	return c.loads.DoChan(key, func() (any, error) {
		*own = true
		if value, ok := c.Known(key); ok { // by a load that has just ended
			return value, nil
		}
		c.mu.Lock()
		changes := c.changes
		c.mu.Unlock()
		since := c.now()
		value, good, err := load(context.WithoutCancel(ctx))
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil && c.changes == changes {
			c.known.Add(key, entry[V]{value: value, since: since, until: since.Add(good)})
		}
		return value, err
	}), own
}

// Put remembers a value that the caller knows.
func (c *Cache[V]) Put(key string, value V, good time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	now := c.now()
	c.known.Add(key, entry[V]{value: value, since: now, until: now.Add(good)})
}

// Forget has the next Get load the value; a load that is under way is not remembered.
func (c *Cache[V]) Forget(key string) {
	c.loads.Forget(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	c.known.Remove(key)
}
