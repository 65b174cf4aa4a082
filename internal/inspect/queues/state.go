package queues

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"billhook/internal/pipeline/pause"
)

// QueueState says in a word how a queue stands.
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

var states = []QueueState{PauseFailed, Alerting, BreakerOpen, Failing, Backlogged, OffWaiting, IsPaused, Working, Off}

// Compare is negative where s is worse than another state.
func (s QueueState) Compare(other QueueState) int {
	return cmp.Compare(slices.Index(states, s), slices.Index(states, other))
}

// Alerts reports whether the queue needs somebody.
func (q Queue) Alerts() bool {
	return q.State.Compare(IsPaused) < 0
}

// Runbook says more about what to do, where it stands in a state that needs somebody; else it is empty.
func (q Queue) Runbook() string {
	book := map[QueueState]string{
		PauseFailed: "waiting.md#pause-undone", Alerting: "dead-letters.md", BreakerOpen: "push-failures.md", Failing: "push-failures.md",
		Backlogged: "waiting.md#backlog", OffWaiting: "waiting.md#kept-backlog",
	}[q.State]
	if book == "" {
		return ""
	}
	return "docs/runbooks/" + book
}

// failingFrom is the share of failed attempts, of a hundred, from which a queue is called failing.
const failingFrom = 10

// Stands is the state of a queue and its cause.
func (q Queue) Stands() (worst QueueState, cause string) {
	var causes []string
	is := func(state QueueState, holds bool, why func() string) {
		if !holds {
			return
		}
		if worst == "" {
			worst = state
		}
		if text := why(); text != "" {
			causes = append(causes, text)
		}
	}
	d, waits := q.DeadLetters, q.Waiting.inBroker()
	is(PauseFailed, q.Paused != nil && q.Paused.Subscription != pause.Paused && q.Paused.Subscription != pause.Unknown, func() string {
		return "its subscription " + q.Paused.Subscription.Words()
	})
	is(Alerting, d.Alert, func() string {
		longest := ""
		if d.OldestAlertSeconds > 0 {
			longest = " or " + d.OldestAlertSeconds.String()
		}
		return fmt.Sprintf("dead letters: %s, the oldest since %s; alert over %d%s", d.Count, moment(d.OldestAt), d.AlertAbove, longest)
	})
	is(BreakerOpen, len(q.Breakers) > 0, func() string {
		b := q.Breakers[0]
		return fmt.Sprintf("the breaker of target %s is %s in instance %s since %s", b.Target, strings.ReplaceAll(b.State, "_", "-"), b.Instance, moment(b.Since))
	})
	is(Failing, q.LastHour.FailurePercent >= failingFrom, func() string {
		return fmt.Sprintf("%d %% of the attempts failed in the last hour", q.LastHour.FailurePercent)
	})
	is(Backlogged, q.Enabled && q.Backlog != nil && q.Backlog.AlertAbove > 0 && q.Backlog.Messages > int64(q.Backlog.AlertAbove), func() string {
		return fmt.Sprintf("%d messages are in the broker; alert over %d", q.Backlog.Messages, q.Backlog.AlertAbove)
	})
	is(OffWaiting, q.Kept != nil && waits > 0, func() string { return q.Kept.words(waits) })
	is(IsPaused, q.Paused != nil, func() string {
		return fmt.Sprintf("paused since %s by %s: %s", moment(q.Paused.At), q.Paused.Who, q.Paused.Why)
	})
	is(Off, !q.Enabled, func() string {
		if q.Kept != nil && waits == 0 {
			return "it does not run and keeps its subscription, in which nothing waits"
		}
		return ""
	})
	is(Working, true, func() string { return "" })
	return worst, strings.Join(causes, "; ")
}

func (k Kept) words(waits int64) string {
	until := "which keeps a message for " + k.RetentionSeconds.String()
	if !k.DeletedAt.IsZero() {
		until = "which deletes the oldest at " + moment(k.DeletedAt)
	}
	return fmt.Sprintf("it does not run and keeps what waits for it: %d in the broker, %s; it is handled once the queue runs again", waits, until)
}
