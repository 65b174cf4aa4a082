package e2e_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// TestOneCommandShowsEverySample runs what `make run` runs. It waits for the samples, asks for
// one of the events, and presses Ctrl-C.
func TestOneCommandShowsEverySample(t *testing.T) {
	t.Parallel()
	binary, err := program()
	require.NoError(t, err)

	dev := startDev(t, binary)
	said := strings.Join(strings.Fields(dev.said), " ") // long lines are broken
	for _, shown := range shownByTheREADME(t) {
		require.Contains(t, said, shown, "the README shows what `make run` prints")
	}
	for line := range strings.Lines(dev.said) {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 101, line)
	}
	for _, step := range []struct{ arguments, want string }{
		{"dlq ls paynow-events --reason unknown_product", "1 shown: unknown_product 1"},
		{"dlq replay paynow-events --dry-run", "replay would touch 1 dead letters of paynow-events"},
		{"dlq replay paynow-events --yes --rate 10 --no-wait --why tested", "replay: 1 done, 0 passed by"},
		{"dlq operations", "finished"},
		{"outbox", "Nothing waits."},
	} {
		answer, err := exec.CommandContext(t.Context(), binary, append(strings.Fields(step.arguments), "--server", dev.workerURL)...).CombinedOutput()
		require.NoError(t, err, string(answer))
		require.Contains(t, string(answer), step.want, step.arguments)
	}

	// One sender stops in the middle of its request, and one has sent nothing.
	for _, text := range []string{"POST /push/paynow-events HTTP/1.1\r\nHost: worker\r\nContent-Length: 9\r\n\r\n{", ""} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(dev.workerURL, "http://"))
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = conn.Write([]byte(text))
		require.NoError(t, err)
	}
	dev.end(t)
}

// shownByTheREADME are the samples in the README's blocks of what `make run` prints, each in one
// line. A sample begins two spaces in; what follows it stands further in.
func shownByTheREADME(t *testing.T) (samples []string) {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join("..", "README.md"))
	require.NoError(t, err)
	for i, block := range strings.Split(string(readme), "```") {
		if i%2 == 0 || !strings.Contains(block, "\nSending signed ") {
			continue
		}
		for line := range strings.Lines(block) {
			switch indented := len(line) - len(strings.TrimLeft(line, " ")); {
			case strings.TrimSpace(line) == "...", indented < 2:
			case indented == 2:
				samples = append(samples, strings.Join(strings.Fields(line), " "))
			default:
				samples[len(samples)-1] += " " + strings.Join(strings.Fields(line), " ")
			}
		}
	}
	require.Greater(t, len(samples), 5)
	return samples
}

// TestWhatDoesNotRunIsLeftOut runs dev as a deployment of two queues does.
func TestWhatDoesNotRunIsLeftOut(t *testing.T) {
	t.Parallel()
	binary, err := program()
	require.NoError(t, err)
	t.Run("of PayNow alone", func(t *testing.T) {
		t.Parallel()
		dev := startDevWith(t, []string{"QUEUES=paynow-events,pay-subscription-update"}, binary)
		said := strings.Join(strings.Fields(dev.said), " ")
		require.Contains(t, said, "a subscription that renews 202")
		require.Contains(t, said, "a trial with its payment left out: sub-trial-payment does not run here")
		require.Contains(t, said, "five products, one of them bad left out: search-index does not run here")
		require.NotContains(t, said, "/gateway/orders")
		dev.end(t)
	})
	t.Run("of third parties alone", func(t *testing.T) {
		t.Parallel()
		dev := startDevWith(t, []string{"QUEUES=events-low"}, binary)
		said := strings.Join(strings.Fields(dev.said), " ")
		require.Contains(t, said, "No queue that takes PayNow's events runs here")
		require.Contains(t, said, "an event for a third party 202, then delivered")
		dev.end(t)
	})
}
