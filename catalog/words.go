package catalog

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"billhook/internal/retry"
)

// Words returns the queue's declaration as sentences, one for each of its rules.
func (q Queue) Words() (words []string) {
	add := func(when bool, format string, args ...any) {
		if when {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	taken := fmt.Sprintf("It takes %s messages of topic %s", q.Contract, q.Topic())
	for i, key := range q.Bindings {
		taken += []string{" with the routing keys ", ", "}[min(i, 1)] + string(key)
	}
	add(true, "%s.", taken)
	add(!q.Ordered(), "Messages are handled in any order.")
	key := strings.Join(q.OrderingKey, ", else the ")
	add(q.Ordered(), "Messages of one key are handled in order. The key is the %s.", key)
	add(true, "%s", attemptWords(q.MaxAttempts, q.Backoff))
	add(q.ShortWaits, "The catalog declares longer waits: this run has shortened them.")
	add(true,
		"An attempt may take %s. If a worker dies, the broker delivers again after %s, and another attempt "+
			"may begin after %s.", span(q.HandlerTimeout), span(q.AckDeadline), span(q.Lease))
	add(q.MessageTTL > 0, "A message that is older than %s is dropped.", span(q.MessageTTL))
	add(true, "The broker keeps a message that nobody has taken for %s.", span(q.MessageRetention))
	id := strings.ReplaceAll(string(q.DedupeBy), "_", " ")
	add(q.RememberFor > 0, "An event is remembered for %s, by its %s.", span(q.RememberFor), id)
	add(!q.Remembers(), "No event is remembered: a message that comes twice is handled twice.")
	d := q.DeadLetter
	add(d.Drop, "A message that cannot be handled is dropped and counted: the queue keeps no dead letters.")
	add(!d.Drop, "A message that cannot be handled becomes a dead letter on %s, and is kept there for %s.",
		d.Topic, span(d.Retention))
	add(!d.Drop && d.OldestAlert == 0, "An alert fires above %d open dead letters.", d.AlertAbove)
	add(!d.Drop && d.OldestAlert > 0, "An alert fires above %d open dead letters, or if one is older than %s.",
		d.AlertAbove, span(d.OldestAlert))
	add(q.OnCorrected == Accept,
		"Another payload under the id of a dead letter corrects it, and the same one sent again is tried again.")
	add(q.FourEyes, "A change of its dead letters takes two people.")
	add(true, "It is served by pool %s, on at most %d instances, each with up to %d messages at once.", q.Pool,
		q.MaxInstances, q.Concurrency)
	add(q.MinInstances > 0,
		"At least %d should run: a deployment keeps them if worker.keeps is catalog, else one.",
		q.MinInstances)
	add(q.Batch.Size > 1, "One call of its handler takes up to %d messages.", q.Batch.Size)
	add(q.Charges(), "A producer signs the path with the message.")
	add(q.Rate.PerSecond > 0, "The webhook service takes up to %d messages a second for it.", q.Rate.PerSecond)
	add(q.Rate.PerUser > 0, "It takes up to %d messages a second of one user.", q.Rate.PerUser)
	full := map[OnFull]string{RefuseMore: "the webhook service refuses more", AlertAlone: "an alert fires"}
	add(q.MaxBacklog.Messages > 0, "If more than %d messages wait in the broker, %s.", q.MaxBacklog.Messages,
		full[q.MaxBacklog.OnFull])
	return words
}

func attemptWords(attempts int, wait retry.Policy) string {
	if attempts == 1 {
		return "A message is tried once."
	}
	text := fmt.Sprintf("A message is tried up to %d times", attempts)
	var waits []string
	for failed := 1; failed < attempts; failed++ {
		waits = append(waits, span(wait.Wait(failed, 0)))
	}
	if len(waits) > 6 {
		waits = slices.Concat(waits[:5], []string{"and so on"})
	}
	text += ", after waits of " + strings.Join(waits, ", ")
	if wait.Jitter > 0 {
		text += ", and up to " + span(wait.Jitter) + " more by chance"
	}
	return text + "."
}

// span is a duration for people: 90s, 10m, 36h, 7d.
func span(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if d >= unit.of && d%unit.of == 0 {
			return fmt.Sprint(int64(d/unit.of), unit.name)
		}
	}
	if d == 0 {
		return "0s"
	}
	return d.String()
}
