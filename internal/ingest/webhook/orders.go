package webhook

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/orders"
	"billhook/internal/contract"
	"billhook/internal/platform/serve"
)

var (
	errOrder  = serve.Refuse(http.StatusNotFound, "order_unknown", "No order of that id has been seen; one that was sent just now may come.").After(1)
	errOrders = serve.Refuse(http.StatusServiceUnavailable, "order_lookup_failed", "The order cannot be looked up now; ask again.").After(5)
)

type orderState struct {
	OrderID string       `json:"order_id"`
	State   orders.State `json:"state"`
	// Reason is why it is cancelled, such as out_of_stock; ShortOf is then the product that was short.
	Reason     string    `json:"reason,omitempty"`
	ShortOf    string    `json:"short_of,omitempty"`
	PaymentDue time.Time `json:"payment_due,omitzero"`
	CreatedAt  time.Time `json:"created_at"`
	UpdatedAt  time.Time `json:"updated_at"`
}

// order answers what became of an order, to whom the producers' secret has signed its path for.
func (s *Service) order(w http.ResponseWriter, r *http.Request) {
	o := &outcome{source: genericSource, started: s.config.Now()}
	state, err := s.lookUpOrder(r)
	if err != nil {
		o.refused = refusal(err)
		s.answer(w, r, o)
		return
	}
	o.status, o.reason = http.StatusOK, "order_read"
	serve.WriteJSON(w, o.status, state)
	s.record(r.Context(), o)
}

func (s *Service) lookUpOrder(r *http.Request) (orderState, error) {
	from := s.sources[genericSource]
	if from == nil {
		return orderState{}, errOrder
	}
	claim, err := from.claimed(r, true) // without a path nothing says which order is asked for
	if err != nil {
		return orderState{}, err
	}
	if err := claim.Verify(nil); err != nil {
		return orderState{}, unsigned.Problem(err)
	}
	id, err := url.PathUnescape(chi.URLParam(r, "id"))
	if err != nil {
		return orderState{}, errOrder
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.config.PublishTimeout)
	defer cancel()
	found, err := orders.Find(ctx, s.config.Orders, cmp.Or(r.URL.Query().Get("tenant"), contract.DefaultTenant), id)
	switch {
	case errors.Is(err, orders.ErrUnknown):
		return orderState{}, errOrder
	case err != nil:
		return orderState{}, errOrders
	}
	return orderState{
		OrderID: found.ID, State: found.State, Reason: found.Reason, ShortOf: found.ShortOf, PaymentDue: found.PaymentDue,
		CreatedAt: found.CreatedAt, UpdatedAt: found.UpdatedAt,
	}, nil
}
