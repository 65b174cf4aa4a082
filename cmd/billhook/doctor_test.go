package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"

	"billhook/catalog/catalogtest"
	"billhook/internal/compose/devstack"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/finding"
	"billhook/internal/platform/gcp/installed"
	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/platform/serve"
)

// canaryThrough sends a canary through a stack, as somebody with an environment.
func canaryThrough(
	t *testing.T, environment map[string]string, webhook, worker string,
) (became string, err error) {
	t.Helper()
	p := programOf(t, environment, io.Discard)
	p.env.Webhook, p.env.Server = webhook, worker
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	return p.canary(ctx, catalogtest.Shipped())
}

func TestTheCanaryReportsWhereItIsLost(t *testing.T) {
	t.Parallel()
	c, secrets := catalogtest.Shipped(), map[string][]string{}
	for name := range c.Sources {
		secrets[name] = []string{devSecret}
	}
	stack := filetest.Must(devstack.Start(t.Context(), devstack.Config{
		Catalog: c, ProjectID: "p", Secrets: secrets,
		WebhookPort: "0", WorkerPort: "0", ServicePort: "0", StorePath: filepath.Join(t.TempDir(), "store.db"),
		OpsTokens: []string{opsToken}, Log: slog.New(slog.DiscardHandler),
	}))(t)
	t.Cleanup(func() { require.NoError(t, stack.Close()) })
	became := filetest.Must(canaryThrough(t, asAda, stack.WebhookURL, stack.WorkerURL))(t)
	require.Contains(t, became, ", at attempt 1")
	play(t, asAda, stack.WorkerURL, []step{{line: "dlq ls paynow-events --state all", want: "No dead letter"}})
	const nobody = "http://127.0.0.1:1"
	for want, test := range map[string]struct {
		environment     map[string]string
		webhook, server string
	}{
		"is not accepted: the webhook service answers 401": {
			map[string]string{"OPS_TOKEN": opsToken, "WEBHOOK_SIGNING_SECRET": "another-secret-of-somebody-else"},
			stack.WebhookURL, stack.WorkerURL,
		},
		"is not accepted: send: ": {nil, nobody, stack.WorkerURL},
		"the worker has not handled it: ": {
			map[string]string{"OPS_TOKEN": "another-token-of-somebody-else"}, stack.WebhookURL, stack.WorkerURL,
		},
		"the worker has not handled it: waited too long: call the worker": {nil, stack.WebhookURL, nobody},
	} {
		_, err := canaryThrough(t, test.environment, test.webhook, test.server)
		require.ErrorContains(t, err, want)
	}
}

// emulated is an environment with an emulator of its own, which cannot point a subscription elsewhere, and
// without a worker.
func emulated(t *testing.T) map[string]string {
	t.Helper()
	server := pstest.NewServer(pstest.WithErrorInjection("UpdateSubscription", codes.Unimplemented, "no"))
	t.Cleanup(func() { _ = server.Close() })
	const nobody = "http://127.0.0.1:1"
	return map[string]string{
		"PUBSUB_EMULATOR_HOST": server.Addr, "GOOGLE_CLOUD_PROJECT": "p", "PUSH_BASE_URL": nobody,
		"BILLHOOK_SERVER": nobody,
	}
}

func TestTheDoctorFindsNothingAfterProvision(t *testing.T) {
	t.Parallel()
	environment := emulated(t)
	pools := []string{"--pool-urls", "payments=http://127.0.0.1:2"}
	out, err := say(t, environment, "admin", "doctor")
	require.Error(t, err, "there is nothing yet")
	require.Contains(t, out, "topic_missing")
	succeeds(t, environment, append([]string{"admin", "provision"}, pools...)...)
	out = succeeds(t, environment, append([]string{"admin", "doctor", "--json"}, pools...)...)
	found := filetest.JSON[diagnosis](t, out)
	found.Off = nil // as the catalog has it
	require.NotEmpty(t, found.PausesUnread, "no worker runs here")
	require.NotEmpty(t, found.LeftOut, "an emulator has no services")
	found.PausesUnread, found.LeftOut = "", ""
	require.Equal(t, diagnosis{
		Healthy: true, Findings: []finding.Finding{}, Unread: []finding.Unread{}, Paused: []pause.Pause{},
	}, found)
	out, err = say(t, environment, "admin", "doctor")
	require.Error(t, err, "without the pool's own worker")
	require.Contains(t, out, "wrong_endpoint\n    is: http://127.0.0.1:2/push/")
}

// A resource that cannot be created does not hide the others.
func TestProvisionReportsTheOutcomeOfEachResource(t *testing.T) {
	t.Parallel()
	environment := emulated(t)
	environment["QUEUES"] = "paynow-events,pay-subscription-update"
	printed := succeeds(t, environment, "admin", "provision")
	require.Contains(t, printed, "created")
	require.NotContains(t, printed, "events-low")
	require.Contains(t, succeeds(t, environment, "admin", "doctor"), "events-low", "it does not run")
	environment["PUSH_BASE_URL"] = "http://127.0.0.1:2"
	printed, err := say(t, environment, "admin", "provision", "--json")
	require.ErrorContains(t, err, "4 of ")
	require.Equal(t, 1, serve.ExitCode(err))
	report := filetest.JSON[provisioned](t, printed)
	require.True(t, slices.ContainsFunc(report.Changes, func(c pubsub.Change) bool {
		return c.Action == pubsub.Unchanged
	}))
	printed, err = say(t, environment, "admin", "provision")
	require.Error(t, err)
	require.Contains(t, printed, "WHY")
	require.Contains(t, printed, "paynow-events-push")
}

// denied answers 403 to the requests to a host whose path has the word.
type denied struct {
	host, word string
	next       http.RoundTripper
}

func (d denied) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.HasPrefix(request.URL.Host, d.host) && strings.Contains(request.URL.Path, d.word) {
		return &http.Response{
			StatusCode: http.StatusForbidden, Body: http.NoBody, Header: http.Header{}, Request: request,
		}, nil
	}
	return d.next.RoundTrip(request)
}

func TestTheDoctorListsWhatItMayNotReadAndFails(t *testing.T) {
	t.Parallel()
	i := install(t)
	whole := i.Snapshot()
	webhook, worker := "service billhook-webhook", "who may call service billhook-worker-"+i.catalog.TasksPool
	for permission, test := range map[string]struct {
		host, word string
		want       []string // some of the resources that are not read
	}{
		"run.services.get": {
			"run", "/services/", []string{webhook, "service billhook-worker-" + i.catalog.TasksPool},
		},
		"run.services.getIamPolicy":    {"run", "getIamPolicy", []string{worker}},
		"iap.webServices.getIamPolicy": {"iap", "getIamPolicy", []string{"who may open service billhook-ops"}},
		"cloudscheduler.jobs.get":      {"cloudscheduler", "", []string{"job billhook-tasks"}},
		"secretmanager.versions.get": {
			"secretmanager", "/versions/", []string{"version 1 of secret billhook-of-all"},
		},
		"secretmanager.secrets.list": {"secretmanager", "", []string{"secrets that no service reads yet"}},
		"resourcemanager.projects.getIamPolicy": {
			"cloudresourcemanager", "", []string{"whether what is said to be missing is granted on the whole project"},
		},
	} {
		i.Restore(whole)
		if test.host == "cloudresourcemanager" { // it is called where a grant is missing
			i.Revoke(runOf+"billhook-worker-"+i.catalog.TasksPool, "roles/run.invoker",
				"serviceAccount:"+emailOf("push-"+i.catalog.TasksPool))
		}
		i.rest = []option.ClientOption{
			option.WithHTTPClient(&http.Client{Transport: denied{test.host, test.word, i}}),
		}
		report, err := i.diagnose(t)
		require.Error(t, err, permission)
		require.False(t, report.Healthy, permission)
		require.Len(t, report.Findings, map[bool]int{true: 1}[test.host == "cloudresourcemanager"], permission)
		var unread []string
		for _, one := range report.Unread {
			if one.Permission == permission {
				require.Equal(t, "403 Forbidden", one.Why)
				unread = append(unread, one.What)
			}
		}
		require.Subset(t, unread, test.want)
		out, err := i.say(t, "admin", "doctor")
		require.Error(t, err)
		require.Regexp(t, "(?m)^"+test.want[0]+" +"+permission+" +403 Forbidden$", out)
	}
}

func TestTheDoctorReportsWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.Remove(jobsOf + "billhook-tasks")
	report := filetest.Must(i.diagnose(t, "--pubsub-only"))(t)
	require.Contains(t, report.LeftOut, "with --pubsub-only")
	report, err := i.diagnose(t, "--pubsub-only", "--canary", "--webhook", "http://127.0.0.1:1")
	require.Error(t, err)
	require.Equal(t, []string{"event canary canary_lost"}, foundBy(t, report))

	// An installation with another name and other addresses is not found where the doctor looks.
	report, err = i.diagnose(t, "--name", "shop")
	require.Error(t, err)
	require.Contains(t, foundBy(t, report), "service shop-webhook webhook_missing")
	i.environment["PUSH_BASE_URL"], i.pools = "https://worker.example", nil
	report, err = i.diagnose(t)
	require.Error(t, err)
	require.Contains(t, report.Unread, finding.Unread{
		What: "services, jobs and secrets", Why: "no worker's address names the region: set --region",
	})
	report, err = i.diagnose(t, "--region", installedRegion)
	require.Error(t, err)
	require.NotContains(t, report.Unread, finding.Unread{
		What: "services, jobs and secrets", Why: "no worker's address names the region: set --region",
	})
	require.Contains(t, foundBy(t, report), "job billhook-tasks job_missing")
	delete(i.environment, "PUSH_SERVICE_ACCOUNT")
	_, err = i.say(t, "admin", "doctor")
	require.ErrorContains(t, err, "PUSH_SERVICE_ACCOUNT and PUSH_AUDIENCE are required")
}

func TestTheGuideListsThePermissionsThatTheDoctorNeeds(t *testing.T) {
	t.Parallel()
	guide := filetest.Read(t, "..", "..", "docs", "start", "first-deployment.md")
	named := regexp.MustCompile(
		"`((?:pubsub|run|iap|cloudscheduler|secretmanager|resourcemanager)\\.[a-zA-Z]+\\.[a-zA-Z]+)`").
		FindAllStringSubmatch(guide, -1)
	permissions := filetest.Map(named, func(match []string) string { return match[1] })
	require.Subset(t, permissions, slices.Concat(pubsub.Permissions, installed.Permissions))
}

// The doctor looks for things by the names that Terraform gives.
func TestTerraformGivesTheNamesThatTheDoctorLooksFor(t *testing.T) {
	t.Parallel()
	text := filetest.Read(t, "..", "..", "terraform", "main.tf")
	for _, line := range []string{
		`webhook_name = "${local.name}-webhook"`, `pool => "${local.name}-worker-${pool}" }`,
		`{ app = local.name }`, `name             = "${local.name}-tasks"`,
		`"https://${name}-${local.number}.${var.region}.run.app"`,
		`uri         = "${local.worker_urls[local.tasks_pool]}/tasks"`,
	} {
		require.Contains(t, text, line)
	}
}
