package dryrun

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// Question asks what a worker would do otherwise than it was done.
type Question struct {
	Queue string // an id or alias
	// Since is the time since which dead letters were kept that are compared: at most MaxSpan ago.
	// What waits is compared however long it has waited.
	Since time.Time
	// Files replace those of the catalog.
	Files map[string]string
	// Page is the Next of the answer before; empty: the first.
	Page string
	// Limit is how many messages are tried, 1 to store.MaxPage, and Until the time at which a page
	// ends with what it has.
	Limit int
	Until time.Time
}

// MaxSpan is how long ago the dead letters may have been kept.
const MaxSpan = 31 * 24 * time.Hour

// Difference is a message of which something else would become than was done.
type Difference struct {
	Was   Done  `json:"was"`
	Would Trial `json:"would"`
}

// Done is what was done of a message.
type Done struct {
	// Outcome is dead_lettered, retry, or waits: nothing was done yet.
	Outcome retry.Outcome `json:"outcome"`
	Reason  string        `json:"reason"`
	At      time.Time     `json:"at"`

	// detail is that of a dead letter.
	detail string
}

// Waits is the outcome of a message that waits for its first attempt.
const Waits retry.Outcome = "waits"

// Compared is one page of an answer.
type Compared struct {
	Items []Difference `json:"items"`
	// Tried is how many messages of the page were tried, and Same of how many the same would become.
	// Of Undecided another service decides, which was not called. Unkept had no payload to try.
	Tried     int `json:"tried"`
	Same      int `json:"same"`
	Undecided int `json:"undecided"`
	Unkept    int `json:"unkept"`
	// Next is the page of the next request; empty at the end.
	Next string `json:"next"`
}

// buckets is how many queries a page makes.
const buckets = 48

// place is where a page begins: in a stage, for dead letters in an hour, behind an id.
type place struct {
	stage    Kind
	hour, id string
}

func (p place) String() string { return string(p.stage) + "~" + p.hour + "~" + p.id }

const hourly = "2006-01-02T15"

// begin reads the place of a page.
func (q Question) begin(now time.Time) (place, error) {
	if q.Page == "" {
		return place{stage: DeadLetter, hour: deadletter.Hour(now)}, nil
	}
	stage, rest, _ := strings.Cut(q.Page, "~")
	hour, id, ok := strings.Cut(rest, "~")
	p := place{Kind(stage), hour, id}
	at, err := time.Parse(hourly, hour)
	switch {
	case !ok, !slices.Contains([]Kind{DeadLetter, Delayed, Outbox}, p.stage):
		return place{}, ErrPlace
	case p.stage == DeadLetter && (err != nil || now.Sub(at) > MaxSpan+2*time.Hour || at.After(now.Add(time.Hour))):
		return place{}, ErrPlace
	case id != "" && store.CheckKey(store.Key{Collection: deadletter.Collection, ID: id}) != nil:
		return place{}, ErrPlace
	}
	return p, nil
}

// after is the place behind the last of a query's documents; over: there is none.
func (p place) after(next string, since time.Time) (place, bool) {
	if next != "" {
		p.id = next
		return p, false
	}
	at, _ := time.Parse(hourly, p.hour)
	switch {
	case p.stage == DeadLetter && p.hour > deadletter.Hour(since):
		return place{DeadLetter, deadletter.Hour(at.Add(-time.Hour)), ""}, false
	case p.stage == DeadLetter:
		return place{stage: Delayed}, false
	case p.stage == Delayed:
		return place{stage: Outbox}, false
	}
	return place{}, true
}

// Compare tries a page of a queue's open dead letters, the newest hour first, and then of what
// waits: delayed, parked, and in the outbox. It returns what differs.
func (d *Desk) Compare(ctx context.Context, asked Question) (Compared, error) {
	all := Compared{Items: []Difference{}}
	worker, err := d.Worker(asked.Files)
	if err != nil {
		return all, err
	}
	q, ok := worker.Queue(asked.Queue)
	if !ok || !q.Enabled {
		return all, ErrNoQueue
	}
	now := d.Now()
	if oldest := now.Add(-MaxSpan); asked.Since.Before(oldest) {
		asked.Since = oldest
	}
	at, err := asked.begin(now)
	if err != nil {
		return all, err
	}
	comparing := comparison{desk: d, worker: worker, queue: q, since: asked.Since, all: &all}
	for range buckets {
		page, err := d.Store.Query(ctx, at.query(q, asked.Limit-all.Tried-all.Unkept))
		if err != nil {
			return all, fmt.Errorf("dryrun: read what is kept: %w", err)
		}
		for i, doc := range page.Documents {
			if err := comparing.add(ctx, at.stage, doc); err != nil {
				return all, err
			}
			more := i < len(page.Documents)-1 || page.Next != ""
			if full := all.Tried+all.Unkept >= asked.Limit || !d.Now().Before(asked.Until); full && more {
				at.id = doc.Key.ID
				all.Next = at.String()
				return all, nil
			}
		}
		over := false
		if at, over = at.after(page.Next, asked.Since); over {
			return all, nil
		}
		if all.Tried+all.Unkept >= asked.Limit || !d.Now().Before(asked.Until) {
			break
		}
	}
	all.Next = at.String()
	return all, nil
}

// query finds documents of a place.
func (p place) query(q catalog.Queue, limit int) store.Query {
	query := store.Query{After: p.id, Limit: limit}
	switch p.stage {
	case DeadLetter:
		query.Collection = deadletter.Collection
		query.Equal = map[string]any{"queue": q.ID, "state": string(deadletter.Open), "hour": p.hour}
	case Delayed:
		query.Collection, query.Equal = lane.Delayed.Entries(), map[string]any{"topic": q.Topic()}
	default:
		query.Collection, query.Equal = lane.Outbox.Entries(), map[string]any{"topic": q.Topic()}
	}
	return query
}

// comparison is a page of a queue's kept messages under way.
type comparison struct {
	desk   *Desk
	worker Worker
	queue  catalog.Queue
	since  time.Time
	all    *Compared
}

// add tries one kept message, and adds what becomes of it.
func (c comparison) add(ctx context.Context, stage Kind, doc store.Document) error {
	m, was, err := read(c.queue, stage, doc)
	switch {
	case err != nil:
		return err
	case stage == DeadLetter && was.At.Before(c.since), !c.queue.Takes(m.Attributes):
		return nil
	case len(m.Data) == 0:
		c.all.Unkept++
		return nil
	}
	t, err := c.desk.try(ctx, c.worker, m)
	if err != nil {
		return err
	}
	if stage == Delayed && t.Recorded != nil && t.Recorded.Status == dedupe.Failed {
		was.Outcome, was.Reason = retry.Retry, t.Recorded.Reason
	}
	c.all.Tried++
	switch same, known := was.same(t); {
	case !known:
		c.all.Undecided++
	case same:
		c.all.Same++
	default:
		c.all.Items = append(c.all.Items, Difference{Was: was, Would: t})
	}
	return nil
}

// read reads a kept message, and what was done of it as far as the document says.
func read(q catalog.Queue, stage Kind, doc store.Document) (Message, Done, error) {
	if stage == DeadLetter {
		item, err := deadletter.ItemOf(doc)
		return messageOfLetter(item, q), Done{Outcome: retry.DeadLettered, Reason: item.Reason, At: item.Kept, detail: item.Detail}, err
	}
	kept, err := lane.KeptOf(doc)
	m := Message{Message: kept.Message, Queue: q.ID, ID: "trial", PublishedAt: kept.CreatedAt, From: From{stage, doc.Key.ID}}
	return m, Done{Outcome: Waits, At: cmp.Or(kept.CreatedAt, kept.DueAt)}, err
}

// unhandled are the reasons of dead letters that no handler has seen.
var unhandled = []string{"contract_broken", "contract_mismatch", "body_malformed", "attributes_invalid", "event_type_unknown"}

// same reports whether the same would be done again. Where another service decides that, it is not
// known.
func (was Done) same(t Trial) (same, known bool) {
	switch {
	case was.Outcome == Waits: // to be handled, and nothing else
		return slices.Contains([]retry.Outcome{retry.Processed, retry.Superseded, retry.Duplicate, Calls}, t.Outcome), true
	case t.Outcome == Calls:
		return false, slices.Contains(unhandled, was.Reason)
	case was.Outcome == retry.DeadLettered && t.Outcome == retry.Retry:
		// A replay has all its attempts, and would use them up again.
		return retry.IsExhausted(was.detail) && was.Reason == t.Reason, true
	default:
		return was.Outcome == t.Outcome && was.Reason == t.Reason, true
	}
}
