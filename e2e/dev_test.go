package e2e_test

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOneCommandShowsEverySample runs what `make run` runs. It waits for the samples, asks for
// one of the events, and presses Ctrl-C.
func TestOneCommandShowsEverySample(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "billhook")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", binary, "billhook/cmd/billhook")
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))

	dev := exec.Command(binary, "dev", "--webhook-port", "0", "--worker-port", "0", "--service-port", "0") //nolint:noctx // Ctrl-C ends it, and that is the test
	stdout, err := dev.StdoutPipe()
	require.NoError(t, err)
	dev.Stderr = os.Stderr
	require.NoError(t, dev.Start())
	t.Cleanup(func() { _ = dev.Process.Kill() })
	var shown strings.Builder
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		shown.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "/deliveries") {
			break // the last line of the start
		}
	}
	for _, want := range []string{
		"credited; the balance is 2000", "skipped as a duplicate", "the balance is 4000", "dead-lettered: unknown_product",
		"delivered again and credited, with 1 attempt counted; the balance is 2000", "reversed",
		"told the subscription service once: delivered at attempt 1", "asked at attempt 2 whether it is done: delivered; applied 1 time",
		"401 signature_mismatch", "401 timestamp_too_old",
	} {
		require.Contains(t, shown.String(), want)
	}
	worker := regexp.MustCompile(`worker (http://[^,]+),`).FindStringSubmatch(shown.String())
	require.NotNil(t, worker)
	ask := exec.CommandContext(t.Context(), binary, "events", "show", "900000000000000031", "--server", worker[1], "--json")
	output, err = ask.CombinedOutput()
	require.NoError(t, err, string(output))
	require.Contains(t, string(output), `"reason": "unknown_product"`)

	for _, step := range []struct{ arguments, want string }{
		{"dlq ls paynow-events --reason unknown_product", "1 shown: unknown_product 1"},
		{"dlq replay paynow-events --dry-run", "replay would touch 1 dead letters of paynow-events"},
		{"dlq replay paynow-events --yes --rate 10", "replay: 1 done, 0 passed by"},
		{"dlq operations", "finished"},
		{"dlq discard paynow-events --yes --reason nothing_such --why test", "would touch 0"},
		{"queues", "pay-subscription-update"},
		{"outbox", "Nothing waits."},
	} {
		said, err := exec.CommandContext(t.Context(), binary, append(strings.Fields(step.arguments), "--server", worker[1])...).CombinedOutput()
		require.NoError(t, err, string(said))
		require.Contains(t, string(said), step.want, step.arguments)
	}

	// One sender stops in the middle of its request, and one has sent nothing.
	for _, said := range []string{"POST /push/paynow-events HTTP/1.1\r\nHost: worker\r\nContent-Length: 9\r\n\r\n{", ""} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(worker[1], "http://"))
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = conn.Write([]byte(said))
		require.NoError(t, err)
	}
	require.NoError(t, dev.Process.Signal(os.Interrupt))
	require.NoError(t, dev.Wait(), "Ctrl-C is a good end")
}
