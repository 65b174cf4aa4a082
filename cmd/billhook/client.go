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
		return usageError("--server or BILLHOOK_SERVER: the worker's address is such as " + usualWorker)
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
		to := p.stdout
		if p.output != asTable { // beside a document and not in it
			to = os.Stderr
		}
		_, _ = fmt.Fprintf(to, "Documents that cannot be read are left out. %s\n", what)
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
