package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/e2e"
	"billhook/internal/compose/devstack"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook/webhooktest"
	"billhook/internal/platform/boltstore"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/platform/telemetry"
)

// load measures the speed of a whole Billhook, as `billhook dev` runs it, and of two baselines. Each wait
// counts from the scheduled time. It fails if an event was lost, doubled or answered 429, or 503 in a burst,
// or if a stall of the store caused nacks.
func load(flags *flag.FlagSet) func(*run) {
	rates := flags.String("rates", "100,500,1000", "events a second, a measurement for each")
	lasts := flags.Duration("for", 10*time.Second, "how long each of them counts")
	warm := flags.Duration("warm", 2*time.Second, "how long it goes on before that")
	on := flags.Int("on", 490, "the events a second of the burst, of the stall and of the baselines")
	burst := flags.Int("bursts", 1000, "how many more come at once in a burst")
	stall := flags.Duration("stall", 5*time.Second, "how long the store answers nothing")
	plot := flags.String("plot", "", "the file for a plot of the waits over the rates, as SVG")
	return func(r *run) {
		all := []traffic{
			{name: fmt.Sprint(*on, "/s, ", *burst, " at once"), rate: *on, burst: *burst},
			{name: fmt.Sprint(*on, "/s, a stall of ", *stall), rate: *on, stall: *stall},
			{name: fmt.Sprint(*on, "/s, HMAC and read alone"), rate: *on, shape: readAlone},
			{name: fmt.Sprint(*on, "/s, a typed decode too"), rate: *on, shape: decodeAlone},
		}
		steady := strings.Split(*rates, ",")
		for i, rate := range steady {
			all = slices.Insert(all, i, traffic{name: rate + "/s", rate: filetest.Must(strconv.Atoi(rate))(r)})
		}
		row := r.table("", "reached", "answer p50", "p99", "effect p50", "p90", "p99", "max",
			"429", "503", "nacks", "CPU an event", "lost", "doubled")
		found := make([][]time.Duration, len(all))
		for i, t := range all {
			t.warm, t.lasts = *warm, *lasts+t.stall
			r.part(t.name, func(r *run) { found[i] = t.measure(r, row) })
		}
		if *plot != "" {
			r.must(os.WriteFile(*plot, plotted(steady, found), 0o600))
		}
	}
}

// traffic is one measurement, with a burst or a stall of the store in the middle; shape names a baseline.
type traffic struct {
	name, shape        string
	rate, burst        int
	warm, lasts, stall time.Duration
}

const (
	readAlone, decodeAlone = "read", "decode"
	// soon is the p99 below which a stall is over.
	soon = 100 * time.Millisecond
)

// midst returns when the burst or the stall begins.
func (t traffic) midst() time.Duration { return t.warm + t.lasts/4 }

// schedule returns the time of each event.
func (t traffic) schedule() []time.Duration {
	due := slices.Repeat([]time.Duration{t.midst()}, t.burst)
	for at := time.Duration(0); at < t.warm+t.lasts; at += time.Second / time.Duration(t.rate) {
		due = append(due, at)
	}
	slices.Sort(due)
	return due
}

// standing describes the measured process: a baseline, or a whole Billhook whose store stalls once.
type standing struct {
	Shape, Store string
	Stall, After time.Duration
}

// standingVariable passes it as JSON to a child process of this program.
const standingVariable = "TRIAL_STANDING"

// stand runs the described process until the run's context ends.
func stand(r *run, described string) {
	s, log := filetest.JSON[standing](r, described), telemetry.NewLogger(os.Stdout, slog.LevelInfo)
	if s.Shape != "" {
		server := serve.Server{Name: "webhook", Log: log, Drain: time.Second, ReadTimeout: time.Minute}
		server.Longest, server.Handler = time.Minute, webhooktest.Baseline(e2e.Secret, s.Shape == decodeAlone)
		on, metrics := filetest.Both(serve.Ports{Host: "127.0.0.1", Service: "0"}.Listen(r.ctx))(r)
		r.must(server.Run(r.ctx, on, http.NotFoundHandler(), metrics))
		return
	}
	from := time.Now().Add(s.After)
	stalls := func(ctx context.Context, do func() error) error {
		if now := time.Now(); now.After(from) {
			e2e.Wait(ctx, s.Stall-now.Sub(from))
		}
		return do()
	}
	embed(r, devstack.Config{
		Catalog: catalogtest.Shipped(), StorePath: s.Store, TaskEvery: 10 * time.Second, Log: log,
		WrapStore: func(documents store.Store) store.Store {
			return &storetest.Faults{
				Store: documents, OnRead: func(do func() error) error { return stalls(r.ctx, do) },
				OnCommit: func(ctx context.Context, _ []store.Write, do func() error) error { return stalls(ctx, do) },
			}
		},
	})
	<-r.ctx.Done()
}

var listens = regexp.MustCompile(`"address":"([^"]+)","service":"webhook"`)

// begin starts the process, and returns a function that stops it and returns its processor time.
func (s standing) begin(b *billhook) (stop func() time.Duration) {
	program, described := filetest.Must(os.Executable())(b), filetest.Must(json.Marshal(s))(b)
	environment := []string{standingVariable + "=" + string(described), "TMPDIR=" + os.TempDir()}
	process := filetest.Must(e2e.Start(b.ctx, program, environment, &b.log))(b)
	b.Cleanup(process.Kill)
	b.until(time.Millisecond, func() string {
		at := listens.FindStringSubmatch(b.log.Text())
		b.webhookURL = "http://" + strings.Join(at[min(1, len(at)):], "")
		return unless(at != nil, "its webhook service")
	})
	return func() time.Duration {
		require.Zero(b, process.Stop(), "the code with which what is measured has ended")
		return process.CPU()
	}
}

// measure sends the scheduled events to a new process, and returns the waits until the effects.
func (t traffic) measure(r *run, row func(...any)) []time.Duration {
	b, d, due, want := &billhook{run: r}, newDrawing(r.seed), t.schedule(), map[string]int64{}
	orders, bodies := make([]e2e.Order, len(due)), make([][]byte, len(due))
	for i := range due {
		orders[i] = d.order(d.random.IntN(1000), e2e.Product)
		bodies[i] = orders[i].JSON()
		want[orders[i].UID] += points(orders[i])
	}
	of := standing{Shape: t.shape, Store: filepath.Join(r.TempDir(), "store.db"), After: t.midst()}
	var unloaded time.Duration
	for range 2 { // the first makes the store and its indexes, which must not count
		idle := of.begin(&billhook{run: r})
		e2e.Wait(r.ctx, t.warm)
		unloaded = idle()
	}
	of.Stall = t.stall
	stop, began, answered := of.begin(b), time.Now(), make([]time.Duration, len(due))
	var sending sync.WaitGroup
	for i := range due {
		at := began.Add(due[i])
		e2e.Wait(r.ctx, time.Until(at))
		sending.Go(func() {
			b.hook(orders[i].EventID, bodies[i])
			answered[i] = time.Since(at)
			b.sent.Store(orders[i].EventID, at)
		})
	}
	sending.Wait()
	took, wrong := answered, counts{}
	if t.shape == "" {
		ended := b.await(len(due))
		took = make([]time.Duration, len(due))
		for i := range due {
			took[i] = ended[orders[i].EventID].took
		}
	}
	used := stop() - unloaded
	if t.shape == "" {
		documents := filetest.Must(boltstore.Open(of.Store))(r)
		b.store = documents
		wrong = b.wrongPoints(want)
		r.must(documents.Close())
	}
	full, unavailable := r.seen["answered 429"], r.seen["answered 503"]
	nacks := len(slices.DeleteFunc(b.log.Deliveries(""), func(d e2e.Delivery) bool {
		return d.Message != "delivery" || d.Status < http.StatusMultipleChoices
	}))
	last, warm := time.Duration(0), 0
	for i := range due {
		last = max(last, due[i]+took[i])
		if due[i] < t.warm {
			warm++
		}
	}
	row(t.name, fmt.Sprintf("%.0f/s", float64(len(due))/last.Seconds()),
		within(answered[warm:], 50), within(answered[warm:], 99),
		within(took[warm:], 50), within(took[warm:], 90), within(took[warm:], 99), within(took[warm:], 100),
		full, unavailable, nacks, (used / time.Duration(len(due))).Round(10*time.Microsecond),
		wrong["lost"], wrong["doubled"])
	if t.stall > 0 {
		r.printf("%s: p99 was below %s again %s after it\n", t.name, soon, t.recovered(due, took))
	}
	if full > 0 || t.burst > 0 && unavailable > 0 || t.stall > 0 && nacks > 0 {
		r.broken("answered 429 %d, answered 503 %d, nacks %d", full, unavailable, nacks)
	}
	r.none(wrong)
	return took[warm:]
}

// recovered returns how long after the stall the last second with a p99 of soon or more ended.
func (t traffic) recovered(due, took []time.Duration) (after time.Duration) {
	seconds := map[time.Duration][]time.Duration{}
	for i := range due {
		if since := due[i] - t.midst() - t.stall; since >= 0 {
			seconds[since.Truncate(time.Second)] = append(seconds[since.Truncate(time.Second)], took[i])
		}
	}
	for second, all := range seconds {
		if within(all, 99) >= soon {
			after = max(after, second+time.Second)
		}
	}
	return after
}

// plotted draws percentiles of the waits by rate, as SVG.
func plotted(rates []string, found [][]time.Duration) []byte {
	b := bytes.NewBufferString(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 380">` +
		`<rect width="700" height="380" fill="white"/>` +
		`<text x="60" y="18">From webhook to effect, by events a second</text>`)
	x := func(i int) int { return 60 + 560*(2*i+1)/(2*len(rates)) }
	y := func(wait time.Duration) int { return 330 - int(75*math.Log10(max(1, wait.Seconds()*1000))) }
	for decade := time.Millisecond; decade <= 10*time.Second; decade *= 10 {
		fmt.Fprintf(b, "\n<path d='M60 %dH620' stroke='silver'/><text y='%[1]d'>%s</text>", y(decade), decade)
	}
	for _, line := range []struct {
		percent     int
		name, color string
	}{{50, "p50", "green"}, {90, "p90", "blue"}, {99, "p99", "darkorange"}, {100, "max", "red"}} {
		var points string
		for i, rate := range rates {
			points = fmt.Sprintf("%s %d,%d", points, x(i), y(within(found[i], line.percent)))
			fmt.Fprintf(b, "\n<text x='%d' y='354' text-anchor='middle'>%s</text>", x(i), rate)
		}
		last := len(rates) - 1
		fmt.Fprintf(b, "\n<polyline points='%s' fill='none' stroke='%s'/>", points, line.color)
		end := y(within(found[last], line.percent))
		fmt.Fprintf(b, "<text x='%d' y='%d' fill='%s'>%s</text>", x(last)+8, end, line.color, line.name)
	}
	return append(b.Bytes(), "\n</svg>\n"...)
}
