package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/e2e/testdata/parcels"
	"billhook/internal/compose/devstack"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/platform/telemetry"
)

// addedTo returns a folder with the shipped catalog and more lines, by the key that they stand
// under, such as "queues.yaml, under queues".
func addedTo(t *testing.T, lines map[string]string) (folder string) {
	t.Helper()
	folder = changedCatalog(t)
	for place, added := range lines {
		file, key, ok := strings.Cut(place, ", under ")
		require.True(t, ok, place)
		path := filepath.Join(folder, file)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Contains(t, string(text), "\n"+key+":\n")
		require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), "\n"+key+":\n", "\n"+key+":\n"+added, 1)), 0o600))
	}
	return folder
}

// startWith starts the embedded stack with a catalog and with more handlers.
func startWith(t *testing.T, folder string, handlers func(*handler.Registry)) (*stack, error) {
	t.Helper()
	c, err := catalog.Load(folder)
	require.NoError(t, err)
	log := &e2e.Log{}
	running, err := devstack.Start(t.Context(), devstack.Config{
		Catalog: c, ProjectID: "e2e", Secrets: map[string][]string{"paynow": {e2e.Secret}, "generic": {e2e.Secret}},
		WebhookPort: "0", WorkerPort: "0", ServicePort: "0", StorePath: filepath.Join(t.TempDir(), "store.db"),
		Log: telemetry.NewLogger(log, nil), Handlers: handlers,
	})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { require.NoError(t, running.Close()) })
	return &stack{webhookURL: running.WebhookURL, workerURL: running.WorkerURL, log: log, store: running.Store, publish: running.Publisher.Publish}, nil
}

// event publishes a message.v1 on a topic, as another service would.
func (s *stack) event(t *testing.T, topic, routingKey, id, eventType, data string) {
	t.Helper()
	_, err := s.publish(t.Context(), topic, contract.Message{
		Data: fmt.Appendf(nil, `{"id":%q,"type":%q,"timestamp":"2026-03-01T12:00:00Z","version":1,"producer":"depots","data":%s}`, id, eventType, data),
		Attributes: map[string]string{
			contract.AttrContract: contract.MessageV1, contract.AttrEventID: id, contract.AttrEventType: eventType,
			contract.AttrRoutingKey: routingKey, contract.AttrOrderingKey: contract.UnknownOrderingKey,
		},
	})
	require.NoError(t, err)
}

// fenced are the blocks of CONTRIBUTING in a language.
func fenced(t *testing.T, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "CONTRIBUTING.md"))
	require.NoError(t, err)
	for _, block := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, block[1])
	}
	return blocks
}

// exampleLines are the lines of the catalog in CONTRIBUTING's worked example.
func exampleLines(t *testing.T) map[string]string {
	t.Helper()
	lines := map[string]string{}
	for _, block := range fenced(t, "yaml") {
		place, added, _ := strings.Cut(block, ":\n")
		lines[strings.TrimPrefix(place, "# catalog/")] = added
	}
	require.Len(t, lines, 3)
	return lines
}

// TestTheWorkedExampleIsDoneAsItIsWritten does to a copy of the tree what the page says, line by line, and has the
// program check it: the handler is registered by that one line, for the check and for the worker.
func TestTheWorkedExampleIsDoneAsItIsWritten(t *testing.T) {
	t.Parallel()
	tree := t.TempDir()
	for _, folder := range []string{"catalog", "cmd", "emulator", "internal", "terraform"} {
		require.NoError(t, os.CopyFS(filepath.Join(tree, folder), os.DirFS(filepath.Join("..", folder))))
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join("..", file))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(tree, file), text, 0o600))
	}
	check := func() (string, error) {
		command := exec.CommandContext(t.Context(), "go", "run", "./cmd/billhook", "catalog", "check", "./catalog")
		command.Dir = tree
		said, err := command.CombinedOutput()
		return string(said), err
	}
	for place, added := range exampleLines(t) {
		file, key, _ := strings.Cut(place, ", under ")
		change(t, filepath.Join(tree, "catalog", file), "\n"+key+":\n", "\n"+key+":\n"+added)
	}
	said, err := check()
	require.Error(t, err, "nothing is registered yet")
	require.Contains(t, said, "parcels.count")

	quotes := fenced(t, "go")
	require.NoError(t, os.Mkdir(filepath.Join(tree, "internal", "parcels"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(tree, "internal", "parcels", "parcels.go"), []byte(quotes[0]), 0o600))
	worker := filepath.Join(tree, "internal", "compose", "worker", "worker.go")
	change(t, worker, "with dependencies) {\n", "with dependencies) {\n\t"+quotes[1])
	change(t, worker, "\nimport (\n", "\nimport (\n\t\"billhook/internal/parcels\"\n")
	said, err = check()
	require.NoError(t, err, said)
}

// change replaces a text that stands in a file once.
func change(t *testing.T, path, was, is string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), was), "%s: %s", path, was)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), was, is, 1)), 0o600))
}

func TestContributingQuotesTheFileOfItsExample(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile(filepath.Join("testdata", "parcels", "parcels.go"))
	require.NoError(t, err)
	quotes := fenced(t, "go")
	require.Len(t, quotes, 2, "the file, and the line of registration")
	require.Equal(t, string(file), quotes[0])
}

func TestTheWorkedExampleIsAQueueInOneFileAndOneLine(t *testing.T) {
	t.Parallel()
	s, err := startWith(t, addedTo(t, exampleLines(t)), func(registry *handler.Registry) { parcels.Register(registry) })
	require.NoError(t, err)
	scans := func() any {
		doc, err := s.store.Get(t.Context(), store.Key{Collection: parcels.Collection, ID: "p-1"})
		require.NoError(t, err)
		require.Equal(t, "north", doc.Fields["depot"])
		return doc.Fields["scans"]
	}
	const data = `{"parcel_id":"p-1","depot":"north"}`
	s.event(t, "parcels", "parcel.scanned", "scan-1", "parcel.scanned", data)
	s.until(t, "scan-1", "processed")
	require.Equal(t, int64(1), scans())
	s.event(t, "parcels", "parcel.scanned", "scan-1", "parcel.scanned", data)
	s.until(t, "scan-1", "duplicate")
	require.Equal(t, int64(1), scans(), "applied once")
	s.event(t, "parcels", "parcel.scanned.again", "scan-2", "parcel.scanned", data)
	require.Equal(t, "not_bound", s.until(t, "scan-2", "dropped")[0].Reason)
	s.event(t, "parcels", "parcel.scanned", "scan-3", "parcel.scanned", data)
	s.until(t, "scan-3", "processed")
	require.Equal(t, int64(2), scans())

	// Through the door for producers, as a raw object whose type its routing key says.
	answer := s.signed(t, "/topics/parcels/messages", `{"message":`+data+`,"routing_key":"parcel.scanned"}`)
	require.Equal(t, http.StatusAccepted, answer.Status, answer.Body)
	s.until(t, answer.EventID, "processed")
	require.Equal(t, int64(3), scans())
	answer = s.signed(t, "/topics/parcels/messages", `{"message":`+data+`,"routing_key":"order.scanned"}`)
	require.Equal(t, http.StatusUnprocessableEntity, answer.Status, "no queue is bound to it")
}

func TestAHandlerWhoseTypeDoesNotFitTheDeclarationIsRefused(t *testing.T) {
	t.Parallel()
	lines := exampleLines(t)
	declared := lines["messages.yaml, under message.v1"]
	for name, test := range map[string]struct{ member, want string }{
		"a member of another kind": {"depot: integer", ".depot is no string"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := map[string]string{"messages.yaml, under message.v1": strings.Replace(declared, "depot: code", test.member, 1)}
			for place, added := range lines {
				if _, ok := changed[place]; !ok {
					changed[place] = added
				}
			}
			folder := addedTo(t, changed)
			const queue = "queue parcels-count: event type parcel.scanned: parcels.count: message.v1 parcel.scanned, version 1: "
			_, err := startWith(t, folder, parcels.Register)
			require.ErrorContains(t, err, queue, "at the start of the worker")
			require.ErrorContains(t, err, test.want)
			c, err := catalog.Load(folder)
			require.NoError(t, err)
			registry := handler.NewRegistry()
			parcels.Register(registry)
			require.ErrorContains(t, registry.Check(c), queue, "what catalog check asks")
		})
	}
}

// shipped and note are what the handlers of the next test take.
type (
	shipped struct {
		OrderID string `json:"order_id"`
		UserID  string `json:"user_id,omitempty"`
	}
	note struct {
		UserID    string `json:"user_id"`
		OrderID   string `json:"order_id,omitempty"`
		ProductID string `json:"product_id,omitempty"`
		PaymentID string `json:"payment_id,omitempty"`
		Reason    string `json:"reason,omitempty"`
	}
)

func TestWhatATypedHandlerEmitsReachesTheQueuesThatAreBoundToItsRoutingKey(t *testing.T) {
	t.Parallel()
	folder := addedTo(t, map[string]string{
		"topics.yaml, under topics": "  - { id: shipping, description: The way of orders. }\n  - { id: notes, description: Notes to users. }\n",
		"queues.yaml, under queues": `
  - { id: shipping-news, description: Tells users, enabled: true, contract: message.v1, ordering_key: [order_id], priority: low, pool: news,
      topic: shipping, bindings: [order.shipped], handlers: { order.shipped: { name: news.tell, emits: [notes] } } }
  - { id: notes-email, description: Writes mails, enabled: true, contract: message.v1, priority: low, pool: news,
      topic: notes, bindings: ["notification.email.*"], handlers: { "notification.email.*": { name: notes.mail } } }
  - { id: notes-sms, description: Writes short messages, enabled: true, contract: message.v1, priority: low, pool: news,
      topic: notes, bindings: ["notification.sms.*"], handlers: { "notification.*.*": { name: notes.text } } }
`,
	})
	s, err := startWith(t, folder, func(registry *handler.Registry) {
		handler.RegisterTx(registry, "news.tell", func(_ context.Context, _ handler.Event, order shipped) (handler.Effect, error) {
			return handler.Effect{Result: "told", Emit: []handler.Emission{{
				To: "notes", RoutingKey: "notification.email.today", OrderingKey: order.OrderID,
				Body: contract.Of(&contract.Event{
					Type: "notification.email.order_shipped", Version: 1, Producer: "shipping", Data: note{UserID: "u-1", OrderID: order.OrderID},
				}),
			}}}, nil
		}, "notes")
		write := func(collection string) func(context.Context, handler.Event, note) (handler.Effect, error) {
			return func(_ context.Context, event handler.Event, n note) (handler.Effect, error) {
				return handler.Effect{Result: "written", Writes: []store.Write{store.Create(store.Key{Collection: collection, ID: event.ID},
					map[string]any{"user": n.UserID, "order": n.OrderID, "type": event.Type, "routing_key": event.Attributes[contract.AttrRoutingKey]})}}, nil
			}
		}
		handler.RegisterTx(registry, "notes.mail", write("mails"))
		handler.RegisterTx(registry, "notes.text", write("texts"))
	})
	require.NoError(t, err)
	s.event(t, "shipping", "order.shipped", "e-1", "order.shipped", `{"order_id":"o-1"}`)
	s.until(t, "e-1", "processed")
	emitted := s.emittedIn(t, "shipping-news", "e-1")
	require.Len(t, s.until(t, emitted, "processed"), 1, "by the one queue that is bound to it")
	doc, err := s.store.Get(t.Context(), store.Key{Collection: "mails", ID: emitted})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"user": "u-1", "order": "o-1", "type": "notification.email.order_shipped", "routing_key": "notification.email.today"}, doc.Fields)
	_, err = s.store.Get(t.Context(), store.Key{Collection: "texts", ID: emitted})
	require.ErrorIs(t, err, store.ErrNotFound)
}
