package lifecycle_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/emulator/cloudtest"
	"billhook/internal/compose/service/servicetest"
	"billhook/internal/filetest"
	"billhook/internal/platform/gcp/pubsub"
)

func (i *installation) revision(service string) string {
	i.t.Helper()
	name := cloudtest.At[string](i.service(service), "latestReadyRevision")
	require.NotEmpty(i.t, name)
	return name[strings.LastIndex(name, "/")+1:]
}

// pin does what gcloud run services update-traffic --to-revisions does.
func (i *installation) pin(service, revision string) {
	i.t.Helper()
	body := i.service(service)
	body["traffic"] = []any{
		cloudtest.Document{"type": "TRAFFIC_TARGET_ALLOCATION_TYPE_REVISION", "revision": revision, "percent": 100},
	}
	i.call(http.MethodPatch, "run",
		"v2/projects/"+cloudtest.Project+"/locations/"+region+"/services/"+service, body)
}

func (i *installation) call(method, api, path string, body cloudtest.Document) {
	i.t.Helper()
	text, err := json.Marshal(body)
	require.NoError(i.t, err)
	request, err := http.NewRequestWithContext(i.t.Context(), method, i.cloud.Endpoint(api)+path,
		bytes.NewReader(text))
	require.NoError(i.t, err)
	require.Equal(i.t, http.StatusOK, servicetest.StatusOf(i.t, request))
}

func (i *installation) service(name string) cloudtest.Document {
	return i.cloud.Get("run/projects/" + cloudtest.Project + "/locations/" + region + "/services/" + name)
}

func (i *installation) subscription(name string) cloudtest.Document {
	return i.cloud.Get("pubsub/projects/" + cloudtest.Project + "/subscriptions/" + name)
}

func (i *installation) endpoint(name string) string {
	return cloudtest.At[string](i.subscription(name), "pushConfig", "pushEndpoint")
}

func problems(said string) string {
	if at := strings.Index(said, "\nError: "); at >= 0 {
		return said[at:]
	}
	return said
}

var frame = regexp.MustCompile(`[│╷╵\s]+`)

func unframed(said string) string { return strings.TrimSpace(frame.ReplaceAllString(said, " ")) }

var failure = regexp.MustCompile(`^(REFUSED|RUN FAILED|LOST)`)

// failures are the lines of what happened that report a refusal or a loss.
func failures(happened []string) []string {
	return slices.DeleteFunc(slices.Clone(happened), func(line string) bool {
		return !failure.MatchString(line)
	})
}

// order requires that things have happened one after the other: each part is of a line after that
// of the part before.
func order(t *testing.T, happened []string, parts ...string) {
	t.Helper()
	rest := happened
	for _, part := range parts {
		at := slices.IndexFunc(rest, func(line string) bool { return strings.Contains(line, part) })
		require.GreaterOrEqual(t, at, 0, "%q does not come after what is before it in %q:\n%s", part, parts,
			strings.Join(happened, "\n"))
		rest = rest[at+1:]
	}
}

func TestWhatIsOptionalComesAndGoesWithoutTouchingTheRest(t *testing.T) {
	t.Parallel()
	i := installed(t)
	before, alerts := i.cloud.Snapshot(), i.set["alerts"]
	i.with(
		variables{"alerts": variables{"on": []string{"all"}}, "webhook": variables{"domain": "hooks.example.com"}})
	i.applied()
	i.refusesToGo()
	require.Equal(t, "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER", i.service("billhook-webhook")["ingress"])

	i.with(variables{"alerts": alerts, "webhook": nil}).applied()
	after := i.cloud.Keys("")
	i.cloud.Restore(before)
	require.Equal(t, i.cloud.Keys(""), after)
}

// What examples have around an installation is made with it, and settles.
func TestTheExamplesAreApplied(t *testing.T) {
	t.Parallel()
	for _, example := range []string{"paynow", "load-balancer", "around"} {
		t.Run(example, func(t *testing.T) {
			t.Parallel()
			module := prepare(t)
			module.Folder, module.Data = filepath.Join(module.Folder, "examples", example), t.TempDir()
			module.Environment = []string{`TF_VAR_channel_keys={slack="a-token",pagerduty="a-key"}`}
			i := &installation{t: t, module: module, folder: module.Folder, cloud: cloudtest.Start()}
			t.Cleanup(i.cloud.Close)
			i.cloud.Change(func(held *cloudtest.State) {
				held.Enabled["cloudkms"], held.Enabled["billingbudgets"], held.Enabled["compute"] = true, true, true
			})
			for _, place := range []string{region, "global", "europe"} {
				i.cloud.Put("cloudkms/projects/my-keys/locations/"+place+"/keyRings/shop/cryptoKeys/billhook",
					cloudtest.Document{})
			}
			i.cloud.Put("monitoring/projects/"+cloudtest.Project+"/notificationChannels/1234567890",
				cloudtest.Document{})
			text := filetest.Read(t, repository, "terraform", "examples", example, "main.tf")
			text = regexp.MustCompile(`(?s)\nprovider "google" \{.*?\n\}`).ReplaceAllString(strings.ReplaceAll(text,
				"my-project", cloudtest.Project), "")
			first := regexp.MustCompile(`(?s)images = \{.*?\n  \}`).ReplaceAllString(text, "bootstrap = true")
			require.NotEqual(t, text, first)
			for _, text := range []string{first, text} {
				require.NoError(t, os.WriteFile(filepath.Join(i.folder, "main.tf"), []byte(text), 0o600))
				i.point()
				said, err := i.terraform("init", "-input=false", "-no-color")
				require.NoError(t, err, said)
				i.apply()
				i.fill()
			}
			i.applied()
			require.NotRegexp(t, "a-token|a-key", filetest.Read(t, i.folder, "terraform.tfstate"),
				"no state has a channel's key")
		})
	}
}

// What would take away what runs ends the plan. Neither the project nor the state is touched.
func TestWhatWouldTakeAwayWhatRunsIsRefusedBeforeAnythingChanges(t *testing.T) {
	t.Parallel()
	without := variables{"queues": []string{updates.ID}}
	discarded := variables{"queues": []string{updates.ID}, "discard_backlog": []string{events.ID}}
	unprotected := variables{"queues": []string{updates.ID}, "deletion_protection": false}
	for name, change := range map[string]struct {
		set   variables
		words string
	}{
		"a queue that runs is no longer named":       {without, events.ID + ": of a queue that runs"},
		"it is given up by the apply that takes it":  {discarded, events.ID + ": of a queue that runs"},
		"protection goes by the apply that takes it": {unprotected, events.ID + ": of a queue that runs"},
		"the first apply comes again, without images": {
			variables{"bootstrap": true, "images": nil}, "bootstrap is for the first apply",
		},
		"a queue's subscription could not stay itself": {nil, events.ID + ": of a queue that runs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := installed(t)
			if change.set == nil {
				i.setKey("ordering_key", []string{})
			}
			state := filetest.Read(t, i.folder, "terraform.tfstate")
			i.cloud.Log()
			require.Contains(t, i.with(change.set).refused(), change.words)
			require.Empty(t, i.cloud.Log())
			require.Equal(t, state, filetest.Read(t, i.folder, "terraform.tfstate"))
		})
	}
}

// The control of what is looked at in every scenario: what is given up, by two applies, is turned away.
func TestWhatIsGivenUpIsTurnedAway(t *testing.T) {
	t.Parallel()
	i := installed(t)
	i.with(variables{"discard_backlog": []string{events.ID}}).apply()
	require.Empty(t, i.unanswered)
	i.with(variables{"queues": []string{updates.ID}}).apply()
	require.Contains(t, i.unanswered, "a webhook: 404, since its queue does not run")
	require.Contains(t, i.unanswered, "a push: none, since there is no endpoint")
	i.unanswered = nil
}

// refusesToGo has a destroy refused while the installation is protected, and nothing gone from project or
// state.
func (i *installation) refusesToGo() {
	i.t.Helper()
	held := func() string {
		said, err := i.terraform("state", "list")
		require.NoError(i.t, err, said)
		return regexp.MustCompile(`(?m)^data\..*\n`).ReplaceAllString(said, "")
	}
	before := held()
	i.cloud.Log()
	said, err := i.destroy()
	require.Error(i.t, err, said)
	require.Contains(i.t, said, "deletion_protection is on")
	require.Empty(i.t, i.cloud.Log())
	require.Equal(i.t, before, held())
}

// withAnother are the shop's queues, and the one of another pool.
func withAnother(t *testing.T) variables {
	t.Helper()
	queues := []string{events.ID, updates.ID, another.ID}
	return variables{"queues": queues, "target_urls": urls(t, queues...)}
}

// A plan puts every queue's endpoint back where nothing says that its queue is paused. So it is refused
// where something does, and where the variable says so of a queue that is not.
func TestAPauseIsNeitherUndoneNorMadeInSilence(t *testing.T) {
	t.Parallel()
	i := installed(t)
	one, none := variables{"paused_queues": []string{events.ID}}, variables{"paused_queues": nil}
	key := "pubsub/projects/" + cloudtest.Project + "/subscriptions/" + events.PushSubscription()
	require.Contains(t, i.with(one).refused(), "is not paused", "nobody has paused it")

	running, paused := i.cloud.Get(key), i.cloud.Get(key)
	labels, _ := paused["labels"].(cloudtest.Document)
	require.NotEmpty(t, labels)
	labels[pubsub.PausedLabel], paused["pushConfig"] = "20261122t114455z", cloudtest.Document{}
	i.cloud.Put(key, paused)
	said := i.with(none).refused()
	require.Contains(t, said, "Queue "+events.ID+" is paused")
	require.Contains(t, said, "paused_queues")
	i.with(one).applied()
	require.Empty(t, i.endpoint(events.PushSubscription()))
	require.Equal(t, []string{"a push: none, since there is no endpoint"}, i.unanswered)
	i.unanswered = nil

	i.cloud.Put(key, running)
	require.Contains(t, i.refused(), "is not paused", "it was resumed, and must be taken out")
	i.with(none).applied()
}

// What docs/start/first-deployment.md says of an empty project: what is missing ends an apply with the words
// that the page has, nothing is half made for good, and the same command goes on from there.
func TestEachFailureOfTheFirstAppliesIsMendedAsThePageSays(t *testing.T) {
	t.Parallel()
	i := small(t, shop(t))
	i.with(variables{"bootstrap": true})

	i.cloud.Change(func(held *cloudtest.State) { delete(held.Enabled, "cloudresourcemanager") })
	require.Contains(t, i.refused(), "SERVICE_DISABLED")
	i.cloud.Change(func(held *cloudtest.State) { held.Enabled["cloudresourcemanager"] = true })

	// Nobody has made Pub/Sub's own account.
	i.cloud.Change(func(held *cloudtest.State) { held.Agent = false })
	require.Contains(t, i.refused(), cloudtest.PubSubAgent+" does not exist")
	i.cloud.Change(func(held *cloudtest.State) { held.Agent = true })
	i.applied()

	// The images, and no version of any secret: the plan ends, and nothing has changed.
	before := len(i.cloud.Keys(""))
	i.with(variables{"bootstrap": nil, "images": images('a')})
	require.Regexp(t, `Secret Version \[\S+\] not found`, i.refused())
	require.Len(t, i.cloud.Keys(""), before)
	i.fill()

	// Cloud Monitoring does not know a new metric yet.
	metrics := i.cloud.Keys("logging/projects/" + cloudtest.Project + "/metrics/")
	require.NotEmpty(t, metrics)
	i.cloud.Change(func(held *cloudtest.State) { held.Hidden = metrics })
	require.Contains(t, i.refused(), "Cannot find metric")
	i.cloud.Change(func(held *cloudtest.State) { held.Hidden = nil })
	i.applied()
}

// A first start that failed all the same, and the page's way out of it: the service that is there is changed,
// and not made again under the name that it has.
func TestAFirstStartThatFailedIsMendedInPlace(t *testing.T) {
	t.Parallel()
	i := installed(t)
	i.cloud.Change(func(held *cloudtest.State) { held.Settles = filepath.Join(i.folder, "never") })
	require.Contains(t, i.with(withAnother(t)).refused(), "Permission denied on secret")
	address := `module.worker["` + another.Pool + `"].google_cloud_run_v2_service.service`
	require.Regexp(t, "already exists.* with "+regexp.QuoteMeta(address), i.refused(),
		"a plain apply makes it again")
	i.serves(worker(events.Pool), image("worker", 'a'))

	i.cloud.Change(func(held *cloudtest.State) { held.Settles, held.Unsettled = "", map[string]bool{} })
	said, err := i.terraform("untaint", address)
	require.NoError(t, err, said)
	again := variables{"worker-" + another.Pool: variables{"redeploy": "again"}}
	i.with(variables{"services": again}).applied()
	i.serves(worker(another.Pool), image("worker", 'a'))
}

// The steps of docs/guides/change-an-installation.md, when a region is lost.
func TestALostRegionIsLeftAsThePageSays(t *testing.T) {
	t.Parallel()
	i := installed(t)
	i.cloud.Watch(nil) // nobody answers there
	i.cloud.Change(func(held *cloudtest.State) { held.Faults["run:"+region] = "the region does not answer" })
	for _, address := range []string{
		"module.webhook", "module.worker", "module.ops", "google_cloud_scheduler_job.tasks",
		"google_cloud_tasks_queue.alarm", "google_cloud_tasks_queue_iam_member.worker_asks",
	} {
		said, err := i.terraform("state", "rm", address)
		require.NoError(t, err, said)
	}
	const elsewhere = "europe-west1"
	i.with(variables{"region": elsewhere}).applied()
	require.Equal(t, map[string]int{image("worker", 'a'): 100}, i.cloud.Serving(elsewhere, worker(events.Pool)))
	require.Contains(t, i.endpoint(events.PushSubscription()), elsewhere)
}

func TestTheWholeCatalogIsInstalled(t *testing.T) {
	t.Parallel()
	i := empty(t, everything(t))
	i.bootstrap()
	i.with(variables{"images": images('a')}).applied()
	for _, q := range shipped.Queues {
		require.Equal(t, q.Enabled, strings.Contains(i.endpoint(q.PushSubscription()), "-worker-"+q.Pool+"-"), q.ID)
	}
}
