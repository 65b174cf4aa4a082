package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/catalog"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/orders"
	"billhook/internal/contract"
	"billhook/internal/pii"
	"billhook/internal/platform/cache"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

// productTime bounds the wait for points, which are only informative.
const productTime = 500 * time.Millisecond

// points adds up an order's points, for readers of the topic; empty: not known in time. If no account could
// hold them, the error is a *contract.Invalid.
func (s *Service) points(ctx context.Context, tenant string, message contract.Body) (string, error) {
	m, err := contract.As[*contract.Payment](message)
	if err != nil || m.EventType != contract.OrderPaid {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, productTime)
	defer cancel()
	var sum int64
	over := -1
	for i := range m.Data.Order.Items {
		item := &m.Data.Order.Items[i]
		points, known, err := s.config.Points(ctx, tenant, item.ProductID)
		if err != nil || !known {
			return "", nil
		}
		if over < 0 && item.Quantity > (math.MaxInt64-sum)/points {
			over = i
		}
		if over < 0 {
			sum += points * item.Quantity
		}
	}
	if over >= 0 {
		return "", contract.Broken("data.order.items["+strconv.Itoa(over)+"].quantity", "overflow")
	}
	return strconv.FormatInt(sum, 10), nil
}

// A customer without a uid may get one at any time; a uid seldom changes.
const (
	knownFor     = time.Minute
	unknownFor   = 5 * time.Second
	maxCustomers = 10_000
	lookupTime   = 5 * time.Second
)

// UIDs returns a Config's UID that reads from the store, with a cache. It is safe for concurrent use.
func UIDs(
	db store.Getter, now func() time.Time,
) func(ctx context.Context, tenant, id string) (string, error) {
	uids := cache.New[string](maxCustomers, now) // by the id of the document; empty: there is none
	return func(ctx context.Context, tenant, id string) (string, error) {
		key := customers.Key(tenant, id)
		return uids.Get(ctx, key.ID, func(ctx context.Context) (string, time.Duration, error) {
			ctx, cancel := context.WithTimeout(ctx, lookupTime)
			defer cancel()
			doc, err := store.Find(ctx, db, key)
			uid, _ := doc.Fields["uid"].(string)
			switch {
			case err != nil:
				return "", 0, fmt.Errorf("webhook: look up customer: %w", err)
			case doc.Version == 0:
				return "", unknownFor, nil
			case !pii.UID.Valid(uid):
				return "", 0, errors.New("webhook: customer document holds no valid uid")
			}
			return uid, knownFor, nil
		})
	}
}

var (
	errOrder = refusals.Add(http.StatusNotFound, "order_unknown",
		"No order of that id has been seen; one that was sent just now may come.", 1)
	errOrders = refusals.Add(http.StatusServiceUnavailable, "order_lookup_failed",
		"The order cannot be looked up now; ask again.", 5)
)

// order answers with an order's state, if the request is signed for its path.
func (s *Service) order(w http.ResponseWriter, r *http.Request) {
	o := &outcome{source: catalog.Producers, started: s.config.Now()}
	state, err := s.lookUpOrder(r)
	if err != nil {
		o.refuse(err)
		s.answer(w, r, o)
		return
	}
	o.Status, o.Reason = http.StatusOK, "order_read"
	serve.WriteJSON(w, o.Status, state)
	s.record(r.Context(), o)
}

func (s *Service) lookUpOrder(r *http.Request) (orders.Standing, error) {
	from := s.sources[catalog.Producers]
	if from == nil {
		return orders.Standing{}, errOrder
	}
	claim, err := from.claimed(r, true) // a signature without a path would be valid for any order
	if err != nil {
		return orders.Standing{}, err
	}
	if err := claim.Verify(nil); err != nil {
		return orders.Standing{}, unsigned.Problem(err)
	}
	id, err := url.PathUnescape(chi.URLParam(r, "id"))
	if err != nil {
		return orders.Standing{}, errOrder
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.config.PublishTimeout)
	defer cancel()
	tenant := cmp.Or(r.URL.Query().Get("tenant"), contract.DefaultTenant)
	found, err := orders.FindStanding(ctx, s.config.Store, tenant, id)
	switch {
	case errors.Is(err, orders.ErrUnknown):
		err = errOrder
	case err != nil:
		err = errOrders
	}
	return found, err
}
