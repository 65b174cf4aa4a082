// Package notifications emits a message for an event's user to each channel of the catalog's notifications. A
// message has only ids. The package sends nothing, and knows no addresses.
package notifications

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

// FanOut is the name of the handler in the catalog.
const FanOut = "notifications.fan_out"

// FannedOut is the result of an event whose messages were emitted.
const FannedOut = "fanned_out"

// Notice is the data of a message: the user, and the event's subject.
type Notice struct {
	UserID    string `json:"user_id"`
	OrderID   string `json:"order_id,omitempty"`
	ProductID string `json:"product_id,omitempty"`
	PaymentID string `json:"payment_id,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// Register adds the handler, which emits to the queue that the catalog lists for it.
func Register(r *handler.Registry, c *catalog.Catalog) {
	send, ok := c.EmitsTo(FanOut)
	if !ok {
		return
	}
	handler.RegisterTx(r, FanOut, fanOut{c.Notifications, send.ID}.handle, send.ID)
}

// Check reports event types that an enabled queue gives to the handler and that have no channel.
func Check(c *catalog.Catalog) error {
	var mistakes []error
	for _, q := range c.Queues {
		for _, eventType := range slices.Sorted(maps.Keys(q.Handlers)) {
			if q.Enabled && q.Handlers[eventType].Name == FanOut && len(c.Notifications[eventType]) == 0 {
				missing := errors.New("notifications.yaml has no row for it")
				mistakes = append(mistakes, c.WrongHandler(q.ID, eventType, missing))
			}
		}
	}
	return errors.Join(mistakes...)
}

type fanOut struct {
	channels map[string][]string
	send     string
}

// handle emits a message for each channel. Their age counts from the event's first publishing.
func (f fanOut) handle(_ context.Context, event handler.Event, body contract.Body) (handler.Effect, error) {
	notice := Notice{
		UserID: body.Text("user_id"), OrderID: body.Text("order_id"), ProductID: body.Text("product_id"),
		PaymentID: body.Text("payment_id"), Reason: body.Text("reason"),
	}
	channels := f.channels[event.Type]
	switch {
	case len(channels) == 0:
		return handler.Effect{}, retry.Permanent("channels_missing", nil)
	case notice.UserID == "":
		return handler.Effect{}, retry.Permanent("user_missing", nil)
	}
	since := cmp.Or(contract.TimeOf(event.Attributes[contract.AttrFirstPublished]), event.PublishedAt)
	effect := handler.Effect{Result: FannedOut}
	for _, channel := range channels {
		message := contract.Event{Version: 1, CorrelationID: event.CorrelationID, Data: notice}
		message.Type = catalog.NotificationType(channel, event.Type)
		effect.Emit = append(effect.Emit, handler.Emission{
			To: f.send, RoutingKey: message.Type, Since: since, Body: contract.Of(&message),
		})
	}
	return effect, nil
}
