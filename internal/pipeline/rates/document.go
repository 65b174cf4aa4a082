package rates

import (
	"cmp"
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
