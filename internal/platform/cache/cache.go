// Package cache owns the values that a process keeps in memory: how many and for how long. Concurrent callers
// that miss the same value share one load. It keeps no errors, and does not know what its values mean.
package cache

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/singleflight"
)

// Forever is the lifetime of a value that is only evicted to make room for others.
const Forever = time.Duration(math.MaxInt64)

// Load loads a value, and returns how long it is valid; "there is none" is a value, too. Other callers may
// wait for it, so it does not end with its caller's context and must bound its own time.
type Load[V any] func(ctx context.Context) (value V, good time.Duration, err error)

// Cache keeps values by key. It is safe for concurrent use.
type Cache[V any] struct {
	now func() time.Time

	loads singleflight.Group
	mu    sync.Mutex
	known *simplelru.LRU[string, entry[V]]
	// changes counts calls of Put and Forget: a value that was loading meanwhile may be outdated.
	changes int
}

type entry[V any] struct {
	value        V
	since, until time.Time
}

// New returns a cache that holds the most recently used values: up to most, and at least one.
func New[V any](most int, now func() time.Time) *Cache[V] {
	known, _ := simplelru.NewLRU[string, entry[V]](max(1, most), nil) // its only error is a size below 1
	return &Cache[V]{now: now, known: known}
}

// Known returns a valid value, without loading it.
func (c *Cache[V]) Known(key string) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, _ := c.known.Get(key)
	if now := c.now(); now.Before(e.since) || !now.Before(e.until) {
		return value, false
	}
	return e.value, true
}

// Get returns a valid value, and loads it if there is none. The error comes from the load or from ctx.
func (c *Cache[V]) Get(ctx context.Context, key string, load Load[V]) (V, error) {
	if value, ok := c.Known(key); ok {
		return value, nil
	}
	loaded, own := c.load(ctx, key, load)
	for again := true; ; again = false {
		select {
		case result := <-loaded:
			if result.Err != nil && !*own && again && ctx.Err() == nil {
				// Another caller's load may have failed before this call.
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

// load joins the running load of the key, or begins one and sets own to true.
func (c *Cache[V]) load(ctx context.Context, key string, load Load[V]) (<-chan singleflight.Result, *bool) {
	own := new(bool)
	return c.loads.DoChan(key, func() (any, error) {
		*own = true
		if value, ok := c.Known(key); ok { // a load has just ended
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

// Put stores a value that the caller knows.
func (c *Cache[V]) Put(key string, value V, good time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	now := c.now()
	c.known.Add(key, entry[V]{value: value, since: now, until: now.Add(good)})
}

// Forget removes a value, and makes the cache ignore the result of a running load.
func (c *Cache[V]) Forget(key string) {
	c.loads.Forget(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	c.known.Remove(key)
}
