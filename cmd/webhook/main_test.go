package main

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/internal/compose/service/servicetest"
	"billhook/internal/filetest"
	"billhook/internal/platform/env/envtest"
	"billhook/internal/platform/signature"
)

func TestMain(m *testing.M) { servicetest.Main(m) }

func TestABadEnvironmentIsReportedAtOnceAndWithoutItsSecrets(t *testing.T) {
	t.Parallel()
	const good = "a-secret-of-more-than-24-bytes"
	for want, values := range map[string]map[string]string{
		"GOOGLE_CLOUD_PROJECT…LOG_LEVEL: must be DEBUG, INFO, WARN or ERROR…PORT: must be a port: a number from " +
			"0 to 65535\nMETRICS_PORT: must be a port" +
			"…WEBHOOK_TOLERANCE_SECONDS…WEBHOOK_SECRET_PAYNOW…WEBHOOK_SIGNING_SECRET": {
			"WEBHOOK_TOLERANCE_SECONDS": "0", "LOG_LEVEL": "LOUD", "PORT": "eighty", "METRICS_PORT": "99999",
		},
		"WEBHOOK_SECRET_PAYNOW": {"WEBHOOK_SECRET_PAYNOW": good + ",hunter2", "WEBHOOK_SIGNING_SECRET": good},
		"QUEUES: queue paynow-events emits to queue pay-subscription-update, which does not run here: " +
			"name it too": {"QUEUES": "paynow-events"},
	} {
		err := run(t.Context(), servicetest.Environment(values), io.Discard)
		for part := range strings.SplitSeq(want, "…") {
			require.ErrorContains(t, err, part)
		}
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestASourceWithAnAPIKeyNeedsItsVariable(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	require.NoError(t, os.CopyFS(folder, os.DirFS("../../catalog")))
	source := "\n  stripe: { scheme: stripe, secret_variable: WEBHOOK_SECRET_STRIPE, api_key_variable: " +
		"WEBHOOK_KEY_STRIPE, max_body_bytes: 65536, events: { refund.created: paynow-events } }"
	filetest.Replace(t, "\n  generic:\n", source+"\n  generic:\n", folder, "sources.yaml")
	values := secrets(
		map[string]string{"CATALOG_DIR": folder, "WEBHOOK_SECRET_STRIPE": "a-secret-of-more-than-24-bytes"})
	require.EqualError(t, run(t.Context(), servicetest.Environment(values), io.Discard),
		"WEBHOOK_KEY_STRIPE: is not set")
	values["WEBHOOK_KEY_STRIPE"] = "rk_test_1"
	servicetest.Start(t, run, values)
	require.Contains(t, said(t, values), "WEBHOOK_KEY_STRIPE")
	require.NotContains(t, said(t, values), "rk_test_1")
}

// secrets are one of each source, with more values.
func secrets(more map[string]string) map[string]string {
	all := map[string]string{"GOOGLE_CLOUD_PROJECT": "p", "PORT": "0", "HOST": "127.0.0.1"}
	for _, source := range catalogtest.Shipped().Sources {
		all[source.SecretVariable] = "a-secret-of-more-than-24-bytes"
	}
	maps.Copy(all, more)
	return all
}

func said(t *testing.T, values map[string]string) string {
	t.Helper()
	var out strings.Builder
	filetest.Must(help(servicetest.Environment(values)).Asked([]string{"--help"}, &out))(t)
	return out.String()
}

func TestASourceThatRoutesNowhereNeedsNoSecret(t *testing.T) {
	t.Parallel()
	url, _, _ := servicetest.Start(t, run, secrets(
		map[string]string{"QUEUES": "pay-subscription-update, q:sub:plan_change", "WEBHOOK_SECRET_PAYNOW": ""}))
	for path, want := range map[string]int{
		"/webhooks/paynow":                 http.StatusNotFound,
		"/queues/paynow-events/messages":   http.StatusNotFound,
		"/queues/sub-plan-change/messages": http.StatusUnsupportedMediaType, // the route exists, and needs JSON
	} {
		require.Equal(t, want, servicetest.Status(t, http.MethodPost, url+path), path)
	}
}

func TestTheMetricsAreNotOnThePublicPort(t *testing.T) {
	t.Parallel()
	address, metrics, _ := servicetest.Start(t, run, secrets(map[string]string{"METRICS_PORT": "0"}))
	for url, want := range map[string]int{
		address + "/metrics": http.StatusNotFound, metrics + "/metrics": http.StatusOK,
		address + "/health/ready":    http.StatusOK,
		metrics + "/webhooks/paynow": http.StatusNotFound,
	} {
		require.Equal(t, want, servicetest.Status(t, http.MethodGet, url), url)
	}
	_, taken, _ := net.SplitHostPort(strings.TrimPrefix(metrics, "http://"))
	require.ErrorContains(t, run(t.Context(),
		servicetest.Environment(secrets(map[string]string{"METRICS_PORT": taken})), io.Discard), "METRICS_PORT")
}

func TestSecretsAndTheWindowOfTimeAreThoseOfTheEnvironment(t *testing.T) {
	t.Parallel()
	const older, newer = "the-older-secret-of-24-bytes-up", "the-newer-secret-of-24-bytes-up"
	url, _, _ := servicetest.Start(t, run, secrets(map[string]string{
		"WEBHOOK_TOLERANCE_SECONDS": "3000", "WEBHOOK_SECRET_PAYNOW": newer + ", " + older + "\n",
	}))
	for name, test := range map[string]struct {
		secret string
		age    time.Duration
		status int
	}{
		"the newer secret":  {newer, 0, http.StatusOK},
		"the older secret":  {older, 0, http.StatusOK},
		"inside the window": {newer, 2000 * time.Second, http.StatusOK},
		"before the window": {newer, 4000 * time.Second, http.StatusUnauthorized},
	} {
		body := `{"event_type":"ON_PAYOUT","event_id":"5"}` // no queue takes it, so nothing is published
		signer := filetest.Must(signature.NewSigner(catalogtest.Shipped().Providers["paynow"].Signature,
			test.secret))(t)
		r := filetest.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/webhooks/paynow",
			strings.NewReader(body)))(t)
		r.Header.Set("Content-Type", "application/json")
		for header, value := range signer.Sign("", []byte(body), time.Now().Add(-test.age)) {
			r.Header.Set(header, value)
		}
		require.Equal(t, test.status, servicetest.StatusOf(t, r), name)
	}
}

func TestTheHelpListsTheVariablesOfTheDeployment(t *testing.T) {
	t.Parallel()
	whole := said(t, nil)
	envtest.Page(t, "webhook", help(servicetest.Environment(nil)))
	require.Equal(t, whole, said(t, map[string]string{"CATALOG_DIR": "nowhere"}))
	narrow := said(t, map[string]string{"QUEUES": "pay-subscription-update"})
	require.Contains(t, narrow, "  WEBHOOK_SIGNING_SECRET (required) ")
	require.NotContains(t, narrow, "WEBHOOK_SECRET_PAYNOW")
}

// A request that Cloud Run ends gets no answer of the webhook service.
func TestCloudRunsTimeoutIsLongerThanTheWebhookServices(t *testing.T) {
	t.Parallel()
	variables := filetest.Read(t, "..", "..", "terraform", "variables.tf")
	longest := int((readTimeout + 2*publishTimeout) / time.Second)
	require.Regexp(t, fmt.Sprintf(`condition += var\.webhook\.timeout_seconds >= %d`, longest), variables,
		"a shorter timeout is refused")
	require.Regexp(t, fmt.Sprintf(`timeout_seconds += optional\(number, %d\)`, longest), variables)
}
