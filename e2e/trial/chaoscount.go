package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

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
	events, pushes            int
	lost, doubled, outOfOrder int
	// ordered: the arm promises the order. control: it promises nothing.
	ordered, control bool
	// broken names some of the counted events, for debugging.
	broken []string
}

func (v *verdict) ok() bool { return v.lost+v.doubled+v.outOfOrder == 0 }

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

// double counts what is too much besides.
func (v *verdict) double(format string, values ...any) {
	v.doubled++
	v.broken = append(v.broken, fmt.Sprintf(format, values...))
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

// judge fails the run where a promise is broken, or nothing was noticed of the control that doubles.
func judge(r *run, verdicts []*verdict) {
	for _, v := range verdicts {
		if v.name == armCheckThenAct && v.doubled == 0 {
			r.Errorf("check-then-act has doubled nothing: this run proves nothing")
		}
		if !v.control && !v.ok() {
			r.broken("%s\n  %s", v.name, strings.Join(v.broken[:min(len(v.broken), 10)], "\n  "))
		}
	}
}

func report(rows *table, verdicts []*verdict) {
	for _, v := range verdicts {
		order := "-"
		if v.ordered {
			order = fmt.Sprint(v.outOfOrder)
		}
		rows.row(v.name, v.events, v.pushes, v.lost, v.doubled, order)
	}
}

// order counts the events that are out of order in a list of them.
func (v *verdict) order(events []*event) {
	cycles := map[string][]int64{}
	for _, e := range events {
		cycles[e.key] = append(cycles[e.key], e.cycle)
	}
	for key, of := range cycles {
		v.sequence(v.name+" "+key, of)
	}
}

// evidence is what has become of the planned events, by their ids.
type evidence struct {
	planned map[string]*event
	fates   map[string]*fate
	// effects are the events of each effect. Those of a key are in the order of theirs.
	effects []*event
	// sealed are the events that have an entry in the books, and whether it is sealed.
	sealed map[string]bool
}

func (e *evidence) effect(id string) {
	e.fates[id].times++
	e.effects = append(e.effects, e.planned[id])
}

func gather(r *run, s store.Store, o *outside, log *e2e.Log, p *plan) *evidence {
	found := &evidence{planned: map[string]*event{}, fates: map[string]*fate{}, sealed: map[string]bool{}}
	records := r.records(s)
	for _, e := range p.events {
		record := records[dedupe.Key(e.arm.name, contract.DefaultTenant, e.id)]
		unasked := o.unasked[handler.CalleeKey(e.arm.name, contract.DefaultTenant, e.id)]
		found.planned[e.id], found.fates[e.id] = e, &fate{times: unasked, unrecorded: record.Status != dedupe.Completed}
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
	for _, d := range o.service.Deliveries() {
		if d.Outcome == standin.Applied {
			found.effect(d.EventID)
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
			found.fates[d.EventID].claims++
		}
	}
	for id, f := range found.fates {
		switch e := found.planned[id]; {
		case e.arm.name == armRefunds: // of the payment's: one, whichever event it was for
			f.times, f.unrecorded = o.gateway.Refunded(e.key), f.unrecorded || !refunded[e.key]
		case e.arm.control: // its records and answers say nothing about its own effect
			f.unrecorded, f.claims = false, 0
		}
	}
	return found
}

func count(r *run, s store.Store, o *outside, log *e2e.Log, p *plan, arms []*arm) (verdicts []*verdict) {
	found := gather(r, s, o, log, p)
	for _, a := range arms {
		others := func(e *event) bool { return e.arm != a }
		events := slices.DeleteFunc(slices.Clone(p.events), others)
		v := &verdict{name: a.name, ordered: a.ordered, control: a.control}
		for _, e := range events {
			v.take(e.id, *found.fates[e.id])
		}
		if a.ordered {
			v.order(slices.DeleteFunc(slices.Clone(found.effects), others))
		}
		verdicts = append(verdicts, v)
		for _, topic := range a.handler.Emits {
			verdicts = append(verdicts, messagesVerdict(r, a, events, o.published[topic]))
		}
		if a.name == armJournal {
			verdicts = append(verdicts, sealsVerdict(r, s, found.sealed))
		}
	}
	return verdicts
}

// messagesVerdict counts what an arm has published: a message about each event. The same message may come
// again. Two messages about one event are doubled.
func messagesVerdict(r *run, a *arm, events []*event, messages []contract.Message) *verdict {
	v := &verdict{name: "its messages", ordered: a.ordered, pushes: len(messages)}
	ids, published := map[string]map[string]bool{}, []*event(nil)
	for _, m := range messages {
		var body struct {
			ID            string
			Payload, Data contract.Payload // it has one of them
		}
		r.must(json.Unmarshal(m.Data, &body))
		about := body.Payload.EventID + body.Data.EventID
		if ids[about] == nil {
			ids[about] = map[string]bool{}
		}
		ids[about][body.ID] = true
		i := slices.IndexFunc(events, func(e *event) bool { return e.id == about })
		require.GreaterOrEqual(r, i, 0, "a message about %q, which is no event of the plan", about)
		published = append(published, events[i])
	}
	for _, e := range events {
		v.take("message of "+e.id, fate{times: len(ids[e.id])})
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
		f := fate{}
		if has {
			f.times = 1
		}
		v.take("seal of "+id, f)
	}
	findings, err := sealtest.Findings(r.ctx, seal.Verifier{From: s, Origins: sealtest.Trusting{}})
	r.must(err)
	for _, found := range findings {
		v.double("%s: %s, %s", found.Document, found.Kind, found.Detail)
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
		v.double("debits of %d and credits of %d, for %d entries", debit, credit, len(sealed))
	}
	return v
}
