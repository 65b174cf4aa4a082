package orders

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Diagram is the state machine, in Mermaid: each way that an order can go, with what takes it along and what is done.
func Diagram() string {
	text := "stateDiagram-v2\n"
	for _, e := range edges {
		var parts []string
		for _, part := range []struct {
			holds bool
			text  string
		}{
			{e.on != "", e.on}, {e.inStock == &yes, "all pieces available"}, {e.inStock == &no, "out of stock"},
			{e.waits, "the wait for the payment begins"}, {e.stock != "", string(e.stock) + " the pieces"}, {e.emits != "", "emit " + e.emits},
		} {
			if part.holds {
				parts = append(parts, part.text)
			}
		}
		text += strings.TrimSuffix(fmt.Sprintf("    %s --> %s: %s", cmp.Or(e.from, "[*]"), e.to, strings.Join(parts, ", ")), ": ") + "\n"
	}
	for _, last := range []State{OrderConfirmed, OrderCancelled, OrderShipped} {
		text += fmt.Sprintf("    %s --> [*]\n", last)
	}
	return text
}

// Answers is the table, in Markdown, of the events that no edge is for.
func Answers() string {
	type row struct {
		at, on   []string
		is, code string
	}
	var rows []*row
	add := func(to *[]string, value string) {
		if !slices.Contains(*to, value) {
			*to = append(*to, value)
		}
	}
	for _, a := range answers {
		i := slices.IndexFunc(rows, func(r *row) bool { return r.code == a.code && r.is == string(a.is) })
		if i < 0 {
			i, rows = len(rows), append(rows, &row{code: a.code, is: string(a.is)})
		}
		add(&rows[i].at, cmp.Or(string(a.at), "not seen"))
		add(&rows[i].on, "`"+a.on+"`")
	}
	var b strings.Builder
	b.WriteString("| the order is | the event | becomes | code |\n| --- | --- | --- | --- |\n")
	said := 0
	for _, r := range rows {
		said += len(r.at) * len(r.on)
		_, _ = fmt.Fprintf(&b, "| %s | %s | %s | `%s` |\n", strings.Join(r.at, ", "), strings.Join(r.on, ", "), r.is, r.code)
	}
	if said != len(answers) {
		panic("a code is given to some events at some states: give it a row of its own")
	}
	return b.String()
}

// AnswerTo is what the table has for an event at a state: what the event becomes, and the code.
func AnswerTo(at State, on string) (is, code string, answered bool) {
	a, answered := answerTo(at, on)
	return string(a.is), a.code, answered
}
