package billing

import (
	"context"
	"errors"
	"slices"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/products"
	"billhook/internal/contract"
	"billhook/internal/retry"
)

// Products says what products are worth.
type Products interface {
	// Points returns what one piece of a tenant's product is worth; known reports whether orders may
	// name it. An error means that this is not known now, or wraps products.ErrBroken.
	Points(ctx context.Context, tenant, productID string) (points int64, known bool, err error)
}

var _ Products = (*products.Reader)(nil)

// worth sums points times quantity over the items of an order. One unknown product spoils the whole order.
// The verdict names the unknown ones, up to retry.MaxSubjects, so that they can be set before the order is
// replayed.
func (p Points) worth(ctx context.Context, tenant string, order *contract.Order) (int64, error) {
	if len(order.Items) == 0 {
		return 0, retry.Permanent("no_items", nil)
	}
	each, unknown := map[string]int64{}, []string{}
	for _, item := range order.Items {
		id := item.ProductID
		if _, seen := each[id]; seen || slices.Contains(unknown, id) {
			continue
		}
		points, known, err := p.Products.Points(ctx, tenant, id)
		switch {
		case errors.Is(err, products.ErrBroken):
			return 0, retry.Transient("product_broken", err)
		case err != nil:
			return 0, retry.Outage("store_unavailable", err)
		case known:
			each[id] = points
		default:
			unknown = append(unknown, id)
		}
		if len(unknown) == retry.MaxSubjects {
			break
		}
	}
	if len(unknown) > 0 {
		return 0, retry.BadRequest("unknown_product", nil, unknown...)
	}
	var sum int64
	for _, item := range order.Items {
		var fits bool
		if sum, fits = addProduct(sum, each[item.ProductID], item.Quantity, ledger.MaxAmount); !fits {
			return 0, retry.Permanent("amount_overflow", nil)
		}
	}
	return sum, nil
}
