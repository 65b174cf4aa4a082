package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/payments"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/inspect/events"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// activityAtMost bounds each list of an Activity, and customerAtMost its users and subscriptions, each
// of which costs a query.
const (
	activityAtMost = 50
	customerAtMost = 10
)

// Activity is everything about a tenant's customer, at most 50 of each kind.
type Activity struct {
	customers.State
	// Findings say in words what needs a person, such as a credit to another user.
	Findings []string `json:"findings"`
	// Balances are the accounts that hold or held the customer's points, and Moves the entries of their events.
	Balances []ActivityBalance `json:"balances" show:"Points"`
	Moves    []ActivityMove    `json:"moves" show:"What their events moved"`
	// Events are those that name the customer, under any ordering key, the newest first.
	Events      []events.Line     `json:"events" show:"Events"`
	DeadLetters []deadletter.Item `json:"dead_letters" show:"Dead letters"`
	// Orders are the shop's orders of the users that the customer is or was mapped to. Refunds are those of
	// these orders' payments, and of the customer's Subscriptions.
	Orders        []orders.Order    `json:"orders" show:"Orders"`
	Refunds       []payments.Refund `json:"refunds" show:"Refunds"`
	Subscriptions []string          `json:"subscriptions" show:"Subscriptions" link:"subscriptions"`
	More          []string          `json:"more"`

	users []string
}

// ActivityMove is an entry that moved points. A reversal takes them from the account.
type ActivityMove struct {
	Order   string         `json:"order" show:"Order"`
	EventID string         `json:"event_id" show:"Event" link:"events"`
	Entry   string         `json:"entry"`
	Kind    ledger.Kind    `json:"kind" show:"What"`
	Account ledger.Account `json:"account" show:"Account" link:"accounts"`
	Amount  int64          `json:"amount" show:"Points"`
	At      time.Time      `json:"at" show:"At"`
}

// ActivityBalance is the current balance of an account.
type ActivityBalance struct {
	Account string `json:"account" show:"Account" link:"accounts"`
	Balance int64  `json:"balance" show:"Points"`
}

func cut[T any](a *Activity, name string, all []T, more bool, most int) []T {
	if (more || len(all) > most) && !slices.Contains(a.More, name) {
		a.More = append(a.More, name)
	}
	return append([]T{}, all[:min(len(all), most)]...)
}

// activity reads each list by a key or an index, up to a bound.
func (a Reads) activity(ctx context.Context, _ audit.Author, in customers.CustomerOf) (Activity, error) {
	of, err := (&customers.Operator{Store: a.Store}).Show(ctx, in.Tenant, in.ID)
	if err != nil {
		return Activity{}, err
	}
	found := Activity{
		State: of, Findings: []string{}, Events: []events.Line{}, Moves: []ActivityMove{}, More: []string{},
		Balances: []ActivityBalance{}, Orders: []orders.Order{}, Subscriptions: []string{},
		Refunds: []payments.Refund{}, DeadLetters: []deadletter.Item{},
	}
	for _, fill := range []func(context.Context, *Activity) error{
		a.customerEvents, a.customerDeadLetters, a.customerBalances, a.customerOrders, a.customerRefunds,
	} {
		if err := fill(ctx, &found); err != nil {
			return Activity{}, err
		}
	}
	found.findings()
	return found, nil
}

func (a Reads) customerEvents(ctx context.Context, found *Activity) error {
	customer := contract.CustomerOf(found.Tenant, found.CustomerID)
	of := dedupe.Listing{Equal: map[string]any{"customer": customer}, Limit: activityAtMost}
	records, last, err := dedupe.List(ctx, a.Store, of)
	if err != nil {
		return err
	}
	records = cut(found, "events", records, !last.IsZero(), activityAtMost)
	for _, record := range records {
		found.Events = append(found.Events, events.LineOf(record))
	}
	moves := make([]ActivityMove, len(records))
	err = store.AtOnce(ctx, len(records), func(ctx context.Context, i int) error {
		if records[i].Made() == "" {
			return nil
		}
		doc, err := store.Find(ctx, a.Store, ledger.Key(records[i].Made()))
		m, unread := ledger.MoveFromDocument(doc)
		if err == nil && unread == nil && m.Tenant == found.Tenant { // else it moved no points
			moves[i] = ActivityMove{m.Order, m.EventID, doc.Key.ID, m.Kind, m.Account, m.Amount, m.CreatedAt}
		}
		return err
	})
	found.Moves = slices.DeleteFunc(moves, func(m ActivityMove) bool { return m.Entry == "" })
	return err
}

func (a Reads) customerDeadLetters(ctx context.Context, found *Activity) error {
	customer := contract.CustomerOf(found.Tenant, found.CustomerID)
	equal := map[string]any{"customer": customer}
	query := store.Query{Collection: deadletter.Collection, Equal: equal, Limit: activityAtMost}
	read := func(doc store.Document) (deadletter.Item, error) { return events.DeadLetterIn(doc), nil }
	items, next, err := store.List(ctx, a.Store, query, read)
	found.DeadLetters = cut(found, "dead_letters", items, !next.IsZero(), activityAtMost)
	return err
}

// customerBalances reads the accounts of the customer and of the users that it is or was mapped to.
func (a Reads) customerBalances(ctx context.Context, found *Activity) error {
	events, more, err := subscriptions.OfCustomer(ctx, a.Store, found.Tenant, found.CustomerID, activityAtMost)
	if err != nil {
		return err
	}
	accounts, known := map[ledger.Account]bool{ledger.CustomerPoints(found.CustomerID): true}, map[string]bool{}
	if found.UID != "" {
		accounts[ledger.UserPoints(found.UID)] = true
	}
	for _, m := range found.Moves {
		accounts[m.Account] = true
	}
	for _, e := range events {
		known[e.Subscription] = true
		if e.UID != "" {
			accounts[ledger.UserPoints(e.UID)] = true
		}
	}
	found.Subscriptions = cut(found, "subscriptions", slices.Sorted(maps.Keys(known)), more, customerAtMost)
	for _, account := range cut(found, "balances", slices.Sorted(maps.Keys(accounts)), false, activityAtMost) {
		if uid, ok := strings.CutPrefix(string(account), string(ledger.UserPoints(""))); ok {
			found.users = append(found.users, uid)
		}
		doc, err := store.Find(ctx, a.Store, account.Key(found.Tenant))
		if err != nil {
			return err
		}
		if balance, _ := doc.Fields["balance"].(int64); doc.Version != 0 {
			found.Balances = append(found.Balances, ActivityBalance{string(account), balance})
		}
	}
	return nil
}

func (a Reads) customerOrders(ctx context.Context, found *Activity) error {
	for _, uid := range cut(found, "orders", found.users, false, customerAtMost) {
		some, more, err := orders.OfUser(ctx, a.Store, found.Tenant, uid, activityAtMost)
		if err != nil {
			return err
		}
		found.Orders = cut(found, "orders", append(found.Orders, some...), more, activityAtMost)
	}
	slices.SortFunc(found.Orders, func(a, b orders.Order) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return nil
}

func (a Reads) customerRefunds(ctx context.Context, found *Activity) error {
	for _, subscription := range found.Subscriptions {
		some, more, err := payments.RefundsOf(ctx, a.Store, found.Tenant, subscription, activityAtMost)
		if err != nil {
			return err
		}
		found.Refunds = cut(found, "refunds", append(found.Refunds, some...), more, activityAtMost)
	}
	for _, o := range found.Orders {
		if o.PaymentID == "" {
			continue
		}
		refund, err := payments.FindRefund(ctx, a.Store, found.Tenant, o.PaymentID)
		if err == nil {
			found.Refunds = cut(found, "refunds", append(found.Refunds, refund), false, activityAtMost)
		} else if !errors.Is(err, payments.ErrNoRefund) {
			return err
		}
	}
	return nil
}

// Alerts reports whether something needs a person.
func (a Activity) Alerts() bool { return len(a.Findings) > 0 }

// Notes say what needs a person, and what is left out.
func (a Activity) Notes() (notes []string) {
	for _, finding := range a.Findings {
		notes = append(notes, "Needs a person: "+finding+".")
	}
	if len(a.More) > 0 {
		more := strings.ReplaceAll(strings.Join(a.More, ", "), "_", " ")
		notes = append(notes, "There is more than is shown: "+more+".")
	}
	return notes
}

func (a *Activity) findings() {
	add := func(format string, of ...any) { a.Findings = append(a.Findings, fmt.Sprintf(format, of...)) }
	for _, m := range a.Moves {
		uid, toUser := strings.CutPrefix(string(m.Account), string(ledger.UserPoints("")))
		if m.Kind == ledger.KindCredit && toUser && uid != a.UID {
			now := cmp.Or(a.UID, "nobody")
			add("order %s was credited to %s, while the customer is mapped to %s", m.Order, uid, now)
		}
	}
	for _, e := range a.Events {
		if e.Status == dedupe.Failed {
			reason := cmp.Or(e.Reason, "an unknown reason")
			add("event %s, %s, has failed with %s and is tried again", e.EventID, e.EventType, reason)
		}
	}
	for _, l := range a.DeadLetters {
		if l.State == deadletter.Open {
			add("event %s is a dead letter of queue %s: %s", l.EventID, l.Queue, l.Reason)
		}
	}
}
