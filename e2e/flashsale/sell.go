package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"billhook/e2e"
	"billhook/internal/apps/orders"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

const product = "flash-sale-piece"

// senders bounds the requests that are under way at the door.
const senders = 128

// times is how long a sale has taken, from the first request on.
type times struct {
	taken, ended, told time.Duration
	refused            int
}

// look is how long is waited between two looks at all orders. The emulator of Firestore reads all of
// them each time, in the time of the workers.
const look = time.Second

// sell makes all orders, pays for what is reserved, and waits until every buyer was told.
func (s *stack) sell(ctx context.Context, asked sale, stdout io.Writer) (took times, err error) {
	stock := orders.Keeper{Store: s.store, Now: time.Now, NewID: uuid.NewString}
	if _, err := stock.Set(ctx, dedupe.DefaultTenant, product, int64(asked.pieces), orders.Change{Who: "flashsale", Why: "the pieces of the sale"}); err != nil {
		return took, err
	}
	signer, err := signature.NewSigner(signature.Generic, e2e.Secret)
	if err != nil {
		return took, err
	}
	runs, err := declared()
	if err != nil {
		return took, err
	}
	queue, _ := runs.HandledBy(taker)
	door := &door{url: s.door.URL + "/queues/" + queue.ID + "/messages", signer: signer}
	began := time.Now()
	group, life := errgroup.WithContext(ctx)
	raging, calm := context.WithCancel(life)
	defer calm()
	group.Go(func() error { return s.rage(raging, asked.killsEvery) })
	quiet, silence := context.WithCancel(life)
	defer silence()
	group.Go(func() error { s.schedule(quiet); return nil })
	group.Go(func() error {
		if err := door.burst(life, asked.orders); err != nil {
			return err
		}
		took.taken, took.refused = time.Since(began), int(door.refused.Load())
		return nil
	})
	group.Go(func() error {
		defer func() { calm(); silence() }()
		err := s.pay(life, door, asked, stdout)
		took.ended = time.Since(began)
		return err
	})
	if err := group.Wait(); err != nil {
		return took, err
	}
	err = s.settle(ctx)
	took.told = time.Since(began)
	return took, err
}

// rage kills a worker in turn until ctx ends. Both run then.
func (s *stack) rage(ctx context.Context, every time.Duration) error {
	for every > 0 && e2e.Wait(ctx, every) {
		if err := s.kill(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// schedule calls, each second until ctx ends, the tasks that publish what waits.
func (s *stack) schedule(ctx context.Context) {
	for e2e.Wait(ctx, time.Second) {
		s.relay(ctx)
	}
}

// relay has a worker publish what waits. A call that fails is followed by the next one.
func (s *stack) relay(ctx context.Context) {
	process := s.worker()
	if process == nil {
		return
	}
	short, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, task := range []string{"/tasks/relay-outbox", tasks.ReleasePath} {
		request, err := http.NewRequestWithContext(short, http.MethodPost, process.URL+task, http.NoBody)
		if err != nil {
			return
		}
		_, _ = tasks.Call(http.DefaultClient, request)
	}
}

// door sends signed messages to the queue of the orders.
type door struct {
	url     string
	signer  *signature.Signer
	refused atomic.Int64
}

// burst sends the orders of as many buyers, as fast as the door takes them.
func (d *door) burst(ctx context.Context, n int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(senders)
	for i := range n {
		group.Go(func() error {
			id := orderID(i)
			return d.send(ctx, "created-"+id, "order.created",
				fmt.Sprintf(`{"order_id":%q,"user_id":"buyer-%d","total":1000,"items_count":1,"items":[{"product_id":%q,"quantity":1}]}`, id, i, product))
		})
	}
	return group.Wait()
}

func orderID(i int) string { return fmt.Sprintf("order-%05d", i) }

// send sends a message until the door takes it, as its sender does.
func (d *door) send(ctx context.Context, id, eventType, data string) error {
	body := fmt.Appendf(nil, `{"id":%q,"type":%q,"version":1,"timestamp":%q,"producer":"shop","data":%s}`, id, eventType, time.Now().UTC().Format(time.RFC3339), data)
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url, bytes.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		for name, value := range d.signer.Sign("", body, time.Now()) {
			request.Header.Set(name, value)
		}
		answer, err := e2e.Do(request)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", id, err)
		case answer.Status == http.StatusAccepted:
			return nil
		case answer.Status != http.StatusServiceUnavailable && answer.Status != http.StatusTooManyRequests:
			return fmt.Errorf("%s: answered %d %s", id, answer.Status, answer.Code)
		}
		d.refused.Add(1)
		if !e2e.Wait(ctx, 250*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// pay pays once for each order that waits for its payment, until every order has ended.
func (s *stack) pay(ctx context.Context, d *door, asked sale, stdout io.Writer) error {
	paid := map[string]bool{}
	for said := time.Now(); ; {
		waiting, err := s.ordersIn(ctx, orders.PaymentInitiated)
		if err != nil {
			return err
		}
		for _, o := range waiting {
			if paid[o.ID] {
				continue
			}
			if err := d.send(ctx, "paid-"+o.ID, "order.payment_confirmed", fmt.Sprintf(`{"order_id":%q,"payment_id":"payment-%s"}`, o.ID, o.ID)); err != nil {
				return err
			}
			paid[o.ID] = true
		}
		counts := map[orders.State]int{}
		for _, state := range []orders.State{orders.OrderConfirmed, orders.OrderCancelled} {
			page, err := s.store.Query(ctx, store.Query{Collection: orders.Collection, Equal: map[string]any{"state": string(state)}, Count: true, Limit: asked.orders + 1})
			if err != nil {
				return err
			}
			counts[state] = int(page.Count)
		}
		if counts[orders.OrderConfirmed]+counts[orders.OrderCancelled] >= asked.orders {
			return nil
		}
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			_, _ = fmt.Fprintf(stdout, "  %d confirmed, %d cancelled, %d kills -9\n", counts[orders.OrderConfirmed], counts[orders.OrderCancelled], s.kills)
		}
		if !e2e.Wait(ctx, look) {
			return fmt.Errorf("%d orders have ended of %d: %w", counts[orders.OrderConfirmed]+counts[orders.OrderCancelled], asked.orders, ctx.Err())
		}
	}
}

// ordersIn lists all orders in a state.
func (s *stack) ordersIn(ctx context.Context, state orders.State) (all []orders.Order, err error) {
	for after := ""; ; {
		page, next, err := orders.List(ctx, s.store, state, after, store.MaxPage)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if after = next; next == "" {
			return all, nil
		}
	}
}

// settle waits until nothing waits to be published, and all buyers were told, and stops the workers.
// What comes too often would come before they have stopped.
func (s *stack) settle(ctx context.Context) error {
	wanted, err := s.wanted(ctx)
	if err != nil {
		return err
	}
	for {
		waiting := 0
		for _, kind := range []lane.Kind{lane.Outbox, lane.Delayed} {
			page, err := s.store.Query(ctx, store.Query{Collection: kind.Lanes(), Limit: 1})
			if err != nil {
				return err
			}
			waiting += len(page.Documents)
		}
		told, want := 0, 0
		for _, n := range wanted {
			want += n
		}
		for _, n := range s.told() {
			told += n
		}
		if waiting == 0 && told >= want {
			break
		}
		s.relay(ctx)
		if !e2e.Wait(ctx, look) {
			return fmt.Errorf("%d buyers of %d were told, and messages wait: %t: %w", told, want, waiting > 0, ctx.Err())
		}
	}
	for i := range s.workers {
		if code := s.workers[i].Load().Stop(); code != 0 {
			return fmt.Errorf("worker %d ended with code %d", i+1, code)
		}
	}
	return nil
}

// types are the events that a buyer is told of, by the state that the order ends in.
var types = map[orders.State]string{orders.OrderConfirmed: "order.confirmed", orders.OrderCancelled: "order.cancelled"}

// wanted is how many notifications there should be, by type.
func (s *stack) wanted(ctx context.Context) (map[string]int, error) {
	runs, err := declared()
	if err != nil {
		return nil, err
	}
	wanted := map[string]int{}
	for state, eventType := range types {
		all, err := s.ordersIn(ctx, state)
		if err != nil {
			return nil, err
		}
		for _, channel := range runs.Notifications[eventType] {
			if len(all) > 0 {
				wanted["notification."+channel+"."+strings.ReplaceAll(eventType, ".", "_")] = len(all)
			}
		}
	}
	return wanted, nil
}

// told is how many notifications were taken, by type.
func (s *stack) told() map[string]int {
	told := map[string]int{}
	for _, d := range s.receiver.Deliveries() {
		if d.Outcome == standin.Applied {
			told[d.Action]++
		}
	}
	return told
}

// count says what has become of the sale.
func (s *stack) count(ctx context.Context, asked sale) (outcome, error) {
	o := outcome{cancelled: map[string]int{}, open: map[string]int{}, told: s.told()}
	for i := range asked.orders {
		order, err := orders.Find(ctx, s.store, dedupe.DefaultTenant, orderID(i))
		switch {
		case errors.Is(err, orders.ErrUnknown):
			o.lost++
			continue
		case err != nil:
			return o, err
		case order.State == orders.OrderConfirmed:
			o.confirmed++
		case order.State == orders.OrderCancelled:
			o.cancelled[order.Reason]++
		default:
			o.open[string(order.State)]++
		}
		var passed []orders.State
		for _, step := range order.History {
			passed = append(passed, step.State)
		}
		slices.Sort(passed)
		if len(slices.Compact(passed)) < len(order.History) {
			o.doubled++
		}
	}
	stock := orders.Keeper{Store: s.store, Now: time.Now, NewID: uuid.NewString}
	left, err := stock.Get(ctx, dedupe.DefaultTenant, product)
	if err != nil {
		return o, err
	}
	o.available, o.reserved, o.sold = left.Available, left.Reserved, left.Sold
	if o.wanted, err = s.wanted(ctx); err != nil {
		return o, err
	}
	seen := map[string]bool{}
	for _, d := range s.receiver.Deliveries() {
		if !seen[d.EventID] && s.receiver.Applied(d.EventID) > 1 {
			o.toldTwice++
		}
		seen[d.EventID] = true
	}
	letters, err := s.store.Query(ctx, store.Query{Collection: deadletter.Collection, Count: true, Limit: asked.orders})
	o.letters = int(letters.Count)
	return o, err
}
