package contract

import (
	"bytes"
	"reflect"

	"github.com/go-json-experiment/json/jsontext"
)

// Format is a format of bodies. Members are named by JSON paths; of several the first that is there counts.
type Format struct {
	Name string
	// Marks are top members, all of which show the format of a message without the attribute.
	Marks []string
	Head  reflect.Type
	// Content is the member that is declared per event type and version; empty: Head says all.
	Content string
	// ID is the idempotency key, Time when the body was made; Version is empty where bodies have none.
	ID, Type, Time, Version string
	// Correlation is the correlation id of a body without one.
	Correlation []string
	// Repeated names the attributes that repeat a member of the body, with the member's paths.
	Repeated map[string][]string
	// UIDByCustomer: bodies do not say their uid; it is looked up by the customer.
	UIDByCustomer bool
	// IdempotencyKey names what the message was made from; MaxAttempts is how often it may be tried.
	IdempotencyKey, MaxAttempts string
	// Attempts is how often the message was tried, or Attempt which attempt the next one is.
	Attempts, Attempt string
	// Hashed are the members at the top that two messages of one id must agree in.
	Hashed []string
	// Posted is what another service is sent beside event_id and tenant: names there, and paths here.
	Posted []Posted
	// Needs are members that bodies of some event types must have.
	Needs []Need
}

// Posted is a member of what another service is sent; without a needed one it cannot be posted.
type Posted struct {
	Name, Path string
	Needed     bool
}

// Need is a member that bodies of a type must have; Types may end with a dot, for all that begin so.
type Need struct{ Types, Path string }

// Formats is the table.
var Formats = []Format{
	{
		Name: PaymentV1, Marks: []string{"eventId", "eventType"}, Head: reflect.TypeFor[Payment](),
		ID: "eventId", Type: "eventType", Time: "timestamp",
		Correlation: []string{"data.order.id", "data.subscription.id", "eventId"},
		Repeated: map[string][]string{
			AttrOrderID: {"data.order.id"}, AttrCustomerID: {"data.order.customerId", "data.subscription.customerId"},
		},
		UIDByCustomer: true,
		// The time is left out: an event without one of its own has that of its receipt, and a
		// provider's second delivery must not look like another payload.
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
		// Other members of an envelope are about its delivery, and may differ in another attempt.
		Hashed: []string{"action", "payload"},
		Posted: []Posted{
			{"source_event_id", "id", true},
			{"action", "action", true},
			// A correlation id is often the same, and sometimes is not: no guessing.
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

// EachMember calls f with each member of a JSON object, in place, and reports whether data is one.
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
