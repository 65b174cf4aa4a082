// Command chaos tries to break the one promise on Google's Firestore emulator. Its push client
// delivers every event about 2.3 times, reordered, delayed and in parallel, to two worker
// processes. About every second it kills one of them with SIGKILL. Handlers stall past their
// lease, whole workers are frozen, and answers of the store, of an outside service and of the
// broker are dropped. Then it counts.
//
//	go run ./e2e/chaos [-events 15000] [-seed N] [-kills-every 1s] [-arms tx,leased,...]
//
// The events are split among the arms that must hold: both kinds of handler, each unordered and
// ordered by key, the ordered Tx with messages through the outbox, a batch of leased attempts,
// Billhook's own refunds, which are counted by payment, and its journal: entries with messages, which
// two workers seal at the same time. Controls run at the same time
// with a tenth as many events each. Their handlers are wrong: check-then-act, mark-then-act, a
// lease without a fence. The command exits non-zero unless the arms have lost, doubled and
// disordered nothing and check-then-act has doubled: a harness that cannot fail proves nothing.
//
// A seed repeats the plan: events, deliveries, delays, stalls. Timing is up to the machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"billhook/e2e"
	"billhook/e2e/chaos/arm"
	"billhook/emulator"
	"billhook/internal/apps/ledger"
	"billhook/internal/contract"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

func main() {
	serve.Main("chaos", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout) })
}

const project = "chaos"

func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	seed := flags.Uint64("seed", uint64(time.Now().UnixNano()), "repeats a run's plan")
	events := flags.Int("events", 15000, "how many events, controls not counted")
	killsEvery := flags.Duration("kills-every", time.Second, "how often a worker is killed, on average")
	names := flags.String("arms", "", "which arms, separated by commas; all if empty")
	patience := flags.Duration("patience", 15*time.Minute, "how long it may take")
	if err := flags.Parse(args); err != nil {
		return err
	}
	arms, err := arm.Choose(*names)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *patience)
	defer cancel()
	p := draw(*seed, arms, *events)
	planned := len(p.single)
	for _, walk := range p.byKey {
		planned += len(walk)
	}
	_, _ = fmt.Fprintf(stdout, "seed %d: %d events, %d deliveries planned (%.2f each), %d of them stalling\n",
		*seed, len(p.events), planned, float64(planned)/float64(len(p.events)), p.stalling)

	sdk, err := emulator.Find(ctx)
	if err != nil {
		return err
	}
	database, err := sdk.StartFirestore(ctx, 0, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Stop()) }()
	documents, err := firestore.NewEmulated(context.WithoutCancel(ctx), database.Addr(), project, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, documents.Close()) }()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	log := &e2e.Log{}
	c := &client{
		http:  &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: senders}},
		slots: make(chan struct{}, senders), pushes: map[string]int{},
	}
	outside, err := newOutside(*seed, listener, func(to *arm.Arm, m contract.Message) { c.again(ctx, to, m) })
	if err != nil {
		return err
	}
	go func() { _ = outside.server.Serve(listener) }() // ends with Close
	defer func() { err = errors.Join(err, outside.server.Close()) }()

	targets, closing, err := start(ctx, database.Addr(), outside.url, log)
	defer closing()
	if err != nil {
		return err
	}
	started := time.Now()
	h := &havoc{targets: targets, seed: *seed, killsEvery: *killsEvery}
	c.targets, c.started = targets, started
	if err := drive(ctx, h, c, p, stdout); err != nil {
		return err
	}
	delivered := time.Since(started)
	outside.calm()
	lanes, err := settle(ctx, documents, targets, c)
	if err != nil {
		return err
	}
	if err := outside.server.Shutdown(ctx); err != nil { // what comes late to the gateway counts too
		return err
	}
	verdicts, err := count(ctx, documents, outside, log, p, arms)
	if err != nil {
		return err
	}
	pushes := 0
	for i := range verdicts {
		verdicts[i].pushes += c.pushes[verdicts[i].name]
	}
	for _, n := range c.pushes {
		pushes += n
	}
	_, _ = fmt.Fprintf(stdout, "%d pushes (%.2f each): %d without an answer, %d refused; %d kills -9, %d freezes\n",
		pushes, float64(pushes)/float64(len(p.events)), c.unanswered, c.refused, h.kills, h.freezes)
	_, _ = fmt.Fprintf(stdout, "store: answers cut %d times, requests %d times, late %d times; outside: %d answers lost, %d failures, %d hung, %d repeated calls\n",
		h.cutAnswers.Load(), h.cutRequests.Load(), h.late.Load(), outside.cut, outside.failed, outside.hung, outside.repeated)
	_, _ = fmt.Fprintf(stdout, "delivered in %s, %d messages of them kept and published anew; %d lanes left to the relay and done in %s; %d cores, %s %s/%s\n\n%s", delivered.Round(time.Second),
		c.begun, lanes, (time.Since(started) - delivered).Round(time.Second), runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH, table(verdicts))
	return judge(stdout, verdicts, arms)
}

// judge returns an error that says what is broken.
func judge(stdout io.Writer, verdicts []verdict, arms []arm.Arm) error {
	controls := map[string]bool{}
	for _, a := range arms {
		controls[a.Name] = a.Control
	}
	var mistakes []error
	for _, v := range verdicts {
		switch {
		case v.name == arm.CheckThenAct && v.doubled == 0:
			mistakes = append(mistakes, errors.New("check-then-act has doubled nothing: this run proves nothing"))
		case !controls[v.name] && !v.ok():
			mistakes = append(mistakes, fmt.Errorf("the promise is broken: %s", v.name))
			for _, broken := range v.broken[:min(len(v.broken), 10)] {
				_, _ = fmt.Fprintln(stdout, "  ", broken)
			}
		}
	}
	return errors.Join(mistakes...)
}

// start builds the worker and starts it twice, each behind its own gate. closing ends
// everything that was started.
func start(ctx context.Context, database, outside string, log *e2e.Log) (targets [2]*target, closing func(), err error) {
	var closers []func()
	closing = func() {
		for _, c := range closers {
			c()
		}
	}
	folder, err := os.MkdirTemp("", "billhook-chaos-")
	if err != nil {
		return targets, closing, err
	}
	closers = append(closers, func() { _ = os.RemoveAll(folder) })
	binary := filepath.Join(folder, "chaosworker")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "billhook/e2e/chaos/chaosworker")
	if output, err := build.CombinedOutput(); err != nil {
		return targets, closing, fmt.Errorf("build the worker: %w: %s", err, output)
	}
	for i := range targets {
		gate, err := e2e.NewGate(ctx, database)
		if err != nil {
			return targets, closing, err
		}
		t := &target{binary: binary, store: gate, log: log, environment: []string{
			"GOOGLE_CLOUD_PROJECT=" + project, "FIRESTORE_EMULATOR_HOST=" + gate.Addr(), "CHAOS_OUTSIDE=" + outside,
			"PATH=" + os.Getenv("PATH"), "HOME=" + folder,
		}}
		targets[i] = t
		if err := t.start(ctx); err != nil {
			return targets, closing, err
		}
		closers = append(closers, func() { t.process.Load().Kill() }, gate.Close)
	}
	return targets, closing, nil
}

// drive makes all deliveries while havoc runs.
func drive(ctx context.Context, h *havoc, c *client, p *plan, stdout io.Writer) error {
	group, ctx := errgroup.WithContext(ctx)
	raging, calm := context.WithCancel(ctx)
	defer calm()
	group.Go(func() error { return h.run(raging) }) // without a worker nothing would be acknowledged, so an error ends all
	group.Go(func() error {
		c.progress(raging, stdout)
		return nil
	})
	group.Go(func() error {
		random := rand.New(rand.NewPCG(h.seed, 4))
		for e2e.Wait(raging, time.Second) {
			_ = relay(raging, c.http, h.targets[random.IntN(2)]) // the next call comes in a second
		}
		return nil
	})
	group.Go(func() error { // a second sealer, and a second relay
		for e2e.Wait(raging, 700*time.Millisecond) {
			_ = relay(raging, c.http, h.targets[0])
		}
		return nil
	})
	err := c.run(ctx, p)
	calm()
	return errors.Join(err, group.Wait())
}

// relay has a worker publish its outbox, and what it has kept until now, and seal what is posted.
func relay(ctx context.Context, through *http.Client, t *target) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, task := range []string{"/tasks/relay-outbox", tasks.ReleasePath, "/tasks/seal-journal"} {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.process.Load().URL+task, http.NoBody)
		if err != nil {
			return err
		}
		response, err := through.Do(request)
		if err != nil {
			return err
		}
		if err := response.Body.Close(); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until no message waits in a lane or is under way, and then until the workers are
// idle. A lane belongs to its worker for a while, so this takes time. It returns the number of lanes
// at the start.
func settle(ctx context.Context, documents *firestore.Store, targets [2]*target, c *client) (lanes int, err error) {
	for {
		before, idle := c.idle()
		waiting := 0
		for _, kind := range []lane.Kind{lane.Outbox, lane.Delayed} {
			page, err := documents.Query(ctx, store.Query{Collection: kind.Lanes(), Limit: store.MaxPage})
			if err != nil {
				return lanes, err
			}
			waiting += len(page.Documents)
		}
		unsealed, err := documents.Query(ctx, store.Query{Collection: ledger.Entries, Equal: map[string]any{ledger.FieldOpen: true}, Limit: 1})
		if err != nil {
			return lanes, err
		}
		// A message leaves its lane after it was published, and is acknowledged after it was put
		// into one.
		if begun, _ := c.idle(); idle && waiting == 0 && len(unsealed.Documents) == 0 && begun == before {
			break
		}
		lanes = max(lanes, waiting)
		if err := relay(ctx, c.http, targets[0]); err != nil {
			return lanes, err
		}
		if !e2e.Wait(ctx, 500*time.Millisecond) {
			return lanes, fmt.Errorf("not everything was handled: %w", ctx.Err())
		}
	}
	c.http.CloseIdleConnections()
	for i, t := range targets {
		if code := t.process.Load().Stop(); code != 0 {
			return lanes, fmt.Errorf("worker %d ended with code %d", i+1, code)
		}
	}
	return lanes, nil
}
