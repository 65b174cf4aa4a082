package ops

import (
	"log/slog"
	"net/http"

	"billhook/internal/dedupe"
)

// Cleaned is the outcome of a cleanup, or of a dry run.
type Cleaned struct {
	dedupe.Pruned
	DryRun bool `json:"dry_run"`
	// Next is the page of the next request; empty at the end.
	Next string `json:"next"`
}

// prune is how many records one cleanup reads.
const prune = 500

// cleanup removes records that were completed longer ago than older_than and have expired.
// A record that its queue still remembers stays and is counted: without it a late duplicate
// would be processed.
func (a *API) cleanup(r *http.Request) (Cleaned, error) {
	params := read(r, "older_than", "dry_run", "page")
	now, dry := a.Now().UTC(), params.flag("dry_run")
	age, err := parseAge(params.values.Get("older_than"))
	if err != nil {
		params.refuse("older_than_invalid", "Say older_than= with an age such as 36h or 30d.")
	}
	at := params.page("cleanup", Place{})
	if err := params.err(); err != nil {
		return Cleaned{}, err
	}
	done, next, err := dedupe.Prune(r.Context(), a.Store, now.Add(-age), now, at.id, prune, dry)
	a.Log.LogAttrs(r.Context(), slog.LevelInfo, "ops cleanup", slog.String("who", Who(r.Context())), slog.Bool("dry_run", dry),
		slog.Int("removed", done.Removed), slog.Int("remembered", done.Remembered), slog.Bool("failed", err != nil))
	answer := Cleaned{Pruned: done, DryRun: dry}
	if next != "" {
		answer.Next = params.token("cleanup", Place{id: next})
	}
	return answer, err
}
