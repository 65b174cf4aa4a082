package rates

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// Config is what a Recorder is made of. Breakers and Log are optional.
type Config struct {
	Store store.GetCommitter
	// Self is this instance. Its Instance is required, and no other's.
	Self Service
	// Breakers returns the breakers that are not closed.
	Breakers func() []Breaker
	Now      func() time.Time
	// AfterFunc has f called when d has passed; stop prevents a call that has not been made yet.
	AfterFunc func(d time.Duration, f func()) (stop func())
	Log       *slog.Logger
}

// Recorder counts for one instance. Its methods that count do not wait for the store. It is safe for
// concurrent use; nil counts nothing.
type Recorder struct {
	config Config

	mu sync.Mutex
	// counting has what was counted since the last batches were taken, by the hour.
	counting map[time.Time]*batch
	number   int64
	seen     time.Time
	stop     func()
	closed   bool

	// adding is held by the one that adds, with what is taken and not known to be added.
	adding sync.Mutex
	taken  []*batch
}

// batch is what was counted in an hour. number tells it from the others of the instance, and rises.
type batch struct {
	hour   time.Time
	number int64
	document
}

const heldHours = 24

// NewRecorder returns a recorder that has counted nothing. It adds nothing by itself until Start.
func NewRecorder(config Config) *Recorder {
	return &Recorder{config: config, counting: map[time.Time]*batch{}}
}

func (r *Recorder) count(change func(b *batch, now time.Time)) {
	if r == nil {
		return
	}
	now := r.config.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r.batch(now), now)
}

// batch is that of the hour. The caller holds the lock.
func (r *Recorder) batch(now time.Time) *batch {
	hour := Hour.Of(now)
	b, ok := r.counting[hour]
	if !ok {
		b = &batch{hour: hour, document: documentOf(nil)}
		r.counting[hour] = b
		if len(r.counting) > heldHours {
			delete(r.counting, slices.MinFunc(slices.Collect(maps.Keys(r.counting)), time.Time.Compare))
		}
	}
	return b
}

// Arrived counts a message of a queue that comes for the first time.
func (r *Recorder) Arrived(queue string) {
	r.count(func(b *batch, _ time.Time) { b.Queues[queue] = b.Queues[queue].Plus(Counts{In: 1}) })
}

// Ended counts what became of a delivery, or of one attempt of it. attempt is which of the event's
// attempts it was, 0 where it was none: a message that only waits is not counted.
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
	r.count(func(b *batch, _ time.Time) { b.Queues[queue] = b.Queues[queue].Plus(ended) })
}

// Answered counts what a target has said to a request. The status is 0 where there was no answer, and
// the code is why it was a failure, or empty.
func (r *Recorder) Answered(name string, status int, code string, took time.Duration) {
	r.count(func(b *batch, now time.Time) {
		answer := Answer{At: now.UTC().Truncate(time.Microsecond), Status: int64(status), Code: code, Milliseconds: took.Milliseconds()}
		b.Targets[name] = b.Targets[name].plus(name, Target{Answers: map[string]int64{class(status, code): 1}, Last: []Answer{answer}})
	})
}

const maxRelease = 64

// Release remembers that a message names the release of the webhook service that it came by. A name that
// could not be that of a release is ignored.
func (r *Recorder) Release(name string) {
	if name == "" || len(name) > maxRelease || !printable(name) {
		return
	}
	r.count(func(b *batch, now time.Time) {
		if _, known := b.Releases[name]; known || len(b.Releases) < maxReleases {
			b.Releases[name] = Release{SeenAt: now}
		}
	})
}

func printable(text string) bool {
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' || c == '/' || c == '_' {
			return false
		}
	}
	return true
}

// Start has the recorder add what it counts every FlushEvery, until Close.
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

// Close adds what is left, and ends what Start began. Where the store takes it not in time, it is lost.
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
		r.config.Log.LogAttrs(ctx, slog.LevelWarn, "rates not added, tried again with the next", slog.String("cause", err.Error()))
	}
}

// Flush adds what was counted to the documents. An instance that has counted nothing is seen every
// SeenEvery. After an error nothing is lost: the next call adds what is not there.
func (r *Recorder) Flush(ctx context.Context) error {
	r.adding.Lock()
	defer r.adding.Unlock()
	if err := r.addTaken(ctx); err != nil { // what an earlier call does not know to be added
		return err
	}
	r.take()
	return r.addTaken(ctx)
}

// addTaken adds the batches that are taken, one after the other. The caller holds adding.
func (r *Recorder) addTaken(ctx context.Context) error {
	for len(r.taken) > 0 {
		if err := r.add(ctx, r.taken[0]); err != nil {
			return err
		}
		r.taken = r.taken[1:]
	}
	return nil
}

// take numbers the batches that were counted, the oldest first. The caller holds adding.
func (r *Recorder) take() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.config.Now()
	if len(r.counting) == 0 && now.Sub(r.seen) < SeenEvery {
		return
	}
	r.batch(now) // tells that the instance is there
	r.seen = now
	for _, hour := range slices.SortedFunc(maps.Keys(r.counting), time.Time.Compare) {
		r.number++
		r.counting[hour].number = r.number
		r.taken = append(r.taken, r.counting[hour])
	}
	r.counting = map[time.Time]*batch{}
}

// add adds one batch to the documents of its hour and its day. The hour's document has the number of
// the last batch of the instance: so a batch whose answer was lost is not added again.
func (r *Recorder) add(ctx context.Context, b *batch) error {
	shard := shardOf(r.config.Self.Instance)
	_, err := store.Update(ctx, r.config.Store, Hour.key(b.hour, shard), func(doc store.Document) ([]store.Write, error) {
		hour := documentOf(doc.Fields)
		if hour.Services[r.config.Self.Instance].Flushes >= b.number {
			return nil, nil
		}
		ofDay, err := store.Find(ctx, r.config.Store, Day.key(b.hour, shard))
		if err != nil {
			return nil, err
		}
		day := document{Queues: documentOf(ofDay.Fields).Queues, ExpireAt: Day.Of(b.hour).Add(KeptDays)}
		day.count(b.Queues)
		hour.add(b.document)
		hour.Services[r.config.Self.Instance], hour.ExpireAt = r.self(b.number), Hour.Of(b.hour).Add(KeptHours)
		keepNewest(hour.Services, maxInstances)
		keepNewest(hour.Releases, maxReleases)
		return []store.Write{store.Replace(doc.Key, doc.Version, store.Encode(&hour)), store.Replace(ofDay.Key, ofDay.Version, store.Encode(&day))}, nil
	})
	if errors.Is(err, store.ErrInvalid) {
		r.report(ctx, fmt.Errorf("rates: a batch was left out: %w", err))
		return nil // it would hold up all that come after it
	}
	return err
}

func (r *Recorder) self(number int64) instance {
	self := instance{Service: r.config.Self, Flushes: number}
	self.SeenAt = r.config.Now()
	if r.config.Breakers != nil {
		self.Breakers = map[string]Breaker{}
		for _, b := range r.config.Breakers() {
			self.Breakers[b.Target] = b
		}
	}
	return self
}
