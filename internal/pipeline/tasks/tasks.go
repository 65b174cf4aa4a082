// Package tasks owns the recurring work, for which Cloud Scheduler posts to /tasks. Every task is bounded,
// continues where the last run stopped, may run twice at once, and has an address of its own, /tasks/{name}.
package tasks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json"

	"billhook/catalog"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/pause"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/failpoint"
	"billhook/internal/platform/mirror"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
	"billhook/internal/platform/telemetry"
)

// The bounds of one run. Cloud Scheduler waits three minutes by default.
const (
	runTime = time.Minute
	lanes   = 500
	records = 200
	slack   = time.Minute
	logged  = 100 // lines of findings
)

// Longest is the longest duration of a task: its run, and the end of its last step.
const Longest = runTime + 10*time.Second

// Service answers /tasks.
type Service struct {
	Catalog *catalog.Catalog
	Store   store.Store
	Ingest  *mirror.Mirror // the copies that the webhook service reads; nil: it reads the store
	Outbox  *lane.Relay
	Delayed *lane.Relay
	// Operations continues at most this many of people's running operations, and returns what it did.
	Operations    func(ctx context.Context, most int, log *slog.Logger) (done any, err error)
	Backlogs      backlog.Counter // nil: the messages in the broker cannot be counted
	Subscriptions pause.Viewer    // nil: the subscriptions of paused queues cannot be read
	Log           *slog.Logger
	Metrics       *telemetry.Metrics
	Now           func() time.Time
	SealLag       time.Duration // see seal.Sealer.Lag
}

// Path is what Cloud Scheduler posts to, and ReleasePath the task that an alarm calls.
const (
	Path        = "/tasks"
	ReleasePath = Path + "/release-delayed"
)

type task func(*Service, context.Context) (any, error)

// The last task is for databases without Firestore's TTL.
var all = []struct {
	name string
	run  task
}{
	{"relay-outbox", (*Service).relayOutbox},
	{"release-delayed", (*Service).releaseDelayed},
	{"run-operations", (*Service).runOperations},
	{"count-dead-letters", (*Service).countDeadLetters},
	{"count-backlogs", (*Service).countWaiting},
	{"sweep-leases", (*Service).sweepLeases},
	{"seal-journal", (*Service).sealJournal},
	{"verify-books", (*Service).verifyBooks},
	{"cleanup", (*Service).cleanup},
}

// Names lists all tasks, as in /tasks/{name}; Scheduled lists the tasks that Path runs.
var (
	Names = func() (names []string) {
		for _, t := range all {
			names = append(names, t.name)
		}
		return names
	}()
	Scheduled = Names[:len(Names)-1]
)

// Call sends a request for a task and returns the worker's answer.
func Call(client *http.Client, request *http.Request) (map[string]any, error) {
	response, err := client.Do(request) //nolint:gosec // G704: the caller names its own worker
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("tasks: answered %d", response.StatusCode)
	}
	var done map[string]any
	if err := json.UnmarshalRead(response.Body, &done); err != nil {
		return nil, fmt.Errorf("tasks: the answer is not JSON: %w", err)
	}
	return done, nil
}

// Routes adds the tasks' routes. The caller authenticates their requests.
func (s *Service) Routes(r chi.Router) {
	post := func(path string, run func(context.Context) (any, error)) {
		refuse := func(w http.ResponseWriter, _ *http.Request, err error) { failed.Problem(err).Write(w) }
		r.Post(path, serve.Answer(http.StatusOK,
			func(r *http.Request) (any, error) { return run(r.Context()) }, refuse))
	}
	for _, t := range all {
		post(Path+"/"+t.name, func(ctx context.Context) (any, error) { return s.do(ctx, t.name, t.run) })
	}
	post(Path, s.scheduled)
}

// scheduled runs the tasks concurrently. Each has its own time limit and log line, and none waits for another
// or fails with it.
func (s *Service) scheduled(ctx context.Context) (any, error) {
	done, errs := make([]any, len(Scheduled)), make([]error, len(Scheduled))
	var running sync.WaitGroup
	for i, t := range all[:len(Scheduled)] {
		running.Go(func() { done[i], errs[i] = s.do(ctx, t.name, guarded(t.run)) })
	}
	running.Wait()
	answer := map[string]any{}
	for i, name := range Scheduled {
		answer[name] = done[i]
	}
	return answer, errors.Join(errs...)
}

// failed is 503, after which the scheduler tries again.
var failed = serve.ErrorMapping{Last: serve.Refuse(
	http.StatusServiceUnavailable, "task_failed", "The task could not be done now; call it again.",
)}

func (s *Service) do(ctx context.Context, name string, run task) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	started := s.Now()
	done, err := run(s, ctx)
	level, what := slog.LevelInfo, slog.Any("done", done)
	if err != nil {
		level, what = slog.LevelError, slog.String("cause", err.Error())
	}
	s.Log.LogAttrs(ctx, level, "task", slog.String("task", name), what,
		slog.Float64("duration_ms", s.Now().Sub(started).Seconds()*1000))
	return done, err
}

// guarded turns a panic into its task's error, without the value, which may contain a document.
func guarded(run task) task {
	return func(s *Service, ctx context.Context) (done any, err error) {
		defer func() {
			if value := recover(); value != nil {
				err = fmt.Errorf("panic: %T at %s", value, debug.Stack())
			}
		}()
		return run(s, ctx)
	}
}

// ReleaseDelayed runs the task release-delayed for an alarm in this process. A failure is only logged.
func (s *Service) ReleaseDelayed(ctx context.Context) {
	_, _ = s.do(ctx, path.Base(ReleasePath), (*Service).releaseDelayed)
}

type relayed struct {
	lane.Report
	OldestSeconds int64 `json:"oldest_seconds"`  // of the oldest message that still waits; 0: none waits
	Copies        int   `json:"copies,omitzero"` // documents copied for the webhook service
}

// relayOutbox publishes the messages and copies the documents that are left over from their commits.
func (s *Service) relayOutbox(ctx context.Context) (any, error) {
	done, err := s.relay(ctx, s.Outbox, "outbox", s.Metrics.Outbox)
	if s.Ingest != nil {
		var failed error
		done.Copies, failed = s.Ingest.CatchUp(ctx)
		err = errors.Join(err, failed)
	}
	return done, err
}

// releaseDelayed publishes all due messages, because any that remained would wait for the next run.
func (s *Service) releaseDelayed(ctx context.Context) (any, error) {
	var all relayed
	for {
		done, err := s.relay(ctx, s.Delayed, "delayed", s.Metrics.Delayed)
		if err != nil {
			return nil, err
		}
		all.Lanes += done.Lanes
		all.Failed += done.Failed
		all.Published += done.Published
		all.More, all.OldestSeconds = done.More, done.OldestSeconds
		if !done.More || done.Published == 0 || ctx.Err() != nil {
			return all, nil //nolint:nilerr // after the run's time More is true
		}
	}
}

func (s *Service) relay(
	ctx context.Context, from *lane.Relay, name string, count func(published, failed int, oldest time.Duration),
) (relayed, error) {
	report, err := from.Due(ctx, lanes, func(lane string, err error) {
		s.Log.LogAttrs(ctx, slog.LevelWarn, "lane not relayed",
			slog.String("of", name), slog.String("lane", lane), slog.String("cause", err.Error()))
	})
	if err != nil {
		return relayed{}, err
	}
	oldest, err := from.Oldest(ctx)
	if err != nil {
		return relayed{}, err
	}
	count(report.Published, report.Failed, oldest)
	return relayed{Report: report, OldestSeconds: int64(oldest.Seconds())}, nil
}

func (s *Service) sweepLeases(ctx context.Context) (any, error) {
	now := s.Now()
	swept, err := dedupe.Sweep(ctx, s.Store, now.Add(-OrphanAfter(s.Catalog)), now, records, s.republish)
	if swept.Republished > 0 {
		failpoint.Hit(failpoint.SweepMarked)
	}
	return swept, err
}

// republish publishes the message of an event that no worker handles, if its queue still runs.
func (s *Service) republish(ctx context.Context, record dedupe.Record) (republish bool, err error) {
	q, known := s.Catalog.Queue(record.Queue)
	if republish = known && q.Enabled && record.Message != nil; republish {
		failpoint.Hit(failpoint.SweepRepublish)
		again := *record.Message
		again.Attributes = q.Addressed(again.Attributes)
		_, err = s.Outbox.Publisher.Publish(ctx, q.Topic(), again)
		failpoint.Hit(failpoint.SweepRepublished)
	}
	s.Log.LogAttrs(ctx, slog.LevelError, "orphan",
		slog.String("queue", record.Queue), slog.String("event_id", record.EventID),
		slog.String("event_type", record.EventType), slog.String("message_id", record.MessageID),
		slog.Int64("attempt", record.Attempts), slog.Time("lease_until", record.LeaseUntil),
		slog.Bool("republished", republish && err == nil))
	if err == nil {
		s.Metrics.Orphan(record.Queue, republish)
	}
	return republish, err
}

// OrphanAfter is how long after the end of a lease its event may still be redelivered.
func OrphanAfter(c *catalog.Catalog) time.Duration {
	var longest time.Duration
	for _, q := range c.Queues {
		_, wait := q.BrokerBackoff()
		longest = max(longest, wait+q.AckDeadline)
	}
	return longest + slack
}

func (s *Service) runOperations(ctx context.Context) (any, error) {
	return s.Operations(ctx, records, s.Log)
}

const settling = time.Minute

// checkPauses counts the paused queues whose messages are pushed anyway, and logs each for the alert.
func (s *Service) checkPauses(ctx context.Context) (undone int, err error) {
	if s.Subscriptions == nil {
		return 0, nil
	}
	pauses, err := pause.List(ctx, s.Store)
	if err != nil {
		return 0, err
	}
	for _, p := range pauses {
		q, known := s.Catalog.Queue(p.Queue)
		if !known || !q.Enabled || s.Now().Sub(p.At) < settling {
			continue
		}
		standing, err := s.Subscriptions.Standing(ctx, q)
		switch {
		case err != nil:
			s.Log.LogAttrs(ctx, slog.LevelWarn, "pause not seen",
				slog.String("queue", p.Queue), slog.String("cause", err.Error()))
		case standing == pause.Pushing || standing == pause.Undone:
			undone++
			s.Log.LogAttrs(ctx, slog.LevelError, "pause undone", slog.String("queue", p.Queue),
				slog.Time("paused_at", p.At), slog.String("subscription", string(standing)))
		}
	}
	return undone, nil
}

// Expiring lists the collections with a TTL in terraform/firestore.tf; else the cleanup removes what expired.
var Expiring = []string{
	dedupe.Collection, deadletter.Collection, lane.Delayed.Lanes(), rates.Collection, "rateBlocks", "requests",
}

func (s *Service) cleanup(ctx context.Context) (any, error) {
	var cleaned struct {
		Removed int  `json:"removed"`
		More    bool `json:"more"` // the run was full; another would find more
	}
	for _, collection := range Expiring {
		removed, more, err := dedupe.Clean(ctx, s.Store, collection, s.Now(), records)
		cleaned.Removed += removed
		cleaned.More = cleaned.More || more
		if err != nil {
			return cleaned, err
		}
	}
	return cleaned, nil
}

// verifyBooks returns the progress of the verification, or the result of the last one if none runs.
func (s *Service) verifyBooks(ctx context.Context) (any, error) {
	lines := 0
	watch := seal.Watch{
		Verifier: seal.Verifier{From: s.Store, Origins: s.origins()}, Store: s.Store, Now: s.Now,
		Report: func(f seal.Finding) {
			if lines++; lines <= logged {
				f.Log(ctx, s.Log)
			}
		},
	}
	state, err := watch.Step(ctx)
	if err != nil {
		return nil, err
	}
	s.Metrics.BooksFindings(state.Worst().Found)
	done, running := state.Last, !state.Running.BegunAt.IsZero()
	if running {
		done = state.Running
	}
	done.Findings = nil // they have their own log lines
	return struct {
		seal.Verdict
		Running bool `json:"running"`
	}{done, running}, nil
}

func (s *Service) sealJournal(ctx context.Context) (any, error) {
	sealed, err := seal.Sealer{Store: s.Store, Origins: s.origins(), Now: s.Now, Lag: s.SealLag}.Run(ctx)
	s.Metrics.Sealed(sealed.Entries, sealed.Unreadable, sealed.Unfounded,
		time.Duration(sealed.OldestSeconds)*time.Second)
	return sealed, err
}

func (s *Service) origins() journal.Origins {
	return journal.Origins{Catalog: s.Catalog, Store: s.Store}
}
