package pages

import (
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/internal/console/ops"
)

// upkeepRoutes adds the outbox, and the removal of what has expired.
func (p *Pages) upkeepRoutes(r chi.Router) {
	p.page(r, "/outbox", "outbox.html", p.outbox)
	p.outcome(r, "/cleanup", "cleanup.html", p.expired, p.cleanup)
}

func (p *Pages) outbox(v *visit) (any, error) {
	var lanes ops.Lanes
	err := v.get("/v1/ops/outbox?limit="+rows, &lanes)
	return lanes, err
}

// cleaned is what a cleanup has found, or removed.
type cleaned struct {
	ops.Cleaned
	// OlderThan is the age that was asked for; empty: nobody has asked.
	OlderThan string
	// Removing: it is what was removed, and not only found.
	Removing bool
}

// Bounds of one request: how many pages of 500 records it looks at to count or to remove, and for how
// long.
const (
	countedPages = 2
	cleanupPages = 10
	cleanupFor   = 2 * time.Second
)

// expired counts what a cleanup would remove. It asks by POST, as the API has it, and changes nothing.
func (p *Pages) expired(v *visit) (any, error) {
	if v.query("older_than") == "" {
		return cleaned{}, nil
	}
	return v.clean(p.Now, cleaned{OlderThan: v.query("older_than")}, "")
}

func (p *Pages) cleanup(v *visit) (any, error) {
	return v.clean(p.Now, cleaned{OlderThan: v.query("older_than"), Removing: true}, v.form("page"))
}

// clean looks at page after page, until the last or a bound.
func (v *visit) clean(now func() time.Time, all cleaned, from string) (cleaned, error) {
	begun, atMost := now(), countedPages
	if all.Removing {
		atMost = cleanupPages
	}
	all.DryRun, all.Next = !all.Removing, from
	for range atMost {
		var page ops.Cleaned
		path := with("/v1/ops/cleanup", "older_than", all.OlderThan, "dry_run", strconv.FormatBool(all.DryRun), "page", all.Next)
		if err := v.post(path, nil, &page); err != nil {
			return all, err
		}
		all.LookedAt, all.Removed, all.Remembered, all.Next = all.LookedAt+page.LookedAt, all.Removed+page.Removed, all.Remembered+page.Remembered, page.Next
		if page.Next == "" || now().Sub(begun) > cleanupFor {
			break
		}
	}
	return all, nil
}
