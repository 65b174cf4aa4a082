package orders

import "slices"

// State is the state of an order, by its name in the queue design's diagram.
type State string

// The states. An order remains in PaymentInitiated, OrderConfirmed, OrderCancelled or OrderShipped; the
// others are passed within a commit, and are in the history.
const (
	OrderCreated      State = "OrderCreated"      // its event has come
	ValidateInventory State = "ValidateInventory" // its pieces are looked for in the stock
	InventoryLocked   State = "InventoryLocked"   // its pieces are reserved
	PaymentInitiated  State = "PaymentInitiated"  // it waits for its payment
	PaymentConfirmed  State = "PaymentConfirmed"  // it is paid
	PaymentFailed     State = "PaymentFailed"     // its payment has failed
	PaymentTimeout    State = "PaymentTimeout"    // its payment did not come in time
	InventoryReleased State = "InventoryReleased" // its pieces are available again
	OrderConfirmed    State = "OrderConfirmed"    // its pieces are sold
	OrderCancelled    State = "OrderCancelled"    // its reason says why; final
	OrderShipped      State = "OrderShipped"      // it is on its way; final
)

const none State = ""

const (
	created          = "order.created"
	paymentConfirmed = "order.payment_confirmed"
	paymentFailed    = "order.payment_failed"
	paymentTimeout   = "order.payment_timeout"
	shipped          = "order.shipped"
)

const (
	emitsConfirmed = "order.confirmed"
	emitsCancelled = "order.cancelled"
	emitsShipped   = "order.shipped"
	emitsSeller    = "seller.order_created"
	emitsSold      = "product.sold"
)

// The reasons for which an order is cancelled.
const (
	OutOfStock     = "out_of_stock"    // too few pieces of a product are available
	FailedPayment  = "payment_failed"  // the payment has failed
	PaymentTimeOut = "payment_timeout" // the payment did not come in time
)

// The results of an order's event.
const (
	initiated        = "payment_initiated"         // its pieces are reserved, and it waits for its payment
	confirmed        = "confirmed"                 // it is paid, and its pieces are sold
	delivering       = "shipped"                   // it is on its way
	cancelledNoStock = "cancelled_out_of_stock"    // it is cancelled: too few pieces are available
	cancelledFailed  = "cancelled_payment_failed"  // it is cancelled: its payment has failed
	cancelledTimeout = "cancelled_payment_timeout" // it is cancelled: its payment did not come in time
	unseen           = "order_unknown"             // it has not been seen, so its payment times out nothing
	createdBefore    = "already_created"           // it was created before
	confirmedBefore  = "already_confirmed"         // it was paid before
	shippedBefore    = "already_shipped"           // it was shipped before
	cancelledBefore  = "already_cancelled"         // it was cancelled before
)

type move string

const (
	reserve move = "reserve"
	sell    move = "sell"
	release move = "release"
)

type edge struct {
	from    State
	on      string // the event of the transition; empty: it follows at once
	inStock *bool  // nil, or whether all pieces must be available
	to      State
	stock   move
	reason  string
	emits   string
	waits   bool // the payment timeout begins; any transition from the new state ends it
}

var yes, no = true, false

// edges are all transitions of an order: the state machine of the queue design, and shipping.
var edges = []edge{
	{from: none, on: created, to: OrderCreated},
	{from: OrderCreated, to: ValidateInventory},
	{from: ValidateInventory, inStock: &yes, to: InventoryLocked, stock: reserve},
	{from: ValidateInventory, inStock: &no, to: OrderCancelled, reason: OutOfStock, emits: emitsCancelled},
	{from: InventoryLocked, to: PaymentInitiated, waits: true},
	{from: PaymentInitiated, on: paymentConfirmed, to: PaymentConfirmed},
	{from: PaymentInitiated, on: paymentFailed, to: PaymentFailed, reason: FailedPayment},
	{from: PaymentInitiated, on: paymentTimeout, to: PaymentTimeout, reason: PaymentTimeOut},
	{from: PaymentConfirmed, to: OrderConfirmed, stock: sell, emits: emitsConfirmed},
	{from: PaymentFailed, to: InventoryReleased, stock: release},
	{from: PaymentTimeout, to: InventoryReleased, stock: release},
	{from: InventoryReleased, to: OrderCancelled, emits: emitsCancelled},
	{from: OrderConfirmed, on: shipped, to: OrderShipped, emits: emitsShipped},
}

// kind is the outcome of an event without a transition.
type kind string

const (
	superseded kind = "superseded"  // it came too late, and has no effect
	illegal    kind = "dead letter" // a person has to decide
	missing    kind = "tried again" // an earlier event is still missing
)

// answer is the outcome of events in states that have no transition for them.
type answer struct {
	at   []State
	on   []string
	is   kind
	code string
}

// answers has all pairs of such a state and an event.
var (
	paid    = []State{OrderConfirmed, OrderShipped}
	answers = []answer{
		{[]State{none}, []string{paymentConfirmed, paymentFailed, shipped}, missing, "order_not_seen"},
		// the commit that starts the wait writes the order
		{[]State{none}, []string{paymentTimeout}, superseded, unseen},
		{append(paid, PaymentInitiated, OrderCancelled), []string{created}, superseded, createdBefore},
		{[]State{PaymentInitiated, OrderCancelled}, []string{shipped}, illegal, "illegal_transition"},
		{paid, []string{paymentConfirmed, paymentFailed, paymentTimeout}, superseded, confirmedBefore},
		{[]State{OrderShipped}, []string{shipped}, superseded, shippedBefore},
		// a person has to refund the money
		{[]State{OrderCancelled}, []string{paymentConfirmed}, illegal, "paid_after_cancelled"},
		{[]State{OrderCancelled}, []string{paymentFailed, paymentTimeout}, superseded, cancelledBefore},
	}
)

// answerTo finds the answer to an event in a state; ok is false if there is a transition.
func answerTo(at State, on string) (a answer, ok bool) {
	for _, a := range answers {
		if slices.Contains(a.at, at) && slices.Contains(a.on, on) {
			return a, true
		}
	}
	return a, false
}

// walk returns an event's transition, if there is one, and those that follow at once.
func walk(from State, on string, inStock bool) (path []edge) {
	for {
		i := slices.IndexFunc(edges, func(e edge) bool {
			return e.from == from && e.on == on && (e.inStock == nil || *e.inStock == inStock)
		})
		if i < 0 {
			return path
		}
		path = append(path, edges[i])
		from, on = edges[i].to, ""
	}
}
