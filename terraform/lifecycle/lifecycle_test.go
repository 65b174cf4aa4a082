package lifecycle_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/emulator/cloudtest"
)

const (
	webhook = "billhook-webhook"
	secrets = "secretmanager/projects/" + cloudtest.Project + "/secrets/"
)

// worker is the name of a pool's service.
func worker(pool string) string { return "billhook-worker-" + pool }

func TestAnInstallationIsMadeSettledAndTornDown(t *testing.T) {
	t.Parallel()
	i := installed(t)
	events, updates := paynow(t, shipped(t))
	require.Equal(t, map[string]int{image("worker", 'a'): 100}, i.cloud.Serving(region, worker(events.Pool)))
	require.Equal(t, map[string]int{image("worker", 'a'): 100}, i.cloud.Serving(region, "billhook-ops"))
	require.Equal(t, events.Pool, updates.Pool)
	const services = "run/projects/" + cloudtest.Project + "/locations/" + region + "/services/"
	require.Len(t, i.cloud.Keys(services), 6, "three services with a revision each")

	// Whom the variable names come to the service for people, and with a push that they have made up to no
	// worker.
	const ops, operators = "billhook-ops", "group:operators@example.com"
	visited := func(want ...int) {
		t.Helper()
		came, forged := i.cloud.Visit(region, ops, operators), i.cloud.Visit(region, worker(events.Pool), operators)
		require.Equal(t, want, []int{came, forged, i.cloud.Visit(region, ops, "user:eve@example.com")})
	}
	visited(http.StatusForbidden, http.StatusNotFound, http.StatusForbidden)
	i.with(variables{"ops": variables{"people": []string{operators}, "pauses": true}}).apply()
	i.settled()
	visited(http.StatusOK, http.StatusNotFound, http.StatusForbidden)
	opened := i.cloud.Get(services + worker(events.Pool))
	opened["ingress"] = "INGRESS_TRAFFIC_ALL" // by hand, and back by an apply
	i.cloud.Put(services+worker(events.Pool), opened)
	i.cloud.Revoke(services+ops, "roles/run.invoker", "serviceAccount:"+cloudtest.ProxyAgent)
	visited(http.StatusForbidden, http.StatusForbidden, http.StatusForbidden)
	i.apply()
	visited(http.StatusOK, http.StatusNotFound, http.StatusForbidden)
	i.with(variables{
		"ops": variables{
			"people": []string{"serviceAccount:nobody@" + cloudtest.Project + ".iam.gserviceaccount.com"},
		},
	})
	require.Contains(t, i.refused(), "does not exist")

	i.refusesToGo()
	i.cloud.Watch(nil)
	i.with(variables{"deletion_protection": false, "ops": nil}).apply()
	said, err := i.destroy()
	require.NoError(t, err, said)
	for _, prefix := range []string{
		"run/", "pubsub/", "iam/projects/" + cloudtest.Project + "/serviceAccounts/", "secretmanager/",
		"cloudscheduler/", "cloudtasks/", "firestore/projects/" + cloudtest.Project + "/databases/",
		"monitoring/", "logging/",
	} {
		require.Empty(t, i.cloud.Keys(prefix), "nothing is left of %s", prefix)
	}
}

// The new service, and its grants, are there before a push comes, and the old one serves until then: no
// message is turned away for good.
func TestAPoolThatIsRenamedIsThereBeforeTheOldOneGoes(t *testing.T) {
	t.Parallel()
	i := installed(t)
	events, _ := paynow(t, shipped(t))
	happened := i.edit("queues.yaml", "\n    pool: "+events.Pool+"\n", "\n    pool: money\n").
		edit("queues.yaml", "\ntasks_pool: "+events.Pool, "\ntasks_pool: money").apply()
	require.Empty(t, failures(happened))
	const project = "projects/" + cloudtest.Project
	order(t, happened,
		"create iam/"+project+"/serviceAccounts/billhook-worker-money@",
		"create run/"+project+"/locations/"+region+"/services/"+worker("money"),
		"iam run/"+project+"/locations/"+region+"/services/"+worker("money"),
		"change pubsub/"+project+"/subscriptions/",
		"delete run/"+project+"/locations/"+region+"/services/"+worker(events.Pool),
	)
	for _, key := range i.cloud.Keys("pubsub/" + project + "/subscriptions/") {
		require.NotContains(t, i.endpoint(strings.TrimPrefix(key, "pubsub/"+project+"/subscriptions/")),
			worker(events.Pool))
	}
	i.settled()
}

func TestTrafficThatSomebodyPinnedByHandComesBack(t *testing.T) {
	t.Parallel()
	i := installed(t)
	events, _ := paynow(t, shipped(t))
	name := worker(events.Pool)
	old := i.revision(name)
	i.with(variables{"images": images('b')}).apply()
	i.pin(name, old)
	require.Equal(t, map[string]int{image("worker", 'a'): 100}, i.cloud.Serving(region, name),
		"gcloud run services update-traffic --to-revisions")
	_, changed := i.plan()
	require.True(t, changed, "the plan shows what was done by hand")

	i.with(variables{"images": images('c')}).apply()
	require.Equal(t, map[string]int{image("worker", 'c'): 100}, i.cloud.Serving(region, name))
	i.settled()
}

func TestACanaryTakesItsShareAndGoesBackByAVariable(t *testing.T) {
	t.Parallel()
	i := installed(t)
	events, _ := paynow(t, shipped(t))
	name := worker(events.Pool)
	canary := func(percent int) variables {
		beside := variables{"canary": variables{"image": image("worker", 'b'), "percent": percent}}
		return variables{"services": variables{"worker-" + events.Pool: beside}}
	}
	for _, step := range []struct {
		set  variables
		want map[string]int
	}{
		{canary(20), map[string]int{image("worker", 'a'): 80, image("worker", 'b'): 20}},
		{canary(50), map[string]int{image("worker", 'a'): 50, image("worker", 'b'): 50}},
		{canary(0), map[string]int{image("worker", 'a'): 100}},
		{variables{"services": nil, "images": images('b')}, map[string]int{image("worker", 'b'): 100}},
		{variables{"images": images('a')}, map[string]int{image("worker", 'a'): 100}}, // the rollback
	} {
		i.with(step.set).apply()
		require.Equal(t, step.want, i.cloud.Serving(region, name))
		said, changed := i.plan()
		require.False(t, changed, said)
		require.Equal(t, i.set["services"] != nil,
			strings.Contains(said, "reach the requests of their canary alone"), said)
	}
}

func TestAJobThatSomebodyHasPausedIsResumed(t *testing.T) {
	t.Parallel()
	i := installed(t)
	job := "projects/" + cloudtest.Project + "/locations/" + region + "/jobs/billhook-tasks"
	i.call(http.MethodPost, "cloudscheduler", "v1/"+job+":pause", nil)
	require.Equal(t, "PAUSED", i.cloud.Get("cloudscheduler/" + job)["state"])
	_, changed := i.plan()
	require.True(t, changed, "the plan shows what was done by hand")
	i.apply()
	require.Equal(t, "ENABLED", i.cloud.Get("cloudscheduler/" + job)["state"])
	i.settled()
}

func TestAFailedUpdateIsReportedByEveryPlanUntilItIsRepaired(t *testing.T) {
	t.Parallel()
	i := installed(t)
	i.cloud.Change(func(held *cloudtest.State) { held.Faults[image("webhook", 'b')] = "no memory" })
	require.Contains(t, i.with(variables{"images": images('b')}).refused(), "no memory")
	require.Equal(t, map[string]int{image("webhook", 'a'): 100}, i.cloud.Serving(region, webhook),
		"the old revision serves")
	for range 2 {
		said, _ := i.plan()
		require.Contains(t, said, "no memory")
	}
	i.cloud.Change(func(held *cloudtest.State) { clear(held.Faults) })
	i.with(variables{"services": variables{"webhook": variables{"redeploy": "again"}}}).apply()
	require.Equal(t, map[string]int{image("webhook", 'b'): 100}, i.cloud.Serving(region, webhook))
	said, changed := i.plan()
	require.False(t, changed)
	require.NotContains(t, said, "no memory")
}

func TestAQueueInAPoolThatSortsFirstMovesNoTask(t *testing.T) {
	t.Parallel()
	i := installed(t)
	c := shipped(t)
	events, updates := paynow(t, c)
	added := another(t, c)
	queues := []string{events.ID, updates.ID, added.ID}
	happened := i.with(variables{"queues": queues, "target_urls": urls(t, queues...)}).apply()
	for _, line := range happened {
		require.NotContains(t, line, "change cloudscheduler/", "the tasks stay where they were")
	}
	i.settled()
	require.NotEmpty(t, i.endpoint(added.PushSubscription()))

	// Without the queue again: what waits there has to be kept or given up, by its name.
	i.cloud.Publish(added.ID)
	without := variables{"queues": queues[:2], "target_urls": urls(t, queues[:2]...)}
	require.Contains(t, i.with(without).refused(), "name the queue in kept_queues")
	require.NotEmpty(t, i.endpoint(added.PushSubscription()), "the queue still works")
	require.NotNil(t, i.service(worker(added.Pool)), "and so does its worker")

	signing := i.cloud.Keys(secrets)
	i.with(variables{"kept_queues": []string{added.ID}}).apply()
	i.settled()
	require.Equal(t, signing, i.cloud.Keys(secrets), "a kept queue keeps what it signs with")
	require.Empty(t, i.endpoint(added.PushSubscription()))
	require.Nil(t, i.service(worker(added.Pool)))
	i.cloud.Publish(added.ID)
	require.EqualValues(t, 1, i.subscription(added.PushSubscription())["waiting"])

	// Resumed, by running it again.
	i.with(variables{"kept_queues": nil, "queues": queues, "target_urls": urls(t, queues...)}).apply()
	require.NotEmpty(t, i.endpoint(added.PushSubscription()))

	// Given up.
	i.with(variables{"discard_backlog": []string{added.ID}}).apply()
	happened = i.with(without).apply()
	require.Nil(t, i.subscription(added.PushSubscription()))
	require.Empty(t, i.cloud.Keys("pubsub/projects/"+cloudtest.Project+"/topics/"+added.ID))
	require.Contains(t, strings.Join(happened, "\n"), "delete pubsub/")
	i.with(variables{"discard_backlog": nil}).settled()
}

func TestTwoInstallationsOfOneProjectDoNotMeet(t *testing.T) {
	t.Parallel()
	first := installed(t)
	second := small(t, shop(t))
	second.cloud = first.cloud
	second.point()
	before := first.cloud.Keys("")
	second.with(variables{"installation": "staging"}).bootstrap()
	second.with(variables{"images": images('b')}).apply()
	second.settled()
	first.settled()
	events, _ := paynow(t, shipped(t))
	require.NotNil(t, first.subscription("staging-"+events.PushSubscription()))
	require.Equal(t, map[string]int{image("worker", 'a'): 100}, first.cloud.Serving(region, worker(events.Pool)))
	require.Equal(t, map[string]int{image("worker", 'b'): 100},
		first.cloud.Serving(region, "staging-worker-"+events.Pool))

	// One goes, and the other stays whole.
	second.with(variables{"deletion_protection": false}).apply()
	said, err := second.destroy()
	require.NoError(t, err, said)
	for _, key := range before {
		require.NotNil(t, first.cloud.Get(key), key)
	}
	first.settled()
}

// Where Google's provider cannot be had, this says so for all scenarios.
func TestTheProviderCanBeHad(t *testing.T) {
	t.Parallel()
	prepare(t)
}
