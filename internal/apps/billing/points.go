// Package billing owns the effect of each billing event: the points that an order credits, and to whom; the
// points that a refund or a chargeback reverses; and the record and update of a subscription. It does not
// commit or retry, and keeps no records of events. An amount that it cannot compute exactly is a dead letter.
package billing

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/bits"
	"slices"
	"time"

	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/products"
	"billhook/internal/contract"
	"billhook/internal/contract/money"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// The results of an event, as its record keeps them.
const (
	Credited         = "credited"           // the order's points are on the account
	AlreadyCredited  = "already_credited"   // another event has credited the order
	Reversed         = "reversed"           // points of the order are reversed
	AlreadyReversed  = "already_reversed"   // another event has reversed them
	NothingToReverse = "nothing_to_reverse" // no points of the order are left
	Noted            = "noted"              // the event moves no points
)

// CreditedDiffers is the result of a credit to the order's own uid while the customer is mapped to another.
const CreditedDiffers = "credited_mapping_differs"

// chargeback is the event type that always reverses all points that are left.
const chargeback = "order.chargeback"

// Points credits and reverses the points of orders.
type Points struct {
	Store store.Querier
	Now   func() time.Time
	// PointsOf returns the points of one piece of a tenant's product; known reports whether orders may name it.
	// The error wraps products.ErrBroken, or is the store's.
	PointsOf func(ctx context.Context, tenant, productID string) (points int64, known bool, err error)
	Mappings *customers.Mappings // learn the users of customers from paid orders; nil: nothing is learned
	Orders   []string            // the queues that get an event of each paid order of the shop; may be empty
}

// payment is the data of the event about a paid order of the shop.
type payment struct {
	OrderID   string `json:"order_id"`
	PaymentID string `json:"payment_id"`
}

// Register puts the handlers into the registry under the names the catalog uses.
func Register(r *handler.Registry, p Points, s Subscriptions) {
	handler.RegisterTx(r, "points.credit", p.Credit, p.Orders...)
	handler.RegisterTx(r, "points.reverse", p.Reverse)
	handler.RegisterTx(r, "points.acknowledge", p.Acknowledge)
	handler.RegisterTx(r, "subscriptions.record", s.Record, s.Updates.ID)
}

// Credit credits a paid order's points to its user, else to its customer: for each item the quantity times
// the current points of its product, which no sender can set. It stores the order's total for refunds. The
// same commit confirms the shop's order and maps the customer to the uid, if the order names them. A first
// try reads nothing: the entry's id depends on the order, so that the store refuses a second credit. A
// further try reads, and accepts an existing credit if it is the same.
func (p Points) Credit(ctx context.Context, e handler.Event, in *contract.Payment) (handler.Effect, error) {
	order := in.Data.Order
	if order == nil {
		return handler.Effect{}, retry.Permanent("no_order", nil)
	}
	account, err := accountOf(e, order)
	move := ledger.Move{
		Tenant: e.Tenant, Order: order.ID, EventID: e.ID, From: ledger.IssuedPoints(order.ID), To: account,
		Currency: ledger.Points, CreatedAt: p.Now(),
	}
	if err == nil {
		move.Amount, err = p.worth(ctx, e.Tenant, order)
	}
	if err == nil {
		move.OrderTotal, move.OrderCurrency, err = totalOf(order)
	}
	var learned customers.Learned
	if err == nil {
		learned, err = p.learn(ctx, e, order)
	}
	if err != nil {
		return handler.Effect{}, err
	}
	if e.Try > 1 || (e.Try == 1 && !learned.Looked) {
		chain, err := p.load(ctx, e.Tenant, order.ID)
		switch {
		case err != nil:
			return handler.Effect{}, err
		case len(chain.Entries) == 0:
		case chain.Entries[0].EventID == e.ID:
			return p.confirmed(e, order, handler.Effect{Result: Credited}), nil
		case (chain.Entries[0].Account == account || chain.Holder() == account) &&
			chain.Entries[0].Amount == move.Amount:
			return p.confirmed(e, order, handler.Effect{Result: AlreadyCredited}), nil
		default:
			return handler.Effect{}, retry.Conflicting("order_credited_differently", nil)
		}
	}
	writes, err := ledger.Credit(move)
	result := Credited
	if learned.Differs {
		result = CreditedDiffers
	}
	credited, err := effect(append(writes, learned.Writes...), err, result)
	return p.confirmed(e, order, credited), err
}

// confirmed adds the event that confirms the shop's order to an effect, if the checkout names the order.
func (p Points) confirmed(e handler.Event, order *contract.Order, effect handler.Effect) handler.Effect {
	shopOrder := e.Attributes[contract.AttrShopOrderID]
	if shopOrder == "" {
		return effect
	}
	body := contract.Of(&contract.Event{
		Type: "order.payment_confirmed", Version: 1, CorrelationID: e.CorrelationID,
		Data: payment{shopOrder, order.ID},
	})
	for _, queue := range p.Orders {
		effect.Emit = append(effect.Emit, handler.Emission{To: queue, OrderingKey: shopOrder, Body: body})
	}
	return effect
}

// learn returns the mapping of a paid order. It returns none if the webhook service found the uid by the
// customer, because that could restore a mapping that a person has changed since.
func (p Points) learn(ctx context.Context, e handler.Event, o *contract.Order) (customers.Learned, error) {
	seen := customers.Mapping{
		Tenant: e.Tenant, CustomerID: customerOf(e, o), UID: e.Attributes[contract.AttrUID], LinkedBy: e.ID,
	}
	known := e.Attributes[contract.AttrUIDSource] != ""
	if p.Mappings == nil || seen.CustomerID == "" || seen.UID == "" || known {
		return customers.Learned{}, nil
	}
	learned, err := p.Mappings.Learn(ctx, seen, e.Try)
	if err != nil {
		return customers.Learned{}, retry.Outage("store_unavailable", err)
	}
	return learned, nil
}

// Reverse reverses points of an order on the account that holds them: all that are left for a chargeback, for
// a refund without an amount, and for one of the order's total or more; else the credit times amount / total,
// rounded down, and never more than are left. A refund with an id is reversed once for any number of events.
// A refund before its order is tried again.
func (p Points) Reverse(ctx context.Context, e handler.Event, in *contract.Payment) (handler.Effect, error) {
	order := in.Data.Order
	if order == nil {
		return handler.Effect{}, retry.Permanent("no_order", nil)
	}
	chain, err := p.load(ctx, e.Tenant, order.ID)
	if err != nil {
		return handler.Effect{}, err
	}
	if len(chain.Entries) == 0 {
		return handler.Effect{}, retry.Missing("order_not_seen", nil)
	}
	if chain.Reversed(e.ID) {
		return handler.Effect{Result: Reversed}, nil
	}
	points, refund := chain.Left(), contract.Refund{}
	if in.Data.Refund != nil && e.Type != chargeback {
		refund = *in.Data.Refund
	}
	if refund.ID != "" && chain.Refunded(refund.ID) {
		return handler.Effect{Result: AlreadyReversed}, nil
	}
	if refund.Amount != "" {
		share, err := shareOf(chain.Entries[0], refund.Amount, order.Currency)
		if err != nil {
			return handler.Effect{}, err
		}
		points = min(points, share)
	}
	if points == 0 {
		return handler.Effect{Result: NothingToReverse}, nil
	}
	writes, err := chain.Reverse(refund.ID, e.ID, points, p.Now())
	return effect(writes, err, Reversed)
}

// Acknowledge records a closed chargeback. Providers do not publish the possible outcomes, so a person
// decides whether to credit the points again.
func (p Points) Acknowledge(context.Context, handler.Event, *contract.Payment) (handler.Effect, error) {
	return handler.Effect{Result: Noted}, nil
}

func (p Points) load(ctx context.Context, tenant, order string) (ledger.Chain, error) {
	chain, err := ledger.Load(ctx, p.Store, tenant, order)
	switch {
	case errors.Is(err, ledger.ErrBroken):
		return ledger.Chain{}, retry.Permanent("ledger_broken", err)
	case errors.Is(err, store.ErrInvalid):
		return ledger.Chain{}, retry.Permanent("entry_invalid", err)
	case err != nil:
		return ledger.Chain{}, retry.Outage("store_unavailable", err)
	}
	return chain, nil
}

func accountOf(event handler.Event, order *contract.Order) (ledger.Account, error) {
	if uid := event.Attributes[contract.AttrUID]; uid != "" {
		return ledger.UserPoints(uid), nil
	}
	if id := customerOf(event, order); id != "" {
		return ledger.CustomerPoints(id), nil
	}
	return "", retry.Permanent("no_account", nil)
}

func customerOf(event handler.Event, order *contract.Order) string {
	return cmp.Or(order.CustomerID, event.Attributes[contract.AttrCustomerID])
}

// totalOf returns an order's total, else the sum of its prices; without a currency it is unknown.
func totalOf(order *contract.Order) (total int64, currency string, err error) {
	if order.Currency == "" {
		return 0, "", nil
	}
	if order.Total != "" {
		total, err = parse(order.Total, order.Currency)
		return total, order.Currency, err
	}
	for _, item := range order.Items {
		if item.Price == "" {
			return 0, "", nil
		}
		price, err := parse(item.Price, order.Currency)
		if err != nil {
			return 0, "", err
		}
		var fits bool
		if total, fits = addProduct(total, price, item.Quantity, math.MaxInt64); !fits {
			return 0, "", retry.Permanent("amount_overflow", nil)
		}
	}
	return total, order.Currency, nil
}

// shareOf returns the part of a credit that a refund reverses: all of it for the order's total or more, else
// pro rata, rounded down, computed in 128 bits. A refund's currency must be the order's.
func shareOf(credit ledger.Move, amount, currency string) (int64, error) {
	switch {
	case credit.OrderCurrency == "":
		return 0, retry.Permanent("order_total_unknown", nil)
	case currency != "" && currency != credit.OrderCurrency:
		return 0, retry.Permanent("currency_mismatch", nil)
	}
	refunded, err := parse(amount, credit.OrderCurrency)
	if err != nil {
		return 0, err
	}
	if refunded >= credit.OrderTotal {
		return credit.Amount, nil
	}
	// None of the three is negative, and the amount is below the total: the division
	// cannot overflow, and the share is below the credit.
	high, low := bits.Mul64(uint64(credit.Amount), uint64(refunded)) //nolint:gosec // G115: not negative
	share, _ := bits.Div64(high, low, uint64(credit.OrderTotal))     //nolint:gosec // G115: not negative
	return int64(share), nil                                         //nolint:gosec // G115: below the credit
}

func parse(decimal, currency string) (int64, error) {
	minor, err := money.Parse(decimal, currency)
	if err == nil && minor < 0 {
		err = money.ErrAmount
	}
	if err != nil {
		return 0, retry.Permanent("bad_amount", err)
	}
	return minor, nil
}

// addProduct returns sum + a*b; fits: it stays within the limit, and neither factor is negative.
func addProduct(sum, a, b, limit int64) (result int64, fits bool) {
	if a < 0 || b < 0 {
		return 0, false
	}
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high != 0 || low > uint64(limit-sum) { //nolint:gosec // G115: the sum is within the limit
		return 0, false
	}
	return sum + int64(low), true //nolint:gosec // G115: within the limit
}

// effect makes the effect of a handler. An entry that the ledger refuses would be invalid in any attempt.
func effect(writes []store.Write, err error, result string) (handler.Effect, error) {
	if err != nil {
		return handler.Effect{}, retry.Permanent("entry_invalid", err)
	}
	return handler.Effect{Writes: writes, Result: result, Entry: writes[0].Key.ID}, nil
}

// worth sums points times quantity over the items of an order. The error names unknown products, up to
// retry.MaxSubjects, so that they can be set before the order is replayed.
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
		points, known, err := p.PointsOf(ctx, tenant, id)
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
