// Package queues shows the state of each queue: waiting messages by location, the outcomes of deliveries,
// open dead letters, breakers and pauses, and the worst of these with its cause. It changes nothing.
package queues

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"billhook/catalog"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/inspect/events"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/pause"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/store"
)

// Reads reads the state of queues, on top of the reads for events.
type Reads struct{ events.Reads }

// Queues is the state of all queues of the catalog, on one page, and of the outbox.
type Queues struct {
	console.List[Queue]
	Outbox Outbox `json:"outbox"`
	// Books is the verdict on the ledger: of the running verification if it has findings, else of the last.
	Books seal.Verdict `json:"books"`
}

// Notes says how many queues need a person, and what else does.
func (q Queues) Notes() []string {
	need, asked := 0, int64(0)
	for _, one := range q.Items {
		asked += one.Waiting.ForApproval.Count
		if one.Alerts() {
			need++
		}
	}
	notes := []string{fmt.Sprintf("%d of %d queues need you.", need, len(q.Items))}
	if asked > 0 {
		notes = append(notes, fmt.Sprintf("Operations that wait for a second person: %d.", asked))
	}
	if q.Books.Found > 0 {
		notes = append(notes, fmt.Sprintf("THE BOOKS DO NOT VERIFY: %d findings in the verification of %s. See: "+
			"billhook ledger verify", q.Books.Found, console.Stamp(q.Books.BegunAt)))
	}
	if q.Outbox.Lanes.Count == 0 {
		return append(notes, "The outbox is empty.")
	}
	return append(notes, fmt.Sprintf("The outbox holds messages of %s keys, the oldest for %s.", q.Outbox.Lanes,
		q.Outbox.OldestSeconds))
}

// Queue is the state of one queue.
type Queue struct {
	ID string `json:"id" show:"Queue" link:"queues"`
	// State is the worst of the queue's conditions, and Cause lists all of them.
	State   QueueState   `json:"state" show:"State"`
	Cause   string       `json:"cause,omitempty" show:"Cause,detail"`
	Alias   string       `json:"alias" show:"Alias,less"`
	Enabled bool         `json:"enabled"`
	Paused  *QueuePaused `json:"paused,omitempty"`
	// Kept is about the messages of a queue that does not run; nil: it runs, or was not counted.
	Kept        *Kept   `json:"kept,omitempty"`
	DeadLetters Depth   `json:"dead_letters" show:"Dead letters"`
	Waiting     Waiting `json:"waiting" show:"Waiting"`
	// Backlog counts the messages in the broker, with their bounds; nil: the number is not known.
	Backlog  *Backlog            `json:"backlog,omitempty"`
	LastHour Rate                `json:"last_hour" show:"Last hour"`
	Breakers []rates.OpenBreaker `json:"breakers"`
}

// Notes says the cause of the queue's state, if there is one.
func (q Queue) Notes() []string {
	if q.Cause == "" {
		return nil
	}
	return []string{q.ID + ": " + q.Cause}
}

// Backlog is the last count of the messages in the broker, with its bounds. A bound of 0 is none.
type Backlog struct {
	Messages   int64          `json:"messages"`
	CountedAt  time.Time      `json:"counted_at"`
	AlertAbove int            `json:"alert_above"`
	Max        int            `json:"max"`
	OnFull     catalog.OnFull `json:"on_full"`
}

// Kept says how long the broker keeps the messages of a queue that does not run.
type Kept struct {
	// RetentionSeconds is how long the broker keeps a message, counted from its publishing.
	RetentionSeconds console.Seconds `json:"retention_seconds"`
	// DeletedAt is when the broker deletes the oldest of them; zero: none waits, or its age is not known.
	DeletedAt time.Time `json:"deleted_at,omitzero"`
}

func keptOf(q catalog.Queue, held backlog.Held) *Kept {
	if q.Enabled {
		return nil
	}
	kept := &Kept{RetentionSeconds: console.SecondsOf(q.MessageRetention)}
	if held.Messages > 0 && !held.Oldest.IsZero() {
		kept.DeletedAt = held.Oldest.Add(q.MessageRetention)
	}
	return kept
}

// Count is a number of documents. More: there are more, and counting stopped at this number.
type Count struct {
	Count int64 `json:"count"`
	More  bool  `json:"more"`
}

func (c Count) String() string {
	if c.More {
		return "over " + strconv.FormatInt(c.Count, 10)
	}
	return strconv.FormatInt(c.Count, 10)
}

// Depth is how many dead letters of a queue are open, and since when.
type Depth struct {
	Count
	AlertAbove    int             `json:"alert_above"`
	OldestAt      time.Time       `json:"oldest_at,omitzero"`
	OldestSeconds console.Seconds `json:"oldest_seconds"`
	// OldestAlertSeconds is how long a dead letter may be open without an alert; 0: for ever.
	OldestAlertSeconds console.Seconds `json:"oldest_alert_seconds"`
	Alert              bool            `json:"alert"`
	Dropped            bool            `json:"dropped"`
}

func (d Depth) String() string {
	switch {
	case d.Dropped:
		return "none kept"
	case d.Count.Count == 0:
		return "0"
	default:
		return d.Count.String() + ", the oldest for " + d.OldestSeconds.String()
	}
}

// Outbox counts the lanes with messages that wait to be published.
type Outbox struct {
	Lanes         Count           `json:"lanes"`
	OldestAt      time.Time       `json:"oldest_at,omitzero"`
	OldestSeconds console.Seconds `json:"oldest_seconds"`
}

func into[T any](ctx context.Context, place *T, find func(context.Context) (T, error)) func() error {
	return func() (err error) {
		*place, err = find(ctx)
		return err
	}
}

func (a Reads) queuesAndNow(requested context.Context) (Queues, rates.Now, error) {
	answer := Queues{List: console.ListOf(make([]Queue, len(a.Catalog.Queues)), store.Cursor{})}
	group, ctx := errgroup.WithContext(requested)
	group.SetLimit(store.ReadsAtOnce)
	for i, q := range a.Catalog.Queues {
		answer.Items[i] = Queue{ID: q.ID, Alias: q.Alias, Enabled: q.Enabled}
		group.Go(into(ctx, &answer.Items[i].DeadLetters, func(ctx context.Context) (Depth, error) {
			return a.depth(ctx, q)
		}))
	}
	group.Go(into(ctx, &answer.Outbox, a.waiting))
	group.Go(func() error {
		standing, err := seal.Standing(ctx, a.Store)
		answer.Books = standing.Worst()
		return err
	})
	var held map[string]backlog.Held
	var counted time.Time
	group.Go(func() (err error) {
		held, counted, err = a.InBroker(ctx)
		return err
	})
	var all Waiting
	group.Go(into(ctx, &all, func(ctx context.Context) (Waiting, error) { return a.counts(ctx, "", nil) }))
	var now rates.Now
	group.Go(into(ctx, &now, func(ctx context.Context) (rates.Now, error) {
		return rates.Recent(ctx, a.Store, a.Now())
	}))
	var paused map[string]*QueuePaused
	group.Go(into(ctx, &paused, a.paused))
	if err := group.Wait(); err != nil {
		return Queues{}, rates.Now{}, err
	}
	err := store.AtOnce(requested, len(answer.Items), func(ctx context.Context, i int) (err error) {
		answer.Items[i].Waiting, err = a.counts(ctx, answer.Items[i].ID, &all)
		return err
	})
	if err != nil {
		return Queues{}, rates.Now{}, err
	}
	for i, q := range a.Catalog.Queues {
		item := &answer.Items[i]
		item.Paused, item.LastHour = paused[q.ID], rateOf(now.Queues[q.ID])
		item.Breakers = append([]rates.OpenBreaker{}, a.breakers(q, now)...)
		if one, known := held[q.ID]; known {
			item.Waiting.add(one, a.Now())
			item.Kept = keptOf(q, one)
			item.Backlog = &Backlog{
				Messages: one.Messages, CountedAt: counted, AlertAbove: q.BacklogAlertAbove, Max: q.MaxBacklog.Messages,
				OnFull: q.MaxBacklog.OnFull,
			}
		}
		item.State, item.Cause = item.Stands()
	}
	return answer, now, nil
}

// recorded counts the records of a listing, up to deadletter.CountTo. dedupe.Count counts in parts, so it may
// stop a little earlier.
func (a Reads) recorded(ctx context.Context, of dedupe.Listing) (c Count, err error) {
	of.Limit = deadletter.CountTo
	c.Count, c.More, err = dedupe.Count(ctx, a.Store, of)
	return c, err
}

// CountOf counts the documents with these field values, up to deadletter.CountTo.
func (a Reads) CountOf(ctx context.Context, collection string, equal map[string]any) (Count, error) {
	n, err := store.Count(ctx, a.Store,
		store.Query{Collection: collection, Equal: equal, Limit: deadletter.CountTo + 1})
	return Count{Count: min(n, deadletter.CountTo), More: n > deadletter.CountTo}, err
}

func (a Reads) depth(ctx context.Context, q catalog.Queue) (Depth, error) {
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
		OldestAt: standing.Oldest, OldestSeconds: console.SecondsOf(age),
		OldestAlertSeconds: console.SecondsOf(longest),
		Alert:              standing.Open > int64(q.DeadLetter.AlertAbove) || (longest > 0 && age > longest),
	}, nil
}

func (a Reads) waiting(ctx context.Context) (Outbox, error) {
	lanes, err := a.CountOf(ctx, lane.Outbox.Lanes(), nil)
	answer := Outbox{Lanes: lanes}
	if err != nil || lanes.Count == 0 {
		return answer, err
	}
	oldest, err := a.oldestLanes(ctx, 1)
	for _, l := range oldest {
		answer.OldestAt, answer.OldestSeconds = l.OldestAt, l.WaitsSeconds
	}
	return answer, err
}

// QueuePaused is the pause of a queue in the list of queues.
type QueuePaused struct {
	pause.Pause
	// Subscription is what the queue's subscription does; unknown: this process cannot read it.
	Subscription pause.Standing `json:"subscription"`
}

// paused returns the pauses by queue. It reads only the subscriptions of paused queues from the broker.
func (a Reads) paused(ctx context.Context) (map[string]*QueuePaused, error) {
	pauses, err := pause.List(ctx, a.Store)
	found := map[string]*QueuePaused{}
	for _, p := range pauses {
		found[p.Queue] = &QueuePaused{Pause: p, Subscription: pause.Unknown}
		if q, ok := a.Catalog.Queue(p.Queue); a.Viewer != nil && ok {
			if standing, err := a.Viewer.Standing(ctx, q); err == nil {
				found[p.Queue].Subscription = standing
			}
		}
	}
	return found, err
}

// OfQueue is a request about one queue, or about all.
type OfQueue struct {
	Queue string `json:"-" query:"queue" help:"only this queue, by id or alias"`
}

// Operations returns the operations on queues and the outbox, which only read.
func (a Reads) Operations() []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "queues ls", Path: "GET /v1/ops/queues",
			Summary: "Show the state of each queue: what waits and where, the last hour, the open dead letters",
			Empty:   "The catalog has no queue.",
		}, func(ctx context.Context, _ audit.Author, _ struct{}) (Queues, error) {
			all, _, err := a.queuesAndNow(ctx)
			return all, err
		}),
		console.New(console.Row{
			Name: "queues show", Path: "GET /v1/ops/queues/{id}", Beside: []string{"queues history"},
			Summary: "Show one queue: its declaration, what waits and behind what, its targets, its newest events",
			Help: "A queue is named by id or alias. The numbers of the last hour are about: an instance that is " +
				"killed loses what it has " +
				"counted in the last seconds, and of the hour before this one they take the part that is within " +
				"60 minutes.",
		}, a.queue),
		console.New(console.Row{
			Name: "queues rates", Path: "GET /v1/ops/rates",
			Summary: "Count the deliveries of the last hours or days by outcome, and of one queue hour by hour",
			Help: "The numbers are about: an instance that is killed loses what it has counted in the last seconds. " +
				"Hours are kept for 8 days, days for 90.",
		}, a.rates),
		console.New(console.Row{
			Name: "queues waiting", Path: "GET /v1/ops/waiting",
			Summary: "Count the messages that wait: in the broker, delayed, in the outbox, in a replay, for approval",
		}, a.waits),
		console.New(console.Row{
			Name: "outbox ls", Path: "GET /v1/ops/outbox",
			Summary: "List what is committed and waits to be published, by ordering key, longest wait first",
			Empty:   "Nothing waits to be published.",
		}, func(ctx context.Context, _ audit.Author, in ListLanes) (Lanes, error) {
			found, err := a.oldestLanes(ctx, in.Limit+1)
			return Lanes{
				List: console.ListOf(found[:min(len(found), in.Limit)], store.Cursor{}), More: len(found) > in.Limit,
			}, err
		}),
	}
}
