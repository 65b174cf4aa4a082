// Package rates counts what becomes of the deliveries of each queue, by the hour and by the day, and what
// targets answer. An instance counts in memory, and every few seconds adds that to the documents of its
// shard. The numbers are about: what an instance that is killed had not added is lost, and a lost answer adds
// twice. The package refuses to write while a message is delivered, and to know a payload.
package rates

import (
	"fmt"
	"time"

	"billhook/internal/platform/store"
)

// Collection has the documents of hours and days. An id is hour-2006010215, or day-20060102, in UTC, and the
// shard: so the ids of a unit have the order of the times.
const Collection = "rates"

const (
	// Shards is how many documents an hour has. An instance adds to one of them every FlushEvery, and a
	// document takes about a write a second: so many take 60 instances.
	Shards = 4
	// FlushEvery is how long an instance counts in memory.
	FlushEvery = 15 * time.Second
	// SeenEvery is how often an instance that has nothing to count is seen.
	SeenEvery = time.Minute
	// GoodFor is how long an instance that was not seen is believed to be there, with its breakers.
	GoodFor = 5 * time.Minute

	// KeptHours is how long a document of an hour is kept.
	KeptHours = 8 * 24 * time.Hour
	// KeptDays is how long one of a day is.
	KeptDays = 90 * 24 * time.Hour

	// maxInstances and maxReleases bound what one document remembers: those that were seen last.
	maxInstances = 20
	maxReleases  = 5
	// answers is how many of a target's last answers are kept.
	answers = 5
)

// Unit is the length of a bucket.
type Unit time.Duration

// The units.
const (
	Hour = Unit(time.Hour)
	Day  = Unit(24 * time.Hour)
)

func (u Unit) layout() (prefix, layout string) {
	if u == Day {
		return "day-", "day-20060102"
	}
	return "hour-", "hour-2006010215"
}

// Of is the beginning of the bucket that a time is in, in UTC.
func (u Unit) Of(at time.Time) time.Time { return at.UTC().Truncate(time.Duration(u)) }

func (u Unit) key(at time.Time, shard int) store.Key {
	_, layout := u.layout()
	return store.Key{Collection: Collection, ID: fmt.Sprintf("%s-%d", at.UTC().Format(layout), shard)}
}

// at is the beginning of the bucket of a document; zero where the id is none.
func (u Unit) at(id string) time.Time {
	_, layout := u.layout()
	at, _ := time.Parse(layout, id[:min(len(id), len(layout))])
	return at
}

// Counts is what became of the deliveries of a queue.
type Counts struct {
	// In counts messages that came for the first time: neither again, nor back from a wait, nor as a replay.
	In int64 `json:"in" store:"in,omitzero" show:"In"`
	// Processed, Other and Dead count messages that have ended: whose effect is done; that were
	// duplicates, expired, dropped or superseded; and that were dead-lettered.
	Processed int64 `json:"processed" store:"processed,omitzero" show:"Processed"`
	Other     int64 `json:"other" store:"other,omitzero" show:"Otherwise"`
	Dead      int64 `json:"dead" store:"dead,omitzero" show:"Dead-lettered"`
	// Failed counts attempts that failed and that another one follows.
	Failed int64 `json:"failed" store:"failed,omitzero" show:"Failed"`
}

// Out counts the messages that have ended.
func (c Counts) Out() int64 { return c.Processed + c.Other + c.Dead }

// Attempts counts what was tried. Of a message that is a duplicate, for one, nothing was.
func (c Counts) Attempts() int64 { return c.Processed + c.Failed + c.Dead }

// FailurePercent is how many of a hundred attempts have failed; 0 where none was made. A share that is
// not zero is 1 at the least.
func (c Counts) FailurePercent() int64 {
	failed, all := c.Failed+c.Dead, c.Attempts()
	if failed == 0 {
		return 0
	}
	return max(1, (failed*100+all/2)/all)
}

// Plus adds two counts.
func (c Counts) Plus(d Counts) Counts {
	return Counts{
		In: c.In + d.In, Processed: c.Processed + d.Processed, Other: c.Other + d.Other, Dead: c.Dead + d.Dead,
		Failed: c.Failed + d.Failed,
	}
}

func (c Counts) part(of, whole time.Duration) Counts {
	scaled := func(n int64) int64 { return int64(float64(n)*float64(of)/float64(whole) + 0.5) }
	return Counts{
		In: scaled(c.In), Processed: scaled(c.Processed), Other: scaled(c.Other), Dead: scaled(c.Dead),
		Failed: scaled(c.Failed),
	}
}

// Answer is one answer of a target, without a word of what it said.
type Answer struct {
	At time.Time `json:"at" store:"at"`
	// Status is that of HTTP; 0: there was no answer.
	Status int64 `json:"status" store:"status"`
	// Code is why it was a failure; empty: it was none.
	Code         string `json:"code,omitempty" store:"code,omitzero"`
	Milliseconds int64  `json:"ms" store:"ms"`
}

func class(status int, code string) string {
	switch {
	case status < 100 || status > 599:
		return "none"
	case status >= 300 && code == "": // no failure: a question about an event was answered that there is none
		return "not_known"
	}
	return string(rune('0'+status/100)) + "xx"
}

// Breaker is the state of a target's breaker in one instance.
type Breaker struct {
	Target string `json:"target"`
	// State is open, or half_open while one request finds out.
	State string    `json:"state" store:"state"`
	Since time.Time `json:"since" store:"since"`
}

// Service is one instance of a program.
type Service struct {
	Instance string `json:"instance" show:"Instance"`
	Name     string `json:"service" store:"service" show:"Service"`
	// Pool is that of the queues that it serves; empty: all.
	Pool    string `json:"pool" store:"pool" show:"Pool,less"`
	Version string `json:"version" store:"version" show:"Version"`
	// Catalog is the hash of its catalog.
	Catalog   string    `json:"catalog" store:"catalog" show:"Catalog"`
	StartedAt time.Time `json:"started_at" store:"started_at" show:"Started,less"`
	SeenAt    time.Time `json:"seen_at" store:"seen_at"`
}

// Release is a release of the webhook service, as its messages name it.
type Release struct {
	Name   string
	SeenAt time.Time `store:"seen_at"`
}
