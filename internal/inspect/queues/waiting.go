package queues

import (
	"context"
	"fmt"
	"strings"
	"time"

	"billhook/internal/console"
	"billhook/internal/inspect/bulk"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/store"
)

// Waiting counts what waits, by location. A number of the broker that is not known is nil, and null in JSON;
// 0 means that no message waits.
type Waiting struct {
	// Unacknowledged counts the messages in the broker: not delivered yet, in an attempt, or waiting for a slot
	// or for another attempt.
	Unacknowledged       *int64           `json:"unacknowledged"`
	OldestUnackedSeconds *console.Seconds `json:"oldest_unacked_seconds"`
	// Delayed counts the messages that are kept until they are due, or behind another of their ordering key.
	Delayed Count `json:"delayed"`
	Outbox  Count `json:"outbox"`
	// InReplay counts the dead letters whose replay has not ended.
	InReplay Count `json:"in_replay"`
	// ForApproval counts the operations that wait for a second person.
	ForApproval Count `json:"for_approval"`
}

func (w Waiting) String() string {
	var parts []string
	switch {
	case w.Unacknowledged == nil:
		parts = append(parts, "broker not counted")
	case *w.Unacknowledged > 0:
		parts = append(parts, fmt.Sprint(*w.Unacknowledged)+" in the broker"+forLong(w.OldestUnackedSeconds))
	}
	return strings.Join(append(parts, w.kept()...), ", ")
}

// Total is the sum of all counts; a number that is not known counts as 0.
func (w Waiting) Total() int64 {
	return w.inBroker() + w.Delayed.Count + w.Outbox.Count + w.InReplay.Count + w.ForApproval.Count
}

func (w Waiting) inBroker() int64 {
	if w.Unacknowledged == nil {
		return 0
	}
	return *w.Unacknowledged
}

func forLong(age *console.Seconds) string {
	if age == nil || *age == 0 {
		return ""
	}
	return " for " + age.String()
}

func (w Waiting) kept() (parts []string) {
	for _, p := range places {
		if n := p.of(&w); n.Count > 0 {
			parts = append(parts, n.String()+" "+p.where)
		}
	}
	return parts
}

var places = []struct {
	where, collection, field, value string
	of                              func(*Waiting) *Count
}{
	{"delayed", lane.Delayed.Entries(), "", "", func(w *Waiting) *Count { return &w.Delayed }},
	{"in the outbox", lane.Outbox.Entries(), "", "", func(w *Waiting) *Count { return &w.Outbox }},
	{"in replay", deadletter.Collection, "state", string(deadletter.Replayed), func(w *Waiting) *Count {
		return &w.InReplay
	}},
	{"for approval", audit.Collection, "progress", string(bulk.Waiting), func(w *Waiting) *Count {
		return &w.ForApproval
	}},
}

// counts counts what waits for a queue, or for all. It skips the places for which all, if given, has 0.
func (a Reads) counts(ctx context.Context, queue string, all *Waiting) (w Waiting, err error) {
	err = store.AtOnce(ctx, len(places), func(ctx context.Context, i int) (err error) {
		if p := places[i]; all == nil || p.of(all).Count > 0 {
			*p.of(&w), err = a.CountOf(ctx, p.collection, store.Equals("queue", queue, p.field, p.value))
		}
		return err
	})
	return w, err
}

func (w *Waiting) add(held backlog.Held, now time.Time) {
	total := held.Messages + w.inBroker()
	w.Unacknowledged = &total
	if held.Oldest.IsZero() {
		return
	}
	age := console.SecondsOf(now.Sub(held.Oldest))
	if w.OldestUnackedSeconds == nil || age > *w.OldestUnackedSeconds {
		w.OldestUnackedSeconds = &age
	}
}

// InBroker counts the messages that a queue has in the broker.
type InBroker struct {
	Queue    string `json:"queue"`
	Messages int64  `json:"messages"`
	// OldestSeconds is how long the oldest of them has waited; 0: it is not known.
	OldestSeconds console.Seconds `json:"oldest_seconds"`
}

// Elsewhere counts what waits and may be missing in the job log, because it has no record yet.
type Elsewhere struct {
	Waiting
	// InBroker lists the queues with messages in the broker; Unknown the running ones that were not counted.
	InBroker []InBroker `json:"in_broker"`
	Unknown  []string   `json:"unknown"`
}

// Notes lists what waits, a line for each location.
func (e Elsewhere) Notes() (notes []string) {
	for _, in := range e.InBroker {
		notes = append(notes, fmt.Sprint(in.Messages)+" in the broker, of "+in.Queue+forLong(&in.OldestSeconds))
	}
	notes = append(notes, e.kept()...)
	if len(e.Unknown) > 0 {
		notes = append(notes, "not counted in the broker: "+strings.Join(e.Unknown, ", "))
	}
	if notes == nil {
		return []string{"Nothing waits in the broker, delayed, in the outbox, in a replay or for approval."}
	}
	return notes
}

func (a Reads) waits(ctx context.Context, _ audit.Author, in OfQueue) (Elsewhere, error) {
	asked, err := a.Filtered(in.Queue)
	if err != nil {
		return Elsewhere{}, err
	}
	kept, err := a.counts(ctx, asked.ID, nil)
	if err != nil {
		return Elsewhere{}, err
	}
	held, _, err := a.InBroker(ctx)
	if err != nil {
		return Elsewhere{}, err
	}
	e := Elsewhere{Waiting: kept, InBroker: []InBroker{}, Unknown: []string{}}
	for _, q := range a.Catalog.Queues {
		one, known := held[q.ID]
		switch {
		case asked.ID != "" && q.ID != asked.ID:
		case known:
			e.add(one, a.Now())
			if one.Messages > 0 {
				in := InBroker{Queue: q.ID, Messages: one.Messages}
				if !one.Oldest.IsZero() {
					in.OldestSeconds = console.SecondsOf(a.Now().Sub(one.Oldest))
				}
				e.InBroker = append(e.InBroker, in)
			}
		case q.Enabled:
			e.Unknown = append(e.Unknown, q.ID)
		}
	}
	return e, nil
}

// Lane is an ordering key of a topic with messages that wait to be published.
type Lane struct {
	ID           string          `json:"id" show:"Lane"`
	DueAt        time.Time       `json:"due_at,omitzero" show:"Published next"`
	OldestAt     time.Time       `json:"oldest_at,omitzero" show:"Since"`
	WaitsSeconds console.Seconds `json:"waits_seconds" show:"Waits"`
}

// Lanes is a list of lanes, the longest waiting first, without a next page. More: a higher limit shows more.
type Lanes struct {
	console.List[Lane]
	More bool `json:"more"`
}

// Notes says that there is more.
func (l Lanes) Notes() []string {
	if l.More {
		return []string{"More wait than are shown."}
	}
	return nil
}

// ListLanes requests the lanes that have waited longest.
type ListLanes struct {
	Limit int `json:"-" query:"limit" default:"50" validate:"min=1,max=999" help:"how many ordering keys, at most"`
}

// ahead is how far the clock of another instance may be ahead of ours.
const ahead = time.Minute

func (a Reads) oldestLanes(ctx context.Context, limit int) ([]Lane, error) {
	now := a.Now().UTC()
	longest, err := lane.Longest(ctx, a.Store, lane.Outbox, now.Add(ahead), limit)
	found := make([]Lane, len(longest))
	for i, l := range longest {
		found[i] = Lane{
			ID: l.ID(), DueAt: l.DueAt, OldestAt: l.OldestAt, WaitsSeconds: console.SecondsOf(now.Sub(l.OldestAt)),
		}
	}
	return found, err
}
