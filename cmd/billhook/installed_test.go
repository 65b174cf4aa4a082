package main

import (
	"fmt"
	"maps"
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

// setIn is a fault: another value of a field of a resource, or of a document inside it if inner names one.
func (i *installedIn) setIn(key, inner, field string, value any) func() {
	return func() {
		i.change(key, func(d cloudtest.Document) {
			if inner != "" {
				d = d[inner].(cloudtest.Document)
			}
			d[field] = value
		})
	}
}

func (i *installedIn) set(key, field string, value any) func() { return i.setIn(key, "", field, value) }

func (i *installedIn) remove(key string) func() { return func() { i.Remove(key) } }

func (i *installedIn) put(key string, d cloudtest.Document) func() { return func() { i.Put(key, d) } }

func (i *installedIn) invoke(service, member string) func() {
	return func() { i.Grant(runOf+service, "roles/run.invoker", member) }
}

func (i *installedIn) revoke(key, role, member string) func() {
	return func() {
		i.Revoke(key, role, member)
	}
}

// plants are faults of an installation by what is found, each with what there is in place of what should be.
// The other differences of topics and subscriptions are a table of the package pubsub.
func plants(i *installedIn) map[string]planted {
	all := i.plantsInServices()
	maps.Copy(all, i.plantsElsewhere())
	return all
}

func (i *installedIn) plantsInServices() map[string]planted {
	q, _ := i.catalog.HandledBy("points.credit")
	worker, workerAt := "service billhook-worker-"+q.Pool, runOf+"billhook-worker-"+q.Pool
	const webhook, ops, opsAt = "service billhook-webhook", "service billhook-ops", runOf + "billhook-ops"
	const webhookAt, invoker = runOf + "billhook-webhook", "roles/run.invoker"
	failed := cloudtest.Document{
		"state": "CONDITION_FAILED", "revisionReason": "CONTAINER_MISSING", "message": "no such image",
	}
	const missing = "CONDITION_FAILED: CONTAINER_MISSING: no such image"
	return map[string]planted{
		webhook + " service_not_ready": {func() {
			i.set(webhookAt, "terminalCondition", failed)()
			i.change(webhookAt, func(d cloudtest.Document) { delete(d, "latestReadyRevision") })
		}, missing},
		webhook + " webhook_missing":    {i.remove(webhookAt), ""},
		webhook + " webhook_closed":     {i.set(webhookAt, "invokerIamDisabled", false), "a token is required"},
		worker + " worker_missing":      {i.remove(workerAt), ""},
		worker + " service_not_updated": {i.set(workerAt, "terminalCondition", failed), missing},
		worker + " worker_open":         {i.set(workerAt, "invokerIamDisabled", true), "no token is required"},
		worker +
			" worker_open to all": {i.invoke("billhook-worker-"+q.Pool, "allUsers"), invoker + " for allUsers"},
		worker +
			" worker_invoker_unknown": {i.invoke("billhook-worker-"+q.Pool, operators), invoker + " for " + operators},
		worker + " service_serves_others": {i.set(workerAt, "template", nil), "pushes and people"},
		worker + " audience_refused": {
			i.set(workerAt, "customAudiences", []any{"https://other.example"}), "https://other.example",
		},
		worker + " invoker_grant_missing": {
			i.revoke(workerAt, invoker, "serviceAccount:"+emailOf("push-"+q.Pool)), "",
		},
		ops + " ops_missing":           {i.remove(opsAt), ""},
		ops + " ops_unproxied":         {i.set(opsAt, "iapEnabled", false), "not behind the proxy"},
		ops + " service_serves_others": {i.set(opsAt, "template", nil), "pushes and people"},
		ops + " proxy_grant_missing":   {i.revoke(opsAt, invoker, "serviceAccount:"+cloudtest.ProxyAgent), ""},
		ops + " ops_without_people": {
			i.revoke(proxyAt+"billhook-ops", "roles/iap.httpsResourceAccessor", operators), "",
		},
	}
}

func (i *installedIn) plantsElsewhere() map[string]planted {
	q, _ := i.catalog.HandledBy("points.credit")
	subscription, subscriptionAt := "subscription "+q.PushSubscription(), subscriptionsOf+q.PushSubscription()
	const job, jobAt, versionAt = "job billhook-tasks", jobsOf + "billhook-tasks",
		secretsAt + "billhook-of-all/versions/1"
	const project = "projects/" + cloudtest.Project
	return map[string]planted{
		subscription + " wrong_endpoint": {
			i.setIn(subscriptionAt, "pushConfig", "pushEndpoint", "https://worker.example/push/x"),
			"https://worker.example/push/x",
		},
		"subscription copies foreign_subscription": {i.put(subscriptionsOf+"copies", cloudtest.Document{
			"name": project + "/subscriptions/copies", "topic": project + "/topics/" + q.Topic(),
		}), "of topic " + q.Topic() + ", without an endpoint"},
		job + " job_missing": {i.remove(jobAt), ""},
		job + " job_paused":  {i.set(jobAt, "state", "PAUSED"), "PAUSED"},
		job + " job_wrong_address": {
			i.setIn(jobAt, "httpTarget", "uri", "https://old.example/x"), "POST https://old.example/x",
		},
		job + " job_wrong_address by a method": {
			i.setIn(jobAt, "httpTarget", "httpMethod", "GET"), "GET " + workerOf(i.catalog.TasksPool) + tasks.Path,
		},
		job + " job_wrong_token": {i.setIn(jobAt, "httpTarget", "oidcToken", nil), "no account for no audience"},
		"secret billhook-of-all secret_version_unusable": {
			i.set(versionAt, "state", "DISABLED"), "version 1 is DISABLED",
		},
		"secret billhook-of-all secret_version_unusable, as none is": {
			i.remove(versionAt), "there is no version 1",
		},
		"secret billhook-new secret_without_version": {i.put(secretsAt+"billhook-new", cloudtest.Document{
			"name":   "projects/" + cloudtest.Number + "/secrets/billhook-new",
			"labels": cloudtest.Document{"app": "billhook"},
		}), ""},
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
