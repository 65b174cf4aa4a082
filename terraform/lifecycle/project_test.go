package lifecycle_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/emulator/cloudtest"
)

// What docs/deploying.md says of an empty project: what is missing ends an apply with the words that
// the page has, nothing is half made for good, and the same command goes on from there.
func TestEachFailureOfTheFirstAppliesIsMendedAsThePageSays(t *testing.T) {
	t.Parallel()
	i := small(t, shop(t))
	i.with(variables{"bootstrap": true})

	// The page's step 1 was forgotten: the project cannot be read.
	i.cloud.Disable("cloudresourcemanager")
	require.Contains(t, i.refused(), "SERVICE_DISABLED")
	i.cloud.Enable("cloudresourcemanager")

	// Nobody has made Pub/Sub's own account.
	i.cloud.WithAgent(false)
	require.Contains(t, i.refused(), cloudtest.PubSubAgent+" does not exist")
	i.cloud.WithAgent(true)
	i.apply()
	i.settled()

	// The images, and no version of any secret: the plan ends, and nothing has changed.
	before := len(i.cloud.Keys(""))
	i.with(variables{"bootstrap": nil, "images": images('a')})
	require.Regexp(t, `Secret Version \[\S+\] not found`, i.refused())
	require.Len(t, i.cloud.Keys(""), before)
	i.fill()

	// Cloud Monitoring does not know a new metric yet.
	metrics := i.cloud.Keys("logging/projects/" + cloudtest.Project + "/metrics/")
	require.NotEmpty(t, metrics)
	i.cloud.Hide(metrics...)
	require.Contains(t, i.refused(), "Cannot find metric")
	i.cloud.Hide()
	i.apply()
	i.settled()
}

// A first start that failed because a grant was not working yet, and the page's way out of it.
func TestAFirstStartThatFailedIsDeletedAndMadeAgain(t *testing.T) {
	t.Parallel()
	c := shipped(t)
	events, updates := paynow(t, c)
	added := another(t, c)
	i := installed(t)
	queues := []string{events.ID, updates.ID, added.ID}
	i.cloud.SettleAfter(1)
	require.Contains(t, i.with(variables{"queues": queues, "target_urls": urls(t, queues...)}).refused(), "Permission denied on secret")
	require.NotNil(t, i.service(worker(added.Pool)))
	require.Equal(t, map[string]int{image("worker", 'a'): 100}, i.cloud.Serving(region, worker(events.Pool)), "the other serves as before")

	// gcloud run services delete, and the same apply.
	i.cloud.SettleAfter(0)
	i.cloud.Settle()
	i.cloud.Remove("run/projects/" + cloudtest.Project + "/locations/" + region + "/services/" + worker(added.Pool))
	i.apply()
	require.Equal(t, map[string]int{image("worker", 'a'): 100}, i.cloud.Serving(region, worker(added.Pool)))
	i.settled()
}

// The steps of docs/deploying.md, when a region is lost.
func TestALostRegionIsLeftAsThePageSays(t *testing.T) {
	t.Parallel()
	i := installed(t)
	events, _ := paynow(t, shipped(t))
	i.cloud.Fail("run:"+region, "the region does not answer")
	for _, address := range []string{"module.webhook", "module.worker", "google_cloud_scheduler_job.task", "google_cloud_tasks_queue.alarm", "google_cloud_tasks_queue_iam_member.worker_asks"} {
		said, err := i.terraform("state", "rm", address)
		require.NoError(t, err, said)
	}
	const elsewhere = "europe-west1"
	happened := i.with(variables{"region": elsewhere}).apply()
	require.Empty(t, failures(happened))
	require.Equal(t, map[string]int{image("worker", 'a'): 100}, i.cloud.Serving(elsewhere, worker(events.Pool)))
	require.Contains(t, i.endpoint(events.PushSubscription()), elsewhere)
	i.settled()
}

// One queue of each pool goes, and comes again, in an installation of the whole catalog.
func TestAQueueOfEachPoolGoesAndComesAgain(t *testing.T) {
	t.Parallel()
	c := shipped(t)
	gone := onePerPool(t, c)
	i := empty(t, everything(t))
	i.bootstrap()
	i.with(variables{"images": images('a')}).apply()
	i.settled()

	var kept []string
	for _, q := range gone {
		kept = append(kept, q.ID)
	}
	var rest []string
	for _, q := range c.Queues {
		if q.Enabled && !slices.Contains(kept, q.ID) {
			rest = append(rest, q.ID)
		}
	}
	i.with(variables{"queues": rest, "kept_queues": kept, "target_urls": urls(t, rest...)})
	secretsBefore := i.cloud.Keys(secrets)
	happened := i.apply()
	require.Empty(t, failures(happened))
	require.Equal(t, secretsBefore, i.cloud.Keys(secrets), "a kept queue keeps what it signs with")
	i.settled()
	for _, q := range gone {
		require.NotNil(t, i.subscription(q.PushSubscription()), q.ID)
		require.Empty(t, i.endpoint(q.PushSubscription()), q.ID)
	}

	// The last queue that signs with a secret is given up, and the secret with it.
	i.with(variables{"discard_backlog": kept}).apply()
	happened = i.with(variables{"kept_queues": nil}).apply()
	require.Empty(t, failures(happened))
	i.with(variables{"discard_backlog": nil}).settled()
	for _, q := range gone {
		require.Nil(t, i.subscription(q.PushSubscription()), q.ID)
	}
	require.Less(t, len(i.cloud.Keys(secrets)), len(secretsBefore))

	// All of them come again; a secret that is made anew gets a version first.
	i.with(variables{"queues": nil, "target_urls": everything(t)["target_urls"]})
	i.apply("-target=google_secret_manager_secret.secret")
	i.fill()
	require.Empty(t, failures(i.apply()))
	i.settled()
	for _, q := range gone {
		require.Contains(t, i.endpoint(q.PushSubscription()), "-worker-"+q.Pool+"-", q.ID)
	}
}

// onePerPool picks, of each pool, the last queue that the rest can do without.
func onePerPool(t *testing.T, c *catalog.Catalog) map[string]catalog.Queue {
	t.Helper()
	picked := map[string]catalog.Queue{}
	var enabled []string
	for _, q := range c.Queues {
		if q.Enabled {
			enabled = append(enabled, q.ID)
		}
	}
	for _, q := range c.Queues {
		if _, has := picked[q.Pool]; has || !q.Enabled {
			continue
		}
		rest := slices.DeleteFunc(slices.Clone(enabled), func(id string) bool { return id == q.ID })
		if only, err := c.Only(rest); err == nil && len(only.Pools()) > 0 {
			picked[q.Pool], enabled = q, rest
		}
	}
	require.GreaterOrEqual(t, len(picked), len(c.Pools())-2, "%v of %v", picked, c.Pools())
	return picked
}
