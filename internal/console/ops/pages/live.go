package pages

import (
	"bytes"
	"context"
	"net/http"

	"github.com/go-chi/chi/v5"

	"billhook/internal/console/ops"
	"billhook/internal/dedupe"
	"billhook/internal/platform/audit"
)

// Tails shows events as they come in.
type Tails interface {
	// Tail calls show after each look, until ctx or the tail ends. query has the parameters of GET
	// /v1/ops/events/tail, after is the ID of an earlier look or empty. The error is a *serve.Problem or
	// the store's, or show's.
	Tail(ctx context.Context, query, after string, show func(ops.Look) error) error
}

func (p *Pages) liveRoutes(r chi.Router) { p.page(r, "/live", "live.html", p.live) }

// streamRoutes adds what lasts longer than a page.
func (p *Pages) streamRoutes(r chi.Router) {
	if p.Tails != nil {
		r.Get("/live/tail", p.liveTail)
	}
}

// liveFilters are what both the list and the tail of events can be narrowed to.
var liveFilters = []string{"queue", "status", "type", "event_id", "correlation_id", "key"}

// live shows the newest events. A script goes on with those that come.
type live struct {
	Lines    []ops.Line
	Queues   []string
	Statuses []dedupe.Status
	// Tail is the address of the stream; empty: there is none.
	Tail string
}

func (p *Pages) live(v *visit) (any, error) {
	filters := v.filters(liveFilters...)
	var list ops.List[ops.Line]
	if err := v.get(with(with("/v1/ops/events", filters...), "limit", "50"), &list); err != nil {
		return nil, err
	}
	shown := live{Lines: list.Items, Statuses: []dedupe.Status{dedupe.Processing, dedupe.Completed, dedupe.Failed, dedupe.DeadLettered}}
	for _, q := range p.Catalog.Queues {
		shown.Queues = append(shown.Queues, q.ID)
	}
	if p.Tails != nil {
		shown.Tail = with("/ops/live/tail", filters...)
	}
	return shown, nil
}

// filters are the parameters of the address of these names that have a value, by name and value in turn.
func (v *visit) filters(names ...string) (pairs []string) {
	for _, name := range names {
		if value := v.query(name); value != "" {
			pairs = append(pairs, name, value)
		}
	}
	return pairs
}

// row is a line as the page shows it.
type row struct {
	Record string `json:"record"`
	HTML   string `json:"html"`
}

// liveTail streams rows of the page's table.
func (p *Pages) liveTail(w http.ResponseWriter, r *http.Request) {
	v, stream, failed := p.visit(w, r), ops.NewStream(w), false
	after := r.Header.Get("Last-Event-ID")
	if after == "" {
		after = v.query("after")
	}
	query := with("", v.filters(liveFilters...)...)
	if query != "" {
		query = query[1:]
	}
	err := p.Tails.Tail(r.Context(), query, after, func(look ops.Look) error {
		switch {
		case look.Problem != nil:
			failed = true
			return stream.Send("", "problem", look.Problem)
		case look.Quiet() && !failed:
			return stream.Beat()
		}
		failed = false
		rows := make([]row, len(look.Items))
		for i, line := range look.Items {
			var html bytes.Buffer
			if err := p.templates["live.html"].ExecuteTemplate(&html, "live-row", line); err != nil {
				return err
			}
			rows[i] = row{Record: line.Record(), HTML: audit.EscapeLines(html.String())}
		}
		return stream.Send(look.ID, "lines", map[string]any{"rows": rows, "skipped": look.Skipped})
	})
	if err != nil && !stream.Begun() {
		problemOf(err).Write(w)
	}
}
