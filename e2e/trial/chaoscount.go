package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

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
func judge(r *run, verdicts []verdict) {
	for _, v := range verdicts {
		if v.name == armCheckThenAct && v.doubled == 0 {
			r.Errorf("check-then-act has doubled nothing: this run proves nothing")
		}
		if !v.control && !v.ok() {
			r.broken("%s\n  %s", v.name, strings.Join(v.broken[:min(len(v.broken), 10)], "\n  "))
		}
	}
}

type at struct{ arm, id string }

type evidence struct {
	effects map[at]int
	// sequences are the positions of a key's events in the order of their effects.
	sequences map[at][]int64
	claims    map[at]int
	completed map[at]bool
	// sealed are the events that have an entry in the books, and whether it is sealed.
	sealed map[string]bool
	// outbox and posted are what was published of the events of the arms tx-ordered and journal.
	outbox, posted messagesAbout
}

// messagesAbout are the ids of the messages about each event, and the positions in each key in the order of publishing.
type messagesAbout struct {
	ids    map[string]map[string]bool
	cycles map[string][]int64
	pushes int
}

func messagesOf(r *run, messages []contract.Message) messagesAbout {
	t := messagesAbout{ids: map[string]map[string]bool{}, cycles: map[string][]int64{}, pushes: len(messages)}
	for _, m := range messages {
		var body struct {
			ID      string           `json:"id"`
			Payload contract.Payload `json:"payload"`
			Data    contract.Payload `json:"data"`
		}
		r.must(json.Unmarshal(m.Data, &body))
		event := body.Payload.EventID + body.Data.EventID // it has one of them
		if t.ids[event] == nil {
			t.ids[event] = map[string]bool{}
		}
		t.ids[event][body.ID] = true
		t.cycles[m.OrderingKey] = append(t.cycles[m.OrderingKey], body.Payload.Cycle)
	}
	return t
}

func gather(r *run, s store.Store, o *outside, ws *workers, p *plan) evidence {
	found := evidence{
		effects: map[at]int{}, sequences: map[at][]int64{}, claims: map[at]int{}, completed: map[at]bool{}, sealed: map[string]bool{},
		outbox: messagesOf(r, o.published[outboxTopic]), posted: messagesOf(r, o.published[postedTopic]),
	}
	for _, d := range ws.log.Deliveries("") {
		if d.Outcome == "processed" {
			found.claims[at{d.Queue, d.EventID}]++
		}
	}
	each(r, s, dedupe.Collection, nil, func(doc store.Document) {
		record, err := dedupe.FromDocument(doc)
		r.must(err)
		found.completed[at{record.Queue, record.EventID}] = record.Status == dedupe.Completed
	})
	each(r, s, effectsOf, nil, func(doc store.Document) {
		arm, id, _ := strings.Cut(doc.Key.ID, "~")
		times, _ := doc.Fields["times"].(int64)
		found.effects[at{arm, id}] = int(times)
	})
	each(r, s, keysOf, nil, func(doc store.Document) {
		arm, key, _ := strings.Cut(doc.Key.ID, "~")
		seen, _ := doc.Fields["seen"].([]any)
		for _, cycle := range seen {
			found.sequences[at{arm, key}] = append(found.sequences[at{arm, key}], cycle.(int64))
		}
	})
	each(r, s, ledger.Entries, nil, func(doc store.Document) {
		entry, err := ledger.Read(doc)
		r.must(err)
		found.effects[at{armJournal, entry.EventID}]++
		found.sealed[entry.EventID] = entry.Seal > 0
	})
	refunded := map[string]bool{}
	each(r, s, payments.RefundsCollection, map[string]any{"state": string(payments.Refunded)}, func(doc store.Document) {
		refund, err := payments.ReadRefund(doc)
		r.must(err)
		refunded[refund.PaymentID] = true
	})
	planned := map[string]*event{}
	for _, e := range p.events {
		planned[e.id] = e
		here := at{e.arm.name, e.id}
		switch {
		case e.arm.handler.Post.Target != "":
			found.effects[here] = o.service.Applied(e.id) + o.unasked[handler.CalleeKey(e.arm.name, contract.DefaultTenant, e.id)]
		case e.arm.name == armRefunds: // of the payment's: one, whichever event it was for
			found.effects[here] = o.gateway.Refunded(e.key)
			found.completed[here] = found.completed[here] && refunded[e.key]
		case e.arm.name == armTxOrdered:
			for _, cycle := range found.sequences[at{e.arm.name, e.key}] {
				if cycle == e.cycle {
					found.effects[here]++
				}
			}
		}
	}
	for _, d := range o.service.Deliveries() {
		if e := planned[d.EventID]; e.arm.name == armLeasedOrdered && d.Outcome == standin.Applied {
			found.sequences[at{e.arm.name, e.key}] = append(found.sequences[at{e.arm.name, e.key}], e.cycle)
		}
	}
	return found
}

func count(r *run, s store.Store, found evidence, p *plan, arms []*arm) (verdicts []verdict) {
	for _, a := range arms {
		v := verdict{name: a.name, ordered: a.ordered, control: a.control}
		for of, sequence := range found.sequences {
			if of.arm == a.name {
				v.sequence(a.name+" "+of.id, sequence)
			}
		}
		also := verdict{}
		for _, e := range p.events {
			if e.arm != a {
				continue
			}
			of := at{a.name, e.id}
			f := fate{times: found.effects[of], unrecorded: !found.completed[of], claims: found.claims[of]}
			if a.control {
				f.unrecorded, f.claims = false, 0 // a control's records and answers say nothing about its own effect
			}
			v.take(e.id, f)
			// The same message may come again. Two messages about one event are doubled.
			switch a.name {
			case armTxOrdered:
				also.take("outbox "+e.id, fate{times: len(found.outbox.ids[e.id])})
			case armJournal:
				also.take("message of "+e.id, fate{times: len(found.posted.ids[e.id])})
			}
		}
		verdicts = append(verdicts, v)
		switch a.name {
		case armTxOrdered:
			also.name, also.ordered, also.pushes = "its outbox", true, found.outbox.pushes
			for key, cycles := range found.outbox.cycles {
				also.sequence("outbox "+key, cycles)
			}
			verdicts = append(verdicts, also)
		case armJournal:
			also.name, also.pushes = "its messages", found.posted.pushes
			verdicts = append(verdicts, also, sealsVerdict(r, s, found.sealed))
		}
	}
	return verdicts
}

// sealsVerdict verifies the books. An entry without a seal is lost. What verification finds, and a
// sum that is not that of the entries, is doubled.
func sealsVerdict(r *run, s store.Store, sealed map[string]bool) verdict {
	v := verdict{name: "its seals"}
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
		v.doubled++
		v.broken = append(v.broken, fmt.Sprintf("%s: %s, %s", found.Document, found.Kind, found.Detail))
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
		v.doubled++
		v.broken = append(v.broken, fmt.Sprintf("debits of %d and credits of %d, for %d entries", debit, credit, len(sealed)))
	}
	return v
}

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
