package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/orders"
	"billhook/internal/compose/devstack"
	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pipeline/events"
	"billhook/internal/platform/standin"
)

// demoFlows are the samples that dev sends. Each has a customer or a subscription of its own, so that none waits for
// another.
//
//go:embed demo.json
var demoFlows []byte

type demo struct {
	*program
	stack   *devstack.Stack
	catalog *catalog.Catalog
	secrets map[string][]string
	// again: an earlier run has sent some samples, and the stand-ins have forgotten them.
	again bool
}

// flow is a sample and what becomes of it.
type flow struct {
	What string
	// Handler is that of its queue, with its form where it posts; empty: it is PayNow's.
	Handler string
	// Before names what is done first.
	Before string
	// Name is the sample's, Event has the ids of PayNow's, and Secret is another than the source's.
	Name   string
	Event  samples.Event
	Secret string
	// Follow are the events that are waited for. What an earlier run has followed is not sent again.
	Follow []string
	// Note is what nobody can read off the answers, and Look a command that shows more.
	Note, Look string
}

// run sends the samples.
func (s *demo) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var flows []flow
	if err := json.Unmarshal(demoFlows, &flows); err != nil {
		return fmt.Errorf("dev: %w", err)
	}
	s.printf("\nSending signed samples of PayNow's webhooks and of producers' messages:\n\n")
	for _, f := range flows {
		text, err := s.sent(ctx, f)
		if err != nil {
			return fmt.Errorf("dev: %s: %w", f.What, err)
		}
		if s.printf("  %-35s%s\n", f.What, text); f.Look != "" {
			s.printf("  %-35s> bin/billhook %s\n", "", f.Look)
		}
	}
	return nil
}

func (s *demo) queueOf(handler string) (catalog.Queue, bool) {
	for _, q := range s.catalog.Queues {
		for _, h := range q.Handlers {
			if h.Name == handler || string(h.Post.Form) == handler {
				return q, true
			}
		}
	}
	return catalog.Queue{}, false
}

// sent sends a flow's samples, and says what was answered and what became of them.
func (s *demo) sent(ctx context.Context, f flow) (string, error) {
	from, received := s.catalog.Sources[samples.Provider]
	path, body := "/webhooks/"+samples.Provider, []byte(nil)
	if f.Handler == "" {
		if body = samples.Read(f.Name, f.Event); f.Secret == "" {
			f.Follow = []string{f.Event.EventID}
		}
	} else {
		q, known := s.queueOf(f.Handler)
		if known && !q.Enabled {
			return "left out: " + q.ID + " does not run here", nil
		}
		from, received, body = s.catalog.Sources[catalog.Producers], known, samples.Request(f.Name)
		if path = "/queues/" + q.ID + "/messages"; q.SharedTopic != "" {
			path = "/topics/" + q.SharedTopic + "/messages"
		}
	}
	if !received {
		return "left out: no queue that runs here is for it", nil
	}
	if s.again && len(f.Follow) > 0 && s.get(ctx, "/v1/ops/events/"+f.Follow[len(f.Follow)-1], &events.Event{}) == nil {
		return "sent by an earlier run", nil
	}
	if err := s.prepare(ctx, f.Before); err != nil {
		return "", err
	}
	replies, err := post(ctx, s.catalog, s.stack.WebhookURL+path, from, cmp.Or(f.Secret, s.secrets[from.Name][0]), body)
	if err != nil {
		return "", err
	}
	texts := []string{fmt.Sprint(replies[0].Status)}
	for _, r := range replies {
		if r.Code != "" {
			return fmt.Sprint(r.Status, " ", r.Code), nil
		}
	}
	for _, id := range f.Follow {
		became, err := s.became(ctx, id)
		if err != nil {
			return "", err
		}
		texts = append(texts, "then "+became)
	}
	if f.Note != "" {
		texts = append(texts, f.Note)
	}
	return strings.Join(texts, ", "), nil
}

// became waits for the end of an event, and says what it came to.
func (s *demo) became(ctx context.Context, id string) (text string, err error) {
	var e events.Event
	err = s.poll(ctx, 20*time.Millisecond, http.StatusNotFound, func() (bool, error) {
		err := s.get(ctx, "/v1/ops/events/"+id, &e)
		return e.Status == dedupe.Completed || len(e.DeadLetters) > 0, err
	})
	switch {
	case err != nil:
		return "", err
	case len(e.DeadLetters) > 0:
		return "dead-lettered: " + e.DeadLetters[0].Reason, nil
	case e.Attempts > 1:
		return fmt.Sprintf("%s at attempt %d", e.Result, e.Attempts), nil
	}
	return e.Result, nil
}

// prepare does what a sample needs: that a service forgets an answer, that there are pieces of the product, or that the
// stand-in is registered as a third party's endpoint, in place of an earlier run's. A secret is shown once, and the stand-in
// has forgotten it.
func (s *demo) prepare(ctx context.Context, what string) error {
	why := console.Change{Why: "billhook dev shows it"}
	switch what {
	case "forget":
		return s.stack.Service.Behave("", standin.Forget, 1)
	case "stock":
		pieces := int64(10)
		return s.ask(ctx, http.MethodPut, "/v1/ops/stock/"+samples.Product, "", orders.SetStock{Available: &pieces, Edit: console.Edit{Change: why}}, &orders.Stock{})
	case "endpoint":
		const path = "/v1/ops/endpoints"
		if s.again {
			_ = s.ask(ctx, http.MethodDelete, path+"/"+samples.Partner, "", why, &endpoints.Endpoint{}) // it may not be there
		}
		var added endpoints.Secret
		err := s.ask(ctx, http.MethodPost, path, "", endpoints.AddEndpoint{
			New: endpoints.New{ID: samples.Partner, URL: s.stack.ServiceURL + standin.PartnerPath, Events: []string{"invoice.#"}}, Change: why,
		}, &added)
		if err != nil {
			return err
		}
		return s.stack.Service.Trust(added.Secret)
	}
	return nil
}
