package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/serve"
	"billhook/internal/platform/signature"
)

func TestRunNamesEveryMistakeOfTheEnvironment(t *testing.T) {
	t.Parallel()
	values := map[string]string{"WEBHOOK_TOLERANCE_SECONDS": "0", "LOG_LEVEL": "LOUD", "PORT": "eighty", "METRICS_PORT": "99999"}
	err := run(t.Context(), func(name string) string { return values[name] }, io.Discard)
	require.ErrorContains(t, err, "GOOGLE_CLOUD_PROJECT")
	require.ErrorContains(t, err, "WEBHOOK_TOLERANCE_SECONDS")
	require.ErrorContains(t, err, "LOG_LEVEL: must be DEBUG, INFO, WARN or ERROR")
	require.ErrorContains(t, err, "PORT: must be a port: a number from 0 to 65535\nMETRICS_PORT: must be a port")
	require.ErrorContains(t, err, "WEBHOOK_SECRET_PAYNOW")
}

func TestRunRefusesWeakSecretsByTheirVariables(t *testing.T) {
	t.Parallel()
	for name, secret := range map[string]string{"none": "", "a short one": "hunter2", "a short one while rotating": "a-secret-of-more-than-24-bytes,hunter2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			values := map[string]string{
				"GOOGLE_CLOUD_PROJECT": "p", "PORT": "0", "WEBHOOK_SECRET_PAYNOW": secret,
			}
			err := run(t.Context(), func(name string) string { return values[name] }, io.Discard)
			require.ErrorContains(t, err, "WEBHOOK_SECRET_PAYNOW")
			require.ErrorContains(t, err, "WEBHOOK_SIGNING_SECRET", "all together")
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
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

// start runs the program. It returns its address and a function that ends it.
func start(t *testing.T, values map[string]string) (address string, stop func() error) {
	t.Helper()
	address, _, stop = startWithMetrics(t, values)
	return address, stop
}

// startWithMetrics is start, and returns the address of the metrics too.
func startWithMetrics(t *testing.T, values map[string]string) (address, metrics string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, func(name string) string { return values[name] }, writer)
		_ = writer.CloseWithError(err) // ends a read that waits for a line
		ended <- err
	}()
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
	return said[0].Address, said[1].Address, func() error {
		cancel()
		return <-ended
	}
}

func TestRunEndsWithoutAnErrorOnASignal(t *testing.T) {
	t.Parallel()
	address, stop := start(t, map[string]string{
		"GOOGLE_CLOUD_PROJECT": "p", "PORT": "0", "HOST": "127.0.0.1",
		"WEBHOOK_SECRET_PAYNOW": "a-secret-of-more-than-24-bytes", "WEBHOOK_SIGNING_SECRET": "a-secret-of-more-than-24-bytes",
	})
	require.Contains(t, address, "127.0.0.1:")
	require.NoError(t, stop())
}

func TestRunAsksForNoSecretOfASourceThatRoutesNowhere(t *testing.T) {
	t.Parallel()
	values := map[string]string{
		"GOOGLE_CLOUD_PROJECT": "p", "PORT": "0", "HOST": "127.0.0.1", "QUEUES": "pay-subscription-update, q:sub:plan_change",
		"WEBHOOK_SIGNING_SECRET": "a-secret-of-more-than-24-bytes",
	}
	address, stop := start(t, values)
	for path, want := range map[string]int{
		"/webhooks/paynow":                 http.StatusNotFound,
		"/queues/paynow-events/messages":   http.StatusNotFound,
		"/queues/sub-plan-change/messages": http.StatusUnsupportedMediaType, // it is there, and wants JSON
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+path, http.NoBody)
		require.NoError(t, err)
		response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, want, response.StatusCode, path)
	}
	require.NoError(t, stop())
	values["QUEUES"] = "paynow-events"
	require.EqualError(t, run(t.Context(), func(name string) string { return values[name] }, io.Discard),
		"QUEUES: queue paynow-events emits to queue pay-subscription-update, which does not run here: name it too")
}

func TestTheMetricsAreNotOnThePublicPort(t *testing.T) {
	t.Parallel()
	values := map[string]string{
		"GOOGLE_CLOUD_PROJECT": "p", "PORT": "0", "METRICS_PORT": "0", "HOST": "127.0.0.1",
		"WEBHOOK_SECRET_PAYNOW": "a-secret-of-more-than-24-bytes", "WEBHOOK_SIGNING_SECRET": "a-secret-of-more-than-24-bytes",
	}
	address, metrics, stop := startWithMetrics(t, values)
	for url, want := range map[string]int{
		address + "/metrics": http.StatusNotFound, metrics + "/metrics": http.StatusOK, address + "/health/ready": http.StatusOK,
		metrics + "/webhooks/paynow": http.StatusNotFound,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+url, http.NoBody)
		require.NoError(t, err)
		response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, want, response.StatusCode, url)
	}
	_, taken, err := net.SplitHostPort(metrics)
	require.NoError(t, err)
	values["METRICS_PORT"] = taken
	require.ErrorContains(t, run(t.Context(), func(name string) string { return values[name] }, io.Discard), "METRICS_PORT")
	require.NoError(t, stop())
}

func TestRunTakesSecretsAndWindowFromTheEnvironment(t *testing.T) {
	t.Parallel()
	const older, newer = "the-older-secret-of-24-bytes-up", "the-newer-secret-of-24-bytes-up"
	address, stop := start(t, map[string]string{
		"GOOGLE_CLOUD_PROJECT": "p", "PORT": "0", "HOST": "127.0.0.1", "WEBHOOK_TOLERANCE_SECONDS": "3000",
		"WEBHOOK_SECRET_PAYNOW": newer + ", " + older + "\n", "WEBHOOK_SIGNING_SECRET": "a-secret-of-more-than-24-bytes",
	})
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
		body := []byte(`{"event_type":"ON_PAYOUT","event_id":"5"}`) // no queue takes it, so nothing is published
		signer, err := signature.NewSigner(signature.PayNow, test.secret)
		require.NoError(t, err)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/webhooks/paynow", bytes.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		for header, value := range signer.Sign("", body, time.Now().Add(-test.age)) {
			request.Header.Set(header, value)
		}
		response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
		require.NoError(t, err, name)
		require.NoError(t, response.Body.Close())
		require.Equal(t, test.status, response.StatusCode, name)
	}
	require.NoError(t, stop())
}

func TestTheHelpListsTheVariablesOfTheDeployment(t *testing.T) {
	t.Parallel()
	said := func(values map[string]string) string {
		var out strings.Builder
		require.NoError(t, command(t.Context(), []string{"--help"}, func(name string) string { return values[name] }, &out))
		return out.String()
	}
	whole := said(nil)
	require.Contains(t, whole, "  GOOGLE_CLOUD_PROJECT (required)\n")
	require.Contains(t, whole, "  PORT [8080]\n")
	require.Contains(t, whole, "  WEBHOOK_SECRET_PAYNOW (required)\n")
	require.Equal(t, whole, said(map[string]string{"CATALOG_DIR": "nowhere"}))
	narrow := said(map[string]string{"QUEUES": "pay-subscription-update"})
	require.Contains(t, narrow, "  WEBHOOK_SIGNING_SECRET (required)\n")
	require.NotContains(t, narrow, "WEBHOOK_SECRET_PAYNOW")
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "configuration.md"))
	require.NoError(t, err)
	help := help(func(string) string { return "" })
	for _, v := range slices.Concat(help.Own, help.Catalog) {
		require.Contains(t, string(page), "`"+v.Name+"`", "the table lacks a variable")
	}
	err = command(t.Context(), []string{"--port", "80"}, func(string) string { return "" }, io.Discard)
	require.Equal(t, 2, serve.ExitCode(err))
}

// A request that Cloud Run ends is answered by nobody, and the sender learns nothing of it.
func TestCloudRunEndsNoRequestThatTheDoorStillAnswers(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "terraform", "service_options.tf"))
	require.NoError(t, err)
	_, variable, found := strings.Cut(string(text), "\nvariable \"webhook_timeout_seconds\" {\n")
	require.True(t, found)
	least := regexp.MustCompile(`condition += (\d+) <= var\.webhook_timeout_seconds`).FindStringSubmatch(variable)
	usual := regexp.MustCompile(`default += (\d+)\n`).FindStringSubmatch(variable)
	require.NotNil(t, least)
	require.NotNil(t, usual)
	longest := int((readTimeout + 2*publishTimeout) / time.Second)
	require.Equal(t, fmt.Sprint(longest), least[1], "no less is taken")
	require.Equal(t, least[1], usual[1])
	require.Contains(t, variable, fmt.Sprintf("%d seconds at most to read one, and %d to publish", readTimeout/time.Second, 2*publishTimeout/time.Second))
}
