package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/filetest"
	"billhook/internal/ingest/importer/importertest"
	"billhook/internal/platform/serve"
)

func check(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	return say(t, map[string]string{"CATALOG_DIR": dir}, append([]string{"admin", "catalog", "check"},
		args...)...)
}

// checkAnswer is what --json prints of a check.
type checkAnswer struct{ Mistakes []catalog.Mistake }

func TestCatalogCheckReportsWhatTheWorkerWouldRefuse(t *testing.T) {
	t.Parallel()
	printed := filetest.Must(check(t, ""))(t)
	require.Regexp(t, `The catalog is sound: \d+ queues, built in\.`, printed)
	// The loader takes it, and no program has its handlers.
	small := filepath.Join("..", "..", "catalog", "testdata", "small")
	for _, args := range [][]string{{"", small}, {small}, {"nowhere", small}} {
		printed, err := check(t, args[0], args[1:]...)
		require.EqualError(t, err, "catalog check: mistakes: 2")
		require.Equal(t, 1, serve.ExitCode(err))
		const unregistered = ": no handler is registered as "
		require.Equal(t, small+"/queues.yaml:38: queue bookings: event type seat.taken"+unregistered+
			"\"seats.take\"\n"+small+"/queues.yaml:39: queue bookings: event type seat.freed"+unregistered+
			"\"seats.free\"\n", printed)
	}
	printed, err := check(t, filepath.Join("..", "..", "catalog", "testdata", "crooked"))
	require.Error(t, err)
	require.Contains(t, printed, "queue ordered: event type hall.*.closed: post:post-office/cards and the "+
		"queue disagree on whether attempts are gathered into batches")
	require.NotContains(t, printed, `registered as "post:`, "a post needs no handler of Go")
	printed, err = check(t, "", filepath.Join(small, "queues.yaml"))
	require.ErrorContains(t, err, "queues.yaml is no folder")
	require.Equal(t, 2, serve.ExitCode(err))
	require.Empty(t, printed)
}

func shipped(t *testing.T, file string, change func(text string) string) string {
	t.Helper()
	folder := t.TempDir()
	files := filetest.Must(filepath.Glob(filepath.Join("..", "..", "catalog", "*.yaml")))(t)
	require.NotEmpty(t, files)
	for _, path := range files {
		text := filetest.Read(t, path)
		if filepath.Base(path) == file {
			was := text
			text = change(was)
			require.NotEqual(t, was, text)
		}
		require.NoError(t, os.WriteFile(filepath.Join(folder, filepath.Base(path)), []byte(text), 0o600))
	}
	return folder
}

// Mistakes of the loader do not hide those that a worker would refuse.
func TestCatalogCheckReportsAllMistakesTogether(t *testing.T) {
	t.Parallel()
	folder := shipped(t, "queues.yaml", func(text string) string {
		return strings.NewReplacer("name: orders.ship", "name: orders.send", "name: webhooks.deliver",
			"name: webhooks.send", `lease: "120s"`, `lease: 2m`).Replace(text)
	})
	messages := filepath.Join(folder, "messages.yaml")
	text := filetest.Read(t, messages)
	require.NoError(t, os.WriteFile(messages, []byte(strings.Replace(text,
		"1: { order_id: id!, payment_id: id }", "1: { order_id: id!, payment_id: quantity }", 1)), 0o600))
	printed, err := check(t, "", folder, "--json")
	require.Equal(t, 1, serve.ExitCode(err))
	answer := filetest.JSON[checkAnswer](t, printed)
	var mistakes []string
	for _, m := range answer.Mistakes {
		require.Equal(t, filepath.Join(folder, "queues.yaml"), m.File)
		require.Positive(t, m.Line)
		mistakes = append(mistakes, strings.Join([]string{m.Where, m.Key, m.What}, ": "))
	}
	require.Equal(t, []string{
		`: defaults.lease: must be a duration in seconds, in quotes, such as "600s"`,
		`queue events-low: event type webhook_delivery: no handler is registered as "webhooks.send"`,
		"queue orders-process: event type order.payment_confirmed: orders.confirm: message.v1 " +
			"order.payment_confirmed, version 1: data .payment_id is no string",
		`queue orders-process: event type order.shipped: no handler is registered as "orders.send"`,
	}, mistakes)
}

// The Go type that handles an upgrade has no seats; the posted upgrade has them.
func TestCatalogCheckAcceptsMembersMissingFromAHandlersType(t *testing.T) {
	t.Parallel()
	folder := shipped(t, "messages.yaml", func(text string) string {
		return strings.Replace(text, "# The data of messages.\n",
			"  upgrade:\n    1: { subscription_id: id!, amount: amount, currency: currency, seats: integer, "+
				"prorated: boolean, invoice: { invoice_id: id! } }\n\n# The data of messages.\n", 1)
	})
	require.NoError(t, filetest.ErrorOf(check(t, "", folder)))
}

// If any line of a catalog is missing, the check reports mistakes in its files, or none.
func TestCatalogCheckReadsACatalogThatLacksAnyLine(t *testing.T) {
	t.Parallel()
	step := map[bool]int{true: 37, false: 5}[testing.Short()]
	for _, file := range []string{
		"queues.yaml", "messages.yaml", "targets.yaml", "journal.yaml", "topics.yaml", "notifications.yaml",
		"usage.yaml", "sources.yaml",
	} {
		text := filetest.Read(t, "..", "..", "catalog", file)
		for i := 0; i < strings.Count(text, "\n"); i += step {
			folder := shipped(t, file, func(text string) string {
				lines := strings.SplitAfter(text, "\n")
				return strings.Join(slices.Delete(lines, i, i+1), "")
			})
			printed, err := check(t, "", folder, "--json")
			answer := filetest.JSON[checkAnswer](t, printed)
			require.Equal(t, err == nil, len(answer.Mistakes) == 0)
			for _, m := range answer.Mistakes {
				require.NotEmpty(t, m.File, "%s:%d: %s", file, i+1, m)
			}
		}
	}
}

// A new provider needs the page's file and sample, and nothing else.
func TestAProviderIsAddedByFollowingItsPage(t *testing.T) {
	t.Parallel()
	page := filetest.Read(t, "../../docs/start/first-provider.md")
	block := func(language string) string {
		found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(page)
		require.NotNil(t, found, language)
		return found[1]
	}
	folder := shipped(t, "sources.yaml", func(text string) string { return text + "\n" })
	sample := filepath.Join(folder, "sample.json")
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "providers"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "providers", "acme.yaml"),
		[]byte(block("yaml")), 0o600))
	require.NoError(t, os.WriteFile(sample, []byte(block("json")), 0o600))
	set := map[string]string{"CATALOG_DIR": folder}
	succeeds(t, set, "admin", "catalog", "check")
	said := succeeds(t, set, "providers", "try", "acme", "-f", sample)
	require.Contains(t, said, `"total": "20.00"`)
	require.Regexp(t, `payment.customer.email +no mapping names it`, said)
	require.NotContains(t, said, "Brandvold")
	said = succeeds(t, set, "listen", "acme")
	require.Contains(t, said, "http://127.0.0.1:8080/webhooks/acme")
	_, source, found := strings.Cut(said, "under sources:\n")
	require.True(t, found)
	source, _, _ = strings.Cut(source, "\n\n")
	sources := filepath.Join(folder, "sources.yaml")
	filetest.Replace(t, "sources:\n", "sources:\n"+source+"\n", sources)
	succeeds(t, set, "admin", "catalog", "check")
}

// serveIngest serves an ingest that accepts every message without the word "refuse". It returns its address,
// and how many messages it has accepted.
func serveIngest(t *testing.T) (address string, taken *int) {
	t.Helper()
	taken = new(int)
	address = listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct{ Messages []json.RawMessage }
		_ = json.NewDecoder(r.Body).Decode(&request)
		var results []string
		for _, message := range request.Messages {
			if strings.Contains(string(message), "refuse") {
				results = append(results,
					`{"status":422,"code":"contract_broken","violations":[{"path":"payload.email","rule":"unknown"}]}`)
				continue
			}
			results = append(results, `{"status":202}`)
			*taken++
		}
		_, _ = io.WriteString(w, `{"results":[`+strings.Join(results, ",")+`]}`)
	}))
	return address, taken
}

func TestAnImportShowsAPreviewAsksMovesAndListsRefusals(t *testing.T) {
	t.Parallel()
	do, from := importertest.Redis(t)
	for i := range 3 {
		do("LPUSH", "q:sub:plan_change",
			fmt.Sprintf(`{"id":"m%d","action":"upgrade","payload":{"subscription_id":"hunter2"}}`, i))
	}
	do("LPUSH", "q:sub:plan_change", `{"id":"m3","action":"downgrade","payload":{"email":"refuse"}}`,
		`not JSON: hunter2`)
	do("LPUSH", "q:sub:plan_change:failed", `{}`)
	do("LPUSH", "orders.process", `{}`)
	ingest, taken := serveIngest(t)
	idle := shipped(t, "queues.yaml", func(text string) string {
		before, after, _ := strings.Cut(text, "  - id: orders-process\n")
		return before + "  - id: orders-process\n" + strings.Replace(after, "enabled: true", "enabled: false", 1)
	})
	run := func(input string, arguments ...string) (string, error) {
		out, err := sayWith(t, map[string]string{"REDIS_URL": from, "CATALOG_DIR": idle}, func(p *program) {
			p.stdin = strings.NewReader(input)
		}, append([]string{"admin", "import", "redis", "--webhook", ingest}, arguments...)...)
		require.NotContains(t, out, "hunter2")
		return out, err
	}
	said := filetest.Must(run("", "--dry-run", "--wide"))(t)
	for _, line := range []string{
		"sub-plan-change  q:sub:plan_change         waiting  5         -\n",
		"sub-plan-change  q:sub:plan_change:failed  failed   1         they have failed; --failed takes them, " +
			"with all attempts again\n",
		"orders-process   orders.process            waiting  1         the queue is not enabled\n",
		"TYPES OF THE FIRST  upgrade 3, downgrade 1, not_an_object 1\nWOULD BE MOVED      5\nSTAY              " +
			"  2\nFIRST LOOKED AT     5\n",
	} {
		require.Contains(t, said, line)
	}
	require.EqualError(t, filetest.ErrorOf(run("no\n")), "nothing was changed")
	require.Zero(t, *taken)

	said, err := run("5\n")
	require.EqualError(t, err, "2 messages were refused, and stay where they were")
	require.Equal(t, 3, *taken)
	require.Contains(t, said, "\nMoved: sub-plan-change 3\nRefused, and where they were, of which the first "+
		"2 are listed: contract_broken payload.email: unknown 1, not_an_object 1\n")
	require.EqualValues(t, 2, do("LLEN", "q:sub:plan_change"))

	said, err = run("", "--json", "--yes", "--member", "email=", "sub-plan-change")
	require.Error(t, err)
	type report struct{ Moved, Refused int }
	require.Equal(t, report{1, 1}, filetest.JSON[report](t, said))

	for argument, want := range map[string]string{
		"nobody":        `the catalog has no queue "nobody"`,
		"paynow-events": "the queue paynow-events had no name before: say paynow-events=<old name>",
	} {
		require.ErrorContains(t, filetest.ErrorOf(run("", argument)), want)
	}
}
