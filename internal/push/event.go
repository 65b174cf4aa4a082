package push

import (
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/handler"
	"billhook/internal/pii"
	"billhook/internal/retry"
)

// Decodes reports whether messages of a contract can be decoded.
func Decodes(format string) bool { return format == contract.PayNowV1 }

// decodeEvent turns a delivery into the event of its queue's contract, with the
// identity that its record gets. The error of a message that breaks the contract is
// marked terminal. The record is filled as far as the message could be read.
func decodeEvent(q *queue, d delivery) (handler.Event, dedupe.Record, error) {
	record := dedupe.Record{Queue: q.ID, Tenant: dedupe.DefaultTenant, MessageID: d.messageID}
	if id := d.message.Attributes[contract.AttrEventID]; pii.ID.Valid(id) {
		record.EventID = id
	}
	if tenant := d.message.Attributes[contract.AttrTenant]; tenant != "" {
		if !pii.ID.Valid(tenant) {
			return handler.Event{}, record, retry.Permanent("attributes_invalid", nil)
		}
		record.Tenant = tenant
	}
	format := contract.Detect(d.message.Attributes, d.message.Data)
	if format != q.Contract || !Decodes(format) {
		return handler.Event{}, record, retry.Unreadable("contract_mismatch", nil)
	}
	body, err := contract.DecodePayNow(d.message.Data)
	if err != nil {
		return handler.Event{}, record, retry.Unreadable("body_malformed", err)
	}
	if err := body.Validate(); err != nil {
		return handler.Event{}, record, retry.Permanent("contract_broken", err)
	}
	if err := body.CheckAttributes(d.message.Attributes); err != nil {
		return handler.Event{}, record, retry.Permanent("attributes_invalid", err)
	}
	if record.PayloadHash, err = body.PayloadHash(); err != nil {
		return handler.Event{}, record, retry.Unreadable("body_malformed", err)
	}
	record.EventID, record.EventType = body.EventID, body.EventType
	record.CorrelationID = d.message.Attributes[contract.AttrCorrelationID]
	record.OrderingKey = d.message.Attributes[contract.AttrOrderingKey]
	return handler.Event{
		Queue: q.ID, Tenant: record.Tenant, ID: body.EventID, Type: body.EventType, Contract: q.Contract,
		CorrelationID: record.CorrelationID, OrderingKey: record.OrderingKey, MessageID: d.messageID,
		PublishedAt: d.publishedAt, Body: body, Attributes: d.message.Attributes,
	}, record, nil
}
