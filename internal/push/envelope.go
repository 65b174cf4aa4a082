package push

import (
	"errors"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"billhook/internal/contract"
	"billhook/internal/pii"
)

// wrapped is the body of a push request (Pub/Sub documentation: receive push
// messages, wrapped). Fields that Google repeats in snake case, and any it may add,
// are passed over.
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
