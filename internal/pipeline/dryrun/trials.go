// Package dryrun shows what a worker would write, emit and call for a message, without doing it. It owns the
// result of a trial, and a store that takes no writes. A Worker decides what a message means.
package dryrun

import (
	"context"
	"fmt"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

// Worker tries messages.
type Worker interface {
	// Queue finds a queue of the worker's catalog by id or alias.
	Queue(name string) (catalog.Queue, bool)
	// Try returns what the worker would do if the message were delivered now, ahead of its key's others.
	Try(ctx context.Context, m Message) (Trial, error)
}

// The errors. Any other one means that the result is unknown now.
var (
	// ErrNoQueue: the worker has no such queue, or the queue is not enabled.
	ErrNoQueue = console.Refuse(console.Absent, "queue_unknown",
		"The catalog runs no queue of that name or alias.")
	// ErrCatalog is wrapped when the given catalog files are refused; the text lists the mistakes.
	ErrCatalog = console.Refuse(console.Refused, "catalog_refused", "")
)

// Message is a message to try.
type Message struct {
	contract.Message
	Queue       string
	PublishedAt time.Time
	From        From
}

// From is the document that holds the message; zero for a message that the caller brings.
type From struct {
	Kind string `json:"kind,omitempty"`
	ID   string `json:"id,omitempty"` // of the document
}

func (f From) String() string { return strings.TrimSpace(f.Kind + " " + f.ID) }

// Calls is the outcome of a message whose handler calls another service, on whose answer the outcome depends.
const Calls retry.Outcome = "calls"

// Trial is what a worker would do with a message. Views and JSON show the members in this order.
type Trial struct {
	Tried
	// Handler is the handler's name in the catalog; empty: none was reached.
	Handler string `json:"handler" show:"Handler"`
	// Attempt is the number of the event's attempt; 0: it would not be one.
	Attempt int `json:"attempt" show:"Attempt"`
	End
	// Tries is how often the handler was called: again after each conflict with stored data.
	Tries  int            `json:"tries"`
	Writes []Change       `json:"writes" show:"Writes"`
	Emits  []Emission     `json:"emits" show:"Emits"`
	Calls  []handler.Call `json:"calls" show:"Calls"`
}

// Tried says which message was tried, and which event it belongs to.
type Tried struct {
	EventID     string `json:"event_id" show:"Event"`
	Queue       string `json:"queue" show:"Queue"`
	Tenant      string `json:"tenant" show:"Tenant"`
	EventType   string `json:"event_type" show:"Type"`
	OrderingKey string `json:"ordering_key" show:"Ordering key"`
	From        From   `json:"from,omitzero" show:"Kept as"`
}

// End says what would become of the message.
type End struct {
	Outcome retry.Outcome `json:"outcome" show:"Would be"`
	Status  int           `json:"status" show:"Answer"` // the class of the answer
	// Reason is the code of a failure, or says why there is nothing to do; Result is the effect's code.
	Reason string `json:"reason" show:"Reason"`
	Detail string `json:"detail,omitempty" show:"Detail"`
	Result string `json:"result" show:"Result"`
	// Ref is the id of what the event would make, or has made, such as an entry of the ledger.
	Ref string `json:"ref,omitempty" show:"Makes"`
}

// Would says in a few words what would become of the message.
func (t Trial) Would() string {
	text := string(t.Outcome)
	if t.Outcome == Calls {
		text = "decided by the service that is called"
	}
	if t.Reason != "" {
		text += fmt.Sprintf(" (%d %s)", t.Status, t.Reason)
	}
	return strings.TrimSuffix(text+": "+t.Result, ": ")
}

// Notes returns Would as a sentence.
func (t Trial) Notes() []string { return []string{"It would be " + t.Would() + "."} }
