package push

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pii"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

// wrapped is the body of a push request (Pub/Sub documentation: receive push messages, wrapped). Other fields are passed over.
type wrapped struct {
	Message struct {
		Data        []byte            `json:"data"`
		Attributes  map[string]string `json:"attributes"`
		MessageID   string            `json:"messageId"`
		OrderingKey string            `json:"orderingKey"`
		PublishTime time.Time         `json:"publishTime"`
	} `json:"message"`
	Subscription string `json:"subscription"`
	// DeliveryAttempt stands beside message, with a dead-letter policy only.
	DeliveryAttempt int `json:"deliveryAttempt"`
}

// delivery is one push, decoded as far as the broker's wrapping goes.
type delivery struct {
	message      contract.Message
	messageID    string
	publishedAt  time.Time
	subscription string
	// attempt is the broker's own count; 0 where it sends none.
	attempt int
	// trace is the id of the trace that the push is part of; empty: it came with none.
	trace string
	// received is when the push arrived: it is to be answered within the ack deadline.
	received time.Time
	// release gives back what its body held of the budget.
	release func()
}

var errEnvelope = errors.New("push: not a push request's body")

// decodeEnvelope reads a push request's body. Its errors hold nothing of the body.
func decodeEnvelope(body []byte) (delivery, error) {
	var w wrapped
	// A message id becomes part of a document's id and of attributes: Pub/Sub's are digits.
	if err := json.Unmarshal(body, &w); err != nil || !pii.ID.Valid(w.Message.MessageID) {
		return delivery{}, errEnvelope
	}
	return delivery{
		message: contract.Message{
			Data: w.Message.Data, Attributes: w.Message.Attributes, OrderingKey: w.Message.OrderingKey,
		},
		messageID:    w.Message.MessageID,
		publishedAt:  w.Message.PublishTime,
		subscription: w.Subscription[strings.LastIndexByte(w.Subscription, '/')+1:],
		attempt:      w.DeliveryAttempt,
	}, nil
}

// maxReplays bounds what an attribute can claim.
const maxReplays = 1_000_000

// decodeEvent turns a delivery into the event of its queue's contract, with the identity of its record, as far as the
// message could be read. The error of a message that breaks the contract is marked terminal. The event of such a message
// has only the id that it claims: none where its attributes and its body differ, or where one of the two is not valid.
func decodeEvent(contracts *contract.Set, q *queue, d delivery) (handler.Event, dedupe.Record, error) {
	record := dedupe.Record{Queue: q.ID, Tenant: dedupe.DefaultTenant, MessageID: d.messageID}
	if replays, err := strconv.ParseInt(d.message.Attributes[deadletter.AttrReplayCount], 10, 64); err == nil && replays > 0 {
		record.Replays = min(replays, maxReplays)
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
	case errors.Is(err, contract.ErrFormat):
		return handler.Event{}, record, marked(err) // an id of another contract
	case err != nil:
		return claim, record, marked(err)
	}
	id, eventType := body.Identity()
	attribute, key := attributes[contract.AttrEventID], body.IdempotencyKey()
	claim.ID = q.EventID(id, key)
	if !pii.ID.Valid(claim.ID) || (attribute != "" && attribute != id) || (named != "" && named != key) {
		claim.ID = ""
	}
	if err := body.Validate(); err != nil {
		return claim, record, marked(err)
	}
	if err := body.CheckAttributes(attributes); err != nil {
		return claim, record, retry.Permanent("attributes_invalid", err)
	}
	if record.PayloadHash, err = body.PayloadHash(); err != nil {
		return claim, record, retry.Unreadable("body_malformed", err)
	}
	record.EventID, record.EventType, record.IdempotencyKey = q.EventID(id, key), eventType, key
	body = body.KnownAs(record.EventID)
	record.CorrelationID = attributes[contract.AttrCorrelationID]
	record.OrderingKey = attributes[contract.AttrOrderingKey]
	record.Customer = contract.CustomerOf(record.Tenant, attributes[contract.AttrCustomerID])
	return handler.Event{
		Queue: q.ID, Tenant: record.Tenant, ID: record.EventID, Type: record.EventType, Contract: q.Contract,
		CorrelationID: record.CorrelationID, OrderingKey: record.OrderingKey, MessageID: d.messageID,
		PublishedAt: d.publishedAt, Body: body, Attributes: attributes,
	}, record, nil
}

// marked marks why a body was not taken.
func marked(err error) error {
	var invalid *contract.Invalid
	switch {
	case errors.As(err, &invalid):
		return retry.Permanent("contract_broken", err)
	case errors.Is(err, contract.ErrFormat):
		return retry.Unreadable("contract_mismatch", nil)
	default:
		return retry.Unreadable("body_malformed", err)
	}
}
