package catalog

import (
	"errors"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"time"
)

const (
	usageFile = "usage.yaml"
	// MaxUsage bounds a quota and a period's usage: every JSON reader keeps integers up to it exact.
	MaxUsage     = 1<<53 - 1
	maxThreshold = 1000
	// Nobody bills a period later than a month after its end.
	maxGrace = 31 * 24 * time.Hour
)

var meterName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]{0,63}$`)

// Usage says which usage is counted, and when somebody is warned of it.
type Usage struct {
	// Grace is how long after the end of its period an event is still counted.
	Grace time.Duration `json:"grace"`
	// Ahead is how far ahead of our clock an event may say that it occurred.
	Ahead time.Duration `json:"ahead"`
	// Thresholds are the percents of a quota at which a warning is emitted, rising.
	Thresholds []int64 `json:"thresholds"`
	// Meters are those with a quota, by name.
	Meters map[string]Meter `json:"-"`
}

// Meter is what of a meter somebody is warned of.
type Meter struct {
	Description string `json:"description"` // what is counted
	// Quota is the allowance of a period, for the plans that are not in plans; 0 is none.
	Quota int64 `json:"quota"`
	// Plans are the quotas of plans, by the id of the subscription's product.
	Plans map[string]int64 `json:"plans"`
}

// QuotaOf returns the allowance of a meter for a plan; 0 is none. The plan is empty where none is known.
func (u Usage) QuotaOf(meter, plan string) int64 {
	m := u.Meters[meter]
	if own, ok := m.Plans[plan]; ok {
		return own
	}
	return m.Quota
}

// readUsage: a folder without the file has the built-in limits, and no meters.
func (c *Catalog) readUsage(r *reader, files fs.FS) {
	_, err := fs.Stat(files, usageFile)
	absent := errors.Is(err, fs.ErrNotExist)
	if absent {
		files = embedded
	}
	file, ok := r.file(files, usageFile, "usage", "meters")
	if !ok {
		return
	}
	if node := file["usage"]; node == nil {
		r.wrong(usageFile, "usage", "is missing")
	} else {
		tree, _ := r.branch(node, usageFile, "usage")
		r.decode(tree, &c.Usage, usageFile, "usage")
		require, u := r.requirer(usageFile), c.Usage
		require(0 < u.Grace && u.Grace <= maxGrace, "usage.grace", `must be above "0s", and at most "2678400s"`)
		require(0 <= u.Ahead && u.Ahead <= time.Hour, "usage.ahead", `must be "0s" to "3600s"`)
		require(len(u.Thresholds) > 0 && rises(u.Thresholds), "usage.thresholds",
			"must list percents of 1 to 1000, each above the one before")
	}
	if absent {
		return
	}
	c.Usage.Meters = each(r, file["meters"], usageFile, "meters", "meter",
		func(name string, m *Meter, require requirer) {
			require(meterName.MatchString(name), "name",
				"must be at most 64 of letters, digits and . _ -, and begin with a letter")
			require(m.Description != "", "description", "is missing")
			require(0 <= m.Quota && m.Quota <= MaxUsage, "quota", "must be 0, which is none, to 9007199254740991")
			for _, plan := range slices.Sorted(maps.Keys(m.Plans)) {
				require(productID.MatchString(plan), join("plans", plan), "must be the id of a product")
				require(0 <= m.Plans[plan] && m.Plans[plan] <= MaxUsage, join("plans", plan),
					"must be 0, which is none, to 9007199254740991")
			}
		})
}

func rises(percents []int64) bool {
	risen := slices.Compact(slices.Sorted(slices.Values(percents)))
	return slices.Equal(risen, percents) && risen[0] >= 1 && slices.Max(risen) <= maxThreshold
}
