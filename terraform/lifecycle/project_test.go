package lifecycle_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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

func TestTheWholeCatalogIsInstalled(t *testing.T) {
	t.Parallel()
	i := empty(t, everything(t))
	i.bootstrap()
	i.with(variables{"images": images('a')}).apply()
	i.settled()
	for _, q := range shipped(t).Queues {
		require.Equal(t, q.Enabled, strings.Contains(i.endpoint(q.PushSubscription()), "-worker-"+q.Pool+"-"), q.ID)
	}
}
