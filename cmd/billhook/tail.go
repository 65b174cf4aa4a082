package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"billhook/internal/console"
	"billhook/internal/inspect/events"
	"billhook/internal/platform/audit"
)

const tailEvery = 2 * time.Second

func (p *program) eventsTail() {
	list, _ := known().Find("events ls")
	list.Name, list.Summary = "events tail", "Follow events as they come in and end"
	list.Help = "It begins with the newest events, and goes on until Ctrl-C: a line for each event that comes in, and another each time that it\n" +
		"has gone on. With --json each line is a JSON object. Where more comes in than it can show, it says so."
	p.command(list, func(ctx context.Context, a *asked) error { return a.tail(ctx) })
}

// tail prints the events that are new, or have changed since the look before, the oldest first. A worker that cannot be
// asked is asked again, but at first.
func (a *asked) tail(ctx context.Context) error {
	in, err := a.input(a.Operation, nil)
	if err != nil {
		return err
	}
	var known map[events.Line]bool
	err = a.poll(ctx, tailEvery, http.StatusTooManyRequests, func() (done bool, err error) {
		var page console.List[events.Line]
		if err := a.get(ctx, a.URL(in), &page); err != nil {
			if known != nil {
				a.warn("The worker cannot be asked: %v", err)
			}
			return known == nil, err
		}
		seen := func(l events.Line) bool { return known[l] }
		if known != nil && page.Next != "" && !slices.ContainsFunc(page.Items, seen) {
			a.warn("More has come in than is shown here; see: bin/billhook events ls")
		}
		now := map[events.Line]bool{}
		for _, l := range slices.Backward(page.Items) {
			if now[l] = true; known[l] {
				continue
			}
			at, became := l.CreatedAt.UTC().Format(time.RFC3339), cmp.Or(l.Result, l.Reason)
			a.printf("%s  %s  %s  %s  %s  %s\n", at, l.Queue, l.EventID, l.EventType, l.Status, became)
			if a.output == asJSON {
				line, _ := json.Marshal(l) // texts and times always marshal
				_, err = fmt.Fprintln(a.stdout, audit.Escape(string(line)))
			}
		}
		known = now
		return false, err
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // Who stops it wants no error.
	}
	return err
}
