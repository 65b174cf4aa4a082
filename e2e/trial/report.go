package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// table prints rows in columns when its run ends. A row without a cell ends a table: the next one has columns
// of its own.
type table struct {
	mu   sync.Mutex
	rows *tabwriter.Writer
}

func (r *run) table(head ...any) *table {
	t := &table{rows: tabwriter.NewWriter(r.out, 0, 0, 3, ' ', 0)}
	r.Cleanup(func() { _ = t.rows.Flush() }) // to the output, like everything
	t.row(head...)
	return t
}

func (t *table) row(cells ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, cell := range cells {
		_, _ = fmt.Fprint(t.rows, cell, "\t")
	}
	_, _ = fmt.Fprintln(t.rows)
}

// counts are of things by their names.
type counts map[string]int

// add counts so many more; of nothing there is nothing to say.
func (c counts) add(name string, n int) {
	if n != 0 {
		c[name] += n
	}
}

func (c counts) total() (n int) {
	for _, one := range c {
		n += one
	}
	return n
}

func (c counts) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		all = append(all, fmt.Sprintf("%s %d", name, c[name]))
	}
	return strings.Join(all, ", ")
}

func short(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

func quantile(waits []time.Duration, share float64) time.Duration {
	slices.Sort(waits)
	return waits[int(share*float64(len(waits)-1))]
}
