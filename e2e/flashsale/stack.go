package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/emulator"
	"billhook/internal/apps/notifications"
	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

const project = "flashsale"

// taker is the handler of new orders.
const taker = "orders.create"

// What production takes for a call: the whole of it, there and back.
const (
	commitTime  = 20 * time.Millisecond
	publishTime = 30 * time.Millisecond
)

func readTime() time.Duration { return 5*time.Millisecond + rand.N(5*time.Millisecond) }

// place is where the services keep and publish.
type place struct {
	// broker and database are addresses as the emulators' variables take them.
	broker, database string
	// store is the same database, without the way there.
	store store.Store
	// pushTo provisions the queues, with pushes to a URL.
	pushTo  func(ctx context.Context, url string) error
	closers []func() error
}

func (p *place) close() error {
	var errs []error
	for _, c := range slices.Backward(p.closers) {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// simulated is the stand-ins, as far away as production's services.
func simulated(ctx context.Context, folder string) (_ *place, err error) {
	p := &place{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	runs, err := declared()
	if err != nil {
		return nil, err
	}
	file, err := standin.OpenTemporaryStore(filepath.Join(folder, "store.db"))
	if err != nil {
		return nil, err
	}
	p.store, p.closers = file, append(p.closers, file.Close)
	database, err := standin.NewDatabase(ctx, &standin.Distant{
		Store: file, CommitTime: func() time.Duration { return commitTime }, ReadTime: readTime, After: time.After,
	})
	if err != nil {
		return nil, err
	}
	p.closers = append(p.closers, func() error { database.Close(); return nil })
	enabled := slices.DeleteFunc(slices.Clone(runs.Queues), func(q catalog.Queue) bool { return !q.Enabled })
	broker, err := standin.NewBroker(standin.SimulatorConfig{ProjectID: project, Subscriptions: standin.Topology(enabled), Topics: runs.OtherTopics()})
	if err != nil {
		return nil, err
	}
	p.closers = append(p.closers, broker.Close)
	way, err := newWay(ctx, broker.Addr(), publishTime/2, time.After)
	if err != nil {
		return nil, err
	}
	p.closers = append(p.closers, func() error { way.close(); return nil })
	p.broker, p.database = way.addr(), database.Addr()
	p.pushTo = func(_ context.Context, url string) error { broker.PushTo(url); return nil }
	return p, nil
}

// emulated is Google's emulators.
func emulated(ctx context.Context, _ string) (*place, error) {
	runs, err := declared()
	if err != nil {
		return nil, err
	}
	sdk, err := emulator.Find(ctx)
	if err != nil {
		return nil, err
	}
	broker, database, err := sdk.Start(ctx)
	if err != nil {
		return nil, err
	}
	p := &place{broker: broker.Addr(), database: database.Addr(), closers: []func() error{broker.Stop, database.Stop}}
	documents, err := firestore.NewEmulated(context.WithoutCancel(ctx), database.Addr(), project, "")
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	p.store, p.closers = documents, append(p.closers, documents.Close)
	p.pushTo = func(ctx context.Context, url string) error {
		return e2e.Provisioned(project, runs)(ctx, p.broker, url)
	}
	return p, nil
}

// declared is the shipped catalog of the queues that run: that of the orders, and those that tell
// their buyers.
func declared() (*catalog.Catalog, error) {
	c, err := catalog.Load("")
	if err != nil {
		return nil, err
	}
	var ids []string
	send, _ := c.EmitsTo(notifications.FanOut)
	for _, handler := range []string{taker, notifications.FanOut} {
		q, _ := c.HandledBy(handler)
		ids = append(ids, q.ID)
	}
	return c.Only(append(ids, send.ID))
}

// enabled are the ids of the queues that run.
func enabled(c *catalog.Catalog) (ids []string) {
	for _, q := range c.Queues {
		if q.Enabled {
			ids = append(ids, q.ID)
		}
	}
	return ids
}

// stack is a Billhook of a door and two workers.
type stack struct {
	*place

	folder      string
	log         *e2e.Log
	door        *e2e.Process
	environment []string
	// workers are those that run; nil: one that is started again.
	workers [2]atomic.Pointer[e2e.Process]
	kills   int
	// next chooses the worker of the next push.
	next atomic.Uint64
	// unanswered counts the pushes that a worker had in hand when it was killed.
	unanswered atomic.Int64
	// front is the address that the queues push to.
	front *httptest.Server
	// receiver takes the notifications, at buyers.
	receiver *standin.Receiver
	buyers   *httptest.Server
}

func start(ctx context.Context, open func(context.Context, string) (*place, error)) (s *stack, err error) {
	s = &stack{log: &e2e.Log{}}
	if s.folder, err = os.MkdirTemp("", "billhook-flashsale-"); err != nil {
		return nil, err
	}
	if err := s.start(ctx, open); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *stack) start(ctx context.Context, open func(context.Context, string) (*place, error)) error {
	if err := e2e.Build(ctx, s.folder); err != nil {
		return err
	}
	runs, err := declared()
	if err != nil {
		return err
	}
	if s.place, err = open(ctx, s.folder); err != nil {
		return err
	}
	if s.receiver, err = standin.NewReceiver(standin.ReceiverConfig{Secrets: []string{e2e.DeliverySecret}, Posts: runs.Posts(""), Tolerance: 5 * time.Minute}); err != nil {
		return err
	}
	s.buyers, s.front = httptest.NewServer(s.receiver), httptest.NewServer(s.pushes())
	s.environment = append([]string{
		"HOST=127.0.0.1", "PORT=0", "METRICS_PORT=0", "GOOGLE_CLOUD_PROJECT=" + project, "PUSH_AUTH=none",
		"WEBHOOK_SECRET_PAYNOW=" + e2e.Secret, "WEBHOOK_SIGNING_SECRET=" + e2e.Secret, "PATH=" + os.Getenv("PATH"), "HOME=" + s.folder,
		"PUBSUB_EMULATOR_HOST=" + s.broker, "FIRESTORE_EMULATOR_HOST=" + s.database, "QUEUES=" + strings.Join(enabled(runs), ","),
	}, e2e.TargetsAt(s.buyers.URL)...)
	for i := range s.workers {
		if err := s.work(ctx, i); err != nil {
			return err
		}
	}
	if err := s.pushTo(ctx, s.front.URL); err != nil {
		return err
	}
	s.door, err = e2e.Start(ctx, filepath.Join(s.folder, "webhook"), s.environment, s.log)
	return err
}

// work starts a worker.
func (s *stack) work(ctx context.Context, i int) error {
	process, err := e2e.Start(ctx, filepath.Join(s.folder, "worker"), s.environment, s.log)
	if err != nil {
		return fmt.Errorf("worker %d: %w", i+1, err)
	}
	s.workers[i].Store(process)
	return nil
}

// kill ends a worker with SIGKILL, in turn, and starts it again.
func (s *stack) kill(ctx context.Context) error {
	i := s.kills % len(s.workers)
	process := s.workers[i].Swap(nil) // no new push goes to it
	process.Kill()
	s.kills++
	return s.work(ctx, i)
}

// worker is one that runs, in turn.
func (s *stack) worker() *e2e.Process {
	for range s.workers {
		if process := s.workers[s.next.Add(1)%uint64(len(s.workers))].Load(); process != nil {
			return process
		}
	}
	return nil
}

// pushes leads each push to a worker. A push whose worker dies is answered 502, as by Google's load
// balancer.
func (s *stack) pushes() http.Handler {
	type chosen struct{}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 200
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			to, _ := r.In.Context().Value(chosen{}).(*url.URL)
			r.SetURL(to)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			s.unanswered.Add(1)
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		process := s.worker()
		if process == nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		to, err := url.Parse(process.URL)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), chosen{}, to)))
	})
}

func (s *stack) close() error {
	for i := range s.workers {
		if process := s.workers[i].Load(); process != nil {
			process.Kill()
		}
	}
	if s.door != nil {
		s.door.Kill()
	}
	var err error
	if s.place != nil {
		err = s.place.close()
	}
	if s.front != nil {
		s.front.CloseClientConnections()
		s.front.Close()
	}
	if s.receiver != nil {
		s.receiver.Close()
	}
	if s.buyers != nil {
		s.buyers.Close()
	}
	return errors.Join(err, os.RemoveAll(s.folder))
}

// way is a TCP proxy on which every byte travels for a while, in both directions.
type way struct {
	listener net.Listener
	target   string
	long     time.Duration
	after    func(time.Duration) <-chan time.Time

	mu    sync.Mutex
	conns map[net.Conn]bool
	ends  sync.WaitGroup
}

func newWay(ctx context.Context, target string, long time.Duration, after func(time.Duration) <-chan time.Time) (*way, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &way{listener: listener, target: target, long: long, after: after, conns: map[net.Conn]bool{}}
	w.ends.Go(w.accept)
	return w, nil
}

func (w *way) addr() string { return w.listener.Addr().String() }

func (w *way) accept() {
	for {
		from, err := w.listener.Accept()
		if err != nil {
			return // closed
		}
		to, err := net.Dial("tcp", w.target) //nolint:noctx // ends with close
		if err != nil {
			_ = from.Close()
			continue
		}
		w.mu.Lock()
		w.conns[from], w.conns[to] = true, true
		w.mu.Unlock()
		w.ends.Go(func() { w.carry(from, to) })
		w.ends.Go(func() { w.carry(to, from) })
	}
}

// carry copies bytes, each chunk a while after it came. Chunks travel at the same time.
func (w *way) carry(from, to net.Conn) {
	type chunk struct {
		bytes []byte
		there <-chan time.Time
	}
	road := make(chan chunk, 10_000)
	w.ends.Go(func() {
		defer close(road)
		for {
			bytes := make([]byte, 32<<10)
			n, err := from.Read(bytes)
			if n > 0 {
				road <- chunk{bytes[:n], w.after(w.long)}
			}
			if err != nil {
				return
			}
		}
	})
	for c := range road {
		<-c.there
		if _, err := to.Write(c.bytes); err != nil {
			break
		}
	}
	_, _ = from.Close(), to.Close()
	for range road {
	}
	w.mu.Lock()
	delete(w.conns, from)
	delete(w.conns, to)
	w.mu.Unlock()
}

func (w *way) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	for c := range w.conns {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.ends.Wait()
}
