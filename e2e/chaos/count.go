package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"billhook/e2e"
	"billhook/e2e/chaos/arm"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/apps/payments"
	"billhook/internal/dedupe"
	"billhook/internal/platform/store"
)

// fate is what became of one event.
type fate struct {
	// times is how often the event took effect.
	times int
	// unrecorded: there is no completed record.
	unrecorded bool
	// claims counts the deliveries whose answer says that they processed the event. The answer
	// may be missing where its worker was killed.
	claims int
}

// verdict counts what is wrong with an arm.
type verdict struct {
	name                      string
	events, pushes            int
	lost, doubled, outOfOrder int
	// ordered: the arm promises the order.
	ordered bool
	// broken names some of the counted events, for debugging.
	broken []string
}

func (v *verdict) ok() bool { return v.lost+v.doubled+v.outOfOrder == 0 }

// take adds the fate of one event.
func (v *verdict) take(id string, f fate) {
	v.events++
	if f.times == 0 || f.unrecorded {
		v.lost++
	}
	if f.times > 1 || f.claims > 1 {
		v.doubled++
	}
	if f.times != 1 || f.unrecorded || f.claims > 1 {
		v.broken = append(v.broken, fmt.Sprintf("%s (%d effects, %d claims, recorded %t)", id, f.times, f.claims, !f.unrecorded))
	}
}

// sequence counts the events that are out of order in a key's sequence. It takes the first
// occurrence of each.
func (v *verdict) sequence(key string, cycles []int64) {
	seen, highest := map[int64]bool{}, int64(0)
	for _, cycle := range cycles {
		if !seen[cycle] && cycle < highest {
			v.outOfOrder++
			v.broken = append(v.broken, fmt.Sprintf("%s (%d after %d)", key, cycle, highest))
		}
		seen[cycle] = true
		highest = max(highest, cycle)
	}
}

// count compares what is stored, applied and published with the plan.
func count(ctx context.Context, s store.Store, o *outside, log *e2e.Log, p *plan, arms []arm.Arm) ([]verdict, error) {
	claims := map[[2]string]int{}
	for _, d := range log.Deliveries("") {
		if d.Outcome == "processed" {
			claims[[2]string{d.Queue, d.EventID}]++
		}
	}
	completed := map[[2]string]bool{}
	if err := each(ctx, s, dedupe.Collection, func(doc store.Document) error {
		record, err := dedupe.FromDocument(doc)
		completed[[2]string{record.Queue, record.EventID}] = record.Status == dedupe.Completed
		return err
	}); err != nil {
		return nil, err
	}
	effects := map[[2]string]int{}
	if err := each(ctx, s, arm.Effects, func(doc store.Document) error {
		name, id, _ := strings.Cut(doc.Key.ID, "~")
		times, _ := doc.Fields["times"].(int64)
		effects[[2]string{name, id}] = int(times)
		return nil
	}); err != nil {
		return nil, err
	}
	sequences := map[[2]string][]int64{}
	if err := each(ctx, s, arm.Keys, func(doc store.Document) error {
		name, key, _ := strings.Cut(doc.Key.ID, "~")
		seen, _ := doc.Fields["seen"].([]any)
		for _, cycle := range seen {
			n, ok := cycle.(int64)
			if !ok {
				return errors.New("a key's document is not readable")
			}
			sequences[[2]string{name, key}] = append(sequences[[2]string{name, key}], n)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for at, e := range o.effects {
		// A repeated attempt without a question first would double in a service without
		// idempotency keys.
		effects[at] = e.times + e.unasked
	}
	for at, applied := range o.applied {
		if at[0] == arm.LeasedOrdered {
			sequences[at] = applied
		}
	}
	posted, err := entriesOf(ctx, s)
	if err != nil {
		return nil, err
	}
	settled, err := settledRefunds(ctx, s)
	if err != nil {
		return nil, err
	}
	var verdicts []verdict
	for _, a := range arms {
		v := verdict{name: a.Name, ordered: a.Ordered}
		byKey := map[string]map[int64]int{}
		for at, sequence := range sequences {
			if at[0] != a.Name {
				continue
			}
			v.sequence(a.Name+" "+at[1], sequence)
			byKey[at[1]] = map[int64]int{}
			for _, cycle := range sequence {
				byKey[at[1]][cycle]++
			}
		}
		for _, e := range p.events {
			if e.arm.Name != a.Name {
				continue
			}
			at := [2]string{a.Name, e.id}
			f := fate{times: effects[at], unrecorded: !completed[at], claims: claims[at]}
			if a.Name == arm.TxOrdered {
				f.times = byKey[e.key][e.cycle]
			}
			if a.Money {
				// Of the payment's: one, whichever event it was for.
				f.times, f.unrecorded = o.gateway.Refunded(e.key), f.unrecorded || !settled[e.key]
			}
			if a.Journal {
				f.times = posted[e.id].entries
			}
			if a.Control {
				f.unrecorded, f.claims = false, 0 // a control's records and answers say nothing about its own effect
			}
			v.take(e.id, f)
		}
		verdicts = append(verdicts, v)
		if a.Name == arm.TxOrdered {
			verdicts = append(verdicts, outboxVerdict(o.published, p))
		}
		if a.Journal {
			sealed, err := sealsVerdict(ctx, s, posted)
			if err != nil {
				return nil, err
			}
			verdicts = append(verdicts, toldVerdict(o.told, p), sealed)
		}
	}
	return verdicts, nil
}

// settledRefunds are the payments whose document says that they are refunded.
func settledRefunds(ctx context.Context, s store.Querier) (map[string]bool, error) {
	settled := map[string]bool{}
	for after := (*store.Position)(nil); ; {
		page, next, err := payments.ListRefunds(ctx, s, payments.Refunded, after, store.MaxPage)
		if err != nil {
			return nil, err
		}
		for _, refund := range page {
			settled[refund.PaymentID] = true
		}
		if after = next; next == nil {
			return settled, nil
		}
	}
}

// post is what the books hold of an event.
type post struct {
	entries int
	sealed  bool
}

// entriesOf are the entries of the books, by event.
func entriesOf(ctx context.Context, s store.Store) (map[string]post, error) {
	posted := map[string]post{}
	err := each(ctx, s, ledger.Entries, func(doc store.Document) error {
		entry, err := ledger.Read(doc)
		p := posted[entry.EventID]
		posted[entry.EventID] = post{entries: p.entries + 1, sealed: entry.Seal > 0}
		return err
	})
	return posted, err
}

// toldVerdict counts the messages about entries. The same message may come again. Two messages
// about one entry are doubled.
func toldVerdict(told map[string]map[string]bool, p *plan) verdict {
	v := verdict{name: "its messages"}
	for _, e := range p.events {
		if e.arm.Journal {
			v.pushes += len(told[e.id])
			v.take("message of "+e.id, fate{times: len(told[e.id])})
		}
	}
	return v
}

// sealsVerdict verifies the books. An entry without a seal is lost. What verification finds, and a
// sum that is not that of the entries, is doubled.
func sealsVerdict(ctx context.Context, s store.Store, posted map[string]post) (verdict, error) {
	v := verdict{name: "its seals"}
	for id, p := range posted {
		f := fate{}
		if p.sealed {
			f.times = 1
		}
		v.take("seal of "+id, f)
	}
	err := seal.Verifier{From: s, Origins: sealtest.Trusting{}}.All(ctx, func(found seal.Finding) {
		v.doubled++
		v.broken = append(v.broken, fmt.Sprintf("%s: %s, %s", found.Document, found.Kind, found.Detail))
	})
	if err != nil {
		return v, err
	}
	if len(posted) == 0 {
		return v, nil
	}
	balances, err := seal.Balances(ctx, s, "default", ledger.PeriodOf(happened))
	if err != nil {
		return v, err
	}
	var debit, credit int64
	for _, line := range balances.Balances {
		debit, credit = debit+line.Debit, credit+line.Credit
	}
	if want := int64(len(posted)) * arm.Cents; debit != want || credit != want {
		v.doubled++
		v.broken = append(v.broken, fmt.Sprintf("debits of %d and credits of %d, for %d entries", debit, credit, len(posted)))
	}
	return v, nil
}

// outboxVerdict counts the emissions of ordered events. The same message may come again. Two
// messages of one event are doubled.
func outboxVerdict(published map[string][]emission, p *plan) verdict {
	v := verdict{name: "its outbox", ordered: true}
	ids := map[string]map[string]bool{}
	for key, emissions := range published {
		var cycles []int64
		for _, e := range emissions {
			v.pushes++
			cycles = append(cycles, e.cycle)
			if ids[e.event] == nil {
				ids[e.event] = map[string]bool{}
			}
			ids[e.event][e.id] = true
		}
		v.sequence("outbox "+key, cycles)
	}
	for _, e := range p.events {
		if e.arm.Name == arm.TxOrdered {
			v.take("outbox "+e.id, fate{times: len(ids[e.id])})
		}
	}
	return v
}

// each calls take for every document of a collection.
func each(ctx context.Context, s store.Store, collection string, take func(store.Document) error) error {
	query := store.Query{Collection: collection, Limit: store.MaxPage}
	for {
		page, err := s.Query(ctx, query)
		if err != nil {
			return err
		}
		for _, doc := range page.Documents {
			if err := take(doc); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		query.After = page.Next
	}
}

// table formats the verdicts, one row per arm.
func table(verdicts []verdict) string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "%-16s %8s %8s %8s %8s %13s\n", "arm", "events", "pushes", "lost", "doubled", "out of order")
	for _, v := range verdicts {
		order := "-"
		if v.ordered {
			order = strconv.Itoa(v.outOfOrder)
		}
		_, _ = fmt.Fprintf(&b, "%-16s %8d %8d %8d %8d %13s\n", v.name, v.events, v.pushes, v.lost, v.doubled, order)
	}
	return b.String()
}
