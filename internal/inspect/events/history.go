package events

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// What is the kind of a step in an event's history.
type What string

// The steps. Step.Happened describes each.
const (
	StepReceived  What = "received"
	StepPublished What = "published"
	StepKept      What = "kept"
	StepSilent    What = "silent"
	StepTried     What = "attempt" // without an End it is under way, or its end is not known
	// StepRecorded and StepDone are the first and the last write of a record without a log.
	StepRecorded    What = "recorded"
	StepDone        What = "processed"
	StepConflicted  What = "conflict"
	StepDied        What = "dead_lettered"
	StepAskedFor    What = "approval_asked"
	StepReplayed    What = "replay"
	StepDiscarded   What = "discard"
	StepCompleted   What = "complete"
	StepReplayEnded What = "replay_ended" // and not in another death
	StepCorrected   What = "corrected"
	StepPaused      What = "paused"
)

// Step is one thing that happened to an event.
type Step struct {
	At       time.Time `json:"at"`
	What     What      `json:"what"`
	End      time.Time `json:"end,omitzero"`
	Attempt  int64     `json:"attempt,omitzero"`
	Instance string    `json:"instance,omitempty"`
	NextAt   time.Time `json:"next_at,omitzero"`
	// Delivery is the broker's number of the delivery. For StepSilent it is the first, and Last the last.
	Delivery  int64         `json:"delivery,omitzero"`
	Last      int64         `json:"last_delivery,omitzero"`
	MessageID string        `json:"message_id,omitempty"`
	Outcome   retry.Outcome `json:"outcome,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	Place     Where         `json:"place,omitempty"`
	// Trace is the id of the trace of an attempt, and TraceLink an address that shows it.
	Trace      string `json:"trace,omitempty"`
	TraceLink  string `json:"trace_link,omitempty"`
	DeadLetter string `json:"dead_letter,omitempty"`
	Operation  string `json:"operation,omitempty"`
	Who        string `json:"who,omitempty"`
	Why        string `json:"why,omitempty"`
}

func history(e *Event, record dedupe.Record, own []lane.Kept) {
	steps := attempts(e.Log)
	if at := received(record, own, e.DeadLetters); !at.IsZero() {
		steps = append(steps, Step{At: at, What: StepReceived})
	}
	if !record.PublishedAt.IsZero() {
		steps = append(steps, Step{At: record.PublishedAt, What: StepPublished})
	}
	if record.Status != "" && len(e.Log) == 0 {
		steps = append(steps, Step{At: record.CreatedAt, What: StepRecorded, Attempt: record.Attempts})
		if record.Status == dedupe.Completed {
			steps = append(steps, Step{At: record.ProcessedAt, What: StepDone})
		}
	}
	for _, kept := range own {
		steps = append(steps, Step{At: kept.CreatedAt, What: StepKept, Place: placeOf(kept)})
	}
	for _, c := range e.Conflicts {
		steps = append(steps, Step{At: c.at, What: StepConflicted, MessageID: c.MessageID, Reason: c.Reason})
	}
	for i, deadLetter := range e.DeadLetters {
		if !deadLetter.FirstPublished.IsZero() && record.PublishedAt.IsZero() && i == 0 {
			steps = append(steps, Step{At: deadLetter.FirstPublished, What: StepPublished})
		}
		steps = append(steps, dealings(deadLetter)...)
	}
	for _, spot := range e.Places {
		switch spot.Place {
		case PlaceApproval:
			step := Step{
				At: spot.Since, What: StepAskedFor, DeadLetter: spot.DeadLetters[0], Operation: spot.Operation,
			}
			step.Who, step.Why = spot.Who, spot.Why
			steps = append(steps, step)
		case PlacePaused:
			steps = append(steps, Step{At: spot.Since, What: StepPaused, Who: spot.Who, Why: spot.Why})
		default:
		}
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return a.At.Compare(b.At) })
	e.History = append(e.History, steps...)
}

// received returns when the webhook service received the event, from its record or a message of it; zero:
// unknown.
func received(record dedupe.Record, own []lane.Kept, deadLetters []deadletter.Item) time.Time {
	at := record.ReceivedAt
	for _, kept := range own {
		at = cmp.Or(at, contract.TimeOf(kept.Message.Attributes[contract.AttrReceived]))
	}
	for _, deadLetter := range deadLetters {
		at = cmp.Or(at, contract.TimeOf(deadLetter.Attributes[contract.AttrReceived]))
	}
	return at
}

func dealings(deadLetter deadletter.Item) []Step {
	steps := []Step{
		{At: deadLetter.Died(), What: StepDied, Reason: deadLetter.Reason, MessageID: deadLetter.SourceMessageID},
	}
	for _, act := range deadLetter.History {
		steps = append(steps,
			Step{At: act.At, What: What(act.Kind), Operation: act.Operation, Who: act.Who, Why: act.Why})
	}
	switch deadLetter.State {
	case deadletter.Processed:
		steps = append(steps, Step{At: deadLetter.Closed, What: StepReplayEnded, Outcome: deadLetter.Outcome})
	case deadletter.Corrected:
		steps = append(steps, Step{At: deadLetter.Closed, What: StepCorrected, MessageID: deadLetter.CorrectedBy})
	case deadletter.Open, deadletter.Replayed, deadletter.Discarded, deadletter.Completed:
	}
	for i := range steps {
		steps[i].DeadLetter = deadLetter.ID
	}
	return steps
}

func attempts(log []dedupe.Attempt) []Step {
	var steps []Step
	last := map[string]int64{} // the last delivery of each message
	for _, a := range log {
		if first := last[a.MessageID] + 1; a.Delivery > first {
			silent := Step{
				At: a.Begun, What: StepSilent, Delivery: first, Last: a.Delivery - 1, MessageID: a.MessageID,
			}
			steps = append(steps, silent)
		}
		last[a.MessageID] = max(last[a.MessageID], a.Delivery)
		steps = append(steps, Step{
			At: a.Begun, What: StepTried, End: a.Ended, Attempt: a.Number, Instance: a.Instance, NextAt: a.Next,
			Delivery: a.Delivery, MessageID: a.MessageID, Outcome: a.Outcome, Reason: a.Reason, Trace: a.Trace,
		})
	}
	return steps
}

// Posted is an entry of the books that an event's effect made, or found to exist.
type Posted struct{ journal.Entry }

func (a Reads) effect(ctx context.Context, e *Event, record dedupe.Record) error {
	if record.Made() == "" {
		return nil
	}
	doc, err := store.Find(ctx, a.Store, ledger.Key(record.Made()))
	if err != nil || doc.Version == 0 { // what it made is not an entry
		return err
	}
	if entry := journal.ReadEntry(doc); entry.Tenant == e.Tenant {
		e.Effect = append(e.Effect, Posted{entry})
	}
	return nil
}

// Links are templates of addresses where other systems show more about an event. Empty: there is none.
type Links struct {
	// Log shows the log lines of an event: {event_id} stands for its id, and {since} for the time of its first
	// step.
	Log string
	// Trace shows a trace: {trace} stands for its id.
	Trace string
}

func link(template string, places ...string) string {
	for i := 1; i < len(places); i += 2 {
		places[i] = url.QueryEscape(places[i])
	}
	return strings.NewReplacer(places...).Replace(template)
}

func (l Links) links(e *Event) {
	if l.Log != "" && len(e.History) > 0 {
		since := e.History[0].At.UTC().Truncate(time.Minute).Format(time.RFC3339)
		e.LogLink = link(l.Log, "{event_id}", e.EventID, "{since}", since)
	}
	for i, step := range e.History {
		if l.Trace != "" && step.Trace != "" {
			e.History[i].TraceLink = link(l.Trace, "{trace}", step.Trace)
		}
	}
}
