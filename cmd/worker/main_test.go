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
	const (
		secret   = "short-and-secret"
		cloud    = "GOOGLE_CLOUD_PROJECT=p "
		emulator = cloud + "PUSH_AUTH=none PUBSUB_EMULATOR_HOST=h "
		needed   = "SUBSCRIPTION_SERVICE_URL and DELIVERY_SIGNING_SECRET: required to post to subscription-service"
	)
	small := filepath.Join("..", "..", "catalog", "testdata", "small")
	for line, want := range map[string][]string{
		"": {"GOOGLE_CLOUD_PROJECT", "PUSH_AUDIENCE: required with PUSH_AUTH=oidc", "PUSH_SERVICE_ACCOUNT: required with PUSH_AUTH=oidc"},
		"LOG_LEVEL=chatty PUSH_AUTH=iam OPS_TOKEN=" + secret + ",0123456789abcdef01234567": {
			"GOOGLE_CLOUD_PROJECT: is required", "LOG_LEVEL: must be DEBUG, INFO, WARN or ERROR", "PUSH_AUDIENCE: required with PUSH_AUTH=iam",
			"PUSH_SERVICE_ACCOUNT", "OPS_TOKEN: each token needs at least 24 bytes",
		},
		cloud + "PUSH_AUTH=none OPS_TOKEN=" + secret:     {"PUSH_AUTH: none is accepted only where an emulator host is set", "OPS_TOKEN"},
		cloud + "PUSH_AUTH=" + secret:                    {"PUSH_AUTH: must be oidc, iam or none"},
		emulator + "OPS_TOKEN=0123456789abcdef01234567,": {"OPS_TOKEN: each token needs at least 24 bytes"},
		cloud + "OPS_ALLOW=ada@example.org,example.org,": {"OPS_AUDIENCE and OPS_ALLOW: set both, or neither", "OPS_ALLOW: entry 2 is no e-mail address", "OPS_ALLOW: entry 3"},
		emulator: {needed},
		cloud + "SERVES=all OPS_AUDIENCE=/projects/p": {"SERVES: must be pushes, people or empty", "OPS_AUDIENCE and OPS_ALLOW"},
		cloud + "SERVES=pushes PUSH_BASE_URL=https://w.example " + proxied: {
			"OPS_TOKEN, OPS_AUDIENCE, OPS_ALLOW: not with SERVES=pushes", "PUSH_BASE_URL: not with SERVES=pushes",
			"PUSH_AUDIENCE: required with PUSH_AUTH=oidc",
		},
		cloud + "SERVES=people ALARM_ACCOUNT=x ALARM_URL=https://w.example PUSH_BASE_URL=https://w.example": {
			"OPS_AUDIENCE or OPS_TOKEN: required with SERVES=people", "ALARM_QUEUE: not with SERVES=people",
			"PUSH_AUDIENCE and PUSH_SERVICE_ACCOUNT: required with PUSH_BASE_URL",
		},
		emulator + "QUEUES=paynow-events,nobody":                                                                   {"QUEUES: no queue has the id or alias nobody", "paynow-events emits to queue pay-subscription-update, which does not run here"},
		emulator + "QUEUES=pay-subscription-update POOL=bulk":                                                      {"POOL: names a pool of which QUEUES names no queue; those that have one: payments"},
		emulator + "QUEUES=pay-subscription-update TASKS_POOL=bulk":                                                {"TASKS_POOL: no queue that runs here is in pool bulk; the pools are payments"},
		emulator + "QUEUES=sub-usage-sync,search-index POOL=bulk":                                                  {"TASKS_POOL: no queue of pool payments, the catalog's for the tasks, runs here: name one of bulk, search"},
		cloud + "INSTALLATION=shop INGEST_DATABASE=shop":                                                           {"INGEST_DATABASE: is FIRESTORE_DATABASE"},
		cloud + "INSTALLATION=Shop":                                                                                {"INSTALLATION: must be 3 to 12 of a-z, 0-9 and -"},
		emulator + "SUBSCRIPTION_SERVICE_URL=http://u:0123456789abcdef@h DELIVERY_SIGNING_SECRET=0123456789abcdef": {"DELIVERY_SIGNING_SECRET: signature: secret 1 has 16 bytes"},
		emulator + "SUBSCRIPTION_SERVICE_URL=http://h WEBHOOK_SIGNING_SECRET=a-secret-of-more-than-24-bytes":       {needed}, // the producers' is another
		cloud + "ALARM_QUEUE=projects/p/queues/q":                                                                  {"ALARM_QUEUE, ALARM_URL and ALARM_SERVICE_ACCOUNT: set all of them, or none", "ALARM_QUEUE: must be projects/P/locations/L/queues/Q"},
		cloud + "ALARM_QUEUE=projects/p/locations/l/queues/q/tasks/t ALARM_URL=https://worker.example/tasks ALARM_SERVICE_ACCOUNT=push": {
			"ALARM_QUEUE: must be", "ALARM_URL: must be https://host, without a path", "ALARM_SERVICE_ACCOUNT: is no e-mail address", "PUSH_AUDIENCE",
		},
		cloud + "ALARM_URL=http://worker.example": {"ALARM_URL: must be https://host", "set all of them, or none"},
		"PUSH_AUTH=none PORT=70000 METRICS_PORT=metrics POOL=" + secret: {
			"GOOGLE_CLOUD_PROJECT: is required", "PUSH_AUTH: none is accepted only", "PORT: must be a port", "METRICS_PORT: must be a port",
			"POOL: no enabled queue is in a pool of that name; the pools are analytics, bulk, events-high, ",
		},
		cloud + "QUEUES=nobody POOL=nowhere":   {"QUEUES: no queue has the id or alias nobody", "POOL: no enabled queue is in a pool of that name"},
		cloud + "PORT=9090":                    {"METRICS_PORT: must be another port than PORT", "PUSH_AUDIENCE"},
		cloud + "PORT=-1 CATALOG_DIR=" + small: {`no handler is registered as "seats.take"`, `no handler is registered as "seats.free"`, "PORT: must be a port"},
		"PUSH_AUTH=none CATALOG_DIR=nowhere":   {"GOOGLE_CLOUD_PROJECT", "PUSH_AUTH", "CATALOG_DIR: products.yaml"},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			err := run(t.Context(), servicetest.Environment(values(line)), &out)
			require.Error(t, err)
			for _, part := range want {
				require.ErrorContains(t, err, part)
			}
			require.NotContains(t, err.Error()+out.String(), secret)
			require.NotContains(t, err.Error()+out.String(), "0123456789abcdef")
		})
	}
}

func TestTheOpsAPIIsOpenOnLoopbackOnlyWithAnEmulator(t *testing.T) {
	t.Parallel()
	for with, open := range map[*service.Config]bool{{}: false, {PubSubEmulator: "h"}: true, {FirestoreEmulator: "h"}: true} {
		access := filetest.Must(config{Config: *with}.access())(t)
		require.Equal(t, open, access.OpenOnLoopback)
		require.Nil(t, access.Identifier)
	}
}

// credentials belong to no account. They are enough for a client that sends no request.
const credentials = `{"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r"}`

func TestTheEnvironmentChoosesTheAlarm(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credentials.json")
	require.NoError(t, os.WriteFile(file, []byte(credentials), 0o600))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
	queue := config{AlarmQueue: "projects/p/locations/l/queues/q", AlarmURL: "https://worker.example", AlarmAccount: "push@p.iam.gserviceaccount.com"}
	require.Empty(t, queue.checkAlarm())
	both := queue
	both.PubSubEmulator = "h"
	for name, test := range map[string]struct {
		config        config
		cloud, itself bool
		warned        string
	}{
		"a queue":                     {config: queue, cloud: true},
		"a queue, beside an emulator": {config: both, cloud: true},
		"an emulator":                 {config: config{Config: service.Config{FirestoreEmulator: "h"}}, itself: true},
		"neither":                     {config: config{}, warned: "no alarm"},
	} {
		var out strings.Builder
		parts := worker.Config{Log: telemetry.NewLogger(&out, slog.LevelInfo)}
		closeIt, err := test.config.alarm(t.Context(), &parts)
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
	url, metrics, end := servicetest.Start(t, run, values("PUSH_AUTH=none POOL=payments SUBSCRIPTION_SERVICE_URL=http://127.0.0.1:1 PLATFORM_URL=http://127.0.0.1:1 GATEWAY_URL=http://127.0.0.1:1 "+
		"DELIVERY_SIGNING_SECRET=a-secret-of-more-than-24-bytes OPS_AUDIENCE=https://worker.example.org OPS_ALLOW=ada@example.org,grace@example.org OPS_TOKEN="+token))
	for path, want := range map[string]int{
		url + "/health/live": http.StatusOK, url + "/health/ready": http.StatusOK, url + "/v1/ops/events/a%20b": http.StatusBadRequest,
		url + "/metrics": http.StatusNotFound, metrics + "/metrics": http.StatusOK, metrics + "/v1/ops/events/e1": http.StatusNotFound,
	} {
		require.Equal(t, want, servicetest.Status(t, http.MethodGet, path), path)
	}
	log := end()
	require.NotContains(t, log, token)
	require.Regexp(t, `"queue served".* -> `, log, "each queue has its line, with its event types and handlers")
}

func TestAWorkerForPayNowAloneNeedsNoOtherAddress(t *testing.T) {
	t.Parallel()
	url, _, _ := servicetest.Start(t, run, values("PUSH_AUTH=none QUEUES=paynow-events,pay-subscription-update SUBSCRIPTION_SERVICE_URL=http://127.0.0.1:1 "+
		"DELIVERY_SIGNING_SECRET=a-secret-of-more-than-24-bytes"))
	require.Equal(t, http.StatusNotFound, servicetest.Status(t, http.MethodPost, url+"/push/sub-plan-change"), "it does not run here")
	require.Equal(t, http.StatusBadRequest, servicetest.Status(t, http.MethodPost, url+"/push/paynow-events"), "it runs, and wants a push's body")
}

// A worker of one pool serves no queue of another. It asks for a token where the configuration says so, on an emulator too.
// A process for people has neither a target's address nor a way to authenticate pushes, and shows all pools.
func TestTheWorkerFollowsItsEnvironment(t *testing.T) {
	t.Parallel()
	const push = "POOL=ledger PUSH_AUDIENCE=https://worker.example.org PUSH_SERVICE_ACCOUNT=push@example.org PUSH_AUTH="
	for line, want := range map[string][4]int{
		push + "none": {404, 503, 200, 200}, push + "oidc": {401, 401, 200, 200}, push + "iam": {401, 401, 200, 200},
		push + "none SERVES=pushes": {404, 503, 404, 404}, "SERVES=people POOL=nowhere " + proxied: {404, 404, 200, 200},
	} {
		url, _, end := servicetest.Start(t, run, values(line))
		for i, request := range []string{
			"POST /push/paynow-events", "POST /tasks/cleanup", "GET /ops/catalog", "GET /v1/ops/catalog/queues/paynow-events",
		} {
			method, path, _ := strings.Cut(request, " ")
			require.Equal(t, want[i], servicetest.Status(t, method, url+path), "%s: %s", line, request)
		}
		require.Equal(t, !strings.Contains(line, "people"), strings.Contains(end(), "queue served"), line)
	}
}

// What the help lists is what the program reads: the struct's fields, and what the catalog names
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
	logged, err := url.Parse(strings.NewReplacer("{event_id}", "e1", "{since}", "2026-03-02T10%3A15%3A00Z").Replace(links.Log))
	require.NoError(t, err)
	require.Equal(t, "shop", logged.Query().Get("project"))
	_, query, _ := strings.Cut(logged.Path, ";query=")
	require.Equal(t, "resource.type=\"cloud_run_revision\"\nresource.labels.service_name=~\"^staging-\"\njsonPayload.event_id=\"e1\"\ntimestamp>=\"2026-03-02T10:15:00Z\"", query)
}

func TestAnInstanceIsNamedByItsRevision(t *testing.T) {
	t.Parallel()
	require.Equal(t, "billhook-worker-00042-abc-1a2b3c4d", instanceOf("billhook-worker-00042-abc", "1a2b3c4d"))
	require.Equal(t, "1a2b3c4d", instanceOf("", "1a2b3c4d"), "elsewhere than on Cloud Run")
}
