package rates

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"billhook/internal/platform/store"
)

// document is one shard of a bucket. A day has queues alone.
type document struct {
	// Queues has the Counts of each queue, Targets a target of each name, Services an instance of each
	// name, Doors a Door of each release.
	Queues   map[string]any `store:"queues"`
	Targets  map[string]any `store:"targets,omitzero"`
	Services map[string]any `store:"services,omitzero"`
	Doors    map[string]any `store:"doors,omitzero"`
	ExpireAt time.Time      `store:"expire_at"`
}

type target struct {
	// Answers has a number for each class.
	Answers map[string]any `store:"answers"`
	// Last are the last answers, the newest first.
	Last []Answer `store:"last,omitzero"`
}

type instance struct {
	Service `store:",inline"`

	// Breakers has a Breaker for each target whose breaker is not closed.
	Breakers map[string]any `store:"breakers,omitzero"`
	// Flushes is the number of the last batch of the instance that the document has counted.
	Flushes int64 `store:"flushes"`
}

// documentOf reads a document. What is not readable is as good as not counted.
func documentOf(fields map[string]any) document {
	var d document
	_ = store.Decode(fields, &d) // requires nothing
	return d
}

// field reads one value of a map of a document; the zero value where there is none.
func field[T any](values map[string]any, name string) T {
	var value T
	fields, _ := values[name].(map[string]any)
	_ = store.Decode(fields, &value) // requires nothing
	return value
}

func (d *document) add(b *batch) {
	if d.Queues == nil {
		d.Queues = map[string]any{}
	}
	for queue, counts := range b.queues {
		sum := field[Counts](d.Queues, queue).Plus(*counts)
		d.Queues[queue] = store.Encode(&sum)
	}
}

// tell adds the rest of what a batch has: answers, the instance itself, and the doors.
func (d *document) tell(b *batch, self instance) {
	for _, of := range []*map[string]any{&d.Targets, &d.Services, &d.Doors} {
		if *of == nil {
			*of = map[string]any{}
		}
	}
	for name, told := range b.targets {
		t := field[target](d.Targets, name)
		if t.Answers == nil {
			t.Answers = map[string]any{}
		}
		for class, n := range told.classes {
			before, _ := t.Answers[class].(int64)
			t.Answers[class] = before + n
		}
		t.Last = newest(append(t.Last, told.last...))
		d.Targets[name] = store.Encode(&t)
	}
	d.Services[self.Instance] = store.Encode(&self)
	keepNewest(d.Services, maxInstances)
	for release, at := range b.doors {
		if door := field[Door](d.Doors, release); at.After(door.SeenAt) {
			door.SeenAt = at
			d.Doors[release] = map[string]any{"seen_at": at.UTC().Truncate(time.Microsecond)}
		}
	}
	keepNewest(d.Doors, maxDoors)
}

func newest(all []Answer) []Answer {
	slices.SortStableFunc(all, func(a, b Answer) int { return b.At.Compare(a.At) })
	return all[:min(len(all), answers)]
}

func keepNewest(values map[string]any, most int) {
	seen := func(name string) time.Time {
		fields, _ := values[name].(map[string]any)
		at, _ := fields["seen_at"].(time.Time)
		return at
	}
	names := slices.SortedFunc(maps.Keys(values), func(a, b string) int { return cmp.Or(seen(b).Compare(seen(a)), cmp.Compare(a, b)) })
	for _, name := range names[min(len(names), most):] {
		delete(values, name)
	}
}

// Bucket is what became of a queue's deliveries in an hour or a day.
type Bucket struct {
	At time.Time `json:"at"` // its beginning
	Counts
}

// Now is how things stand.
type Now struct {
	// Queues has the counts of each queue in the last 60 minutes, about: of the hour before this one it
	// takes the part that is in them.
	Queues map[string]Counts
	// Targets has what each target answered in this hour and the one before.
	Targets map[string]Target
	// Services are the instances, the one seen last first, and Doors the releases of the doors.
	Services []Service
	Doors    []Door
}

// Target is what a target answered, and how its breakers stand.
type Target struct {
	Name string `json:"name"`
	// Answers has the number of answers of each class: 2xx to 5xx, not_known, and none.
	Answers map[string]int64 `json:"answers"`
	// Last are the last answers, the newest first.
	Last []Answer `json:"last"`
	// Open are the breakers that are not closed, by the instance that has them. Each instance has its
	// own, and one that was not seen for GoodFor is left out. Instances is how many were seen.
	Open      []OpenBreaker `json:"open"`
	Instances int           `json:"instances"`
}

// OpenBreaker is a breaker that is not closed.
type OpenBreaker struct {
	Instance string `json:"instance"`
	Breaker
}

// Recent reads how things stand. It is one query, of at most Shards documents for each of two hours.
func Recent(ctx context.Context, from store.Querier, now time.Time) (Now, error) {
	this := Hour.Of(now)
	page, err := since(ctx, from, Hour, this.Add(-time.Hour), 2)
	if err != nil {
		return Now{}, err
	}
	found := Now{Queues: map[string]Counts{}, Targets: map[string]Target{}}
	services, doors, breakers := map[string]Service{}, map[string]Door{}, map[string][]OpenBreaker{}
	for _, doc := range page {
		d := documentOf(doc.Fields)
		at, _ := Hour.parse(doc.Key.ID)
		for queue := range d.Queues {
			counts := field[Counts](d.Queues, queue)
			if at.Before(this) {
				counts = counts.part(time.Hour-now.Sub(this), time.Hour)
			}
			found.Queues[queue] = found.Queues[queue].Plus(counts)
		}
		for name := range d.Targets {
			found.Targets[name] = found.Targets[name].with(name, field[target](d.Targets, name))
		}
		for name := range d.Services {
			one := field[instance](d.Services, name)
			if one.Instance = name; one.SeenAt.Before(services[name].SeenAt) {
				continue
			}
			services[name], breakers[name] = one.Service, nil
			for at := range one.Breakers {
				b := field[Breaker](one.Breakers, at)
				b.Target = at
				breakers[name] = append(breakers[name], OpenBreaker{Instance: name, Breaker: b})
			}
		}
		for release := range d.Doors {
			one := field[Door](d.Doors, release)
			if one.Release = release; one.SeenAt.After(doors[release].SeenAt) {
				doors[release] = one
			}
		}
	}
	found.Services = slices.SortedFunc(maps.Values(services), func(a, b Service) int {
		return cmp.Or(b.SeenAt.Compare(a.SeenAt), cmp.Compare(a.Instance, b.Instance))
	})
	found.Doors = slices.SortedFunc(maps.Values(doors), func(a, b Door) int { return cmp.Or(b.SeenAt.Compare(a.SeenAt), cmp.Compare(a.Release, b.Release)) })
	found.stand(breakers, now)
	return found, nil
}

func (t Target) with(name string, told target) Target {
	if t.Answers == nil {
		t = Target{Name: name, Answers: map[string]int64{}, Open: []OpenBreaker{}}
	}
	for class := range told.Answers {
		n, _ := told.Answers[class].(int64)
		t.Answers[class] += n
	}
	t.Last = newest(append(t.Last, told.Last...))
	return t
}

func (n *Now) stand(breakers map[string][]OpenBreaker, now time.Time) {
	there := 0
	for _, s := range n.Services {
		if now.Sub(s.SeenAt) > GoodFor {
			continue
		}
		there++
		for _, b := range breakers[s.Instance] {
			t := n.Targets[b.Target].with(b.Target, target{})
			t.Open = append(t.Open, b)
			n.Targets[b.Target] = t
		}
	}
	for name, t := range n.Targets {
		slices.SortFunc(t.Open, func(a, b OpenBreaker) int {
			return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Instance, b.Instance))
		})
		t.Instances = there
		n.Targets[name] = t
	}
}

// Series reads the last buckets of a queue, or of all where its id is empty, the oldest first, also empty
// ones, in one query of at most Shards documents for each bucket.
func Series(ctx context.Context, from store.Querier, of Unit, n int, now time.Time) (map[string][]Bucket, error) {
	first := of.Of(now).Add(-time.Duration(n-1) * time.Duration(of))
	page, err := since(ctx, from, of, first, n)
	if err != nil {
		return nil, err
	}
	found := map[string][]Bucket{}
	for _, doc := range page {
		at, ok := of.parse(doc.Key.ID)
		i := int(at.Sub(first) / time.Duration(of))
		if !ok || i < 0 || i >= n {
			continue
		}
		d := documentOf(doc.Fields)
		for queue := range d.Queues {
			if found[queue] == nil {
				found[queue] = Empty(of, n, now)
			}
			found[queue][i].Counts = found[queue][i].Plus(field[Counts](d.Queues, queue))
		}
	}
	return found, nil
}

// Empty are the buckets of a queue of which nothing was counted.
func Empty(of Unit, n int, now time.Time) []Bucket {
	buckets := make([]Bucket, n)
	for i := range buckets {
		buckets[i].At = of.Of(now).Add(-time.Duration(n-1-i) * time.Duration(of))
	}
	return buckets
}

// since reads the documents of so many buckets from the first on.
func since(ctx context.Context, from store.Querier, of Unit, first time.Time, buckets int) ([]store.Document, error) {
	page, err := from.Query(ctx, store.Query{Collection: of.collection(), After: store.Cursor{ID: of.name(first)}, Limit: min(buckets*Shards, store.MaxPage)})
	if err != nil {
		return nil, fmt.Errorf("rates: read: %w", err)
	}
	return page.Documents, nil
}
