package queues

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/inspect/bulk"
	"billhook/internal/inspect/deadletters"
	"billhook/internal/inspect/events"
	"billhook/internal/inspect/pauses"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Rate counts the outcomes of a queue's deliveries in the last 60 minutes, approximately.
type Rate struct {
	rates.Counts
	Out int64 `json:"out" show:"Out"`
	// FailurePercent is the share of failed attempts, in percent; at least 1 if any attempt failed.
	FailurePercent int64 `json:"failure_percent" show:"% failed"`
}

func rateOf(c rates.Counts) Rate {
	return Rate{Counts: c, Out: c.Out(), FailurePercent: c.FailurePercent()}
}

func (r Rate) String() string {
	if r.Counts == (rates.Counts{}) {
		return ""
	}
	text := fmt.Sprintf("%d in, %d out", r.In, r.Out)
	if r.Attempts() > 0 {
		text += fmt.Sprintf(", %d %% failed", r.FailurePercent)
	}
	return text
}

func (r Rate) words() string {
	text := fmt.Sprintf("about %d in, %d processed, %d ended otherwise, %d dead-lettered, %d attempts failed "+
		"and follow again", r.In, r.Processed, r.Other, r.Dead, r.Failed)
	if r.Attempts() > 0 {
		text += fmt.Sprintf("; %d %% of the attempts failed", r.FailurePercent)
	}
	return text
}

// Series has the counts of a queue by hour or day, the oldest first, and their sum.
type Series struct {
	Queue   string         `json:"queue" show:"Queue" link:"queues"`
	Total   Rate           `json:"total" show:"*"`
	Buckets []rates.Bucket `json:"buckets"`
}

// Rates has the counts of the queues, on one page.
type Rates struct {
	console.List[Series]
	Unit  string `json:"unit"`
	About bool   `json:"about"`
}

// Notes lists the outcomes of each hour or day, the newest first, if the answer is about one queue.
func (r Rates) Notes() (notes []string) {
	layout := map[string]string{"hour": "2006-01-02 15:04", "day": "2006-01-02"}[r.Unit]
	if len(r.Items) != 1 {
		return nil
	}
	for _, b := range slices.Backward(r.Items[0].Buckets) {
		if b.Counts != (rates.Counts{}) {
			notes = append(notes, b.At.UTC().Format(layout)+": "+rateOf(b.Counts).words())
		}
	}
	return notes
}

// RatesOf requests the counts of the last hours or days, of one queue or of all.
type RatesOf struct {
	OfQueue
	Hours *int `json:"-" query:"hours" validate:"omitempty,min=1,max=192" help:"how many hours, 24 unless days are given"`
	Days  *int `json:"-" query:"days" validate:"omitempty,min=1,max=90" help:"how many days, in place of hours"`
}

func (a Reads) rates(ctx context.Context, _ audit.Author, in RatesOf) (Rates, error) {
	one, err := a.Filtered(in.Queue)
	switch {
	case err != nil:
		return Rates{}, err
	case in.Days != nil && in.Hours != nil:
		return Rates{}, console.Refuse(console.Malformed, "days_invalid", "Give hours or days, not both.")
	}
	unit, of, n, now := "hour", rates.Hour, 24, a.Now()
	if in.Hours != nil {
		n = *in.Hours
	}
	if in.Days != nil {
		unit, of, n = "day", rates.Day, *in.Days
	}
	ids := []string{one.ID}
	if in.Queue == "" {
		ids = nil
		for _, q := range a.Catalog.Queues {
			ids = append(ids, q.ID)
		}
	}
	found, err := rates.Series(ctx, a.Store, of, n, now, ids...)
	var items []Series
	for _, id := range ids {
		var sum rates.Counts
		for _, b := range found[id] {
			sum = sum.Plus(b.Counts)
		}
		items = append(items, Series{Queue: id, Total: rateOf(sum), Buckets: found[id]})
	}
	return Rates{List: console.ListOf(items, store.Cursor{}), Unit: unit, About: true}, err
}

// TargetState is a target that a queue posts to or calls.
type TargetState struct {
	rates.Target
	// Internal: it is one of our own services. Concurrency, RatePerSecond and the breaker's fields are its
	// limits in each instance; 0: none.
	Internal         bool            `json:"internal"`
	Concurrency      int             `json:"concurrency"`
	RatePerSecond    float64         `json:"rate_per_second"`
	BreakerFailures  int             `json:"breaker_failures"`
	BreakerRestsSecs console.Seconds `json:"breaker_rests_seconds"`
}

func (a Reads) targets(q catalog.Queue, now rates.Now) []TargetState {
	var names []string
	for _, h := range q.Handlers {
		names = append(names, h.Targets()...)
	}
	slices.Sort(names)
	all := []TargetState{}
	for _, name := range slices.Compact(names) {
		declared := a.Catalog.Targets[name]
		state, answered := now.Targets[name]
		if !answered {
			state = rates.Target{
				Name: name, Answers: map[string]int64{}, Last: []rates.Answer{}, Open: []rates.OpenBreaker{},
			}
		}
		all = append(all, TargetState{
			Target: state, Internal: declared.Internal, Concurrency: declared.Concurrency,
			RatePerSecond:   declared.RatePerSecond,
			BreakerFailures: declared.Breaker.Failures, BreakerRestsSecs: console.SecondsOf(declared.Breaker.Rest),
		})
	}
	return all
}

func (a Reads) breakers(q catalog.Queue, now rates.Now) (open []rates.OpenBreaker) {
	for _, t := range a.targets(q, now) {
		open = append(open, t.Open...)
	}
	return open
}

func (t TargetState) String() string {
	breaker := "no breaker is open"
	if len(t.Open) > 0 {
		first := t.Open[0]
		breaker = fmt.Sprintf("breaker %s in %d of %d instances, the first since %s", strings.ReplaceAll(
			first.State, "_", "-"), len(t.Open), max(t.Instances, len(t.Open)), console.Stamp(first.Since))
	}
	var classes []string
	for _, class := range slices.Sorted(maps.Keys(t.Answers)) {
		classes = append(classes, fmt.Sprint(class, " ", t.Answers[class]))
	}
	text := t.Name + ": " + breaker + "; answers since the beginning of the hour before: " +
		cmp.Or(strings.Join(classes, ", "), "none")
	for _, last := range t.Last[:min(1, len(t.Last))] {
		text += fmt.Sprintf("; the last: %s in %d ms at %s", strings.TrimPrefix(fmt.Sprint(last.Status, " ",
			last.Code), "0 "), last.Milliseconds, console.Stamp(last.At))
	}
	return text
}

// BlockedKey is an ordering key with messages that are kept in its lane.
type BlockedKey struct {
	OrderingKey string `json:"ordering_key" show:"Key"`
	events.Spot
	Messages Count `json:"messages" show:"Messages"`
}

// The bounds of QueueDetail: how many keys and events it shows.
const (
	keysShown     = 10
	outcomesShown = 8
)

// QueueDetail is one queue with everything that explains its state.
type QueueDetail struct {
	Queue

	Events   Events               `json:"events" show:"Events"`
	Declares []string             `json:"declares"`
	Reasons  []deadletters.Reason `json:"reasons" show:"Open dead letters by reason"`
	Keys     []BlockedKey         `json:"keys" show:"Keys of which messages are kept"`
	KeysMore bool                 `json:"keys_more"`
	Targets  []TargetState        `json:"targets" show:"Targets"`
	Outcomes []events.Line        `json:"outcomes" show:"Newest events"`
}

// Notes says what does not fit into the columns, and what the catalog declares.
func (q QueueDetail) Notes() (notes []string) {
	if q.KeysMore {
		notes = append(notes, "There are more keys.")
	}
	if q.Backlog != nil && q.Backlog.Max > 0 {
		notes = append(notes, fmt.Sprintf("The broker holds %d of at most %d messages.", q.Backlog.Messages,
			q.Backlog.Max))
	}
	return append(append(notes, "Last hour: "+q.LastHour.words()+"."), q.Declares...)
}

func (a Reads) queue(ctx context.Context, _ audit.Author, in pauses.Of) (QueueDetail, error) {
	q, err := a.Named(in.ID)
	if err != nil {
		return QueueDetail{}, err
	}
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
	group.Go(into(asking, &detail.Events, func(ctx context.Context) (Events, error) {
		return a.eventsOf(ctx, q.ID)
	}))
	group.Go(func() (err error) {
		detail.Keys, detail.KeysMore, err = a.blocked(asking, q)
		return err
	})
	group.Go(into(asking, &detail.Reasons, func(ctx context.Context) ([]deadletters.Reason, error) {
		if q.DeadLetter.Drop {
			return nil, nil
		}
		return deadletters.Reasons(ctx, &bulk.Operator{Store: a.Store, Now: a.Now}, bulk.Filter{Queue: q.ID})
	}))
	group.Go(func() (err error) {
		detail.Outcomes, _, err = a.Events(asking,
			dedupe.Listing{Equal: map[string]any{"queue": q.ID}, Limit: outcomesShown})
		return err
	})
	err = group.Wait()
	detail.Reasons = append([]deadletters.Reason{}, detail.Reasons...)
	return detail, err
}

var statuses = []dedupe.Status{dedupe.Processing, dedupe.Completed, dedupe.Failed, dedupe.DeadLettered}

// Events counts records by status.
type Events map[dedupe.Status]Count

func (e Events) String() string {
	var parts []string
	for _, status := range statuses {
		if e[status].Count > 0 {
			parts = append(parts, e[status].String()+" "+string(status))
		}
	}
	return strings.Join(parts, ", ")
}

func (a Reads) eventsOf(ctx context.Context, queue string) (Events, error) {
	counts, found := make([]Count, len(statuses)), Events{}
	err := store.AtOnce(ctx, len(statuses), func(ctx context.Context, i int) (err error) {
		equal := map[string]any{"queue": queue, "status": string(statuses[i])}
		counts[i], err = a.recorded(ctx, dedupe.Listing{Equal: equal})
		return err
	})
	for i, status := range statuses {
		found[status] = counts[i]
	}
	return found, err
}

func (a Reads) blocked(ctx context.Context, q catalog.Queue) (keys []BlockedKey, more bool, err error) {
	lanes, more, err := lane.Keys(ctx, a.Store, q.ID, keysShown)
	keys = make([]BlockedKey, len(lanes))
	if err != nil {
		return keys, more, err
	}
	err = store.AtOnce(ctx, len(lanes), func(ctx context.Context, i int) error {
		kept, waiting, err := lane.First(ctx, a.Store, lanes[i], keptCounted+1)
		keys[i] = BlockedKey{
			OrderingKey: kept.Message.OrderingKey,
			Messages:    Count{Count: min(waiting, keptCounted), More: waiting > keptCounted},
		}
		if err != nil || waiting == 0 { // all kept messages are with the broker again
			keys[i].Spot = events.Spot{Place: events.PlaceBroker, Queue: q.ID}
			return err
		}
		keys[i].Spot, err = a.DelayOf(ctx, kept)
		keys[i].Behind, keys[i].Spot.OrderingKey = kept.EventID, "" // the first message waits for no other
		return err
	})
	slices.SortStableFunc(keys, func(a, b BlockedKey) int {
		return cmp.Compare(b.Messages.Count, a.Messages.Count)
	})
	return keys, more, err
}

const keptCounted = 1000
