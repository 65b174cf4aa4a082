package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/internal/filetest"
	"billhook/internal/ingest/importer"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/signature"
)

// webhookStub is a webhook service that keeps what is signed with devSecret, and answers as the test says.
type webhookStub struct {
	paths  []string
	bodies []map[string]any
	raw    []string
	// status and answer are of each request; 0: 202.
	status int
	answer string
}

// serve serves it and returns what runs the program against it.
func (d *webhookStub) serve(t *testing.T) func(stdin string, args ...string) (string, error) {
	t.Helper()
	address := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		scheme := signature.Generic
		if strings.HasPrefix(r.URL.Path, "/webhooks/") {
			scheme = catalogtest.Shipped().Providers["paynow"].Signature
		}
		verifier, fails := signature.NewVerifier(scheme, []string{devSecret}, time.Minute, time.Now)
		var read map[string]any
		if err != nil || fails != nil || verifier.Verify(r.Header.Values, body) != nil ||
			json.Unmarshal(body, &read) != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		d.paths, d.bodies = append(d.paths, r.URL.Path), append(d.bodies, read)
		d.raw = append(d.raw, string(body))
		if d.status == 0 {
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"event_id":"e1","queue":"q","message_id":"17","ordering_key":"k"}`)
			return
		}
		w.WriteHeader(d.status)
		_, _ = io.WriteString(w, d.answer)
	}))
	return func(stdin string, args ...string) (string, error) {
		t.Helper()
		return sayWith(t, nil, func(p *program) { p.stdin = strings.NewReader(stdin) },
			append(args, "--webhook", address)...)
	}
}

// inside is a value in a body, by the names of its path.
func inside(body map[string]any, path string) any {
	var value any = body
	for name := range strings.SplitSeq(path, ".") {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value
}

func TestASampleHasTheIDsOfTheFlags(t *testing.T) {
	t.Parallel()
	webhook := &webhookStub{}
	run := webhook.serve(t)
	ids := " --order 50211300441099002 --customer 50211300441099003"
	said, err := run("", strings.Fields("send paynow --event-id 50211300441099001 --uid some-user"+ids)...)
	require.NoError(t, err)
	require.Equal(t, "ACCEPTED  1\nREFUSED   0\n\nSTATUS  EVENT  QUEUE  MESSAGE  KEY  REFUSED\n202     e1   "+
		"  q      17       k    -\n", said)
	order := webhook.bodies[0]
	require.Equal(t,
		[]any{"ON_ORDER_COMPLETED", "50211300441099001", "50211300441099002", "50211300441099003", "some-user"},
		[]any{
			order["event_type"], order["event_id"], inside(order, "body.id"), inside(order, "body.customer.id"),
			inside(order, "body.checkout.metadata.uid"),
		})

	require.NoError(t, filetest.ErrorOf(run("", strings.Fields("send paynow --json --sample refund"+ids)...)))
	refund := webhook.bodies[1]
	require.Equal(t,
		[]any{"ON_REFUND", "50211300441099002", "50211300441099003", inside(order, "body.total_amount")},
		[]any{
			refund["event_type"], inside(refund, "body.order_id"), inside(refund, "body.customer.id"),
			inside(refund, "body.amount"),
		})
	require.NotEqual(t, order["event_id"], refund["event_id"])
	said = filetest.Must(run("", "send", "paynow", "--uid", "ilse@example.org"))(t)
	require.Contains(t, said, "--uid is personal data (email)")
}

func TestRepeatedSamplesHaveNewIDsUnlessOneIsNamed(t *testing.T) {
	t.Parallel()
	type row struct {
		args string
		same bool
	}
	filetest.Each(t, map[string]row{
		"webhooks":                {"send paynow --repeat 3", false},
		"one webhook":             {"send paynow --repeat 3 --event-id 50211300441099001", true},
		"messages":                {"enqueue events-high --repeat 3", false},
		"one message":             {"enqueue events-high --repeat 3 --event-id e-1", true},
		"messages, of one key":    {"enqueue events-high --repeat 3 --key k-1", false},
		"one message of its name": {"enqueue q:sub:usage_sync --repeat 3 --event-id sample-abc", true},
	}, func(t *testing.T, test row) {
		webhook := &webhookStub{}
		said := filetest.Must(webhook.serve(t)("", append(strings.Fields(test.args), "--json")...))(t)
		require.Len(t, filetest.JSON[struct{ Items []importer.Result }](t, said).Items, 3)
		require.Len(t, webhook.bodies, 3)
		for _, body := range webhook.bodies {
			// the time at which a body was made may differ
			for _, member := range []string{"timestamp", "created_at"} {
				delete(body, member)
			}
		}
		if test.same {
			require.Equal(t, webhook.bodies[0], webhook.bodies[1])
			return
		}
		require.NotEqual(t, webhook.bodies[0], webhook.bodies[1])
		require.NotEqual(t, webhook.bodies[1], webhook.bodies[2])
	})
}

func TestAMessageIsSentAsInItsFileExceptForFlags(t *testing.T) {
	t.Parallel()
	const message = `{"id":"m1","type":"usage_tracking","version":1,"data":{"subscription_id":"s1",` +
		`"quantity":9007199254740993}}`
	type row struct {
		file, args, want string
	}
	filetest.Each(t, map[string]row{
		"as it is": {message, "", message},
		"a list, as it is": {
			`{"messages":[{"message":{"id":"m1"}},7]}`, "", `{"messages":[{"message":{"id":"m1"}},7]}`,
		},
		"a message with a time of delivery": {
			message, "--deliver-at 2026-03-01T12:00:00Z",
			`{"deliver_at":"2026-03-01T12:00:00Z","message":` + message + `}`,
		},
		"an item with a priority and a time of delivery": {
			`{"priority":"high","message":` + message + `}`, "--deliver-at 2026-03-01T12:00:00Z",
			`{"priority":"high","deliver_at":"2026-03-01T12:00:00Z","message":` + message + `}`,
		},
	}, func(t *testing.T, test row) {
		webhook := &webhookStub{}
		said, err := webhook.serve(t)(test.file, append([]string{"enqueue", "event_queue:high", "-f", "-"},
			strings.Fields(test.args)...)...)
		require.NoError(t, err, said)
		require.Equal(t, []string{"/queues/events-high/messages"}, webhook.paths)
		require.JSONEq(t, test.want, string(filetest.Must(json.Marshal(webhook.bodies[0]))(t)))
		require.Equal(t, strings.Contains(test.want, "9007199254740993"),
			strings.Contains(webhook.raw[0], "9007199254740993"), "a large number keeps its last digit")
	})
}

func TestDeliverAtAcceptsAWaitFromNow(t *testing.T) {
	t.Parallel()
	webhook := &webhookStub{}
	require.NoError(t, filetest.ErrorOf(webhook.serve(t)("", "enqueue", "events-high", "--deliver-at", "10m")))
	due := filetest.Must(time.Parse(time.RFC3339, inside(webhook.bodies[0], "deliver_at").(string)))(t)
	require.WithinRange(t, due, time.Now().Add(9*time.Minute), time.Now().Add(10*time.Minute))
}

func TestARefusedMessageFailsTheCommandWithTheReason(t *testing.T) {
	t.Parallel()
	const mixed = `{"results":[{"status":202,"event_id":"e1"},{"status":503,"code":"key_held_up",` +
		`"detail":"Send both again."}]}`
	type row struct {
		status                    int
		answer, args, fails, says string
	}
	filetest.Each(t, map[string]row{
		"for good": {
			422, `{"code":"contract_broken","detail":"Fields break the contract.","violations":[{"path":"data.note",` +
				`"rule":"unknown"}]}`, "enqueue events-high", "1 of 1 were refused",
			"422     -      -      -        -    contract_broken\ncontract_broken: Fields break the " +
				"contract.\ndata.note: unknown\n",
		},
		"one of a list": {
			200, mixed, "enqueue events-high -f -", "1 of 2 were refused", "ACCEPTED  1\nREFUSED   1\n",
		},
		"both for now": {
			429, `{"code":"rate_limited","detail":"It is too much.","retry_after":7}`, "send paynow --repeat 2",
			"2 of 2 were refused", "rate_limited: It is too much.\nSend it again in 7 s.\n",
		},
	}, func(t *testing.T, test row) {
		webhook := &webhookStub{status: test.status, answer: test.answer}
		said, err := webhook.serve(t)(`{"messages":[]}`, strings.Fields(test.args)...)
		require.EqualError(t, err, test.fails)
		require.Contains(t, said, test.says)
	})
	said, err := (&webhookStub{status: http.StatusOK, answer: mixed}).serve(t)(`{"messages":[]}`, "enqueue",
		"events-high", "-f", "-", "--json")
	require.EqualError(t, err, "1 of 2 were refused")
	require.JSONEq(t, `{"accepted":1,"refused":1,"items":[{"status":202,"event_id":"e1"},{"status":503,`+
		`"code":"key_held_up","detail":"Send both again."}]}`, said)
}

func TestAnInvalidCommandSendsNothing(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "list.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"messages":[{"message":{}}]}`), 0o600))
	for args, want := range map[string]string{
		"send generic":                                    "name a file with -f",
		"send paynow --sample nothing":                    "\"nothing\" is none of " + samples.OrderCompleted,
		"send paynow --uid u -f " + file:                  "[file uid] were all set",
		"send paynow -f /nothing/here":                    "read: open /nothing/here",
		"enqueue event-high":                              "the catalog has no queue \"event-high\"; it has ",
		"enqueue events-high --deliver-at soon":           "--deliver-at: say a time such as",
		"enqueue notifications-send --key k":              "has no member that its ordering key is made of",
		"enqueue events-high --key k -f " + file:          "[file key] were all set",
		"enqueue events-high --deliver-at 10m -f " + file: "the file has no single message",
	} {
		webhook := &webhookStub{}
		_, err := webhook.serve(t)("", strings.Fields(args)...)
		require.ErrorContains(t, err, want)
		require.Empty(t, webhook.bodies)
		require.Equal(t, !strings.Contains(args, "/nothing/here"), serve.ExitCode(err) == misused, args)
	}
	_, err := say(t, map[string]string{"QUEUES": "events-low"}, "enqueue", "orders-process")
	require.ErrorContains(t, err, "the queue orders-process does not run here")
}

func TestAnAddressWhereNobodyListensIsNamedWithWhatToSet(t *testing.T) {
	t.Parallel()
	const nobody, again = "http://127.0.0.1:1",
		"whether it was taken is not known: send it again with --event-id 50211300441099001"
	environment := map[string]string{"BILLHOOK_SERVER": nobody, "BILLHOOK_WEBHOOK": nobody}
	_, err := say(t, environment, "events", "ls")
	_, long := say(t, environment, "search", strings.Repeat("x", 3000))
	require.ErrorContains(t, long, "GET "+strings.TrimPrefix(nobody, "http://")+"/v1/ops/search: dial")
	require.Less(t, len(long.Error()), 300, "%s", long)
	require.ErrorContains(t, err, "nobody listens at "+nobody+": set --server or BILLHOOK_SERVER to where "+
		"the worker is (make run starts one)")
	for _, command := range []string{"send paynow", "enqueue events-high"} {
		args := append(strings.Fields(command), "--event-id", "50211300441099001")
		_, err := say(t, environment, args...)
		require.ErrorContains(t, err, "nobody listens at "+nobody+": set --webhook or BILLHOOK_WEBHOOK "+
			"to where the webhook service is (make run starts one)")
		require.ErrorContains(t, err, again)
		for _, none := range []string{"http://[here", "here:8080"} {
			_, err = say(t, nil, append(args, "--webhook", none)...)
			require.ErrorContains(t, err, fmt.Sprintf("--webhook: %q is no address of a webhook service", none))
			require.NotContains(t, err.Error(), "whether it was taken")
			require.Equal(t, misused, serve.ExitCode(err))
		}
	}
}

// output keeps what a program has printed, and closes ready once a text is there.
type output struct {
	text  bytes.Buffer
	until string
	ready chan struct{}
}

func (o *output) Write(text []byte) (int, error) {
	had := strings.Contains(o.text.String(), o.until)
	o.text.Write(text)
	if !had && strings.Contains(o.text.String(), o.until) {
		close(o.ready)
	}
	return len(text), nil
}

// startDev runs dev without its samples until the test ends, and returns what it has printed.
func startDev(t *testing.T, environment map[string]string, args ...string) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	out, ended := &output{until: "Serving until Ctrl-C", ready: make(chan struct{})}, make(chan error, 1)
	args = append([]string{"dev", "--webhook-port", "0", "--worker-port", "0", "--service-port", "0"}, args...)
	p := programOf(t, environment, out)
	go func() { ended <- p.execute(ctx, args) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	select {
	case <-out.ready:
	case err := <-ended:
		ended <- err
		require.NoError(t, err)
	case <-time.After(time.Minute):
		require.Fail(t, "dev does not start")
	}
	return out.text.String()
}

func TestDevFirstPrintsTheAddressOfItsPagesAndItsWaits(t *testing.T) {
	t.Parallel()
	for waits, want := range map[string]struct{ said, rule string }{
		"short": {"The waits between attempts are 1 s each (--waits short or catalog).", "after waits of 1s"},
		"catalog": {
			"The waits between attempts are those of the catalog (--waits short or catalog).",
			"after waits of 10s, 20s",
		},
	} {
		t.Run(waits, func(t *testing.T) {
			t.Parallel()
			said := startDev(t, nil, "--no-samples", "--waits", waits)
			lines := strings.Split(said, "\n")
			worker := regexp.MustCompile(`worker (http://[^,]+),`).FindStringSubmatch(said)[1]
			require.Equal(t, "Look at it in a browser: "+worker+"/ops/", lines[0])
			require.Contains(t, strings.Join(lines[:6], " "), want.said)
			webhook := regexp.MustCompile(`webhook (http://[^,]+),`).FindStringSubmatch(said)[1]
			require.Contains(t, said, "\n  export BILLHOOK_SERVER="+worker+" BILLHOOK_WEBHOOK="+webhook+"\n")
			require.NotContains(t, strings.ReplaceAll(said, "2>", ""), "<", "a command can be pasted")
			for _, service := range []string{"/v1/ops", "/ops"} {
				//nolint:noctx // the server is the test's own
				response, err := http.Get(worker + service + "/catalog/queues/paynow-events")
				require.NoError(t, err)
				page, err := io.ReadAll(response.Body)
				require.NoError(t, response.Body.Close())
				require.NoError(t, err)
				require.Contains(t, string(page), want.rule)
				require.Equal(t, waits == "short", strings.Contains(string(page), "The catalog declares longer waits"))
			}
		})
	}
}

func TestATargetOfTheEnvironmentReplacesItsStandIn(t *testing.T) {
	t.Parallel()
	called := make(chan string, 10)
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		called <- r.URL.Path
	}))
	t.Cleanup(service.Close)
	said := startDev(t, map[string]string{"SUBSCRIPTION_SERVICE_URL": service.URL})
	require.Contains(t, said,
		"SUBSCRIPTION_SERVICE_URL: "+service.URL+", not a stand-in. No samples are sent, for they would reach it.")
	webhook := regexp.MustCompile(`webhook (http://[^,]+),`).FindStringSubmatch(said)[1]
	succeeds(t, map[string]string{"BILLHOOK_WEBHOOK": webhook}, "enqueue", "pay-subscription-update")
	select {
	case path := <-called:
		require.Contains(t, path, "/v1/webhooks/payment")
	case <-time.After(time.Minute):
		require.Fail(t, "the service was not called")
	}
}

// The error says what to type.
func TestAPortInUseIsReportedWithTheFlagThatChangesIt(t *testing.T) {
	t.Parallel()
	taken := filetest.Must((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	defer func() { _ = taken.Close() }()
	_, port := filetest.Both(net.SplitHostPort(taken.Addr().String()))(t)
	for _, of := range []string{"webhook", "worker", "service"} {
		flag := "--" + of + "-port"
		_, err := say(t, nil, "dev", "--no-samples", "--webhook-port", "0", "--worker-port", "0", "--service-port",
			"0", flag, port)
		require.EqualError(t, err, flag+": port "+port+" is in use: another program listens "+
			"there; "+flag+` 0 chooses a free one (make run ARGS="`+flag+` 0")`)
	}
}

// The flags that dev names reach it through make.
func TestMakePassesArgumentsOn(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"run", "emulators"} {
		out, err := exec.CommandContext(t.Context(), "make", "-C", "../..", "--dry-run", target,
			"ARGS=--worker-port 0 --no-samples").CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), " --worker-port 0 --no-samples\n")
	}
}
