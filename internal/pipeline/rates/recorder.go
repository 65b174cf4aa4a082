package rates

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"strings"
	"sync"
	"time"

	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// Config is the configuration of a Recorder. Breakers and Log are optional.
type Config struct {
	Store    store.GetCommitter
	Self     Service          // this instance, with its own unique Instance
	Breakers func() []Breaker // the breakers that are not closed
	Now      func() time.Time
	// AfterFunc calls f when d has passed; stop prevents a call that has not been made yet.
	AfterFunc func(d time.Duration, f func()) (stop func())
	Log       *slog.Logger
}

// Recorder counts for one instance without waiting for the store. It is concurrency-safe; nil counts nothing.
type Recorder struct {
	config Config

	mu      sync.Mutex
	counted document  // not yet flushed
	at      time.Time // of the last count
	seen    time.Time
	stop    func()
	closed  bool

	adding sync.Mutex
}

// NewRecorder returns an empty recorder. It does not flush by itself until Start.
func NewRecorder(config Config) *Recorder {
	return &Recorder{config: config, counted: documentOf(nil)}
}

func (r *Recorder) count(change func(to document, now time.Time)) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = r.config.Now()
	change(r.counted, r.at)
}

// Arrived counts the first delivery of a message of a queue.
func (r *Recorder) Arrived(queue string) {
	r.count(func(to document, _ time.Time) { to.Queues[queue] = to.Queues[queue].Plus(Counts{In: 1}) })
}

// Ended counts the outcome of a delivery. attempt is its number; 0: no attempt was made.
func (r *Recorder) Ended(queue string, outcome retry.Outcome, attempt int) {
	var ended Counts
	switch outcome {
	case retry.Processed:
		ended.Processed = 1
	case retry.Duplicate, retry.Expired, retry.Dropped, retry.Superseded:
		ended.Other = 1
	case retry.DeadLettered:
		ended.Dead = 1
	case retry.Retry:
		ended.Failed = int64(min(attempt, 1))
	}
	r.count(func(to document, _ time.Time) { to.Queues[queue] = to.Queues[queue].Plus(ended) })
}

// Answered counts a target's answer: status (0: none), reason of a failure, and time.
func (r *Recorder) Answered(name string, status int, code string, took time.Duration) {
	r.count(func(to document, now time.Time) {
		at, ms := now.UTC().Truncate(time.Microsecond), took.Milliseconds()
		one := Target{
			Answers: map[string]int64{class(status, code): 1},
			Last:    []Answer{{At: at, Status: int64(status), Code: code, Milliseconds: ms}},
		}
		to.Targets[name] = to.Targets[name].plus(name, one)
	})
}

const maxRelease = 64

// Release records the release of the webhook service that a message names. An invalid name is ignored.
func (r *Recorder) Release(name string) {
	odd := func(c rune) bool { return c <= ' ' || c > '~' || c == '/' || c == '_' }
	if name == "" || len(name) > maxRelease || strings.ContainsFunc(name, odd) {
		return
	}
	r.count(func(to document, now time.Time) {
		if _, known := to.Releases[name]; known || len(to.Releases) < maxReleases {
			to.Releases[name] = Release{SeenAt: now}
		}
	})
}

// Start flushes every FlushEvery, until Close.
func (r *Recorder) Start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.stop = r.config.AfterFunc(FlushEvery, func() {
		ctx, cancel := context.WithTimeout(context.Background(), FlushEvery)
		defer cancel()
		r.report(ctx, r.Flush(ctx))
		r.Start()
	})
}

// Close stops the flushes of Start, and flushes once more. Counts that are not stored in time are lost.
func (r *Recorder) Close(ctx context.Context) {
	r.mu.Lock()
	r.closed = true
	stop := r.stop
	r.mu.Unlock()
	if stop != nil {
		stop()
	}
	r.report(ctx, r.Flush(ctx))
}

func (r *Recorder) report(ctx context.Context, err error) {
	if err != nil && r.config.Log != nil {
		r.config.Log.LogAttrs(ctx, slog.LevelWarn, "rates not added, tried again with the next",
			slog.String("cause", err.Error()))
	}
}

// Flush adds the counts to the documents of the last count's hour and day. An instance without counts reports
// itself every SeenEvery. A failed call's counts go into the next: twice if only the answer was lost.
func (r *Recorder) Flush(ctx context.Context) error {
	r.adding.Lock()
	defer r.adding.Unlock()
	now := r.config.Now()
	r.mu.Lock()
	taken, at := r.counted, r.at
	nothing := len(taken.Queues)+len(taken.Targets)+len(taken.Releases) == 0
	if nothing {
		at = now
	}
	r.counted = documentOf(nil)
	r.mu.Unlock()
	if nothing && now.Sub(r.seen) < SeenEvery {
		return nil
	}
	err := r.add(ctx, taken, at, now)
	if errors.Is(err, store.ErrInvalid) { // these counts would prevent all later ones
		r.report(ctx, fmt.Errorf("rates: counts that cannot be stored are left out: %w", err))
		err = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.counted.add(taken)
		return err
	}
	r.seen = now
	return nil
}

func (r *Recorder) add(ctx context.Context, taken document, at, now time.Time) error {
	shard := int(crc32.ChecksumIEEE([]byte(r.config.Self.Instance)) % Shards)
	key := Hour.key(at, shard)
	_, err := store.Update(ctx, r.config.Store, key, func(ofHour store.Document) ([]store.Write, error) {
		ofDay, err := store.Find(ctx, r.config.Store, Day.key(at, shard))
		if err != nil {
			return nil, err
		}
		day := document{Queues: documentOf(ofDay.Fields).Queues, ExpireAt: Day.Of(at).Add(KeptDays)}
		day.add(document{Queues: taken.Queues})
		hour := documentOf(ofHour.Fields)
		hour.add(taken)
		hour.Services[r.config.Self.Instance], hour.ExpireAt = r.self(now), Hour.Of(at).Add(KeptHours)
		keepNewest(hour.Services, maxInstances)
		keepNewest(hour.Releases, maxReleases)
		return []store.Write{
			store.Replace(ofHour.Key, ofHour.Version, store.Encode(&hour)),
			store.Replace(ofDay.Key, ofDay.Version, store.Encode(&day)),
		}, nil
	})
	return err
}

func (r *Recorder) self(now time.Time) instance {
	self := instance{Service: r.config.Self}
	self.SeenAt = now
	if r.config.Breakers != nil {
		self.Breakers = map[string]Breaker{}
		for _, b := range r.config.Breakers() {
			self.Breakers[b.Target] = b
		}
	}
	return self
}
