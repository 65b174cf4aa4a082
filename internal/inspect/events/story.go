package events

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"billhook/internal/console"
	"billhook/internal/contract/money"
	"billhook/internal/dedupe"
)

// Alerts reports whether the event was given up.
func (l Line) Alerts() bool { return l.Status == dedupe.DeadLettered }

// Happened says in one sentence how far the event is.
func (e Event) Happened() string {
	attempts := counted(e.Attempts, "attempt")
	switch e.Status {
	case dedupe.Completed:
		return "It is processed" + at(e.ProcessedAt) + ", after " + attempts + because(e.Result) + "."
	case dedupe.Failed:
		again := ". It is tried again" + at(e.NextRetryAt) + "."
		return "It has failed, after " + attempts + because(e.Reason) + again
	case dedupe.Processing:
		return "A worker has it in hand, at attempt " + fmt.Sprint(e.Attempts) + "."
	case dedupe.DeadLettered:
		return "It was given up after " + attempts + because(e.Reason) + "."
	default:
		return "It waits for its first attempt."
	}
}

// Notes say how far the event is, and what to do.
func (e Event) Notes() []string {
	notes := []string{e.Happened()}
	for _, s := range e.Places {
		if do := s.todo(); do != "" {
			notes = append(notes, do)
		}
	}
	if e.More {
		const lists = "billhook events ls --event-id %[1]s; billhook dlq ls %[2]s --event-id %[1]s --state all"
		notes = append(notes, "There is more of it than is shown: "+fmt.Sprintf(lists, e.EventID, e.Queue))
	}
	return notes
}

func (s Spot) todo() string {
	switch s.Place {
	case PlaceDeadLetter:
		dead := strings.Join(s.DeadLetters, " ")
		return "Replay its dead letter, discard it or complete it by hand: billhook dlq show " + dead
	case PlaceApproval:
		approve := "billhook operations approve " + s.Operation + " --why <reason>"
		return "Have a second person approve the operation: " + approve
	case PlacePaused:
		return "Resume the queue when its messages may go on: billhook queues resume " + s.Queue + " --why <reason>"
	default:
		return ""
	}
}

func (s Spot) String() string {
	deadLetters := strings.Join(s.DeadLetters, ", ")
	switch s.Place {
	case PlaceBroker:
		return "in the broker, for its next delivery" + at(s.Until)
	case PlaceLease:
		then := "; if the worker is gone, the next delivery or a sweep goes on"
		return "with a worker" + since(s.Since) + until(s.Until) + then
	case PlaceDelayed:
		text := "kept" + until(s.Until)
		if s.OrderingKey != "" {
			text += ", in the line of ordering key " + s.OrderingKey
		}
		if s.Behind != "" {
			text += " behind event " + s.Behind
		}
		return text
	case PlaceOutbox:
		return "in the outbox" + since(s.Since) + ", to be published to " + s.Topic
	case PlaceDeadLetterTopic:
		return "on the dead-letter topic" + since(s.Since) + ", not yet kept"
	case PlaceDeadLetter:
		return "for a person, as dead letter " + deadLetters + until(s.Until)
	case PlaceApproval:
		requested := ": operation " + s.Operation + ", requested by " + s.Who + ": " + s.Why
		return "for a second person" + since(s.Since) + requested
	case PlaceReplay:
		return "for the end of the replay of " + deadLetters + ", operation " + s.Operation
	case PlacePaused:
		return "queue " + s.Queue + " is paused" + since(s.Since) + " by " + s.Who + ": " + s.Why
	default:
		return string(s.Place)
	}
}

func (e Emission) String() string {
	text := fmt.Sprintf("%s to %s, event %s: ", e.EventType, e.Queue, e.EventID)
	switch e.State {
	case EmissionWaiting:
		return text + "waits in the outbox"
	case EmissionDelayed:
		return text + "kept" + until(e.Until)
	case EmissionFailed:
		return text + "failed" + because(e.Reason) + ", to be tried again" + at(e.Until)
	default:
		return text + strings.ReplaceAll(string(e.State), "_", "-") + because(e.Reason)
	}
}

func (s Step) String() string { return console.Stamp(s.At) + "  " + s.Happened() }

// Happened says what happened.
func (s Step) Happened() string {
	by := " by " + s.Who + ", operation " + s.Operation + ": " + s.Why
	switch s.What {
	case StepReceived:
		return "received and verified by the webhook service"
	case StepKept:
		if s.Place == PlaceOutbox {
			return "put into the outbox"
		}
		return "kept for later"
	case StepSilent:
		deliveries := fmt.Sprintf("delivery %d", s.Delivery)
		if s.Last > s.Delivery {
			deliveries = fmt.Sprintf("deliveries %d to %d", s.Delivery, s.Last)
		}
		const why = " left no record: the worker died, was cut off, or refused it before an attempt"
		return deliveries + " of message " + s.MessageID + why
	case StepTried:
		return s.tried()
	case StepRecorded:
		return "recorded first; there is no log of its " + counted(s.Attempt, "attempt")
	case StepConflicted:
		return "message " + s.MessageID + " came under the same id" + because(s.Reason)
	case StepDied:
		return "dead-lettered as " + s.DeadLetter + because(s.Reason)
	case StepAskedFor:
		return "a second person was requested" + by
	case StepReplayed:
		return "replayed" + by
	case StepDiscarded:
		return "discarded" + by
	case StepCompleted:
		return "completed by hand" + by
	case StepReplayEnded:
		return "the replay ended: " + string(s.Outcome)
	case StepCorrected:
		return "corrected: message " + s.MessageID + " took its place"
	case StepPaused:
		return "the queue was paused by " + s.Who + ": " + s.Why
	default: // published, processed
		return string(s.What)
	}
}

func (s Step) tried() string {
	text := fmt.Sprintf("attempt %d", s.Attempt)
	if s.Delivery > 0 {
		text += fmt.Sprintf(", delivery %d", s.Delivery)
	}
	text += ", instance " + cmp.Or(s.Instance, "unknown")
	if s.End.IsZero() {
		return text + ": no end yet, or its worker died or was cut off"
	}
	took := s.End.Sub(s.At).Round(time.Millisecond).String()
	text += ": " + strings.TrimSpace(string(s.Outcome)+" "+s.Reason) + " after " + took
	if s.Trace != "" {
		text += ", trace " + s.Trace
	}
	if !s.NextAt.IsZero() {
		text += "; the next was due" + at(s.NextAt)
	}
	return text
}

func (p Posted) String() string {
	sides := map[bool][]string{}
	for _, line := range p.Lines {
		moved := line.Account + " " + money.Text(line.Debit+line.Credit, line.Currency) + " " + line.Currency
		sides[line.Debit > 0] = append(sides[line.Debit > 0], moved)
	}
	debits, credits := strings.Join(sides[true], ", "), strings.Join(sides[false], ", ")
	return fmt.Sprintf("%s %s: debit %s; credit %s", p.Kind, p.ID, debits, credits)
}

func (c Conflict) String() string {
	return fmt.Sprintf("%s%s, message %s, %s", c.Status, because(c.Reason), c.MessageID, c.PayloadHash)
}

func counted(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func because(code string) string { return behind(": ", code) }

func at(t time.Time) string { return behind(" at ", console.Stamp(t)) }

func since(t time.Time) string { return behind(" since ", console.Stamp(t)) }

func until(t time.Time) string { return behind(" until ", console.Stamp(t)) }

func behind(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}
