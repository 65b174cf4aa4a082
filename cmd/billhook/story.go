package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/apps/ledger"
	"billhook/internal/console/ops"
	"billhook/internal/platform/audit"
)

func (p *program) printEvent(e ops.Event) {
	row := func(name, value string) {
		if value != "" {
			p.printf("  %-15s %s\n", name, value)
		}
	}
	p.printf("%s  %s\n", e.EventID, e.Status)
	row("queue", e.Queue)
	row("type", e.EventType)
	row("result", e.Result)
	row("made", e.Ref)
	row("reason", e.Reason)
	p.printf("  %-15s %d\n", "attempts", e.Attempts)
	if e.IdempotencyKey != e.EventID {
		row("idempotency key", e.IdempotencyKey)
	}
	row("ordering key", e.OrderingKey)
	row("message", e.MessageID)
	row("payload", e.PayloadHash)
	row("created", when(e.CreatedAt))
	row("processed", when(e.ProcessedAt))
	for _, spot := range e.Places {
		row("waits", waitsAt(spot))
	}
	for _, one := range e.Emissions {
		row("emitted", emission(one))
	}
	if more := len(e.Emitted) - len(e.Emissions); more > 0 {
		row("emitted", fmt.Sprintf("%d more: see --json", more))
	}
	for _, entry := range e.Effect {
		row("moved", moved(entry))
		for _, b := range entry.Balances {
			row("", hadBalance(b))
		}
	}
	row("log", e.LogLink)
	for _, c := range e.Conflicts {
		row("conflict", fmt.Sprintf("%s %s, message %s, %s", c.Status, c.Reason, c.MessageID, c.PayloadHash))
	}
	for _, d := range e.DeadLetters {
		row("dead letter", strings.TrimSpace(fmt.Sprintf("%s  %s: %d %s, after %d attempts, message %s %s", d.ID, d.State, d.Status, d.Reason, d.Attempts, d.SourceMessageID, d.Detail)))
	}
	if len(e.History) == 0 {
		return
	}
	rows := make([][]string, len(e.History))
	for i, step := range e.History {
		rows[i] = []string{when(step.At), happened(step)}
	}
	p.printf("\n")
	p.table([]string{"WHEN", "WHAT HAPPENED"}, rows)
}

func moved(entry ops.Posted) string {
	sides := map[bool][]string{}
	for _, line := range entry.Lines {
		sides[line.Debit > 0] = append(sides[line.Debit > 0], fmt.Sprintf("%s %s %s", line.Account, decimal(line.Debit+line.Credit, line.Currency), line.Currency))
	}
	return fmt.Sprintf("%s %s: debit %s; credit %s", entry.Kind, entry.ID, strings.Join(sides[true], ", "), strings.Join(sides[false], ", "))
}

func hadBalance(b ops.Balance) string {
	switch {
	case b.Before != nil && b.After != nil && b.Seal > 0:
		return fmt.Sprintf("%s had %s before seal %d, and %s %s after it", b.Account, decimal(*b.Before, b.Currency), b.Seal, decimal(*b.After, b.Currency), b.Currency)
	case b.Before != nil && b.After != nil:
		return fmt.Sprintf("%s had %s before, and %s %s after", b.Account, decimal(*b.Before, b.Currency), decimal(*b.After, b.Currency), b.Currency)
	case strings.HasPrefix(b.Account, ledger.Points+":"):
		return b.Account + ": too much has moved on it, before and since, for its balance then to be known"
	}
	return b.Account + ": its balances are known once the entry is sealed"
}

func (p *program) printPayload(payload ops.Payload) {
	for _, item := range payload.Items {
		kept := "kept in the " + strings.ReplaceAll(string(item.Place), "_", " ")
		if item.DeadLetter != "" {
			kept += " " + item.DeadLetter + ", " + string(item.State)
		}
		p.printf("%s  %s  %s\n", payload.EventID, payload.Queue, kept)
		for _, name := range slices.Sorted(maps.Keys(item.Attributes)) {
			p.printf("  %-28s %s\n", name, item.Attributes[name])
		}
		p.printData(item.Data, item.Base64)
	}
	if payload.More {
		p.printf("More is kept than is shown.\n")
	}
}

func (p *program) printData(data jsontext.Value, raw []byte) {
	if data == nil {
		p.printf("%s\n", own(strconv.Quote(string(raw))))
		return
	}
	_ = data.Indent(jsontext.WithIndent("  ")) // else it is shown as it came
	for line := range strings.Lines(string(data)) {
		p.printf("%s\n", own(audit.EscapeJSON(strings.TrimRight(line, "\r\n"))))
	}
}

func until(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return " until " + when(at)
}

func waitsAt(s ops.Spot) string {
	letters, by := strings.Join(s.DeadLetters, ", "), s.Who+": "+s.Why
	switch s.Place {
	case ops.PlaceBroker:
		if s.Until.IsZero() {
			return "in the broker, for its next delivery"
		}
		return "in the broker; its next attempt is due at " + when(s.Until)
	case ops.PlaceLease:
		return "with a worker since " + when(s.Since) + ", whose lease ends at " + when(s.Until) + "; if the worker is gone, the next delivery or a sweep goes on"
	case ops.PlaceDelayed:
		text := "kept" + until(s.Until)
		if s.OrderingKey != "" {
			text += ", in the line of ordering key " + s.OrderingKey
		}
		if s.Behind != "" {
			text += " behind event " + s.Behind
		}
		return text
	case ops.PlaceOutbox:
		return "in the outbox since " + when(s.Since) + ", to be published to " + s.Topic
	case ops.PlaceDeadLetterTopic:
		return "on the dead-letter topic since " + when(s.Since) + ", not yet kept"
	case ops.PlaceDeadLetter:
		return "for a person, as dead letter " + letters + until(s.Until)
	case ops.PlaceApproval:
		return "for a second person: bin/billhook dlq approve " + s.Operation + " --why \"...\", asked for by " + by
	case ops.PlaceReplay:
		return "for the end of the replay of " + letters + ", operation " + s.Operation
	case ops.PlacePaused:
		return "queue " + s.Queue + " is paused since " + when(s.Since) + " by " + by
	}
	return string(s.Place)
}

func emission(e ops.Emission) string {
	text := fmt.Sprintf("%s to %s, event %s: ", e.EventType, e.Queue, e.EventID)
	switch e.State {
	case ops.EmissionWaiting:
		return text + "waiting in the outbox"
	case ops.EmissionDelayed:
		return text + "kept" + until(e.Until)
	case ops.EmissionPublished:
		return text + "published; it is in the broker, or with a consumer that keeps no record of it"
	case ops.EmissionProcessing:
		return text + "being processed"
	case ops.EmissionFailed:
		return text + "failed with " + e.Reason + ", to be tried again" + after(e.Until)
	case ops.EmissionDeadLettered:
		return text + "dead-lettered: " + e.Reason
	case ops.EmissionProcessed:
	}
	return text + string(e.State)
}

func after(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return " at " + when(at)
}

func happened(s ops.Step) string {
	switch s.What {
	case ops.StepReceived:
		return "received by the door"
	case ops.StepPublished:
		return "published"
	case ops.StepKept:
		if s.Place == ops.PlaceOutbox {
			return "put into the outbox"
		}
		return "kept for later"
	case ops.StepSilent:
		deliveries := fmt.Sprintf("delivery %d", s.Delivery)
		if s.Last > s.Delivery {
			deliveries = fmt.Sprintf("deliveries %d to %d", s.Delivery, s.Last)
		}
		return deliveries + " of message " + s.MessageID + ": no word; the worker died, was cut off, or turned it away before an attempt"
	case ops.StepTried:
		return tried(s)
	case ops.StepRecorded:
		return fmt.Sprintf("recorded first; %d attempts since, of which there is no log", s.Attempt)
	case ops.StepDone:
		return "processed"
	case ops.StepConflicted:
		return "message " + s.MessageID + " came under the same id: " + s.Reason
	case ops.StepDied:
		return "dead-lettered: " + s.Reason + ", message " + s.MessageID
	case ops.StepAskedFor:
		return "operation " + s.Operation + " waits for a second person; asked for by " + s.Who + ": " + s.Why
	case ops.StepReplayed:
		return "replayed by " + s.Who + ", operation " + s.Operation + ": " + s.Why
	case ops.StepDiscarded:
		return "discarded by " + s.Who + ", operation " + s.Operation + ": " + s.Why
	case ops.StepCompleted:
		return "completed by hand by " + s.Who + ", operation " + s.Operation + ": " + s.Why
	case ops.StepReplayEnded:
		return "the replay ended: " + string(s.Outcome)
	case ops.StepCorrected:
		return "corrected: message " + s.MessageID + " took its place"
	case ops.StepPaused:
		return "the queue was paused by " + s.Who + ": " + s.Why
	}
	return string(s.What)
}

func tried(s ops.Step) string {
	text := fmt.Sprintf("attempt %d", s.Attempt)
	if s.Delivery > 0 {
		text += fmt.Sprintf(", delivery %d", s.Delivery)
	}
	text += ", instance " + cmp.Or(s.Instance, "unknown")
	if s.End.IsZero() {
		return text + ": no end; it is under way, or its worker died or was cut off"
	}
	text += ": " + string(s.Outcome)
	if s.Reason != "" {
		text += " " + s.Reason
	}
	text += " after " + s.End.Sub(s.At).Round(time.Millisecond).String()
	if s.Trace != "" {
		text += ", trace " + s.Trace
	}
	if !s.NextAt.IsZero() {
		text += "; the next was due at " + when(s.NextAt)
	}
	return text
}

func unknownEvent(id string, err error) error {
	var problem *problemError
	if !errors.As(err, &problem) || problem.Code != "event_unknown" {
		return err
	}
	return fmt.Errorf(`%w
What the door and the workers have logged of it:
  gcloud logging read --freshness=7d --order=asc --format='table(timestamp, jsonPayload.message, jsonPayload.queue, jsonPayload.status, jsonPayload.outcome, jsonPayload.reason)' \
    'resource.type="cloud_run_revision" AND jsonPayload.event_id="%s"'
What waits in the broker: bin/billhook queues`, err, id)
}
