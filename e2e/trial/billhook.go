package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/e2e"
	"billhook/emulator"
	"billhook/internal/compose/devstack"
	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/telemetry"
)

// billhook is a whole one, which a trial sends to.
type billhook struct {
	*run
	webhookURL string
	store      store.Store
	log        e2e.Log
	// refusals counts the requests that the webhook service has refused before it has accepted them.
	refusals atomic.Int64

	mu   sync.Mutex
	sent map[string]time.Time
}

func (b *billhook) note(id string, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sent == nil {
		b.sent = map[string]time.Time{}
	}
	b.sent[id] = at
}

// send sends one event's request until it is accepted.
func (b *billhook) send(id string, post func() (e2e.Answer, error)) {
	sent, refused, err := e2e.UntilAccepted(b.ctx, post)
	b.refusals.Add(int64(refused))
	require.NoError(b, err, "event %s", id)
	b.note(id, sent)
}

// hook sends PayNow's webhook of an event.
func (b *billhook) hook(id string, body []byte) {
	b.send(id, func() (e2e.Answer, error) { return e2e.Send(b.ctx, b.webhookURL, body) })
}

// end is what became of one event: how often it was processed, and how long it took to its first end, which
// may be that of a dead letter.
type end struct {
	processed int
	took      time.Duration
}

// ends are those of all that was sent, and how many deliveries were not acknowledged.
func (b *billhook) ends() (ended map[string]end, nacked int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ended = map[string]end{}
	for _, d := range b.log.Deliveries("") {
		if d.Status >= http.StatusMultipleChoices {
			nacked++
		}
		sent, ours := b.sent[d.EventID] // or it was emitted
		processed := d.Outcome == "processed"
		if !ours || !processed && d.Outcome != "dead_lettered" {
			continue
		}
		of, again := ended[d.EventID]
		if !again {
			of.took = d.Time.Sub(sent)
		}
		if processed {
			of.processed++
		}
		ended[d.EventID] = of
	}
	return ended, nacked
}

// await waits until so many of the events that were sent have come to their end.
func (b *billhook) await(many int) (ended map[string]end, nacked int) {
	b.until("ends", func() bool {
		ended, nacked = b.ends()
		return len(ended) >= many
	})
	return ended, nacked
}

// wrongPoints counts the customers who have other points than they should.
func (b *billhook) wrongPoints(want map[string]int64) counts {
	wrong := counts{}
	for uid, points := range want {
		have, err := e2e.Points(b.ctx, b.store, uid)
		b.must(err)
		switch {
		case have < points:
			wrong.add("customers with too few points", 1)
		case have > points:
			wrong.add("customers with too many points", 1)
		}
	}
	return wrong
}

// embedded is one in this process, on the stand-ins or, where its config says so, on Google's emulators.
type embedded struct {
	billhook
	*devstack.Stack
}

// embed starts one until the end of the run, or of its part. What it does not know of its config it fills in.
func embed(r *run, config devstack.Config) *embedded {
	e := &embedded{billhook: billhook{run: r}}
	config.ProjectID, config.WebhookPort, config.WorkerPort, config.ServicePort = project, "0", "0", "0"
	config.Secrets = map[string][]string{"paynow": {e2e.Secret}, "generic": {e2e.Secret}}
	config.StorePath, config.Log = filepath.Join(r.TempDir(), "store.db"), telemetry.NewLogger(&e.log, nil)
	var err error
	e.Stack, err = devstack.Start(r.ctx, config)
	r.must(err)
	r.Cleanup(func() {
		if err := e.Close(); !errors.Is(err, context.DeadlineExceeded) { // what hangs at a target that means harm
			r.must(err)
		}
	})
	e.webhookURL, e.store = e.WebhookURL, e.Store
	return e
}

const project = "trial"

// deployed is one as it is deployed: the real binaries, of the webhook service once, and of the worker twice,
// on Google's emulators.
type deployed struct {
	billhook
	workers
	catalog  *catalog.Catalog
	receiver *standin.Receiver
	// unanswered counts the pushes that a worker had in hand when it was killed.
	unanswered atomic.Int64
}

// deploy starts one with the queues that run; none: all.
func deploy(r *run, queues ...string) *deployed {
	d := &deployed{billhook: billhook{run: r}}
	var err error
	d.catalog, err = catalogtest.Shipped().Only(queues)
	r.must(err)
	folder := r.TempDir()
	r.must(e2e.Build(r.ctx, folder, ""))
	broker, database := r.emulated(emulator.SDK.StartPubSub), r.emulated(emulator.SDK.StartFirestore)
	d.store = r.documents(database)
	d.receiver, err = standin.NewReceiver(standin.ServiceConfig{
		Secrets: []string{e2e.DeliverySecret}, Posts: d.catalog.Posts(""), Tolerance: 5 * time.Minute,
	})
	r.must(err)
	targets, front := httptest.NewServer(d.receiver), httptest.NewServer(d.pushes())
	r.Cleanup(func() { d.receiver.Close(); targets.Close(); front.CloseClientConnections(); front.Close() })
	environment := append(e2e.Environment(project, d.catalog, queues, targets.URL),
		"HOME="+folder, "PUBSUB_EMULATOR_HOST="+broker, "FIRESTORE_EMULATOR_HOST="+database)
	d.begin(r, filepath.Join(folder, "worker"), &d.log, func(int) []string { return environment })
	r.must(e2e.Provision(r.ctx, project, d.catalog, broker, front.URL))
	webhook, err := e2e.Start(r.ctx, filepath.Join(folder, "webhook"), environment, &d.log)
	r.must(err)
	r.Cleanup(webhook.Kill)
	d.webhookURL = webhook.URL
	return d
}

// emulated starts one of Google's emulators until the end of the run, and returns its address.
func (r *run) emulated(start func(emulator.SDK, context.Context) (*emulator.Process, error)) string {
	sdk, err := emulator.Find()
	r.must(err)
	process, err := start(sdk, r.ctx)
	r.must(err)
	r.Cleanup(func() { r.must(process.Stop()) })
	return process.Addr()
}

// documents are those of the trial's project on Firestore's emulator.
func (r *run) documents(database string) store.Store {
	documents, err := firestore.NewEmulated(context.WithoutCancel(r.ctx), database, project, "")
	r.must(err)
	r.Cleanup(func() { r.must(documents.Close()) })
	return documents
}

// pushes leads each push to a worker. A push whose worker dies is answered 502, as by Google's load balancer.
func (d *deployed) pushes() http.Handler {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 200
	return &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			to, _ := url.Parse(d.one().URL) // it has served there
			r.SetURL(to)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			d.unanswered.Add(1)
			w.WriteHeader(http.StatusBadGateway)
		},
	}
}

// others says, from the workers' log, how deliveries were answered other than by success, by queue. What a
// killed worker had in hand it has not logged.
func (d *deployed) others() map[string]counts {
	found := map[string]counts{}
	for _, line := range d.log.Deliveries("") {
		name := line.Reason
		switch {
		case line.Outcome == "processed":
			continue
		case line.Message == "attempt again":
			name += " (waited in its request)"
		case line.Outcome == "retry" && line.Status < http.StatusMultipleChoices:
			name += " (kept)"
		case line.Outcome == "retry":
			name += " (nacked)"
		}
		if found[line.Queue] == nil {
			found[line.Queue] = counts{}
		}
		found[line.Queue].add(name, 1)
	}
	return found
}
