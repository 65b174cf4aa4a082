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
	binary := filepath.Join(t.TempDir(), "billhook")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", binary, "billhook/cmd/billhook")
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))

	dev := startDev(t, binary)
	said := strings.Join(strings.Fields(dev.said), " ") // long lines are broken
	for _, want := range []string{
		"credited; the balance is 2000", "skipped as a duplicate", "the balance is 4000", "dead-lettered: unknown_product",
		"delivered again and credited, with 1 attempt counted; the balance is 2000", "reversed",
		"told the subscription service once: delivered at attempt 1", "asked at attempt 2 whether it is done: delivered; applied 1 time",
		"401 signature_mismatch", "401 timestamp_too_old",

		"a trial with its payment 202, then paid at the gateway (1.00 EUR); the subscription service is told once: trial succeeded; the payment is refunded > bin/billhook events ls --correlation dev-trial-subscription",
		"a renewal that is due 202, then paid at the gateway (9.99 EUR); the subscription service is told once: renewal succeeded > bin/billhook events show dev-renewal",
		"a refund, asked for twice 200: 2 of 2 accepted; refunded, once; the second message: already_refunded > bin/billhook refunds show dev-payment",
		"an order and its payment 202, then payment_initiated; 202, then confirmed > bin/billhook orders show dev-shop-order > bin/billhook stock ls",
		"usage beyond 80 % of a quota 202, then counted; the platform is told once: quota_warning > bin/billhook usage show dev-subscription",
		"an invoice is paid 202, then posted in the journal > bin/billhook ledger show dev-invoice > bin/billhook ledger balances --period 2026-03",
		"an order is confirmed 202, then its user is told by email, sms, push, once each > bin/billhook events show dev-order-confirmed",
		"five events for analytics 200: 5 of 5 accepted; written in ", ", without records > curl",
		"five products, one of them bad 200: 5 of 5 accepted; 4 indexed in ", "the bad one is dead-lettered: callee_refused_400 > bin/billhook events show dev-product-bad > bin/billhook dlq ls search-index",
		"an event for a third party 202, then delivered: invoice.paid, signed by Standard Webhooks, checked and accepted > bin/billhook endpoints show dev-partner",
	} {
		require.Contains(t, said, want)
	}
	for _, shown := range shownByTheREADME(t) {
		require.Contains(t, said, shown, "the README shows what `make run` prints")
	}
	for line := range strings.Lines(dev.said) {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 101, line)
	}
	ask := exec.CommandContext(t.Context(), binary, "events", "show", "900000000000000031", "--server", dev.workerURL, "--json")
	output, err = ask.CombinedOutput()
	require.NoError(t, err, string(output))
	require.Contains(t, string(output), `"reason": "unknown_product"`)

	for _, step := range []struct{ arguments, want string }{
		{"dlq ls paynow-events --reason unknown_product", "1 shown: unknown_product 1"},
		{"dlq replay paynow-events --dry-run", "replay would touch 1 dead letters of paynow-events"},
		{"dlq replay paynow-events --yes --rate 10 --no-wait --why tested", "replay: 1 done, 0 passed by"},
		{"dlq operations", "finished"},
		{"dlq discard paynow-events --yes --reason nothing_such --why test", "would touch 0"},
		{"queues --wide", "pay-subscription-update"},
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
	binary := filepath.Join(t.TempDir(), "billhook")
	output, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", binary, "billhook/cmd/billhook").CombinedOutput()
	require.NoError(t, err, string(output))
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
