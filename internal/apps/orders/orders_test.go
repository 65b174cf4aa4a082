package orders_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/orders"
	"billhook/internal/apps/orders/orderstest"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

var ada = audit.Author{Proof: audit.ThisMachine, Name: "ada"}

type shop struct {
	*orderstest.Shop
	*storetest.Counter
	mu       sync.Mutex
	released []contract.Message
}

func open(t *testing.T) *shop {
	t.Helper()
	db := storetest.Open(t)
	counter := &storetest.Counter{Store: db}
	s := filetest.Must(orderstest.Open(counter))(t)
	return &shop{Shop: s, Counter: counter}
}

func (s *shop) Publish(_ context.Context, _ string, m contract.Message) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = append(s.released, m)
	return "1", nil
}

func (s *shop) stocked(t *testing.T, product string, available int64) {
	t.Helper()
	require.NoError(t, filetest.ErrorOf(s.Stock.Set(t.Context(), ada, orderstest.SetStock(product, available))))
}

func (s *shop) handle(t *testing.T, e orderstest.Event) handler.Effect {
	t.Helper()
	done := filetest.Must(s.Deliver(t.Context(), s.Shop.Store, e, false))(t)
	require.Equal(t, dedupe.Own, done.Seen)
	return done.Effect
}

func (s *shop) refused(t *testing.T, e orderstest.Event) retry.Verdict {
	t.Helper()
	_, err := s.Deliver(t.Context(), s.Shop.Store, e, false)
	require.Error(t, err)
	return retry.Decide(err)
}

func (s *shop) order(t *testing.T, id string) orders.Order {
	t.Helper()
	return filetest.Must(orders.Find(t.Context(), s.Shop.Store, "default", id))(t)
}

func (s *shop) pieces(t *testing.T, product string) [3]int64 {
	t.Helper()
	stock := filetest.Must(s.Stock.Get(t.Context(), dedupe.DefaultTenant, product))(t)
	return [3]int64{stock.Available, stock.Reserved, stock.Sold}
}

func path(o orders.Order) string {
	return strings.Join(filetest.Map(o.History, func(s orders.Step) string { return string(s.State) }), " ")
}

func emitted(effect handler.Effect) (all []string) {
	for _, e := range effect.Emit {
		_, eventType := e.Body.Identity()
		to := strings.Trim(e.To+"/"+e.RoutingKey, "/")
		if !e.Due.IsZero() {
			to = "later " + to
		}
		all = append(all, to+" "+eventType)
	}
	return all
}

const (
	cancelled = "notifications/order.cancelled order.cancelled"
	begun     = "OrderCreated ValidateInventory InventoryLocked PaymentInitiated "
)

// docs/why/orders.md has these costs.
func TestEachStepOfAnOrderMovesItsPiecesAndEmitsItsEvents(t *testing.T) {
	t.Parallel()
	type row struct {
		items  string
		events string // that follow its creation
		result string
		path   string
		emits  string
		cap    [3]int64 // the available, reserved and sold pieces of the product cap, five in total
		cost   [3]int64 // commits, reads, and documents without the record
	}
	const (
		timeout   = "later orders-process order.payment_timeout"
		confirmed = "PaymentConfirmed OrderConfirmed"
		paid      = "order.payment_confirmed"
		all       = "analytics-track order.confirmed, notifications/order.confirmed order.confirmed, " +
			"search-index product.sold"
	)
	for name, test := range map[string]row{
		// It writes the order, the stock, the timeout and its lane.
		"reserved": {"cap 1", "", "payment_initiated", begun, timeout, [3]int64{4, 1, 0}, [3]int64{1, 1, 4}},
		"reserved, of two products": {
			"cap 2,hat 1,cap 1", "", "payment_initiated", begun, timeout, [3]int64{2, 3, 0}, [3]int64{1, 2, 5},
		},
		// It writes the order, the notification and its lane.
		"out of stock": {
			"wig 1", "", "cancelled_out_of_stock", "OrderCreated ValidateInventory OrderCancelled", cancelled,
			[3]int64{5, 0, 0},
			[3]int64{1, 1, 3},
		},
		// It also removes the timeout and its lane, and writes messages to analytics and the index.
		"confirmed": {"cap 1", paid, "confirmed", begun + confirmed, all, [3]int64{4, 0, 1}, [3]int64{1, 1, 10}},
		"failed": {
			"cap 1", "order.payment_failed", "cancelled_payment_failed",
			begun + "PaymentFailed InventoryReleased OrderCancelled", cancelled,
			[3]int64{5, 0, 0},
			[3]int64{1, 1, 6},
		},
		"shipped": {
			"cap 1", paid + " order.shipped", "shipped", begun + confirmed + " OrderShipped",
			"notifications/order.shipped order.shipped",
			[3]int64{4, 0, 1},
			[3]int64{1, 1, 3},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			s.stocked(t, "cap", 5)
			s.stocked(t, "hat", 5)
			events := []orderstest.Event{orderstest.Created("e0", "o1", strings.Split(test.items, ",")...)}
			for i, eventType := range strings.Fields(test.events) {
				events = append(events, orderstest.About(fmt.Sprint("e", i+1), eventType, "o1"))
			}
			var cost [3]int64
			var effect handler.Effect
			for _, e := range events {
				s.Wait(time.Second)
				commits, reads, documents := s.Commits.Load(), s.Gets.Load(), s.Written.Load()
				effect = s.handle(t, e)
				cost = [3]int64{s.Commits.Load() - commits, s.Gets.Load() - reads, s.Written.Load() - documents - 1}
			}
			require.Equal(t, test.cost, cost)
			require.Equal(t, []string{test.result, test.emits},
				[]string{effect.Result, strings.Join(emitted(effect), ", ")})
			require.Equal(t, test.cap, s.pieces(t, "cap"))
			o := s.order(t, "o1")
			require.Equal(t, strings.TrimSpace(test.path), path(o))
			require.Equal(t, events[len(events)-1].ID, o.History[len(o.History)-1].EventID)
			due := time.Time{}
			if o.State == orders.PaymentInitiated {
				due = s.Now().Add(15 * time.Minute)
			}
			require.Equal(t, due, o.PaymentDue)
		})
	}
}

// Each product has a write of its stock, and a message of the outbox in its own lane.
func TestAnOrderOfAHundredProductsIsConfirmedInOneCommitAndNotifiesItsSellerAndTheIndexes(t *testing.T) {
	t.Parallel()
	s := open(t)
	items, pieces := []string{"p-100 2"}, []orders.Item{}
	want := []string{
		"analytics-track order.confirmed", "notifications/seller.order_created seller.order_created",
		"notifications/order.confirmed order.confirmed",
	}
	for i := 199; i >= 100; i-- {
		product := fmt.Sprint("p-", i)
		items = append(items, product+" 1")
		s.stocked(t, product, 3)
		pieces = append([]orders.Item{{ProductID: product, Quantity: 1}}, pieces...)
		want = append(want, "search-index product.sold")
	}
	pieces[0].Quantity = 3
	created := orderstest.Created("e1", "o1", items...)
	created.Data["seller_id"] = "seller-7"
	s.handle(t, created)
	require.Equal(t, pieces, s.order(t, "o1").Items)
	written := s.Written.Load()
	effect := s.handle(t, orderstest.About("e2", "order.payment_confirmed", "o1"))
	require.Equal(t, int64(310), s.Written.Load()-written,
		"as in docs/why/orders.md; the limit of a commit is 500")
	require.Equal(t, [3]int64{0, 0, 3}, s.pieces(t, "p-100"))
	require.Equal(t, want, emitted(effect))
	for i, piece := range pieces {
		sale := effect.Emit[3+i]
		require.Equal(t, piece.ProductID, sale.OrderingKey)
		sold := filetest.Must(contract.As[orders.Sold](sale.Body))(t)
		at := s.order(t, "o1").UpdatedAt
		require.Equal(t, orders.Sold{DocumentID: piece.ProductID, Version: at.UnixMicro(), SoldAt: at}, sold)
	}
	seller := filetest.Must(contract.As[orders.Notice](effect.Emit[1].Body))(t)
	require.Equal(t, orders.Notice{OrderID: "o1", UserID: "seller-7"}, seller)
	require.Equal(t, "seller-7", s.order(t, "o1").SellerID)

	s.handle(t, orderstest.About("e3", "order.created", "o2"))
	effect = s.handle(t, orderstest.About("e4", "order.payment_confirmed", "o2"))
	require.Equal(t, []string{"analytics-track order.confirmed"}, emitted(effect),
		"an order without a user, a seller and items has no other message")
}

func TestAnOrderWithAMissingPieceIsCancelledAndReservesNone(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.stocked(t, "cap", 2)
	s.stocked(t, "hat", 0)
	for name, items := range map[string][]string{
		"of one product":                         {"cap 3"},
		"of one of two products":                 {"cap 2", "hat 1"},
		"of a product without a stock":           {"cap 1", "wig 1"},
		"by two lines together":                  {"cap 1", "cap 2"},
		"by more pieces than an integer holds":   {"cap 9007199254740991", "cap 9007199254740991"},
		"by many lines whose sum would overflow": slices.Repeat([]string{"cap 9007199254740991"}, 1100),
	} {
		id := strings.ReplaceAll(name, " ", "-")
		require.Equal(t, "cancelled_out_of_stock",
			s.handle(t, orderstest.Created("e-"+id, id, items...)).Result, name)
		o := s.order(t, id)
		require.Equal(t, orders.OutOfStock, o.Reason, name)
		require.NotEmpty(t, o.ShortOf, name)
		require.Equal(t, [3]int64{2, 0, 0}, s.pieces(t, "cap"), name)
	}
	s.stocked(t, "cap", orders.MaxPieces)
	require.Equal(t, "cancelled_out_of_stock",
		s.handle(t, orderstest.Created("e1", "o1", "cap 1000000001")).Result)
	require.Equal(t, "payment_initiated", s.handle(t, orderstest.Created("e2", "o2", "cap 1000000000")).Result,
		"all of the largest stock")
}

// An early timeout waits, even one of another sender or of another clock.
func TestAnOrderIsCancelledWhenItsPaymentIsDueAndNotBefore(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.stocked(t, "cap", 5)
	s.handle(t, orderstest.Created("e1", "o1", "cap 2"))
	s.handle(t, orderstest.Created("e2", "paid", "cap 1"))
	s.handle(t, orderstest.About("e3", "order.payment_confirmed", "paid"))
	for _, wait := range []time.Duration{0, 14 * time.Minute, time.Minute - 2*time.Second} {
		s.Wait(wait)
		_, err := s.Deliver(t.Context(), s.Shop.Store, orderstest.About("e4", "order.payment_timeout", "o1"), false)
		require.Equal(t, retry.Verdict{Class: retry.Unavailable, Reason: "not_due", Scope: retry.OtherEvent},
			retry.Decide(err))
		require.Equal(t, s.order(t, "o1").PaymentDue.Sub(s.Now()), retry.RequestedWait(err))
		require.Equal(t, orders.PaymentInitiated, s.order(t, "o1").State)
	}
	s.Wait(2 * time.Second)
	require.NoError(t, s.Release(t.Context(), s.Shop.Store, s))
	require.Len(t, s.released, 1, "the payment of the other order has withdrawn its timeout")
	require.Equal(t, "o1", s.released[0].OrderingKey)
	require.True(t, s.Queue.Takes(s.released[0].Attributes))
	effect := s.handle(t, orderstest.Timeout(s.released[0]))
	require.Equal(t, "cancelled_payment_timeout", effect.Result)
	require.Equal(t, []string{cancelled}, emitted(effect))
	require.Equal(t, begun+"PaymentTimeout InventoryReleased OrderCancelled", path(s.order(t, "o1")))
	require.Equal(t, [3]int64{4, 0, 1}, s.pieces(t, "cap"))
}

func TestAnOrderIsCreatedOnce(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.stocked(t, "cap", 5)
	s.handle(t, orderstest.Created("e1", "o1", "cap 2"))
	effect := s.handle(t, orderstest.Created("e2", "o1", "cap 1", "cap 1"))
	require.Equal(t, []any{"already_created", true}, []any{effect.Result, effect.Superseded})
	require.Equal(t, orderstest.Noon, s.order(t, "o1").CreatedAt)
	for member, value := range map[string]any{
		"items":     []any{map[string]any{"product_id": "cap", "quantity": 3}},
		"user_id":   "usr_43",
		"seller_id": "sel_1",
		"total":     101,
	} {
		differs := orderstest.Created("e3", "o1", "cap 2")
		differs.Data[member] = value
		require.Equal(t, "order_created_differently", s.refused(t, differs).Reason, member)
	}
	require.Equal(t, [3]int64{3, 2, 0}, s.pieces(t, "cap"))
	again, err := s.Deliver(t.Context(), s.Shop.Store, orderstest.Created("e1", "o1", "cap 2"), false)
	require.NoError(t, err)
	require.Equal(t, dedupe.Done, again.Seen)
}

func TestASecondPaymentOfAnOrderIsADeadLetter(t *testing.T) {
	t.Parallel()
	const before, twice = "already_confirmed", "paid_twice"
	s, unnamed := open(t), open(t)
	for i, step := range []struct {
		shop          *shop
		payment, want string
	}{
		{s, "p1", "confirmed"},
		{s, "p1", before},
		{s, "", before}, // perhaps a repetition
		{s, "p2", twice},
		{s, "shipped", "shipped"},
		{s, "p1", before},
		{s, "p2", twice},
		{unnamed, "", "confirmed"},
		{unnamed, "p1", before}, // the first payment, without an id, may be the same
	} {
		if step.want == "confirmed" {
			step.shop.handle(t, orderstest.Created("created", "o1"))
		}
		e := orderstest.About(fmt.Sprint("e", i), "order.payment_confirmed", "o1")
		switch step.payment {
		case "":
		case "shipped":
			e.Type = "order.shipped"
		default:
			e.Data["payment_id"] = step.payment
		}
		if step.want == twice {
			require.Equal(t, twice, step.shop.refused(t, e).Reason, i)
			continue
		}
		require.Equal(t, step.want, step.shop.handle(t, e).Result, i)
	}
	require.Equal(t, "p1", s.order(t, "o1").PaymentID)
}

// An event makes a transition of the diagram or gets an answer of the table, never both.
func TestEveryEventInEveryLastingStateHasATransitionOrAnAnswer(t *testing.T) {
	t.Parallel()
	created, paid, failed, late, shipped := "order.created", "order.payment_confirmed", "order.payment_failed",
		"order.payment_timeout", "order.shipped"
	for state, before := range map[orders.State][]string{
		"": nil, orders.PaymentInitiated: {created}, orders.OrderConfirmed: {created, paid},
		orders.OrderCancelled: {created, failed}, orders.OrderShipped: {created, paid, shipped},
	} {
		for _, on := range []string{created, paid, failed, late, shipped} {
			t.Run(fmt.Sprint(state, " ", on), func(t *testing.T) {
				t.Parallel()
				s := open(t)
				for i, eventType := range before {
					s.handle(t, orderstest.About(fmt.Sprint("e", i), eventType, "o1"))
				}
				s.Wait(time.Hour)
				done, err := s.Deliver(t.Context(), s.Shop.Store, orderstest.About("last", on, "o1"), false)
				after, unknown := orders.Find(t.Context(), s.Shop.Store, "default", "o1")
				is, code, answered := orders.AnswerTo(state, on)
				if !answered {
					require.NoError(t, err)
					require.NotEqual(t, state, after.State, "it makes a transition")
					return
				}
				if state == "" {
					require.ErrorIs(t, unknown, orders.ErrUnknown)
				} else {
					require.Equal(t, state, after.State)
				}
				switch means := retry.Decide(err); is {
				case "superseded":
					require.NoError(t, err)
					require.Equal(t, []any{code, true}, []any{done.Effect.Result, done.Effect.Superseded})
				case "tried again":
					require.Equal(t,
						retry.Verdict{Class: retry.Failed, Reason: code, Counts: true, Scope: retry.OtherEvent}, means)
				default:
					require.Equal(t, []any{true, code}, []any{means.Class.Terminal(), means.Reason})
				}
			})
		}
	}
}

func TestTheDocumentedDiagramAndTableAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	for mark, text := range map[string]string{
		"<!-- diagram -->\n": "```mermaid\n" + orders.Diagram() + "```\n", "<!-- answers -->\n": orders.Answers(),
	} {
		filetest.Part(t, text, mark, "<!-- end -->", "..", "..", "..", "docs", "why", "orders.md")
	}
}

func TestMain(m *testing.M) { storetest.Main(m) }

func TestNoHistorySellsAPieceTwiceOrLosesOne(t *testing.T) {
	t.Parallel()
	orderstest.Run(t, storetest.Open)
}
