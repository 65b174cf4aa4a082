// Package contract owns the messages: body formats, declarations of their contents, attributes, limits and
// validation. It generates their schemas. It does not transport messages, and has no field that could hold
// personal data.
package contract

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"time"

	"billhook/internal/pii"
)

// The body formats, as the contract attribute names them.
const (
	PaymentV1  = "payment.v1"
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
	AttrContract       = "contract"
	AttrCorrelationID  = "correlation_id"
	AttrIdempotencyKey = "idempotency_key"
	AttrTenant         = "tenant"
	AttrRoutingKey     = "routing_key"
	AttrPriority       = "priority"
	AttrMaxAttempts    = "max_attempts"
	AttrFirstPublished = "first_published_at"
	AttrReceived       = "webhook_received_at"
	AttrDeliverAt      = "deliver_at"
	AttrDelayTicket    = "delay_ticket"
	AttrFirstMessageID = "first_message_id"
	// AttrRelease is the release of the webhook service that published the message; no sender sets it.
	AttrRelease = "webhook_release"
)

// The bounds of a message that is kept for later (AttrDeliverAt, or after an earlier one of its key).
const (
	// MaxKept is the most bytes of such a message: half the maximum of a document.
	MaxKept = 512 << 10
	// MaxAhead is the longest delay of a delivery.
	MaxAhead = 30 * 24 * time.Hour
)

// UIDOfCustomer is the value of uid_source for a uid that was looked up by the customer.
const UIDOfCustomer = "customer"

// DefaultTenant is the tenant of messages that name no tenant.
const DefaultTenant = "default"

// CustomerOf joins tenant and customer id with a ~, which neither contains. Empty: no customer.
func CustomerOf(tenant, customerID string) string {
	if customerID == "" {
		return ""
	}
	return cmp.Or(tenant, DefaultTenant) + "~" + customerID
}

// TimeOf parses the time of an attribute; zero: it is empty or not a time.
func TimeOf(attribute string) (at time.Time) {
	if attribute != "" {
		at, _ = time.Parse(time.RFC3339Nano, attribute)
	}
	return at
}

// UnknownOrderingKey marks an event without a known owner; such events have no order.
const UnknownOrderingKey = "unknown"

// Message is an event in transit: exactly what Pub/Sub carries.
type Message struct {
	Data       []byte            `store:"data,required"`
	Attributes map[string]string `store:"attributes,required"`
	// OrderingKey is the real Pub/Sub ordering key; empty means none.
	OrderingKey string `store:"ordering_key,required"`
}

// Pub/Sub's limits on a message, and the size above which the requirements demand a warning.
const (
	WarnDataBytes       = 256 << 10
	MaxMessageBytes     = 10_000_000
	MaxAttributes       = 100
	MaxAttributeKey     = 256
	MaxAttributeValue   = 1024
	MaxOrderingKeyBytes = 1024
)

// Size returns the message's size in bytes, as Pub/Sub counts it.
func (m Message) Size() int {
	size := len(m.Data) + len(m.OrderingKey)
	for key, value := range m.Attributes {
		size += len(key) + len(value)
	}
	return size
}

// ErrLimit is wrapped by every error of Message.Check.
var ErrLimit = errors.New("contract: message exceeds a Pub/Sub limit")

// Check returns an error that names the Pub/Sub limit that the message exceeds, never a value.
func (m Message) Check() error {
	switch size := m.Size(); {
	case size > MaxMessageBytes:
		return fmt.Errorf("%w: %d bytes with attributes and ordering key, at most %d", ErrLimit, size,
			MaxMessageBytes)
	case len(m.Data) == 0 && len(m.Attributes) == 0:
		return fmt.Errorf("%w: neither data nor attributes", ErrLimit)
	case len(m.Attributes) > MaxAttributes:
		return fmt.Errorf("%w: %d attributes, at most %d", ErrLimit, len(m.Attributes), MaxAttributes)
	case len(m.OrderingKey) > MaxOrderingKeyBytes:
		return fmt.Errorf("%w: ordering key of %d bytes, at most %d", ErrLimit, len(m.OrderingKey),
			MaxOrderingKeyBytes)
	}
	for key, value := range m.Attributes {
		switch {
		case key == "" || len(key) > MaxAttributeKey:
			return fmt.Errorf("%w: attribute key of %d bytes, 1 to %d", ErrLimit, len(key), MaxAttributeKey)
		case len(value) > MaxAttributeValue:
			return fmt.Errorf("%w: attribute %s of %d bytes, at most %d", ErrLimit, key, len(value), MaxAttributeValue)
		}
	}
	return nil
}

// Attributes are the known attributes of a message (requirements: PayNow contract, queue design). Empty ones
// are not sent. A message may carry others.
type Attributes struct {
	// OrderingKey is the uid, else the customer, else "unknown".
	OrderingKey string `json:"ordering_key" validate:"required,ordering_key"`
	EventID     string `json:"event_id" validate:"required,id"`
	EventType   string `json:"event_type" validate:"required,event_type"`
	OrderID     string `json:"order_id,omitempty" validate:"omitempty,id"`
	// ShopOrderID is the shop's order that the payment provider's order pays for.
	ShopOrderID string `json:"shop_order_id,omitempty" validate:"omitempty,id"`
	CustomerID  string `json:"paynow_customer_id,omitempty" validate:"omitempty,id"`
	UID         string `json:"uid,omitempty" validate:"omitempty,uid"`
	// UIDSource is customer if the uid was looked up: the event is then no evidence of who the customer is.
	UIDSource string `json:"uid_source,omitempty" validate:"omitempty,code,oneof=customer"`
	// Points is the products' worth when the message was published; the worker computes it again.
	Points        string `json:"points,omitempty" validate:"omitempty,id,number,max=19"`
	Contract      string `json:"contract,omitempty" validate:"omitempty,code"`
	CorrelationID string `json:"correlation_id,omitempty" validate:"omitempty,id"`
	// IdempotencyKey is the id of the message's source. A queue may identify its events by it.
	IdempotencyKey string `json:"idempotency_key,omitempty" validate:"omitempty,id"`
	Tenant         string `json:"tenant,omitempty" validate:"omitempty,id"`
	RoutingKey     string `json:"routing_key,omitempty" validate:"omitempty,code"`
	Priority       string `json:"priority,omitempty" validate:"omitempty,code"`
	MaxAttempts    string `json:"max_attempts,omitempty" validate:"omitempty,id,number,max=3"`
	FirstPublished string `json:"first_published_at,omitempty" validate:"omitempty,timestamp"`
	// Received is when the webhook service received the event. It alone sets it.
	Received string `json:"webhook_received_at,omitempty" validate:"omitempty,timestamp"`
	// DeliverAt is the earliest time at which the message is handled.
	DeliverAt string `json:"deliver_at,omitempty" validate:"omitempty,timestamp"`
	// DelayTicket ranks a message that was released from a lane among the messages of its key.
	DelayTicket string `json:"delay_ticket,omitempty" validate:"omitempty,id,max=100"`
	// FirstMessageID is the message id of the first delivery; only released messages have it.
	FirstMessageID string `json:"first_message_id,omitempty" validate:"omitempty,id"`
}

// AttributeRules bounds every known attribute. They take the ordering key for an id; see Rules.
var AttributeRules = attributeRules.project().Rules()

// uidRules are AttributeRules for a message whose ordering key is the uid.
var uidRules = func() map[string]pii.Rule {
	rules := maps.Clone(AttributeRules)
	rules[AttrOrderingKey] = pii.UID
	return rules
}()

// Rules returns the rules for this message: an ordering key that is the uid must have the shape of a uid.
func (a *Attributes) Rules() map[string]pii.Rule {
	if a.UID != "" && a.OrderingKey == a.UID {
		return uidRules
	}
	return AttributeRules
}

func (a *Attributes) at(i int) *string {
	return reflect.ValueOf(a).Elem().Field(i).Addr().Interface().(*string)
}

func (a *Attributes) named(name string) *string {
	for i := range attributeRules {
		if attributeRules[i].name == name {
			return a.at(i)
		}
	}
	return new(string)
}

// Map returns the attributes as a message carries them.
func (a *Attributes) Map() map[string]string {
	values, set := reflect.ValueOf(a).Elem(), make(map[string]string, 14) // rarely more
	for i := range attributeRules {
		if value := values.Field(i).String(); value != "" {
			set[attributeRules[i].name] = value
		}
	}
	return set
}

// AttributesOf reads the known attributes of a message and ignores others.
func AttributesOf(message map[string]string) *Attributes {
	a := &Attributes{}
	for i := range attributeRules {
		*a.at(i) = message[attributeRules[i].name]
	}
	return a
}

// Validate reports every rule that the attributes break, as an *Invalid.
func (a *Attributes) Validate() error {
	return invalid(check(a, "attributes.")...)
}

var attributeRules = compile(reflect.TypeFor[Attributes](), "", nil)

// Order sets the ordering key, and returns the key for the broker. The key "unknown" counts as no key, so the
// broker does not order such messages.
func (a *Attributes) Order(key string) (brokerKey string) {
	if key == UnknownOrderingKey {
		key = ""
	}
	a.OrderingKey = cmp.Or(key, UnknownOrderingKey)
	return key
}

// agree checks that event id and type equal the body's, and others where both have a value.
func (a *Attributes) agree(body *Attributes) error {
	if err := a.Validate(); err != nil {
		return err
	}
	var violations []pii.Violation
	for i := range attributeRules {
		name := attributeRules[i].name
		own, said := *a.at(i), *body.at(i)
		if own != said && (own != "" && said != "" || name == AttrEventID || name == AttrEventType) {
			violations = append(violations, pii.Violation{Path: "attributes." + name, Rule: "agrees_with_body"})
		}
	}
	return invalid(violations...)
}

// Publisher puts a message on a topic.
type Publisher interface {
	// Publish returns the message's id once the broker has confirmed it. After an error that wraps ErrLimit the
	// message is not published; after any other it may be. Its ordering key stays usable.
	Publish(ctx context.Context, topic string, m Message) (messageID string, err error)
}

// The reasons why a publish was not confirmed: senders get one answer for all, operators the code.
var (
	// ErrTopicMissing: the project has no such topic; it must be provisioned.
	ErrTopicMissing = errors.New("contract: no such topic")
	// ErrPublishDenied: the service may not publish to the topic, or has no known identity.
	ErrPublishDenied = errors.New("contract: not allowed to publish")
	// ErrBrokerDown: the broker does not answer, or answers that it is unavailable.
	ErrBrokerDown = errors.New("contract: the broker is not available")
	// ErrBrokerQuota: the project has used up its quota for now.
	ErrBrokerQuota = errors.New("contract: the project's quota is used up")
	// ErrPublisherFull: too many messages are waiting for their confirmation.
	ErrPublisherFull = errors.New("contract: too much waits for confirmation")
	// ErrKeyHeldUp: an earlier message of the ordering key failed; its own error says why.
	ErrKeyHeldUp = errors.New("contract: an earlier message of the ordering key failed")
)

// PublishCause returns the code of a publisher's error: one of a closed set, never empty.
func PublishCause(err error) string {
	for _, known := range [...]struct {
		err  error
		code string
	}{
		{ErrTopicMissing, "topic_missing"},
		{ErrPublishDenied, "grant_missing"},
		{ErrPublisherFull, "flow_control"},
		{ErrBrokerQuota, "quota"},
		{ErrBrokerDown, "broker_unavailable"},
		{ErrKeyHeldUp, "key_held_up"},
		{context.DeadlineExceeded, "broker_unavailable"},
		{context.Canceled, "canceled"},
	} {
		if errors.Is(err, known.err) {
			return known.code
		}
	}
	return "unknown"
}
