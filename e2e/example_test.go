package e2e_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/e2e/testdata/parcels"
	"billhook/internal/compose/devstack"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// addTo adds lines to a catalog, by keys like "queues.yaml, under queues".
func addTo(t *testing.T, folder string, lines map[string]string) {
	t.Helper()
	for place, added := range lines {
		file, key, ok := strings.Cut(place, ", under ")
		require.True(t, ok, place)
		filetest.Replace(t, "\n"+key+":\n", "\n"+key+":\n"+added, folder, file)
	}
}

func (s *stack) event(t *testing.T, topic, routingKey, id, eventType, data string) {
	t.Helper()
	attributes := contract.Attributes{
		Contract: contract.MessageV1, EventID: id, EventType: eventType, RoutingKey: routingKey,
		OrderingKey: contract.UnknownOrderingKey,
	}
	m := contract.Message{Data: []byte(platformEvent(id, eventType, data)), Attributes: attributes.Map()}
	require.NoError(t, filetest.ErrorOf(s.publish(t.Context(), topic, m)))
}

func fenced(t *testing.T, language string) (blocks []string) {
	t.Helper()
	block := regexp.MustCompile("(?s)```" + language + "\n(.*?)```")
	all := block.FindAllStringSubmatch(filetest.Read(t, "..", "CONTRIBUTING.md"), -1)
	return filetest.Map(all, func(match []string) string { return match[1] })
}

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

// It follows the page in a copy of the tree, and has the program check it: its one line registers the handler
// for the check and for the worker.
func TestTheExampleOfThePageCompilesAndIsRegistered(t *testing.T) {
	t.Parallel()
	onlyInFull(t) // it compiles a tree of its own
	tree := t.TempDir()
	for _, folder := range []string{"catalog", "cmd", "docs", "emulator", "internal", "terraform"} {
		require.NoError(t, os.CopyFS(filepath.Join(tree, folder), os.DirFS(filepath.Join("..", folder))))
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		require.NoError(t, os.WriteFile(filepath.Join(tree, file), []byte(filetest.Read(t, "..", file)), 0o600))
	}
	check := func() (string, error) {
		arguments := strings.Fields("run ./cmd/billhook admin catalog check ./catalog")
		command := exec.CommandContext(t.Context(), "go", arguments...)
		command.Dir = tree
		said, err := command.CombinedOutput()
		return string(said), err
	}
	addTo(t, filepath.Join(tree, "catalog"), exampleLines(t))
	said, err := check()
	require.Error(t, err, "nothing is registered yet")
	require.Contains(t, said, "parcels.count")

	require.NoError(t, os.CopyFS(filepath.Join(tree, "internal", "apps", "parcels"),
		os.DirFS(filepath.Join("testdata", "parcels"))))
	worker := filepath.Join(tree, "internal", "compose", "worker", "worker.go")
	filetest.Replace(t, "w *Worker) {\n", "w *Worker) {\n\t"+fenced(t, "go")[0], worker)
	filetest.Replace(t, "\nimport (\n", "\nimport (\n\t\"billhook/internal/apps/parcels\"\n", worker)
	said, err = check()
	require.NoError(t, err, said)
}

// The lines for a queue that posts to a service: there are no others.
const (
	aQueue = `  - id: welcome-mails
    description: Mails to new subscribers.
    enabled: true
    ordering_key: [subscription_id]
    priority: low
    pool: mails
    handlers:
      initial: { post: { target: mailer, path: /v1/mails, reconcile: "/v1/mails/{id}" } }

`
	aTarget = `  mailer:
    description: Sends mails.
    url_variable: MAILER_URL
    secret_variable: MAILER_SECRET
    scheme: standard
    internal: true
    timeouts: { connect: "2s", total: "10s" }
    concurrency: 4
`
)

func TestTheExamplesQueueHandlesItsEventsOnceAndAQueueThatPostsNeedsNoProgram(t *testing.T) {
	t.Parallel()
	folder := changedCatalog(t)
	addTo(t, folder, exampleLines(t))
	mails := map[string]string{"queues.yaml, under queues": aQueue, "targets.yaml, under targets": aTarget}
	addTo(t, folder, mails)
	s := startEmbedded(t, loaded(t, folder), func(config *devstack.Config) {
		config.Handlers = func(registry *handler.Registry) { parcels.Register(registry) }
	})
	scans := func() any {
		key := store.Key{Collection: parcels.Collection, ID: store.ID("default", "p-1")}
		doc := storetest.Get(t, s.store, key)
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

	// A producer may send a raw object: its type follows from the routing key.
	answer := s.signed(t, "/topics/parcels", `{"message":`+data+`,"routing_key":"parcel.scanned"}`)
	require.Equal(t, http.StatusAccepted, answer.Status, answer.Body)
	s.until(t, answer.EventID, "processed")
	require.Equal(t, int64(3), scans())
	answer = s.signed(t, "/topics/parcels", `{"message":`+data+`,"routing_key":"order.scanned"}`)
	require.Equal(t, http.StatusUnprocessableEntity, answer.Status, "no queue is bound to it")

	answer = s.signed(t, "/queues/welcome-mails", envelope("new-1", "initial", `{"subscription_id":"s-1"}`, ""))
	require.Equal(t, http.StatusAccepted, answer.Status, answer.Body)
	s.until(t, "new-1", "processed")
	require.Equal(t, 1, s.service.Applied("new-1"))
}
