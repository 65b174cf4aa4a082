package catalog_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/emulator/emulatortest"
	"billhook/internal/filetest"
)

func TestFilesReplaceThoseOfACatalog(t *testing.T) {
	t.Parallel()
	shipped := from(t, "")
	narrowed := mustOnly(t, shipped, payNows...)
	other := filetest.Must(
		narrowed.With(map[string]string{"products.yaml": "products: {hat: {points: 7}}\n"}))(t)
	require.Equal(t, map[string]catalog.Product{"hat": {Points: 7}}, other.Products)
	require.Len(t, shipped.Products, 2, "the catalog itself stays as it is")
	require.Equal(t, running(narrowed), running(other))
	again := filetest.Must(other.With(nil))(t)
	require.Equal(t, other.Products, again.Products, "files that were replaced before stay replaced")
}

func TestInvalidReplacementFilesAreRefused(t *testing.T) {
	t.Parallel()
	shipped := from(t, "")
	for name, test := range map[string]struct {
		of    *catalog.Catalog
		files map[string]string
		want  string
	}{
		"a file of another name": {
			shipped,
			map[string]string{"../queues.yaml": "", "prices.yaml": ""},
			"prices.yaml: no file of a catalog has this name",
		},
		"a mistake": {
			shipped,
			map[string]string{"products.yaml": "products: {hat: {points: 0}}\n"},
			"products.yaml:1: product hat: points: must be 1 to 1000000000",
		},
		"a catalog of no files": {&catalog.Catalog{}, map[string]string{"products.yaml": ""}, "made of no files"},
		"a topic that a queue still names": {
			mustOnly(t, shipped, payNows...),
			map[string]string{"topics.yaml": "topics: []\n"},
			": queue orders-process: topic: no shared topic has the id orders",
		},
	} {
		require.ErrorContains(t, filetest.ErrorOf(test.of.With(test.files)), test.want, name)
	}
}

var (
	payNows    = []string{"paynow-events", "pay-subscription-update"}
	withOrders = slices.Concat(payNows, []string{"orders-process", "notifications-fanout", "notifications-send"})
)

func mustOnly(t *testing.T, c *catalog.Catalog, names ...string) *catalog.Catalog {
	t.Helper()
	return filetest.Must(c.Only(names))(t)
}

func TestTheHashDependsOnTheFilesAlone(t *testing.T) {
	t.Parallel()
	built := from(t, "")
	require.Regexp(t, `^[0-9a-f]{8}$`, built.Hash())
	folder := shipped(t, nil)
	copied := from(t, folder)
	require.Equal(t, built.Hash(), copied.Hash())
	require.Equal(t, built.Hash(), mustOnly(t, copied, payNows...).Hash(), "whatever queues run")
	same := filetest.Must(copied.With(map[string]string{"products.yaml": "products: {}\n"}))(t)
	require.NotEqual(t, built.Hash(), same.Hash())
	require.NoError(t, os.WriteFile(filepath.Join(folder, "products.yaml"), []byte("products: {}\n"), 0o600))
	require.Equal(t, built.Hash(), copied.Hash(),
		"it is of the loaded files, not of later versions")
	require.Equal(t, same.Hash(), from(t, folder).Hash())
	require.Empty(t, (&catalog.Catalog{}).Hash())
	sums, err := exec.CommandContext(t.Context(), "sh", "-c",
		"LC_ALL=C; export LC_ALL; ls *.yaml providers/*.yaml | sort | xargs sha256sum").Output()
	require.NoError(t, err)
	sum := sha256.Sum256(sums)
	require.Equal(t, hex.EncodeToString(sum[:])[:8], built.Hash(), "anybody can compute it without Billhook")
}

func running(c *catalog.Catalog) []string {
	return filetest.Map(c.Enabled(), func(q catalog.Queue) string { return q.ID })
}

// deployment is a row of testdata/deployments.yaml, which says what each member is.
type deployment struct {
	What, Of, Refused, Named, First, Pool, Wrong string
	Queues, Runs, Variables, Sources             []string
	Topics                                       int
	Emits                                        map[string][]string
}

func (d deployment) narrowed(t *testing.T, of map[string]*catalog.Catalog) *catalog.Catalog {
	t.Helper()
	if d.Refused == "" {
		return mustOnly(t, of[d.Of], d.Queues...)
	}
	off := from(t, "")
	off.Queues[slices.IndexFunc(off.Queues, func(q catalog.Queue) bool {
		return q.ID == "events-low"
	})].Enabled = false
	require.EqualError(t, filetest.ErrorOf(off.Only(d.Queues)), d.Refused, d.What)
	return nil
}

func TestADeploymentRunsTheQueuesThatItNamesOrIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	shipped := from(t, "")
	of := map[string]*catalog.Catalog{"small": from(t, small), "crooked": from(t, crooked), "": shipped}
	for _, d := range filetest.YAML[[]deployment](t, "testdata", "deployments.yaml") {
		only := d.narrowed(t, of)
		if only == nil {
			continue
		}
		for handler, to := range d.Emits {
			require.ElementsMatch(t, to, only.EmitsOf(handler), d.What)
		}
		if d.Runs != nil {
			require.Equal(t, d.Runs, running(only), d.What)
			variables := filetest.Map(only.TargetsOf(""), func(c catalog.Target) string {
				return c.URLVariable
			})
			require.Equal(t, d.Variables, variables, d.What)
			require.Equal(t, d.Sources, slices.Sorted(maps.Keys(only.Sources)), d.What)
		}
		if d.First == "" {
			require.True(t, d.Runs == nil || len(only.OutboundTopics) == 0, d.What)
			require.True(t, d.Topics == 0 || len(only.OutboundTopics) == d.Topics, d.What)
			continue
		}
		require.Equal(t, d.First, only.TasksPool, d.What)
		decided, err := only.ForTasks(d.Named)
		if d.Wrong != "" {
			require.ErrorContains(t, err, d.Wrong, d.What)
			continue
		}
		require.NoError(t, err, d.What)
		require.Equal(t, d.Pool, decided.TasksPool, d.What)
		again, err := decided.With(nil)
		require.NoError(t, err, d.What)
		require.Equal(t, d.Pool, again.TasksPool, "%s, also with other files", d.What)
	}
	before := running(shipped)
	payNow := mustOnly(t, mustOnly(t, shipped, withOrders...), payNows...)
	require.Empty(t, payNow.EmitsOf("points.credit"), "a narrowed catalog is narrowed again")
	require.Same(t, shipped, mustOnly(t, shipped), "without names every enabled queue runs")
	require.Equal(t, before, running(shipped), "a narrowed catalog leaves the whole one as it was")
	require.Equal(t, []string{"orders-process"}, shipped.EmitsOf("points.credit"))
	require.NotEmpty(t, shipped.Sources[catalog.Producers].Events)
	require.True(t, slices.ContainsFunc(shipped.Queues, func(q catalog.Queue) bool {
		return q.Enabled && q.Pool == shipped.TasksPool && q.MinInstances > 0
	}), "alarms need no cold start")
}

func TestAQueueThatIsNotEnabledIsNotEmittedTo(t *testing.T) {
	t.Parallel()
	for list, want := range map[string][]string{
		"[reminders]": {"seat-feed"}, "[bookings]": {"seat-feed", "bookings"},
		"[reminders, bookings]": {"seat-feed", "bookings"}, "[]": {"seat-feed"},
	} {
		c := from(t, edited(t, small, "queues.yaml", "emits: [seat-feed]",
			"emits: [seat-feed]\n        emits_if_run: "+list))
		require.Equal(t, want, c.EmitsOf("seats.free"), list)
	}
}

// Only named and enabled queues run, routes and emissions go to queues that run, and no further target is
// needed.
func TestANarrowedCatalogNeedsNothingThatDoesNotRun(t *testing.T) {
	t.Parallel()
	shipped := from(t, "")
	names := filetest.Map(shipped.Queues, func(q catalog.Queue) string { return q.ID })
	rapid.Check(t, func(t *rapid.T) {
		chosen := rapid.SliceOfDistinct(rapid.SampledFrom(names), func(s string) string {
			return s
		}).Draw(t, "names")
		only, err := shipped.Only(chosen)
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				require.Contains(t, line, "QUEUES: ")
			}
			return
		}
		if len(chosen) > 0 {
			require.ElementsMatch(t, chosen, running(only))
		}
		for _, s := range only.Sources {
			for _, id := range s.Events {
				require.Contains(t, running(only), id)
			}
		}
		for _, target := range only.TargetsOf("") {
			require.Contains(t, shipped.TargetsOf(""), target)
		}
		for _, q := range only.Queues {
			for _, h := range q.Handlers {
				for _, id := range h.Emits {
					to, isQueue := only.Queue(id)
					require.True(t, !q.Enabled || !isQueue || to.Enabled, "%s emits to %s", q.ID, id)
				}
			}
		}
	})
}

// applied applies the catalog module to a folder, for the named queues: it has no provider and makes nothing,
// so an apply is its outputs and needs no network. It returns these, or what terraform printed and the error.
func applied(t *testing.T, folder string, queues ...string) (said string, err error) {
	t.Helper()
	module := emulatortest.Terraform(t, "..", filepath.Join("modules", "catalog"))
	names := filetest.Must(json.Marshal(append([]string{}, queues...)))(t)
	module.Environment = []string{
		"TF_VAR_directory=" + filetest.Must(filepath.Abs(folder))(t), "TF_VAR_queues=" + string(names),
		"TF_CLI_CONFIG_FILE=" + os.DevNull,
	}
	if said, err = module.Run(t.Context(), "apply", "-auto-approve", "-input=false", "-no-color"); err != nil {
		return said, err
	}
	return module.Run(t.Context(), "output", "-json")
}

// output is an output of Terraform's, as it prints all of them.
type output[T any] struct{ Value T }

func TestTerraformRefusesTheQueuesThatTheServicesRefuse(t *testing.T) {
	t.Parallel()
	emulatortest.NeedsTerraform(t)
	whole, refused := from(t, ""), 0
	for _, d := range filetest.YAML[[]deployment](t, "testdata", "deployments.yaml") {
		if _, err := whole.Only(d.Queues); err == nil { // others are not of the files as they are
			continue
		}
		refused++
		t.Run(d.What, func(t *testing.T) {
			t.Parallel()
			printed, err := applied(t, ".", d.Queues...)
			require.Error(t, err, printed)
			text := strings.Join(strings.Fields(printed), " ") // Terraform breaks long lines
			for line := range strings.SplitSeq(d.Refused, "\n") {
				require.Contains(t, text, line)
			}
		})
	}
	require.Greater(t, refused, 5)
}

func set(texts []string) []string { return slices.Compact(slices.Sorted(slices.Values(texts))) }

// grants are the services that may publish on a topic, by its id.
type grants map[string][]string

func (g grants) add(topic string, services any) {
	if text := strings.Fields(strings.Trim(fmt.Sprint(services), "[]")); len(text) > 0 {
		g[topic] = text
	}
}

// requireSameQueue compares what Terraform has of a queue with Go's, and collects the grants.
func requireSameQueue(t *testing.T, q catalog.Queue, whole, have map[string]any, granted grants) {
	t.Helper()
	var emits, handlers []string
	for _, h := range q.Handlers {
		emits = append(emits, h.Emits...)
		if h.Post == (catalog.Post{}) {
			handlers = append(handlers, h.Name)
		}
	}
	for name, want := range map[string][]string{"emits": emits, "handlers": handlers} {
		require.ElementsMatch(t, set(want), have[name], "%s of %s", name, q.ID)
	}
	require.Equal(t, q.SharedTopic, have["shared_topic"], q.ID)
	granted.add(q.Topic(), have["publishers"])
	if q.Enabled && !q.DeadLetter.Drop { // modules/queue grants it to each queue's worker
		granted.add(q.DeadLetter.Topic, catalog.WorkerOf(q.Pool))
	}
	for _, compared := range []string{"emits", "handlers", "shared_topic", "publishers"} {
		delete(have, compared)
	}
	for name, value := range have {
		if reflect.TypeOf(value).Kind() == reflect.Map {
			require.Subset(t, whole[name], value, "%s of %s", name, q.ID)
			continue
		}
		require.Equal(t, whole[name], value, "%s of %s", name, q.ID)
	}
}

// Terraform reads the catalog as Go does, and makes the grants that the doctor looks for: where a topic
// differs, a grant is missing or superfluous.
func TestTerraformHasTheCatalogAndTheGrantsOfGo(t *testing.T) {
	t.Parallel()
	emulatortest.NeedsTerraform(t)
	type row struct {
		folder string
		queues []string
	}
	filetest.Each(t, map[string]row{
		"the shipped catalog": {folder: "."}, "the same, narrowed": {".", withOrders},
		"a small one": {folder: small},
		"one of two pools, whose defaults, schedules and parts of a second differ": {crooked, nil},
	}, func(t *testing.T, test row) {
		c := mustOnly(t, from(t, test.folder), test.queues...)
		printed, err := applied(t, test.folder, test.queues...)
		require.NoError(t, err, printed)
		read := filetest.JSON[struct {
			Hash      output[string]
			TasksPool output[string] `json:"tasks_pool"`
			Queues    output[map[string]map[string]any]
			Sources   output[map[string]map[string]any]
			Topics    output[map[string]struct{ Publishers []string }]
			Pools     output[map[string]struct {
				URLs    []string `json:"url_variables"`
				Secrets []string `json:"secret_variables"`
			}]
		}](t, printed)
		require.Equal(t, []string{c.Hash(), c.TasksPool}, []string{read.Hash.Value, read.TasksPool.Value})
		whole := filetest.JSON[struct {
			Queues  []map[string]any
			Sources map[string]any
		}](t, filetest.Must(c.JSON())(t))
		granted := grants{}
		require.Len(t, read.Queues.Value, len(c.Queues))
		for i, q := range c.Queues {
			require.Contains(t, read.Queues.Value, q.ID)
			requireSameQueue(t, q, whole.Queues[i], read.Queues.Value[q.ID], granted)
		}
		for topic, of := range read.Topics.Value {
			granted.add(topic, of.Publishers)
		}
		require.NotEmpty(t, granted)
		require.Equal(t, map[string][]string(granted), c.Publishers())
		require.Len(t, read.Sources.Value, len(whole.Sources))
		for name, source := range read.Sources.Value {
			delete(source, "sends") // whether it has alerts, which Terraform alone says
			require.Subset(t, whole.Sources[name], source)
		}
		require.Equal(t, c.Pools(), slices.Sorted(maps.Keys(read.Pools.Value)))
		for pool, needs := range read.Pools.Value {
			targets := c.TargetsOf(pool)
			urls := filetest.Map(targets, func(of catalog.Target) string { return of.URLVariable })
			secrets := filetest.Map(targets, func(of catalog.Target) string { return of.SecretVariable })
			require.Equal(t, set(urls), set(needs.URLs), pool)
			require.Equal(t, set(secrets), set(needs.Secrets), pool)
		}
	})
}
