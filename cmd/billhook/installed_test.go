package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/emulator/cloudtest"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/tasks"
)

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
			set(runOf+"billhook-webhook", "invokerIamDisabled", false), "a token is required",
		},
		"service " + worker + " worker_missing": {func() { i.Remove(runOf + worker) }, ""},
		"service " + worker + " service_not_updated": {
			set(runOf+worker, "terminalCondition", failed), "CONDITION_FAILED: CONTAINER_MISSING: no such image",
		},
		"service " + worker +
			" worker_open": {set(runOf+worker, "invokerIamDisabled", true), "no token is required"},
		"service " + worker + " worker_open to all": {
			func() { i.Grant(runOf+worker, "roles/run.invoker", "allUsers") }, "roles/run.invoker for allUsers",
		},
		"service " + worker + " worker_invoker_unknown": {
			func() { i.Grant(runOf+worker, "roles/run.invoker", operators) }, "roles/run.invoker for " + operators,
		},
		"service " + worker + " service_serves_others": {set(runOf+worker, "template", nil), "pushes and people"},
		"service billhook-ops ops_missing":             {func() { i.Remove(runOf + "billhook-ops") }, ""},
		"service billhook-ops ops_unproxied": {
			set(runOf+"billhook-ops", "iapEnabled", false), "not behind the proxy",
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
	report := filetest.Must(i.diagnose(t))(t)
	require.True(t, report.Healthy)
	require.Empty(t, report.Findings)
	require.Empty(t, report.Unread)
	whole := i.Snapshot()
	for want, fault := range plants(i) {
		i.Restore(whole)
		fault.plant()
		report, err := i.diagnose(t)
		require.EqualError(t, err, "something is wrong", want)
		found := foundBy(t, report)
		require.Len(t, found, 1, want)
		require.True(t, strings.HasPrefix(want, found[0]), "%s instead of %s", found[0], want)
		if fault.have != "" {
			require.Equal(t, fault.have, report.Findings[0].Have, want)
		}
	}
	out, err := i.say(t, "admin", "doctor")
	require.Error(t, err)
	for _, f := range report.Findings {
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
