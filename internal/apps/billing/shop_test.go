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
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/apps/billing"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/apps/usage"
	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
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
	s.points = billing.Points{Store: s, PointsOf: goods.Points, Now: now, Mappings: s.mappings}
	s.operator = &customers.Operator{
		Store: s.mappings.Watch(s), Now: now, NewID: func() string {
			return fmt.Sprint(s.customer, "-", shops.Add(1))
		},
	}
}

var ada = audit.Author{Proof: audit.Identity, Name: "ada"}

// link has ada link the shop's customer.
func (s *shop) link(uid string) customers.LinkCustomer {
	of := customers.CustomerOf{Owned: console.Owned{Tenant: tenant}, ID: s.customer}
	return customers.LinkCustomer{CustomerOf: of, UID: uid, Edit: console.Edit{Change: console.Change{Why: "w"}}}
}

type deed = func(context.Context, handler.Event, *contract.Payment) (handler.Effect, error)

// As the worker does, it calls the handler again when somebody else was faster.
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
	return eventOf(&contract.Payment{
		EventID: "paid", EventType: "order.paid", Data: contract.PaymentData{Order: o},
	}, map[string]string{contract.AttrUID: "u1"})
}

func item(id string, quantity int64) contract.Item {
	return contract.Item{ProductID: id, Quantity: quantity}
}

func refunded(amount, currency string) handler.Event {
	return eventOf(&contract.Payment{EventID: "r1", EventType: "order.refunded", Data: contract.PaymentData{
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

func requireVerdict(t *testing.T, want, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, retry.Decide(want), retry.Decide(err))
}

var updates = catalog.Queue{ID: "updates", OrderingKey: []string{"subscription_id", "correlation_id"}}

// A first try reads nothing; what a further one reads is found, or the error of the read.
func record(event handler.Event, found error) (handler.Effect, error) {
	s := billing.Subscriptions{
		Store: getter{found}, Updates: updates, Now: func() time.Time { return noon.Add(1500 * time.Nanosecond) },
	}
	return handler.Typed(s.Record)(context.Background(), event)
}

type getter struct{ err error }

func (g getter) Get(context.Context, store.Key) (store.Document, error) {
	return store.Document{}, g.err
}

func TestEachSubscriptionEventIsStoredAndEmitsAnUpdate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		action, correlation string
		amount              any // in minor units; nil where there is none
	}{
		"subscription_activated": {"initial", "530217764480015001", int64(999)},
		"subscription_renewed":   {"renewal", "530217764480015001", int64(999)},
		"subscription_canceled":  {"cancellation", "530217764480015001", int64(999)},
		"trial_activated":        {"trial", "530217764480017001", nil},
		"trial_completed":        {"trial_completed", "530217764480017001", nil},
		"trial_canceled":         {"trial_canceled", "530217764480017001", nil},
	} {
		event := golden(t, name)
		effect, err := record(event, errors.New("not to be asked"))
		require.NoError(t, err, name)
		require.Equal(t, billing.Recorded, effect.Result, name)
		body := as[*contract.Payment](event.Body)
		about := body.Data.Subscription

		require.Len(t, effect.Writes, 2, name)
		require.NoError(t, store.CheckWrites(effect.Writes))
		write, period := effect.Writes[0], effect.Writes[1]
		require.Equal(t, []any{store.OpCreate, usage.PeriodsCollection, about.ProductID, event.ID},
			[]any{period.Op, period.Key.Collection, period.Fields["plan"], period.Fields["event_id"]}, name)
		require.Equal(t, []any{store.OpCreate, subscriptions.Collection},
			[]any{write.Op, write.Key.Collection}, name)
		for field, want := range map[string]any{
			"event_id": event.ID, "event_type": event.Type, "action": test.action, "subscription_id": test.correlation,
			"customer_id": "530217764480019001", "product_id": about.ProductID, "uid": "u1", "status": about.Status,
			"cycle":       about.Cycle,
			"occurred_at": body.Timestamp, "period_start": about.PeriodStart, "period_end": about.PeriodEnd,
			"recorded_at": noon.Add(time.Microsecond),
			"amount":      test.amount,
		} {
			require.Equal(t, want, write.Fields[field], name+" "+field)
		}
		_, priced := write.Fields["currency"]
		require.Equal(t, test.amount != nil, priced, name)

		require.Equal(t, []handler.Emission{{
			To: "updates", OrderingKey: test.correlation,
			Body: contract.Of(&contract.Envelope{
				Action: test.action, CorrelationID: test.correlation, IdempotencyKey: event.CalleeKey(),
				Payload: contract.Payload{
					EventID: event.ID, EventType: event.Type, SubscriptionID: test.correlation,
					CustomerID: "530217764480019001", UID: "u1",
					ProductID: about.ProductID, Status: about.Status, Currency: about.Currency, Amount: about.Total,
					Cycle:       about.Cycle,
					PeriodStart: about.PeriodStart, PeriodEnd: about.PeriodEnd, OccurredAt: body.Timestamp,
				},
			}),
		}}, effect.Emit, name)
	}
}

func TestAnAmountOfASubscriptionIsStoredInMinorUnits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		total, currency string
		want            any // nil: none
		refused         bool
	}{
		"three digits": {"1.234", "KWD", int64(1234), false}, "nothing to pay": {"0.00", "USD", int64(0), false},
		"no price":  {"", "EUR", nil, false},
		"too large": {"92233720368547758.08", "USD", nil, true}, "less than nothing": {"-9.99", "EUR", nil, true},
		"no currency": {"9.99", "", nil, true},
	} {
		event := golden(t, "subscription_renewed")
		about := as[*contract.Payment](event.Body).Data.Subscription
		about.Total, about.Currency = test.total, test.currency
		effect, err := record(event, nil)
		if test.refused {
			requireVerdict(t, retry.Permanent("bad_amount", nil), err)
			require.Empty(t, effect.Emit, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, test.want, effect.Writes[0].Fields["amount"], name)
		require.Equal(t, test.total, as[*contract.Envelope](effect.Emit[0].Body).Payload.Amount, name)
	}
}

func TestAnEventWithoutASubscriptionIsADeadLetter(t *testing.T) {
	t.Parallel()
	for reason, events := range map[string][]handler.Event{
		"unexpected_body": {
			{Type: contract.SubscriptionRenewed, Body: contract.Of(&contract.Envelope{})},
			{Type: contract.SubscriptionRenewed, Body: contract.Body{}},
		},
		"event_type_unknown": {{Type: "order.paid", Body: contract.Of(&contract.Payment{})}},
		"no_subscription":    {{Type: contract.SubscriptionRenewed, Body: contract.Of(&contract.Payment{})}},
	} {
		for _, event := range events {
			_, err := record(event, nil)
			requireVerdict(t, retry.Permanent(reason, nil), err)
		}
	}
}

func TestASecondTryEmitsNothingForWhatIsRecorded(t *testing.T) {
	t.Parallel()
	event := golden(t, "subscription_renewed")
	event.Try = 1
	effect := filetest.Must(record(event, nil))(t)
	require.Equal(t, handler.Effect{Result: billing.AlreadyRecorded}, effect)
	effect = filetest.Must(record(event, store.ErrNotFound))(t)
	require.Equal(t, []any{billing.Recorded, 1, 2}, []any{effect.Result, len(effect.Emit), len(effect.Writes)})
	_, err := record(event, errors.New("no answer"))
	requireVerdict(t, retry.Outage("store_unavailable", nil), err)
}

// No body that keeps the rules of payment.v1 makes an envelope that breaks those of envelope.v1, or a
// document that no store takes.
func TestEverySubscriptionEventThatIngestAcceptsCanBeEmitted(t *testing.T) {
	t.Parallel()
	types := []string{
		contract.SubscriptionActivated, contract.SubscriptionRenewed, contract.SubscriptionCanceled,
		contract.TrialActivated, contract.TrialCompleted, contract.TrialCanceled,
	}
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._:-]{0,127}`)
		code := rapid.StringMatching(`[A-Za-z][A-Za-z0-9._-]{0,63}`)
		maybe := func(g *rapid.Generator[string], name string) string {
			return rapid.OneOf(rapid.Just(""), g).Draw(t, name)
		}
		times := rapid.SampledFrom([]string{
			"2026-03-02T10:15:00Z", "2026-03-02T10:15:00.123456789+05:30", "0001-01-01T00:00:00Z",
			"9999-12-31T23:59:59Z",
		})
		body := &contract.Payment{
			EventID: id.Draw(t, "event"), EventType: rapid.SampledFrom(types).Draw(t, "type"),
			Timestamp: times.Draw(t, "at"),
			Data: contract.PaymentData{Subscription: &contract.Subscription{
				ID: id.Draw(t, "subscription"), CustomerID: maybe(id, "customer"), ProductID: maybe(id, "product"),
				CheckoutID: maybe(id, "checkout"),
				Status:     maybe(code, "status"), Cycle: rapid.Int64Range(0, 1_000_000).Draw(t, "cycle"),
				PeriodStart: maybe(times, "from"), PeriodEnd: maybe(times, "to"),
			}},
		}
		priced := rapid.SampledFrom([][2]string{
			{"", ""},
			{"", "EUR"},
			{"9.99", "EUR"},
			{"0.00", "USD"},
			{"1500", "JPY"},
			{"92233720368547758.07", "USD"},
			{"92233720368547758.08", "USD"},
		}).Draw(t, "price")
		body.Data.Subscription.Total, body.Data.Subscription.Currency = priced[0], priced[1]
		uid := maybe(rapid.StringMatching(`[A-Za-z][A-Za-z0-9._:-]{0,127}`), "uid")
		attributes := contract.Attributes{
			OrderingKey: "k", EventID: body.EventID, EventType: body.EventType, UID: uid,
		}
		if contract.Of(body).Validate() != nil || attributes.Validate() != nil {
			t.Skip("ingest does not take it")
		}
		event := eventOf(body, attributes.Map())
		event.Queue, event.Tenant = "events", dedupe.DefaultTenant
		effect := filetest.Must(record(event, nil))(t)
		require.NoError(t, filetest.ErrorOf(lane.Emit(declared, event, &effect, noon)))
		require.NoError(t, store.CheckWrites(effect.Writes))
	})
}

var declared = catalogtest.Contracts()
