// Package rates counts the outcomes of each queue's deliveries, by hour and by day, and the answers of
// targets. An instance counts in memory, and every few seconds adds its counts to the documents of its shard.
// The numbers are approximate: a killed instance loses its last counts, and a commit whose answer is lost is
// added twice. The package does not write during a delivery, and sees no payload.
package rates

import (
	"fmt"
	"time"

	"billhook/internal/platform/store"
)

// Collection has the documents of hours and days. An id is hour-2006010215 or day-20060102, in UTC, followed
// by the shard, so a unit's ids sort by time.
const Collection = "rates"

const (
	// Shards is how many documents an hour has. An instance adds to one of them every FlushEvery, and a document
	// takes about a write a second, so 4 are enough for 60 instances.
	Shards = 4
	// FlushEvery is how long an instance counts in memory.
	FlushEvery = 15 * time.Second
	// SeenEvery is how often an instance reports itself when it has no counts.
	SeenEvery = time.Minute
	// GoodFor is how long an instance counts as running after it was seen.
	GoodFor = 5 * time.Minute

	// KeptHours is how long the document of an hour is kept.
	KeptHours = 8 * 24 * time.Hour
	// KeptDays is how long the document of a day is kept.
	KeptDays = 90 * 24 * time.Hour

	maxInstances = 20 // in one document
	maxReleases  = 5  // in one document
	answers      = 5  // kept of each target
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

// Of returns the beginning of the bucket that contains a time, in UTC.
func (u Unit) Of(at time.Time) time.Time { return at.UTC().Truncate(time.Duration(u)) }

func (u Unit) key(at time.Time, shard int) store.Key {
	_, layout := u.layout()
	return store.Key{Collection: Collection, ID: fmt.Sprintf("%s-%d", at.UTC().Format(layout), shard)}
}

// at returns the beginning of a document's bucket; zero if the id is invalid.
func (u Unit) at(id string) time.Time {
	_, layout := u.layout()
	at, _ := time.Parse(layout, id[:min(len(id), len(layout))])
	return at
}

// Counts has the outcomes of a queue's deliveries.
type Counts struct {
	// In counts first deliveries: no redeliveries, no deliveries after a wait, and no replays.
	In int64 `json:"in" store:"in,omitzero" show:"In"`
	// Processed, Other and Dead count finished messages. Other: duplicates, expired, dropped or superseded.
	Processed int64 `json:"processed" store:"processed,omitzero" show:"Processed"`
	Other     int64 `json:"other" store:"other,omitzero" show:"Otherwise"`
	Dead      int64 `json:"dead" store:"dead,omitzero" show:"Dead-lettered"`
	// Failed counts the failed attempts that another attempt follows.
	Failed int64 `json:"failed" store:"failed,omitzero" show:"Failed"`
}

// Out counts the finished messages.
func (c Counts) Out() int64 { return c.Processed + c.Other + c.Dead }

// Attempts counts the attempts. A duplicate, for example, has none.
func (c Counts) Attempts() int64 { return c.Processed + c.Failed + c.Dead }

// FailurePercent is the percentage of failed attempts, rounded, but at least 1 if any has failed.
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

// Answer is one answer of a target, without its text.
type Answer struct {
	At           time.Time `json:"at" store:"at"`
	Status       int64     `json:"status" store:"status"`                // of HTTP; 0: there was no answer
	Code         string    `json:"code,omitempty" store:"code,omitzero"` // the reason of a failure
	Milliseconds int64     `json:"ms" store:"ms"`
}

func class(status int, code string) string {
	switch {
	case status < 100 || status > 599:
		return "none"
	case status >= 300 && code == "": // the target does not know an event: no failure
		return "not_known"
	}
	return string(rune('0'+status/100)) + "xx"
}

// Breaker is the state of a target's breaker in one instance.
type Breaker struct {
	Target string    `json:"target"`
	State  string    `json:"state" store:"state"` // open, or half_open while one request tries the target
	Since  time.Time `json:"since" store:"since"`
}

// Service is one instance of a program.
type Service struct {
	Instance string `json:"instance" show:"Instance"`
	Name     string `json:"service" store:"service" show:"Service"`
	// Pool is the pool whose queues the instance serves; empty: all queues.
	Pool      string    `json:"pool" store:"pool" show:"Pool,less"`
	Version   string    `json:"version" store:"version" show:"Version"`
	Catalog   string    `json:"catalog" store:"catalog" show:"Catalog"` // the hash of its catalog
	StartedAt time.Time `json:"started_at" store:"started_at" show:"Started,less"`
	SeenAt    time.Time `json:"seen_at" store:"seen_at"`
}

// Release is a release of the webhook service, as its messages name it.
type Release struct {
	Name   string
	SeenAt time.Time `store:"seen_at"`
}
