package catalog

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"
)

const (
	usageFile = "usage.yaml"
	// MaxUsage bounds a quota and a period's usage: every JSON reader keeps integers up to it exact.
	MaxUsage     = 1<<53 - 1
	maxThreshold = 1000
	maxGrace     = 31 * 24 * time.Hour // no period is billed later than a month after its end
)

// Usage says which usage is counted, and at which shares of a quota a warning is emitted.
type Usage struct {
	// Grace is how long after the end of its period an event is still counted.
	Grace time.Duration `json:"grace"`
	// Ahead is how far ahead of our clock an event may say that it occurred.
	Ahead time.Duration `json:"ahead"`
	// Thresholds are the percents of a quota at which a warning is emitted, rising.
	Thresholds []int64          `json:"thresholds"`
	Meters     map[string]Meter `json:"-"` // those with a quota, by name
}

// Meter is a kind of usage, with the quotas that warnings are about.
type Meter struct {
	Description string `json:"description"` // what is counted
	// Quota is the allowance of a period, for the plans that are not in plans; 0 is none.
	Quota int64 `json:"quota"`
	// Plans are the quotas of plans, by the id of the subscription's product.
	Plans map[string]int64 `json:"plans"`
}

// QuotaOf returns the allowance of a meter for a plan; 0 is none. plan is empty if it is unknown.
func (u Usage) QuotaOf(meter, plan string) int64 {
	m := u.Meters[meter]
	if own, ok := m.Plans[plan]; ok {
		return own
	}
	return m.Quota
}

// readUsage reads the file; a folder without it has the built-in limits, and no meters.
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
		require(0 < u.Grace && u.Grace <= maxGrace, "usage.grace", "must be above 0s and at most 2678400s")
		within(require, "usage.ahead", u.Ahead, 0, time.Hour, "")
		require(len(u.Thresholds) > 0 && rises(u.Thresholds), "usage.thresholds",
			"must list percents of 1 to 1000, each above the one before")
	}
	if absent {
		return
	}
	c.Usage.Meters = each(r, file["meters"], usageFile, "meters", "meter",
		func(name string, m *Meter, require requirer) {
			require(anyCase.MatchString(name), "name", nameRule)
			require(m.Description != "", "description", "is missing")
			within(require, "quota", m.Quota, 0, MaxUsage, "which is none")
			for _, plan := range slices.Sorted(maps.Keys(m.Plans)) {
				path := join("plans", plan)
				require(productID.MatchString(plan), path, "must be the id of a product")
				within(require, path, m.Plans[plan], 0, MaxUsage, "which is none")
			}
		})
}

func rises(percents []int64) bool {
	risen := slices.Compact(slices.Sorted(slices.Values(percents)))
	return slices.Equal(risen, percents) && risen[0] >= 1 && slices.Max(risen) <= maxThreshold
}
