package webhook

import (
	"context"
	"math"
	"strconv"
	"time"

	"billhook/internal/contract"
)

// Products says what products are worth.
type Products interface {
	// Remembered returns what a piece of the product is worth, where that is known without asking.
	Remembered(tenant, productID string) (points int64, ok bool)
	// Points returns what a piece is worth, above 0; known: orders may name it. With an error nothing is known.
	Points(ctx context.Context, tenant, productID string) (points int64, known bool, err error)
}

// productTime bounds the wait for points: no sender should wait longer for a note.
const productTime = 500 * time.Millisecond

// points adds up what an order is worth, for readers of the topic; empty: not known in time. An order that no
// account could hold is a *contract.Invalid.
func (s *Service) points(ctx context.Context, tenant string, message contract.Body) (string, error) {
	m, err := contract.As[*contract.PayNow](message)
	if err != nil || m.EventType != contract.OrderPaid {
		return "", nil
	}
	var asking context.Context // none for what is remembered: it would cost more than the answer
	var sum int64
	over := -1
	for i := range m.Data.Order.Items {
		item := &m.Data.Order.Items[i]
		points, known := s.config.Products.Remembered(tenant, item.ProductID)
		if !known {
			if asking == nil {
				var cancel context.CancelFunc
				asking, cancel = context.WithTimeout(ctx, productTime)
				defer cancel()
			}
			var err error
			if points, known, err = s.config.Products.Points(asking, tenant, item.ProductID); err != nil || !known {
				return "", nil
			}
		}
		switch {
		case over >= 0:
		case item.Quantity > (math.MaxInt64-sum)/points:
			over = i
		default:
			sum += points * item.Quantity
		}
	}
	if over >= 0 {
		return "", contract.Broken("data.order.items["+strconv.Itoa(over)+"].quantity", "overflow")
	}
	return strconv.FormatInt(sum, 10), nil
}
