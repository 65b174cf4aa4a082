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
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"billhook/internal/console"
	"billhook/internal/console/api"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/serve"
)

// asks gives a command, and those below it, the flag that says which worker is asked.
func (p *program) asks(command *cobra.Command) *cobra.Command {
	command.PersistentFlags().StringVar(&p.env.Server, "server", p.env.Server, "the worker's address, else that of BILLHOOK_SERVER")
	return command
}

func (p *program) ask() client { return p.client(p.env.Server) }

func (p *program) webhookFlag(command *cobra.Command, to *string) {
	command.Flags().StringVar(to, "webhook", p.env.Webhook, "the webhook service's address, else that of BILLHOOK_WEBHOOK")
}

func nobody(err error, address, flag, variable, service string) error {
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return fmt.Errorf("nobody listens at %s: say with %s or %s where the %s is (make run starts one): %w", address, flag, variable, service, err)
}

func (p *program) client(server string) client {
	token := append(p.env.OpsToken.List(), "")[0] // empty where none is set
	return client{base: server, token: token, operator: p.env.OpsOperator, http: &http.Client{Timeout: 30 * time.Second}, skipped: p.skipped, decode: p.decode}
}

// skipped says what a list leaves out, beside a JSON document and not in it.
func (p *program) skipped(what string) {
	to := p.stdout
	if p.asJSON || p.asCSV {
		to = os.Stderr
	}
	_, _ = fmt.Fprintf(to, "Documents that cannot be read are left out. %s\n", what)
}

type client struct {
	base  string
	token string
	// operator is sent as X-Operator. The worker takes it where the token names no person.
	operator string
	http     *http.Client
	// key names a change, which is sent again where no answer came; empty: it is sent once.
	key string
	// skipped is told what a list leaves out.
	skipped func(what string)
	decode  func(answer []byte, into any) error
}

func (w client) get(ctx context.Context, path string, answer any) error {
	return w.do(ctx, http.MethodGet, path, nil, answer)
}

func (w client) post(ctx context.Context, path string, question, answer any) error {
	return w.do(ctx, http.MethodPost, path, question, answer)
}

func (w client) do(ctx context.Context, method, path string, question, answer any) error {
	var body []byte
	var err error
	if question != nil {
		if body, err = json.Marshal(question); err != nil {
			return fmt.Errorf("ask the worker: %w", err)
		}
	}
	request, err := w.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	status, header, answered, err := exchange(w.http, request)
	if again := err != nil && w.key != "" && !errors.Is(err, syscall.ECONNREFUSED) && ctx.Err() == nil; again {
		if request, err = w.request(ctx, method, path, body); err != nil {
			return err
		}
		status, header, answered, err = exchange(w.http, request)
	}
	if err != nil {
		return fmt.Errorf("ask the worker: %w", nobody(err, w.base, "--server", "BILLHOOK_SERVER", "worker"))
	}
	if status != http.StatusOK && status != http.StatusCreated {
		return refusal(status, answered)
	}
	if what := header.Get(api.HeaderSkipped); what != "" {
		w.skipped(what)
	}
	if err := w.decode(answered, answer); err != nil {
		return fmt.Errorf("ask the worker: answer: %w", err)
	}
	return nil
}

func (w client) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	if base, err := url.Parse(w.base); err != nil || base.Host == "" {
		return nil, usageError("--server or BILLHOOK_SERVER: the worker's address is such as " + usualWorker)
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(w.base, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask the worker: %w", err)
	}
	if w.operator != "" {
		request.Header.Set("X-Operator", w.operator)
	}
	if w.key != "" {
		request.Header.Set("Idempotency-Key", w.key)
	}
	if w.token != "" {
		request.Header.Set("Authorization", "Bearer "+w.token)
	}
	return request, nil
}

func exchange(by *http.Client, request *http.Request) (status int, header http.Header, body []byte, err error) {
	response, err := by.Do(request)
	if err != nil {
		return 0, nil, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(response.Body, 16<<20))
	return response.StatusCode, response.Header, body, err
}

// problemError is an answer other than 200 and 201.
type problemError serve.Problem

func refusal(status int, body []byte) error {
	var problem serve.Problem
	_ = json.Unmarshal(body, &problem) // without a problem document the status says it
	problem.Status = status
	return (*problemError)(&problem)
}

func (e *problemError) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("the worker answers %d %s", e.Status, http.StatusText(e.Status))
	}
	return audit.Escape(fmt.Sprintf("%s (%s)", e.Detail, e.Code))
}

// poll repeats ask every so often until it reports done. It continues where the worker is
// unreachable, fails, or answers with the status pending.
func poll(ctx context.Context, every time.Duration, pending int, ask func() (done bool, err error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
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
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited too long: %w", cmp.Or(err, ctx.Err()))
		}
	}
}

// each hands over a list page after page, before it asks for the next.
func each[Item any](ctx context.Context, ask client, path string, values url.Values, take func([]Item) error) error {
	for {
		var page console.List[Item]
		if err := ask.get(ctx, path+"?"+values.Encode(), &page); err != nil {
			return err
		}
		if err := take(page.Items); err != nil {
			return err
		}
		if page.Next == "" {
			return nil
		}
		values.Set("page", page.Next)
	}
}

// set sets a parameter that has a value: the API refuses an empty one.
func set(values url.Values, name, value string) {
	if value != "" {
		values.Set(name, value)
	}
}
