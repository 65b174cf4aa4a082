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
	"github.com/spf13/cobra"

	"billhook/internal/console"
	"billhook/internal/console/api"
	"billhook/internal/inspect/events"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/serve"
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
		a.printf("%s", own("\x1b[H\x1b[2J"))
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
	items, next := all.FieldByName("Items"), ""
	for more := true; more; more = next != "" && (limit == 0 || items.Len() < limit) {
		if in.Query.Del("limit"); limit > 0 {
			in.Query.Set("limit", strconv.Itoa(min(limit-items.Len(), most)))
		}
		before := items
		all = reflect.ValueOf(a.Answer()).Elem()
		if err := a.get(ctx, a.URL(in), all.Addr().Interface()); err != nil {
			return err
		}
		if items = all.FieldByName("Items"); before.Len() > 0 {
			items.Set(reflect.AppendSlice(before, items))
		}
		next = all.FieldByName("Next").String()
		in.Query.Set("page", next)
	}
	if items.Len() == 0 && a.Empty != "" {
		a.printf("%s\n", a.Empty)
	}
	a.notes(a.items(a.Columns, items))
	a.notes(console.Notes(all.Interface()))
	if next != "" {
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
	if a.Help != "" && (known && !a.reason.yes || a.reason.dryRun) { // where nobody is asked it would sound as if it were done
		a.printf("%s\n", a.Help)
	}
	switch {
	case a.reason.dryRun:
		return a.printJSON(now)
	case before.Verb() == "preview" && console.Member(now, "total") == "0":
		return fmt.Errorf("nothing was changed: there is nothing to %s", a.Verb())
	case known:
		if err := a.confirm(a.call.InOrStdin(), a.reason.yes, append(a.args, a.Verb())[0], a.Verb()+" it"); err != nil {
			return err
		}
	}
	return a.print(ctx, expected)
}

// asks gives a command, and those below it, the flag that says which worker is asked.
func (p *program) asks(command *cobra.Command) *cobra.Command {
	command.PersistentFlags().StringVar(&p.env.Server, "server", p.env.Server, "the worker's address, else that of BILLHOOK_SERVER")
	return command
}

func (p *program) webhookFlag(command *cobra.Command) {
	command.Flags().StringVar(&p.env.Webhook, "webhook", p.env.Webhook, "the webhook service's address, else that of BILLHOOK_WEBHOOK")
}

// get reads from the worker's API.
func (p *program) get(ctx context.Context, path string, answer any) error {
	return p.ask(ctx, http.MethodGet, path, "", nil, answer)
}

// ask calls the worker's API. What has a key is sent again under it where no answer came: it is done once.
func (p *program) ask(ctx context.Context, method, path, key string, question, answer any) error {
	if base, err := url.Parse(p.env.Server); err != nil || base.Host == "" {
		return usageError("--server or BILLHOOK_SERVER: the worker's address is such as http://127.0.0.1:8081")
	}
	var body []byte
	var err error
	if question != nil {
		if body, err = json.Marshal(question); err != nil {
			return fmt.Errorf("ask the worker: %w", err)
		}
	}
	headers := map[string]string{"X-Operator": p.env.OpsOperator, "Idempotency-Key": key}
	if tokens := p.env.OpsToken.List(); len(tokens) > 0 {
		headers["Authorization"] = "Bearer " + tokens[0]
	}
	address := strings.TrimSuffix(p.env.Server, "/") + path
	status, header, answered, err := exchange(ctx, method, address, headers, body)
	if err != nil && key != "" && !errors.Is(err, syscall.ECONNREFUSED) && ctx.Err() == nil {
		status, header, answered, err = exchange(ctx, method, address, headers, body)
	}
	if err != nil {
		return fmt.Errorf("ask the worker: %w", nobody(err, p.env.Server, "--server", "BILLHOOK_SERVER", "worker"))
	}
	if status != http.StatusOK && status != http.StatusCreated {
		var problem problemError
		_ = json.Unmarshal(answered, &problem) // without a problem document the status says it
		problem.Status = status
		return &problem
	}
	if what := header.Get(api.HeaderSkipped); what != "" {
		p.warn("Documents that cannot be read are left out. %s", what)
	}
	if err := p.decode(answered, answer); err != nil {
		return fmt.Errorf("ask the worker: answer: %w", err)
	}
	return nil
}

// exchange sends a request, with the headers that have a value, and returns what is answered.
func exchange(ctx context.Context, method, address string, headers map[string]string, body []byte) (status int, header http.Header, answered []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	for name, value := range headers {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	response, err := (&http.Client{Timeout: 30 * time.Second}).Do(request)
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
	return fmt.Errorf("nobody listens at %s: say with %s or %s where the %s is (make run starts one): %w", address, flag, variable, service, err)
}

// problemError is an answer other than 200 and 201.
type problemError serve.Problem

func (e *problemError) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("the worker answers %d %s", e.Status, http.StatusText(e.Status))
	}
	return audit.Escape(fmt.Sprintf("%s (%s)", e.Detail, e.Code))
}

// ExitCode is for serve.Main. The worker answers 400 where the question was wrong.
func (e *problemError) ExitCode() int {
	if e.Status == http.StatusBadRequest {
		return misused
	}
	return 1
}

// poll repeats ask every so often until it reports done. It goes on where the worker is unreachable, fails, or answers
// with the status pending.
func (p *program) poll(ctx context.Context, every time.Duration, pending int, ask func() (done bool, err error)) error {
	for {
		done, err := ask()
		var problem *problemError
		switch {
		case err == nil && done:
			return nil
		case errors.As(err, &problem) && problem.Status != pending && problem.Status < http.StatusInternalServerError:
			return err
		}
		select {
		case <-p.after(every):
		case <-ctx.Done():
			return fmt.Errorf("waited too long: %w", cmp.Or(err, ctx.Err()))
		}
	}
}

// each hands over the items of a list, page after page.
func each[Item any](ctx context.Context, p *program, path string, values url.Values, take func(Item) error) error {
	for {
		var page console.List[Item]
		if err := p.get(ctx, path+"?"+values.Encode(), &page); err != nil {
			return err
		}
		for _, item := range page.Items {
			if err := take(item); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		values.Set("page", page.Next)
	}
}

const tailEvery = 2 * time.Second

func (p *program) eventsTail() *cobra.Command {
	list, _ := p.known.Find("events ls")
	command := p.command(list, func(ctx context.Context, a *asked) error { return a.tail(ctx) })
	command.Use = "tail"
	command.Short = "Follow events as they come in and end"
	command.Long = "It begins with the newest events, and goes on until Ctrl-C: a line for each event that comes in, and another each time that it\n" +
		"has gone on. With --json each line is a JSON object. Where more comes in than it can show, it says so."
	return command
}

// tail prints the events that are new, or have changed since the look before, the oldest first. A worker that cannot be
// asked is asked again, but at first.
func (a *asked) tail(ctx context.Context) error {
	in, err := a.input(a.Operation, nil)
	if err != nil {
		return err
	}
	var known map[events.Line]bool
	var refused error
	err = a.poll(ctx, tailEvery, http.StatusTooManyRequests, func() (done bool, err error) {
		var page console.List[events.Line]
		if err := a.get(ctx, a.URL(in), &page); err != nil {
			if known == nil {
				refused = err
				return true, nil
			}
			a.warn("The worker cannot be asked: %v", err)
			return false, err
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
				err = errors.Join(err, jsonLines(a.stdout, []events.Line{l}))
			}
		}
		known = now
		return false, err
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // Who stops it wants no error.
	}
	return errors.Join(refused, err)
}
