package main

import (
	"fmt"
	"strings"

	"billhook/internal/console/ops"
)

func waiting(q ops.Queue) string {
	var parts []string
	switch w := q.Waiting; {
	case w.Unacknowledged == nil && q.Enabled:
		parts = append(parts, "broker unknown")
	case w.Unacknowledged == nil || *w.Unacknowledged == 0:
	default:
		in := fmt.Sprintf("%d in broker", *w.Unacknowledged)
		if q.Backlog != nil && q.Backlog.Max > 0 {
			in = fmt.Sprintf("%d of %d in broker", *w.Unacknowledged, q.Backlog.Max)
		}
		parts = append(parts, in+since(w.OldestUnackedSeconds))
	}
	for _, kept := range kept(q.Waiting) {
		parts = append(parts, kept.number+" "+kept.place)
	}
	return strings.Join(parts, ", ")
}

func since(seconds *int64) string {
	if seconds == nil {
		return ""
	}
	return " for " + age(*seconds)
}

type inPlace struct{ number, place string }

func kept(w ops.Waiting) (places []inPlace) {
	add := func(c ops.Count, place string) {
		if c.Count > 0 {
			places = append(places, inPlace{number(c), place})
		}
	}
	add(w.Delayed, "delayed")
	add(w.Outbox, "in outbox")
	add(w.InReplay, "in replay")
	add(w.ForApproval, "for approval")
	return places
}

func (p *program) printWaits(w ops.Elsewhere) {
	places := kept(w.Waiting)
	if len(w.InBroker) == 0 && len(w.Unknown) == 0 && len(places) == 0 {
		p.printf("\nNothing waits in the broker, delayed, in the outbox, in a replay or for approval.\n")
		return
	}
	p.printf("\nBeside these, or not yet among them, there wait\n")
	for _, in := range w.InBroker {
		p.printf("  %-8d in the broker, %s%s\n", in.Messages, in.Queue, since(positive(in.OldestSeconds)))
	}
	for _, kept := range places {
		p.printf("  %-8s %s\n", kept.number, kept.place)
	}
	if len(w.Unknown) > 0 {
		p.printf("  unknown  in the broker, %s\n", uncounted(len(w.Unknown)))
	}
}

func uncounted(queues int) string {
	if queues == 1 {
		return "1 queue that has not been counted"
	}
	return fmt.Sprintf("%d queues that have not been counted", queues)
}

func positive(n int64) *int64 {
	if n <= 0 {
		return nil
	}
	return &n
}
