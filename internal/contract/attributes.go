package contract

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"billhook/internal/pii"
)

// Attributes are the attributes of a message (requirements: PayNow contract, queue design), of which empty
// ones are not sent. A message may carry others.
type Attributes struct {
	// OrderingKey is the uid, else the customer, else "unknown".
	OrderingKey string `json:"ordering_key" validate:"required,ordering_key"`
	EventID     string `json:"event_id" validate:"required,id"`
	EventType   string `json:"event_type" validate:"required,event_type"`
	OrderID     string `json:"order_id,omitempty" validate:"omitempty,id"`
	// ShopOrderID is the shop's own order that a payment provider's order pays for.
	ShopOrderID string `json:"shop_order_id,omitempty" validate:"omitempty,id"`
	CustomerID  string `json:"paynow_customer_id,omitempty" validate:"omitempty,id"`
	UID         string `json:"uid,omitempty" validate:"omitempty,uid"`
	// UIDSource is customer where the uid was looked up, so that the event adds nothing to what is known.
	UIDSource string `json:"uid_source,omitempty" validate:"omitempty,code,oneof=customer"`
	// Points is what the products were worth when the message was published; the worker computes its own.
	Points        string `json:"points,omitempty" validate:"omitempty,id,number,max=19"`
	Contract      string `json:"contract,omitempty" validate:"omitempty,code"`
	CorrelationID string `json:"correlation_id,omitempty" validate:"omitempty,id"`
	// IdempotencyKey names what the message was made from. A queue may know its events by it.
	IdempotencyKey string `json:"idempotency_key,omitempty" validate:"omitempty,id"`
	Tenant         string `json:"tenant,omitempty" validate:"omitempty,id"`
	RoutingKey     string `json:"routing_key,omitempty" validate:"omitempty,code"`
	Priority       string `json:"priority,omitempty" validate:"omitempty,code"`
	MaxAttempts    string `json:"max_attempts,omitempty" validate:"omitempty,id,number,max=3"`
	FirstPublished string `json:"first_published_at,omitempty" validate:"omitempty,timestamp"`
	// DoorReceived is when the webhook service received the event. It alone sets it.
	DoorReceived string `json:"door_received_at,omitempty" validate:"omitempty,timestamp"`
	// DeliverAt is when the message is to be handled, not before.
	DeliverAt string `json:"deliver_at,omitempty" validate:"omitempty,timestamp"`
	// DelayTicket is the place of a message that comes back from a long wait among those of its key.
	DelayTicket string `json:"delay_ticket,omitempty" validate:"omitempty,id,max=100"`
	// FirstMessageID is on the same messages: the id that the broker delivered it under first.
	FirstMessageID string `json:"first_message_id,omitempty" validate:"omitempty,id"`
}

// AttributeRules bounds every attribute of a message. An ordering key is an id there; see Rules.
var AttributeRules = attributeRules.project().Rules()

// uidRules are AttributeRules for a message whose ordering key is the uid.
var uidRules = func() map[string]pii.Rule {
	rules := maps.Clone(AttributeRules)
	rules[AttrOrderingKey] = pii.UID
	return rules
}()

// Rules bounds the attributes of this message: an ordering key has the form of what it was made of.
func (a *Attributes) Rules() map[string]pii.Rule {
	if a.UID != "" && a.OrderingKey == a.UID {
		return uidRules
	}
	return AttributeRules
}

// attributeNames are the names on the wire, in the order of the fields.
var attributeNames = func() (names []string) {
	for i := range reflect.TypeFor[Attributes]().NumField() {
		names = append(names, jsonName(reflect.TypeFor[Attributes]().Field(i)))
	}
	return names
}()

// at is the field at a place of attributeNames.
func (a *Attributes) at(i int) *string {
	return reflect.ValueOf(a).Elem().Field(i).Addr().Interface().(*string)
}

// named is the attribute of a name; empty for a name that is not known.
func (a *Attributes) named(name string) *string {
	if i := slices.Index(attributeNames, name); i >= 0 {
		return a.at(i)
	}
	return new(string)
}

// Map returns the attributes as a message carries them.
func (a *Attributes) Map() map[string]string {
	set := make(map[string]string, len(attributeNames))
	for i, name := range attributeNames {
		if value := *a.at(i); value != "" {
			set[name] = value
		}
	}
	return set
}

// AttributesOf reads the attributes of a message, passing over those it does not know.
func AttributesOf(message map[string]string) *Attributes {
	a := &Attributes{}
	for i, name := range attributeNames {
		*a.at(i) = message[name]
	}
	return a
}

// Validate reports every rule that the attributes break, as an *Invalid.
func (a *Attributes) Validate() error {
	return check(a, "attributes.")
}

var attributeRules = compile(reflect.TypeFor[Attributes]())

// Order sets the ordering key, and returns the broker's. A key that is spelled "unknown" counts as none: its
// messages would otherwise queue behind those without a key.
func (a *Attributes) Order(key string) (brokerKey string) {
	if key == UnknownOrderingKey {
		key = ""
	}
	a.OrderingKey = cmp.Or(key, UnknownOrderingKey)
	return key
}

// agree: event id and type always agree with the body, the rest where both say it.
func (a *Attributes) agree(body *Attributes) error {
	if err := a.Validate(); err != nil {
		return err
	}
	invalid := &Invalid{}
	for i, name := range attributeNames {
		own, said := *a.at(i), *body.at(i)
		if own != said && (own != "" && said != "" || name == AttrEventID || name == AttrEventType) {
			invalid.Violations = append(invalid.Violations, pii.Violation{Path: "attributes." + name, Rule: "agrees_with_body"})
		}
	}
	if len(invalid.Violations) > 0 {
		return invalid
	}
	return nil
}
