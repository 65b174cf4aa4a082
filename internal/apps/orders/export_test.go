package orders

import (
	"cmp"
	"fmt"
	"strings"
)

// Diagram is the state machine in Mermaid: each transition with its event and its effects.
func Diagram() string {
	text := "stateDiagram-v2\n"
	for _, e := range edges {
		var parts []string
		for _, part := range []struct {
			holds bool
			text  string
		}{
			{e.on != "", e.on},
			{e.inStock == &yes, "all pieces available"},
			{e.inStock == &no, "out of stock"},
			{e.waits, "the wait for the payment begins"},
			{e.stock != "", string(e.stock) + " the pieces"},
			{e.emits != "", "emit " + e.emits},
		} {
			if part.holds {
				parts = append(parts, part.text)
			}
		}
		text += strings.TrimSuffix(fmt.Sprintf("    %s --> %s: %s", cmp.Or(e.from, "[*]"), e.to,
			strings.Join(parts, ", ")), ": ") + "\n"
	}
	for _, last := range []State{OrderConfirmed, OrderCancelled, OrderShipped} {
		text += fmt.Sprintf("    %s --> [*]\n", last)
	}
	return text
}

// Answers is the table in Markdown of the events without a transition.
func Answers() string {
	text := "| the order is | the event | becomes | code |\n| --- | --- | --- | --- |\n"
	for _, a := range answers {
		var at []string
		for _, state := range a.at {
			at = append(at, cmp.Or(string(state), "not seen"))
		}
		text += fmt.Sprintf("| %s | `%s` | %s | `%s` |\n", strings.Join(at, ", "), strings.Join(a.on, "`, `"),
			a.is, a.code)
	}
	return text
}

// AnswerTo is the table's answer to an event in a state: its outcome and code.
func AnswerTo(at State, on string) (is, code string, answered bool) {
	a, answered := answerTo(at, on)
	return string(a.is), a.code, answered
}
