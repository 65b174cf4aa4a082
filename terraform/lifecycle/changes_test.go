package lifecycle_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"billhook/catalog"
	"billhook/emulator/cloudtest"
)

var update = flag.Bool("update", false, "write what plans do into docs/changing.md")

var page = filepath.Join(repository, "docs", "changing.md")

// change is one row of docs/changing.md: something that is set anew in the shop that runs.
type change struct {
	name    string
	to      any                 // the variable's or the key's new value
	prepare func(*installation) // what is done first
	note    string
}

// changesOfVariables are one example of each of the root module's variables.
func changesOfVariables(t *testing.T) []change {
	t.Helper()
	c := shipped(t)
	events, updates := paynow(t, c)
	added := another(t, c)
	worker := "worker-" + events.Pool
	resources := variables{"cpu": "2", "memory": "1Gi", "cpu_idle": true}
	const kmsKey = "projects/" + cloudtest.Project + "/locations/" + region + "/keyRings/ring/cryptoKeys/key"
	return []change{
		{name: "project_id", to: "another-project", note: "Another project is another installation: apply there with a state of its own."},
		{name: "region", to: "europe-west1", note: "As [when a region is lost](deploying.md#when-a-region-is-lost). The addresses change: senders need the new one."},
		{name: "catalog_dir", to: "../catalog", note: "Here the same catalog by another path. What another catalog does is below, by its keys."},
		{name: "installation", to: "staging", note: "Chosen once: topics and subscriptions of another name are other ones."},
		{name: "name", to: "other", note: "Chosen once: secrets of another name have no versions."},
		{name: "images", to: images('b'), note: "An upgrade, or a rollback. The old revision serves until the new one is ready."},
		{name: "bootstrap", to: true, note: "For the first apply alone."},
		{name: "canary", to: variables{worker: variables{"image": image("worker", 'b'), "percent": 5}}, note: "The revision that served keeps the rest."},
		{name: "redeploy", to: variables{worker: "again"}, note: "A new revision of the same configuration."},
		{name: "secret_versions", to: variables{"OPS_TOKEN": 2}, prepare: func(i *installation) { i.cloud.AddVersion("billhook-ops-token", "x") }, note: "Refused where the version is missing or destroyed."},
		{name: "target_urls", to: variables{"SUBSCRIPTION_SERVICE_URL": "https://elsewhere.example"}, note: "A new revision of the workers that post there."},
		{name: "queues", to: []string{events.ID, updates.ID, added.ID}, prepare: func(i *installation) { i.set["target_urls"] = urls(t, events.ID, updates.ID, added.ID) }, note: "Here one more. One less is refused, unless the queue stands in `kept_queues` or, an apply before, in `discard_backlog`."},
		{name: "kept_queues", to: []string{added.ID}, note: "Here a queue that never ran. One that ran loses its endpoint and keeps what waits."},
		{name: "discard_backlog", to: []string{events.ID}, note: "Takes the protection away, and nothing else: what waits goes with the next apply in which the queue is off."},
		{name: "tasks_pool", to: events.Pool, note: "Here the pool that has the tasks already. Another one gets the jobs, the alarm and the grants, in place."},
		{name: "paused_queues", to: []string{events.ID}, note: "`billhook queues pause` first."},
		{name: "worker_pauses", to: true, note: ""},
		{name: "ops", to: variables{"audience": "a", "allow": []string{"a@example.com"}}, note: ""},
		{name: "ops_invokers", to: variables{"operators": "group:operators@example.com"}, note: ""},
		{name: "worker_ingress", to: "INGRESS_TRAFFIC_ALL", note: ""},
		{name: "firestore", to: variables{"location": "nam5"}, note: "A database's place is chosen once."},
		{name: "webhook_scaling", to: variables{"min": 2, "max": 4}, note: ""},
		{name: "scale_to_zero", to: true, note: ""},
		{name: "catalog_min_instances", to: true, note: "Here the catalog's numbers are the same."},
		{name: "webhook_resources", to: resources, note: ""},
		{name: "worker_resources", to: resources, note: ""},
		{name: "notification_channels", to: []string{"projects/" + cloudtest.Project + "/notificationChannels/1"}, note: ""},
		{name: "runbooks", to: "https://elsewhere.example/runbooks", note: ""},
		{name: "scheduled_messages", to: variables{"invoices": variables{"to": "queues/events-normal", "schedule": "0 6 1 * *", "body": "{}"}}, note: "Here the first job. A job for what the catalog does not allow the account `scheduler` is refused."},
		{name: "alerts", to: variables{"push_failure_share": 0.5}, note: ""},
		{name: "backups", to: variables{"daily_days": 7}, note: ""},
		{name: "budget", to: variables{"billing_account": "012345-6789AB-CDEF01", "amount": 100}, note: "Of the whole project."},
		{name: "front", to: variables{"domains": []string{"hooks.example.com"}}, note: "The service's own address closes, unless `direct` is set: move the senders first."},
		{name: "logs", to: variables{"retention_days": 90}, note: ""},
		{name: "secret_access", to: variables{}, note: "The record is the whole project's."},
		{name: "labels", to: variables{"team": "payments"}, note: ""},
		{name: "extra_env", to: variables{"webhook": variables{"SOMETHING": "x"}}, note: ""},
		{name: "log_level", to: "DEBUG", note: ""},
		{name: "webhook_tolerance_seconds", to: 600, note: ""},
		{name: "webhook_concurrency", to: 40, note: ""},
		{name: "webhook_timeout_seconds", to: 40, note: ""},
		{name: "vpc", to: variables{"network": "default", "subnetwork": "default"}, note: ""},
		{name: "service_kms_key", to: kmsKey, note: ""},
		{name: "secret_kms_key", to: strings.Replace(kmsKey, region, "global", 1), note: "Encrypts versions that are added from then on."},
		{name: "secret_max_age_days", to: 90, note: ""},
		{name: "message_storage", to: variables{"regions": []string{region}}, note: "For messages that are published from then on."},
		{name: "deletion_protection", to: false, note: "The next apply may delete what holds messages and records."},
	}
}

// changesOfKeys are one example of each key of a queue, for the queue of PayNow's events.
func changesOfKeys() []change {
	return []change{
		{name: "id", to: "other-events", note: "Another queue: add it, let the old one run empty, then discard it."},
		{name: "alias", to: "an-old-name", note: ""},
		{name: "description", to: "Another one.", note: ""},
		{name: "enabled", to: false, note: "Here `queues` names it. Otherwise as `queues` without it."},
		{name: "contract", to: "envelope.v1", note: "Refused by the images' own check, too, where handlers and contract do not fit."},
		{name: "topic", to: "parcels", note: "Here no such topic. Another topic is another subscription: let the queue run empty, and discard it."},
		{name: "bindings", to: []string{"order.*"}, note: "A filter cannot be changed. Only a queue of a shared topic has any."},
		{name: "ordering_key", to: []string{}, note: "To order or not is chosen once. Another field is a new image."},
		{name: "priority", to: "normal", note: "A worker without a queue of priority `high` keeps no instance."},
		{name: "pool", to: "money", note: "The new worker, then the subscriptions, then the old worker goes. Add, drain, remove."},
		{name: "handlers", to: map[string]any{"order.paid": map[string]any{"name": "points.credit"}}, note: "With the image that has them. Here fewer: a grant that nobody needs goes."},
		{name: "max_attempts", to: 7, note: ""},
		{name: "retry_policy", to: map[string]any{"minimum_backoff": "20s"}, note: ""},
		{name: "ack_deadline_seconds", to: 90, note: ""},
		{name: "lease", to: "180s", note: ""},
		{name: "handler_timeout", to: "20s", note: ""},
		{name: "message_ttl", to: "86400s", note: ""},
		{name: "message_retention_duration", to: "1209600s", note: "Shorter: what is older than that is gone."},
		{name: "remember_for", to: "4200000s", note: ""},
		{name: "concurrency", to: 30, note: ""},
		{name: "slot_wait", to: "1s", note: ""},
		{name: "min_instances", to: 0, note: ""},
		{name: "max_instances", to: 20, note: ""},
		{name: "backlog_alert_above", to: 2000, note: ""},
		{name: "backlog_warn_above", to: 900, note: ""},
		{name: "oldest_alert", to: "1800s", note: ""},
		{name: "on_terminal", to: "ack", note: ""},
		{name: "nack_budget", to: "20s", note: ""},
		{name: "on_corrected", to: "accept", note: ""},
		{name: "dedupe_by", to: "idempotency_key", note: "Here the contract names no such key."},
		{name: "four_eyes", to: true, note: ""},
		{name: "batch", to: map[string]any{"size": 10, "wait": "0.02s"}, note: "Here nothing takes several messages at once."},
		{name: "rate", to: map[string]any{"per_second": 500}, note: "The first queue with a rate makes the door's own database, the last one's end takes it away."},
		{name: "max_backlog", to: map[string]any{"messages": 100000, "on_full": "alert"}, note: ""},
		{name: "dead_letter", to: map[string]any{"retention": "1814400s"}, note: "Here another retention."},
	}
}

// did is what a plan does, in the words of the page.
func (i *installation) did() string {
	i.t.Helper()
	said, err := i.terraform("plan", "-json", "-input=false", "-refresh=false", "-parallelism=30")
	does := map[string][]string{}
	for lines := bufio.NewScanner(strings.NewReader(said)); lines.Scan(); {
		var line struct {
			Type   string
			Change struct {
				Action   string
				Resource struct {
					Type string `json:"resource_type"`
					Key  any    `json:"resource_key"`
				}
			}
			Diagnostic struct{ Severity, Summary, Detail string }
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue
		}
		switch kind, action := line.Change.Resource.Type, line.Change.Action; {
		case line.Type == "diagnostic" && line.Diagnostic.Severity == "error":
			i.t.Log(line.Diagnostic.Summary, line.Diagnostic.Detail)
			return "refused"
		case line.Type != "planned_change" || action == "read" || action == "noop":
		case holds[kind] && (action == "delete" || action == "replace"):
			does["refused"] = append(does["refused"], things[kind])
		default:
			does[actions[action]] = append(does[actions[action]], thing(i.t, kind))
		}
	}
	if len(does) == 0 {
		require.NoError(i.t, err, said)
		return "nothing"
	}
	if refused := does["refused"]; refused != nil {
		slices.Sort(refused)
		return "refused: " + strings.Join(slices.Compact(refused), ", ") + " would go"
	}
	var parts []string
	for _, action := range []string{"new", "in place", "made anew", "gone"} {
		if what := does[action]; what != nil {
			slices.Sort(what)
			parts = append(parts, action+": "+strings.Join(slices.Compact(what), ", "))
		}
	}
	return strings.Join(parts, "; ")
}

var actions = map[string]string{"create": "new", "update": "in place", "replace": "made anew", "delete": "gone"}

// holds are the resources that refuse to be deleted while they are protected.
var holds = map[string]bool{"google_pubsub_topic": true, "google_pubsub_subscription": true, "google_firestore_database": true}

// thing is a resource's type in the words of the page.
func thing(t *testing.T, kind string) string {
	t.Helper()
	if strings.HasPrefix(kind, "google_compute_") || strings.HasPrefix(kind, "google_certificate_manager_") {
		return "the load balancer"
	}
	require.Contains(t, things, kind, "name it in the words of the page")
	return things[kind]
}

var things = map[string]string{
	"google_cloud_run_v2_service": "services", "google_cloud_scheduler_job": "jobs", "google_cloud_tasks_queue": "the alarm's queue",
	"google_pubsub_topic": "topics", "google_pubsub_subscription": "subscriptions", "google_secret_manager_secret": "secrets",
	"google_service_account": "accounts", "google_project_iam_custom_role": "a role", "google_logging_metric": "log metrics",
	"google_monitoring_alert_policy": "alerts", "google_monitoring_dashboard": "the dashboard", "google_monitoring_slo": "the objective",
	"google_monitoring_custom_service": "the objective", "google_firestore_database": "the database", "google_firestore_field": "indexes",
	"google_firestore_index": "indexes", "google_project_service": "APIs", "google_cloud_run_v2_service_iam_member": "grants",
	"google_cloud_tasks_queue_iam_member": "grants", "google_project_iam_member": "grants", "google_pubsub_subscription_iam_member": "grants",
	"google_pubsub_topic_iam_member": "grants", "google_secret_manager_secret_iam_member": "grants", "google_service_account_iam_member": "grants", "google_kms_crypto_key_iam_member": "grants", "google_billing_budget": "the budget",
	"google_firestore_backup_schedule": "backups", "google_logging_project_bucket_config": "a log bucket", "google_logging_project_exclusion": "exclusions",
	"google_logging_project_sink": "a sink", "google_project_iam_audit_config": "the record of reads",
}

// setKey sets a key of the queue of PayNow's events in the catalog's copy.
func (i *installation) setKey(queue, key string, value any) error {
	path := filepath.Join(i.folder, "..", "catalog", "queues.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var file map[string]any
	if err := yaml.Unmarshal(text, &file); err != nil {
		return err
	}
	queues, _ := file["queues"].([]any)
	for _, q := range queues {
		if members, _ := q.(map[string]any); members["id"] == queue {
			members[key] = value
			text, err := yaml.Marshal(file)
			return errors.Join(err, os.WriteFile(path, text, 0o600))
		}
	}
	return fmt.Errorf("no queue %s", queue)
}

// What the page says of each change is what a plan does about it, in a shop that runs.
func TestEachChangeDoesWhatThePageSays(t *testing.T) {
	t.Parallel()
	installed(t)
	events, _ := paynow(t, shipped(t))
	known := declared(t)
	all := map[string][]change{
		"variables": slices.DeleteFunc(changesOfVariables(t), func(c change) bool { return !slices.Contains(known, c.name) }), "keys": changesOfKeys(),
	}
	var mu sync.Mutex
	saw := map[string]map[string]string{"variables": {}, "keys": {}}
	t.Run("changes", func(t *testing.T) {
		for of, changes := range all {
			for _, c := range changes {
				t.Run(of+"/"+c.name, func(t *testing.T) {
					t.Parallel()
					i := installed(t)
					if c.prepare != nil {
						c.prepare(i)
					}
					if of == "variables" {
						i.with(variables{c.name: c.to})
					} else {
						require.NoError(t, i.setKey(events.ID, c.name, c.to))
					}
					did := i.did()
					mu.Lock()
					defer mu.Unlock()
					saw[of][c.name] = did
					if !*update {
						require.Equal(t, rows(t, of)[c.name], did, "go test ./terraform/lifecycle -run ThePage -update writes it anew")
					}
				})
			}
		}
	})
	if *update {
		for of, changes := range all {
			write(t, of, changes, saw[of])
		}
	}
}

// table is the part of the page between two marks.
func table(t *testing.T, of string) (before, table, after string) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), "<!-- "+of+": go test ./terraform/lifecycle -run ThePage -update -->\n")
	require.True(t, found)
	table, after, found = strings.Cut(rest, "<!-- end of "+of+" -->")
	require.True(t, found)
	return before, table, after
}

// rows are what the page says of each change.
func rows(t *testing.T, of string) map[string]string {
	t.Helper()
	_, text, _ := table(t, of)
	found := map[string]string{}
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, " | "); len(cells) == 3 && strings.HasPrefix(line, "| `") {
			found[strings.Trim(cells[0], "|` ")] = cells[1]
		}
	}
	return found
}

func write(t *testing.T, of string, changes []change, saw map[string]string) {
	t.Helper()
	before, _, after := table(t, of)
	text := "<!-- " + of + ": go test ./terraform/lifecycle -run ThePage -update -->\n| changed | a plan says | |\n| --- | --- | --- |\n"
	said := rows(t, of)
	maps.Copy(said, saw) // a run of some of the changes keeps the rest
	for _, c := range changes {
		text += fmt.Sprintf("| `%s` | %s | %s |\n", c.name, said[c.name], c.note)
	}
	require.NoError(t, os.WriteFile(page, []byte(before+text+"<!-- end of "+of+" -->"+after), 0o600))
}

var variableName = regexp.MustCompile(`(?m)^variable "([^"]+)"`)

// Who adds a variable, or a key of a queue, says what it does to an installation that runs.
func TestThePageHasEveryVariableAndEveryKeyOfAQueue(t *testing.T) {
	t.Parallel()
	keys := []string{"ack_deadline_seconds"}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[catalog.Queue]()) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" {
			keys = append(keys, name)
		}
	}
	for of, want := range map[string][]string{"variables": declared(t), "keys": keys} {
		listed := []string{}
		for name := range rows(t, of) {
			listed = append(listed, name)
		}
		require.ElementsMatch(t, want, listed, "docs/changing.md, %s: add an example to terraform/lifecycle/changes_test.go", of)
	}
}

// declared are the root module's variables.
func declared(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repository, "terraform", "*.tf"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range variableName.FindAllStringSubmatch(string(text), -1) {
			names = append(names, found[1])
		}
	}
	return names
}
