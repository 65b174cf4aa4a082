package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"

	"billhook/catalog"
	"billhook/emulator/cloudtest"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/gcp/finding"
	"billhook/internal/platform/gcp/installed"
	"billhook/internal/platform/gcp/pubsub"
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
)

func emailOf(id string) string { return id + "@" + cloudtest.Project + ".iam.gserviceaccount.com" }

func workerOf(pool string) string {
	return fmt.Sprintf("https://billhook-worker-%s-%s.%s.run.app", pool, cloudtest.Number, installedRegion)
}

func install(t *testing.T) *installedIn {
	t.Helper()
	project := cloudtest.Start()
	t.Cleanup(project.Close)
	project.Enable("run", "cloudscheduler", "secretmanager", "iam")
	c, err := catalog.Load("")
	require.NoError(t, err)
	i := &installedIn{Cloud: project, catalog: c, rest: project.Clients(), environment: map[string]string{
		"GOOGLE_CLOUD_PROJECT": cloudtest.Project, "PUSH_AUDIENCE": audience, "PUSH_BASE_URL": workerOf(c.TasksPool), "PUSH_SERVICE_ACCOUNT": emailOf("push-" + c.TasksPool),
	}}
	var urls, accounts []string
	for _, name := range append([]string{catalog.Door}, workers(c)...) {
		i.account(name)
		i.Put(runOf+"billhook-"+name, cloudtest.Document{
			"invokerIamDisabled": name == catalog.Door, "terminalCondition": cloudtest.Document{"type": "Ready", "state": "CONDITION_SUCCEEDED"},
			"latestReadyRevision": "first", "customAudiences": []any{audience},
			"template": cloudtest.Document{"serviceAccount": emailOf(name), "containers": []any{cloudtest.Document{"env": []any{
				cloudtest.Document{"name": "SECRET", "valueSource": cloudtest.Document{"secretKeyRef": cloudtest.Document{"secret": "billhook-of-all", "version": "1"}}},
			}}}},
		})
	}
	for _, pool := range c.Pools() {
		i.account("push-" + pool)
		i.Grant(runOf+"billhook-worker-"+pool, "roles/run.invoker", "serviceAccount:"+emailOf("push-"+pool))
		urls, accounts = append(urls, pool+"="+workerOf(pool)), append(accounts, pool+"="+emailOf("push-"+pool))
	}
	i.pools = []string{"--pool-urls", strings.Join(urls, ","), "--pool-accounts", strings.Join(accounts, ",")}
	for _, task := range tasks.Scheduled {
		i.Put(jobsOf+"billhook-"+task, cloudtest.Document{"state": "ENABLED", "httpTarget": cloudtest.Document{
			"httpMethod": "POST", "uri": workerOf(c.TasksPool) + "/tasks/" + task, "oidcToken": cloudtest.Document{"serviceAccountEmail": emailOf("push-" + c.TasksPool), "audience": audience},
		}})
	}
	i.Put(secretsAt+"billhook-of-all", cloudtest.Document{"name": "projects/" + cloudtest.Number + "/secrets/billhook-of-all", "labels": cloudtest.Document{"app": "billhook"}})
	i.AddVersion("billhook-of-all", "a secret")
	out, err := i.say(t, append([]string{"provision"}, i.pools...)...)
	require.NoError(t, err, out)
	for topic, publishers := range c.Publishers() {
		for _, name := range publishers {
			i.Grant(topicsOf+topic, "roles/pubsub.publisher", "serviceAccount:"+emailOf(name))
		}
	}
	for _, q := range c.Queues {
		if q.Enabled && !q.DeadLetter.Drop {
			i.Grant(topicsOf+q.DeadLetter.Topic, "roles/pubsub.publisher", "serviceAccount:"+cloudtest.PubSubAgent)
			i.Grant(subscriptionsOf+q.PushSubscription(), "roles/pubsub.subscriber", "serviceAccount:"+cloudtest.PubSubAgent)
		}
	}
	return i
}

func workers(c *catalog.Catalog) (names []string) {
	for _, pool := range c.Pools() {
		names = append(names, catalog.WorkerOf(pool))
	}
	return names
}

func (i *installedIn) account(id string) {
	i.Put("iam/projects/"+cloudtest.Project+"/serviceAccounts/"+emailOf(id), cloudtest.Document{"email": emailOf(id)})
}

// change changes a resource behind Terraform's back.
func (i *installedIn) change(key string, change func(cloudtest.Document)) {
	resource := i.Get(key)
	change(resource)
	i.Put(key, resource)
}

func (i *installedIn) say(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	p, err := newProgram(func(name string) string { return i.environment[name] }, &out)
	require.NoError(t, err)
	p.google = google{pubsub: i.Broker(), rest: i.rest}
	root := p.commands()
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return out.String(), err
}

// diagnose is what the doctor says in JSON.
func (i *installedIn) diagnose(t *testing.T, args ...string) (diagnosis diagnosed, err error) {
	t.Helper()
	out, err := i.say(t, slices.Concat([]string{"doctor", "--json"}, i.pools, args)...)
	require.NoError(t, json.Unmarshal([]byte(out), &diagnosis), out)
	return diagnosis, err
}

type diagnosed struct {
	Healthy  bool             `json:"healthy"`
	Findings []told           `json:"findings"`
	Unread   []finding.Unread `json:"unread"`
	LeftOut  string           `json:"left_out"`
}

type told struct{ Queue, Kind, ID, Code, Have, Want, Effect, Do string }

// found are the findings as kind, id and code.
func (d diagnosed) found(t *testing.T) (found []string) {
	t.Helper()
	for _, f := range d.Findings {
		require.NotEmpty(t, f.Effect, f.Code)
		require.NotEmpty(t, f.Do, f.Code)
		found = append(found, f.Kind+" "+f.ID+" "+f.Code)
	}
	slices.Sort(found)
	return found
}

// planted are faults of an installation, and what is found.
type planted struct {
	plant func(*installedIn)
	want  string
}

func plants(c *catalog.Catalog) map[string]planted {
	q, _ := c.HandledBy("points.credit")
	other, _ := c.EmitsTo("subscriptions.record") // of a topic that is missing nothing else can be said
	worker, job := "billhook-worker-"+q.Pool, "billhook-relay-outbox"
	changed := func(key string, change func(cloudtest.Document)) func(*installedIn) {
		return func(i *installedIn) { i.change(key, change) }
	}
	return map[string]planted{
		"a topic is gone": {func(i *installedIn) { i.Remove(topicsOf + other.Topic()) }, "topic " + other.Topic() + " topic_missing"},
		"a hold subscription is gone": {
			func(i *installedIn) { i.Remove(subscriptionsOf + q.DeadLetterHold()) }, "subscription " + q.DeadLetterHold() + " hold_subscription_missing",
		},
		"pushes go elsewhere": {
			changed(subscriptionsOf+q.PushSubscription(), func(s cloudtest.Document) {
				s["pushConfig"].(cloudtest.Document)["pushEndpoint"] = "https://worker.example/push/" + q.ID
			}),
			"subscription " + q.PushSubscription() + " wrong_endpoint",
		},
		"Pub/Sub may not dead-letter": {
			func(i *installedIn) {
				i.Revoke(subscriptionsOf+q.PushSubscription(), "roles/pubsub.subscriber", "serviceAccount:"+cloudtest.PubSubAgent)
			},
			"subscription " + q.PushSubscription() + " subscriber_grant_missing",
		},
		"the door may not publish": {
			func(i *installedIn) {
				i.Revoke(topicsOf+q.Topic(), "roles/pubsub.publisher", "serviceAccount:"+emailOf(catalog.Door))
			},
			"topic " + q.Topic() + " door_grant_missing",
		},
		"nobody may call a worker": {
			func(i *installedIn) {
				i.Revoke(runOf+worker, "roles/run.invoker", "serviceAccount:"+emailOf("push-"+q.Pool))
			},
			"service " + worker + " invoker_grant_missing",
		},
		"a job is gone": {func(i *installedIn) { i.Remove(jobsOf + job) }, "job " + job + " job_missing"},
		"a subscription is left over": {
			func(i *installedIn) {
				i.Put(subscriptionsOf+"renamed-push", cloudtest.Document{
					"name": "projects/" + cloudtest.Project + "/subscriptions/renamed-push", "topic": "_deleted-topic_", "labels": cloudtest.Document{"app": "billhook"},
				})
			},
			"subscription renamed-push stray_subscription",
		},
		"a service does not run": {
			changed(runOf+"billhook-webhook", func(s cloudtest.Document) {
				s["terminalCondition"] = cloudtest.Document{"state": "CONDITION_FAILED", "message": "the container failed to start"}
				delete(s, "latestReadyRevision")
			}),
			"service billhook-webhook service_not_ready",
		},
	}
}

func TestAnInstallationThatIsAsItShouldBeIsHealthy(t *testing.T) {
	t.Parallel()
	i := install(t)
	diagnosis, err := i.diagnose(t)
	require.NoError(t, err)
	require.Equal(t, diagnosed{Healthy: true, Findings: []told{}, Unread: []finding.Unread{}}, diagnosis)
}

func TestNineFaultsAreNineFindings(t *testing.T) {
	t.Parallel()
	i := install(t)
	var want []string
	faults := plants(i.catalog)
	require.Len(t, faults, 9)
	for _, fault := range faults {
		fault.plant(i)
		want = append(want, fault.want)
	}
	slices.Sort(want)
	diagnosis, err := i.diagnose(t)
	require.EqualError(t, err, "something is wrong")
	require.False(t, diagnosis.Healthy)
	require.Equal(t, want, diagnosis.found(t))
	require.Empty(t, diagnosis.Unread)
	out, err := i.say(t, append([]string{"doctor"}, i.pools...)...)
	require.Error(t, err)
	for _, f := range diagnosis.Findings {
		require.Contains(t, out, fmt.Sprintf("  %s %s: %s\n", f.Kind, f.ID, f.Code))
		require.Contains(t, out, "    "+f.Effect+"\n    To do: "+f.Do+"\n")
	}
}

func TestWhatIsWrongAroundTheQueuesIsFound(t *testing.T) {
	t.Parallel()
	i := install(t)
	q, ok := i.catalog.HandledBy("points.credit")
	require.True(t, ok)
	whole, worker, job := i.Snapshot(), "billhook-worker-"+q.Pool, "billhook-release-delayed"
	set := func(key, field string, value any) func() {
		return func() { i.change(key, func(d cloudtest.Document) { d[field] = value }) }
	}
	target := func(field string, value any) func() {
		return func() {
			i.change(jobsOf+job, func(d cloudtest.Document) { d["httpTarget"].(cloudtest.Document)[field] = value })
		}
	}
	failed := cloudtest.Document{"state": "CONDITION_FAILED", "revisionReason": "CONTAINER_MISSING", "message": "no such image"}
	for name, test := range map[string]struct {
		change func()
		code   string
		have   string
	}{
		"there is no door":                {func() { i.Remove(runOf + "billhook-webhook") }, "door_missing", ""},
		"there is no worker":              {func() { i.Remove(runOf + worker) }, "worker_missing", ""},
		"an update failed":                {set(runOf+worker, "terminalCondition", failed), "service_not_updated", "CONDITION_FAILED: CONTAINER_MISSING: no such image"},
		"the door asks for tokens":        {set(runOf+"billhook-webhook", "invokerIamDisabled", false), "door_closed", "a token is asked for"},
		"the worker asks for none":        {set(runOf+worker, "invokerIamDisabled", true), "worker_open", "no token is asked for"},
		"everybody may call the worker":   {func() { i.Grant(runOf+worker, "roles/run.invoker", "allUsers") }, "worker_open", "roles/run.invoker for allUsers"},
		"the worker has another audience": {set(runOf+worker, "customAudiences", []any{"https://other.example"}), "audience_refused", "https://other.example"},
		"a job is paused":                 {set(jobsOf+job, "state", "PAUSED"), "job_paused", "PAUSED"},
		"a job calls another address":     {target("uri", "https://old.example/tasks/release-delayed"), "job_wrong_address", "POST https://old.example/tasks/release-delayed"},
		"a job calls in another way":      {target("httpMethod", "GET"), "job_wrong_address", "GET " + workerOf(i.catalog.TasksPool) + "/tasks/release-delayed"},
		"a job has no token":              {target("oidcToken", nil), "job_wrong_token", "no account for no audience"},
		"a secret's version is disabled":  {func() { i.SetVersion("billhook-of-all", "1", "DISABLED") }, "secret_version_unusable", "version 1 is DISABLED"},
		"a secret's version is not there": {func() { i.Remove(secretsAt + "billhook-of-all/versions/1") }, "secret_version_unusable", "there is no version 1"},
		"a secret that none reads is empty": {
			func() {
				i.Put(secretsAt+"billhook-new", cloudtest.Document{"name": "projects/" + cloudtest.Number + "/secrets/billhook-new", "labels": cloudtest.Document{"app": "billhook"}})
			},
			"secret_without_version", "",
		},
		"somebody copies what is published": {
			func() {
				i.Put(subscriptionsOf+"copies", cloudtest.Document{"name": "projects/" + cloudtest.Project + "/subscriptions/copies", "topic": "projects/" + cloudtest.Project + "/topics/" + q.Topic()})
			},
			"foreign_subscription", "of topic " + q.Topic() + ", without an endpoint",
		},
		"a topic is left over": {
			func() {
				i.Put(topicsOf+"renamed", cloudtest.Document{"name": "projects/" + cloudtest.Project + "/topics/renamed", "labels": cloudtest.Document{"app": "billhook"}})
			},
			"stray_topic", "",
		},
	} {
		i.Restore(whole)
		test.change()
		diagnosis, err := i.diagnose(t)
		require.Error(t, err, name)
		diagnosis.found(t)
		var wrong []told
		for _, f := range diagnosis.Findings {
			// A service that is not there has no account, and none of its grants can be looked for.
			wrong = append(wrong, told{Code: f.Code, Have: f.Have})
		}
		require.Equal(t, []told{{Code: test.code, Have: test.have}}, wrong, name)
	}
	i.Restore(whole)
	i.Put(subscriptionsOf+"copies", cloudtest.Document{"name": "projects/" + cloudtest.Project + "/subscriptions/copies", "topic": "projects/" + cloudtest.Project + "/topics/" + q.Topic()})
	diagnosis, err := i.diagnose(t, "--known", "copies")
	require.NoError(t, err)
	require.Empty(t, diagnosis.Findings)
}

func TestAGrantOnTheProjectCounts(t *testing.T) {
	t.Parallel()
	i := install(t)
	pool := i.catalog.TasksPool
	i.Revoke(runOf+"billhook-worker-"+pool, "roles/run.invoker", "serviceAccount:"+emailOf("push-"+pool))
	i.Grant("cloudresourcemanager/projects/"+cloudtest.Project, "roles/run.invoker", "serviceAccount:"+emailOf("push-"+pool))
	diagnosis, err := i.diagnose(t)
	require.NoError(t, err)
	require.Empty(t, diagnosis.Findings)
}

// denied answers 403 to what goes to a host, and to one whose path has the word.
type denied struct {
	host, word string
	next       http.RoundTripper
}

func (d denied) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.HasPrefix(request.URL.Host, d.host) && strings.Contains(request.URL.Path, d.word) {
		return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody, Header: http.Header{}, Request: request}, nil
	}
	return d.next.RoundTrip(request)
}

func TestWhatTheDoctorMayNotLookAtIsSaidAndIsNoHealth(t *testing.T) {
	t.Parallel()
	i := install(t)
	whole := i.Snapshot()
	door, worker := "service billhook-webhook", "who may call service billhook-worker-"+i.catalog.TasksPool
	for name, test := range map[string]struct {
		host, word string
		before     func()
		want       []string // some of what is not looked at
		permission string
		findings   []string
	}{
		"the services":  {host: "run", word: "/services/", want: []string{door, "service billhook-worker-" + i.catalog.TasksPool}, permission: "run.services.get"},
		"their callers": {host: "run", word: "getIamPolicy", want: []string{worker}, permission: "run.services.getIamPolicy"},
		"the jobs":      {host: "cloudscheduler", want: []string{"job billhook-relay-outbox", "job billhook-seal-journal"}, permission: "cloudscheduler.jobs.get"},
		"the versions of secrets": {
			host: "secretmanager", word: "/versions/", want: []string{"version 1 of secret billhook-of-all"}, permission: "secretmanager.versions.get",
		},
		"the secrets": {host: "secretmanager", want: []string{"secrets that no service reads yet"}, permission: "secretmanager.secrets.list"},
		"the project, where a grant is missing": {
			host: "cloudresourcemanager", permission: "resourcemanager.projects.getIamPolicy",
			before: func() {
				i.Revoke(runOf+"billhook-worker-"+i.catalog.TasksPool, "roles/run.invoker", "serviceAccount:"+emailOf("push-"+i.catalog.TasksPool))
			},
			want:     []string{"whether what is said to be missing is granted on the whole project"},
			findings: []string{"service billhook-worker-" + i.catalog.TasksPool + " invoker_grant_missing"},
		},
	} {
		i.Restore(whole)
		if test.before != nil {
			test.before()
		}
		i.rest = []option.ClientOption{option.WithHTTPClient(&http.Client{Transport: denied{test.host, test.word, i.Transport()}})}
		diagnosis, err := i.diagnose(t)
		require.Error(t, err, name)
		require.False(t, diagnosis.Healthy, name)
		require.Equal(t, test.findings, diagnosis.found(t), name)
		var unread []string
		for _, one := range diagnosis.Unread {
			if one.Permission == test.permission {
				require.Equal(t, "403 Forbidden", one.Why, name)
				unread = append(unread, one.What)
			}
		}
		require.Subset(t, unread, test.want, name)
		out, err := i.say(t, append([]string{"doctor"}, i.pools...)...)
		require.Error(t, err, name)
		require.Contains(t, out, "    403 Forbidden\n    It takes the permission "+test.permission+".\n", name)
		for _, one := range test.want {
			require.Contains(t, out, one, name)
		}
	}
}

func TestTheDoctorSaysWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.Remove(jobsOf + "billhook-relay-outbox")
	diagnosis, err := i.diagnose(t, "--pubsub-only")
	require.NoError(t, err)
	require.Contains(t, diagnosis.LeftOut, "with --pubsub-only")

	// Of an installation with another name and addresses of its own, nothing is where it is looked for.
	diagnosis, err = i.diagnose(t, "--name", "shop")
	require.Error(t, err)
	require.Contains(t, diagnosis.found(t), "service shop-webhook door_missing")
	i.environment["PUSH_BASE_URL"], i.pools = "https://worker.example", nil
	diagnosis, err = i.diagnose(t)
	require.Error(t, err)
	require.Contains(t, diagnosis.Unread, finding.Unread{What: "services, jobs and secrets", Why: "no worker's address names the region: say --region"})
	diagnosis, err = i.diagnose(t, "--region", installedRegion)
	require.Error(t, err)
	require.NotContains(t, diagnosis.Unread, finding.Unread{What: "services, jobs and secrets", Why: "no worker's address names the region: say --region"})
	require.Contains(t, diagnosis.found(t), "job billhook-relay-outbox job_missing")
}

func TestTheGuideHasThePermissionsThatTheDoctorTakes(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "deploying.md"))
	require.NoError(t, err)
	named := regexp.MustCompile("`((?:pubsub|run|cloudscheduler|secretmanager|resourcemanager)\\.[a-z]+\\.[a-zA-Z]+)`").FindAllStringSubmatch(string(guide), -1)
	var permissions []string
	for _, match := range named {
		permissions = append(permissions, match[1])
	}
	require.Subset(t, permissions, slices.Concat(pubsub.Permissions, installed.Permissions))
}

// The doctor looks for things by the names that Terraform gives.
func TestTerraformGivesTheNamesThatTheDoctorLooksFor(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "terraform", "main.tf"))
	require.NoError(t, err)
	for _, line := range []string{
		`webhook_name = "${local.name}-webhook"`, `pool => "${local.name}-worker-${pool}" }`, `{ app = local.name }`,
		`"https://${name}-${local.number}.${var.region}.run.app"`, `uri         = "${local.worker_urls[local.tasks_pool]}/tasks/${each.key}"`,
	} {
		require.Contains(t, string(text), line)
	}
	_, jobs, found := strings.Cut(string(text), `resource "google_cloud_scheduler_job" "task" {`)
	require.True(t, found)
	require.Regexp(t, `^[^#]*\n  name += "\$\{local\.name\}-\$\{each\.key\}"`, jobs)
}
