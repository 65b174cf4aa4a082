package e2e_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/e2e"
)

// installed is one of several installations in a project, with the environment of its operator.
type installed struct {
	*real
	environment []string
}

// paynowQueues are the queues of an installation for PayNow's events alone.
var paynowQueues = []string{e2e.Queue, "pay-subscription-update"}

func install(t *testing.T, project, name string) *installed {
	t.Helper()
	folder := shortWaits(t)
	_, r := startReal(t, site{Project: project, Installation: name, CatalogDir: folder, Queues: paynowQueues})
	return &installed{r, []string{
		"GOOGLE_CLOUD_PROJECT=" + project, "INSTALLATION=" + name, "PUBSUB_EMULATOR_HOST=" + r.broker,
		"QUEUES=" + strings.Join(paynowQueues, ","), "WEBHOOK_SIGNING_SECRET=" + e2e.Secret,
		"CATALOG_DIR=" + folder, "PUSH_BASE_URL=" + r.workerURL, "BILLHOOK_SERVER=" + r.workerURL,
	}}
}

func (i *installed) says(t *testing.T, arguments ...string) string {
	t.Helper()
	said, err := operator(t, i.environment, arguments...).CombinedOutput()
	require.NoError(t, err, string(said))
	return string(said)
}

// switches pauses or resumes the queue. This worker may not change subscriptions, and says who may.
func (i *installed) switches(t *testing.T, how, done string) {
	t.Helper()
	command := operator(t, i.environment, "queues", how, e2e.Queue, "--yes", "--why", "tested")
	said, err := command.CombinedOutput()
	require.Error(t, err, string(said))
	require.Contains(t, string(said), "run billhook admin switch "+e2e.Queue)
	require.Contains(t, i.says(t, "admin", "switch", e2e.Queue), done)
}

// requireSilence requires that no event of these is delivered.
func (i *installed) requireSilence(t *testing.T, ids []string) {
	t.Helper()
	e2e.Wait(t.Context(), 2*time.Second) // four times the wait after a failed push
	for _, id := range ids {
		require.Empty(t, i.log.Deliveries(id), "neither an attempt nor a refusal")
	}
}

// Three installations run on one broker, each with a database of its own: one without a name, and two of
// which one's name begins with the other's. Each gets another order with the same event id.
func TestInstallationsOfOneProjectDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	onlyInFull(t)
	project := "several-" + uuid.NewString()
	var all []*installed
	for _, name := range []string{"", "shop", "shopping"} {
		all = append(all, install(t, project, name))
	}
	one := all[0].newOrder()
	for n, i := range all {
		o := one
		o.Lines = []e2e.Line{{Product: e2e.Product, Quantity: int64(n + 1), Price: 1000}}
		body := i.accepted(t, o.JSON()).Body
		require.Contains(t, body, `"queue":"`+e2e.Queue+`"`, "senders know the catalog's ids alone")
	}
	for n, i := range all {
		i.until(t, one.EventID, "processed")
		require.Equal(t, int64(1000*(n+1)), i.balance(t, one.UID), i.Installation)
		require.Len(t, i.published(t), 1, "on the topics of installation %q", i.Installation)
		answer := i.signed(t, "/queues/shop-"+e2e.Queue+"", `{"subscription_id":"s"}`)
		require.Equal(t, http.StatusNotFound, answer.Status, "a producer names a queue of the catalog")
		taps := strings.Join(i.taps, ",")
		said := i.says(t, "admin", "doctor", "--canary", "--webhook", i.webhookURL, "--known", taps)
		require.Contains(t, said, "is noted, at attempt ")
	}

	// The runbooks' commands change their own installation. A paused queue waits through a kill of its worker.
	shop, others := all[1], []*installed{all[0], all[2]}
	shop.switches(t, "pause", "Its subscription pushes nothing.")
	customer, sent := "of-"+uuid.NewString(), []string(nil)
	for range 20 {
		o := shop.newOrder()
		o.EventID, o.OrderID, o.UID = o.EventID+"9", o.OrderID+"9", customer
		shop.accepted(t, o.JSON())
		sent = append(sent, o.EventID)
		for _, i := range others {
			i.accepted(t, o.JSON())
			i.until(t, o.EventID, "processed")
		}
	}
	shop.requireSilence(t, sent)
	shop.worker.Kill()
	shop.startWorker(t)
	shop.requireSilence(t, sent)
	require.Contains(t, shop.says(t, "queues", "ls"), "paused since ")
	for _, i := range others {
		require.NotContains(t, i.says(t, "queues", "ls"), "paused since")
	}
	shop.switches(t, "resume", "Its subscription pushes.")
	for _, id := range sent {
		require.Len(t, shop.until(t, id, "processed"), 1)
	}
	require.Equal(t, sent, shop.processed(sent), "each once, in the order of their publishing")
	require.Equal(t, int64(20*2000), shop.balance(t, customer))
}
