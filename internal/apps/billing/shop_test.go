package billing_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/billing"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

func TestMain(m *testing.M) { storetest.Main(m) }

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

const (
	order    = "530217764480012801" // of the golden events
	tenant   = "default"            // whose events these are
	perPiece = 7                    // points, so that shares seldom come out even
)

var user = ledger.UserPoints("u1")

var goods = shelf{
	"411486491630370501": {Points: 1000}, "411486491630370502": {Points: 250}, "piece": {Points: perPiece},
	"point": {Points: 1},
}

type shelf map[string]catalog.Product

func (s shelf) Points(_ context.Context, _, id string) (int64, bool, error) {
	p, known := s[id]
	return p.Points, known, nil
}

type shop struct {
	*storetest.Faults
	points   billing.Points
	operator *customers.Operator
	mappings *customers.Mappings
	customer string

	before func() // if set, it is called once, before the nth commit from now
	nth    int
	lose   int // which commit from now is made but loses its answer; 0: none
	// around, if set, is called before every commit, and its result after a successful one.
	around func(writes []store.Write) (after func())
}

var errLost = errors.New("the answer is lost")

func (s *shop) commit(_ context.Context, writes []store.Write, do func() error) error {
	if before := s.before; before != nil {
		if s.nth--; s.nth <= 0 {
			s.before = nil
			before()
		}
	}
	lost := s.lose == 1
	s.lose = max(s.lose-1, 0)
	after := func() {}
	if s.around != nil {
		after = s.around(writes)
	}
	if err := do(); err != nil {
		return err
	}
	after()
	if lost {
		return errLost
	}
	return nil
}

var shops atomic.Int64

func newShop(t *testing.T) *shop {
	t.Helper()
	return shopOn(storetest.Open(t))
}

func shopOn(db store.Store) *shop {
	s := &shop{Faults: &storetest.Faults{Store: db}, customer: fmt.Sprint("c", shops.Add(1))}
	s.OnCommit = s.commit
	s.reopen()
	return s
}

// reopen starts a new instance, with an empty cache.
func (s *shop) reopen() {
	now := func() time.Time { return noon }
	s.mappings = customers.NewMappings(s, slog.New(slog.DiscardHandler), now)
	s.points = billing.Points{Store: s, PointsOf: goods.Points, Now: now, Mappings: s.mappings}
	id := func() string { return fmt.Sprint(s.customer, "-", shops.Add(1)) }
	s.operator = &customers.Operator{Store: s.mappings.Watch(s), Now: now, NewID: id}
}

var ada = audit.Author{Proof: audit.Identity, Name: "ada"}

// link is a link of the shop's customer.
func (s *shop) link(uid string) customers.LinkCustomer {
	of := customers.CustomerOf{Owned: console.Owned{Tenant: tenant}, ID: s.customer}
	return customers.LinkCustomer{CustomerOf: of, UID: uid, Edit: console.Edit{Change: console.Change{Why: "w"}}}
}

type deed = func(context.Context, handler.Event, *contract.Payment) (handler.Effect, error)

// run calls the handler again after a conflict, as the worker does.
func (s *shop) run(h deed, event handler.Event) (string, error) {
	watched := s.mappings.Watch(s)
	for ; event.Try < 10; event.Try++ {
		effect, err := handler.Typed(h)(context.Background(), event)
		if err != nil || len(effect.Writes) == 0 {
			return effect.Result, err
		}
		_, err = watched.Commit(context.Background(), effect.Writes)
		if !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrStale) {
			return effect.Result, err
		}
	}
	return "", retry.Busy("contention", nil)
}

func (s *shop) must(t *testing.T, h deed, event handler.Event, want string) {
	t.Helper()
	require.Equal(t, want, filetest.Must(s.run(h, event))(t))
}

func (s *shop) balance(t require.TestingT, account ledger.Account) int64 {
	doc := filetest.Must(store.Find(context.Background(), s, account.Key(tenant)))(t)
	balance, _ := doc.Fields["balance"].(int64)
	return balance
}

func (s *shop) requireNothingBooked(t *testing.T) {
	t.Helper()
	for _, collection := range []string{ledger.Entries, ledger.Accounts} {
		require.Empty(t, storetest.All(t, s, collection))
	}
}

func (s *shop) uid(t require.TestingT) string {
	state := filetest.Must(s.operator.Show(context.Background(), tenant, s.customer))(t)
	return state.UID
}

func golden(t *testing.T, name string) handler.Event {
	t.Helper()
	data := filetest.Read(t, "..", "..", "contract", "testdata", contract.PaymentV1, name+".json")
	body := &contract.Payment{}
	decoder := json.NewDecoder(strings.NewReader(data))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(body))
	return eventOf(body, map[string]string{contract.AttrUID: "u1"})
}

func eventOf(body *contract.Payment, attributes map[string]string) handler.Event {
	return handler.Event{
		Tenant: tenant, ID: body.EventID, Type: body.EventType,
		Attempt: 1, Body: contract.Of(body), Attributes: attributes,
	}
}

func paid(total string, items ...contract.Item) handler.Event {
	o := &contract.Order{ID: order, Total: total, Items: items}
	if total != "" {
		o.Currency = "USD"
	}
	body := &contract.Payment{EventID: "paid", EventType: "order.paid", Data: contract.PaymentData{Order: o}}
	return eventOf(body, map[string]string{contract.AttrUID: "u1"})
}

func item(id string, quantity int64) contract.Item {
	return contract.Item{ProductID: id, Quantity: quantity}
}

func refunded(amount, currency string) handler.Event {
	return eventOf(&contract.Payment{EventID: "r1", EventType: "order.refunded", Data: contract.PaymentData{
		Order:  &contract.Order{ID: order, Currency: currency},
		Refund: &contract.Refund{ID: "refund-1", Amount: amount},
	}}, nil)
}

func as[B any](body contract.Body) B {
	b, err := contract.As[B](body)
	if err != nil {
		panic(err)
	}
	return b
}

func requireVerdict(t *testing.T, want, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, retry.Decide(want), retry.Decide(err))
}
