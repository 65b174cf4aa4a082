package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/emulator/emulatortest"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/apps/usage"
	"billhook/internal/compose/devstack"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
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
	remove, err := e2e.KeepBuilds()
	if err != nil {
		panic(err)
	}
	code := emulatortest.Main(m)
	_ = errors.Join(remove(), removeProgram()) // the folders are temporary ones anyway
	os.Exit(code)
}

// stack is a running Billhook for the cases.
type stack struct {
	webhookURL, workerURL string
	// serviceURL is where the stand-ins are that are called; empty on the emulators.
	serviceURL  string
	log         *e2e.Log
	store       store.Store
	publish     func(ctx context.Context, topic string, m contract.Message) (string, error)
	published   func(t *testing.T) []contract.Message
	deadLetters func(t *testing.T) []contract.Message
	storeDown   func(down bool)
	brokerDown  func(down bool)
	// crash runs send and kills the worker during the event's commit, before the commit has
	// reached the store or after it. Then the worker is restarted. It reports false, and kills
	// nothing, where something else than the commit was caught, such as a read before it.
	crash func(t *testing.T, afterCommit bool, eventID string, send func()) bool
	// killWorker kills the worker and starts it again; nil: it is in this process.
	killWorker func(t *testing.T)
	// service is the stand-in for the subscription service.
	service *standin.Receiver
	// gateway is the stand-in for the payment gateway.
	gateway *standin.Gateway
	// task calls one of the worker's tasks and returns its result.
	task func(ctx context.Context, name string) (map[string]any, error)
	// storeFile is the file of the embedded store. close ends the embedded stack before its test ends.
	storeFile string
	close     func()

	seq atomic.Int64
}

// stackCase is a case that runs on any stack.
type stackCase struct {
	name string
	run  func(*testing.T, *stack)
	// real cases are of what only Google's emulators show: the order of their pushes, their redelivery, their
	// transactions, and processes that are killed. They alone run there with -short.
	real bool
}

// onlyInFull skips a long test with -short.
func onlyInFull(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs without -short")
	}
}

// The cases run on the stand-ins in this process, and on the binaries with Google's emulators,
// provisioned by the program and by Terraform.
var cases = []stackCase{
	{"an order is credited", credit, true},
	{"an exact duplicate is skipped", duplicate, false},
	{"another payload under a used id is a dead letter and credits nothing", conflict, false},
	{"an unknown product is one dead letter and later events flow", unknownProduct, true},
	{"a store that is down costs a retry and no event", storeFailure, true},
	{"a worker killed before its commit loses nothing", func(t *testing.T, s *stack) { crash(t, s, false) }, false},
	{"a worker killed after its commit doubles nothing", func(t *testing.T, s *stack) { crash(t, s, true) }, true},
	{"thirty events of one customer keep their order beside thirty others", order, true},
	{"a refund that comes before its order waits for it", refundFirst, true},
	{"a broker that is down answers 503 and leaves the key usable", brokerFailure, true},
	{"a renewal is recorded and told once", renewal, false},
	{"one subscription's events are told in order", subscriptionOrder, false},
	{"a service that forgets its answer is asked, not told again", serviceForgets, false},
	{"what a killed worker has not published is relayed", relayed, true},
	{"a refund whose attempts were used up is replayed when its order is there", drillTx, false},
	{"what names a customer alone travels behind the order that named the user", customerKeeps, false},
	{"a trial is paid, told and refunded", trialPaid, false},
	{"one id in two tenants and two queues is as many events outside", oneIDForAll, false},
	{"a renewal is started once at a gateway that fails and loses its answer", renewalStarted, false},
	{"a refund's dead letter is replayed by two persons", fourEyes, false},
	{"a bulk with one bad item and one for later does the others at once", halfFailedBulk, false},
	{"an order that PayNow says is paid is confirmed, told and shipped", shopOrderPaid, false},
	{"an order whose payment does not come gives its pieces back", shopOrderTimesOut, false},
	{"a financial event is one entry of the books, and is undone once", journalKept, false},
	{"the books of two tenants do not meet under one event id", tenantsApart, false},
	{"an order that two tenants have is credited to each, and a refund takes its own points", ordersApart, false},
	{"the books are read, proven and mended from a terminal", booksRead, false},
	{"each type of each queue that a service works for ends as it should", everyQueue, false},
	{"no personal value is anywhere behind the door", noPersonalData, false}, // the last case: it looks at the data of all others
}

func runCases(t *testing.T, s *stack, cases []stackCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(t, s) })
	}
}

func TestOnTheEmbeddedStack(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t)
	runCases(t, s, cases)
}

func TestOnGooglesEmulators(t *testing.T) {
	t.Parallel()
	folder := shortWaits(t)
	c, err := catalog.Load(folder)
	require.NoError(t, err)
	project := "e2e-" + uuid.NewString()
	s := startReal(t, site{Project: project, Provision: e2e.Provisioned(project, c), Environment: []string{"CATALOG_DIR=" + folder}})
	of := cases
	if testing.Short() {
		of = realCases()
	}
	runCases(t, s, of)
}

func realCases() []stackCase {
	return slices.DeleteFunc(slices.Clone(cases), func(c stackCase) bool { return !c.real })
}

// TestOnTerraformsTopology runs them, and each queue, on queues that terraform/emulator has created.
func TestOnTerraformsTopology(t *testing.T) {
	t.Parallel()
	onlyInFull(t)
	project := "terraform-" + uuid.NewString()
	folder := shortWaits(t)
	s := startReal(t, site{Project: project, Provision: emulatortest.Terraform(t, project, folder).Apply, Environment: []string{"CATALOG_DIR=" + folder}})
	runCases(t, s, append(realCases(), stackCase{"each type of each queue ends as it should", everyQueue, false}))
}

// shortWaits returns a folder with the shipped catalog, with waits of half a second between
// attempts, doubling, and breakers that many failures of cases side by side do not open.
func shortWaits(t *testing.T) (folder string) {
	t.Helper()
	return changedCatalog(t, `minimum_backoff: "10s"`, `minimum_backoff: "0.5s"`, `minimum_backoff: "60s"`, `minimum_backoff: "0.5s"`,
		`minimum_backoff: "1s"`, `minimum_backoff: "0.5s"`, `minimum_backoff: "2s"`, `minimum_backoff: "0.5s"`, `minimum_backoff: "3s"`, `minimum_backoff: "0.5s"`,
		`minimum_backoff: "5s"`, `minimum_backoff: "0.5s"`, `jitter: "30s"`, `jitter: "0s"`,
		`schedule: ["0s", "5s", "30s"]`, `schedule: ["0s", "0.5s", "1s"]`)
}

// changedCatalog returns a folder with the shipped catalog. In its queues the first text of
// each pair is replaced by the second.
func changedCatalog(t *testing.T, pairs ...string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	files, err := filepath.Glob(filepath.Join("..", "catalog", "*.yaml"))
	require.NoError(t, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		text, name := string(data), filepath.Base(file)
		if name == "targets.yaml" {
			text = strings.ReplaceAll(text, "breaker: { failures: 10,", "breaker: { failures: 1000,")
		}
		for i := 0; name == "queues.yaml" && i < len(pairs); i += 2 {
			require.Contains(t, text, pairs[i])
			text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
		}
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	return folder
}

func startEmbedded(t *testing.T) *stack {
	t.Helper()
	return startEmbeddedOf(t, shortWaits(t))
}

// startEmbeddedOf starts the stack with the catalog in a folder; with names, of those queues alone.
func startEmbeddedOf(t *testing.T, folder string, queues ...string) *stack {
	t.Helper()
	c, err := catalog.Load(folder)
	require.NoError(t, err)
	c, err = c.Only(queues)
	require.NoError(t, err)
	log := &e2e.Log{}
	breaking, crashNext := breakingStore()
	taps := map[string]*tappedPublisher{}
	targets := map[string]devstack.Place{}
	for name := range c.Targets {
		targets[name] = devstack.Place{Secret: e2e.DeliverySecret}
	}
	file := filepath.Join(t.TempDir(), "store.db")
	running, err := devstack.Start(t.Context(), devstack.Config{
		Catalog: c, ProjectID: "e2e", Secrets: map[string][]string{"paynow": {e2e.Secret}, "generic": {e2e.Secret}}, Targets: targets,
		WebhookPort: "0", WorkerPort: "0", StorePath: file,
		Log:       telemetry.NewLogger(log, nil),
		WrapStore: func(s store.Store) store.Store { breaking.Store = s; return breaking },
		WrapPublisher: func(service string, p webhook.Publisher) webhook.Publisher {
			taps[service] = &tappedPublisher{Publisher: p}
			return taps[service]
		},
	})
	require.NoError(t, err)
	closing := sync.OnceFunc(func() { require.NoError(t, running.Close()) })
	t.Cleanup(closing)
	return &stack{
		storeFile: file, close: closing, serviceURL: running.ServiceURL,
		webhookURL: running.WebhookURL, workerURL: running.WorkerURL, log: log, store: running.Store,
		publish:   running.Publisher.Publish,
		published: func(*testing.T) []contract.Message { return append(taps["webhook"].all(), taps["worker"].all()...) },
		deadLetters: func(*testing.T) []contract.Message {
			var all []contract.Message
			for _, m := range running.Broker.Held(e2e.Queue + "-dlq-hold") {
				all = append(all, m.Message)
			}
			return all
		},
		service:    running.Service,
		gateway:    running.Gateway,
		task:       running.Task,
		storeDown:  breaking.Down,
		brokerDown: taps["webhook"].down.Store,
		crash: func(t *testing.T, afterCommit bool, _ string, send func()) bool {
			t.Helper()
			crashed := crashNext(afterCommit)
			send()
			<-crashed
			return true
		},
	}
}

// breakingStore returns a store that fails on demand. crashNext makes it abort a request at the
// next commit without an answer, before or after the commit, as a killed process would.
func breakingStore() (s *storetest.Faults, crashNext func(afterCommit bool) <-chan struct{}) {
	type point struct {
		reached     chan struct{}
		afterCommit bool
	}
	var next atomic.Pointer[point]
	s = &storetest.Faults{OnCommit: func(_ context.Context, _ []store.Write, do func() error) error {
		crash := next.Swap(nil)
		if crash == nil {
			return do()
		}
		defer close(crash.reached)
		if crash.afterCommit {
			if err := do(); err != nil {
				return err
			}
		}
		panic(http.ErrAbortHandler) // net/http cuts the connection without an answer
	}}
	return s, func(afterCommit bool) <-chan struct{} {
		crash := &point{make(chan struct{}), afterCommit}
		next.Store(crash)
		return crash.reached
	}
}

// tappedPublisher records what is published, and fails while it is down.
type tappedPublisher struct {
	webhook.Publisher
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

// patience bounds every wait of a case. No wait comes near it.
const patience = 90 * time.Second

// pollInterval is for waits on a store or a broker, which report no changes. A look costs an
// emulator more than most things that a case waits for.
const pollInterval = 200 * time.Millisecond

const points, vip = "411486491630370501", "411486491630370502"

// newOrder returns an order of two of the product worth 1000, by a new customer.
func (s *stack) newOrder() e2e.Order {
	n := fmt.Sprint(700000000000000000 + s.seq.Add(1)*100)
	return e2e.Order{
		EventID: n, OrderID: n + "2", CustomerID: n + "3", UID: "uid-" + n,
		Lines: []e2e.Line{{Product: points, Quantity: 2, Price: 1000}},
	}
}

func (s *stack) send(t *testing.T, body []byte) e2e.Answer {
	t.Helper()
	answer, err := e2e.Send(t.Context(), s.webhookURL, body)
	require.NoError(t, err)
	return answer
}

func (s *stack) accepted(t *testing.T, body []byte) e2e.Answer {
	t.Helper()
	answer := s.send(t, body)
	require.Equal(t, http.StatusAccepted, answer.Status, answer.Body)
	return answer
}

// until waits for a delivery of the event with the outcome, and returns all deliveries so far.
func (s *stack) until(t *testing.T, eventID, outcome string) []e2e.Delivery {
	t.Helper()
	return s.untilMany(t, eventID, outcome, 1)
}

func (s *stack) untilMany(t *testing.T, eventID, outcome string, n int) []e2e.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := s.log.Until(ctx, func() bool {
		count := 0
		for _, d := range s.log.Deliveries(eventID) {
			if d.Outcome == outcome {
				count++
			}
		}
		return count >= n
	})
	require.NoError(t, err, "no delivery of %s became %s: %v", eventID, outcome, s.log.Deliveries(eventID))
	return s.log.Deliveries(eventID)
}

// rejected waits until the event is a dead letter. The status of the answer is class, or 200
// where the budget of nacks, which all cases share, is used up. A nacked message comes again
// and is a duplicate.
func (s *stack) rejected(t *testing.T, eventID string, class int) {
	t.Helper()
	deliveries := s.until(t, eventID, "dead_lettered")
	i := slices.IndexFunc(deliveries, func(d e2e.Delivery) bool { return d.Outcome == "dead_lettered" })
	if deliveries[i].Status != class {
		require.Equal(t, http.StatusOK, deliveries[i].Status)
		return
	}
	deliveries = s.until(t, eventID, "duplicate")
	require.Equal(t, "dead_lettered_before", deliveries[len(deliveries)-1].Reason)
}

func (s *stack) balance(t *testing.T, account ledger.Account) int64 {
	t.Helper()
	return balanceIn(t, s.store, account)
}

func balanceIn(t *testing.T, from store.Store, account ledger.Account) int64 {
	t.Helper()
	doc, err := from.Get(t.Context(), account.Key(dedupe.DefaultTenant))
	if errors.Is(err, store.ErrNotFound) {
		return 0
	}
	require.NoError(t, err)
	balance, ok := doc.Fields["balance"].(int64)
	require.True(t, ok)
	return balance
}

func status(t *testing.T, from store.Store, eventID string) string {
	t.Helper()
	doc, err := from.Get(t.Context(), dedupe.Key(e2e.Queue, dedupe.DefaultTenant, eventID))
	if errors.Is(err, store.ErrNotFound) {
		return ""
	}
	require.NoError(t, err)
	text, _ := doc.Fields["status"].(string)
	return text
}

// lettersOf returns the dead letters of one event.
func (s *stack) lettersOf(t *testing.T, eventID string) []contract.Message {
	t.Helper()
	var all []contract.Message
	for _, m := range s.deadLetters(t) {
		if m.Attributes["event_id"] == eventID {
			all = append(all, m)
		}
	}
	return all
}

func credit(t *testing.T, s *stack) {
	o := s.newOrder()
	answer := s.accepted(t, o.JSON())
	require.Equal(t, o.EventID, answer.EventID)
	require.Equal(t, o.UID, answer.OrderingKey)
	deliveries := s.until(t, o.EventID, "processed")
	// The last one: a busy machine may have been too slow for the first.
	require.Equal(t, http.StatusOK, deliveries[len(deliveries)-1].Status)
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)))
	require.Equal(t, "COMPLETED", status(t, s.store, o.EventID))

	guest := s.newOrder()
	guest.UID = ""
	s.accepted(t, guest.JSON())
	s.until(t, guest.EventID, "processed")
	require.Equal(t, int64(2000), s.balance(t, ledger.CustomerPoints(guest.CustomerID)))
}

func duplicate(t *testing.T, s *stack) {
	o := s.newOrder()
	s.accepted(t, o.JSON())
	s.accepted(t, o.JSON())
	deliveries := s.until(t, o.EventID, "duplicate")
	require.Equal(t, http.StatusNoContent, deliveries[len(deliveries)-1].Status)
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)))
	require.Empty(t, s.lettersOf(t, o.EventID))
}

func conflict(t *testing.T, s *stack) {
	o := s.newOrder()
	s.accepted(t, o.JSON())
	changed := o
	changed.Lines = []e2e.Line{{Product: points, Quantity: 9, Price: 1000}}
	s.accepted(t, changed.JSON())
	s.rejected(t, o.EventID, http.StatusConflict)
	letters := s.lettersOf(t, o.EventID)
	require.Len(t, letters, 1)
	require.Equal(t, "payload_conflict", letters[0].Attributes["dead_letter_reason"])
	require.Equal(t, "409", letters[0].Attributes["dead_letter_status"])
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)))
	require.Equal(t, "COMPLETED", status(t, s.store, o.EventID))
}

func unknownProduct(t *testing.T, s *stack) {
	o := s.newOrder()
	o.Lines = append(o.Lines, e2e.Line{Product: "700000000000000999", Quantity: 1, Price: 500})
	s.accepted(t, o.JSON())
	later := s.newOrder()
	later.UID, later.CustomerID = o.UID, o.CustomerID
	s.accepted(t, later.JSON())
	s.rejected(t, o.EventID, http.StatusBadRequest)
	s.until(t, later.EventID, "processed")
	letters := s.lettersOf(t, o.EventID)
	require.Len(t, letters, 1)
	require.Equal(t, "unknown_product", letters[0].Attributes["dead_letter_reason"])
	require.Equal(t, "700000000000000999", letters[0].Attributes["dead_letter_detail"])
	require.Equal(t, e2e.Queue, letters[0].Attributes["source_queue"])
	require.NotEmpty(t, letters[0].Attributes["source_message_id"])
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)), "the known item beside it is not credited")
	require.Equal(t, "DEAD_LETTERED", status(t, s.store, o.EventID))
	// The dead letter is in the store too.
	require.Eventually(t, func() bool {
		page, err := s.store.Query(t.Context(), store.Query{Collection: "deadLetters", Equal: map[string]any{"event_id": o.EventID}, Limit: 9})
		return err == nil && len(page.Documents) == 1
	}, patience, pollInterval)
}

func storeFailure(t *testing.T, s *stack) {
	o := s.newOrder()
	s.storeDown(true)
	s.accepted(t, o.JSON())
	deliveries := s.until(t, o.EventID, "retry")
	require.Equal(t, http.StatusServiceUnavailable, deliveries[0].Status)
	require.Equal(t, "store_unavailable", deliveries[0].Reason)
	s.storeDown(false)
	s.until(t, o.EventID, "processed")
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)))
	require.Empty(t, s.lettersOf(t, o.EventID))
}

func crash(t *testing.T, s *stack, afterCommit bool) {
	// The worker then knows what the product is worth, so its next request to the store is the
	// commit.
	before := s.newOrder()
	s.accepted(t, before.JSON())
	s.until(t, before.EventID, "processed")
	o := s.newOrder()
	for !s.crash(t, afterCommit, o.EventID, func() { s.accepted(t, o.JSON()) }) {
		s.until(t, o.EventID, "processed")
		o = s.newOrder()
	}
	want := "processed"
	if afterCommit {
		want = "duplicate"
	}
	s.until(t, o.EventID, want)
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)))
	require.Equal(t, "COMPLETED", status(t, s.store, o.EventID))
	require.Empty(t, s.lettersOf(t, o.EventID))
}

func order(t *testing.T, s *stack) {
	const n = 30
	one := s.newOrder()
	var mine, others []e2e.Order
	for range n {
		o, other := s.newOrder(), s.newOrder()
		o.UID, o.CustomerID = one.UID, one.CustomerID
		mine, others = append(mine, o), append(others, other)
		s.accepted(t, o.JSON())
		s.accepted(t, other.JSON())
	}
	for i := range n {
		s.until(t, mine[i].EventID, "processed")
		s.until(t, others[i].EventID, "processed")
	}
	var sent, processed []string
	for _, o := range mine {
		sent = append(sent, o.EventID)
	}
	for _, d := range s.log.Deliveries("") {
		if d.Outcome == "processed" && slices.Contains(sent, d.EventID) {
			processed = append(processed, d.EventID)
		}
	}
	require.Equal(t, sent, processed)
	require.Equal(t, int64(n*2000), s.balance(t, ledger.UserPoints(one.UID)))
}

func refundFirst(t *testing.T, s *stack) {
	o := s.newOrder()
	// The refund names only the customer, who has no link to the uid: it has another ordering
	// key.
	refund := e2e.Refund{EventID: o.EventID + "9", RefundID: "1", OrderID: o.OrderID, CustomerID: o.CustomerID, Amount: o.Total(), Paid: o.Total()}
	s.accepted(t, refund.JSON())
	deliveries := s.until(t, refund.EventID, "retry")
	require.Equal(t, "order_not_seen", deliveries[0].Reason)
	require.Equal(t, http.StatusOK, deliveries[0].Status, "kept, and acknowledged")
	s.accepted(t, o.JSON())
	s.until(t, o.EventID, "processed")
	for _, d := range s.until(t, refund.EventID, "processed") {
		require.Equal(t, http.StatusOK, d.Status, "no nack slows the subscription")
	}
	require.Zero(t, s.balance(t, ledger.UserPoints(o.UID)))
}

func brokerFailure(t *testing.T, s *stack) {
	o := s.newOrder()
	s.brokerDown(true)
	answer := s.send(t, o.JSON())
	require.Equal(t, http.StatusServiceUnavailable, answer.Status)
	require.Equal(t, "publish_unconfirmed", answer.Code)
	require.NotEmpty(t, answer.RetryAfter)
	s.brokerDown(false)
	require.Eventually(t, func() bool { return s.send(t, o.JSON()).Status == http.StatusAccepted }, patience, 100*time.Millisecond)
	s.until(t, o.EventID, "processed")
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)))
}

func noPersonalData(t *testing.T, s *stack) {
	for i, name := range samples.Names() {
		id := fmt.Sprintf("800000000000000%02d", i)
		s.accepted(t, samples.Read(name, samples.Event{EventID: id}))
		outcome := "processed"
		if name == samples.UnknownProduct {
			outcome = "dead_lettered"
		}
		s.until(t, id, outcome)
	}
	require.Equal(t, http.StatusAccepted, s.signed(t, "/queues/events-high/messages", string(samples.Request(samples.Usage))).Status)
	s.until(t, "dev-usage", "processed")
	refused := s.send(t, []byte(`{"event_type":"ON_ORDER_COMPLETED","event_id":"ilse.brandvold@example.org","body":{}}`))
	require.Equal(t, http.StatusUnprocessableEntity, refused.Status)

	contracts, letters := map[string]bool{}, map[string]bool{}
	var behind strings.Builder
	for _, m := range s.published(t) {
		contracts[m.Attributes[contract.AttrContract]] = true
		letters[m.Attributes[deadletter.AttrSourceQueue]] = true
		fmt.Fprintf(&behind, "%s %v %s\n", m.Data, m.Attributes, m.OrderingKey)
	}
	require.Subset(t, slices.Collect(maps.Keys(contracts)), []string{contract.PayNowV1, contract.EnvelopeV1})
	delete(letters, "")
	require.Greater(t, len(letters), 1, "the dead letters of more than one queue")
	for _, collection := range []string{dedupe.Collection, deadletter.Collection, ledger.Accounts, ledger.Entries, subscriptions.Collection, customers.Collection, audit.Collection, usage.Collection, usage.EntriesCollection, usage.PeriodsCollection} {
		documents := s.documents(t, collection)
		require.NotEmpty(t, documents, collection)
		behind.WriteString(documents)
	}
	requireNothingPersonal(t, behind.String()+s.log.Text()+refused.Body)
}

// documents returns all documents of a collection as text.
func (s *stack) documents(t *testing.T, collection string) string {
	t.Helper()
	var text strings.Builder
	query := store.Query{Collection: collection, Limit: 1000}
	for {
		page, err := s.store.Query(t.Context(), query)
		require.NoError(t, err)
		for _, doc := range page.Documents {
			fmt.Fprintf(&text, "%s %s\n", doc.Key, doc.Fields) // %v would print bytes as numbers
		}
		if query.After = page.Next; query.After.IsZero() {
			return text.String()
		}
	}
}

// personal lists every personal value in this package's webhooks. None of them may be found
// behind the door.
var personal = []string{
	"Ilse Brandvold", "ilse.brandvold", "example.org", "ilse_b", "IlsePlays", "avatars.invalid", "198.51.100.23",
	"2001:db8:5::17", "76561198000004242", "0c9d1b52-5f60-4f0e-8f2a-7b1f2f0e9a11", "NO-5003", "+47 73 59", "Gift for Ilse",
}

func requireNothingPersonal(t *testing.T, text string) {
	t.Helper()
	for _, value := range append(slices.Clone(samples.Personal), personal...) {
		require.False(t, strings.Contains(text, value), "a personal value is behind the door: %s", value)
	}
}
