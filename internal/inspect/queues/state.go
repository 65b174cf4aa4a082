package queues

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"billhook/internal/console"
	"billhook/internal/pipeline/pause"
)

// QueueState is the state of a queue, in a word.
type QueueState string

// The states, the worst first.
const (
	PauseFailed QueueState = "pause_failed" // it is recorded as paused, and its subscription does not follow
	Alerting    QueueState = "alert"        // too many dead letters are open, or one for too long
	BreakerOpen QueueState = "breaker_open" // a target failed too often, and is left alone for a while
	Failing     QueueState = "failing"      // at least a tenth of its attempts of the last hour failed
	Backlogged  QueueState = "backlog"      // more messages wait in the broker than backlog_alert_above
	OffWaiting  QueueState = "off_waiting"  // it does not run, and messages wait for it
	IsPaused    QueueState = "paused"       // a person has paused it
	Working     QueueState = "ok"           // it runs
	Off         QueueState = "off"          // it does not run
)

var states = []QueueState{
	PauseFailed, Alerting, BreakerOpen, Failing, Backlogged, OffWaiting, IsPaused, Working, Off,
}

// Compare returns a negative number if s is worse than other.
func (s QueueState) Compare(other QueueState) int {
	return cmp.Compare(slices.Index(states, s), slices.Index(states, other))
}

// Alerts reports whether the queue needs a person.
func (q Queue) Alerts() bool {
	return q.State.Compare(IsPaused) < 0
}

// Runbook returns the page about a state that needs a person; empty for any other state.
func (q Queue) Runbook() string {
	book := map[QueueState]string{
		PauseFailed: "waiting.md#pause-undone", Alerting: "dead-letters.md", BreakerOpen: "push-failures.md",
		Failing:    "push-failures.md",
		Backlogged: "waiting.md#backlog", OffWaiting: "waiting.md#kept-backlog",
	}[q.State]
	if book == "" {
		return ""
	}
	return "docs/runbooks/" + book
}

// failingFrom is the percentage of failed attempts from which a queue is Failing.
const failingFrom = 10

// Stands returns the worst state of the queue, and the causes of all its states.
func (q Queue) Stands() (worst QueueState, cause string) {
	var causes []string
	stands := func(state QueueState, cause string) {
		worst, causes = cmp.Or(worst, state), append(causes, cause)
	}
	d, waits := q.DeadLetters, q.Waiting.inBroker()
	if p := q.Paused; p != nil && p.Subscription != pause.Paused && p.Subscription != pause.Unknown {
		stands(PauseFailed, "its subscription "+p.Subscription.Words())
	}
	if d.Alert {
		longest := ""
		if d.OldestAlertSeconds > 0 {
			longest = " or " + d.OldestAlertSeconds.String()
		}
		stands(Alerting, fmt.Sprintf("dead letters: %s, the oldest since %s; alert over %d%s",
			d.Count, console.Stamp(d.OldestAt), d.AlertAbove, longest))
	}
	if len(q.Breakers) > 0 {
		b := q.Breakers[0]
		stands(BreakerOpen, fmt.Sprintf("the breaker of target %s is %s in instance %s since %s",
			b.Target, strings.ReplaceAll(b.State, "_", "-"), b.Instance, console.Stamp(b.Since)))
	}
	if failed := q.LastHour.FailurePercent; failed >= failingFrom {
		stands(Failing, fmt.Sprintf("%d %% of the attempts failed in the last hour", failed))
	}
	if b := q.Backlog; q.Enabled && b != nil && b.AlertAbove > 0 && b.Messages > int64(b.AlertAbove) {
		stands(Backlogged, fmt.Sprintf("%d messages are in the broker; alert over %d", b.Messages, b.AlertAbove))
	}
	if q.Kept != nil && waits > 0 {
		stands(OffWaiting, q.Kept.words(waits))
	}
	if p := q.Paused; p != nil {
		stands(IsPaused, fmt.Sprintf("paused since %s by %s: %s", console.Stamp(p.At), p.Who, p.Why))
	}
	switch {
	case q.Kept != nil && waits == 0:
		stands(Off, "it does not run and keeps its subscription, in which nothing waits")
	case q.Enabled:
		worst = cmp.Or(worst, Working)
	default:
		worst = cmp.Or(worst, Off)
	}
	return worst, strings.Join(causes, "; ")
}

func (k Kept) words(waits int64) string {
	until := "which keeps a message for " + k.RetentionSeconds.String()
	if !k.DeletedAt.IsZero() {
		until = "which deletes the oldest at " + console.Stamp(k.DeletedAt)
	}
	return fmt.Sprintf("it does not run and keeps what waits for it: %d in the broker, %s; it is handled once "+
		"the queue runs again", waits, until)
}
