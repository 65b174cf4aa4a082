package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"billhook/internal/console/ops"
	"billhook/internal/pipeline/deadletter"
)

func seenOf(ctx context.Context, ask client, f deadletter.Filter, preview ops.Preview, w patience) ([]deadletter.Item, error) {
	switch {
	case !w.waits():
		return nil, nil
	case len(preview.Items) == preview.Total:
		var seen []deadletter.Item
		for _, one := range preview.Items {
			seen = append(seen, one.Item)
		}
		return seen, nil
	}
	return openOf(ctx, ask, f)
}

func openOf(ctx context.Context, ask client, f deadletter.Filter) ([]deadletter.Item, error) {
	open, err := pages[deadletter.Item](ctx, ask, "/v1/ops/dead-letters", query(f), 0)
	return open.Items, err
}

// begins is how often a command tries to begin an operation while others deal with the same dead letters.
const begins = 10

// begin begins an operation on what the person has seen. Where others have dealt with some of that meanwhile it
// begins one on the rest: the operation has no id where nothing is left. What nobody has seen stays as it is.
func begin(ctx context.Context, ask client, kind deadletter.Kind, request ops.Request, seen []deadletter.Item) (op deadletter.Operation, err error) {
	for range begins {
		err = ask.post(ctx, "/v1/ops/dead-letters/"+string(kind), request, &op)
		problem := (*problemError)(nil)
		if err == nil || len(seen) == 0 || !errors.As(err, &problem) || problem.Status != http.StatusConflict {
			return op, err
		}
		open, failed := openOf(ctx, ask, request.Filter)
		if failed != nil {
			return op, failed
		}
		if slices.ContainsFunc(open, func(i deadletter.Item) bool { return !has(seen, i.ID) }) {
			return op, err
		}
		if request.Expect = len(open); len(open) == 0 {
			return deadletter.Operation{}, nil
		}
	}
	return op, err
}

func has(items []deadletter.Item, id string) bool {
	return slices.ContainsFunc(items, func(i deadletter.Item) bool { return i.ID == id })
}

// awaitOthers returns those of the dead letters that the person has seen and another operation has dealt with last,
// or none, as they are once no replay of them is under way, or as they are after a time.
func awaitOthers(ctx context.Context, ask client, operation string, seen []deadletter.Item, atMost time.Duration) (others []deadletter.Item, err error) {
	limited, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	err = poll(limited, lookEvery, http.StatusConflict, func() (bool, error) {
		var found []deadletter.Item
		for some := range slices.Chunk(seen, deadletter.MaxChosen) {
			ids := make([]string, len(some))
			for n, item := range some {
				ids[n] = item.ID
			}
			values := url.Values{"queue": {some[0].Queue}, "items": {strings.Join(ids, ",")}, "state": {"all"}}
			page, err := pages[deadletter.Item](limited, ask, "/v1/ops/dead-letters", values, 0)
			if err != nil {
				return false, err
			}
			found = append(found, page.Items...)
		}
		others = slices.DeleteFunc(found, func(i deadletter.Item) bool { return i.Operation == operation && operation != "" })
		return !slices.ContainsFunc(others, func(i deadletter.Item) bool { return i.State == deadletter.Replayed }), nil
	})
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		err = nil // as they were last
	}
	return others, err
}

func byOthers(i deadletter.Item) string {
	became := string(i.State)
	switch i.State {
	case deadletter.Open:
		return "still open"
	case deadletter.Replayed:
		became = "still waiting"
	case deadletter.Completed:
		became = "completed by hand"
	default:
	}
	if len(i.History) > 0 {
		became += ", by " + i.History[0].Who
	}
	return became
}
