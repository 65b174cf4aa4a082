package ops

import (
	"context"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"billhook/catalog"
	"billhook/internal/deadletter"
	"billhook/internal/dedupe"
	"billhook/internal/lane"
	"billhook/internal/serve"
	"billhook/internal/store"
)

// Queues is where every queue of the catalog stands, and the outbox.
type Queues struct {
	Items  []Queue `json:"items"`
	Next   string  `json:"next"` // always empty: there are few
	Outbox Outbox  `json:"outbox"`
}

// Queue is where one queue stands.
type Queue struct {
	ID      string `json:"id"`
	Alias   string `json:"alias"`
	Enabled bool   `json:"enabled"`
	// Events are the records that are kept, by status.
	Events      map[dedupe.Status]Count `json:"events"`
	DeadLetters Depth                   `json:"dead_letters"`
}

// Count is a number of documents. More: there are more than that; nobody has counted on.
type Count struct {
	Count int64 `json:"count"`
	More  bool  `json:"more"`
}

// Depth is how many dead letters of a queue nobody has dealt with, and since when.
type Depth struct {
	Count
	AlertAbove int `json:"alert_above"`
	// OldestAt is since when the oldest waits, OldestSeconds for how long.
	OldestAt      *time.Time `json:"oldest_at,omitempty"`
	OldestSeconds int64      `json:"oldest_seconds"`
	// OldestAlertSeconds is how long it may; 0 is for ever.
	OldestAlertSeconds int64 `json:"oldest_alert_seconds"`
	// Alert reports whether there are more than AlertAbove, or the oldest waits for
	// longer than it may.
	Alert bool `json:"alert"`
	// Dropped: the queue keeps no dead letters.
	Dropped bool `json:"dropped"`
}

// Outbox is what waits to be published.
type Outbox struct {
	Lanes Count `json:"lanes"`
	// OldestAt is since when the oldest waits, OldestSeconds for how long.
	OldestAt      *time.Time `json:"oldest_at,omitempty"`
	OldestSeconds int64      `json:"oldest_seconds"`
}

const (
	// countTo is where counting ends: a database charges for what it counts.
	countTo = deadletter.CountTo
	// together is how many of its counting queries a request has out at once.
	together = 8
)

func (a *API) queues(w http.ResponseWriter, r *http.Request) {
	if read(r).refused(w) {
		return
	}
	answer := Queues{Items: make([]Queue, len(a.Catalog.Queues))}
	counts := make([]Count, len(a.Catalog.Queues)*len(statuses))
	group, ctx := errgroup.WithContext(r.Context())
	group.SetLimit(together)
	for i, q := range a.Catalog.Queues {
		answer.Items[i] = Queue{ID: q.ID, Alias: q.Alias, Enabled: q.Enabled, Events: map[dedupe.Status]Count{}}
		for j, status := range statuses {
			group.Go(func() (err error) {
				counts[i*len(statuses)+j], err = a.count(ctx, dedupe.Collection, map[string]any{"queue": q.ID, "status": string(status)}, countTo)
				return err
			})
		}
		group.Go(func() (err error) {
			answer.Items[i].DeadLetters, err = a.depth(ctx, q)
			return err
		})
	}
	group.Go(func() (err error) {
		answer.Outbox, err = a.waiting(ctx)
		return err
	})
	if err := group.Wait(); err != nil {
		a.down(w, r, err)
		return
	}
	for i, count := range counts {
		answer.Items[i/len(statuses)].Events[statuses[i%len(statuses)]] = count
	}
	serve.WriteJSON(w, http.StatusOK, answer)
}

// count has the database count, as far as most.
func (a *API) count(ctx context.Context, collection string, equal map[string]any, most int) (Count, error) {
	page, err := a.Store.Query(ctx, store.Query{Collection: collection, Equal: equal, Count: true, Limit: most + 1})
	return Count{Count: min(page.Count, int64(most)), More: page.Count > int64(most)}, err
}

func (a *API) depth(ctx context.Context, q catalog.Queue) (Depth, error) {
	if q.DeadLetter.Drop {
		return Depth{Dropped: true}, nil
	}
	now := a.Now()
	standing, err := deadletter.Look(ctx, a.Store, q, now)
	if err != nil {
		return Depth{}, err
	}
	age, longest := standing.Age(now), q.DeadLetter.OldestAlert
	return Depth{
		Count: Count{Count: standing.Open, More: standing.More}, AlertAbove: q.DeadLetter.AlertAbove,
		OldestAt: moment(standing.Oldest), OldestSeconds: int64(age.Seconds()), OldestAlertSeconds: int64(longest.Seconds()),
		Alert: standing.Open > int64(q.DeadLetter.AlertAbove) || (longest > 0 && age > longest),
	}, nil
}

func (a *API) waiting(ctx context.Context) (Outbox, error) {
	lanes, err := a.count(ctx, lane.Outbox.Lanes(), nil, countTo)
	if err != nil || lanes.Count == 0 {
		return Outbox{Lanes: lanes}, err
	}
	oldest, err := a.oldestLanes(ctx, 1)
	if err != nil || len(oldest) == 0 {
		return Outbox{Lanes: lanes}, err
	}
	return Outbox{Lanes: lanes, OldestAt: oldest[0].OldestAt, OldestSeconds: oldest[0].WaitsSeconds}, nil
}

// Lane is an ordering key of a topic, with messages that wait to be published.
type Lane struct {
	ID string `json:"id"`
	// DueAt is when the relay looks at it next.
	DueAt *time.Time `json:"due_at,omitempty"`
	// OldestAt is since when its oldest message waits, WaitsSeconds for how long.
	OldestAt     *time.Time `json:"oldest_at,omitempty"`
	WaitsSeconds int64      `json:"waits_seconds"`
}

// Lanes is a list of lanes, the longest waiting first. More: there are more.
type Lanes struct {
	Items []Lane `json:"items"`
	Next  string `json:"next"` // always empty: who waits less long is asked for with a higher limit
	More  bool   `json:"more"`
}

// The bounds of a list of lanes.
const (
	lanes    = 50
	maxLanes = store.MaxPage - 1
)

func (a *API) outbox(w http.ResponseWriter, r *http.Request) {
	asked := read(r, "limit")
	limit := asked.limit(lanes, maxLanes)
	if asked.refused(w) {
		return
	}
	found, err := a.oldestLanes(r.Context(), limit+1)
	if err != nil {
		a.down(w, r, err)
		return
	}
	serve.WriteJSON(w, http.StatusOK, Lanes{Items: found[:min(len(found), limit)], More: len(found) > limit})
}

func (a *API) oldestLanes(ctx context.Context, limit int) ([]Lane, error) {
	now := a.Now().UTC()
	longest, err := lane.Longest(ctx, a.Store, lane.Outbox, now.Add(ahead), limit)
	found := make([]Lane, len(longest))
	for i, l := range longest {
		found[i] = Lane{ID: l.ID(), DueAt: moment(l.DueAt), OldestAt: moment(l.OldestAt), WaitsSeconds: max(0, int64(now.Sub(l.OldestAt).Seconds()))}
	}
	return found, err
}
