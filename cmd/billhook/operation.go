package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"billhook/internal/console"
)

// watch lists again and again, each time on an empty screen; every 0: once.
func (a *asked) watch(ctx context.Context, every time.Duration) error {
	for {
		if err := a.list(ctx); err != nil || every <= 0 {
			return err
		}
		select {
		case <-a.after(every):
		case <-ctx.Done():
			return nil
		}
		if a.screen.terminal {
			_, _ = io.WriteString(a.stdout, "\x1b[H\x1b[2J") // a closed terminal is no failure of the command
		}
	}
}

// list prints the items of a list, page after page, up to the flag limit, and what the answer says beside them.
func (a *asked) list(ctx context.Context) error {
	in, err := a.input(a.Operation, nil)
	if err != nil {
		return err
	}
	limit, most := 0, 0 // of all pages, where 0 is no limit, and of one
	if i := slices.IndexFunc(a.Fields, func(f console.Field) bool { return f.Name == "limit" }); i >= 0 {
		most = a.Fields[i].Most()
		limit, _ = strconv.Atoi(cmp.Or(in.Query.Get("limit"), a.Fields[i].Standard)) // its flag takes nothing else
	}
	all := reflect.ValueOf(a.Answer()).Elem()
	items, next := all.FieldByName("Items"), all.FieldByName("Next")
	for page := all; ; page = reflect.ValueOf(a.Answer()).Elem() {
		if in.Query.Del("limit"); limit > 0 {
			in.Query.Set("limit", strconv.Itoa(min(limit-items.Len(), most)))
		}
		if err := a.get(ctx, a.URL(in), page.Addr().Interface()); err != nil {
			return err
		}
		if page != all {
			items.Set(reflect.AppendSlice(items, page.FieldByName("Items")))
			next.Set(page.FieldByName("Next"))
		}
		if next.String() == "" || (limit > 0 && items.Len() >= limit) {
			break
		}
		in.Query.Set("page", next.String())
	}
	if items.Len() == 0 && a.Empty != "" {
		a.printf("%s\n", a.Empty)
	}
	a.notes(a.items(a.Columns, items))
	a.notes(console.Notes(all.Interface()))
	if next.String() != "" {
		a.printf("There are more; raise --limit.\n")
	}
	return a.printJSON(all.Interface())
}

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
		before, key := answer, ""
		if answer, more = a.Answer(), false; a.Needs >= console.Reason {
			key = uuid.NewString()
		}
		if err := a.ask(ctx, a.Method, a.URL(in), key, question, answer); err != nil {
			return err
		}
		if parts, ok := answer.(console.Parted); ok {
			page := parts.Join(before)
			in.Query.Set("page", page)
			more = page != ""
		}
	}
	failure := console.Failure(answer)
	if a.wait > 0 {
		if answer, err = a.follow(ctx, answer.(console.Followed)); err != nil { //nolint:forcetypeassert // a row that follows something answers so
			return err
		}
		failure = cmp.Or(console.Failure(answer), answer.(console.Followed).Missed()) //nolint:forcetypeassert // as above
	}
	a.fields(a.Columns, answer)
	if err := a.printJSON(answer); err != nil || failure == "" {
		return err
	}
	return errors.New(failure)
}

// followEvery is how often a command looks at what it follows.
const followEvery = time.Second

// follow goes on with what the operation has begun, until that has ended, or for as long as was asked.
func (a *asked) follow(ctx context.Context, answer console.Followed) (any, error) {
	next, _ := a.known.Find(a.Follow)
	show, _ := a.known.Find(next.Before)
	limited, cancel := context.WithTimeout(ctx, a.wait)
	defer cancel()
	told, of := "", console.Input{Path: map[string]string{"id": console.Member(answer, "id")}}
	if _, more := answer.Stands(); !more {
		return answer, nil
	}
	err := poll(limited, followEvery, http.StatusConflict, func() (bool, error) {
		if err := a.ask(limited, next.Method, next.URL(of), "", nil, next.Answer()); err != nil {
			return false, err
		}
		now := show.Answer()
		if err := a.get(limited, show.URL(of), now); err != nil {
			return false, err
		}
		answer = now.(console.Followed) //nolint:forcetypeassert // as in print
		line, more := answer.Stands()
		if line != told {
			a.printf("%s\n", line)
		}
		told = line
		return !more, nil
	})
	if err != nil && limited.Err() != nil {
		a.printf("It goes on by itself. Look on: bin/billhook %s %s\n", a.Follow, console.Member(answer, "id"))
		err = ctx.Err()
	}
	return answer, err
}

// change shows what there is, asks, makes the change and prints what is so then. Where nothing is there yet nobody is
// asked: nothing is lost.
func (a *asked) change(ctx context.Context) error {
	before, ok := a.known.Find(a.Before)
	if !ok {
		return a.print(ctx, nil)
	}
	in, err := a.input(before, nil)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	err = a.get(ctx, before.URL(console.Input{Path: in.Path, Query: in.Query}), &raw)
	if problem, ok := errors.AsType[*problemError](err); err != nil && (!ok || problem.Status != http.StatusNotFound) {
		return err
	}
	known, now, expected := err == nil, before.Answer(), map[string]any{}
	if known {
		if err := json.Unmarshal(raw, now); err != nil {
			return fmt.Errorf("ask the worker: answer: %w", err)
		}
		_ = json.Unmarshal(raw, &expected) // it was an object a line ago
		if a.output != asCSV {             // a file has one table: what is so then
			a.fields(before.Columns, now)
		}
	}
	if a.Help != "" {
		a.printf("%s\n", a.Help)
	}
	if a.reason.dryRun {
		return a.printJSON(now)
	}
	if known {
		if err := a.confirm(a.call.InOrStdin(), a.reason.yes, append(a.args, a.Verb())[0], a.Verb()+" it"); err != nil {
			return err
		}
	}
	return a.print(ctx, expected)
}
