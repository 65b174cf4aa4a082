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

// document is one shard of a bucket, or the counts that an instance adds to it. A day has only queues.
type document struct {
	Queues   map[string]Counts   `store:"queues"`
	Targets  map[string]Target   `store:"targets,omitzero"`
	Services map[string]instance `store:"services,omitzero"` // by their names
	Releases map[string]Release  `store:"releases,omitzero"` // of the webhook service
	ExpireAt time.Time           `store:"expire_at"`
}

type instance struct {
	Service `store:",inline"`

	Breakers map[string]Breaker `store:"breakers,omitzero"`
}

// documentOf reads a document. An unreadable one has no counts.
func documentOf(fields map[string]any) document {
	d := document{
		Queues: map[string]Counts{}, Targets: map[string]Target{}, Services: map[string]instance{},
		Releases: map[string]Release{},
	}
	_ = store.Decode(fields, &d) // no field is required
	return d
}

// add adds everything but the services.
func (d *document) add(other document) {
	for queue, counts := range other.Queues {
		d.Queues[queue] = d.Queues[queue].Plus(counts)
	}
	for name, t := range other.Targets {
		d.Targets[name] = d.Targets[name].plus(name, t)
	}
	for name, seen := range other.Releases {
		if seen.SeenAt.After(d.Releases[name].SeenAt) {
			d.Releases[name] = seen
		}
	}
}

type seen interface{ seen() time.Time }

func (r Release) seen() time.Time { return r.SeenAt }
func (s Service) seen() time.Time { return s.SeenAt }

func newestFirst[T seen](values map[string]T) []string {
	return slices.SortedFunc(maps.Keys(values), func(a, b string) int {
		return cmp.Or(values[b].seen().Compare(values[a].seen()), cmp.Compare(a, b))
	})
}

func keepNewest[T seen](values map[string]T, most int) {
	names := newestFirst(values)
	for _, name := range names[min(len(names), most):] {
		delete(values, name)
	}
}

// Bucket is what became of a queue's deliveries in an hour or a day.
type Bucket struct {
	At time.Time `json:"at"` // its beginning
	Counts
}

// Now is the present state.
type Now struct {
	Queues   map[string]Counts // about the last 60 minutes: this hour, and a share of the hour before
	Targets  map[string]Target // of this hour and the one before
	Services []Service         // the instances; the last seen first
	Releases []Release         // of the webhook service; the last seen first
}

// Target has the answers of a target, and its breakers.
type Target struct {
	Name    string           `json:"name"`
	Answers map[string]int64 `json:"answers" store:"answers"`    // by class: 2xx to 5xx, not_known, and none
	Last    []Answer         `json:"last" store:"last,omitzero"` // the newest first
	// Open has the breakers that are not closed, of the instances that were seen within GoodFor.
	Open      []OpenBreaker `json:"open"`
	Instances int           `json:"instances"` // how many were seen within GoodFor
}

// OpenBreaker is a breaker that is not closed.
type OpenBreaker struct {
	Instance string `json:"instance"`
	Breaker
}

// Recent reads the present state in one query, of at most Shards documents for each of two hours.
func Recent(ctx context.Context, from store.Querier, now time.Time) (Now, error) {
	this := Hour.Of(now)
	page, err := since(ctx, from, Hour, this.Add(-time.Hour), 2)
	if err != nil {
		return Now{}, err
	}
	all := documentOf(nil)
	for _, doc := range page {
		d := documentOf(doc.Fields)
		if Hour.at(doc.Key.ID).Before(this) {
			for queue, counts := range d.Queues {
				d.Queues[queue] = counts.part(time.Hour-now.Sub(this), time.Hour)
			}
		}
		all.add(d)
		for name, one := range d.Services {
			if one.Instance = name; !one.SeenAt.Before(all.Services[name].SeenAt) {
				all.Services[name] = one
			}
		}
	}
	return all.summary(now), nil
}

func (d document) summary(now time.Time) Now {
	found := Now{Queues: d.Queues, Targets: d.Targets}
	for _, name := range newestFirst(d.Releases) {
		found.Releases = append(found.Releases, Release{Name: name, SeenAt: d.Releases[name].SeenAt})
	}
	seen := 0
	for _, name := range newestFirst(d.Services) {
		one := d.Services[name]
		found.Services = append(found.Services, one.Service)
		if now.Sub(one.SeenAt) > GoodFor {
			continue
		}
		seen++
		for at, b := range one.Breakers {
			b.Target = at
			t := found.Targets[at].plus(at, Target{})
			t.Open = append(t.Open, OpenBreaker{Instance: name, Breaker: b})
			found.Targets[at] = t
		}
	}
	for name, t := range found.Targets {
		slices.SortFunc(t.Open, func(a, b OpenBreaker) int {
			return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Instance, b.Instance))
		})
		t.Instances = seen
		found.Targets[name] = t
	}
	return found
}

func (t Target) plus(name string, other Target) Target {
	if t.Answers == nil {
		t = Target{Name: name, Answers: map[string]int64{}, Open: []OpenBreaker{}}
	}
	t.Name = name
	for class, n := range other.Answers {
		t.Answers[class] += n
	}
	t.Last = append(t.Last, other.Last...)
	slices.SortStableFunc(t.Last, func(a, b Answer) int { return b.At.Compare(a.At) })
	t.Last = t.Last[:min(len(t.Last), answers)]
	return t
}

// Series reads the last n buckets of queues, the oldest first, in one query of n times Shards documents.
func Series(
	ctx context.Context, from store.Querier, of Unit, n int, now time.Time, queues ...string,
) (map[string][]Bucket, error) {
	first := of.Of(now).Add(-time.Duration(n-1) * time.Duration(of))
	page, err := since(ctx, from, of, first, n)
	if err != nil {
		return nil, err
	}
	found := map[string][]Bucket{}
	for _, queue := range queues {
		found[queue] = make([]Bucket, n)
		for i := range n {
			found[queue][i].At = first.Add(time.Duration(i) * time.Duration(of))
		}
	}
	for _, doc := range page {
		i := int(of.at(doc.Key.ID).Sub(first) / time.Duration(of))
		if i < 0 || i >= n {
			continue
		}
		for queue, counts := range documentOf(doc.Fields).Queues {
			if buckets := found[queue]; buckets != nil {
				buckets[i].Counts = buckets[i].Plus(counts)
			}
		}
	}
	return found, nil
}

func since(
	ctx context.Context, from store.Querier, of Unit, first time.Time, n int,
) ([]store.Document, error) {
	prefix, layout := of.layout()
	after, limit := store.Cursor{ID: first.Format(layout)}, min(n*Shards, store.MaxPage)
	page, err := from.Query(ctx,
		store.Query{Collection: Collection, IDPrefix: prefix, After: after, Limit: limit})
	if err != nil {
		return nil, fmt.Errorf("rates: read: %w", err)
	}
	return page.Documents, nil
}
