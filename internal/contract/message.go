// Package contract owns the messages: body formats, what is declared of their contents, attributes, limits
// and validation; schemas are generated from them. It refuses to know how a message is carried, and has no
// field that could hold a person's data.
package contract

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// The body formats, as the contract attribute names them.
const (
	PayNowV1   = "paynow.v1"
	EnvelopeV1 = "envelope.v1"
	MessageV1  = "message.v1"
)

// The attributes of a message (requirements: PayNow contract, message attributes).
const (
	AttrOrderingKey    = "ordering_key"
	AttrEventID        = "event_id"
	AttrEventType      = "event_type"
	AttrOrderID        = "order_id"
	AttrShopOrderID    = "shop_order_id"
	AttrCustomerID     = "paynow_customer_id"
	AttrUID            = "uid"
	AttrUIDSource      = "uid_source"
	AttrPoints         = "points"
	AttrContract       = "contract"
	AttrCorrelationID  = "correlation_id"
	AttrIdempotencyKey = "idempotency_key"
	AttrTenant         = "tenant"
	AttrRoutingKey     = "routing_key"
	AttrPriority       = "priority"
	AttrMaxAttempts    = "max_attempts"
	AttrFirstPublished = "first_published_at"
	AttrDoorReceived   = "door_received_at"
	AttrDeliverAt      = "deliver_at"
	AttrDelayTicket    = "delay_ticket"
	AttrFirstMessageID = "first_message_id"
	// AttrDoorRelease is the release that has let the message in; no sender sets it.
	AttrDoorRelease = "door_release"
)

// The bounds of a message that is kept for later (AttrDeliverAt, or behind an earlier one of its key).
const (
	// MaxKept is the largest such message: half of what a document holds.
	MaxKept = 512 << 10
	// MaxAhead is how far ahead a time of delivery may lie.
	MaxAhead = 30 * 24 * time.Hour
)

// UIDOfCustomer is the uid_source of a uid that was looked up by the customer.
const UIDOfCustomer = "customer"

// DefaultTenant is the tenant of messages that name none.
const DefaultTenant = "default"

// CustomerOf names a tenant's customer in one field. Empty: there is none. No part holds a ~.
func CustomerOf(tenant, customerID string) string {
	if customerID == "" {
		return ""
	}
	return cmp.Or(tenant, DefaultTenant) + "~" + customerID
}

// UnknownOrderingKey is of an event without a known owner, which runs in any order.
const UnknownOrderingKey = "unknown"

// Message is an event in transit: exactly what Pub/Sub carries.
type Message struct {
	Data       []byte            `store:"data,required"`
	Attributes map[string]string `store:"attributes,required"`
	// OrderingKey is the real Pub/Sub ordering key; empty means none.
	OrderingKey string `store:"ordering_key,required"`
}

// Pub/Sub's limits on a message, and the size from which the requirements ask for a warning.
const (
	WarnDataBytes       = 256 << 10
	MaxMessageBytes     = 10_000_000
	MaxAttributes       = 100
	MaxAttributeKey     = 256
	MaxAttributeValue   = 1024
	MaxOrderingKeyBytes = 1024
)

// Size is what Pub/Sub counts of a message.
func (m Message) Size() int {
	size := len(m.Data) + len(m.OrderingKey)
	for key, value := range m.Attributes {
		size += len(key) + len(value)
	}
	return size
}

// ErrLimit is wrapped by every error of Message.Check.
var ErrLimit = errors.New("contract: message exceeds a Pub/Sub limit")

// Check names the limit of Pub/Sub that the message exceeds, never a value.
func (m Message) Check() error {
	if size := m.Size(); size > MaxMessageBytes {
		return fmt.Errorf("%w: %d bytes with attributes and ordering key, at most %d", ErrLimit, size, MaxMessageBytes)
	}
	if len(m.Data) == 0 && len(m.Attributes) == 0 {
		return fmt.Errorf("%w: neither data nor attributes", ErrLimit)
	}
	if len(m.Attributes) > MaxAttributes {
		return fmt.Errorf("%w: %d attributes, at most %d", ErrLimit, len(m.Attributes), MaxAttributes)
	}
	for key, value := range m.Attributes {
		if key == "" || len(key) > MaxAttributeKey {
			return fmt.Errorf("%w: attribute key of %d bytes, 1 to %d", ErrLimit, len(key), MaxAttributeKey)
		}
		if len(value) > MaxAttributeValue {
			return fmt.Errorf("%w: attribute %s of %d bytes, at most %d", ErrLimit, key, len(value), MaxAttributeValue)
		}
	}
	if len(m.OrderingKey) > MaxOrderingKeyBytes {
		return fmt.Errorf("%w: ordering key of %d bytes, at most %d", ErrLimit, len(m.OrderingKey), MaxOrderingKeyBytes)
	}
	return nil
}
