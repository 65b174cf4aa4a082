package ops

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"billhook/catalog"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/rates"
)

// Rate is what became of a queue's deliveries in the last 60 minutes, about.
type Rate struct {
	rates.Counts
	// Out counts the messages that have ended.
	Out int64 `json:"out"`
	// FailurePercent is how many of a hundred attempts have failed; 1 at the least where one has.
	FailurePercent int64 `json:"failure_percent"`
}

func rateOf(c rates.Counts) Rate {
	return Rate{Counts: c, Out: c.Out(), FailurePercent: c.FailurePercent()}
}

// Series are the counts of a queue by the hour or the day, the oldest first.
type Series struct {
	Queue   string         `json:"queue"`
	Buckets []rates.Bucket `json:"buckets"`
}

// Rates are the counts of queues.
type Rates struct {
	Items []Series `json:"items"`
	Next  string   `json:"next"` // always empty: there are few
	// Unit is hour or day.
	Unit  string `json:"unit"`
	About bool   `json:"about"`
}

// standardHours is how many hours are shown unless others are asked for.
const standardHours = 24

// Rates returns the last buckets of a queue, or of all that the catalog has where the id is empty.
func (a Reads) Rates(ctx context.Context, queue string, of rates.Unit, n int) (Rates, error) {
	now := a.Now()
	found, err := rates.Series(ctx, a.Store, of, n, now)
	answer := Rates{Items: []Series{}, Unit: "hour", About: true}
	if of == rates.Day {
		answer.Unit = "day"
	}
	for _, q := range a.Catalog.Queues {
		if queue != "" && q.ID != queue {
			continue
		}
		buckets := found[q.ID]
		if buckets == nil {
			buckets = rates.Empty(of, n, now)
		}
		answer.Items = append(answer.Items, Series{Queue: q.ID, Buckets: buckets})
	}
	return answer, err
}

func (a *API) rates(r *http.Request) (Rates, error) {
	params := read(r, "queue", "hours", "days")
	queue, of, n := params.queue(a.Catalog), rates.Hour, params.number("hours", standardHours, rates.Hour.Most())
	if params.values.Has("days") {
		of, n = rates.Day, params.number("days", 1, rates.Day.Most())
		if params.values.Has("hours") {
			params.refuse("days_invalid", "Give hours or days, not both.")
		}
	}
	if err := params.err(); err != nil {
		return Rates{}, err
	}
	return a.Rates(r.Context(), queue, of, n)
}

func (p *parameters) number(name string, standard, most int) int {
	text := p.values.Get(name)
	if text == "" {
		return standard
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		p.refuse(name+"_invalid", "The parameter "+name+" is a number from 1 to "+strconv.Itoa(most)+".")
	}
	return n
}

// TargetState is a target that a queue posts to or calls.
type TargetState struct {
	rates.Target
	// Internal: it is one of ours. Concurrency, RatePerSecond and Breaker are its limits in each
	// instance; 0 is none.
	Internal         bool    `json:"internal"`
	Concurrency      int     `json:"concurrency"`
	RatePerSecond    float64 `json:"rate_per_second"`
	BreakerFailures  int     `json:"breaker_failures"`
	BreakerRestsSecs int64   `json:"breaker_rests_seconds"`
}

// targets are those that a queue posts to or calls, as they stand, by their names.
func (a Reads) targets(q catalog.Queue, now rates.Now) []TargetState {
	all, known := []TargetState{}, map[string]bool{}
	for _, h := range q.Handlers {
		for _, name := range h.Targets() {
			if known[name] {
				continue
			}
			known[name] = true
			declared := a.Catalog.Targets[name]
			state, answered := now.Targets[name]
			if !answered {
				state = rates.Target{Name: name, Answers: map[string]int64{}, Last: []rates.Answer{}, Open: []rates.OpenBreaker{}}
			}
			all = append(all, TargetState{
				Target: state, Internal: declared.Internal, Concurrency: declared.Concurrency, RatePerSecond: declared.RatePerSecond,
				BreakerFailures: declared.Breaker.Failures, BreakerRestsSecs: int64(declared.Breaker.Rest.Seconds()),
			})
		}
	}
	slices.SortFunc(all, func(a, b TargetState) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// breakers are those of the queue's targets that are not closed.
func (a Reads) breakers(q catalog.Queue, now rates.Now) (open []rates.OpenBreaker) {
	for _, t := range a.targets(q, now) {
		open = append(open, t.Open...)
	}
	return open
}

// BlockedKey is an ordering key of which messages are kept.
type BlockedKey struct {
	OrderingKey string `json:"ordering_key"`
	// Spot says where they wait, since when and until when, and which dead letters they wait for.
	Spot
	// Messages counts those that are kept.
	Messages Count `json:"messages"`
}

// The bounds of what is shown of one queue.
const (
	keysShown     = 10
	outcomesShown = 20
)

// QueueDetail is one queue with all that explains how it stands.
type QueueDetail struct {
	Queue

	// Declares is what the catalog declares of it, in words.
	Declares []string `json:"declares"`
	// Keys are the ordering keys of which messages are kept, those that wait for a person first.
	Keys     []BlockedKey `json:"keys"`
	KeysMore bool         `json:"keys_more"`
	// Targets are those that it posts to or calls.
	Targets []TargetState `json:"targets"`
	// Outcomes are its newest events.
	Outcomes []Line `json:"outcomes"`
}

// QueueDetail returns how one queue stands, and why.
func (a Reads) QueueDetail(ctx context.Context, q catalog.Queue) (QueueDetail, error) {
	one := a
	alone := *a.Catalog
	alone.Queues, one.Catalog = []catalog.Queue{q}, &alone
	detail := QueueDetail{Declares: q.Words()}
	group, asking := errgroup.WithContext(ctx)
	group.Go(func() error {
		all, now, err := one.queuesAndNow(asking)
		if err == nil {
			detail.Queue, detail.Targets = all.Items[0], a.targets(q, now)
		}
		return err
	})
	group.Go(func() (err error) {
		detail.Keys, detail.KeysMore, err = a.blocked(asking, q)
		return err
	})
	group.Go(func() (err error) {
		detail.Outcomes, _, err = a.Events(asking, dedupe.Listing{Equal: map[string]any{"queue": q.ID}, Limit: outcomesShown})
		return err
	})
	return detail, group.Wait()
}

// blocked returns the first keys of which messages are kept, and whether there are more.
func (a Reads) blocked(ctx context.Context, q catalog.Queue) (keys []BlockedKey, more bool, err error) {
	lanes, more, err := lane.Keys(ctx, a.Store, q.ID, keysShown)
	keys = make([]BlockedKey, len(lanes))
	if err != nil {
		return keys, more, err
	}
	return keys, more, each(ctx, len(lanes), func(ctx context.Context, i int) error {
		kept, waiting, err := lane.First(ctx, a.Store, lanes[i], keptCounted+1)
		keys[i] = BlockedKey{OrderingKey: kept.Message.OrderingKey, Messages: Count{Count: min(waiting, keptCounted), More: waiting > keptCounted}}
		if err != nil || waiting == 0 { // all that was kept is with the broker again
			keys[i].Spot = Spot{Place: PlaceBroker, Queue: q.ID}
			return err
		}
		keys[i].Spot, err = a.delay(ctx, kept)
		keys[i].Behind, keys[i].Spot.OrderingKey = kept.Source.EventID, "" // the first is behind nobody
		return err
	})
}

const keptCounted = 1000

func (a *API) queue(r *http.Request) (QueueDetail, error) {
	if err := read(r).err(); err != nil {
		return QueueDetail{}, err
	}
	q, err := a.queueOf(r)
	if err != nil {
		return QueueDetail{}, err
	}
	return a.QueueDetail(r.Context(), q)
}
