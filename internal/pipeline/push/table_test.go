package push_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/push"
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

// lines keeps the log of a cell: each message above info, and each attempt that another followed.
type lines struct {
	mu  sync.Mutex
	all []string
	// delivered is the outcome and the reason of the last delivery.
	delivered string
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }

func (l *lines) Handle(_ context.Context, line slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	fields := map[string]string{}
	line.Attrs(func(a slog.Attr) bool { fields[a.Key] = a.Value.String(); return true })
	switch {
	case line.Message == "attempt again":
		l.all = append(l.all, fmt.Sprintf("again after %s %s", fields["status"], fields["reason"]))
	case line.Message == "delivery":
		l.delivered = strings.TrimSpace(fields["outcome"] + " " + fields["reason"])
		if line.Level != slog.LevelInfo {
			l.all = append(l.all, "logged "+line.Level.String())
		}
	case line.Level > slog.LevelInfo:
		l.all = append(l.all, fmt.Sprintf("%q", line.Message))
	}
	return nil
}

// bench is a rig whose handler does what its cell says. Its cells share neither event nor key.
type bench struct {
	*rig
	lines *lines
	// fails are the errors of the next calls of the handler; effect, if set, is what the others return.
	fails  []error
	effect func(handler.Event) handler.Effect
	calls  atomic.Int64
	// during, if set, runs within the next call.
	during func(context.Context)
	cells  int
	leased *handler.Leased
}

func newBench(tb testing.TB, leased bool, with setup) *bench {
	b := &bench{lines: &lines{}}
	do := func(ctx context.Context, event handler.Event) (handler.Effect, error) {
		b.calls.Add(1)
		var err error
		if len(b.fails) > 0 {
			err, b.fails = b.fails[0], b.fails[1:]
		}
		if during := b.during; during != nil {
			b.during = nil
			during(ctx)
		}
		switch {
		case err != nil:
			return handler.Effect{}, err
		case b.effect != nil:
			return b.effect(event), nil
		}
		return handler.Effect{Result: "done"}, nil
	}
	with.log, with.credit = b.lines, do
	if leased {
		b.leased = &handler.Leased{Do: do, SafeToRepeat: true, ManyPlaces: with.many}
		with.leased = b.leased
	}
	b.rig = newRig(tb, with)
	return b
}

// reconcile gives the leased handler a Reconcile.
func (b *bench) reconcile(reconcile func() (handler.Reconciled, error)) {
	registry := handler.NewRegistry()
	registry.Leased("points.credit", handler.Leased{
		Do: b.leased.Do, Reconcile: func(context.Context, handler.Event) (handler.Reconciled, error) {
			return reconcile()
		},
	})
	b.config.Handlers = registry
	b.Service = push.New(b.config)
	b.http = routed(b.Service)
}

// event is a message of a new event and a new key.
func (b *bench) event() message {
	b.cells++
	m := paid(fmt.Sprint("e", b.cells), known, 1)
	body := m.body.(contract.Payment)
	body.Data.Order.CustomerID = fmt.Sprint("k", b.cells)
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
func (b *bench) observe(m message, deliver func() reply) (what, cost string) {
	ctx := context.Background()
	b.lines.delivered = ""
	began, buried := b.config.Now(), len(b.deadLetters())
	b.alarms.at, b.lines.all = nil, nil
	b.calls.Store(0)
	b.counter.Gets.Store(0)
	b.counter.Queries.Store(0)
	b.counter.Commits.Store(0)
	b.counter.Written.Store(0)
	got := deliver()
	cost = fmt.Sprintf("reads %d, commits %d, documents %d", b.counter.Gets.Load()+b.counter.Queries.Load(),
		b.counter.Commits.Load(),
		b.counter.Written.Load())
	after := func(at time.Time) string { return fmt.Sprint("+", at.Sub(began)) }
	said := []string{fmt.Sprint(got.code, " ", b.lines.delivered)}
	if got.Attempt > 0 {
		said[0] += fmt.Sprint(" attempt ", got.Attempt)
	}
	if got.Status != got.code && got.Status != 0 {
		said[0] += fmt.Sprint(" as ", got.Status)
	}
	if took := b.config.Now().Sub(began); took > 0 {
		said[0] += fmt.Sprint(" in ", took)
	}
	if calls := b.calls.Load(); calls != 1 {
		said = append(said, fmt.Sprint("handled ", calls))
	}
	event := m.attributes["event_id"]
	doc, err := b.db.Get(ctx, dedupe.Key("orders", dedupe.DefaultTenant, event))
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
	for _, doc := range b.documents(lane.Delayed.Entries()) {
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
	for _, dead := range b.deadLetters()[buried:] {
		said = append(said, "dead letter "+dead.Attributes["dead_letter_reason"])
	}
	for _, at := range b.alarms.at {
		said = append(said, "alarm "+after(at))
	}
	return strings.Join(append(said, b.lines.all...), "; "), cost
}
