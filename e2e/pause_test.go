package e2e_test

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/emulator/emulatortest"
	"billhook/internal/apps/ledger"
)

// pausing has the queue of orders paused, 20 orders of a customer sent, several times the longest wait
// between two attempts passed, and the queue resumed. The worker is killed meanwhile where it can be.
func pausing(t *testing.T, s *stack, terminal func(arguments ...string) string, kill func()) {
	t.Helper()
	require.Contains(t, terminal("queues", "pause", e2e.Queue, "--why", "the points are being mended"), "It pushes nothing.")
	one := s.newOrder()
	var sent []string
	for range 20 {
		o := s.newOrder()
		o.UID, o.CustomerID = one.UID, one.CustomerID
		s.accepted(t, o.JSON())
		sent = append(sent, o.EventID)
	}
	ours := func() (deliveries []e2e.Delivery) {
		for _, d := range s.log.Deliveries("") {
			if slices.Contains(sent, d.EventID) {
				deliveries = append(deliveries, d)
			}
		}
		return deliveries
	}
	e2e.Wait(t.Context(), 2*time.Second) // four waits of a failed push
	kill()
	e2e.Wait(t.Context(), 2*time.Second)
	require.Empty(t, ours(), "neither an attempt nor a refusal")
	require.Contains(t, terminal("queues"), e2e.Queue+" is paused since ")
	require.Contains(t, terminal("queues", "resume", e2e.Queue, "--why", "mended"), "It pushes.")
	for _, id := range sent {
		s.until(t, id, "processed")
	}
	var handled []string
	for _, d := range ours() {
		handled = append(handled, d.EventID)
	}
	require.Equal(t, sent, handled, "each once, in the order of their publishing")
	require.Equal(t, int64(20*2000), s.balance(t, ledger.UserPoints(one.UID)))
	require.Empty(t, s.lettersOf(t, sent[0]))
}

// The worker of the stand-ins may change subscriptions.
func TestAPausedQueueWaitsOnTheEmbeddedStack(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t)
	pausing(t, s, func(arguments ...string) string {
		out, err := billhook(t, append(arguments, "--server", s.workerURL)...)
		require.NoError(t, err, out)
		return out
	}, func() {})
}

// The worker on Google's emulators was not granted it: the command does it with its own hands.
func TestAPausedQueueWaitsOnGooglesEmulatorsThroughAKill(t *testing.T) {
	t.Parallel()
	onlyInFull(t)
	folder := shortWaits(t)
	c, err := catalog.Load(folder)
	require.NoError(t, err)
	project := "pause-" + uuid.NewString()
	s := startReal(t, site{Project: project, Provision: e2e.Provisioned(project, c), Environment: []string{"CATALOG_DIR=" + folder}})
	pausing(t, s, withOwnHands(t, s, project, folder), func() { s.killWorker(t) })
}

// withOwnHands runs commands as an operator does who may change the emulator's subscriptions.
func withOwnHands(t *testing.T, s *stack, project, folder string) func(arguments ...string) string {
	t.Helper()
	binary, err := program()
	require.NoError(t, err)
	return func(arguments ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), binary, append(arguments, "--server", s.workerURL)...)
		command.Env = []string{
			"GOOGLE_CLOUD_PROJECT=" + project, "PUBSUB_EMULATOR_HOST=" + emulatortest.PubSub(t), "PUSH_BASE_URL=" + s.workerURL, "HOME=" + t.TempDir(),
			"CATALOG_DIR=" + folder, "OPS_OPERATOR=ada",
		}
		out, err := command.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
}
