package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/e2e"
	"billhook/emulator"
	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

const siteProject = "trial"

// site is a Billhook as it is deployed: the real binaries, of the webhook service once, and of the worker twice, on
// Google's emulators.
type site struct {
	workers
	catalog  *catalog.Catalog
	webhook  *e2e.Process
	receiver *standin.Receiver
	store    store.Store
	// unanswered counts the pushes that a worker had in hand when it was killed.
	unanswered atomic.Int64
}

// open starts a site with the queues that run; none: all.
func open(r *run, queues ...string) *site {
	s := &site{}
	var err error
	s.catalog, err = catalogtest.Shipped().Only(queues)
	r.must(err)
	folder := r.TempDir()
	sdk, err := emulator.Find()
	r.must(err)
	r.must(e2e.Build(r.ctx, folder))
	broker, database, err := sdk.Start(r.ctx)
	r.must(err)
	r.Cleanup(func() { r.must(broker.Stop()); r.must(database.Stop()) })
	documents, err := firestore.NewEmulated(context.WithoutCancel(r.ctx), database.Addr(), siteProject, "")
	r.must(err)
	r.Cleanup(func() { r.must(documents.Close()) })
	s.store = documents
	s.receiver, err = standin.NewReceiver(standin.ServiceConfig{Secrets: []string{e2e.DeliverySecret}, Posts: s.catalog.Posts(""), Tolerance: 5 * time.Minute})
	r.must(err)
	targets, front := httptest.NewServer(s.receiver), httptest.NewServer(s.pushes())
	r.Cleanup(func() { s.receiver.Close(); targets.Close(); front.CloseClientConnections(); front.Close() })
	environment := append([]string{
		"HOST=127.0.0.1", "PORT=0", "METRICS_PORT=0", "GOOGLE_CLOUD_PROJECT=" + siteProject, "PUSH_AUTH=none",
		"WEBHOOK_SECRET_PAYNOW=" + e2e.Secret, "WEBHOOK_SIGNING_SECRET=" + e2e.Secret, "PATH=" + os.Getenv("PATH"), "HOME=" + folder,
		"PUBSUB_EMULATOR_HOST=" + broker.Addr(), "FIRESTORE_EMULATOR_HOST=" + database.Addr(), "QUEUES=" + strings.Join(queues, ","),
	}, e2e.TargetsAt(s.catalog, targets.URL)...)
	s.binary = filepath.Join(folder, "worker")
	s.begin(r, func(int) []string { return environment })
	r.must(e2e.Provisioned(siteProject, s.catalog)(r.ctx, broker.Addr(), front.URL))
	s.webhook, err = e2e.Start(r.ctx, filepath.Join(folder, "webhook"), environment, &s.log)
	r.must(err)
	r.Cleanup(s.webhook.Kill)
	return s
}

// pushes leads each push to a worker. A push whose worker dies is answered 502, as by Google's load balancer.
func (s *site) pushes() http.Handler {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 200
	return &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			to, _ := url.Parse(s.one().URL) // it has served there
			r.SetURL(to)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			s.unanswered.Add(1)
			w.WriteHeader(http.StatusBadGateway)
		},
	}
}

type counts map[string]int

// add counts so many more; of nothing there is nothing to say.
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
	var all []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		all = append(all, fmt.Sprintf("%s %d", name, c[name]))
	}
	return strings.Join(all, ", ")
}

// others says, from the workers' log, how deliveries were answered other than by success, by queue. What a killed worker
// had in hand it has not logged.
func (s *site) others() map[string]counts {
	found := map[string]counts{}
	for _, d := range s.log.Deliveries("") {
		if d.Outcome == "processed" {
			continue
		}
		if found[d.Queue] == nil {
			found[d.Queue] = counts{}
		}
		name := d.Reason
		switch {
		case d.Message == "attempt again":
			name += " (waited in its request)"
		case d.Outcome == "retry" && d.Status < http.StatusMultipleChoices:
			name += " (kept)"
		case d.Outcome == "retry":
			name += " (nacked)"
		}
		found[d.Queue][name]++
	}
	return found
}

func short(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
