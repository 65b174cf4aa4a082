package ops

import (
	"context"
	"time"

	"billhook/internal/console"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Lane is an ordering key of a topic with messages that wait to be published.
type Lane struct {
	ID string `json:"id" show:"Lane"`
	// DueAt is the relay's next attempt.
	DueAt time.Time `json:"due_at,omitzero" show:"Published next"`
	// OldestAt is since when its oldest message waits, WaitsSeconds for how long.
	OldestAt     time.Time       `json:"oldest_at,omitzero" show:"Since"`
	WaitsSeconds console.Seconds `json:"waits_seconds" show:"Waits"`
}

// Lanes is a list of lanes, the longest waiting first, without a next page. More: a higher limit shows more.
type Lanes struct {
	console.List[Lane]
	More bool `json:"more"`
}

// Notes says that there is more.
func (l Lanes) Notes() []string {
	if l.More {
		return []string{"More wait than are shown."}
	}
	return nil
}

// ListLanes asks for the lanes that wait longest.
type ListLanes struct {
	Limit int `json:"-" query:"limit" default:"50" validate:"min=1,max=999" help:"the most lanes"`
}

// ahead is how far another instance's clock may be before this one's.
const ahead = time.Minute

// OutboxOperations are what people do with the outbox, which is to look at it.
func (a Reads) OutboxOperations() []console.Operation {
	return []console.Operation{console.New(console.Row{
		Name: "outbox ls", Path: "GET /v1/ops/outbox", Summary: "List what is committed and waits to be published, by ordering key, the longest waiting first",
		Empty: "Nothing waits to be published.",
	}, func(ctx context.Context, _ audit.Author, in ListLanes) (Lanes, error) {
		found, err := a.oldestLanes(ctx, in.Limit+1)
		return Lanes{List: console.ListOf(found[:min(len(found), in.Limit)], store.Cursor{}), More: len(found) > in.Limit}, err
	})}
}

func (a Reads) oldestLanes(ctx context.Context, limit int) ([]Lane, error) {
	now := a.Now().UTC()
	longest, err := lane.Longest(ctx, a.Store, lane.Outbox, now.Add(ahead), limit)
	found := make([]Lane, len(longest))
	for i, l := range longest {
		found[i] = Lane{ID: l.ID(), DueAt: l.DueAt, OldestAt: l.OldestAt, WaitsSeconds: secondsOf(now.Sub(l.OldestAt))}
	}
	return found, err
}

// secondsOf is a length of time in whole seconds; what another clock has from the future is none.
func secondsOf(d time.Duration) console.Seconds { return max(0, console.Seconds(d.Seconds())) }
