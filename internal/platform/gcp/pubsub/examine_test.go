package pubsub_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/emulator/cloudtest"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/finding"
	"billhook/internal/platform/gcp/pubsub"
)

func codesOf(t *testing.T, findings []finding.Finding) (codes []string) {
	t.Helper()
	for _, f := range findings {
		require.NotEmpty(t, f.Effect, f.Code)
		require.NotEmpty(t, f.Do, f.Code)
		require.True(t, f.Have == "" || f.Have != f.Want, "%s: %s", f.Code, f.Have)
		codes = append(codes, f.Kind+" "+f.ID+" "+f.Code)
	}
	return codes
}

// difference is a row of testdata/differences.yaml, which says what each member is.
type difference struct {
	What                    string
	Drop, Elsewhere, Paused []string
	Set, Grants             map[string]cloudtest.Document
	Topics, Without         map[string]string
	Anywhere                bool
	Want                    []string
}

func (d difference) make(c *cloud) {
	const project = "pubsub/projects/" + cloudtest.Project + "/"
	for _, name := range d.Drop {
		if of, policy := strings.CutSuffix(name, " policy"); policy {
			c.Change(func(held *cloudtest.State) { delete(held.Policies, project+of) })
			continue
		}
		c.Remove(project + name)
	}
	for id, change := range d.Set {
		c.set(id, change)
	}
	for id, label := range d.Topics {
		c.Put("pubsub/"+c.topic(id),
			cloudtest.Document{"name": c.topic(id), "labels": cloudtest.Document{"app": label}})
	}
	for of, change := range d.Grants {
		c.Change(func(held *cloudtest.State) {
			maps.Copy(cloudtest.At[[]any](held.Policies[project+of], "bindings")[0].(cloudtest.Document), change)
		})
	}
	for of, name := range d.Without {
		c.Revoke(project+of, "roles/pubsub.publisher", memberOf(name))
	}
	c.elsewhere = d.Elsewhere
	if d.Paused != nil {
		c.look.Paused = map[string]pause.Pause{}
	}
	for _, queue := range d.Paused {
		c.look.Paused[queue] = pause.Pause{Queue: queue, Who: "ada", Why: "w", At: pausedAt}
	}
}

// unseen are the codes of what a worker does not examine: grants of services, tokens, and what is not in the
// catalog.
var unseen = regexp.MustCompile(` ((webhook|worker|dead_letter)_grant_missing|stray_.*|foreign_.*|` +
	`unwrapped|wrong_service_account|wrong_audience)$`)

// A worker may not know the addresses of all workers.
func TestEachDifferenceIsFoundAlsoByAWorkerThatKnowsNoAddresses(t *testing.T) {
	t.Parallel()
	for _, d := range filetest.YAML[[]difference](t, "testdata", "differences.yaml") {
		t.Run(d.What, func(t *testing.T) {
			t.Parallel()
			c := applied(t)
			d.make(c)
			got, found := c.examine()
			require.Equal(t, d.Want, got)
			require.Empty(t, found.Unread)

			c.target = pubsub.Target{Names: c.target.Names}
			found = filetest.Must(c.openSwitch().Examine(t.Context(), c.catalog, c.look.Paused))(t)
			if d.Anywhere {
				d.Want = nil
			}
			require.ElementsMatch(t, slices.DeleteFunc(d.Want, unseen.MatchString), codesOf(t, found.Findings))
		})
	}
}

func TestGrantOnTheProjectCountsForItsTopics(t *testing.T) {
	t.Parallel()
	p := applied(t)
	difference{Drop: []string{"topics/out-test policy", "subscriptions/orders-test-push policy"}}.make(p)
	var reads atomic.Int64 // several queues read at once
	p.look.Inherits = func(roles []string, is func(string) bool) bool {
		reads.Add(1)
		granted := is("serviceAccount:orders@example.com") || is(pubsubAgent)
		return granted && slices.Contains(roles, "roles/editor")
	}
	got, found := p.examine()
	require.Equal(t, []string{"topic out-test worker_grant_missing"}, got, "the tasks' worker publishes there")
	require.Contains(t, found.Findings[0].Want, "clicks@example.com")
	require.EqualValues(t, 3, reads.Load(), "once for each grant that its resource lacks")
}

func TestUnreadableResourcesAreNamedAndOtherErrorsReturned(t *testing.T) {
	t.Parallel()
	unread := func(permission string, what ...string) []finding.Unread {
		return filetest.Map(what, func(one string) finding.Unread {
			return finding.Unread{What: one, Permission: permission, Why: "PermissionDenied"}
		})
	}
	grants := func(on ...string) (all []finding.Unread) {
		for _, one := range on {
			all = append(all, unread("pubsub.topics.getIamPolicy", "the grants on topic "+one)...)
		}
		return all
	}
	const publisher = "/google.pubsub.v1.Publisher/"
	for method, want := range map[string][]finding.Unread{
		getPolicy: slices.Concat(grants("out-test", "orders-test", "orders-test-dlq", "orders-test-dlq"),
			unread("pubsub.subscriptions.getIamPolicy", "the grants on subscription orders-test-push"),
			grants("clicks-test")),
		getTopic: unread("pubsub.topics.get", "topic out-test", "topic orders-test", "topic orders-test-dlq",
			"topic clicks-test", "topic later-test", "topic never-test"),
		getSubscription: unread("pubsub.subscriptions.get", "subscription orders-test-dlq-hold",
			"subscription orders-test-push", "subscription orders-test-dlq-push",
			"subscription clicks-test-push", "subscription later-test-push", "subscription later-test-dlq-push",
			"subscription never-test-push"),
		publisher + "ListTopics": unread("pubsub.topics.list", "topics that the catalog does not have"),
		"/google.pubsub.v1.Subscriber/ListSubscriptions": unread("pubsub.subscriptions.list",
			"subscriptions that the catalog does not have"),
		publisher + "ListTopicSubscriptions": unread("pubsub.topics.get", "the subscriptions of topic clicks-test",
			"the subscriptions of topic orders-test", "the subscriptions of topic orders-test-dlq"),
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			p := applied(t)
			p.refuse[method] = status.Error(codes.PermissionDenied, "no")
			got, found := p.examine()
			require.Empty(t, got)
			require.Equal(t, want, found.Unread)
			p.refuse[method] = status.Error(codes.InvalidArgument, "no")
			found, err := pubsub.Examine(t.Context(), p.catalog, p.target, p.look, p.options...)
			require.Error(t, err)
			require.Empty(t, found.Findings, "an unreadable resource is no finding")
			if method == getSubscription {
				_, err = p.openSwitch().Examine(t.Context(), p.catalog, nil)
				require.ErrorContains(t, err, "queue orders-test: read")
			}
		})
	}
	p := applied(t)
	delete(p.look.Accounts, "worker-orders")
	got, found := p.examine()
	require.Empty(t, got)
	require.Equal(t, []finding.Unread{
		{What: "the grant of worker-orders on topic out-test", Why: "the service's account is not known"},
		{What: "the grant of worker-orders on topic orders-test-dlq", Why: "the service's account is not known"},
	}, found.Unread)
}
