package push

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pii"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/rates"
	"billhook/internal/retry"
)

// wrapped is the body of a push request (Pub/Sub documentation: receive push messages, wrapped). Other fields
// are ignored.
type wrapped struct {
	Message struct {
		Data        []byte            `json:"data"`
		Attributes  map[string]string `json:"attributes"`
		MessageID   string            `json:"messageId"`
		OrderingKey string            `json:"orderingKey"`
		PublishTime time.Time         `json:"publishTime"`
	} `json:"message"`
	DeliveryAttempt int `json:"deliveryAttempt"` // with a dead-letter policy only
}

type envelope struct {
	message     contract.Message
	messageID   string
	publishedAt time.Time
	number      int       // the broker's count of the deliveries; 0: it sent none
	trace       string    // the id of the trace that the push is part of
	received    time.Time // when the ack deadline began
	firstID     string    // the message's id when it was first published
}

var errEnvelope = errors.New("push: not a push request's body")

// decodeEnvelope reads a push request's body. Its error repeats nothing of the body.
func decodeEnvelope(body []byte) (envelope, error) {
	var w wrapped
	// A message id becomes part of a document's id and of attributes. Those of Pub/Sub are digits.
	if err := json.Unmarshal(body, &w); err != nil || !pii.ID.Valid(w.Message.MessageID) {
		return envelope{}, errEnvelope
	}
	return envelope{
		message: contract.Message{
			Data: w.Message.Data, Attributes: w.Message.Attributes, OrderingKey: w.Message.OrderingKey,
		},
		messageID: w.Message.MessageID, publishedAt: w.Message.PublishTime, number: w.DeliveryAttempt,
	}, nil
}

// delivery is a delivered message, decoded. It does not change.
type delivery struct {
	*Service
	envelope
	queue   *queue
	event   handler.Event
	record  dedupe.Record   // the event's record, with what the message says about it
	broken  error           // why the message has no valid event
	due     time.Time       // the time of delivery that its sender requested
	lane    lane.Name       // where the message waits, if it has to
	policy  catalog.Handler // of the event's type
	handler handler.Handler // neither Tx nor Leased: no handler is registered
	replay  string          // the id of the dead letter that it replays; empty: none, or an invalid claim
	log     *slog.Logger    // its lines name queue, event and message
}

func (d *delivery) warn(ctx context.Context, what string, more ...slog.Attr) {
	d.log.LogAttrs(ctx, slog.LevelWarn, what, more...) //nolint:sloglint // Each caller gives a constant.
}

// leased reports whether the handler's effect is in another service.
func (d *delivery) leased() bool { return d.handler.Leased != nil }

// mayMissLane reports whether an instance may not know of a new lane for noneWaitFor. Otherwise each delivery
// reads its lane.
func (d *delivery) mayMissLane() bool { return d.lane.OrderingKey != "" && !d.queue.waits }

// returned reports whether the message was released from a lane.
func (d *delivery) returned() bool { return d.record.DelayTicket != "" }

// replayed reports whether the message claims to replay a dead letter.
func (d *delivery) replayed() bool { return d.message.Attributes[deadletter.AttrReplayOf] != "" }

// repeated reports whether the event was delivered before.
func (d *delivery) repeated() bool { return d.number > 1 || d.returned() || d.replayed() }

// decode reads the message, and finds its handler in the catalog and in the registry.
func (s *Service) decode(q *queue, e envelope) *delivery {
	attributes := e.message.Attributes
	if e.firstID = attributes[contract.AttrFirstMessageID]; !pii.ID.Valid(e.firstID) {
		e.firstID = e.messageID
	}
	d := &delivery{Service: s, envelope: e, queue: q, due: contract.TimeOf(attributes[contract.AttrDeliverAt])}
	if id := attributes[deadletter.AttrReplayOf]; id != "" &&
		id == deadletter.ItemID(q.Queue, d.firstID, e.message) {
		d.replay = id
	}
	d.event, d.record, d.broken = decodeEvent(s.config.Catalog.Contracts, q, e)
	d.log = slog.New(s.config.Log.Handler().WithAttrs([]slog.Attr{
		slog.String("queue", q.ID), slog.String("event_id", d.record.EventID),
		slog.String("message_id", e.messageID),
	}))
	d.record.DelayTicket = lane.Ticket(e.message)
	d.record.PublishedAt = cmp.Or(contract.TimeOf(attributes[contract.AttrFirstPublished]), e.publishedAt)
	d.record.ReceivedAt = contract.TimeOf(attributes[contract.AttrReceived])
	// an older message may be of a release that no longer runs
	if s.config.Now().Sub(d.record.ReceivedAt) < rates.GoodFor {
		s.config.Rates.Release(attributes[contract.AttrRelease])
	}
	d.lane = lane.Name{Queue: q.ID, Tenant: d.record.Tenant, Message: d.event.ID + "~" + d.record.PayloadHash}
	if q.Ordered() {
		key := attributes[contract.AttrOrderingKey] // an emulator sends it only there
		if d.lane.OrderingKey = e.message.OrderingKey; d.lane.OrderingKey == "" &&
			key != contract.UnknownOrderingKey {
			d.lane.OrderingKey = key
		}
	}
	if d.broken != nil {
		return d
	}
	d.policy, _ = q.Handler(d.event.Type)
	d.handler, _ = s.config.Handlers.Lookup(d.policy.Name)
	d.countAttempts()
	return d
}

// countAttempts finds how many attempts the event may have, and how many were made elsewhere.
func (d *delivery) countAttempts() {
	// The message may request fewer attempts than the handler's, in an attribute or in its body.
	requested, _ := strconv.Atoi(d.event.Attributes[contract.AttrMaxAttempts])
	for _, n := range [...]int{requested, d.event.Body.MaxAttempts()} {
		if n >= 1 {
			d.policy.MaxAttempts = min(d.policy.MaxAttempts, n)
		}
	}
	if !d.replayed() { // a replay has all its attempts
		// At least one attempt is left here: the sender wants the event tried.
		d.record.Attempts = int64(max(0, min(d.event.Body.Attempted(), d.policy.MaxAttempts-1)))
	}
}

// begin starts the run of an attempt. A broken message has a record of its own, because the event that it
// names may be another's.
func (d *delivery) begin() (run *dedupe.Run) {
	if d.broken != nil {
		run = d.config.Begin(dedupe.MessageKey(d.queue.ID, d.messageID, d.message.Data), d.record,
			d.queue.RememberFor)
	} else {
		run = d.config.Begin(dedupe.Key(d.queue.ID, d.record.Tenant, d.record.EventID), d.record,
			d.queue.RememberFor)
		run.DeadLetters = d
	}
	run.Line.Delivery, run.Line.Trace = int64(d.number), d.trace
	return run
}

// refused returns the finding for a message that is not for the queue, too old or broken.
func (d *delivery) refused() finding {
	q, published := d.queue, d.record.PublishedAt
	switch {
	case !q.Takes(d.message.Attributes): // the broker's filter, which an emulator does not apply
		return final(answer{Outcome: retry.Dropped, Status: http.StatusNoContent, Reason: notBound})
	case q.MessageTTL > 0 && !published.IsZero() && d.config.Now().Sub(published) > q.MessageTTL &&
		!d.replayed():
		return final(answer{Outcome: retry.Expired, Status: http.StatusNoContent, Reason: tooOld})
	case d.broken != nil:
		return found(failed, d.broken)
	}
	return finding{}
}

// maxReplays bounds what an attribute can claim.
const maxReplays = 1_000_000

// decodeEvent turns a push into an event of its queue's contract, with the identity of its record. For a
// message that breaks the contract it returns a terminal error and an event with only the id, if attributes
// and body agree on it.
func decodeEvent(contracts *contract.Set, q *queue, d envelope) (handler.Event, dedupe.Record, error) {
	record := dedupe.Record{
		Identity: dedupe.Identity{Queue: q.ID, Tenant: dedupe.DefaultTenant, MessageID: d.messageID},
	}
	if replays, err := strconv.ParseInt(d.message.Attributes[deadletter.AttrReplayCount], 10, 64); err == nil {
		record.Replays = max(0, min(replays, maxReplays))
	}
	named := d.message.Attributes[contract.AttrIdempotencyKey]
	if id := q.EventID(d.message.Attributes[contract.AttrEventID], named); pii.ID.Valid(id) {
		record.EventID = id
	}
	if tenant := d.message.Attributes[contract.AttrTenant]; tenant != "" {
		if !pii.ID.Valid(tenant) {
			return handler.Event{}, record, retry.Permanent("attributes_invalid", nil)
		}
		record.Tenant = tenant
	}
	body, attributes, err := contracts.Receive(q.Contract, q.OrderingKey, d.message, d.publishedAt)
	claim := handler.Event{ID: record.EventID}
	switch {
	case errors.Is(err, contract.ErrFormat): // an id of another contract
		return handler.Event{}, record, retry.Unreadable("contract_mismatch", nil)
	case errors.As(err, new(*contract.Invalid)):
		return claim, record, retry.Permanent("contract_broken", err)
	case err != nil:
		return claim, record, retry.Unreadable("body_malformed", err)
	}
	id, eventType := body.Identity()
	attribute, key := attributes[contract.AttrEventID], body.IdempotencyKey()
	claim.ID = q.EventID(id, key)
	if !pii.ID.Valid(claim.ID) || (attribute != "" && attribute != id) || (named != "" && named != key) {
		claim.ID = ""
	}
	if err := body.Validate(); err != nil {
		return claim, record, retry.Permanent("contract_broken", err)
	}
	if err := body.CheckAttributes(attributes); err != nil {
		return claim, record, retry.Permanent("attributes_invalid", err)
	}
	if record.PayloadHash, err = body.PayloadHash(); err != nil {
		return claim, record, retry.Unreadable("body_malformed", err)
	}
	record.EventID, record.EventType, record.IdempotencyKey = q.EventID(id, key), eventType, key
	body = body.KnownAs(record.EventID)
	record.CorrelationID, record.OrderingKey = attributes[contract.AttrCorrelationID],
		attributes[contract.AttrOrderingKey]
	record.Customer = contract.CustomerOf(record.Tenant, attributes[contract.AttrCustomerID])
	return handler.Event{
		Queue: q.ID, Tenant: record.Tenant, ID: record.EventID, Type: record.EventType,
		CorrelationID: record.CorrelationID, OrderingKey: record.OrderingKey, MessageID: d.messageID,
		PublishedAt: d.publishedAt, Body: body, Attributes: attributes,
	}, record, nil
}
