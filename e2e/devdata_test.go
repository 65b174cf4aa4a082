package e2e_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/apps/ledger"
	"billhook/internal/console/ops"
	"billhook/internal/ingest/webhook/samples"
)

// devRun is `billhook dev` as a process.
type devRun struct {
	process *exec.Cmd
	// said is the output up to the last line of the start.
	said                  string
	webhookURL, workerURL string
}

func startDev(t *testing.T, binary string, arguments ...string) *devRun {
	t.Helper()
	return startDevWith(t, nil, binary, arguments...)
}

// startDevWith starts dev with variables, as NAME=value, and waits until it has said all.
func startDevWith(t *testing.T, environment []string, binary string, arguments ...string) *devRun {
	t.Helper()
	dev := exec.Command(binary, append([]string{"dev", "--webhook-port", "0", "--worker-port", "0", "--service-port", "0"}, arguments...)...) //nolint:noctx // Ctrl-C ends it
	stdout, err := dev.StdoutPipe()
	require.NoError(t, err)
	dev.Stderr = os.Stderr
	dev.Env = append(os.Environ(), environment...)
	require.NoError(t, dev.Start())
	t.Cleanup(func() { _ = dev.Process.Kill() })
	var said strings.Builder
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if lines.Text() == "Serving until Ctrl-C." {
			break // the last line of the start
		}
	}
	up := regexp.MustCompile(`webhook (http://[^,]+), worker (http://[^,]+),`).FindStringSubmatch(said.String())
	require.NotNil(t, up, said.String())
	return &devRun{process: dev, said: said.String(), webhookURL: up[1], workerURL: up[2]}
}

func (d *devRun) end(t *testing.T) {
	t.Helper()
	require.NoError(t, d.process.Process.Signal(os.Interrupt))
	require.NoError(t, d.process.Wait(), "Ctrl-C is a good end")
}

// TestTheRunbookLeadsFromAlertToCredit follows the runbook in another terminal, with nothing but
// the program, and across a restart of dev.
func TestTheRunbookLeadsFromAlertToCredit(t *testing.T) {
	t.Parallel()
	binary, err := program()
	require.NoError(t, err)
	folder := filepath.Join(t.TempDir(), "kept", "here")
	dev := startDev(t, binary, "--data", folder, "--no-samples")
	require.Contains(t, dev.said, "Its state is kept in "+folder)

	say := func(server string, words ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), binary, append(words, "--server", server)...)
		command.Env = []string{"HOME=" + folder, "OPS_OPERATOR=ada"} // without the variables of the test
		said, err := command.CombinedOutput()
		require.NoError(t, err, string(said))
		return string(said)
	}
	second, err := exec.CommandContext(t.Context(), binary, "dev", "--data", folder, "--webhook-port", "0", "--worker-port", "0", "--service-port", "0").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(second), "another billhook dev is using "+folder)

	send := exec.CommandContext(t.Context(), binary, "send", "paynow", "--sample", "order_completed_unknown_product_no_uid", "--webhook", dev.webhookURL)
	sent, err := send.CombinedOutput()
	require.NoError(t, err, string(sent))
	queues := func(server string) string {
		for line := range strings.Lines(say(server, "queues")) {
			if strings.HasPrefix(line, e2e.Queue+" ") {
				return strings.Join(strings.Fields(line), " ")
			}
		}
		return ""
	}
	require.Eventually(t, func() bool { return strings.Contains(queues(dev.workerURL), " ALERT") }, patience, 100*time.Millisecond)
	const product = "502113004410000777"
	require.Contains(t, say(dev.workerURL, "dlq", "ls", e2e.Queue, "--reason", "unknown_product"), product)
	var letters ops.DeadLetters
	require.NoError(t, json.Unmarshal([]byte(say(dev.workerURL, "dlq", "ls", e2e.Queue, "--json")), &letters))
	require.Len(t, letters.Items, 1)
	require.Contains(t, say(dev.workerURL, "dlq", "show", letters.Items[0].ID), "400 unknown_product "+product)
	require.Contains(t, say(dev.workerURL, "products", "set", product, "--points", "500", "--why", "sold since today"), product+" is worth 500 points")
	require.Contains(t, say(dev.workerURL, "dlq", "replay", e2e.Queue, "--reason", "unknown_product", "--why", "product added", "--yes"), "replay: 1 done")
	credited := func(server string) bool {
		return strings.Contains(say(server, "events", "show", letters.Items[0].EventID), "credited")
	}
	require.Eventually(t, func() bool { return credited(dev.workerURL) }, patience, 100*time.Millisecond)
	require.NotContains(t, queues(dev.workerURL), "ALERT")
	dev.end(t)

	dev = startDev(t, binary, "--data", folder, "--no-samples")
	require.Contains(t, dev.said, "It goes on with the state in "+folder)
	require.True(t, credited(dev.workerURL))
	require.Contains(t, say(dev.workerURL, "products", "ls"), product)
	require.Contains(t, say(dev.workerURL, "products", "history", product), "local:ada")
	dev.end(t)
}

// TestAKilledDevGoesOn kills dev in the middle of its samples, again and again, each time behind
// another line, and lets the last run end them.
func TestAKilledDevGoesOn(t *testing.T) {
	t.Parallel()
	onlyInFull(t) // it waits for leases to end
	binary, err := program()
	require.NoError(t, err)
	folder := t.TempDir()
	for i, behind := range []string{"an order  ", "a full refund", "a trial with its payment", "an order is confirmed"} {
		dev := exec.CommandContext(t.Context(), binary, "dev", "--webhook-port", "0", "--worker-port", "0", "--service-port", "0", "--data", folder)
		stdout, err := dev.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, dev.Start())
		found, ended := false, false
		for lines := bufio.NewScanner(stdout); !found && !ended && lines.Scan(); {
			found, ended = strings.HasPrefix(lines.Text(), "  "+behind), lines.Text() == "Serving until Ctrl-C."
		}
		require.True(t, found || i == 3, "%s: what was not sent is sent now", behind) // the last may be sent before the kill
		require.NoError(t, dev.Process.Kill())
		require.Error(t, dev.Wait())
	}
	dev := startDev(t, binary, "--data", folder)
	ask := func(path string, answer any) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, dev.workerURL+path, nil)
		require.NoError(t, err)
		got, err := e2e.Do(request)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal([]byte(got.Body), answer))
	}
	statuses := map[string]int{}
	require.Eventually(t, func() bool { // what was in hand when dev was killed is taken up when its lease is over
		var all ops.List[ops.Line]
		ask("/v1/ops/events?limit=100", &all)
		clear(statuses)
		for _, line := range all.Items {
			statuses[line.Queue+" "+string(line.Status)]++
		}
		return statuses["sub-trial-payment COMPLETED"]+statuses["pay-refund-initiation COMPLETED"]+statuses["pay-subscription-update COMPLETED"] == 8 &&
			statuses["search-index COMPLETED"]+statuses["notifications-send COMPLETED"] == 11
	}, 3*time.Minute, 200*time.Millisecond)
	require.Equal(t, map[string]int{
		"paynow-events COMPLETED": 6, "paynow-events DEAD_LETTERED": 1, "pay-subscription-update COMPLETED": 4,
		"sub-trial-payment COMPLETED": 1, "sub-payment-initiation COMPLETED": 1, "pay-refund-initiation COMPLETED": 3,
		"orders-process COMPLETED": 2, "notifications-fanout COMPLETED": 2, "notifications-send COMPLETED": 6,
		"events-high COMPLETED": 1, "events-normal COMPLETED": 1, "fis-ingestion COMPLETED": 1,
		"search-index COMPLETED": 5, "search-index DEAD_LETTERED": 1, "events-low COMPLETED": 1,
	}, statuses, "nothing is lost, and nothing is done under a second id")
	for account, want := range map[string]int64{samples.UID: 2000, "dev-user-of-the-retry": 2000} {
		var got ops.Account
		ask("/v1/ops/accounts/"+string(ledger.UserPoints(account)), &got)
		require.Equal(t, want, got.Balance)
	}
	dev.end(t)
}
