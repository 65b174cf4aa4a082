package webhook

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"billhook/internal/contract"
	"billhook/internal/pii"
	"billhook/internal/platform/serve"
)

var (
	errUnsupported = refusals.Add(http.StatusUnprocessableEntity, "contract_unsupported",
		"No enabled queue takes this body format here; send that of the queue's contract.", 0)
	errLimit = refusals.Add(http.StatusUnprocessableEntity, "message_limit", fmt.Sprintf("The message "+
		"exceeds a limit of Pub/Sub: %d bytes with its attributes and ordering key.", contract.MaxMessageBytes), 0)
	errRefused = refusals.Add(http.StatusUnprocessableEntity, "body_refused", "The body cannot be taken.", 0)
	errBroken  = refusals.Add(http.StatusUnprocessableEntity, "contract_broken",
		"Fields break the contract; see violations.", 0)
	errMalformed = refusals.Add(http.StatusBadRequest, "body_malformed",
		"The body is not one JSON document in UTF-8 without duplicate names.", 0)
	errCustomer = refusals.Add(http.StatusServiceUnavailable, "customer_lookup_failed",
		"The customer cannot be looked up now; keep the event and send it again.", 5)
	errUnconfirmed = refusals.Add(http.StatusServiceUnavailable, "publish_unconfirmed",
		"The broker did not confirm; keep the event and send it again.", 5)
)

func refusal(err error) *serve.Problem {
	refused, isRefused := errors.AsType[*pii.Error](err)
	invalid, isInvalid := errors.AsType[*contract.Invalid](err)
	switch {
	case isRefused && refused.Malformed:
		return errMalformed
	case isRefused:
		invalid = &contract.Invalid{Violations: refused.Violations}
	case !isInvalid:
		return serve.ErrorMapping{Last: errRefused}.Problem(err)
	}
	broken := *errBroken
	broken.Violations = invalid.Violations
	return &broken
}

// compose makes the message, and checks all of it once more.
func (s *Service) compose(ctx context.Context, in *event, b *buffers, o *outcome) (contract.Message, error) {
	a := &b.attributes
	*a = in.body.Attributes()
	a.UID, a.Points, a.ShopOrderID = cmp.Or(in.uid, a.UID), in.points, cmp.Or(in.shopOrder, a.ShopOrderID)
	a.RoutingKey, a.DeliverAt, a.Priority, a.Tenant = in.routingKey, in.deliverAt, in.priority, in.tenant
	if in.maxAttempts > 0 {
		a.MaxAttempts = strconv.FormatInt(in.maxAttempts, 10)
	}
	if a.UID == "" && a.CustomerID != "" && in.body.UIDByCustomer() {
		lookup, cancel := context.WithTimeout(ctx, s.config.PublishTimeout)
		uid, err := s.config.UID(lookup, in.tenantID(), a.CustomerID)
		cancel()
		if err != nil {
			return contract.Message{}, errCustomer
		}
		if uid != "" {
			a.UID, a.UIDSource = uid, contract.UIDOfCustomer
		}
	}
	key := ""
	for i := range in.queues {
		key = cmp.Or(key, in.body.OrderingKey(in.queues[i].OrderingKey, a))
	}
	key = a.Order(key)
	a.Received = o.started.UTC().Format(time.RFC3339Nano)
	a.FirstPublished = s.config.Now().UTC().Format(time.RFC3339Nano)
	attributes := a.Map()
	encoded, err := in.body.Append(b.encoded[:0])
	if err == nil {
		b.encoded = encoded
		b.minimized, err = in.body.Contract().Projection().Again(b.minimized[:0], encoded)
	}
	if err == nil {
		err = pii.CheckAttributes(attributes, a.Rules())
	}
	if err == nil && a.DeliverAt != "" && len(encoded) > contract.MaxKept {
		err = contract.Broken(contract.AttrDeliverAt, "too_large_to_wait")
	}
	if err != nil {
		return contract.Message{}, err
	}
	if s.config.Release != "" {
		attributes[contract.AttrRelease] = s.config.Release
	}
	o.OrderingKey = a.OrderingKey
	return contract.Message{Data: bytes.Clone(encoded), Attributes: attributes, OrderingKey: key}, nil
}

// publish answers 202 only after the broker has confirmed. A message that the broker would never accept is
// refused before it is counted.
func (s *Service) publish(ctx context.Context, from *source, e *event, o *outcome) error {
	m := e.message
	if m.Check() != nil {
		return errLimit
	}
	queue := e.queues[0].ID
	if len(m.Data) > contract.WarnDataBytes {
		s.config.Metrics.LargeMessage(queue)
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "large message", slog.String("queue", queue),
			slog.String("event_id", o.EventID), slog.Int("bytes", len(m.Data)))
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.PublishTimeout)
	defer cancel()
	if err := s.admitted(ctx, from, e); err != nil {
		return err
	}
	id, err := s.config.Publisher.Publish(ctx, e.topic, m)
	switch {
	case errors.Is(err, contract.ErrLimit):
		return errLimit
	case err != nil:
		o.cause = contract.PublishCause(err)
		s.config.Metrics.Unconfirmed(queue, o.cause)
		return errUnconfirmed
	}
	o.Status, o.MessageID = http.StatusAccepted, id
	return nil
}

func (s *Service) refuse(w http.ResponseWriter, r *http.Request, source string, why error) {
	o := &outcome{source: source, started: s.config.Now()}
	o.refuse(why)
	s.answer(w, r, o)
}

func (s *Service) answer(w http.ResponseWriter, r *http.Request, o *outcome) {
	if answer := o.answer(); o.Problem != nil {
		o.Write(w)
	} else {
		serve.WriteJSON(w, o.Status, &answer)
	}
	s.record(r.Context(), o)
}

// answer returns the result for the sender, without the status, which the HTTP answer has.
func (o *outcome) answer() result {
	if o.Problem != nil {
		return result{EventID: o.EventID, Problem: o.Problem, RetryAfter: o.Problem.RetryAfter}
	}
	answer := o.result
	answer.Status = 0
	return answer
}

// record writes the metrics and the log line of a webhook, or of a message of a list.
func (s *Service) record(ctx context.Context, o *outcome) {
	took := s.config.Now().Sub(o.started)
	s.config.Metrics.Webhook(o.source, o.Status, o.Reason, took)
	level := slog.LevelInfo
	if o.Status >= http.StatusBadRequest {
		level = slog.LevelWarn
	}
	line := append(make([]slog.Attr, 0, 12),
		slog.String("source", o.source), slog.String("event_id", o.EventID), slog.String("event_type", o.eventType),
		slog.String("queue", o.Queue), slog.String("message_id", o.MessageID),
		slog.String("ordering_key", o.OrderingKey),
		slog.Int("status", o.Status), slog.String("reason", o.Reason), slog.Int("bytes", o.bytes),
		slog.Float64("duration_ms", took.Seconds()*1000))
	for _, more := range [...][2]string{{"account", o.account}, {"topic", o.Topic}, {"cause", o.cause}} {
		if more[1] != "" {
			line = append(line, slog.String(more[0], more[1]))
		}
	}
	if o.item > 0 {
		line = append(line, slog.Int("item", o.item))
	}
	if len(o.dropped) > 0 {
		texts := make([]string, len(o.dropped))
		for i, v := range o.dropped {
			texts[i] = v.String()
			if o.Status == http.StatusAccepted { // a repeated one is counted once
				s.config.Metrics.DroppedField(o.source, v.Path, v.Rule)
			}
		}
		line = append(line, slog.Any("dropped", texts))
	}
	s.config.Log.LogAttrs(ctx, level, "webhook", line...)
}
