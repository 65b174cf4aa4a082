package push

import (
	"errors"
	"strconv"
	"strings"
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
	"billhook/internal/platform/store"
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

// envelope is one push, decoded as far as the broker's wrapping goes.
type envelope struct {
	message      contract.Message
	messageID    string
	publishedAt  time.Time
	subscription string
	// number is the broker's own count of the deliveries; 0 where it sends none.
	number int
	// trace is the id of the trace that the push is part of; empty: it came with none.
	trace string
	// received is when the push arrived: it is to be answered within the ack deadline.
	received time.Time
	// release gives back what its body held of the budget.
	release func()
}

var errEnvelope = errors.New("push: not a push request's body")

// decodeEnvelope reads a push request's body. Its errors hold nothing of the body.
func decodeEnvelope(body []byte) (envelope, error) {
	var w wrapped
	// A message id becomes part of a document's id and of attributes: Pub/Sub's are digits.
	if err := json.Unmarshal(body, &w); err != nil || !pii.ID.Valid(w.Message.MessageID) {
		return envelope{}, errEnvelope
	}
	return envelope{
		message: contract.Message{
			Data: w.Message.Data, Attributes: w.Message.Attributes, OrderingKey: w.Message.OrderingKey,
		},
		messageID:    w.Message.MessageID,
		publishedAt:  w.Message.PublishTime,
		subscription: w.Subscription[strings.LastIndexByte(w.Subscription, '/')+1:],
		number:       w.DeliveryAttempt,
	}, nil
}

// delivery is a message that was delivered, and all that it says. It does not change once it is decoded.
type delivery struct {
	envelope
	origin
	task
	queue *queue
	event handler.Event
	// record is the identity of the event's record, as far as the message could be read.
	record dedupe.Record
	// broken is why the message has no valid event.
	broken error
	// lane is where the message waits if it has to. mayMissLane: an instance may not know of a new lane for noneWaitFor.
	lane        lane.Name
	mayMissLane bool
}

// origin is where a message comes from.
type origin struct {
	// returned: it comes back from a wait elsewhere than with the broker. replayed: it is a dead letter again.
	returned, replayed bool
	// published is when it was published first, and firstID its first message id, as far as its attributes tell.
	published time.Time
	firstID   string
}

// task is who handles an event.
type task struct {
	// policy is the catalog's entry of the event's handler, and handler the registered one, if found.
	policy  catalog.Handler
	handler handler.Handler
	found   bool
	// allowed is how many attempts the event has, and before those that were made elsewhere.
	allowed, before int
	// republished is the message that a claim keeps, for a sweep to publish it again.
	republished *contract.Message
}

// maxKept is the largest message that a record keeps: half of what a document holds.
const maxKept = 512 << 10

// decode is the first step. It reads the message, and finds its handler in the catalog and in the registry.
func (s *Service) decode(q *queue, e envelope) *delivery {
	d := &delivery{envelope: e, queue: q, origin: originOf(e)}
	d.event, d.record, d.broken = decodeEvent(s.config.Catalog.Contracts, q, e)
	attributes := e.message.Attributes
	d.record.DelayTicket, d.record.PublishedAt = lane.Ticket(e.message), d.published
	if at, err := time.Parse(time.RFC3339Nano, attributes[contract.AttrDoorReceived]); err == nil {
		d.record.DoorReceivedAt = at
		if s.config.Now().Sub(at) < rates.GoodFor { // what comes late tells of a webhook service that may be gone
			s.config.Rates.Door(attributes[contract.AttrDoorRelease])
		}
	}
	d.lane.Queue, d.lane.Tenant = q.ID, d.record.Tenant
	if q.Ordered() {
		d.lane.OrderingKey = e.message.OrderingKey
		if key := attributes[contract.AttrOrderingKey]; d.lane.OrderingKey == "" && key != contract.UnknownOrderingKey {
			d.lane.OrderingKey = key // an emulator sends it in the attribute alone
		}
	}
	d.mayMissLane = d.lane.OrderingKey != "" && !q.waits // else lanes are looked at every time
	if d.broken != nil {
		return d
	}
	d.lane.Message = dedupe.ConflictKey(q.ID, d.event.Tenant, d.event.ID, d.record.PayloadHash).ID
	d.task = s.taskOf(d)
	d.record.Attempts = int64(d.before)
	return d
}

// originOf reads where a message comes from in its attributes.
func originOf(e envelope) origin {
	attributes := e.message.Attributes
	o := origin{
		published: e.publishedAt, firstID: e.messageID, returned: lane.Ticket(e.message) != "", replayed: attributes[deadletter.AttrReplayOf] != "",
	}
	if at, err := time.Parse(time.RFC3339Nano, attributes[contract.AttrFirstPublished]); err == nil {
		o.published = at
	}
	if id := attributes[contract.AttrFirstMessageID]; pii.ID.Valid(id) {
		o.firstID = id
	}
	return o
}

// taskOf finds who handles an event, and how often it may be tried.
func (s *Service) taskOf(d *delivery) (t task) {
	t.policy, _ = d.queue.Handler(d.event.Type)
	t.handler, t.found = s.config.Handlers.Lookup(t.policy.Name)
	// The message may ask for fewer attempts than the handler's, in an attribute or in its body.
	t.allowed = t.policy.MaxAttempts
	asked, _ := strconv.Atoi(d.event.Attributes[contract.AttrMaxAttempts])
	for _, n := range [...]int{asked, d.event.Body.MaxAttempts()} {
		if n >= 1 {
			t.allowed = min(t.allowed, n)
		}
	}
	if !d.replayed { // a replay has all its attempts
		// There is one attempt at the least: whoever sent it here wanted it tried.
		t.before = max(0, min(d.event.Body.Attempted(), t.allowed-1))
	}
	if t.handler.Leased != nil && len(d.message.Data) <= maxKept {
		// Pub/Sub takes names and bytes that no document may have. An orphan of such a message is reported.
		as := store.Set(store.Key{Collection: dedupe.Collection, ID: d.messageID}, store.Encode(&d.message))
		if store.CheckWrites([]store.Write{as}) == nil {
			t.republished = &d.message
		}
	}
	return t
}
