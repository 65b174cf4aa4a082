package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/internal/compose/devstack"
	"billhook/internal/console/ops"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/platform/telemetry"
	"billhook/internal/retry"
)

// shop is a Billhook on the stand-ins, in this process, whose pages are looked at.
type shop struct {
	*devstack.Stack
	catalog *catalog.Catalog
	log     *e2e.Log
	// faults is the store as the services see it.
	faults *storetest.Faults
	signer *signature.Signer
	folder string
}

// soon is the wait between two attempts, which the catalog's would make a matter of hours.
var soon = retry.Policy{Base: 200 * time.Millisecond, Max: 200 * time.Millisecond}

// waiting is the handler whose waits stay as long as the catalog has them, so that something waits.
const waiting = "points.reverse"

// openShop starts an empty Billhook until close.
func openShop(ctx context.Context) (s *shop, err error) {
	s = &shop{log: &e2e.Log{}, faults: &storetest.Faults{}}
	if s.catalog, err = catalog.Load(""); err != nil {
		return nil, err
	}
	for i := range s.catalog.Queues {
		s.catalog.Queues[i].Backoff = soon
		for eventType, h := range s.catalog.Queues[i].Handlers {
			if h.Name != waiting {
				h.Backoff = soon
			}
			s.catalog.Queues[i].Handlers[eventType] = h
		}
	}
	if s.signer, err = signature.NewSigner(signature.Generic, e2e.Secret); err != nil {
		return nil, err
	}
	if s.folder, err = os.MkdirTemp("", "billhook-pages-"); err != nil {
		return nil, err
	}
	s.Stack, err = devstack.Start(ctx, devstack.Config{
		Catalog: s.catalog, ProjectID: "pages", Secrets: map[string][]string{"paynow": {e2e.Secret}, catalog.Producers: {e2e.Secret}},
		WebhookPort: "0", WorkerPort: "0", ServicePort: "0", StorePath: filepath.Join(s.folder, "store.db"), Log: telemetry.NewLogger(s.log, nil),
		WrapStore: func(inner store.Store) store.Store { s.faults.Store = inner; return s.faults },
	})
	if err != nil {
		_ = os.RemoveAll(s.folder) // it is a temporary one
		return nil, err
	}
	return s, nil
}

// close ends it, and removes what it has stored.
func (s *shop) close() {
	s.faults.Down(false)
	_ = s.Close()              // what is in hand is given up
	_ = os.RemoveAll(s.folder) // it is a temporary one
}

// queueOf is the queue that takes an event type and keeps records. Queues are chosen by what they do: their
// names stand in the catalog alone.
func (s *shop) queueOf(eventType string) catalog.Queue {
	i := slices.IndexFunc(s.catalog.Queues, func(q catalog.Queue) bool {
		_, takes := q.Handler(eventType)
		return takes && q.Enabled && q.Remembers()
	})
	if i < 0 {
		panic("the catalog has no queue for " + eventType) // the types are constants
	}
	return s.catalog.Queues[i]
}

// post sends a body to the producers' door of a queue, which takes it.
func (s *shop) post(ctx context.Context, q catalog.Queue, body []byte) error {
	path := "/queues/" + q.ID
	if q.SharedTopic != "" {
		path = "/topics/" + q.SharedTopic
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.WebhookURL+path+"/messages", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	for name, value := range s.signer.SignFor(request.URL.RequestURI(), "", body, time.Now()) {
		request.Header.Set(name, value)
	}
	answer, err := e2e.Do(request)
	if err == nil && answer.Status >= http.StatusMultipleChoices {
		err = fmt.Errorf("the door answered %d %s to a message for %s", answer.Status, answer.Code, q.ID)
	}
	return err
}

// put sends a message of an event type to its queue, in the queue's format.
func (s *shop) put(ctx context.Context, id, eventType string, data map[string]any, more map[string]any) error {
	q := s.queueOf(eventType)
	message := map[string]any{"id": id, "type": eventType, "version": 1, "timestamp": "2026-03-01T12:00:00Z", "data": data}
	if q.Contract == "envelope.v1" {
		message = map[string]any{"id": id, "action": eventType, "created_at": "2026-03-01T12:00:00Z", "payload": data}
	}
	for name, value := range more {
		message[name] = value
	}
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return s.post(ctx, q, body)
}

// send sends a webhook as PayNow does.
func (s *shop) send(ctx context.Context, body []byte) error {
	_, _, err := e2e.Accept(ctx, s.WebhookURL, body)
	return err
}

// as calls the API as somebody. The answer may be nil.
func (s *shop) as(ctx context.Context, who, method, path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, s.WorkerURL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if who != "" {
		request.Header.Set("X-Operator", who)
	}
	got, err := e2e.Do(request)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if got.Status >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %d %s", method, path, got.Status, got.Body)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal([]byte(got.Body), answer)
}

// get reads from the API.
func (s *shop) get(ctx context.Context, path string, answer any) error {
	return s.as(ctx, "", http.MethodGet, path, nil, answer)
}

// until waits until a question is answered by yes.
func (s *shop) until(ctx context.Context, what string, yes func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		switch ok, err := yes(); {
		case ok:
			return nil
		case !e2e.Wait(ctx, 50*time.Millisecond):
			if err == nil {
				err = ctx.Err()
			}
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
	}
}

// ended waits until an event has come to its end, whichever.
func (s *shop) ended(ctx context.Context, ids ...string) error {
	return s.until(ctx, "the end of events", func() (bool, error) {
		for len(ids) > 0 {
			var e ops.Event
			if err := s.get(ctx, "/v1/ops/events/"+ids[0], &e); err != nil {
				return false, err
			}
			if e.Status != "COMPLETED" && e.Status != "DEAD_LETTERED" {
				return false, fmt.Errorf("%s is %s", ids[0], e.Status)
			}
			ids = ids[1:]
		}
		return true, nil
	})
}

// tasks runs every task of the worker, as Cloud Scheduler does.
func (s *shop) tasks(ctx context.Context, names ...string) error {
	for _, name := range names {
		if _, err := s.Task(ctx, name); err != nil {
			return fmt.Errorf("task %s: %w", name, err)
		}
	}
	return nil
}
