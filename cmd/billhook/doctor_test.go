package main

import (
	"context"
	"fmt"
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

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/emulator/cloudtest"
	"billhook/internal/compose/devstack"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/pause"
	"billhook/internal/pipeline/tasks"
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

func TestTheCanaryGoesThroughOrSaysWhereItIsLost(t *testing.T) {
	t.Parallel()
	c, secrets := catalogtest.Shipped(), map[string][]string{}
	for name := range c.Sources {
		secrets[name] = []string{devSecret}
	}
	stack, err := devstack.Start(t.Context(), devstack.Config{
		Catalog: c, ProjectID: "p", Secrets: secrets,
		WebhookPort: "0", WorkerPort: "0", ServicePort: "0", StorePath: filepath.Join(t.TempDir(), "store.db"),
		OpsTokens: []string{opsToken}, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
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
		"the worker has not handled it: waited too long: ask the worker": {nil, stack.WebhookURL, nobody},
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

// One resource that cannot be made hides nothing of the others.
func TestProvisionTellsWhatBecameOfEachResource(t *testing.T) {
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
	told := filetest.JSON[provisioned](t, printed)
	require.True(t, slices.ContainsFunc(told.Changes, func(c pubsub.Change) bool {
		return c.Action == pubsub.Unchanged
	}))
	printed, err = say(t, environment, "admin", "provision")
	require.Error(t, err)
	require.Contains(t, printed, "WHY")
	require.Contains(t, printed, "paynow-events-push")
}

// installedIn is a made-up project with a whole installation in it, by the names that Terraform gives.
type installedIn struct {
	*cloudtest.Cloud
	catalog     *catalog.Catalog
	environment map[string]string
	pools       []string
	rest        []option.ClientOption
}

const (
	installedRegion = "europe-west3"
	runOf           = "run/projects/" + cloudtest.Project + "/locations/" + installedRegion + "/services/"
	jobsOf          = "cloudscheduler/projects/" + cloudtest.Project + "/locations/" + installedRegion + "/jobs/"
	secretsAt       = "secretmanager/projects/" + cloudtest.Project + "/secrets/"
	topicsOf        = "pubsub/projects/" + cloudtest.Project + "/topics/"
	subscriptionsOf = "pubsub/projects/" + cloudtest.Project + "/subscriptions/"
	audience        = "https://billhook.push.example"
	proxyAt         = "iap/projects/" + cloudtest.Project + "/iap_web/cloud_run-" + installedRegion +
		"/services/"
	operators = "group:operators@example.com"
)

func emailOf(id string) string { return id + "@" + cloudtest.Project + ".iam.gserviceaccount.com" }

func workerOf(pool string) string {
	return fmt.Sprintf("https://billhook-worker-%s-%s.%s.run.app", pool, cloudtest.Number, installedRegion)
}

func install(t *testing.T) *installedIn {
	t.Helper()
	project := cloudtest.Start()
	t.Cleanup(project.Close)
	project.Change(func(held *cloudtest.State) {
		for _, api := range []string{"run", "cloudscheduler", "secretmanager", "iam"} {
			held.Enabled[api] = true
		}
	})
	c := catalogtest.Shipped()
	i := &installedIn{Cloud: project, catalog: c, rest: project.Clients(), environment: map[string]string{
		"GOOGLE_CLOUD_PROJECT": cloudtest.Project, "PUSH_AUDIENCE": audience,
		"PUSH_BASE_URL": workerOf(c.TasksPool), "PUSH_SERVICE_ACCOUNT": emailOf("push-" + c.TasksPool),
	}}
	var urls, accounts []string
	for _, name := range append([]string{catalog.Webhook, "ops"}, filetest.Map(c.Pools(), catalog.WorkerOf)...) {
		i.account(name)
		i.Put(runOf+"billhook-"+name, cloudtest.Document{
			"invokerIamDisabled": name == catalog.Webhook, "iapEnabled": name == "ops",
			"terminalCondition":   cloudtest.Document{"type": "Ready", "state": "CONDITION_SUCCEEDED"},
			"latestReadyRevision": "first", "customAudiences": []any{audience},
			"template": cloudtest.Document{
				"serviceAccount": emailOf(name), "containers": []any{cloudtest.Document{"env": []any{
					cloudtest.Document{
						"name": "SECRET", "valueSource": cloudtest.Document{
							"secretKeyRef": cloudtest.Document{"secret": "billhook-of-all", "version": "1"},
						},
					},
					cloudtest.Document{
						"name": "SERVES", "value": map[bool]string{name == "ops": "people", name != "ops": "pushes"}[true],
					},
				}}},
			},
		})
	}
	i.Grant(runOf+"billhook-ops", "roles/run.invoker", "serviceAccount:"+cloudtest.ProxyAgent)
	i.Grant(proxyAt+"billhook-ops", "roles/iap.httpsResourceAccessor", operators)
	for _, pool := range c.Pools() {
		i.account("push-" + pool)
		i.Grant(runOf+"billhook-worker-"+pool, "roles/run.invoker", "serviceAccount:"+emailOf("push-"+pool))
		urls, accounts = append(urls, pool+"="+workerOf(pool)), append(accounts, pool+"="+emailOf("push-"+pool))
	}
	i.pools = []string{"--pool-urls", strings.Join(urls, ","), "--pool-accounts", strings.Join(accounts, ",")}
	i.Put(jobsOf+"billhook-tasks", cloudtest.Document{"state": "ENABLED", "httpTarget": cloudtest.Document{
		"httpMethod": "POST", "uri": workerOf(c.TasksPool) + tasks.Path, "oidcToken": cloudtest.Document{
			"serviceAccountEmail": emailOf("push-" + c.TasksPool), "audience": audience,
		},
	}})
	i.Put(secretsAt+"billhook-of-all", cloudtest.Document{
		"name":   "projects/" + cloudtest.Number + "/secrets/billhook-of-all",
		"labels": cloudtest.Document{"app": "billhook"},
	})
	i.AddVersion("billhook-of-all")
	out, err := i.say(t, "admin", "provision")
	require.NoError(t, err, out)
	for topic, publishers := range c.Publishers() {
		for _, name := range publishers {
			i.Grant(topicsOf+topic, "roles/pubsub.publisher", "serviceAccount:"+emailOf(name))
		}
	}
	for _, q := range c.Queues {
		if q.Enabled && !q.DeadLetter.Drop {
			i.Grant(topicsOf+q.DeadLetter.Topic, "roles/pubsub.publisher", "serviceAccount:"+cloudtest.PubSubAgent)
			i.Grant(subscriptionsOf+q.PushSubscription(), "roles/pubsub.subscriber",
				"serviceAccount:"+cloudtest.PubSubAgent)
		}
	}
	return i
}

func (i *installedIn) account(id string) {
	i.Put("iam/projects/"+cloudtest.Project+"/serviceAccounts/"+emailOf(id),
		cloudtest.Document{"email": emailOf(id)})
}

// change changes a resource behind Terraform's back.
func (i *installedIn) change(key string, change func(cloudtest.Document)) {
	resource := i.Get(key)
	change(resource)
	i.Put(key, resource)
}

func (i *installedIn) say(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return sayWith(t, i.environment, func(p *program) { p.google = google{pubsub: i.Broker(), rest: i.rest} },
		append(args, i.pools...)...)
}

func (i *installedIn) diagnose(t *testing.T, args ...string) (found diagnosis, err error) {
	t.Helper()
	out, err := i.say(t, append([]string{"admin", "doctor", "--json"}, args...)...)
	return filetest.JSON[diagnosis](t, out), err
}

func foundBy(t *testing.T, d diagnosis) (found []string) {
	t.Helper()
	for _, f := range d.Findings {
		require.NotEmpty(t, f.Effect, f.Code)
		require.NotEmpty(t, f.Do, f.Code)
		found = append(found, f.Kind+" "+f.ID+" "+f.Code)
	}
	slices.Sort(found)
	return found
}

// plants are faults of an installation by what is found, each with what there is in place of what should be.
// The other differences of topics and subscriptions are a table of the package pubsub.
func plants(i *installedIn) map[string]planted {
	q, _ := i.catalog.HandledBy("points.credit")
	push, worker, job := q.PushSubscription(), "billhook-worker-"+q.Pool, "billhook-tasks"
	secret, projects := "secret billhook-of-all", "projects/"+cloudtest.Project
	set := func(key, field string, value any) func() {
		return func() { i.change(key, func(d cloudtest.Document) { d[field] = value }) }
	}
	in := func(key, inner, field string, value any) func() {
		return func() { i.change(key, func(d cloudtest.Document) { d[inner].(cloudtest.Document)[field] = value }) }
	}
	put := func(key string, d cloudtest.Document) func() { return func() { i.Put(key, d) } }
	revoke := func(key, role, account string) func() {
		return func() { i.Revoke(key, role, "serviceAccount:"+account) }
	}
	ours := cloudtest.Document{"app": "billhook"}
	failed := cloudtest.Document{
		"state": "CONDITION_FAILED", "revisionReason": "CONTAINER_MISSING", "message": "no such image",
	}
	return map[string]planted{
		"subscription " + push + " wrong_endpoint": {
			in(subscriptionsOf+push, "pushConfig", "pushEndpoint", "https://worker.example/push/x"),
			"https://worker.example/push/x",
		},
		"subscription copies foreign_subscription": {put(subscriptionsOf+"copies", cloudtest.Document{
			"name": projects + "/subscriptions/copies", "topic": projects + "/topics/" + q.Topic(),
		}), "of topic " + q.Topic() + ", without an endpoint"},
		"service billhook-webhook service_not_ready": {func() {
			set(runOf+"billhook-webhook", "terminalCondition", failed)()
			i.change(runOf+"billhook-webhook", func(d cloudtest.Document) { delete(d, "latestReadyRevision") })
		}, "CONDITION_FAILED: CONTAINER_MISSING: no such image"},
		"service billhook-webhook webhook_missing": {func() { i.Remove(runOf + "billhook-webhook") }, ""},
		"service billhook-webhook webhook_closed": {
			set(runOf+"billhook-webhook", "invokerIamDisabled", false), "a token is asked for",
		},
		"service " + worker + " worker_missing": {func() { i.Remove(runOf + worker) }, ""},
		"service " + worker + " service_not_updated": {
			set(runOf+worker, "terminalCondition", failed), "CONDITION_FAILED: CONTAINER_MISSING: no such image",
		},
		"service " + worker +
			" worker_open": {set(runOf+worker, "invokerIamDisabled", true), "no token is asked for"},
		"service " + worker + " worker_open to all": {
			func() { i.Grant(runOf+worker, "roles/run.invoker", "allUsers") }, "roles/run.invoker for allUsers",
		},
		"service " + worker + " worker_invoker_unknown": {
			func() { i.Grant(runOf+worker, "roles/run.invoker", operators) }, "roles/run.invoker for " + operators,
		},
		"service " + worker + " service_serves_others": {set(runOf+worker, "template", nil), "pushes and people"},
		"service billhook-ops ops_missing":             {func() { i.Remove(runOf + "billhook-ops") }, ""},
		"service billhook-ops ops_unproxied": {
			set(runOf+"billhook-ops", "iapEnabled", false), "the proxy can be passed by",
		},
		"service billhook-ops service_serves_others": {
			set(runOf+"billhook-ops", "template", nil), "pushes and people",
		},
		"service billhook-ops proxy_grant_missing": {
			revoke(runOf+"billhook-ops", "roles/run.invoker", cloudtest.ProxyAgent), "",
		},
		"service billhook-ops ops_without_people": {
			func() { i.Revoke(proxyAt+"billhook-ops", "roles/iap.httpsResourceAccessor", operators) }, "",
		},
		"service " + worker + " audience_refused": {
			set(runOf+worker, "customAudiences", []any{"https://other.example"}), "https://other.example",
		},
		"service " + worker +
			" invoker_grant_missing": {revoke(runOf+worker, "roles/run.invoker", emailOf("push-"+q.Pool)), ""},
		"job " + job + " job_missing": {func() { i.Remove(jobsOf + job) }, ""},
		"job " + job + " job_paused":  {set(jobsOf+job, "state", "PAUSED"), "PAUSED"},
		"job " + job + " job_wrong_address": {
			in(jobsOf+job, "httpTarget", "uri", "https://old.example/x"), "POST https://old.example/x",
		},
		"job " + job + " job_wrong_address by a method": {
			in(jobsOf+job, "httpTarget", "httpMethod", "GET"), "GET " + workerOf(i.catalog.TasksPool) + tasks.Path,
		},
		"job " + job + " job_wrong_token": {
			in(jobsOf+job, "httpTarget", "oidcToken", nil), "no account for no audience",
		},
		secret + " secret_version_unusable": {
			set(secretsAt+"billhook-of-all/versions/1", "state", "DISABLED"), "version 1 is DISABLED",
		},
		secret + " secret_version_unusable, as none is": {
			func() { i.Remove(secretsAt + "billhook-of-all/versions/1") }, "there is no version 1",
		},
		"secret billhook-new secret_without_version": {
			put(secretsAt+"billhook-new",
				cloudtest.Document{"name": "projects/" + cloudtest.Number + "/secrets/billhook-new", "labels": ours}), "",
		},
	}
}

type planted struct {
	plant func()
	have  string
}

func TestEachFaultOfAnInstallationIsOneFinding(t *testing.T) {
	t.Parallel()
	i := install(t)
	told := filetest.Must(i.diagnose(t))(t)
	require.True(t, told.Healthy)
	require.Empty(t, told.Findings)
	require.Empty(t, told.Unread)
	whole := i.Snapshot()
	for want, fault := range plants(i) {
		i.Restore(whole)
		fault.plant()
		told, err := i.diagnose(t)
		require.EqualError(t, err, "something is wrong", want)
		found := foundBy(t, told)
		require.Len(t, found, 1, want)
		require.True(t, strings.HasPrefix(want, found[0]), "%s instead of %s", found[0], want)
		if fault.have != "" {
			require.Equal(t, fault.have, told.Findings[0].Have, want)
		}
	}
	out, err := i.say(t, "admin", "doctor")
	require.Error(t, err)
	for _, f := range told.Findings {
		require.Contains(t, out, fmt.Sprintf(": %s %s: %s\n", f.Kind, f.ID, f.Code))
		require.Contains(t, out, "    "+f.Effect+"\n    To do: "+f.Do+"\n")
	}
	i.Restore(whole)
	plants(i)["subscription copies foreign_subscription"].plant()
	pool := "push-" + i.catalog.TasksPool // a grant on the project counts
	i.Revoke(runOf+"billhook-worker-"+i.catalog.TasksPool, "roles/run.invoker", "serviceAccount:"+emailOf(pool))
	i.Grant("cloudresourcemanager/projects/"+cloudtest.Project, "roles/run.invoker",
		"serviceAccount:"+emailOf(pool))
	require.NoError(t, filetest.ErrorOf(i.diagnose(t, "--known", "copies")))
}

// denied answers 403 to what goes to a host, and to one whose path has the word.
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

func TestWhatTheDoctorMayNotLookAtIsSaidAndIsNoHealth(t *testing.T) {
	t.Parallel()
	i := install(t)
	whole := i.Snapshot()
	webhook, worker := "service billhook-webhook", "who may call service billhook-worker-"+i.catalog.TasksPool
	for permission, test := range map[string]struct {
		host, word string
		want       []string // some of what is not looked at
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
		if test.host == "cloudresourcemanager" { // it is asked where a grant is missing
			i.Revoke(runOf+"billhook-worker-"+i.catalog.TasksPool, "roles/run.invoker",
				"serviceAccount:"+emailOf("push-"+i.catalog.TasksPool))
		}
		i.rest = []option.ClientOption{
			option.WithHTTPClient(&http.Client{Transport: denied{test.host, test.word, i}}),
		}
		told, err := i.diagnose(t)
		require.Error(t, err, permission)
		require.False(t, told.Healthy, permission)
		require.Len(t, told.Findings, map[bool]int{true: 1}[test.host == "cloudresourcemanager"], permission)
		var unread []string
		for _, one := range told.Unread {
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

func TestTheDoctorSaysWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.Remove(jobsOf + "billhook-tasks")
	told := filetest.Must(i.diagnose(t, "--pubsub-only"))(t)
	require.Contains(t, told.LeftOut, "with --pubsub-only")
	told, err := i.diagnose(t, "--pubsub-only", "--canary", "--webhook", "http://127.0.0.1:1")
	require.Error(t, err)
	require.Equal(t, []string{"event canary canary_lost"}, foundBy(t, told))

	// Of an installation with another name and addresses of its own, nothing is where it is looked for.
	told, err = i.diagnose(t, "--name", "shop")
	require.Error(t, err)
	require.Contains(t, foundBy(t, told), "service shop-webhook webhook_missing")
	i.environment["PUSH_BASE_URL"], i.pools = "https://worker.example", nil
	told, err = i.diagnose(t)
	require.Error(t, err)
	require.Contains(t, told.Unread, finding.Unread{
		What: "services, jobs and secrets", Why: "no worker's address names the region: say --region",
	})
	told, err = i.diagnose(t, "--region", installedRegion)
	require.Error(t, err)
	require.NotContains(t, told.Unread, finding.Unread{
		What: "services, jobs and secrets", Why: "no worker's address names the region: say --region",
	})
	require.Contains(t, foundBy(t, told), "job billhook-tasks job_missing")
	delete(i.environment, "PUSH_SERVICE_ACCOUNT")
	_, err = i.say(t, "admin", "doctor")
	require.ErrorContains(t, err, "PUSH_SERVICE_ACCOUNT and PUSH_AUDIENCE are required")
}

func TestTheGuideHasThePermissionsThatTheDoctorTakes(t *testing.T) {
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
