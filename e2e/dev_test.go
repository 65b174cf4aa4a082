package e2e_test

import (
	"bufio"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/apps/ledger"
	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/inspect/events"
)

// devRun is `billhook dev` as a process, with the helpers of a stack.
type devRun struct {
	stack
	process *exec.Cmd
	// said is the output of the start, each white space a blank, and lines are its lines.
	said  string
	lines []string
}

var devPorts = []string{"dev", "--webhook-port", "0", "--worker-port", "0", "--service-port", "0"}

// startDev starts dev with these variables, and waits for a line of its output that begins with line, or for
// the last one of the start. It reports whether the line came.
func startDev(
	t *testing.T, environment []string, line string, arguments ...string,
) (dev *devRun, found bool) {
	t.Helper()
	dev = &devRun{process: operator(t, environment, slices.Concat(devPorts, arguments)...)}
	stdout := filetest.Must(dev.process.StdoutPipe())(t)
	dev.process.Stderr = os.Stderr
	require.NoError(t, dev.process.Start())
	t.Cleanup(func() { _ = dev.process.Process.Kill() })
	for lines, ended := bufio.NewScanner(stdout), false; !ended && !found && lines.Scan(); {
		dev.lines = append(dev.lines, lines.Text())
		ended, found = lines.Text() == "Serving until Ctrl-C.", line != "" && strings.HasPrefix(lines.Text(), line)
	}
	dev.said = strings.Join(strings.Fields(strings.Join(dev.lines, " ")), " ")
	up := regexp.MustCompile(`webhook (http://[^,]+), worker (http://[^,]+),`).FindStringSubmatch(dev.said)
	require.NotNil(t, up, dev.said)
	dev.webhookURL, dev.workerURL, dev.opsURL = up[1], up[2], up[2]
	return dev, found
}

func (d *devRun) end(t *testing.T) {
	t.Helper()
	require.NoError(t, d.process.Process.Signal(os.Interrupt))
	require.NoError(t, d.process.Wait(), "Ctrl-C is no failure")
}

// `make run` runs the same command.
func TestOneCommandShowsEverySample(t *testing.T) {
	t.Parallel()
	dev, _ := startDev(t, nil, "")
	_, block, _ := strings.Cut(filetest.Read(t, "..", "README.md"), "\nSending signed ")
	block, _, _ = strings.Cut(block, "\n  ...")
	// A sample is indented by two spaces; the lines that continue it, by more.
	shown := regexp.MustCompile(`(?m)^  \S.*(\n {3,}.*)*`).FindAllString(block, -1)
	require.Greater(t, len(shown), 5)
	for _, sample := range shown {
		require.Contains(t, dev.said, strings.Join(strings.Fields(sample), " "), "the README shows what it prints")
	}
	for _, line := range dev.lines {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 101, line)
	}
	// One sender has sent a part of its request, and one nothing.
	for _, text := range []string{
		"POST /push/paynow-events HTTP/1.1\r\nHost: worker\r\nContent-Length: 9\r\n\r\n{", "",
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(dev.workerURL, "http://"))
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		require.NoError(t, filetest.ErrorOf(conn.Write([]byte(text))))
	}
	dev.end(t)
}

func TestSamplesOfQueuesThatDoNotRunAreLeftOut(t *testing.T) {
	t.Parallel()
	for queues, shows := range map[string][]string{
		"paynow-events,pay-subscription-update": {
			"a subscription that renews 202", "a trial with its payment left out: sub-trial-payment does not run here",
			"five products, one of them bad left out: search-index does not run here",
		},
		"events-low": {
			"an order left out: no queue that runs here is for it", "an event for a third party 202, then delivered",
		},
	} {
		t.Run(queues, func(t *testing.T) {
			t.Parallel()
			dev, _ := startDev(t, []string{"QUEUES=" + queues}, "")
			for _, shown := range shows {
				require.Contains(t, dev.said, shown)
			}
			dev.end(t)
		})
	}
}

// It kills dev several times in the middle of its samples, each time after another line, and lets the last
// run end them. Only one dev at a time may use the state.
func TestAKilledDevContinues(t *testing.T) {
	t.Parallel()
	onlyInFull(t) // it waits for leases to end
	folder := filepath.Join(t.TempDir(), "kept", "here")
	begins := "Its state is kept in "
	for i, line := range []string{
		"an order  ", "a full refund", "a trial with its payment", "an order is confirmed",
	} {
		dev, found := startDev(t, nil, "  "+line, "--data", folder)
		require.Contains(t, dev.said, begins+folder)
		begins = "It goes on with the state in "
		require.True(t, found || i == 3, "%s is not sent", line) // the last may be sent before the kill
		require.NoError(t, dev.process.Process.Kill())
		require.Error(t, dev.process.Wait())
	}
	dev, _ := startDev(t, nil, "", "--data", folder)
	second, err := billhook(t, append(devPorts, "--data", folder)...)
	require.Error(t, err)
	require.Contains(t, second, "another billhook dev is using "+folder)

	want := map[string]int{
		"paynow-events COMPLETED": 4, "paynow-events DEAD_LETTERED": 1, "pay-subscription-update COMPLETED": 4,
		"sub-trial-payment COMPLETED": 1, "sub-payment-initiation COMPLETED": 1,
		"pay-refund-initiation COMPLETED": 3, "orders-process COMPLETED": 2, "notifications-fanout COMPLETED": 2,
		"notifications-send COMPLETED": 6, "events-high COMPLETED": 1, "events-normal COMPLETED": 1,
		"fis-ingestion COMPLETED": 1, "search-index COMPLETED": 5, "search-index DEAD_LETTERED": 1,
		"events-low COMPLETED": 1,
	}
	// Events in progress at a kill continue when their lease ends.
	statuses, ends := map[string]int{}, time.Now().Add(5*time.Minute)
	for done := false; !done && time.Now().Before(ends); e2e.Wait(t.Context(), pollInterval) {
		var all console.List[events.Line]
		dev.ask(t, http.MethodGet, "/v1/ops/events?limit=100", nil, &all)
		clear(statuses)
		for _, line := range all.Items {
			statuses[line.Queue+" "+string(line.Status)]++
		}
		leased := func(line events.Line) bool { return line.Status == dedupe.Processing }
		done = !slices.ContainsFunc(all.Items, leased) && len(all.Items) >= 34
	}
	require.Equal(t, want, statuses, "no event is lost, and none has a second id")
	var got ledger.Holding
	dev.ask(t, http.MethodGet, "/v1/ops/accounts/"+string(ledger.UserPoints(samples.UID)), nil, &got)
	require.Equal(t, []int{0, 2}, []int{int(got.Balance), len(got.Entries)}, "credited and refunded once")
	dev.end(t)
}
