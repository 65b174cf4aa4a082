package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"billhook/internal/ops"
	"billhook/internal/serve"
)

// client asks a running worker's ops API.
type client struct {
	base  string
	token string
	// operator is who asks, where that goes by the token.
	operator string
	http     *http.Client
}

// get fills answer from the API. An answer that is a problem document becomes an
// error with its detail.
func (w client) get(ctx context.Context, path string, answer any) error {
	return w.do(ctx, http.MethodGet, path, nil, answer)
}

// post sends a question as JSON and fills answer as get does.
func (w client) post(ctx context.Context, path string, question, answer any) error {
	return w.send(ctx, http.MethodPost, path, question, answer)
}

// send is post by another method.
func (w client) send(ctx context.Context, method, path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("ask the worker: %w", err)
	}
	return w.do(ctx, method, path, body, answer)
}

func (w client) do(ctx context.Context, method, path string, question []byte, answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, w.base+path, bytes.NewReader(question))
	if err != nil {
		return fmt.Errorf("ask the worker: %w", err)
	}
	if w.operator != "" {
		request.Header.Set("X-Operator", w.operator)
	}
	if w.token != "" {
		request.Header.Set("Authorization", "Bearer "+w.token)
	}
	response, err := w.http.Do(request)
	if err != nil {
		return fmt.Errorf("ask the worker: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err != nil {
		return fmt.Errorf("ask the worker: %w", err)
	}
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusCreated {
		problem := &problemError{status: response.StatusCode}
		_ = json.Unmarshal(body, &problem.problem) // an answer without a document leaves the status to speak
		return problem
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("ask the worker: answer: %w", err)
	}
	return nil
}

// problemError is an answer other than 200.
type problemError struct {
	status  int
	problem serve.Problem
}

func (e *problemError) Error() string {
	if e.problem.Detail == "" {
		return fmt.Sprintf("the worker answers %d %s", e.status, http.StatusText(e.status))
	}
	return fmt.Sprintf("%s (%s)", e.problem.Detail, e.problem.Code)
}

func (p *program) eventsCommand() *cobra.Command {
	var queue string
	command := &cobra.Command{Use: "events", Short: "Ask a running worker about events"}
	ask := p.worker(command)
	show := &cobra.Command{
		Use:   "show <event id>",
		Short: "Show what became of an event: its record, conflicts and dead letters",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			path := "/v1/ops/events/" + url.PathEscape(args[0])
			if queue != "" {
				path += "?queue=" + url.QueryEscape(queue)
			}
			var event ops.Event
			if err := ask().get(command.Context(), path, &event); err != nil {
				return err
			}
			p.printEvent(event)
			return p.printJSON(event)
		},
	}
	show.Flags().StringVar(&queue, "queue", "", "the queue, by id or alias, where several know the id")
	command.AddCommand(show, p.eventsListCommand(ask))
	return command
}

func (p *program) printEvent(e ops.Event) {
	row := func(name, value string) {
		if value != "" {
			p.printf("  %-15s %s\n", name, value)
		}
	}
	at := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return t.Format(time.RFC3339Nano)
	}
	p.printf("%s  %s\n", e.EventID, e.Status)
	row("queue", e.Queue)
	row("type", e.EventType)
	row("result", e.Result)
	row("reason", e.Reason)
	p.printf("  %-15s %d\n", "attempts", e.Attempts)
	if e.IdempotencyKey != e.EventID {
		row("idempotency key", e.IdempotencyKey)
	}
	row("ordering key", e.OrderingKey)
	row("message", e.MessageID)
	row("payload", e.PayloadHash)
	row("created", at(e.CreatedAt))
	row("processed", at(e.ProcessedAt))
	row("lease until", at(e.LeaseUntil))
	row("next retry", at(e.NextRetryAt))
	for _, id := range e.Emitted {
		p.printf("  emitted         event %s\n", id)
	}
	if e.Waiting > 0 {
		p.printf("  in the outbox   %d of them\n", e.Waiting)
	}
	for _, c := range e.Conflicts {
		p.printf("  conflict        %s %s, message %s, %s\n", c.Status, c.Reason, c.MessageID, c.PayloadHash)
	}
	for _, d := range e.DeadLetters {
		p.printf("  dead letter     %s: %d %s, after %d attempts, message %s %s\n", d.State, d.Status, d.Reason, d.Attempts, d.SourceMessageID, d.Detail)
	}
}

func firstOf(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
