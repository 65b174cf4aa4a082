package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"billhook/internal/console"

	"github.com/google/uuid"
)

// print calls the operation, which may expect what was there before, and prints its answer.
func (a *asked) print(ctx context.Context, expected map[string]any) error {
	in, err := a.input(a.Operation, expected)
	if err != nil {
		return err
	}
	var question any
	if len(in.Body) > 0 {
		question = json.RawMessage(in.Body)
	}
	answer := a.Answer()
	for more := true; more; {
		before := answer
		answer, more = a.Answer(), false
		if a.Needs >= console.Reason {
			a.ask.key = uuid.NewString()
		}
		if err := a.ask.do(ctx, a.Method, a.URL(in), question, answer); err != nil {
			return err
		}
		if parts, ok := answer.(console.Parted); ok {
			page := parts.Join(before)
			in.Query.Set("page", page)
			more = page != ""
		}
	}
	if a.wait > 0 {
		if answer, err = a.follow(ctx, answer); err != nil {
			return err
		}
	}
	a.p.fields(a.Columns, answer)
	if err := a.p.printJSON(answer); err != nil {
		return err
	}
	if failure := console.Failure(answer); failure != "" {
		return errors.New(failure)
	}
	if followed, ok := answer.(console.Followed); ok && a.wait > 0 && followed.Missed() != "" {
		return errors.New(followed.Missed())
	}
	return nil
}

// followEvery is how often a command looks at what it follows.
const followEvery = time.Second

// follow goes on with what the operation has begun, until that has ended, or for as long as was asked.
func (a *asked) follow(ctx context.Context, answer any) (any, error) {
	next, _ := a.p.known.Find(a.Follow)
	limited, cancel := context.WithTimeout(ctx, a.wait)
	defer cancel()
	show, _ := a.p.known.Find(next.Before)
	told, of := "", console.Input{Path: map[string]string{"id": console.Member(answer, "id")}}
	goesOn := func() bool {
		followed, _ := answer.(console.Followed) // a row that follows something answers so
		line, more := followed.Stands()
		if line != told {
			a.p.printf("%s\n", line)
		}
		told = line
		return more
	}
	followed, _ := answer.(console.Followed) // as above
	if _, more := followed.Stands(); !more {
		return answer, nil
	}
	err := poll(limited, followEvery, http.StatusConflict, func() (bool, error) {
		now := show.Answer()
		if err := a.ask.do(limited, next.Method, next.URL(of), nil, next.Answer()); err != nil {
			return false, err
		}
		if err := a.ask.get(limited, show.URL(of), now); err != nil {
			return false, err
		}
		answer = now
		return !goesOn(), nil
	})
	if err != nil && limited.Err() != nil {
		a.p.printf("It goes on by itself. Look on: bin/billhook %s %s\n", a.Follow, console.Member(answer, "id"))
		err = ctx.Err()
	}
	return answer, err
}

// change shows what there is, asks, makes the change and prints what is so then. Where nothing is there yet nobody is
// asked: nothing is lost.
func (a *asked) change(ctx context.Context) error {
	expected := map[string]any{}
	if before, ok := a.p.known.Find(a.Before); ok {
		in, err := a.input(before, nil)
		if err != nil {
			return err
		}
		var raw json.RawMessage
		err = a.ask.get(ctx, before.URL(console.Input{Path: in.Path, Query: in.Query}), &raw)
		if problem, ok := errors.AsType[*problemError](err); err != nil && (!ok || problem.Status != http.StatusNotFound) {
			return err
		}
		known := err == nil
		now := before.Answer()
		if known {
			if err := json.Unmarshal(raw, now); err != nil {
				return fmt.Errorf("ask the worker: answer: %w", err)
			}
			_ = json.Unmarshal(raw, &expected) // it was an object a line ago
			if !a.p.asCSV {                    // a file has one table: what is so then
				a.p.fields(before.Columns, now)
			}
		}
		if a.Help != "" {
			a.p.printf("%s\n", a.Help)
		}
		if known || a.reason.dryRun {
			if goOn, err := a.reason.confirmed(a.p, a.call, now, append(a.args, a.Verb())[0], a.Verb()+" it"); !goOn {
				return err
			}
		}
	}
	return a.print(ctx, expected)
}
