package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"billhook/e2e"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/apps/payments"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

type fate struct {
	times      int
	unrecorded bool
	// claims counts the deliveries whose answer says that they processed the event. The answer
	// may be missing where its worker was killed.
	claims int
}

type verdict struct {
	name                      string
	events                    int
	lost, doubled, outOfOrder int
	// ordered: the arm promises the order. control: it promises nothing.
	ordered, control bool
	// broken names some of the counted events, for debugging.
	broken []string
}

func (v *verdict) ok() bool { return v.lost+v.doubled+v.outOfOrder == 0 }

func (v *verdict) count(into *int, format string, values ...any) {
	*into++
	v.broken = append(v.broken, fmt.Sprintf(format, values...))
}

func (v *verdict) take(id string, f fate) {
	v.events++
	if f.times == 0 || f.unrecorded {
		v.count(&v.lost, "%s is lost: %d effects, recorded %t", id, f.times, !f.unrecorded)
	}
	if f.times > 1 || f.claims > 1 {
		v.count(&v.doubled, "%s is doubled: %d effects, %d claims", id, f.times, f.claims)
	}
}

// order counts the events that come after a later one of their key. Of one that comes several times the first
// time counts.
func (v *verdict) order(events []*event) {
	seen, highest := map[string]bool{}, map[string]int64{}
	for _, e := range events {
		if !seen[e.id] && e.cycle < highest[e.key] {
			v.count(&v.outOfOrder, "%s of %s: %d after %d", e.id, e.key, e.cycle, highest[e.key])
		}
		seen[e.id] = true
		highest[e.key] = max(highest[e.key], e.cycle)
	}
}

// judge fails the run where a promise is broken, or nothing was noticed of the control that doubles.
func judge(r *run, verdicts []*verdict) {
	rows := r.table("arm", "events", "lost", "doubled", "out of order")
	for _, v := range verdicts {
		order := "-"
		if v.ordered {
			order = fmt.Sprint(v.outOfOrder)
		}
		rows(v.name, v.events, v.lost, v.doubled, order)
		if v.name == armCheckThenAct && v.doubled == 0 {
			r.Errorf("check-then-act has doubled nothing: this run proves nothing")
		}
		if !v.control && !v.ok() {
			r.broken("%s\n  %s", v.name, strings.Join(v.broken[:min(len(v.broken), 10)], "\n  "))
		}
	}
}

// evidence is what is found of the planned events, by their ids.
type evidence struct {
	planned map[string]*event
	// effects are the events of each effect. Those of a key are in the order of theirs.
	effects []*event
	// sealed are the events that have an entry in the books, and whether it is sealed.
	sealed map[string]bool
}

func (e *evidence) effect(id string) {
	e.planned[id].times++
	e.effects = append(e.effects, e.planned[id])
}

func gather(r *run, s store.Store, o *outside, log *e2e.Log, p *plan) *evidence {
	found := &evidence{planned: map[string]*event{}, sealed: map[string]bool{}}
	records := r.records(s)
	for _, e := range p.events {
		record := records[dedupe.Key(e.arm.name, contract.DefaultTenant, e.id)]
		unasked := o.unasked[handler.CalleeKey(e.arm.name, contract.DefaultTenant, e.id)] - 1
		found.planned[e.id], e.fate = e, fate{times: max(0, unasked), unrecorded: record.Status != dedupe.Completed}
	}
	r.each(s, effectsOf, func(doc store.Document) {
		times, _ := doc.Fields["times"].(int64) // of an event
		for range times {
			found.effect(doc.Key.ID)
		}
		seen, _ := doc.Fields["seen"].([]any) // of a key
		for _, id := range seen {
			found.effect(id.(string))
		}
	})
	applied := map[string]bool{}
	for _, d := range o.service.Deliveries() { // one that is forgotten was applied, if none was before
		if d.Outcome == standin.Applied || d.Outcome == standin.Forgotten && !applied[d.EventID] {
			found.effect(d.EventID)
			applied[d.EventID] = true
		}
	}
	r.each(s, ledger.Entries, func(doc store.Document) {
		entry, err := ledger.Read(doc)
		r.must(err)
		_, err = seal.Locate(r.ctx, s, &entry)
		r.must(err)
		found.effect(entry.EventID)
		found.sealed[entry.EventID] = entry.Seal > 0
	})
	refunded := map[string]bool{}
	r.each(s, payments.RefundsCollection, func(doc store.Document) {
		refund, err := payments.ReadRefund(doc)
		r.must(err)
		refunded[refund.PaymentID] = refund.State == payments.Refunded
	})
	for _, d := range log.Deliveries("") {
		if d.Outcome == "processed" {
			found.planned[d.EventID].claims++
		}
	}
	for _, e := range p.events {
		switch {
		case e.arm.name == armRefunds: // of the payment's: one, whichever event it was for
			e.times, e.unrecorded = o.gateway.Refunded(e.key), e.unrecorded || !refunded[e.key]
		case e.arm.control: // its records and answers say nothing about its own effect
			e.unrecorded, e.claims = false, 0
		}
	}
	return found
}

func count(
	r *run, s store.Store, o *outside, b *standin.Broker, log *e2e.Log, p *plan, arms []*arm,
) (verdicts []*verdict) {
	found := gather(r, s, o, log, p)
	for _, a := range arms {
		v := &verdict{name: a.name, ordered: a.ordered, control: a.control}
		own := func(events []*event) []*event {
			return slices.DeleteFunc(slices.Clone(events), func(e *event) bool { return e.arm != a })
		}
		events := own(p.events)
		for _, e := range events {
			v.take(e.id, e.fate)
		}
		if a.ordered {
			v.order(own(found.effects))
		}
		verdicts = append(verdicts, v)
		for _, topic := range a.handler.Emits {
			verdicts = append(verdicts, messagesVerdict(r, a, events, found.planned, b.Held(topic)))
		}
		if a.name == armJournal {
			verdicts = append(verdicts, sealsVerdict(r, s, found.sealed))
		}
	}
	return verdicts
}

// messagesVerdict counts what an arm has published: a message about each event. The same message may come
// again. Two messages about one event are doubled.
func messagesVerdict(r *run, a *arm, events []*event, planned map[string]*event, messages []standin.Message) *verdict {
	v := &verdict{name: "its messages", ordered: a.ordered}
	ids, published := map[*event]counts{}, []*event(nil)
	for _, m := range messages {
		var body struct {
			ID            string
			Payload, Data contract.Payload // it has one of them
		}
		r.must(json.Unmarshal(m.Data, &body))
		about := planned[body.Payload.EventID+body.Data.EventID]
		if about == nil {
			r.Fatalf("a message about what is no event of the plan: %s", body.ID)
		}
		if ids[about] == nil {
			ids[about] = counts{}
		}
		ids[about].add(body.ID, 1)
		published = append(published, about)
	}
	for _, e := range events {
		v.take("message of "+e.id, fate{times: len(ids[e])})
	}
	if a.ordered {
		v.order(published)
	}
	return v
}

// sealsVerdict verifies the books. An entry without a seal is lost. What verification finds, and a
// sum that is not that of the entries, is doubled.
func sealsVerdict(r *run, s store.Store, sealed map[string]bool) *verdict {
	v := &verdict{name: "its seals"}
	for id, has := range sealed {
		v.take("seal of "+id, fate{times: map[bool]int{true: 1}[has]})
	}
	findings, err := sealtest.Findings(r.ctx, seal.Verifier{From: s, Origins: sealtest.Trusting{}})
	r.must(err)
	for _, found := range findings {
		v.count(&v.doubled, "%s: %s, %s", found.Document, found.Kind, found.Detail)
	}
	if len(sealed) == 0 {
		return v
	}
	balances, err := seal.Balances(r.ctx, s, contract.DefaultTenant, ledger.PeriodOf(happened), ledger.PeriodOf(happened))
	r.must(err)
	var debit, credit int64
	for _, line := range balances.Balances {
		debit, credit = debit+line.Debit, credit+line.Credit
	}
	if want := int64(len(sealed)) * cents; debit != want || credit != want {
		v.count(&v.doubled, "debits of %d and credits of %d, for %d entries", debit, credit, len(sealed))
	}
	return v
}
