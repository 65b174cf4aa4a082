package api

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"billhook/internal/platform/store"
)

// HeaderSkipped is the header that says how many unreadable documents the lists of an answer leave out, and the first keys.
const HeaderSkipped = "Billhook-Skipped"

const maxSkipped = 10

// Skipped collects the documents that lists have left out. It is safe for concurrent use.
type Skipped struct {
	mu    sync.Mutex
	count int
	keys  []string
}

type skippedKey struct{}

// CollectSkipped returns a context whose queries tell the collector.
func CollectSkipped(ctx context.Context) (context.Context, *Skipped) {
	s := &Skipped{}
	return context.WithValue(ctx, skippedKey{}, s), s
}

// Skip tells the collector of a context, if it has one, of a document that was left out.
func Skip(ctx context.Context, key store.Key) {
	s, ok := ctx.Value(skippedKey{}).(*Skipped)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count++; len(s.keys) < maxSkipped {
		s.keys = append(s.keys, key.Collection+"/"+url.PathEscape(key.ID))
	}
}

// String is what the header says; empty: nothing was left out.
func (s *Skipped) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == 0 {
		return ""
	}
	return fmt.Sprintf("%d: %s", s.count, strings.Join(s.keys, ", "))
}
