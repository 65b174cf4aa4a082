package catalog_test

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/filetest"
)

// numbers are those of testdata/numbers.yaml, which says what each member is.
type numbers struct {
	Figures []struct {
		Section string
		Of      []figure
	}
	Own []ownNumber
	// Aliases are the names that queues, dead letters and exchanges had, with the routing keys of their
	// bindings.
	Aliases struct{ Queues, Topics map[string]string }
}

// figure is one figure of the requirements. Its key is one of numbersOf; with " of type <event type>" that of
// the type's handler.
type figure struct {
	Words, Figure, Key string
	Queues             []string
}

type ownNumber struct {
	Key, Number, Reason string
	Queues              []string
}

func declared(t *testing.T) (all numbers, figures []figure) {
	t.Helper()
	all = filetest.YAML[numbers](t, "testdata", "numbers.yaml")
	for _, section := range all.Figures {
		require.NotEmpty(t, section.Section)
		figures = append(figures, section.Of...)
	}
	return all, figures
}

// numbersOf are the numbers that a queue has, by the keys of figures. Times are in seconds.
func numbersOf(q catalog.Queue) map[string]float64 {
	all := map[string]float64{
		"attempts": float64(q.MaxAttempts), "lease": q.Lease.Seconds(), "timeout": q.HandlerTimeout.Seconds(),
		"TTL": q.MessageTTL.Seconds(), "prefetch": float64(q.Concurrency), "workers": float64(q.MinInstances),
		"most workers": float64(q.MaxInstances), "depth": float64(q.BacklogAlertAbove),
	}
	add := func(has bool, numbers map[string]float64) {
		if has {
			maps.Copy(all, numbers)
		}
	}
	// By the pseudocode of the billing queues the first try is no retry: attempts++, and again while attempts <=
	// max.
	add(q.Contract == "envelope.v1", map[string]float64{"retries": float64(q.MaxAttempts - 1)})
	add(len(q.Backoff.Schedule) == 0, map[string]float64{
		"first wait": q.Backoff.Base.Seconds(), "multiplier": q.Backoff.Multiplier,
		"longest wait": q.Backoff.Max.Seconds(), "jitter": q.Backoff.Jitter.Seconds(),
	})
	for i, wait := range q.Backoff.Schedule {
		all["wait "+strconv.Itoa(i+1)] = wait.Seconds()
	}
	// A broker delivers the messages of an ordering key one after the other, over all instances.
	add(slices.Equal(q.OrderingKey, []string{"order_id"}), map[string]float64{"prefetch of a key": 1})
	add(q.Batch.Size > 0, map[string]float64{"batch": float64(q.Batch.Size)})
	add(q.MaxBacklog.Messages > 0, map[string]float64{"most messages": float64(q.MaxBacklog.Messages)})
	add(q.Rate.PerSecond > 0, map[string]float64{"rate": float64(q.Rate.PerSecond)})
	add(q.Rate.PerUser > 0, map[string]float64{"rate of a user": float64(q.Rate.PerUser)})
	add(q.DeadLetter.Drop, map[string]float64{"no dead letters": 0})
	add(!q.DeadLetter.Drop, map[string]float64{
		"dead letters": float64(q.DeadLetter.AlertAbove), "normal dead letters": float64(q.DeadLetter.WarnAbove),
		"oldest dead letter": q.DeadLetter.OldestAlert.Seconds(), "normal age": q.DeadLetter.OldestWarn.Seconds(),
		"dead letters kept": q.DeadLetter.Retention.Seconds(),
	})
	add(q.OldestAlert != 25*time.Minute, map[string]float64{"oldest message": q.OldestAlert.Seconds()})
	add(q.RememberFor >= 3*day, map[string]float64{"remembered": (3 * day).Seconds()})
	return all
}

func of(q catalog.Queue, key string) (n float64, ok bool) {
	key, eventType, byType := strings.Cut(key, " of type ")
	if !byType {
		n, ok = numbersOf(q)[key]
		return n, ok
	}
	h, handled := q.Handlers[eventType]
	switch key {
	case "attempts":
		return float64(h.MaxAttempts), handled
	case "wait for what follows":
		return h.WaitsFor.Seconds(), handled
	default:
		return h.Backoff.Base.Seconds(), handled
	}
}

var number = regexp.MustCompile(
	`^[<>]? ?([0-9][0-9,]*(?:\.[0-9]+)?) ?(ms|s|seconds?|min|minutes?|h|hours?|days?)?$`)

// "< 10" is 9 of what is counted: the most that is normal.
func read(t *testing.T, text string) float64 {
	t.Helper()
	switch text {
	case "None", "immediate", "Any": // any is above 0
		return 0
	}
	parts := number.FindStringSubmatch(text)
	require.NotNil(t, parts, text)
	n := filetest.Must(strconv.ParseFloat(strings.ReplaceAll(parts[1], ",", ""), 64))(t)
	if strings.HasPrefix(text, "<") {
		n--
	}
	unit := map[string]float64{
		"": 1, "ms": 0.001, "s": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "day": 86400,
	}
	per, known := unit[strings.TrimSuffix(parts[2], "s")]
	if parts[2] == "ms" || parts[2] == "s" {
		per, known = unit[parts[2]], true
	}
	require.True(t, known, text)
	return n * per
}

func TestTheShippedNumbersAreThoseOfTheRequirements(t *testing.T) {
	t.Parallel()
	_, figures := declared(t)
	c := from(t, "")
	for _, f := range figures {
		require.Contains(t, f.Words, f.Figure, "the figure is not in the words")
		for _, id := range f.Queues {
			q, ok := c.Queue(id)
			require.True(t, ok, id)
			got, has := of(q, f.Key)
			require.True(t, has, "%s has no %s; a document says %q", id, f.Key, f.Words)
			require.InDelta(t, read(t, f.Figure), got, 1e-9, "%s of %s; a document says %q", f.Key, id, f.Words)
		}
	}
}

func TestEveryShippedNumberHasADocumentOrAReason(t *testing.T) {
	t.Parallel()
	all, figures := declared(t)
	c, own := from(t, ""), all.Own
	for _, q := range c.Queues {
		keys := slices.Collect(maps.Keys(numbersOf(q)))
		for eventType, h := range q.Handlers {
			if h.MaxAttempts != q.MaxAttempts || h.Backoff.Base != q.Backoff.Base {
				keys = append(keys, "attempts of type "+eventType, "first wait of type "+eventType)
			}
		}
		for _, key := range keys {
			if slices.ContainsFunc(figures, func(f figure) bool {
				return f.Key == key && slices.Contains(f.Queues, q.ID)
			}) {
				continue
			}
			got, _ := of(q, key)
			at := -1
			for i, o := range own { // one that names the queue goes first
				if o.Key == key && (slices.Contains(o.Queues, q.ID) || len(o.Queues) == 0 && at < 0) {
					at = i
				}
			}
			require.GreaterOrEqual(t, at, 0, "%s of %s is %v: no document gives it, and nothing says why",
				key, q.ID, got)
			require.NotEmpty(t, own[at].Reason)
			require.InDelta(t, read(t, own[at].Number), got, 1e-9, "%s of %s", key, q.ID)
		}
	}
}

func TestTheShippedAliasesAreTheNamesInTheRequirements(t *testing.T) {
	t.Parallel()
	all, _ := declared(t)
	c := from(t, "")
	require.NotEmpty(t, all.Aliases.Queues)
	for id, names := range all.Aliases.Queues {
		q, ok := c.Queue(id)
		require.True(t, ok, id)
		got := append([]string{q.Alias}, q.DeadLetter.Aliases...)
		for _, p := range q.Bindings {
			got = append(got, string(p))
		}
		require.Equal(t, names, strings.Join(got, " "), id)
	}
	for alias, id := range all.Aliases.Topics {
		topic, ok := c.TopicNamed(alias)
		require.True(t, ok, alias)
		require.Equal(t, id, topic.ID)
	}
}
