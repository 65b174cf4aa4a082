package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// answered is something that was sent, with the door's answer.
type answered interface {
	answer() reply
	// next are commands of this program that show more of it, or go on with it.
	next() []string
}

// waitsLong is what the help of send and enqueue says of refusals.
const waitsLong = "Where the webhook service asks to come again later (Retry-After), the command waits so long and sends the same again,\n" +
	"until it is accepted or the command is stopped. It succeeds only if everything was accepted."

// repeated sends so many times, one after the other, and prints the answers. The answer to one
// request is printed as it is, and those to several as a list. next makes what is sent once, and
// returns what posts it: called again, it posts what is to be sent again. The error of repeated says
// how many were refused.
func repeated[T answered](ctx context.Context, p *program, times int, next func() (func() ([]T, error), error)) error {
	all, each, err := []T{}, 1, error(nil)
	for range times {
		var post func() ([]T, error)
		if post, err = next(); err != nil {
			break
		}
		var count int
		all, count, err = patiently(ctx, p, all, times > 1, post)
		if each = max(each, count); err != nil {
			break
		}
	}
	refused := 0
	for _, one := range all {
		if one.answer().Status >= http.StatusBadRequest {
			refused++
		}
	}
	alone := times*each == 1 && len(all) == 1
	switch missing := times*each - len(all); {
	case alone && refused == 0:
		for _, command := range all[0].next() {
			p.printf("  > bin/billhook %s\n", command)
		}
	case missing > 0 && times*each > 1:
		p.printf("%d were accepted, %d refused, %d not sent or without an answer.\n", len(all)-refused, refused, missing)
	case !alone && len(all) > 0:
		p.printf("%d were accepted, %d refused.\n", len(all)-refused, refused)
	}
	switch {
	case err != nil || refused == 0:
	case alone:
		err = fmt.Errorf("refused with %d", all[0].answer().Status)
	default:
		err = fmt.Errorf("%d of %d were refused", refused, len(all))
	}
	if alone {
		return errors.Join(err, p.printJSON(all[0]))
	}
	if len(all) == 0 {
		return err
	}
	return errors.Join(err, p.printJSON(map[string]any{"items": all, "next": ""}))
}

// patiently posts, waits as long as the answers ask for, and posts again, until none asks for a wait.
// It adds to all what was accepted or refused for good, and returns how many answers one request has.
func patiently[T answered](
	ctx context.Context, p *program, all []T, many bool, post func() ([]T, error),
) (_ []T, count int, err error) {
	for {
		some, err := post()
		if err != nil {
			return all, count, err
		}
		count = max(count, len(some))
		var later reply
		for _, one := range some {
			switch r := one.answer(); {
			case !r.waits():
				p.printReply(r, many || count > 1)
				all = append(all, one)
			case r.RetryAfter > later.RetryAfter:
				later = r
			}
		}
		if !later.waits() {
			return all, count, nil
		}
		p.printf("%d  %s: %s\n     Sending it again in %d s.\n", later.Status, later.Code, later.Detail, later.RetryAfter)
		select {
		case <-p.after(time.Duration(later.RetryAfter) * time.Second):
		case <-ctx.Done():
			return all, count, fmt.Errorf("stopped before everything was sent: the last answer was %d %s", later.Status, later.Code)
		}
	}
}

// untold adds to an error what to do where the door's answer is not known. id is the event's, where
// the program knows it.
func untold(err error, id string) error {
	if id == "" {
		return err
	}
	return fmt.Errorf("%w; whether it was taken is not known: send it again with --event-id %s", err, id)
}
