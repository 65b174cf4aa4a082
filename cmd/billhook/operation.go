package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"billhook/docs/reference"
	"billhook/internal/console"
	"billhook/internal/console/api"
	"billhook/internal/dedupe"
	"billhook/internal/inspect/events"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/screen"
	"billhook/internal/platform/serve"
)

// watch lists once, or repeatedly, each time on an empty screen.
func (a *invocation) watch(ctx context.Context) error {
	for {
		err := a.write(a.out, func() error { return a.list(ctx) })
		if err != nil || a.every <= 0 {
			return err
		}
		select {
		case <-a.after(a.every):
		case <-ctx.Done():
			return nil
		}
		a.printf("%s", laidOut("\x1b[H\x1b[2J"))
	}
}

// list prints the items of a list, page by page, up to the flag limit, and the notes of the answer. Rows of
// CSV are printed at once: there may be more than fit in memory.
func (a *invocation) list(ctx context.Context) error {
	in, err := a.input(a.Operation, nil)
	if err != nil {
		return err
	}
	limit := 0
	if text, given := a.given["limit"]; given || a.out == "" {
		limit, _ = strconv.Atoi(cmp.Or(text, a.Field("limit").Standard)) // the flag accepts only numbers
	}
	all, count, failure := reflect.ValueOf(a.Answer()).Elem().FieldByName("Items"), 0, error(nil)
	last, err := a.pages(ctx, a.Operation, in, limit, func(items reflect.Value) {
		for i := range items.Len() {
			failure = cmp.Or(failure, console.Failure(items.Index(i).Interface()))
		}
		if a.output != asCSV || console.Blocks(a.Columns) {
			all = reflect.AppendSlice(all, items)
		} else if rows, _ := a.rows(a.Columns, items); len(rows) > 1 {
			screen.CSV(a.stdout, rows[min(count, 1):]) // the headings are printed once
		}
		count += items.Len()
	})
	if err != nil {
		return err
	}
	if all.Len() > 0 {
		last.FieldByName("Items").Set(all)
	}
	if count == 0 && a.Empty != "" {
		a.printf("%s\n", a.Empty)
	}
	a.items(a.Columns, all)
	a.notes(console.Notes(last.Interface()))
	if last.FieldByName("Next").String() != "" {
		a.printf("There are more; raise --limit.\n")
	}
	return errors.Join(a.printJSON(last.Interface()), failure)
}

// pages passes the items of a list to take, page by page, up to a limit; 0: all. It returns the last answer.
func (p *program) pages(
	ctx context.Context, o console.Operation, in console.Input, limit int, take func(items reflect.Value),
) (last reflect.Value, err error) {
	bound, _ := o.Field("limit").Rule("max")
	most, _ := strconv.Atoi(bound) // of one page; 0: no limit
	for left := limit; ; {
		if limit == 0 {
			left = most
		}
		if in.Query.Del("limit"); left > 0 {
			in.Query.Set("limit", strconv.Itoa(min(left, most)))
		}
		last = reflect.ValueOf(o.Answer()).Elem()
		if err := p.get(ctx, o.URL(in), last.Addr().Interface()); err != nil {
			return last, err
		}
		items, next := last.FieldByName("Items"), last.FieldByName("Next").String()
		take(items)
		if left -= items.Len(); next == "" || limit > 0 && left <= 0 {
			return last, nil
		}
		in.Query.Set("page", next)
	}
}

// print calls the operation, with the values that it expects from the answer before, and prints its answer.
func (a *invocation) print(ctx context.Context, expected any) error {
	in, err := a.input(a.Operation, expected)
	if err != nil {
		return err
	}
	answer := a.Answer()
	for more := true; more; more = in.Query.Get("page") != "" {
		before, key := answer, ""
		if answer = a.Answer(); a.Needs >= console.Reason {
			key = uuid.NewString()
		}
		if err := a.ask(ctx, a.Method, a.URL(in), key, in.Body, answer); err != nil {
			return err
		}
		if parts, ok := answer.(console.Parted); ok {
			in.Query.Set("page", parts.Join(before))
		}
	}
	var missed error
	if a.wait > 0 {
		followed, err := a.follow(ctx, answer.(console.Followed)) //nolint:forcetypeassert // its row has Follow
		if err != nil {
			return err
		}
		answer, missed = followed, followed.Missed()
	}
	return errors.Join(a.show(a.Columns, answer), missed)
}

// followEvery is how often a command repeats the operation that it follows.
const followEvery = time.Second

// follow continues what the operation began, until that has ended or the time of --wait is over.
func (a *invocation) follow(ctx context.Context, answer console.Followed) (console.Followed, error) {
	next, _ := known().Find(a.Follow)
	show, _ := known().Find(next.Before)
	limited, cancel := context.WithTimeout(ctx, a.wait)
	defer cancel()
	printed, of := "", console.Input{Path: map[string]string{"id": console.Member(answer, "id")}}
	if _, more := answer.Stands(); !more {
		return answer, nil
	}
	err := a.poll(limited, followEvery, http.StatusConflict, func() (bool, error) {
		if err := a.ask(limited, next.Method, next.URL(of), "", nil, next.Answer()); err != nil {
			return false, err
		}
		now := show.Answer()
		if err := a.get(limited, show.URL(of), now); err != nil {
			return false, err
		}
		answer = now.(console.Followed) //nolint:forcetypeassert // as in print
		line, more := answer.Stands()
		if line != printed {
			a.printf("%s\n", line)
		}
		printed = line
		return !more, nil
	})
	if err != nil && limited.Err() != nil {
		a.printf("It goes on by itself. Look on: bin/billhook %s %s\n", a.Follow, of.Path["id"])
		err = ctx.Err()
	}
	return answer, err
}

// change shows the present state, asks, makes the change and prints the new state. It does not ask if nothing
// exists yet, because nothing can be lost.
func (a *invocation) change(ctx context.Context) error {
	before, ok := known().Find(a.Before)
	if !ok {
		return a.print(ctx, nil)
	}
	in, err := a.input(before, nil)
	if err != nil {
		return err
	}
	now, expected := before.Answer(), any(nil)
	err = a.get(ctx, before.URL(in), now)
	problem, _ := errors.AsType[*serve.Problem](err)
	if err != nil && (problem == nil || problem.Status != http.StatusNotFound) {
		return err
	}
	known := err == nil
	if known {
		expected = now
	}
	if known && a.output != asCSV { // a file has one table: the new state
		a.fields(before.Columns, now)
	}
	if a.Help != "" && (known && !a.yes || a.dryRun) { // else it would read as if it were done
		a.printf("%s\n", a.Help)
	}
	switch {
	case a.dryRun:
		return a.printJSON(now)
	case before.Verb() == "preview" && console.Member(now, "total") == "0":
		return fmt.Errorf("nothing was changed: there is nothing to %s", a.Verb())
	case known:
		if err := a.confirm(a.yes, append(a.args, a.Verb())[0], a.Verb()+" it"); err != nil {
			return err
		}
	}
	return a.print(ctx, expected)
}

// get reads from the worker's API.
func (p *program) get(ctx context.Context, path string, answer any) error {
	return p.ask(ctx, http.MethodGet, path, "", nil, answer)
}

// ask calls the worker's API. If there is no answer, it repeats a request that has a key, which is done once.
func (p *program) ask(ctx context.Context, method, path, key string, body []byte, answer any) error {
	address := strings.TrimSuffix(p.env.Server, "/") + path
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil || request.URL.Host == "" {
		return usageError("--server or BILLHOOK_SERVER: the worker's address is such as http://127.0.0.1:8081")
	}
	headers := map[string]string{"X-Operator": p.env.OpsOperator, "Idempotency-Key": key}
	if tokens := p.env.OpsToken.List(); len(tokens) > 0 {
		headers["Authorization"] = "Bearer " + tokens[0]
	}
	if p.env.ProxyToken != "" {
		headers["Proxy-Authorization"] = "Bearer " + string(p.env.ProxyToken)
	}
	for name, value := range headers {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	status, header, answered, err := exchange(request)
	if err != nil && key != "" && !errors.Is(err, syscall.ECONNREFUSED) && ctx.Err() == nil {
		request.Body, _ = request.GetBody() // bytes can be read again
		status, header, answered, err = exchange(request)
	}
	if err != nil {
		return fmt.Errorf("call the worker: %w", nobody(err, p.env.Server, "--server", "BILLHOOK_SERVER", "worker"))
	}
	if status != http.StatusOK && status != http.StatusCreated {
		unknown := fmt.Sprint(status, " ", http.StatusText(status)) // without a problem document
		problem, code := serve.Problem{Detail: "the worker answers", Code: unknown}, 1
		_ = json.Unmarshal(answered, &problem)
		problem.Status, problem.Code = status, audit.Escape(problem.Code)
		if status == http.StatusBadRequest {
			code = misused
		}
		explained := ""
		if reference.Entries(problem.Code) != nil {
			explained = ", see " + reasonsPage
		}
		return codedError{fmt.Errorf("%s (%w%s)", audit.Escape(problem.Detail), &problem, explained), code}
	}
	if what := header.Get(api.HeaderSkipped); what != "" {
		p.warn("Documents that cannot be read are left out. %s", what)
	}
	if err := p.decode(answered, answer); err != nil {
		return fmt.Errorf("call the worker: answer: %w", err)
	}
	return nil
}

// exchange sends a request, and reads the answer.
func exchange(request *http.Request) (status int, header http.Header, answered []byte, err error) {
	response, err := (&http.Client{Timeout: 30 * time.Second}).Do(request)
	if failed, ok := errors.AsType[*url.Error](err); ok { // the error's address has ids
		operation := strings.SplitN(request.URL.Path, "/", 5)
		operation = operation[:min(4, len(operation))] // such as /v1/ops/search
		err = fmt.Errorf("%s %s%s: %w", request.Method, request.URL.Host, strings.Join(operation, "/"), failed.Err)
	}
	if err != nil {
		return 0, nil, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answered, err = io.ReadAll(io.LimitReader(response.Body, 16<<20))
	return response.StatusCode, response.Header, answered, err
}

func nobody(err error, address, flag, variable, service string) error {
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return fmt.Errorf("nobody listens at %s: set %s or %s to where the %s is (make run starts one): %w",
		address, flag, variable, service, err)
}

// poll repeats ask until it reports done, and returns its error. It continues if the worker is unreachable,
// fails, or answers with the status pending.
func (p *program) poll(
	ctx context.Context, every time.Duration, pending int, ask func() (done bool, err error),
) error {
	for {
		done, err := ask()
		problem, ok := errors.AsType[*serve.Problem](err)
		if done || ok && problem.Status != pending && problem.Status < http.StatusInternalServerError {
			return err
		}
		select {
		case <-p.after(every):
		case <-ctx.Done():
			return fmt.Errorf("waited too long: %w", cmp.Or(err, ctx.Err()))
		}
	}
}

// ended waits until an event is completed or dead-lettered, and returns its record.
func (p *program) ended(ctx context.Context, id string) (e events.Event, err error) {
	err = p.poll(ctx, 50*time.Millisecond, http.StatusNotFound, func() (bool, error) {
		err := p.get(ctx, "/v1/ops/events/"+id, &e)
		return e.Status == dedupe.Completed || len(e.DeadLetters) > 0, err
	})
	return e, err
}

const tailEvery = 2 * time.Second

func (p *program) eventsTail() {
	list, _ := known().Find("events ls")
	list.Name, list.Summary, list.Help = "events tail", "", ""
	p.command(list, func(ctx context.Context, a *invocation) error { return a.tail(ctx) })
}

// tail prints new and changed events, oldest first. Only before the first answer does it end with an error.
func (a *invocation) tail(ctx context.Context) error {
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
			at, became := console.Stamp(l.CreatedAt), cmp.Or(l.Result, l.Reason)
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
