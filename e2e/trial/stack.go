package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/e2e"
	"billhook/emulator"
	"billhook/internal/compose/devstack"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/boltstore"
	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/telemetry"
)

// billhook is a whole Billhook under trial.
type billhook struct {
	*run
	webhookURL string
	store      store.Store
	log        e2e.Log
	// sent has the sending time of each event, by its id.
	sent sync.Map
}

// send posts an event until it is accepted.
func (b *billhook) send(id string, post func() (e2e.Answer, error)) {
	sent, err := e2e.UntilAccepted(b.ctx, func() (e2e.Answer, error) {
		answer, err := post()
		b.saw(fmt.Sprint("answered ", answer.Status))
		return answer, err
	})
	require.NoError(b, err, "event %s", id)
	b.sent.Store(id, sent)
}

// hook sends an event like PayNow.
func (b *billhook) hook(id string, body []byte) {
	b.send(id, func() (e2e.Answer, error) { return e2e.Send(b.ctx, b.webhookURL, body) })
}

// end is how often an event was processed, and the time until it first was processed or dead-lettered.
type end struct {
	processed int
	took      time.Duration
}

// within returns a percentile.
func within(took []time.Duration, percent int) time.Duration {
	return slices.Sorted(slices.Values(took))[percent*(len(took)-1)/100].Round(10 * time.Microsecond)
}

// ends returns the ends of all sent events, by event id.
func (b *billhook) ends() map[string]end {
	ended := map[string]end{}
	for _, d := range b.log.Deliveries("") {
		sent, ours := b.sent.Load(d.EventID) // otherwise a handler has emitted it
		if !ours || d.Outcome != "processed" && d.Outcome != "dead_lettered" {
			continue
		}
		of, again := ended[d.EventID]
		if !again {
			of.took = d.Time.Sub(sent.(time.Time))
		}
		if d.Outcome == "processed" {
			of.processed++
		}
		ended[d.EventID] = of
	}
	return ended
}

// await waits until this many of the sent events have ended.
func (b *billhook) await(many int) (ended map[string]end) {
	b.until(time.Second/2, func() string {
		ended = b.ends()
		return unless(len(ended) >= many, "the ends of %d events of %d", many-len(ended), many)
	})
	return ended
}

// printFailures prints the number of failed deliveries by queue, reason and answer.
func (b *billhook) printFailures() {
	found := counts{}
	for _, line := range b.log.Deliveries("") {
		if line.Outcome != "processed" {
			found.add(fmt.Sprintf("%s %s (%s %d)", line.Queue, line.Reason, line.Message, line.Status), 1)
		}
	}
	b.printf("deliveries that did not succeed: %s\n", found)
}

// wrongPoints counts pieces whose points were not credited, and pieces whose points were credited twice.
func (b *billhook) wrongPoints(want map[string]int64) counts {
	wrong := counts{}
	for uid, points := range want {
		have := filetest.Must(e2e.Points(b.ctx, b.store, uid))(b)
		wrong.add("lost", int(max(0, points-have)/e2e.PointsPerPiece))
		wrong.add("doubled", int(max(0, have-points)/e2e.PointsPerPiece))
	}
	return wrong
}

// message returns the message that is published for a body, under an ordering key.
func (r *run) message(body contract.Body, key string) contract.Message {
	data := filetest.Must(body.Append(nil))(r)
	attributes := body.Attributes()
	attributes.OrderingKey = key
	return contract.Message{Data: data, OrderingKey: key, Attributes: attributes.Map()}
}

// embedded is a Billhook in this process, on the stand-ins or, if configured, on Google's emulators.
type embedded struct {
	billhook
	*devstack.Stack
}

// embed starts a Billhook with defaults for missing settings. It ends with the run, or the part of it.
func embed(r *run, config devstack.Config) *embedded {
	e := &embedded{billhook: billhook{run: r}}
	config.ProjectID, config.WebhookPort, config.WorkerPort, config.ServicePort = project, "0", "0", "0"
	config.Secrets = map[string][]string{"paynow": {e2e.Secret}, "generic": {e2e.Secret}}
	config.StorePath = cmp.Or(config.StorePath, filepath.Join(r.TempDir(), "store.db"))
	config.Log = cmp.Or(config.Log, telemetry.NewLogger(&e.log, nil))
	e.Stack = filetest.Must(devstack.Start(r.ctx, config))(r)
	r.Cleanup(func() {
		if err := e.Close(); !errors.Is(err, context.DeadlineExceeded) { // a request may hang at a hostile target
			r.must(err)
		}
	})
	e.webhookURL, e.store = e.WebhookURL, e.Store
	return e
}

// posted returns the times of the posts to the targets' stand-in, by idempotency key.
func (e *embedded) posted() map[string][]time.Time {
	at := map[string][]time.Time{}
	for _, d := range e.Service.Deliveries() {
		at[d.Key] = append(at[d.Key], d.At)
	}
	return at
}

// temporary returns an embedded store that does not sync each commit.
func (r *run) temporary() store.Store {
	db := filetest.Must(boltstore.OpenTemporary(filepath.Join(r.TempDir(), "temporary.db")))(r)
	r.Cleanup(func() { r.must(db.Close()) })
	return db
}

const project = "trial"

// deployed has the real binaries on Google's emulators: one webhook service and two workers.
type deployed struct {
	billhook
	workers
	catalog  *catalog.Catalog
	receiver *standin.Receiver
}

// deploy starts the binaries with these queues enabled; none given: all.
func deploy(r *run, queues ...string) *deployed {
	d := &deployed{billhook: billhook{run: r}}
	d.catalog = filetest.Must(catalogtest.Shipped().Only(queues))(r)
	folder := r.TempDir()
	r.must(e2e.Build(r.ctx, folder, "", "billhook/cmd/webhook", "billhook/cmd/worker"))
	broker, database := r.emulated(emulator.SDK.StartPubSub), r.emulated(emulator.SDK.StartFirestore)
	d.store = r.documents(database)
	d.receiver = filetest.Must(standin.NewReceiver(standin.ServiceConfig{
		Secrets: []string{e2e.DeliverySecret}, Posts: d.catalog.Posts(""), Tolerance: 5 * time.Minute,
	}))(r)
	targets := httptest.NewServer(d.receiver)
	r.Cleanup(func() { d.receiver.Close(); targets.Close() })
	environment := append(e2e.Environment(project, "", d.catalog, queues, targets.URL),
		"HOME="+folder, "PUBSUB_EMULATOR_HOST="+broker, "FIRESTORE_EMULATOR_HOST="+database)
	d.begin(r, filepath.Join(folder, "worker"), &d.log, func(int) []string { return environment })
	r.must(e2e.Provision(r.ctx, pubsub.Names{ProjectID: project}, d.catalog, broker, d.front(0)))
	webhook := filetest.Must(e2e.Start(r.ctx, filepath.Join(folder, "webhook"), environment, &d.log))(r)
	r.Cleanup(webhook.Kill)
	d.webhookURL = webhook.URL
	return d
}

// emulated starts one of Google's emulators, which stops when the run ends, and returns its address.
func (r *run) emulated(start func(emulator.SDK, context.Context) (*emulator.Process, error)) string {
	sdk := filetest.Must(emulator.Find())(r)
	process := filetest.Must(start(sdk, r.ctx))(r)
	r.Cleanup(func() { r.must(process.Stop()) })
	return process.Addr()
}

// documents opens the trial's project on Firestore's emulator.
func (r *run) documents(database string) store.Store {
	documents := filetest.Must(firestore.NewEmulated(context.WithoutCancel(r.ctx), database, project, ""))(r)
	r.Cleanup(func() { r.must(documents.Close()) })
	return documents
}

// workers are two processes on one store and broker. One at a time is killed and restarted at a new address.
type workers struct {
	of    *run
	start func(i int)
	both  [2]atomic.Pointer[e2e.Process]
	// kills and next choose the worker for the next kill and the next request; both alternate.
	kills int
	next  atomic.Uint64
}

// begin starts both workers, each with its own environment. They end with the run.
func (ws *workers) begin(r *run, binary string, output *e2e.Log, environment func(i int) []string) {
	ws.of = r
	ws.start = func(i int) {
		process := filetest.Must(e2e.Start(r.ctx, binary, environment(i), output))(r)
		r.Cleanup(process.Kill)
		ws.both[i].Store(process)
	}
	for i := range ws.both {
		ws.start(i)
	}
}

// one returns a running worker. The two alternate, except while one of them starts.
func (ws *workers) one() (process *e2e.Process) {
	for process == nil {
		process = ws.both[ws.next.Add(1)%2].Load()
	}
	return process
}

// front forwards each push to a worker, and answers 502 if the worker dies, like Google's load balancer. With
// forgets, about half of the requests may continue for that long, even after the broker has given up.
func (ws *workers) front(forgets time.Duration) (url string) {
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		ctx := r.Context()
		if forgets > 0 && rand.IntN(2) == 0 {
			later, end := context.WithTimeout(context.WithoutCancel(ctx), forgets)
			defer end()
			ctx = later
		}
		answer, err := e2e.Do(e2e.Request(ctx, http.MethodPost, ws.one().URL+r.URL.Path, body, nil))
		ws.of.saw("pushes")
		switch {
		case err != nil:
			ws.of.saw("pushes without an answer")
			answer.Status = http.StatusBadGateway
		case answer.Status >= http.StatusMultipleChoices:
			ws.of.saw("pushes refused")
		}
		w.WriteHeader(answer.Status)
	}))
	ws.of.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	return front.URL
}

// about returns a duration that is at random up to a third shorter or longer.
func about(random *rand.Rand, long time.Duration) time.Duration {
	return time.Duration(float64(long) * (2 + 2*random.Float64()) / 3)
}

// kill ends one of the workers with SIGKILL, and restarts it at once.
func (ws *workers) kill() {
	i := ws.kills % 2
	ws.both[i].Swap(nil).Kill() // Swap keeps new pushes from it
	ws.kills++
	ws.of.saw("kills -9")
	ws.start(i)
}

func (ws *workers) rage(ctx context.Context, every time.Duration) {
	for random := rand.New(rand.NewPCG(ws.of.seed, 10)); every > 0 && e2e.Wait(ctx, about(random, every)); {
		ws.kill()
	}
}

// freeze pauses a worker about every three seconds, longer than chaos' lease.
func (ws *workers) freeze(ctx context.Context) {
	for random := rand.New(rand.NewPCG(ws.of.seed, 11)); e2e.Wait(ctx, about(random, 3*time.Second)); {
		ws.one().Freeze(ctx, about(random, 500*time.Millisecond))
		ws.of.saw("freezes")
	}
}

// relay calls a worker's tasks, like Cloud Scheduler. It ignores failed calls, since later ones follow.
func (ws *workers) relay(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	url := ws.one().URL
	for _, task := range []string{"/tasks/relay-outbox", tasks.ReleasePath, "/tasks/seal-journal"} {
		_, _ = e2e.Do(e2e.Request(ctx, http.MethodPost, url+task, nil, nil))
	}
}

func (ws *workers) schedule(ctx context.Context, every time.Duration) {
	for e2e.Wait(ctx, every) {
		ws.relay(ctx)
	}
}

// settle waits until all is done and no message waits, and stops both workers, so that no effect follows.
func (ws *workers) settle(documents store.Store, missing func() string) {
	r := ws.of
	waiting := func(kind lane.Kind) string {
		n := len(everything(r, documents, kind.Entries(), whole))
		return unless(n == 0, "%d messages of %s", n, kind.Entries())
	}
	r.until(500*time.Millisecond, func() string {
		// A message is published before it leaves its lane, and acknowledged only after it is in a lane.
		what := cmp.Or(missing(), waiting(lane.Outbox), waiting(lane.Delayed), missing())
		if what != "" {
			ws.relay(r.ctx)
		}
		return what
	})
	for i := range ws.both {
		if code := ws.both[i].Load().Stop(); code != 0 {
			r.Fatalf("worker %d has ended with code %d", i+1, code)
		}
	}
}
