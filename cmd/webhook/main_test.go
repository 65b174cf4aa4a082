package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/internal/filetest"
	"billhook/internal/platform/env/envtest"
	"billhook/internal/platform/signature"
)

func environment(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func TestABadEnvironmentIsReportedAtOnceAndWithoutItsSecrets(t *testing.T) {
	t.Parallel()
	const good = "a-secret-of-more-than-24-bytes"
	for want, values := range map[string]map[string]string{
		"GOOGLE_CLOUD_PROJECT…LOG_LEVEL: must be DEBUG, INFO, WARN or ERROR…PORT: must be a port: a number from 0 to 65535\nMETRICS_PORT: must be a port" +
			"…WEBHOOK_TOLERANCE_SECONDS…WEBHOOK_SECRET_PAYNOW…WEBHOOK_SIGNING_SECRET": {
			"WEBHOOK_TOLERANCE_SECONDS": "0", "LOG_LEVEL": "LOUD", "PORT": "eighty", "METRICS_PORT": "99999",
		},
		"WEBHOOK_SECRET_PAYNOW…":           {"WEBHOOK_SECRET_PAYNOW": "hunter2", "WEBHOOK_SIGNING_SECRET": good},
		"WEBHOOK_SECRET_PAYNOW…, rotating": {"WEBHOOK_SECRET_PAYNOW": good + ",hunter2", "WEBHOOK_SIGNING_SECRET": good},
		"QUEUES: queue paynow-events emits to queue pay-subscription-update, which does not run here: name it too": {"QUEUES": "paynow-events"},
	} {
		err := run(t.Context(), environment(values), io.Discard)
		for part := range strings.SplitSeq(strings.TrimSuffix(want, ", rotating"), "…") {
			require.ErrorContains(t, err, part)
		}
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestASourceWithAnAPIKeyNeedsItsVariable(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	require.NoError(t, os.CopyFS(folder, os.DirFS("../../catalog")))
	before, after, found := strings.Cut(filetest.Read(t, folder, "sources.yaml"), "\n  generic:\n")
	require.True(t, found)
	source := "\n  stripe: { scheme: stripe, secret_variable: WEBHOOK_SECRET_STRIPE, api_key_variable: WEBHOOK_KEY_STRIPE, max_body_bytes: 65536, events: { refund.created: paynow-events } }"
	require.NoError(t, os.WriteFile(filepath.Join(folder, "sources.yaml"), []byte(before+source+"\n  generic:\n"+after), 0o600))
	values := started(map[string]string{"CATALOG_DIR": folder, "WEBHOOK_SECRET_STRIPE": "a-secret-of-more-than-24-bytes"})
	require.EqualError(t, run(t.Context(), environment(values), io.Discard), "WEBHOOK_KEY_STRIPE: is not set")
	values["WEBHOOK_KEY_STRIPE"] = "rk_test_1"
	start(t, values)
	var out strings.Builder
	require.NoError(t, command(t.Context(), []string{"--help"}, environment(values), &out))
	require.Contains(t, out.String(), "WEBHOOK_KEY_STRIPE")
	require.NotContains(t, out.String(), "rk_test_1")
}

// The client libraries read these from the environment of the process.
func TestMain(m *testing.M) {
	for _, name := range []string{"PUBSUB_EMULATOR_HOST", "FIRESTORE_EMULATOR_HOST"} {
		if err := os.Setenv(name, "127.0.0.1:1"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func started(more map[string]string) map[string]string {
	all := map[string]string{"GOOGLE_CLOUD_PROJECT": "p", "PORT": "0", "HOST": "127.0.0.1"}
	for _, source := range catalogtest.Shipped().Sources {
		all[source.SecretVariable] = "a-secret-of-more-than-24-bytes"
	}
	maps.Copy(all, more)
	return all
}

// start runs the program until the test ends, without an error. It returns its address, and that of its metrics.
func start(t *testing.T, values map[string]string) (address, metrics string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, environment(values), writer)
		_ = writer.CloseWithError(err) // ends a read that waits for a line
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	lines := bufio.NewReader(reader)
	var said [2]struct{ Message, Address, Service string }
	for i, service := range []string{"webhook", "webhook-metrics"} {
		line, err := lines.ReadBytes('\n')
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(line, &said[i]))
		require.Equal(t, "listening", said[i].Message)
		require.Equal(t, service, said[i].Service)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }() // the program must never block on its log
	return said[0].Address, said[1].Address
}

// ask returns the status of an answer to what is signed, if it is a post.
func ask(t *testing.T, method, url, secret string, at time.Time) (status int) {
	t.Helper()
	body := `{"event_type":"ON_PAYOUT","event_id":"5"}` // no queue takes it, so nothing is published
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+url, strings.NewReader(body))
	require.NoError(t, err)
	if secret != "" {
		signer, err := signature.NewSigner(catalogtest.Shipped().Providers["paynow"].Signature, secret)
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		for header, value := range signer.Sign("", []byte(body), at) {
			request.Header.Set(header, value)
		}
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

func TestASourceThatRoutesNowhereNeedsNoSecret(t *testing.T) {
	t.Parallel()
	address, _ := start(t, started(map[string]string{"QUEUES": "pay-subscription-update, q:sub:plan_change", "WEBHOOK_SECRET_PAYNOW": ""}))
	for path, want := range map[string]int{
		"/webhooks/paynow":                 http.StatusNotFound,
		"/queues/paynow-events/messages":   http.StatusNotFound,
		"/queues/sub-plan-change/messages": http.StatusUnsupportedMediaType, // it is there, and wants JSON
	} {
		require.Equal(t, want, ask(t, http.MethodPost, address+path, "", time.Time{}), path)
	}
}

func TestTheMetricsAreNotOnThePublicPort(t *testing.T) {
	t.Parallel()
	address, metrics := start(t, started(map[string]string{"METRICS_PORT": "0"}))
	for url, want := range map[string]int{
		address + "/metrics": http.StatusNotFound, metrics + "/metrics": http.StatusOK, address + "/health/ready": http.StatusOK,
		metrics + "/webhooks/paynow": http.StatusNotFound,
	} {
		require.Equal(t, want, ask(t, http.MethodGet, url, "", time.Time{}), url)
	}
	_, taken, err := net.SplitHostPort(metrics)
	require.NoError(t, err)
	require.ErrorContains(t, run(t.Context(), environment(started(map[string]string{"METRICS_PORT": taken})), io.Discard), "METRICS_PORT")
}

func TestSecretsAndTheWindowOfTimeAreThoseOfTheEnvironment(t *testing.T) {
	t.Parallel()
	const older, newer = "the-older-secret-of-24-bytes-up", "the-newer-secret-of-24-bytes-up"
	address, _ := start(t, started(map[string]string{"WEBHOOK_TOLERANCE_SECONDS": "3000", "WEBHOOK_SECRET_PAYNOW": newer + ", " + older + "\n"}))
	for name, test := range map[string]struct {
		secret string
		age    time.Duration
		status int
	}{
		"the newer secret":   {newer, 0, http.StatusOK},
		"the older secret":   {older, 0, http.StatusOK},
		"another's":          {"a-secret-of-more-than-24-bytes", 0, http.StatusUnauthorized},
		"inside the window":  {newer, 2000 * time.Second, http.StatusOK},
		"before the window":  {newer, 4000 * time.Second, http.StatusUnauthorized},
		"inside, the future": {newer, -2000 * time.Second, http.StatusOK},
		"behind the window":  {newer, -4000 * time.Second, http.StatusUnauthorized},
	} {
		require.Equal(t, test.status, ask(t, http.MethodPost, address+"/webhooks/paynow", test.secret, time.Now().Add(-test.age)), name)
	}
}

func TestTheHelpListsTheVariablesOfTheDeployment(t *testing.T) {
	t.Parallel()
	said := func(values map[string]string) string {
		var out strings.Builder
		require.NoError(t, command(t.Context(), []string{"--help"}, environment(values), &out))
		return out.String()
	}
	whole := said(nil)
	envtest.Page(t, "webhook", "worker", help(environment(nil)))
	require.Equal(t, whole, said(map[string]string{"CATALOG_DIR": "nowhere"}))
	narrow := said(map[string]string{"QUEUES": "pay-subscription-update"})
	require.Contains(t, narrow, "  WEBHOOK_SIGNING_SECRET (required) ")
	require.NotContains(t, narrow, "WEBHOOK_SECRET_PAYNOW")
}

// A request that Cloud Run ends is answered by nobody, and the sender learns nothing of it.
func TestCloudRunEndsNoRequestThatTheWebhookServiceStillAnswers(t *testing.T) {
	t.Parallel()
	_, variable, _ := strings.Cut(filetest.Read(t, "..", "..", "terraform", "service_options.tf"), "\nvariable \"webhook_timeout_seconds\" {\n")
	variable, _, _ = strings.Cut(variable, "\n}\n")
	longest := int((readTimeout + 2*publishTimeout) / time.Second)
	require.Regexp(t, fmt.Sprintf(`condition += %d <= var\.webhook_timeout_seconds`, longest), variable, "no less is taken")
	require.Regexp(t, fmt.Sprintf(`default += %d\n`, longest), variable)
}
