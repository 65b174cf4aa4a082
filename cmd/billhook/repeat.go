package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// sent is something that was sent, with the webhook service's answer.
type sent struct {
	reply
	// OrderID and CustomerID are ids of a webhook that others take up.
	OrderID    string `json:"order_id,omitempty"`
	CustomerID string `json:"customer_id,omitempty"`
	// next are commands of this program that show more of it, or go on with it.
	next []string
}

// waitsLong is what the help of send and enqueue says of refusals.
const waitsLong = "Where the webhook service asks to come again later (Retry-After), the command waits so long and sends the same again,\n" +
	"until it is accepted or the command is stopped. It succeeds only if everything was accepted."

// repeated sends so many times, one after the other, and prints the answers. The answer to one
// request is printed as it is, and those to several as a list. next makes what is sent once, and
// returns what posts it: called again, it posts what is to be sent again. The error of repeated says
// how many were refused.
func repeated(ctx context.Context, p *program, times int, next func() (func() ([]sent, error), error)) error {
	all, each, err := []sent{}, 1, error(nil)
	for range times {
		var post func() ([]sent, error)
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
		if one.Status >= http.StatusBadRequest {
			refused++
		}
	}
	alone := times*each == 1 && len(all) == 1
	switch missing := times*each - len(all); {
	case alone && refused == 0:
		for _, command := range all[0].next {
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
		err = fmt.Errorf("refused with %d", all[0].Status)
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
func patiently(ctx context.Context, p *program, all []sent, many bool, post func() ([]sent, error)) (_ []sent, count int, err error) {
	for {
		some, err := post()
		if err != nil {
			return all, count, err
		}
		count = max(count, len(some))
		var later reply
		for _, one := range some {
			switch {
			case !one.waits():
				p.printReply(one.reply, many || count > 1)
				all = append(all, one)
			case one.RetryAfter > later.RetryAfter:
				later = one.reply
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
