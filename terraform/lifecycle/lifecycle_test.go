package lifecycle_test

import (
	"net/http"
	"path/filepath"
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
	i.serves(worker(events.Pool), image("worker", 'a'))
	i.serves("billhook-ops", image("worker", 'a'))
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
	i.with(variables{"ops": variables{"people": []string{operators}, "pauses": true}}).applied()
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
	i.with(variables{"ops": nil})

	// What can never be changed of the database is refused before its indexes go.
	held := i.cloud.Keys("firestore/")
	i.with(variables{"firestore": variables{"location": "nam5"}})
	require.Contains(t, i.refused(), "already exists")
	require.Equal(t, held, i.cloud.Keys("firestore/"))
	i.with(variables{"firestore": variables{"location": "eur3"}}).applied()

	i.refusesToGo()
	i.cloud.Watch(nil)
	i.with(variables{"deletion_protection": false}).apply()
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
	happened := i.edit("queues.yaml", "\n    pool: "+events.Pool+"\n", "\n    pool: money\n").
		edit("queues.yaml", "\ntasks_pool: "+events.Pool, "\ntasks_pool: money").applied()
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
}

func TestAPlanShowsWhatSomebodyDidByHandAndAnApplyUndoesIt(t *testing.T) {
	t.Parallel()
	i := installed(t)
	job := "projects/" + cloudtest.Project + "/locations/" + region + "/jobs/billhook-tasks"
	i.call(http.MethodPost, "cloudscheduler", "v1/"+job+":pause", nil)
	require.Equal(t, "PAUSED", i.cloud.Get("cloudscheduler/" + job)["state"])
	_, changed := i.plan()
	require.True(t, changed, "a paused job")
	i.applied()
	require.Equal(t, "ENABLED", i.cloud.Get("cloudscheduler/" + job)["state"])

	name := worker(events.Pool)
	old := i.revision(name)
	i.with(variables{"images": images('b')}).apply()
	i.pin(name, old)
	i.serves(name, image("worker", 'a'))
	_, changed = i.plan()
	require.True(t, changed, "traffic that is pinned to a revision")
	i.with(variables{"images": images('c')}).applied()
	i.serves(name, image("worker", 'c'))
}

func TestACanaryTakesItsShareAndGoesBackByAVariable(t *testing.T) {
	t.Parallel()
	i := installed(t)
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

func TestAFailedUpdateIsReportedByEveryPlanUntilItIsRepaired(t *testing.T) {
	t.Parallel()
	i := installed(t)
	i.cloud.Change(func(held *cloudtest.State) { held.Faults[image("webhook", 'b')] = "no memory" })
	require.Contains(t, i.with(variables{"images": images('b')}).refused(), "no memory")
	i.serves(webhook, image("webhook", 'a'))
	for range 2 {
		said, _ := i.plan()
		require.Contains(t, said, "no memory")
	}
	i.cloud.Change(func(held *cloudtest.State) { clear(held.Faults) })
	i.with(variables{"services": variables{"webhook": variables{"redeploy": "again"}}}).apply()
	i.serves(webhook, image("webhook", 'b'))
	said, changed := i.plan()
	require.False(t, changed)
	require.NotContains(t, said, "no memory")
}

// A pool's account is new, and so are its grants: its worker is made when they work.
func TestAQueueInAPoolThatSortsFirstMovesNoTask(t *testing.T) {
	t.Parallel()
	i := installed(t)
	require.Less(t, another.Pool, events.Pool)
	i.cloud.Change(func(held *cloudtest.State) { held.Settles = filepath.Join(i.folder, "settled") })
	happened := i.with(withAnother(t)).applied()
	require.NotContains(t, strings.Join(happened, "\n"), "change cloudscheduler/", "no task is moved")
	i.serves(worker(another.Pool), image("worker", 'a'))
	require.NotEmpty(t, i.endpoint(another.PushSubscription()))

	// Without the queue again: what waits there has to be kept or given up, by its name.
	i.cloud.Publish(another.ID)
	without := shop(t)
	require.Contains(t, i.with(without).refused(), "name the queue in kept_queues")
	require.NotEmpty(t, i.endpoint(another.PushSubscription()), "the queue still works")
	require.NotNil(t, i.service(worker(another.Pool)), "and so does its worker")

	signing := i.cloud.Keys(secrets)
	i.with(variables{"kept_queues": []string{another.ID}}).applied()
	require.Equal(t, signing, i.cloud.Keys(secrets), "a kept queue keeps what it signs with")
	require.Empty(t, i.endpoint(another.PushSubscription()))
	require.Nil(t, i.service(worker(another.Pool)))
	i.cloud.Publish(another.ID)
	require.EqualValues(t, 1, i.subscription(another.PushSubscription())["waiting"])

	// Resumed, by running it again.
	i.with(variables{"kept_queues": nil}).with(withAnother(t)).apply()
	require.NotEmpty(t, i.endpoint(another.PushSubscription()))

	// Given up.
	i.with(variables{"discard_backlog": []string{another.ID}}).apply()
	happened = i.with(without).apply()
	require.Nil(t, i.subscription(another.PushSubscription()))
	require.Empty(t, i.cloud.Keys("pubsub/projects/"+cloudtest.Project+"/topics/"+another.ID))
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
	second.with(variables{"images": images('b')}).applied()
	first.settled()
	require.NotNil(t, first.subscription("staging-"+events.PushSubscription()))
	first.serves(worker(events.Pool), image("worker", 'a'))
	first.serves("staging-worker-"+events.Pool, image("worker", 'b'))

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
