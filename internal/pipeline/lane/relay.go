package lane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"billhook/internal/contract"
	"billhook/internal/platform/failpoint"
	"billhook/internal/platform/store"
)

// Relay publishes the lanes of one kind, each beginning with its oldest Kept. Several relays may run at once:
// they may publish a message twice, but the first copies of a lane's messages are in order.
type Relay struct {
	Of        Kind
	Store     store.Store
	Publisher contract.Publisher
	Now       func() time.Time
	// Unreadable returns the writes that make an unreadable entry a dead letter. queue is the lane's, or empty.
	Unreadable func(doc store.Document, queue string, now time.Time) []store.Write
	AtOnce     int // how many lanes Due relays at once; 0 is one
}

// putOffTime bounds how long it takes to postpone a lane, also after the end of the run.
const putOffTime = 5 * time.Second

// entries bounds how many entries of a lane are read at once, and removed in one commit.
const entries = 100

// Lane publishes a lane's due entries, oldest first, and removes them. After an error the other entries
// remain, due again after a wait that grows with the age of the oldest.
func (r *Relay) Lane(ctx context.Context, id string) (published int, err error) {
	for {
		// Read the lane before its entries: if an entry is added in between, the lane's version changes.
		doc, err := r.Store.Get(ctx, store.Key{Collection: r.Of.Lanes(), ID: id})
		if errors.Is(err, store.ErrNotFound) {
			return published, nil // another relay was faster
		}
		if err != nil {
			return published, fmt.Errorf("lane: read: %w", err)
		}
		l := laneOf(doc)
		page, err := r.Store.Query(ctx, l.entries(entries))
		if err != nil {
			return published, fmt.Errorf("lane: read entries: %w", err)
		}
		var done []store.Write
		var waits time.Time
		for _, doc := range page.Documents {
			var e Kept
			if err := store.Decode(doc.Fields, &e); err != nil {
				done = append(done, r.Unreadable(doc, l.QueueID, r.Now())...)
				done = append(done, store.Delete(doc.Key, doc.Version))
				continue
			}
			if e.DueAt.After(r.Now()) {
				waits = e.DueAt
				break
			}
			failpoint.Hit(failpoint.OutboxPublish)
			if _, err := r.Publisher.Publish(ctx, e.Topic, l.stamp(e.Message)); err != nil {
				err = fmt.Errorf("lane: entry %s: %w", doc.Key.ID, err)
				return published, errors.Join(err, r.later(ctx, l, e, done))
			}
			published++
			done = append(done, store.Delete(doc.Key, 0))
		}
		failpoint.Hit(failpoint.OutboxPublished)
		if page.Next.IsZero() || !waits.IsZero() {
			_, err = r.Store.Commit(ctx, append(done, l.leave(waits, r.Now())))
			if err == nil {
				failpoint.Hit(failpoint.OutboxRemoved)
				return published, nil
			}
			// Stale: another relay changed the lane, or it has a new entry. Read it again.
			if !errors.Is(err, store.ErrStale) {
				return published, fmt.Errorf("lane: leave: %w", err)
			}
		}
		if len(done) > 0 {
			if _, err = r.Store.Commit(ctx, done); err != nil {
				return published, fmt.Errorf("lane: remove entries: %w", err)
			}
		}
	}
}

// later removes the published entries, and postpones the lane unless it has changed meanwhile.
func (r *Relay) later(ctx context.Context, l Lane, oldest Kept, done []store.Write) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), putOffTime)
	defer cancel()
	next, now := l.head, r.Now()
	next.OldestAt = cmp.Or(oldest.DueAt, oldest.CreatedAt, l.OldestAt)
	next.DueAt = now.Add(Wait(now.Sub(next.OldestAt)))
	failpoint.Hit(failpoint.OutboxPutOff)
	_, err := r.Store.Commit(ctx, append(done, l.replace(next)))
	if errors.Is(err, store.ErrStale) && len(done) > 0 {
		_, err = r.Store.Commit(ctx, done)
	}
	if err != nil && !errors.Is(err, store.ErrStale) {
		return fmt.Errorf("lane: put off: %w", err)
	}
	failpoint.Hit(failpoint.OutboxLater)
	return nil
}

const (
	minWait = time.Second
	maxWait = 10 * time.Minute
)

// Wait is how long a lane waits after a failure: half the age of its oldest Kept, 1 s to 10 min.
func Wait(age time.Duration) time.Duration { return min(max(age/2, minWait), maxWait) }

// keptEmpty is how long a lane without entries is kept: longer than a broker keeps a message.
const keptEmpty = 31 * 24 * time.Hour

// leave returns the write of a lane whose due entries were published. later is when the next is due, if any.
func (l Lane) leave(later, now time.Time) store.Write {
	next := l.head
	switch {
	case !later.IsZero():
		next.DueAt, next.OldestAt = later, later
	case !l.Stays:
		return store.Delete(l.key, l.version)
	default:
		next.DueAt, next.OldestAt, next.ExpireAt = time.Time{}, time.Time{}, now.Add(keptEmpty)
	}
	return l.replace(next)
}

// Report is what a run over the due lanes did.
type Report struct {
	Lanes     int  `json:"lanes"`     // that were due
	Failed    int  `json:"failed"`    // lanes that could not be finished
	Published int  `json:"published"` // messages
	More      bool `json:"more"`      // the run was full or out of time; another may find more
}

// Due relays at most limit due lanes, the longest due first. Its error means that they could not be read. The
// failure of a lane is counted, and passed to failed, one call at a time.
func (r *Relay) Due(ctx context.Context, limit int, failed func(lane string, err error)) (Report, error) {
	isDue := &store.Due{Field: "due_at", Until: r.Now()}
	due, err := lanesOf(ctx, r.Store, r.Of, store.Query{Due: isDue, Limit: limit})
	if err != nil {
		return Report{}, err
	}
	report := Report{More: len(due) == limit}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(max(r.AtOnce, 1))
	for _, l := range due {
		group.Go(func() error {
			if ctx.Err() != nil {
				mu.Lock()
				defer mu.Unlock()
				report.More = true
				return nil
			}
			published, err := r.Lane(ctx, l.ID())
			mu.Lock()
			defer mu.Unlock()
			report.Lanes++
			report.Published += published
			if err != nil {
				report.Failed++
				failed(l.ID(), err)
			}
			return nil
		})
	}
	err = group.Wait() // always nil, because the failure of a lane is counted
	return report, err
}

// Oldest is the age of the message that has waited longest, due or not; 0 if no message waits.
func (r *Relay) Oldest(ctx context.Context) (time.Duration, error) {
	now := r.Now()
	longest, err := Longest(ctx, r.Store, r.Of, now, 1)
	if err != nil || len(longest) == 0 {
		return 0, err
	}
	return now.Sub(longest[0].OldestAt), nil
}
