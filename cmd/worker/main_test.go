package main

import (
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/internal/compose/service"
	"billhook/internal/compose/service/servicetest"
	"billhook/internal/compose/worker"
	"billhook/internal/filetest"
	"billhook/internal/platform/env"
	"billhook/internal/platform/env/envtest"
	"billhook/internal/platform/telemetry"
)

func TestMain(m *testing.M) { servicetest.Main(m) }

// proxied is the audience of Identity-Aware Proxy before a service on Cloud Run.
const proxied = "OPS_AUDIENCE=/projects/1/locations/l/services/s"

func values(line string) map[string]string {
	all := map[string]string{}
	for pair := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(pair, "=")
		all[name] = value
	}
	return all
}

func TestABadEnvironmentIsReportedAtOnceAndWithoutItsSecrets(t *testing.T) {
	t.Parallel()
	type row struct {
		Environment string
		Says        []string
	}
	for _, test := range filetest.YAML[[]row](t, "testdata", "refused.yaml") {
		t.Run(test.Environment, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			err := run(t.Context(), servicetest.Environment(values(test.Environment)), &out)
			require.Error(t, err)
			for _, part := range test.Says {
				require.ErrorContains(t, err, part)
			}
			require.NotContains(t, err.Error()+out.String(), "short-and-secret")
			require.NotContains(t, err.Error()+out.String(), "0123456789abcdef")
		})
	}
}

func TestTheOpsAPIIsOpenOnLoopbackOnlyWithAnEmulator(t *testing.T) {
	t.Parallel()
	for with, open := range map[*service.Config]bool{
		{}: false, {PubSubEmulator: "h"}: true, {FirestoreEmulator: "h"}: true,
	} {
		access := filetest.Must(config{Config: *with}.access())(t)
		require.Equal(t, open, access.OpenOnLoopback)
		require.Nil(t, access.Identifier)
	}
}

// credentials belong to no account. They are enough for a client that sends no request.
const credentials = `{"type": "authorized_user", "client_id": "c", "client_secret": "s",` +
	` "refresh_token": "r"}`

func TestTheEnvironmentChoosesTheAlarm(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credentials.json")
	require.NoError(t, os.WriteFile(file, []byte(credentials), 0o600))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
	const queue = "ALARM_QUEUE=projects/p/locations/l/queues/q ALARM_URL=https://worker.example " +
		"ALARM_SERVICE_ACCOUNT=push@p.iam.gserviceaccount.com"
	for name, test := range map[string]struct {
		cloud, itself bool
		warned        string
	}{
		queue:                             {cloud: true},
		queue + " PUBSUB_EMULATOR_HOST=h": {cloud: true},
		"FIRESTORE_EMULATOR_HOST=h":       {itself: true},
		"":                                {warned: "no alarm"},
	} {
		cfg, _ := env.Parse[config](servicetest.Environment(values(name))) // it lacks what is not about the alarm
		require.Empty(t, cfg.checkAlarm(), name)
		var out strings.Builder
		parts := worker.Config{Log: telemetry.NewLogger(&out, slog.LevelInfo)}
		closeIt, err := cfg.alarm(t.Context(), &parts)
		require.NoError(t, err, name)
		require.Equal(t, test.cloud, parts.Alarm != nil, name)
		require.Equal(t, test.itself, parts.AfterFunc != nil, name)
		require.Contains(t, out.String(), test.warned, name)
		require.Equal(t, test.warned != "", strings.Contains(out.String(), "WARN"), name)
		require.NoError(t, closeIt(), name)
	}
}

func TestTheWorkerListensAnswersAndEnds(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef01234567"
	url, metrics, end := servicetest.Start(t,
		run, values("PUSH_AUTH=none POOL=payments SUBSCRIPTION_SERVICE_URL=http://127.0.0.1:1 "+
			"PLATFORM_URL=http://127.0.0.1:1 GATEWAY_URL=http://127.0.0.1:1 "+
			"DELIVERY_SIGNING_SECRET=a-secret-of-more-than-24-bytes OPS_AUDIENCE=https://worker.example.org "+
			"OPS_ALLOW=ada@example.org,grace@example.org OPS_TOKEN="+token))
	for path, want := range map[string]int{
		url + "/health/live": http.StatusOK, url + "/health/ready": http.StatusOK,
		url + "/v1/ops/events/a%20b": http.StatusBadRequest,
		url + "/metrics":             http.StatusNotFound, metrics + "/metrics": http.StatusOK,
		metrics + "/v1/ops/events/e1": http.StatusNotFound,
	} {
		require.Equal(t, want, servicetest.Status(t, http.MethodGet, path), path)
	}
	log := end()
	require.NotContains(t, log, token)
	require.Regexp(t, `"queue served".* -> `, log, "each queue has its line, with its event types and handlers")
}

// A worker of one pool serves no queue of another. It requires a token where the configuration says so, on an
// emulator too. A process for people has neither a target's address nor a way to authenticate pushes, and
// shows all pools. One for PayNow alone needs no other address, and has no route of another queue.
func TestTheWorkerFollowsItsEnvironment(t *testing.T) {
	t.Parallel()
	const push = "POOL=ledger PUSH_AUDIENCE=https://worker.example.org " +
		"PUSH_SERVICE_ACCOUNT=push@example.org PUSH_AUTH="
	const alone = "PUSH_AUTH=none QUEUES=paynow-events,pay-subscription-update " +
		"SUBSCRIPTION_SERVICE_URL=http://127.0.0.1:1 DELIVERY_SIGNING_SECRET=a-secret-of-more-than-24-bytes"
	for line, want := range map[string][6]int{
		push + "none":                           {404, 404, 503, 200, 200, 404},
		push + "oidc":                           {401, 401, 401, 200, 200, 404},
		push + "iam":                            {401, 401, 401, 200, 200, 404},
		push + "none SERVES=pushes":             {404, 404, 503, 404, 404, 404},
		"SERVES=people POOL=nowhere " + proxied: {404, 404, 404, 200, 200, 404},
		alone:                                   {400, 404, 503, 200, 200, 404},
	} {
		url, _, end := servicetest.Start(t, run, values(line))
		for i, request := range []string{
			"POST /push/paynow-events", "POST /push/sub-plan-change", "POST /tasks/cleanup", "GET /ops/catalog",
			"GET /v1/ops/catalog/queues/paynow-events", "POST /v1/queue/retry",
		} {
			method, path, _ := strings.Cut(request, " ")
			require.Equal(t, want[i], servicetest.Status(t, method, url+path), "%s: %s", line, request)
		}
		require.Equal(t, !strings.Contains(line, "people"), strings.Contains(end(), "queue served"), line)
	}
}

// The help lists the variables that the program reads: the struct's fields, and those of the catalog
// for the queues that run.
func TestTheHelpListsTheVariablesOfTheDeployment(t *testing.T) {
	t.Parallel()
	said := func(values map[string]string) string {
		var out strings.Builder
		filetest.Must(help(servicetest.Environment(values)).Asked([]string{"--help"}, &out))(t)
		return out.String()
	}
	whole := said(nil)
	envtest.Page(t, "worker", help(servicetest.Environment(nil)))
	for _, target := range catalogtest.Shipped().Targets {
		require.Contains(t, whole, "  "+target.URLVariable+" (required) ")
		require.Equal(t, 1, strings.Count(whole, "\n  "+target.SecretVariable), target.SecretVariable)
	}
	require.Equal(t, whole, said(map[string]string{"CATALOG_DIR": "nowhere"}))
	narrow := said(map[string]string{"QUEUES": "paynow-events,pay-subscription-update"})
	require.Contains(t, narrow, "SUBSCRIPTION_SERVICE_URL (required)")
	require.NotContains(t, narrow, "GATEWAY_URL")
}

func TestLinksLeadToTheProjectsOwnPages(t *testing.T) {
	t.Parallel()
	require.Empty(t, config{Config: service.Config{Project: "shop", FirestoreEmulator: "127.0.0.1:1"}}.links(""))
	links := config{Config: service.Config{Project: "shop"}}.links("staging-worker-payments-00042-abc")
	people := config{Config: service.Config{Project: "shop"}, Serves: worker.ServesPeople}
	require.Equal(t, links, people.links("staging-ops-00042-abc"))
	require.Equal(t, "https://console.cloud.google.com/traces/list?project=shop&tid={trace}", links.Trace)
	logged, err := url.Parse(strings.NewReplacer("{event_id}", "e1", "{since}", "2026-03-02T10%3A15%3A00Z").
		Replace(links.Log))
	require.NoError(t, err)
	require.Equal(t, "shop", logged.Query().Get("project"))
	_, query, _ := strings.Cut(logged.Path, ";query=")
	require.Equal(t,
		"resource.type=\"cloud_run_revision\"\nresource.labels.service_name=~\"^staging-\"\n"+
			"jsonPayload.event_id=\"e1\"\n"+
			"timestamp>=\"2026-03-02T10:15:00Z\"", query)
}

func TestAnInstanceIsNamedByItsRevision(t *testing.T) {
	t.Parallel()
	require.Equal(t, "billhook-worker-00042-abc-1a2b3c4d", instanceOf("billhook-worker-00042-abc", "1a2b3c4d"))
	require.Equal(t, "1a2b3c4d", instanceOf("", "1a2b3c4d"), "elsewhere than on Cloud Run")
}
