// Package alerting_test judges the alerts of terraform/modules/alerts on made-up series: a quiet shop's
// month must page nobody, and each outage must page the right one in time. This file evaluates a policy
// as Cloud Monitoring documents it, minute by minute: the aligned value of a sliding window, the
// reduction by group, the ratio, the duration, missing data, the combiner.
package alerting_test

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
)

// policy is one of the module's, as `terraform output -json` writes it.
type policy struct {
	Runbook, Severity, Combiner, About string
	Conditions                         []condition
}

type condition struct {
	Name, Filter, Comparison, Duration string
	Threshold                          float64
	Missing, Period, Align, Reduce     *string
	By                                 []string
	ShareOf                            *string `json:"share_of"`
}

// page is an incident that opens: who gets it knows the policy and the group, such as a queue.
type page struct {
	policy, group string
	minute        int
}

func (p page) String() string {
	return fmt.Sprintf("%s %s on day %d at %02d:%02d", p.policy, p.group, p.minute/1440, p.minute/60%24,
		p.minute%60)
}

// reportedAfter is how late a point of Google's metrics may come: what is reported is reported by so much
// later.
const reportedAfter = 4

// absent is a minute without a point.
var absent = math.NaN()

// evaluate returns the pages of a policy over all minutes of a world.
func evaluate(t *testing.T, w *world, name string, p policy) []page {
	t.Helper()
	met := make([]map[string][]bool, len(p.Conditions))
	for i, c := range p.Conditions {
		met[i] = c.met(t, w)
	}
	var pages []page
	opens := func(group string, open func(minute int) bool) {
		was := false
		for minute := range w.minutes {
			is := open(minute)
			if is && !was {
				pages = append(pages, page{name, group, minute + reportedAfter})
			}
			was = is
		}
	}
	switch p.Combiner {
	case "OR":
		for _, groups := range met {
			for group, minutes := range groups {
				opens(group, func(minute int) bool { return minutes[minute] })
			}
		}
	case "AND":
		opens("", func(minute int) bool {
			return !slices.ContainsFunc(met, func(groups map[string][]bool) bool {
				met := func(group []bool) bool { return group[minute] }
				return !slices.ContainsFunc(slices.Collect(maps.Values(groups)), met)
			})
		})
	case "AND_WITH_MATCHING_RESOURCE":
		for group := range met[0] {
			opens(group, func(minute int) bool {
				return !slices.ContainsFunc(met, func(groups map[string][]bool) bool {
					return groups[group] == nil || !groups[group][minute]
				})
			})
		}
	default:
		require.Fail(t, "no such combiner", p.Combiner)
	}
	return pages
}

// met says for each group and minute whether the condition is met.
func (c condition) met(t *testing.T, w *world) map[string][]bool {
	t.Helper()
	duration := minutesOf(t, c.Duration)
	require.Contains(t, []string{"COMPARISON_GT", "COMPARISON_LT"}, c.Comparison)
	found := map[string][]bool{}
	for group, values := range c.values(t, w) {
		minutes, streak, seen, gone := make([]bool, w.minutes), 0, false, 0
		for minute, value := range values {
			violates := value < c.Threshold
			if c.Comparison == "COMPARISON_GT" {
				violates = value > c.Threshold
			}
			gone++
			switch {
			case !math.IsNaN(value):
				seen, gone = true, 0
			case c.Missing != nil && *c.Missing != "EVALUATION_MISSING_DATA_NO_OP":
				// What has never been there is not missed.
				violates = seen && *c.Missing == "EVALUATION_MISSING_DATA_ACTIVE"
			case gone <= 7*1440:
				// An incident stays as it is, and ends by itself after a week without data.
				minutes[minute] = streak > duration
				continue
			}
			if streak++; !violates {
				streak = 0
			}
			minutes[minute] = streak > duration
		}
		found[group] = minutes
	}
	return found
}

var burnRate = regexp.MustCompile(
	`^select_slo_burn_rate\("projects/[^"]+/serviceLevelObjectives/[^"]+", "(\d+s)"\)$`)

// values are those that the condition compares, by group and minute.
func (c condition) values(t *testing.T, w *world) map[string][]float64 {
	t.Helper()
	if found := burnRate.FindStringSubmatch(c.Filter); found != nil {
		return map[string][]float64{"": w.burn(minutesOf(t, found[1]))}
	}
	require.NotContains(t, c.Filter, "select_slo_burn_rate")
	values := c.reduced(t, w, c.Filter)
	if c.ShareOf == nil {
		return values
	}
	for group, of := range c.reduced(t, w, *c.ShareOf) {
		for minute := range values[group] { // nil, where nothing of the group is counted
			if of[minute] == 0 {
				values[group][minute] = absent
			} else {
				values[group][minute] /= of[minute]
			}
		}
	}
	return values
}

// reduced aligns the series of a filter and reduces them to one for each group.
func (c condition) reduced(t *testing.T, w *world, filter string) map[string][]float64 {
	t.Helper()
	matches := parse(t, filter)
	require.NotNil(t, c.Align, c.Name)
	period := minutesOf(t, *c.Period)
	type aligned struct{ values, weights, points []float64 }
	groups := map[string][]aligned{}
	for _, s := range w.series {
		if !matches(s.labels) {
			continue
		}
		var group []string
		for _, label := range c.By {
			value, known := s.labels[strings.Replace(label, ".label.", ".labels.", 1)]
			require.True(t, known, "%s has no label %s", s.labels["metric.type"], label)
			group = append(group, value)
		}
		values, weights := s.align(t, *c.Align, period)
		key := strings.Join(group, " ")
		groups[key] = append(groups[key], aligned{values, weights, s.points})
	}
	found := map[string][]float64{}
	for group, all := range groups {
		values := make([]float64, w.minutes)
		for minute := range values {
			sum, most, weight, points := 0.0, math.Inf(-1), 0.0, []float64(nil)
			for _, a := range all {
				points = append(points, a.points[max(0, minute-period+1):minute+1]...)
				if v := a.values[minute]; !math.IsNaN(v) {
					sum, most, weight = sum+v*a.weights[minute], max(most, v), weight+a.weights[minute]
				}
			}
			switch {
			case weight == 0:
				values[minute] = absent
			case *c.Reduce == "REDUCE_SUM":
				values[minute] = sum
			case *c.Reduce == "REDUCE_MAX":
				values[minute] = most
			case *c.Reduce == "REDUCE_PERCENTILE_95":
				points = slices.DeleteFunc(points, math.IsNaN)
				slices.Sort(points)
				values[minute] = points[(len(points)*95+99)/100-1]
			default:
				require.Equal(t, "REDUCE_MEAN", *c.Reduce)
				values[minute] = sum / weight
			}
		}
		found[group] = values
	}
	return found
}

// series is one time series: a point a minute, or none.
type series struct {
	labels map[string]string
	// of is what a point is: gauge, counter, or distribution, of which it is the mean.
	of     string
	points []float64
}

// align slides a window over the series. The weights are those of a mean of distributions.
func (s *series) align(t *testing.T, aligner string, period int) (values, weights []float64) {
	t.Helper()
	values, weights = make([]float64, len(s.points)), make([]float64, len(s.points))
	sum, count := 0.0, 0.0
	for minute, point := range s.points {
		if !math.IsNaN(point) {
			sum, count = sum+point, count+1
		}
		if minute >= period && !math.IsNaN(s.points[minute-period]) {
			sum, count = sum-s.points[minute-period], count-1
		}
		values[minute], weights[minute] = absent, 1
		if count == 0 {
			sum = 0
			continue
		}
		switch aligner + " " + s.of {
		case "ALIGN_DELTA counter":
			values[minute] = sum
		case "ALIGN_RATE counter":
			values[minute] = sum / float64(60*period)
		case "ALIGN_DELTA distribution":
			values[minute], weights[minute] = sum/count, count
		case "ALIGN_MAX gauge", "ALIGN_PERCENTILE_99 distribution":
			most := math.Inf(-1)
			for _, p := range s.points[max(0, minute-period+1) : minute+1] {
				if !math.IsNaN(p) {
					most = max(most, p)
				}
			}
			values[minute] = most
		default:
			require.Fail(t, "no such alignment", "%s of a %s: %s", aligner, s.of, s.labels["metric.type"])
		}
	}
	return values, weights
}

var term = regexp.MustCompile(
	`^((?:resource|metric)\.(?:type|labels\.[a-z_]+)) = ("[^"]+"|one_of\("[^"]+"(?:, "[^"]+")*\))$`)

// parse reads a filter of Cloud Monitoring: terms with AND, each a label and its value, or values.
func parse(t *testing.T, filter string) func(labels map[string]string) bool {
	t.Helper()
	wanted := map[string][]string{}
	for text := range strings.SplitSeq(filter, " AND ") {
		found := term.FindStringSubmatch(text)
		require.NotNil(t, found, "the simulator does not know %q", text)
		require.NotContains(t, wanted, found[1], "a label twice: %s", filter)
		for _, value := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(found[2], -1) {
			wanted[found[1]] = append(wanted[found[1]], value[1])
		}
	}
	require.Contains(t, wanted, "metric.type", filter)
	require.Contains(t, wanted, "resource.type", filter)
	return func(labels map[string]string) bool {
		for key, values := range wanted {
			if !slices.Contains(values, labels[key]) {
				return false
			}
		}
		return true
	}
}

func minutesOf(t *testing.T, seconds string) int {
	t.Helper()
	n := filetest.Must(strconv.Atoi(strings.TrimSuffix(seconds, "s")))(t)
	require.Zero(t, n%60, "%s is not whole minutes", seconds)
	return int(time.Duration(n) * time.Second / time.Minute)
}
