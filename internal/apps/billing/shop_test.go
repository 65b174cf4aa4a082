package billing_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"billhook/catalog"
	"billhook/internal/apps/billing"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

const (
	order    = "530217764480012801" // of the golden events
	tenant   = "default"            // whose events these are
	perPiece = 7                    // points, so that shares seldom come out even
)

var user = ledger.UserPoints("u1")

// goods are the products of the golden events, and of the others.
var goods = shelf{"411486491630370501": {Points: 1000}, "411486491630370502": {Points: 250}, "piece": {Points: perPiece}, "point": {Points: 1}}

// shelf is products with their points.
type shelf map[string]catalog.Product

func (s shelf) Points(_ context.Context, _, id string) (int64, bool, error) {
	p, known := s[id]
	return p.Points, known, nil
}

// shop is the handlers of points and the operator of customers on one real store, in which something else can
// happen between a reader and its commit.
type shop struct {
	*storetest.Faults
	points   billing.Points
	operator *customers.Operator
	mappings *customers.Mappings
	customer string

	// before, if set, is run once, before the commit that is nth from now.
	before func()
	nth    int
	// lose is how many commits are left until one happens and its answer is lost; 0: none.
	lose int
	// around, if set, is called before every commit, and what it returns after those that succeeded.
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

// shopOn is a shop with a customer of its own.
func shopOn(db store.Store) *shop {
	s := &shop{Faults: &storetest.Faults{Store: db}, customer: fmt.Sprint("c", shops.Add(1))}
	s.OnCommit = s.commit
	s.reopen()
	return s
}

// reopen is a new instance, which knows nobody.
func (s *shop) reopen() {
	now := func() time.Time { return noon }
	s.mappings = customers.NewMappings(s, slog.New(slog.DiscardHandler), now)
	s.points = billing.Points{Store: s, Products: goods, Now: now, Mappings: s.mappings}
	s.operator = &customers.Operator{Store: s.mappings.Watch(s), Now: now, NewID: func() string { return fmt.Sprint(s.customer, "-", shops.Add(1)) }}
}

// deed is a handler of points.
type deed = func(context.Context, handler.Event, *contract.PayNow) (handler.Effect, error)

// run does what the worker does: it commits what the handler returns, and calls it again when somebody else
// was faster.
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
	result, err := s.run(h, event)
	require.NoError(t, err)
	require.Equal(t, want, result)
}

func (s *shop) balance(t require.TestingT, account ledger.Account) int64 {
	return s.balanceOf(t, tenant, account)
}

func (s *shop) balanceOf(t require.TestingT, tenant string, account ledger.Account) int64 {
	doc, err := store.Find(context.Background(), s, account.Key(tenant))
	require.NoError(t, err)
	balance, _ := doc.Fields["balance"].(int64)
	return balance
}

// requireNothingBooked requires that there is no entry and no account.
func (s *shop) requireNothingBooked(t *testing.T) {
	t.Helper()
	for _, collection := range []string{ledger.Entries, ledger.Accounts} {
		page, err := s.Query(t.Context(), store.Query{Collection: collection, Limit: 1})
		require.NoError(t, err)
		require.Empty(t, page.Documents)
	}
}

// uid is the user that the customer is mapped to.
func (s *shop) uid(t require.TestingT) string {
	state, err := s.operator.Show(context.Background(), tenant, s.customer)
	require.NoError(t, err)
	return state.UID
}

// golden is the event of a golden body, for the user u1.
func golden(t *testing.T, name string) handler.Event {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "contract", "testdata", contract.PayNowV1, name+".json"))
	require.NoError(t, err)
	body := &contract.PayNow{}
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(body))
	return eventOf(body, map[string]string{contract.AttrUID: "u1"})
}

func eventOf(body *contract.PayNow, attributes map[string]string) handler.Event {
	return handler.Event{
		Tenant: tenant, ID: body.EventID, Type: body.EventType, Contract: contract.PayNowV1,
		Attempt: 1, Body: contract.Of(body), Attributes: attributes,
	}
}

// paid is the event of an order with a total in dollars, of one piece of each product.
func paid(total string, items ...contract.Item) handler.Event {
	o := &contract.Order{ID: order, Total: total, Items: items}
	if total != "" {
		o.Currency = "USD"
	}
	return eventOf(&contract.PayNow{EventID: "paid", EventType: "order.paid", Data: contract.PayNowData{Order: o}}, map[string]string{contract.AttrUID: "u1"})
}

func item(id string, quantity int64) contract.Item {
	return contract.Item{ProductID: id, Quantity: quantity}
}

// refunded is the event of a refund of the golden order.
func refunded(amount, currency string) handler.Event {
	return eventOf(&contract.PayNow{EventID: "r1", EventType: "order.refunded", Data: contract.PayNowData{
		Order: &contract.Order{ID: order, Currency: currency}, Refund: &contract.Refund{Amount: amount},
	}}, nil)
}

func as[B any](body contract.Body) B {
	b, err := contract.As[B](body)
	if err != nil {
		panic(err)
	}
	return b
}

// requireVerdict requires that an error means what a marked one does.
func requireVerdict(t *testing.T, want, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, retry.Decide(want), retry.Decide(err))
}
