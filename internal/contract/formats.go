package contract

import (
	"bytes"
	"reflect"

	"github.com/go-json-experiment/json/jsontext"
)

// Format is a format of bodies. JSON paths name the members; of several paths, the first present one counts.
type Format struct {
	Name string
	// Marks are top-level members. A message without the contract attribute has this format if it has all.
	Marks []string
	Head  reflect.Type
	// Content is the member whose content is declared per event type and version; empty: Head has all members.
	Content string
	// ID is the idempotency key, Time is when the body was made; an empty Version: bodies have none.
	ID, Type, Time, Version string
	// Correlation replaces the correlation id of a body without one.
	Correlation []string
	// Repeated maps each attribute that repeats a member of the body to the member's paths.
	Repeated map[string][]string
	// UIDByCustomer: bodies have no uid; it is looked up by the customer.
	UIDByCustomer bool
	// IdempotencyKey is the id of the message's source; MaxAttempts is the most attempts it may have.
	IdempotencyKey, MaxAttempts string
	// Attempts counts the attempts made so far; Attempt is the number of the next one.
	Attempts, Attempt string
	// Hashed are the top-level members that must be equal in two messages with one id.
	Hashed []string
	// Posted lists the members that another service receives, beside event_id and tenant.
	Posted []Posted
	// Needs are members that bodies of some event types must have.
	Needs []Need
}

// Posted maps the member at Path to a Name in the request. A body without a needed member is not posted.
type Posted struct {
	Name, Path string
	Needed     bool
}

// Need is a member that bodies of an event type must have. Types that ends with a dot is a prefix.
type Need struct{ Types, Path string }

// Formats are all body formats.
var Formats = []Format{
	{
		Name: PaymentV1, Marks: []string{"eventId", "eventType"}, Head: reflect.TypeFor[Payment](),
		ID: "eventId", Type: "eventType", Time: "timestamp",
		Correlation: []string{"data.order.id", "data.subscription.id", "eventId"},
		Repeated: map[string][]string{
			AttrOrderID: {"data.order.id"}, AttrCustomerID: {"data.order.customerId", "data.subscription.customerId"},
		},
		UIDByCustomer: true,
		// The time is left out: an event without a time gets the time of its receipt, and a second delivery by the
		// provider must not look like another payload.
		Hashed: []string{"eventType", "data"},
		Posted: []Posted{
			{"source_event_id", "eventId", true},
			{"event_type", "eventType", true},
			{"created_at", "timestamp", false},
			{"data", "data", true},
		},
		Needs: []Need{
			{"order.", "data.order"},
			{OrderPaid, "data.order.items"},
			{"subscription.", "data.subscription"},
			{"trial.", "data.subscription"},
		},
	},
	{
		Name: EnvelopeV1, Marks: []string{"action", "payload"}, Head: reflect.TypeFor[Envelope](),
		Content: "payload",
		ID:      "id", Type: "action", Time: "created_at",
		Correlation: []string{"payload.subscription_id", "id"},
		Repeated: map[string][]string{
			AttrCorrelationID: {"correlation_id"}, AttrIdempotencyKey: {"idempotency_key"},
			AttrOrderID: {"payload.order_id"}, AttrCustomerID: {"payload.customer_id"}, AttrUID: {"payload.uid"},
		},
		IdempotencyKey: "idempotency_key", MaxAttempts: "max_attempts", Attempts: "attempts",
		// An envelope's other members concern its delivery and may differ between attempts.
		Hashed: []string{"action", "payload"},
		Posted: []Posted{
			{"source_event_id", "id", true},
			{"action", "action", true},
			// The correlation id often equals the subscription's id, but not always, so it is no substitute.
			{"subscription_id", "payload.subscription_id", true},
			{"correlation_id", "correlation_id", false},
			{"created_at", "created_at", false},
			{"payload", "payload", false},
		},
	},
	{
		Name: MessageV1, Marks: []string{"type", "data", "version"}, Head: reflect.TypeFor[Event](),
		Content: "data",
		ID:      "id", Type: "type", Time: "timestamp", Version: "version",
		Correlation: []string{"id"},
		Repeated: map[string][]string{
			AttrCorrelationID: {"correlation_id"}, AttrOrderID: {"data.order_id"},
		},
		MaxAttempts: "metadata.max_retries", Attempt: "metadata.attempt",
		Hashed: []string{"type", "version", "data"},
		Posted: []Posted{
			{"source_event_id", "id", true},
			{"event_type", "type", true},
			{"version", "version", true},
			{"producer", "producer", false},
			{"correlation_id", "correlation_id", false},
			{"created_at", "timestamp", false},
			{"data", "data", false},
		},
	},
}

// EachMember calls f with each member of a JSON object, without a copy. It reports whether data is one.
func EachMember(data []byte, f func(name string, value jsontext.Value)) bool {
	decoder := jsontext.NewDecoder(bytes.NewBuffer(data))
	if token, err := decoder.ReadToken(); err != nil || token.Kind() != '{' {
		return false
	}
	for decoder.PeekKind() == '"' {
		name, err := decoder.ReadToken()
		if err != nil {
			return false
		}
		called := name.String()
		value, err := decoder.ReadValue()
		if err != nil {
			return false
		}
		end := int(decoder.InputOffset())
		f(called, data[end-len(value):end])
	}
	_, err := decoder.ReadToken()
	return err == nil
}
