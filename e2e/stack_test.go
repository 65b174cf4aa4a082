package e2e_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/emulator/emulatortest"
	"billhook/internal/compose/devstack"
	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/platform/telemetry"
)

func TestMain(m *testing.M) {
	// Parallel tests wait for other processes, not for a core of this one.
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	var err error
	if built, err = os.MkdirTemp("", "billhook-e2e-"); err != nil {
		panic(err)
	}
	code := emulatortest.Main(m)
	_ = os.RemoveAll(built) // it is a temporary one
	os.Exit(code)
}

var built string

// The folders of the commands: those of production, and the worker that a fail point can end.
var (
	program  = builds("program", "", "billhook/cmd/billhook")
	services = builds("services", "", "billhook/cmd/webhook", "billhook/cmd/worker")
	crashing = builds("crashing", "failpoints", "billhook/cmd/worker")
)

func builds(name, tag string, commands ...string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		folder := filepath.Join(built, name)
		return folder, e2e.Build(context.Background(), folder, tag, commands...)
	})
}

// operator returns the command line with these arguments, of an operator with this environment alone.
func operator(t *testing.T, environment []string, arguments ...string) *exec.Cmd {
	t.Helper()
	folder := filetest.Must(program())(t)
	ctx := context.WithoutCancel(t.Context()) // a cleanup may still need it
	command := exec.CommandContext(ctx, filepath.Join(folder, "billhook"), arguments...)
	command.Env = append([]string{"OPS_OPERATOR=ada", "HOME=" + folder}, environment...)
	return command
}

func billhook(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	said, err := operator(t, nil, arguments...).CombinedOutput()
	return string(said), err
}

type stack struct {
	webhookURL, workerURL string
	// opsURL serves people: the worker, unless a process of their own does.
	opsURL     string
	catalog    *catalog.Catalog
	serviceURL string // empty on the emulators
	log        *e2e.Log
	store      store.Store
	publish    func(ctx context.Context, topic string, m contract.Message) (string, error)
	published  func(t *testing.T) []contract.Message
	storeDown  func(down bool)
	brokerDown func(down bool)
	// service and gateway are the stand-ins of the subscription service and of the payment gateway.
	service *standin.Receiver
	gateway *standin.Gateway
	task    func(ctx context.Context, name string) (map[string]any, error)
	// storeFile is the file of the embedded store. close ends the embedded stack before its test ends.
	storeFile string
	close     func()

	seq atomic.Int64
}

func onlyInFull(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs without -short")
	}
}

// shortWaits returns a folder with the shipped catalog, with half a second between attempts, which doubles,
// breakers that the failures of all cases do not open, and more replacements.
func shortWaits(t *testing.T, pairs ...string) (folder string) {
	t.Helper()
	pairs = append(pairs, `jitter: "30s"`, `jitter: "0s"`, `schedule: ["0s", "5s", "30s"]`,
		`schedule: ["0s", "0.5s", "1s"]`, `maximum_backoff: "600s"`, `maximum_backoff: "1s"`,
		`maximum_backoff: "3600s"`, `maximum_backoff: "1s"`)
	for _, wait := range []string{"1s", "2s", "3s", "5s", "10s", "60s"} {
		pairs = append(pairs, fmt.Sprintf("minimum_backoff: %q", wait), `minimum_backoff: "0.5s"`)
	}
	return changedCatalog(t, pairs...)
}

func changedCatalog(t *testing.T, pairs ...string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	require.NoError(t, os.CopyFS(folder, os.DirFS(filepath.Join("..", "catalog"))))
	filetest.Replace(t, "breaker: { failures: 10,", "breaker: { failures: 1000,", folder, "targets.yaml")
	for i := 0; i < len(pairs); i += 2 {
		filetest.Replace(t, pairs[i], pairs[i+1], folder, "queues.yaml")
	}
	return folder
}

func loaded(t *testing.T, folder string, queues ...string) *catalog.Catalog {
	t.Helper()
	return filetest.Must(filetest.Must(catalog.Load(folder))(t).Only(queues))(t)
}

func startEmbedded(t *testing.T, c *catalog.Catalog, adds ...func(*devstack.Config)) *stack {
	t.Helper()
	log := &e2e.Log{}
	breaking := &storetest.Faults{}
	taps := map[string]*tappedPublisher{}
	config := devstack.Config{
		Catalog: c, ProjectID: "e2e", Secrets: map[string][]string{"paynow": {e2e.Secret}, "generic": {e2e.Secret}},
		Targets: map[string]devstack.Address{}, WebhookPort: "0", WorkerPort: "0",
		StorePath: filepath.Join(t.TempDir(), "store.db"), Log: telemetry.NewLogger(log, nil),
		WrapStore: func(s store.Store) store.Store { breaking.Store = s; return breaking },
		WrapPublisher: func(service string, p contract.Publisher) contract.Publisher {
			taps[service] = &tappedPublisher{Publisher: p}
			return taps[service]
		},
	}
	for name := range c.Targets {
		config.Targets[name] = devstack.Address{Secret: e2e.DeliverySecret}
	}
	for _, add := range adds {
		add(&config)
	}
	running := filetest.Must(devstack.Start(t.Context(), config))(t)
	closing := sync.OnceFunc(func() { require.NoError(t, running.Close()) })
	t.Cleanup(closing)
	return &stack{
		catalog: c, storeFile: config.StorePath, close: closing, serviceURL: running.ServiceURL,
		webhookURL: running.WebhookURL, workerURL: running.WorkerURL, opsURL: running.WorkerURL, log: log,
		store: running.Store, publish: running.Publisher.Publish,
		published: func(*testing.T) []contract.Message {
			return append(taps["webhook"].all(), taps["worker"].all()...)
		},
		service: running.Service, gateway: running.Gateway, task: running.Task,
		storeDown: breaking.Down, brokerDown: taps["webhook"].down.Store,
	}
}

type tappedPublisher struct {
	contract.Publisher
	down atomic.Bool

	mu       sync.Mutex
	messages []contract.Message
}

func (p *tappedPublisher) Publish(ctx context.Context, topic string, m contract.Message) (string, error) {
	if p.down.Load() {
		return "", fmt.Errorf("%w: %w", contract.ErrBrokerDown, storetest.ErrFault)
	}
	p.mu.Lock()
	p.messages = append(p.messages, m)
	p.mu.Unlock()
	return p.Publisher.Publish(ctx, topic, m)
}

func (p *tappedPublisher) all() []contract.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.messages)
}

// patience bounds every wait of a case.
const patience = 90 * time.Second

// pollInterval is for waits on a store or a broker: each read is expensive for an emulator.
const pollInterval = 200 * time.Millisecond

// orderOf returns an order of two of the product worth 1000, by a customer of its own.
func orderOf(id string) e2e.Order {
	return e2e.Order{
		EventID: id, OrderID: id + "2", CustomerID: id + "3", UID: "uid-" + id,
		Lines: []e2e.Line{{Product: e2e.Product, Quantity: 2, Price: 1000}},
	}
}

func (s *stack) newOrder() e2e.Order {
	return orderOf(fmt.Sprint(700000000000000000 + s.seq.Add(1)*100))
}

func (s *stack) accepted(t *testing.T, body []byte) (answer e2e.Answer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, filetest.ErrorOf(e2e.UntilAccepted(ctx, func() (_ e2e.Answer, err error) {
		answer, err = e2e.Send(ctx, s.webhookURL, body)
		return answer, err
	})))
	return answer
}

func (s *stack) signed(t *testing.T, to, body string) e2e.Answer {
	t.Helper()
	return filetest.Must(e2e.Produce(t.Context(), s.webhookURL, to, []byte(body)))(t)
}

func envelope(id, action, payload, more string) string {
	const form = `{"id":%q,"action":%q,"created_at":"2026-03-01T12:00:00Z",%s"payload":%s}`
	return fmt.Sprintf(form, id, action, more, payload)
}

func platformEvent(id, eventType, data string) string {
	const form = `{"id":%q,"type":%q,"timestamp":"2026-03-01T12:00:00Z","version":1,"data":%s}`
	return fmt.Sprintf(form, id, eventType, data)
}

// as calls the API as a person, and decodes the answer, unless that is nil.
func (s *stack) as(t *testing.T, who, method, path string, question, answer any) e2e.Answer {
	t.Helper()
	got := filetest.Must(e2e.Ask(t.Context(), s.opsURL, who, method, path, question))(t)
	require.Less(t, got.Status, http.StatusMultipleChoices, "%s: %s", path, got.Body)
	if answer != nil {
		require.NoError(t, json.Unmarshal([]byte(got.Body), answer))
	}
	return got
}

func (s *stack) ask(t *testing.T, method, path string, question, answer any) {
	t.Helper()
	s.as(t, "ada", method, path, question, answer)
}

func (s *stack) until(t *testing.T, eventID, outcome string) []e2e.Delivery {
	t.Helper()
	has := func(d e2e.Delivery) bool { return d.Outcome == outcome }
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		deliveries := s.log.Deliveries(eventID)
		require.True(c, slices.ContainsFunc(deliveries, has), "%s: not %s: %v", eventID, outcome, deliveries)
	}, patience, 10*time.Millisecond)
	return s.log.Deliveries(eventID)
}

func (s *stack) processed(of []string) (ids []string) {
	for _, d := range s.log.Deliveries("") {
		if d.Outcome == "processed" && slices.Contains(of, d.EventID) {
			ids = append(ids, d.EventID)
		}
	}
	return ids
}

func (s *stack) balance(t *testing.T, uid string) int64 {
	t.Helper()
	return filetest.Must(e2e.Points(t.Context(), s.store, uid))(t)
}

func (s *stack) recordOf(t *testing.T, queue, id string) dedupe.Record {
	t.Helper()
	doc := filetest.Must(store.Find(t.Context(), s.store, dedupe.Key(queue, dedupe.DefaultTenant, id)))(t)
	if doc.Version == 0 {
		return dedupe.Record{}
	}
	return filetest.Must(dedupe.FromDocument(doc))(t)
}

func (s *stack) status(t *testing.T, eventID string) string {
	t.Helper()
	return string(s.recordOf(t, e2e.Queue, eventID).Status)
}

func (s *stack) ends(t *testing.T, queue, id string) (record dedupe.Record) {
	t.Helper()
	require.Eventually(t, func() bool {
		record = s.recordOf(t, queue, id)
		return record.Status == dedupe.Completed || record.Status == dedupe.DeadLettered
	}, patience, pollInterval, "%s %s", queue, id)
	return record
}

func (s *stack) deadLetter(t *testing.T, queue, eventID string) deadletter.Item {
	t.Helper()
	var found console.List[deadletter.Item]
	path := "/v1/ops/dead-letters?queue=" + queue + "&event_id=" + eventID
	require.Eventually(t, func() bool {
		s.ask(t, http.MethodGet, path, nil, &found)
		return len(found.Items) > 0
	}, patience, pollInterval)
	require.Len(t, found.Items, 1)
	return found.Items[0]
}
