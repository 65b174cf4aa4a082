package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
	go func() { ended <- run(ctx, args, func(name string) string { return environment[name] }, out) }()
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

func TestDevSaysItsPagesAndItsWaitsFirst(t *testing.T) {
	t.Parallel()
	for waits, want := range map[string]struct{ said, rule string }{
		"short":   {"The waits between attempts are 1 s each (--waits short or catalog).", "after waits of 1s"},
		"catalog": {"The waits between attempts are those of the catalog (--waits short or catalog).", "after waits of 10s, 20s"},
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
			for path, rule := range map[string]string{"/v1/ops/catalog/queues/paynow-events": want.rule, "/ops/catalog/queues/paynow-events": want.rule} {
				response, err := http.Get(worker + path) //nolint:noctx // the server is the test's own
				require.NoError(t, err)
				page, err := io.ReadAll(response.Body)
				require.NoError(t, response.Body.Close())
				require.NoError(t, err)
				require.Contains(t, string(page), rule)
				require.Equal(t, waits == "short", strings.Contains(string(page), "The catalog declares longer waits"))
			}
		})
	}
}

func TestATargetOfTheEnvironmentWinsOverTheStandIn(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.Path }))
	t.Cleanup(service.Close)
	said := startDev(t, map[string]string{"SUBSCRIPTION_SERVICE_URL": service.URL})
	require.Contains(t, said, "SUBSCRIPTION_SERVICE_URL: "+service.URL+", not a stand-in. No samples are sent, for they would reach it.")
	webhook := regexp.MustCompile(`webhook (http://[^,]+),`).FindStringSubmatch(said)[1]
	require.NoError(t, run(t.Context(), []string{"enqueue", "pay-subscription-update"}, func(name string) string {
		return map[string]string{"BILLHOOK_WEBHOOK": webhook}[name]
	}, io.Discard))
	select {
	case path := <-asked:
		require.Contains(t, path, "/v1/webhooks/payment")
	case <-time.After(time.Minute):
		require.Fail(t, "the service was not called")
	}
}

func TestAnAddressWhereNobodyListensIsToldWithWhatToSet(t *testing.T) {
	t.Parallel()
	nobody := "http://127.0.0.1:1"
	const worker, webhook = "--server or BILLHOOK_SERVER where the worker is", "--webhook or BILLHOOK_WEBHOOK where the webhook service is"
	for args, set := range map[string]string{"events ls": worker, "send paynow": webhook, "enqueue events-high": webhook} {
		_, err := say(t, map[string]string{"BILLHOOK_SERVER": nobody, "BILLHOOK_WEBHOOK": nobody}, strings.Fields(args)...)
		require.ErrorContains(t, err, "nobody listens at "+nobody+": say with "+set+" (make run starts one)", args)
	}
}

// Whoever meets a port in use is told what to type.
func TestAPortInUseIsToldWithTheFlagThatChangesIt(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	for _, of := range []string{"webhook", "worker", "service"} {
		flag := "--" + of + "-port"
		_, err := say(t, nil, "dev", "--no-samples", "--webhook-port", "0", "--worker-port", "0", "--service-port", "0", flag, port)
		require.EqualError(t, err, flag+": port "+port+" is in use: another program listens there; "+flag+` 0 chooses a free one (make run ARGS="`+flag+` 0")`)
	}
}

// The flags that dev names reach it through make.
func TestMakePassesArgumentsOn(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"run", "emulators"} {
		out, err := exec.CommandContext(t.Context(), "make", "-C", "../..", "--dry-run", target, "ARGS=--worker-port 0 --no-samples").CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), " --worker-port 0 --no-samples\n")
	}
}
