package push_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
)

// dimension is a property that an answer may depend on, and its values.
type dimension struct {
	name   string
	values []string
}

// cell is one value of each dimension, by name.
type cell map[string]string

// enumerate calls run with every cell of the dimensions, and writes the results and their costs as trees: the
// first dimension comes first. Values with the same subtree share it, and a dimension that changes nothing is
// not named. The result of an impossible cell is empty.
func enumerate(dimensions []dimension, run func(cell) (what, cost string)) (table, costs string) {
	total := 1
	for _, d := range dimensions {
		total *= len(d.values)
	}
	whats, prices := make([]string, total), make([]string, total)
	for i := range total {
		c, rest := cell{}, i
		for _, d := range slices.Backward(dimensions) {
			c[d.name], rest = d.values[rest%len(d.values)], rest/len(d.values)
		}
		whats[i], prices[i] = run(c)
	}
	return tree(dimensions, whats, ""), tree(dimensions, prices, "")
}

func tree(dimensions []dimension, results []string, indent string) string {
	if !slices.ContainsFunc(results, func(other string) bool { return other != results[0] }) {
		return " " + results[0] + "\n"
	}
	size := len(results) / len(dimensions[0].values)
	var order []string
	values := map[string][]string{}
	for i, value := range dimensions[0].values {
		under := tree(dimensions[1:], results[i*size:(i+1)*size], indent+"  ")
		if strings.TrimSpace(under) == "" {
			continue
		}
		if values[under] = append(values[under], value); len(values[under]) == 1 {
			order = append(order, under)
		}
	}
	if len(order) == 1 {
		at := slices.Index(dimensions[0].values, values[order[0]][0])
		return tree(dimensions[1:], results[at*size:(at+1)*size], indent)
	}
	var text strings.Builder
	text.WriteString("\n")
	for _, under := range order {
		text.WriteString(indent + dimensions[0].name + " " + strings.Join(values[under], " | ") + ":" + under)
	}
	return text.String()
}

// journal keeps what the rig's service logs.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (j *journal) reset() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text.Reset()
}

// lines returns those of a message, or all.
func (j *journal) lines(message string) (found []map[string]any) {
	for line := range strings.Lines(j.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			panic(err)
		}
		if message == "" || fields["msg"] == message {
			found = append(found, fields)
		}
	}
	return found
}

// outcome returns outcome and reason of the last delivery, the messages above info, and the attempts that
// another followed.
func (j *journal) outcome() (delivered string, logged []string) {
	for _, line := range j.lines("") {
		switch {
		case line["msg"] == "attempt again":
			logged = append(logged, fmt.Sprint("again after ", line["status"], " ", line["reason"]))
		case line["msg"] == "delivery":
			delivered = strings.TrimSpace(fmt.Sprint(line["outcome"], " ", line["reason"]))
			if line["level"] != "INFO" {
				logged = append(logged, fmt.Sprint("logged ", line["level"]))
			}
		case line["level"] != "INFO":
			logged = append(logged, fmt.Sprintf("%q", line["msg"]))
		}
	}
	return delivered, logged
}

// event is a message of a new event and a new key.
func (r *rig) event() message {
	r.cells++
	m := paid(fmt.Sprint("e", r.cells), known, 1)
	body := m.body.(contract.Payment)
	body.Data.Order.CustomerID = fmt.Sprint("k", r.cells)
	m.attributes["ordering_key"], m.attributes["paynow_customer_id"] = body.Data.Order.CustomerID,
		body.Data.Order.CustomerID
	return m
}

// documents returns those of a collection.
func (r *rig) documents(collection string) []store.Document {
	page, err := r.db.Query(context.Background(), store.Query{Collection: collection, Limit: store.MaxPage})
	if err != nil {
		panic(err)
	}
	return page.Documents
}

// observe delivers a message of an event, and describes the answer, the record, the lane, the dead letter,
// the alarm and the log, and what it cost.
func (r *rig) observe(m message, deliver func() reply) (what, cost string) {
	ctx := context.Background()
	began, buried := r.config.Now(), len(r.deadLetters())
	r.alarms.at = nil
	r.log.reset()
	r.calls.Store(0)
	r.counter.Gets.Store(0)
	r.counter.Queries.Store(0)
	r.counter.Commits.Store(0)
	r.counter.Written.Store(0)
	got := deliver()
	cost = fmt.Sprintf("reads %d, commits %d, documents %d", r.counter.Gets.Load()+r.counter.Queries.Load(),
		r.counter.Commits.Load(),
		r.counter.Written.Load())
	delivered, logged := r.log.outcome()
	after := func(at time.Time) string { return fmt.Sprint("+", at.Sub(began)) }
	said := []string{fmt.Sprint(got.code, " ", delivered)}
	if got.Attempt > 0 {
		said[0] += fmt.Sprint(" attempt ", got.Attempt)
	}
	if got.Status != got.code && got.Status != 0 {
		said[0] += fmt.Sprint(" as ", got.Status)
	}
	if took := r.config.Now().Sub(began); took > 0 {
		said[0] += fmt.Sprint(" in ", took)
	}
	if calls := r.calls.Load(); calls != 1 {
		said = append(said, fmt.Sprint("handled ", calls))
	}
	event := m.attributes["event_id"]
	doc, err := r.db.Get(ctx, dedupe.Key("orders", dedupe.DefaultTenant, event))
	record, unread := dedupe.FromDocument(doc)
	switch {
	case errors.Is(err, store.ErrNotFound):
		said = append(said, "no record")
	case err != nil:
		panic(err)
	case unread != nil:
		said = append(said, "record broken")
	default:
		text := fmt.Sprintf("record %s %d", record.Status, record.Attempts)
		if !record.NextRetryAt.IsZero() {
			text += " " + after(record.NextRetryAt)
		}
		if !record.LeaseUntil.IsZero() {
			text += " lease " + after(record.LeaseUntil)
		}
		if record.DelayTicket != "" {
			text += " kept"
		}
		said = append(said, text)
	}
	for _, doc := range r.documents(lane.Delayed.Entries()) {
		kept, err := lane.KeptOf(doc)
		if err != nil {
			panic(err)
		}
		if kept.EventID == event {
			text := "waits"
			if !kept.DueAt.IsZero() {
				text += " until " + after(kept.DueAt)
			}
			if doc.Fields["timer"] == true {
				text += " by its sender's wish"
			}
			if record.DelayedBeside {
				text += " beside its key"
			}
			said = append(said, text)
		}
	}
	for _, dead := range r.deadLetters()[buried:] {
		said = append(said, "dead letter "+dead.Attributes["dead_letter_reason"])
	}
	for _, at := range r.alarms.at {
		said = append(said, "alarm "+after(at))
	}
	return strings.Join(append(said, logged...), "; "), cost
}
