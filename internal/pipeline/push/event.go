package push

import (
	"errors"
	"strconv"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pii"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

// maxReplays bounds what an attribute can claim.
const maxReplays = 1_000_000

// decodeEvent turns a push into the event of its queue's contract, with the identity of its record, as far as the
// message could be read. The error of a message that breaks the contract is marked terminal. The event of such a message
// has only the id that it claims: none where its attributes and its body differ, or where one of the two is not valid.
func decodeEvent(contracts *contract.Set, q *queue, d envelope) (handler.Event, dedupe.Record, error) {
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
