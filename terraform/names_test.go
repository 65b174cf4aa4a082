package terraform_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"path/filepath"
)

// The variables name, installation and firestore.database may be empty, and then follow each other. What is
// called by one of them directly would have no name, or that of the other installation.
func TestWhatIsCalledByTheInstallationIsCalledByTheNamesThatWereChosen(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"resource", "module", "locals", "data", "output"} {
		for _, b := range blocks(t, kind) {
			if filepath.Dir(b.file) != "." {
				continue
			}
			said := regexp.MustCompile(`\bvar\.(name|firestore\.database)\b`).FindAllString(string(b.Range().SliceBytes(b.text)), -1)
			if kind == "locals" && b.file == "main.tf" && len(said) > 0 {
				require.Equal(t, []string{"var.name", "var.firestore.database"}, said, "main.tf chooses")
				continue
			}
			require.Empty(t, said, "%s: local.name and local.database_id have the names that were chosen", b.at())
		}
	}
}

// Topics and subscriptions have the installation's name before them: they are called by the catalog module's
// names, and by no id of the catalog.
func TestNoTopicOrSubscriptionIsCalledByTheCatalogsIdAlone(t *testing.T) {
	t.Parallel()
	names := map[string]string{}
	for _, b := range blocks(t, "resource") {
		if b.Labels[0] == "google_pubsub_topic" || b.Labels[0] == "google_pubsub_subscription" {
			names[b.file+" "+b.Labels[1]] = b.source("name")
		}
	}
	require.Equal(t, map[string]string{
		filepath.Join("modules", "queue", "main.tf") + " queue":            "var.queue.topic",
		filepath.Join("modules", "queue", "main.tf") + " dead_letter":      "local.letters[count.index].topic",
		filepath.Join("modules", "queue", "main.tf") + " push":             "var.queue.push_subscription",
		filepath.Join("modules", "queue", "main.tf") + " hold":             "local.letters[count.index].hold_subscription",
		filepath.Join("modules", "queue", "main.tf") + " dead_letter_push": "local.letters[count.index].push_subscription",
		"queues.tf shared":   "each.value.name",
		"queues.tf outbound": "each.value.name",
		filepath.Join("emulator", "main.tf") + " shared":   "each.value.name",
		filepath.Join("emulator", "main.tf") + " outbound": "each.value.name",
	}, names)
	require.Equal(t, "module.catalog.named", local(t, "queues.tf", "queues"))
}

// What holds messages is protected, by one choice for each queue.
func TestWhatHoldsMessagesIsNotDeletedInPassing(t *testing.T) {
	t.Parallel()
	for _, b := range blocks(t, "resource") {
		if b.Labels[0] != "google_pubsub_topic" && b.Labels[0] != "google_pubsub_subscription" || filepath.Dir(b.file) == "emulator" {
			continue
		}
		want := "local.deletion_policy"
		if b.file == "queues.tf" {
			want = `local.discarded_topics[each.key] ? "DELETE" : "PREVENT"`
		}
		require.Equal(t, want, b.source("deletion_policy"), b.at())
	}
}

// A queue's push subscription goes before all that its queue works with: where Terraform refuses to delete it,
// that stays. And it waits for its worker, and for whom its pushes are signed by.
func TestASubscriptionComesLastAndGoesFirst(t *testing.T) {
	t.Parallel()
	waits := map[string]string{}
	for _, b := range append(blocks(t, "resource"), blocks(t, "module")...) {
		waits[b.Labels[len(b.Labels)-1]] = b.source("depends_on")
	}
	for _, name := range []string{"publishes", "publishes_dead_letters", "agent_publishes_dead_letters", "hold", "dead_letter_push"} {
		require.Regexp(t, `\.`+name+`\b`, waits["push"])
	}
	for _, name := range []string{`module\.worker`, "agent_signs_as_push", "publishes_to_several_queues", "worker_tells_others"} {
		require.Regexp(t, `\b`+name+`\b`, waits["queue"])
	}
	require.NotContains(t, waits["webhook"], "module.queue", "a subscription could not be replaced under its name")
}
