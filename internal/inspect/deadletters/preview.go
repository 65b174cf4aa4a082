package deadletters

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"billhook/internal/inspect/bulk"
	"billhook/internal/inspect/events"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
)

// Preview is what an operation would change now. The person who begins the operation sees it, and so does the
// one who approves it.
type Preview struct {
	// Total is exact. The fields after Looked describe only the newest of them: all, or maxLooked.
	Total    int    `json:"total" show:"Dead letters"`
	Looked   int    `json:"looked"`
	ByReason Counts `json:"by_reason" show:"Reasons"`
	ByType   Counts `json:"by_type" show:"Types"`
	// Keys is how many ordering keys they have.
	Keys int `json:"keys" show:"Ordering keys"`
	// Looping were replayed MaxReplays times and are skipped unless forced; Omitted were too large to keep.
	Looping int       `json:"looping"`
	Omitted int       `json:"omitted"`
	Oldest  time.Time `json:"oldest,omitzero" show:"Oldest"`
	Newest  time.Time `json:"newest,omitzero" show:"Newest"`
	// Filter is what was chosen, in the form that an operation takes.
	Filter bulk.Filter `json:"filter"`
	// Items are the newest of them, at most maxTried.
	Items []Previewed `json:"items"`
	// FourEyes: an operation on them needs a second person.
	FourEyes bool `json:"-"`
}

// Previewed is a dead letter, with what a worker would write, emit and call for it now.
type Previewed struct {
	deadletter.Item
	// Trial is the result of the trial; absent: there is none, and Unknown says why.
	Trial   *dryrun.Trial `json:"trial,omitempty"`
	Unknown string        `json:"unknown,omitempty"`
	// Later counts the later messages of its ordering key; absent if it is not the only dead letter.
	Later *Later `json:"later,omitempty"`
}

// Counts has a number for each name.
type Counts map[string]int

// String lists the names with their numbers, the most frequent first.
func (c Counts) String() string {
	names := slices.SortedFunc(maps.Keys(c), func(a, b string) int {
		return cmp.Or(c[b]-c[a], strings.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", cmp.Or(name, "none"), c[name])
	}
	return strings.Join(names, ", ")
}

// A preview reads at most maxLooked items, and tries at most maxTried of them, for at most tryTime.
const (
	maxLooked = 500
	maxTried  = 20
	tryTime   = time.Second
)

// Preview counts the matching items, reads the newest of them, and has a worker try the newest of those. It
// changes nothing.
func (a Reads) Preview(ctx context.Context, f bulk.Filter) (Preview, error) {
	p := Preview{ByReason: Counts{}, ByType: Counts{}, Filter: f, Items: []Previewed{}}
	q, _ := a.Catalog.Queue(f.Queue)
	p.FourEyes = q.FourEyes
	var err error
	if p.Total, err = a.Operator.Total(ctx, f); err != nil || p.Total == 0 {
		return p, err
	}
	keys := map[string]bool{}
	for item, err := range a.Operator.Each(ctx, f) {
		if err != nil {
			return Preview{}, err
		}
		p.Looked++
		p.ByReason[item.Reason]++
		p.ByType[item.EventType]++
		keys[item.OrderingKey] = true
		if item.ReplayCount >= bulk.MaxReplays {
			p.Looping++
		}
		if item.Omitted > 0 {
			p.Omitted++
		}
		p.Oldest, p.Newest = item.Kept, cmp.Or(p.Newest, item.Kept) // the next is older
		if len(p.Items) < maxTried {
			p.Items = append(p.Items, Previewed{Item: item})
		}
		if p.Looked == maxLooked {
			break
		}
	}
	p.Keys = len(keys)
	if len(p.Items) == 1 {
		if p.Items[0].Later, err = a.Later(ctx, p.Items[0].Item); err != nil {
			return Preview{}, err
		}
	}
	limited, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	worker, refused := a.Worker(nil)
	for i := range p.Items {
		one := &p.Items[i]
		err := refused
		if err == nil {
			one.Trial, err = events.Replay(limited, worker, one.Item)
		}
		if err != nil {
			one.Trial, one.Unknown = nil, events.Unknown(limited, err)
		}
	}
	return p, nil
}

// Notes say what is left out, and what a replay would do with each dead letter now.
func (p Preview) Notes() (lines []string) {
	if p.Total == 0 {
		lines = append(lines, "Nothing matches.")
	}
	if p.Looked < p.Total {
		lines = append(lines, fmt.Sprintf("All are counted, and the newest %d were looked at.", p.Looked))
	}
	if p.Looping > 0 {
		lines = append(lines, fmt.Sprintf("A replay passes by %d that were replayed %d times, unless it is forced.",
			p.Looping, bulk.MaxReplays))
	}
	if p.Omitted > 0 {
		lines = append(lines, fmt.Sprintf("A replay passes by %d that were too large to keep.", p.Omitted))
	}
	for i, item := range p.Items {
		if i == 0 {
			lines = append(lines, "If these were replayed now:")
		}
		lines = append(lines, fmt.Sprintf("%s %s, died of %s: %s", cmp.Or(item.EventID, item.ID), item.EventType,
			strings.TrimSpace(item.Reason+" "+item.Detail), item.Now()))
		if item.Later != nil {
			lines = append(lines, "  later messages of its key: "+item.Later.String())
		}
		if item.Trial != nil {
			for _, effect := range item.Trial.Effects() {
				lines = append(lines, "  "+effect)
			}
		}
	}
	return lines
}

// Now says what a replay would do with it.
func (p Previewed) Now() string {
	if p.Trial == nil {
		return "not known: " + p.Unknown
	}
	return p.Trial.Would()
}
