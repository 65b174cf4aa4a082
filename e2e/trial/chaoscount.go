package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"billhook/e2e"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/apps/payments"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

// fate is an event's outcome by the records and logs.
type fate struct {
	unrecorded bool
	// claims counts the answers with outcome processed; a killed worker's may be missing.
	claims int
}

type verdict struct {
	name                      string
	events                    int
	lost, doubled, outOfOrder int
	// ordered: the arm must keep the order. control: the arm need not keep any promise.
	ordered, control bool
	// broken names some of the counted events, for debugging.
	broken []string
}

func (v *verdict) ok() bool { return v.lost+v.doubled+v.outOfOrder == 0 }

func (v *verdict) count(into *int, format string, values ...any) {
	*into++
	v.broken = append(v.broken, fmt.Sprintf(format, values...))
}

// verdictOn counts events by outcome. An event is out of order if its first effect follows a later event's.
func verdictOn(name string, a *arm, events, effects []*event, known map[*event]fate) *verdict {
	v := &verdict{name: name, events: len(events), ordered: a.ordered, control: a.control}
	times, highest := map[*event]int{}, map[string]int64{}
	for _, e := range effects {
		if a.ordered && times[e] == 0 && e.cycle < highest[e.key] {
			v.count(&v.outOfOrder, "%s of %s: %d after %d", e.id, e.key, e.cycle, highest[e.key])
		}
		times[e]++
		highest[e.key] = max(highest[e.key], e.cycle)
	}
	for _, e := range events {
		of := known[e]
		if times[e] == 0 || of.unrecorded {
			v.count(&v.lost, "%s is lost: %d effects, recorded %t", e.id, times[e], !of.unrecorded)
		}
		if times[e] > 1 || of.claims > 1 {
			v.count(&v.doubled, "%s is doubled: %d effects, %d claims", e.id, times[e], of.claims)
		}
	}
	return v
}

// judge fails the run if a promise is broken, or if the control that doubles events shows no doubled event.
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

func count(
	r *run, s store.Store, o *outside, b *standin.Broker, log *e2e.Log, p *plan, arms []*arm,
) (verdicts []*verdict) {
	planned, events, effects := map[string]*event{}, map[*arm][]*event{}, map[*arm][]*event{}
	for _, e := range p.events {
		planned[e.id], events[e.arm] = e, append(events[e.arm], e)
	}
	effect := func(id string) { effects[planned[id].arm] = append(effects[planned[id].arm], planned[id]) }
	for _, doc := range everything(r, s, effectsOf, whole) {
		times, _ := doc.Fields["times"].(int64) // of an event
		for range times {
			effect(doc.Key.ID)
		}
		seen, _ := doc.Fields["seen"].([]any) // of a key
		for _, id := range seen {
			effect(id.(string))
		}
	}
	applied := map[string]bool{}
	for _, d := range o.service.Deliveries() { // the first forgotten delivery was applied
		if d.Outcome == standin.Applied || d.Outcome == standin.Forgotten && !applied[d.EventID] {
			effect(d.EventID)
			applied[d.EventID] = true
		}
	}
	var entries, sealed []*event
	for _, entry := range everything(r, s, ledger.Entries, ledger.Read) {
		r.must(filetest.ErrorOf(seal.Locate(r.ctx, s, &entry)))
		effect(entry.EventID)
		entries = append(entries, planned[entry.EventID])
		if entry.Seal > 0 {
			sealed = append(sealed, planned[entry.EventID])
		}
	}
	refunded := map[string]bool{}
	for _, refund := range everything(r, s, payments.RefundsCollection, payments.ReadRefund) {
		refunded[refund.PaymentID] = refund.State == payments.Refunded
	}
	claims := counts{}
	for _, d := range log.Deliveries("") {
		if d.Outcome == "processed" {
			claims[d.EventID]++
		}
	}
	known, records := map[*event]fate{}, r.records(s)
	for _, e := range p.events {
		record := records[dedupe.Key(e.arm.name, contract.DefaultTenant, e.id)]
		of := fate{unrecorded: record.Status != dedupe.Completed, claims: claims[e.id]}
		more := o.unasked[handler.CalleeKey(e.arm.name, contract.DefaultTenant, e.id)] - 1
		switch {
		case e.arm.name == armRefunds: // each payment is refunded once, by whichever event
			more, of.unrecorded = o.gateway.Refunded(e.key), of.unrecorded || !refunded[e.key]
		case e.arm.control: // its records and answers do not show its effect
			of = fate{}
		}
		known[e] = of
		for range more {
			effect(e.id)
		}
	}
	for _, a := range arms {
		verdicts = append(verdicts, verdictOn(a.name, a, events[a], effects[a], known))
		for _, topic := range a.handler.Emits {
			about := published(r, planned, b.Held(topic))
			verdicts = append(verdicts, verdictOn("its messages", a, events[a], about, nil))
		}
		if a.name == armJournal {
			v := verdictOn("its seals", a, entries, sealed, nil) // an unsealed entry counts as lost
			v.verify(r, s)
			verdicts = append(verdicts, v)
		}
	}
	return verdicts
}

// published returns the events of the messages, in their order, counting a repeated message once.
func published(r *run, planned map[string]*event, messages []standin.Message) (about []*event) {
	known := map[string]bool{}
	for _, m := range messages {
		var body struct {
			ID            string
			Payload, Data contract.Payload // a message has one of them
		}
		r.must(json.Unmarshal(m.Data, &body))
		e := planned[body.Payload.EventID+body.Data.EventID]
		if e == nil {
			r.Fatalf("a message about no event of the plan: %s", body.ID)
		}
		if !known[e.id+" "+body.ID] {
			about = append(about, e)
		}
		known[e.id+" "+body.ID] = true
	}
	return about
}

// verify verifies the books. It counts each finding, and a total that differs from the entries', as doubled.
func (v *verdict) verify(r *run, s store.Store) {
	verifier := seal.Verifier{From: s, Origins: sealtest.Trusting{}}
	for _, found := range filetest.Must(sealtest.Findings(r.ctx, verifier))(r) {
		v.count(&v.doubled, "%s: %s, %s", found.Document, found.Kind, found.Detail)
	}
	if v.events == 0 {
		return
	}
	month := ledger.PeriodOf(happened)
	balances := filetest.Must(seal.Balances(r.ctx, s, contract.DefaultTenant, month, month))(r)
	var debit, credit int64
	for _, line := range balances.Balances {
		debit, credit = debit+line.Debit, credit+line.Credit
	}
	if want := int64(v.events) * cents; debit != want || credit != want {
		v.count(&v.doubled, "debits of %d and credits of %d, for %d entries", debit, credit, v.events)
	}
}
