package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"billhook/internal/contract"
	"billhook/internal/failpoint"
	"billhook/internal/store"
)

// Store is what a relay needs of the database; see the store package for the errors.
type Store interface {
	Get(ctx context.Context, key store.Key) (store.Document, error)
	Commit(ctx context.Context, writes []store.Write) ([]store.Version, error)
	Query(ctx context.Context, query store.Query) (store.Page, error)
}

// Publisher puts a message on a topic. It returns without an error only after the
// broker has confirmed; after an error the message may or may not be there.
type Publisher interface {
	Publish(ctx context.Context, topic string, m contract.Message) (messageID string, err error)
}

// Relay publishes what effects have emitted. Any number of relays may run at once:
// each publishes a lane from its oldest entry on, so that whatever they repeat, the
// first of each message comes in order.
type Relay struct {
	Store     Store
	Publisher Publisher
	Now       func() time.Time
	// Entries and Lanes are the collections of something else that is to be published in
	// order and in time; empty: those of the outbox. Beyond what the outbox has, an entry
	// may say by due_at when it is due, which it and what is behind it wait for; and a
	// lane that stays is left without entries and without being due, newest being the
	// entry that was published last.
	Entries, Lanes string
	// AtOnce is how many lanes Due relays side by side: they do not wait for each other, and
	// what many messages wait for may be due at one moment. 0 is one.
	AtOnce int
	// Stamp, if set, changes a message on its way out by what its lane was when read.
	Stamp func(lane store.Document, m *contract.Message)
}

func (r *Relay) lanes() string { return cmp.Or(r.Lanes, KeysCollection) }

// lastWord is how long the end of a failed run may take, also where its time is up.
const lastWord = 5 * time.Second

// entries is how many entries of a lane are read at once: their removal, with that of
// the lane, is one commit.
const entries = 100

// Lane publishes the entries of one lane, oldest first, and removes them. It returns
// how many it published. An entry that is not due ends it; the lane is then due when
// that entry is. On an error the rest stay, due again after a wait that grows
// with the age of the oldest: of another lane nothing waits.
func (r *Relay) Lane(ctx context.Context, lane string) (published int, err error) {
	key := store.Key{Collection: r.lanes(), ID: lane}
	last := ""
	for {
		// The lane before its entries: what is added in between changes its version.
		head, err := r.Store.Get(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			return published, nil // another relay was faster
		}
		if err != nil {
			return published, fmt.Errorf("outbox: read lane: %w", err)
		}
		page, err := r.Store.Query(ctx, store.Query{Collection: cmp.Or(r.Entries, Collection), IDPrefix: lane + "-", Limit: entries})
		if err != nil {
			return published, fmt.Errorf("outbox: read entries: %w", err)
		}
		var done []store.Write
		var waits time.Time
		for _, entry := range page.Documents {
			if due, ok := entry.Fields["due_at"].(time.Time); ok && due.After(r.Now()) {
				waits = due
				break
			}
			if err = r.publish(ctx, head, entry); err != nil {
				break
			}
			published++
			last = entry.Key.ID
			done = append(done, store.Delete(entry.Key, 0))
		}
		if err != nil {
			return published, errors.Join(err, r.later(ctx, head, page.Documents[len(done)], done))
		}
		failpoint.Hit(failpoint.OutboxPublished)
		if page.Next == "" || !waits.IsZero() {
			_, err = r.Store.Commit(ctx, append(done, r.leave(head, last, waits)))
			if err == nil {
				failpoint.Hit(failpoint.OutboxRemoved)
				return published, nil
			}
			// Stale: the lane was relayed by another, or has a new entry: look again.
			if !errors.Is(err, store.ErrStale) {
				return published, fmt.Errorf("outbox: remove lane: %w", err)
			}
		}
		if len(done) > 0 {
			if _, err = r.Store.Commit(ctx, done); err != nil {
				return published, fmt.Errorf("outbox: remove entries: %w", err)
			}
		}
	}
}

// forgotten is when a lane that stays is of no use to anybody: a broker keeps nothing
// longer.
const forgotten = 31 * 24 * time.Hour

// leave is what becomes of a lane whose entries are published, but for those that are
// due later.
func (r *Relay) leave(head store.Document, last string, later time.Time) store.Write {
	stays, _ := head.Fields["stays"].(bool)
	if !stays && later.IsZero() {
		return store.Delete(head.Key, head.Version)
	}
	fields := maps.Clone(head.Fields)
	if later.IsZero() {
		delete(fields, "due_at")
		delete(fields, "oldest_at")
		if last != "" {
			fields["newest"] = last
		}
		fields["expire_at"] = r.Now().Add(forgotten).UTC().Truncate(time.Microsecond)
	} else {
		fields["due_at"], fields["oldest_at"] = later, later
	}
	return store.Update(head.Key, head.Version, fields)
}

func (r *Relay) publish(ctx context.Context, lane, entry store.Document) error {
	topic, _ := entry.Fields["topic"].(string)
	fields, _ := entry.Fields["message"].(map[string]any)
	message, ok := contract.MessageOf(fields)
	if !ok || topic == "" {
		return fmt.Errorf("outbox: entry %s is not readable", entry.Key.ID)
	}
	if r.Stamp != nil {
		r.Stamp(lane, &message)
	}
	failpoint.Hit(failpoint.OutboxPublish)
	if _, err := r.Publisher.Publish(ctx, topic, message); err != nil {
		return fmt.Errorf("outbox: publish entry %s: %w", entry.Key.ID, err)
	}
	return nil
}

// later removes what was published and has the lane due again after a wait. Where the
// lane has changed, that says when it is due.
func (r *Relay) later(ctx context.Context, head, oldest store.Document, done []store.Write) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWord)
	defer cancel()
	now := r.Now()
	since, timed := oldest.Fields["due_at"].(time.Time)
	if !timed {
		since, _ = oldest.Fields["created_at"].(time.Time)
	}
	next := maps.Clone(head.Fields)
	next["due_at"], next["oldest_at"] = now.Add(Wait(now.Sub(since))), since
	failpoint.Hit(failpoint.OutboxPutOff)
	_, err := r.Store.Commit(ctx, append(done, store.Update(head.Key, head.Version, next)))
	if errors.Is(err, store.ErrStale) && len(done) > 0 {
		_, err = r.Store.Commit(ctx, done)
	}
	if err != nil && !errors.Is(err, store.ErrStale) {
		return fmt.Errorf("outbox: put off lane: %w", err)
	}
	failpoint.Hit(failpoint.OutboxLater)
	return nil
}

// The bounds of Wait.
const (
	minWait = time.Second
	maxWait = 10 * time.Minute
)

// Wait is how long a lane waits after a failure, by the age of its oldest entry: half
// of it, one second at least and ten minutes at most.
func Wait(age time.Duration) time.Duration { return min(max(age/2, minWait), maxWait) }

// Report is what a run over the due lanes did.
type Report struct {
	// Lanes were due and looked at, Failed of them could not be finished.
	Lanes  int `json:"lanes"`
	Failed int `json:"failed"`
	// Published messages.
	Published int `json:"published"`
	// More: the run was full, or out of time; another would find more.
	More bool `json:"more"`
}

// Due relays the lanes that are due, the longest due first, at most limit. Its cost
// depends on them alone. The error is that of reading what is due; what failed of a
// lane is counted, left for a later run, and handed to failed, one at a time.
func (r *Relay) Due(ctx context.Context, limit int, failed func(lane string, err error)) (Report, error) {
	page, err := r.Store.Query(ctx, store.Query{Collection: r.lanes(), Due: &store.Due{Field: "due_at", Until: r.Now()}, Limit: limit})
	if err != nil {
		return Report{}, fmt.Errorf("outbox: read what is due: %w", err)
	}
	report := Report{More: len(page.Documents) == limit}
	var mu sync.Mutex
	var lanes errgroup.Group
	lanes.SetLimit(max(r.AtOnce, 1))
	for _, lane := range page.Documents {
		lanes.Go(func() error {
			if ctx.Err() != nil {
				mu.Lock()
				defer mu.Unlock()
				report.More = true
				return nil
			}
			published, err := r.Lane(ctx, lane.Key.ID)
			mu.Lock()
			defer mu.Unlock()
			report.Lanes++
			report.Published += published
			if err != nil {
				report.Failed++
				failed(lane.Key.ID, err)
			}
			return nil
		})
	}
	err = lanes.Wait() // always nil: what failed of a lane is counted
	return report, err
}

// Oldest is the age of what has waited longest to be published, due or not; 0 if
// nothing waits. It is one read.
func (r *Relay) Oldest(ctx context.Context) (time.Duration, error) {
	now := r.Now()
	page, err := r.Store.Query(ctx, store.Query{Collection: r.lanes(), Due: &store.Due{Field: "oldest_at", Until: now}, Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("outbox: read the oldest: %w", err)
	}
	if len(page.Documents) == 0 {
		return 0, nil
	}
	since, _ := page.Documents[0].Fields["oldest_at"].(time.Time)
	return now.Sub(since), nil
}
