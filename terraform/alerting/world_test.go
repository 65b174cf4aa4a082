package alerting_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/emulator/emulatortest"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/tasks"
)

const (
	hour = 60
	day  = 24 * hour

	webhookService = "billhook-webhook"
)

// world is what Cloud Monitoring knows of an installation: a point a minute of each series.
type world struct {
	catalog *catalog.Catalog
	rand    *rand.Rand
	minutes int
	series  []*series
	byName  map[string]*series
}

func newWorld(t *testing.T, minutes int, seed uint64, visitors shop) *world {
	t.Helper()
	// which has the policies that it is for; it takes longer to make than to leave out
	emulatortest.NeedsTerraform(t)
	w := &world{
		catalog: catalogtest.Shipped(), rand: rand.New(rand.NewPCG(seed, 15)), minutes: minutes,
		byName: map[string]*series{},
	}
	w.runs(visitors)
	return w
}

// one is the series of a metric with these labels, in pairs; it is there once it has a point.
func (w *world) one(of, resource, metric string, labels ...string) *series {
	key := strings.Join(append(labels, resource, metric), " ")
	all := map[string]string{"resource.type": resource, "metric.type": metric}
	for pair := range slices.Chunk(labels, 2) {
		all[pair[0]] = pair[1]
	}
	if w.byName[key] == nil {
		s := &series{labels: all, of: of, points: slices.Repeat([]float64{absent}, w.minutes)}
		w.byName[key] = s
		w.series = append(w.series, s)
	}
	return w.byName[key]
}

// at is the point of a minute, or 0.
func (s *series) at(minute int) float64 {
	if minute < 0 || math.IsNaN(s.points[minute]) {
		return 0
	}
	return s.points[minute]
}

func (s *series) add(minute int, n float64) { s.adds(minute, minute+1, n) }

func (s *series) adds(from, to int, n float64) {
	for minute := from; n != 0 && minute < min(to, len(s.points)); minute++ {
		s.points[minute] = s.at(minute) + n
	}
}

func (s *series) set(from, to int, value float64) {
	for minute := from; minute < min(to, len(s.points)); minute++ {
		s.points[minute] = value
	}
}

func (s *series) grows(from, to int, by float64) {
	for minute := from; minute < min(to, len(s.points)); minute++ {
		s.points[minute] = by * float64(minute-from)
	}
}

func (s *series) drop(from, to int) { s.set(from, to, absent) }

func (w *world) answered(class string) *series {
	return w.one("counter", "cloud_run_revision", "run.googleapis.com/request_count",
		"resource.labels.service_name", webhookService, "metric.labels.response_code_class", class)
}

func (w *world) webhooks(source, status string) *series {
	return w.logged("counter", "webhooks", "source", source, "status", status)
}

// answeredIn is how long the accepted webhooks of a minute took, in milliseconds.
func (w *world) answeredIn() *series {
	return w.logged("distribution", "webhook-ms", "source", "paynow", "status", "202")
}

func (w *world) pushes(q catalog.Queue, class string) *series {
	return w.pushed("counter", "push_request_count", q.PushSubscription(), "metric.labels.response_class", class)
}

func (w *world) oldest(subscription string) *series {
	return w.pushed("gauge", "oldest_unacked_message_age", subscription)
}

func (w *world) depth(subscription string) *series {
	return w.pushed("gauge", "num_undelivered_messages", subscription)
}

func (w *world) pushed(of, metric, subscription string, labels ...string) *series {
	return w.one(of, "pubsub_subscription", "pubsub.googleapis.com/subscription/"+metric,
		append(labels, "resource.labels.subscription_id", subscription)...)
}

// letters are how many dead letters of a queue are open, and how old the oldest is.
func (w *world) letters(queue string) (open, oldest *series) {
	return w.logged("distribution", "open-dead-letters", "queue", queue),
		w.logged("distribution", "oldest-dead-letter-seconds", "queue", queue)
}

func (w *world) instances(service string) *series {
	return w.one("gauge", "cloud_run_revision", "run.googleapis.com/container/instance_count",
		"resource.labels.service_name", service, "metric.labels.state", "active")
}

// logged is a metric made of log lines, whose labels are in pairs.
func (w *world) logged(of, metric string, labels ...string) *series {
	for i := 0; i < len(labels); i += 2 {
		labels[i] = "metric.labels." + labels[i]
	}
	return w.one(of, "cloud_run_revision", "logging.googleapis.com/user/billhook-"+metric, labels...)
}

func (w *world) ttlDelay() *series {
	return w.one("distribution", "firestore.googleapis.com/Database",
		"firestore.googleapis.com/document/ttl_expiration_to_deletion_delays",
		"resource.labels.database_id", "billhook")
}

// burn is how many times too fast the webhook service's failures are used up, over a window.
func (w *world) burn(window int) []float64 {
	rate := slices.Repeat([]float64{absent}, w.minutes)
	taken, refused, failed, all := w.answered("2xx"), w.answered("5xx"), 0.0, 0.0
	for minute := range rate {
		failed += refused.at(minute) - refused.at(minute-window)
		all += refused.at(minute) - refused.at(minute-window) + taken.at(minute) - taken.at(minute-window)
		if all > 0 {
			rate[minute] = failed / all / (1 - 0.999) // the objective
		}
	}
	return rate
}

// shop is how many webhooks come in a minute.
type shop func(minute int) float64

// visited has so many customers a minute from one hour to another, and fewer at night.
func visited(from, to int, day, night float64) shop {
	return func(minute int) float64 {
		if h := minute / hour % 24; h < from || h >= to {
			return night
		}
		return day
	}
}

// A quiet shop has about a dozen customers a day, a fair one forty an hour, and a busy one twenty a minute.
var (
	quiet = visited(8, 23, 12.0/(15*hour), 0)
	fair  = visited(7, 24, 40.0/hour, 10.0/hour)
	busy  = visited(7, 24, 20, 4)
)

// runs makes the series of an installation that is well: webhooks and their pushes, the tasks, the
// instances.
func (w *world) runs(visitors shop) {
	queues := w.catalog.Enabled()
	first, taken, noted := w.paid(), w.answered("2xx"), w.webhooks("paynow", "202")
	done := filetest.Map(tasks.Scheduled, func(task string) *series {
		return w.logged("counter", "tasks-done", "task", task)
	})
	for minute := range w.minutes {
		for range w.poisson(visitors(minute)) {
			// An order is several events: it is paid, and its subscription begins.
			for range 1 + w.rand.IntN(3) {
				taken.add(minute, 1)
				noted.add(minute, 1)
				w.answeredIn().set(minute, minute+1, 40)
				w.pushes(first, "ack").add(minute, 1)
				w.pushes(queues[w.rand.IntN(len(queues))], "ack").add(minute, 1)
			}
		}
		if w.rand.IntN(200) > 0 { // one call does all
			for _, runs := range done {
				runs.add(minute, 1)
			}
		}
	}
	for _, q := range queues {
		w.oldest(q.PushSubscription()).set(0, w.minutes, 0)
		w.depth(q.PushSubscription()).set(0, w.minutes, 0)
		if !q.DeadLetter.Drop {
			w.oldest(q.DeadLetterPush()).set(0, w.minutes, 0)
		}
	}
	for _, q := range w.catalog.Queues { // the task counts those of all queues
		if !q.DeadLetter.Drop {
			open, oldest := w.letters(q.ID)
			open.set(0, w.minutes, 0)
			oldest.set(0, w.minutes, 0)
		}
	}
	for _, task := range []string{"relay-outbox", "release-delayed", "seal-journal"} {
		w.logged("distribution", "oldest-seconds", "task", task).set(0, w.minutes, 30)
	}
	w.instances(webhookService).set(0, w.minutes, 1)
	for pool := range w.pools() {
		w.instances("billhook-worker-"+pool).set(0, w.minutes, 1)
	}
}

func (w *world) pools() map[string]int {
	pools := map[string]int{}
	for _, q := range w.catalog.Enabled() {
		pools[q.Pool] = max(pools[q.Pool], q.MaxInstances)
	}
	return pools
}

func (w *world) paid() catalog.Queue {
	q, _ := w.catalog.HandledBy("points.credit")
	return q
}

func (w *world) poisson(expected float64) int {
	limit, product := math.Exp(-expected), w.rand.Float64()
	n := 0
	for product > limit {
		product *= w.rand.Float64()
		n++
	}
	return n
}

// The prices, in US dollars. docs/reference/costs.md names their source.
const (
	referenceMonth = 0.35
	millionPoints  = 0.50
	// A condition is evaluated every 30 seconds of a month of 30 days.
	evaluations = 30 * 24 * 3600 / 30
)

// returned is how many series a condition compares: one for each group.
func (c condition) returned() int {
	count := 1
	for _, label := range c.By {
		name := regexp.QuoteMeta(strings.Replace(label, ".label.", ".labels.", 1))
		if of := regexp.MustCompile(name + ` = one_of\(([^)]+)\)`).FindStringSubmatch(c.Filter); of != nil {
			count *= strings.Count(of[1], ",") + 1
		}
	}
	return count
}

// A policy for each cause and not for each queue: Cloud Monitoring charges for each condition.
func TestTheCostOfAlertsIsTheModules(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- alerts: go test ./terraform/alerting -update -->\n", "<!-- end of alerts -->\n"
	c := catalogtest.Shipped()
	first, _ := c.HandledBy("points.credit")
	second, _ := c.EmitsTo("subscriptions.record")
	payNow := []string{first.ID, second.ID}
	table := "| queues | policies | conditions | metrics that they name | series that they compare | a month " +
		"|\n| --- | ---: | ---: | ---: | ---: | ---: |\n"
	for _, row := range []struct {
		name     string
		policies map[string]policy
	}{
		{"PayNow's alone", read(t, payNow)},
		{"PayNow's alone, all alerts", read(t, payNow, "all")},
		{"all of the catalog", read(t, []string{})},
		{"all of the catalog, all alerts", policies(t)},
	} {
		conditions, references, series := 0, 0, 0
		for name, p := range row.policies {
			require.LessOrEqual(t, len(p.Conditions), 6, name)
			conditions += len(p.Conditions)
			for _, c := range p.Conditions {
				series += c.returned()
				if references++; c.ShareOf != nil { // a share is of two
					references++
				}
			}
		}
		table += fmt.Sprintf("| %s | %d | %d | %d | %d | $%.2f |\n", row.name, len(row.policies), conditions,
			references, series,
			float64(references)*referenceMonth+float64(series*evaluations)/1e6*millionPoints)
	}
	filetest.Part(t, table, begin, end, "..", "..", "docs", "reference", "costs.md")
}

// read applies a copy of the modules, which makes nothing, for some queues or all, and returns the policies.
func read(t *testing.T, queues []string, on ...string) (found map[string]policy) {
	t.Helper()
	folder := filepath.Join("alerting", "testdata")
	module := emulatortest.Terraform(t, filepath.Join("..", ".."), folder, "modules/alerts/*.tf",
		"modules/catalog/*.tf")
	said, err := json.Marshal(map[string][]string{"tasks": tasks.Scheduled, "queues": queues, "on": on})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(module.Folder, "terraform.tfvars.json"), said, 0o600))
	module.Environment = []string{"TF_CLI_CONFIG_FILE=" + os.DevNull} // what it warns of is not said
	text := ""
	for _, command := range []string{
		"init -input=false -no-color", "apply -auto-approve -input=false -no-color", "output -json policies",
	} {
		text, err = module.Run(t.Context(), strings.Fields(command)...)
		require.NoError(t, err, text)
	}
	require.NoError(t, json.Unmarshal([]byte(text), &found))
	require.NotEmpty(t, found)
	return found
}

// shipped are all policies of the shipped catalog, read once.
var shipped struct {
	sync.Once
	policies map[string]policy
}

func policies(t *testing.T) map[string]policy {
	t.Helper()
	emulatortest.NeedsTerraform(t)
	shipped.Do(func() { shipped.policies = read(t, []string{}, "all") })
	require.NotEmpty(t, shipped.policies, "the first test that read them has failed")
	return shipped.policies
}

// pages are those of all policies, the first first.
func pages(t *testing.T, w *world, policies map[string]policy) (all []page) {
	t.Helper()
	for name, p := range policies {
		all = append(all, evaluate(t, w, name, p)...)
	}
	slices.SortFunc(all, func(a, b page) int { return a.minute - b.minute })
	return all
}
