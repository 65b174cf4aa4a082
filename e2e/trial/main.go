// Command trial runs one trial of a whole Billhook:
//
//	go run ./e2e/trial load|chaos|soak|behind|isolation|books|flashsale|drill|imports [-flag value ...]
//
// It prints counts and measurements, and exits non-zero if a promise is broken, or if a control that is wrong
// on purpose is not detected. The same seed plans the same events; timing depends on the machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"billhook/e2e"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/platform/screen"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

func main() {
	for variable, child := range map[string]func(*run, string){standingVariable: stand, outsideVariable: work} {
		if given := os.Getenv(variable); given != "" {
			serve.Main(variable, func(ctx context.Context) error {
				return (&run{ctx: ctx, out: os.Stderr}).perform(func(r *run) { child(r, given) })
			})
			return
		}
	}
	serve.Main("trial", func(ctx context.Context) error { return try(ctx, os.Stdout, os.Args[1:]...) })
}

var trials = []struct {
	name, proves string
	of           func(*flag.FlagSet) func(*run)
}{
	{"load", "what events wait for at several rates, in a burst and in a stall, and two baselines", load},
	{"chaos", "nothing is lost, doubled or out of order under kill -9, stalls and lost answers", chaos},
	{"soak", "the same from the webhook to the balance, of the real binaries on Google's emulators", soak},
	{"behind", "how long an order waits behind events that fail, with the catalog's limits and without", behind},
	{"isolation", "what a hostile target, or a flood, costs the other queues", isolation},
	{"flashsale", "a burst of orders sells out exactly and notifies each buyer once, under kill -9", flashsale},
	{"books", "what it costs to post, seal and verify the books; a change of an entry is found", books},
	{"drill", "a night on call by the runbook's commands alone, and what each step takes", drill},
	{"imports", "messages of Redis, RabbitMQ and Postgres are moved once each, under kill -9", imports},
}

func try(ctx context.Context, out io.Writer, args ...string) error {
	known := []string{"one of the trials is needed:"}
	for _, t := range trials {
		if len(args) == 0 || args[0] != t.name {
			known = append(known, fmt.Sprintf("  %-10s %s", t.name, t.proves))
			continue
		}
		flags := flag.NewFlagSet(t.name, flag.ContinueOnError)
		seed := flags.Uint64("seed", uint64(time.Now().UnixNano()), "repeats what is planned")
		start := t.of(flags)
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		debug.SetTraceback("all") // so that a panic shows where each goroutine waits
		defer time.AfterFunc(patience+grace, func() { panic("it hangs beyond its time") }).Stop()
		r, began := &run{ctx: ctx, seed: *seed, out: out}, time.Now()
		r.printf("%s", t.name)
		flags.VisitAll(func(f *flag.Flag) { r.printf(" -%s %s", f.Name, f.Value) })
		r.printf("; %d cores, %s %s/%s\n", runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		err := r.perform(start)
		r.printf("in %s\n", time.Since(began).Round(time.Second))
		return err
	}
	return errors.New(strings.Join(known, "\n"))
}

// run is for a trial what *testing.T is for a test: it collects failures and runs cleanups.
type run struct {
	// ctx ends after patience, or with a failure that ends the trial.
	ctx  context.Context
	stop context.CancelFunc
	seed uint64
	out  io.Writer

	mu       sync.Mutex
	failures []error
	cleanups []func()
	// seen counts events of the run, for the report.
	seen counts
}

// patience is the longest time of a trial, and grace that of its cleanups after it.
const (
	patience = 30 * time.Minute
	grace    = 2 * time.Minute
)

// perform runs a trial, or a part of one, and then all its cleanups, even if one of them fails.
func (r *run) perform(of func(*run)) error {
	part := &run{seed: r.seed, out: r.out, seen: counts{}}
	part.ctx, part.stop = context.WithCancel(r.ctx)
	defer part.stop()
	guarded := func(do func()) {
		var ended sync.WaitGroup
		ended.Go(do) // FailNow ends this goroutine
		ended.Wait()
	}
	guarded(func() { of(part) })
	if len(part.seen) > 0 {
		r.printf("%s\n", part.seen)
	}
	for _, closing := range slices.Backward(part.cleanups) {
		guarded(closing)
	}
	return errors.Join(part.failures...)
}

// part performs a part of the run. If it fails, the run continues, and fails at the end.
func (r *run) part(name string, of func(*run)) {
	if err := r.perform(of); err != nil {
		r.Errorf("%s: %w", name, err)
	}
}

func (r *run) printf(format string, values ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintf(r.out, format, values...) // an error means that nobody reads the output
}

// saw counts an event for the report.
func (r *run) saw(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen.add(what, 1)
}

func (r *run) Errorf(format string, values ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Errorf(format, values...))
}

// FailNow ends the goroutine that calls it, and the run's context.
func (r *run) FailNow() {
	r.stop()
	runtime.Goexit()
}

func (r *run) Fatalf(format string, values ...any) {
	r.Errorf(format, values...)
	r.FailNow()
}

// Skipf fails: a trial without its emulators proves nothing.
func (r *run) Skipf(format string, values ...any) { r.Fatalf(format, values...) }

func (r *run) Helper() {}

func (r *run) Context() context.Context { return r.ctx }

func (r *run) Cleanup(closing func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, closing)
}

func (r *run) TempDir() string {
	folder := filetest.Must(os.MkdirTemp("", "billhook-trial-"))(r)
	r.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

func (r *run) must(err error) {
	if err != nil {
		r.Fatalf("%w", err)
	}
}

func (r *run) broken(format string, values ...any) {
	r.Errorf("the promise is broken: "+format, values...)
}

// none fails the run if any count is not zero.
func (r *run) none(wrong counts) {
	if wrong.total() > 0 {
		r.broken("%s", wrong)
	}
}

// until calls missing until it returns an empty text, and fails the run if that takes too long.
func (r *run) until(every time.Duration, missing func() string) {
	for what := missing(); what != ""; what = missing() {
		if !e2e.Wait(r.ctx, every) {
			r.Fatalf("waited too long for %s: %w", what, r.ctx.Err())
		}
	}
}

// unless returns an empty text if the condition is met, else the formatted text.
func unless(met bool, format string, values ...any) string {
	if met {
		return ""
	}
	return fmt.Sprintf(format, values...)
}

// often is the polling interval if the time until a condition is measured.
const often = 100 * time.Millisecond

// forEach calls do with 0 to many-1, at most atOnce at a time.
func (r *run) forEach(many, atOnce int, do func(i int)) {
	var all errgroup.Group
	all.SetLimit(atOnce)
	for i := range many {
		all.Go(func() error {
			do(i)
			return nil
		})
	}
	_ = all.Wait() // a failure has already failed the run
}

// beside runs others in the background until something ends.
func (r *run) beside(something func(), others ...func(context.Context)) {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, end := context.WithCancel(r.ctx)
	defer end()
	for _, other := range others {
		all.Go(func() { other(ctx) })
	}
	something()
}

func everything[T any](r *run, from store.Querier, in string, read func(store.Document) (T, error)) []T {
	return filetest.Must(store.All(r.ctx, from, store.Query{Collection: in}, read))(r)
}

func whole(doc store.Document) (store.Document, error) { return doc, nil }

// records returns the records of all events by key. A different payload under a used id has its own record.
func (r *run) records(from store.Querier) map[store.Key]dedupe.Record {
	all := map[store.Key]dedupe.Record{}
	for _, doc := range everything(r, from, dedupe.Collection, whole) {
		all[doc.Key] = filetest.Must(dedupe.FromDocument(doc))(r)
	}
	return all
}

// table begins a table, and returns a function that adds a row. The table is printed when the run ends.
func (r *run) table(head ...any) (row func(cells ...any)) {
	var rows [][]string
	r.Cleanup(func() { r.printf("%s", screen.Columns(rows)) })
	row = func(cells ...any) {
		r.mu.Lock()
		defer r.mu.Unlock()
		rows = append(rows, filetest.Map(cells, func(cell any) string { return fmt.Sprint(cell) }))
	}
	row(head...)
	return row
}

type counts map[string]int

// add adds n to a count. For zero it adds no entry.
func (c counts) add(name string, n int) {
	if n != 0 {
		c[name] += n
	}
}

func (c counts) total() (n int) {
	for _, one := range c {
		n += one
	}
	return n
}

func (c counts) String() string {
	line := func(name string) string { return fmt.Sprint(name, " ", c[name]) }
	return strings.Join(filetest.Map(slices.Sorted(maps.Keys(c)), line), ", ")
}
