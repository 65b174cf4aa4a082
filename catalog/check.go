package catalog

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"billhook/internal/contract/routing"
	"billhook/internal/retry"
)

// Bounds of Pub/Sub, and the requirements' floor: an event is remembered for at least 72 hours.
const (
	minAckDeadline = 10 * time.Second
	maxAckDeadline = 600 * time.Second
	minRetention   = 10 * time.Minute
	maxRetention   = 31 * 24 * time.Hour
	minRemember    = 72 * time.Hour
	// A dead letter that is kept shorter may be gone before anybody looks.
	deadLetterRetention = 14 * 24 * time.Hour
	maxWait             = 24 * time.Hour
	// MaxPoints is the most that one piece of a product is worth.
	MaxPoints = 1_000_000_000
	// Half of what the broker can count, so that its backstop keeps headroom.
	maxAttempts = BrokerMaxDeliveryAttempts / 2
	// Longer between two nacks, and nobody would see one.
	maxBudget = time.Hour
	// Cloud Run's own limits.
	maxConcurrency = 1000
	maxInstances   = 1000
	// What the webhook service counts out in a second, of a queue and of one user.
	maxRate     = 100_000
	maxUserRate = 100
)

var (
	// Of Pub/Sub's 255 characters the longest derived name needs nine: -dlq-hold.
	queueID   = regexp.MustCompile(`^[a-z][a-z0-9-]{2,245}$`)
	alias     = regexp.MustCompile(`^[a-z][a-z0-9_.:-]{0,99}$`)
	pool      = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$`)
	field     = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)
	word      = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,63}$`)
	eventType = regexp.MustCompile(`^[a-z*#][a-z0-9_.*#-]{0,63}$`)
	eventName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)
	// the contract's id: another is never sent
	productID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)
	variable  = regexp.MustCompile(`^WEBHOOK_[A-Z0-9_]{3,56}$`)
)

// forgets reports whether nothing that the queue does needs a record.
func (q Queue) forgets() bool {
	for _, h := range q.Handlers {
		if h.MaxAttempts != 1 || len(h.Emits) > 0 {
			return false
		}
	}
	return !q.Ordered() && q.MaxAttempts == 1 && q.DeadLetter.Drop && q.OnCorrected == Refuse
}

func topicID(id string) bool { return queueID.MatchString(id) && !strings.HasPrefix(id, "goog") }

// requirer records a mistake at a path of a place unless ok.
type requirer func(ok bool, path, what string)

func (r *reader) requirer(place string) requirer {
	return func(ok bool, path, what string) {
		if !ok {
			r.wrong(place, path, what)
		}
	}
}

const (
	aliasRule = "must be at most 100 of a-z, 0-9 and _ . : -, and begin with a letter"
	topicRule = "must be 3 to 246 of a-z, 0-9 and -, begin with a letter, and not with goog"
)

func (r *reader) checkQueue(place string, q Queue, shared []Topic) {
	require := r.requirer(place)
	require(topicID(q.ID), "id", topicRule)
	require(q.Alias == "" || alias.MatchString(q.Alias), "alias", aliasRule)
	require(q.Description != "", "description", "is missing")
	require(q.SharedTopic == "" || slices.ContainsFunc(shared, func(t Topic) bool {
		return t.ID == q.SharedTopic
	}), "topic", "no shared topic has the id "+shown(q.SharedTopic))
	require(q.SharedTopic == "" || len(q.Bindings) > 0, "bindings",
		"a queue on a shared topic needs some; # takes all")
	for i, p := range q.Bindings {
		_, err := routing.Parse(string(p))
		require(err == nil && !slices.Contains(q.Bindings[:i], p), "bindings",
			"must list patterns of words, * and # joined by dots, each once")
	}
	for i, part := range q.OrderingKey {
		require(field.MatchString(part) && !slices.Contains(q.OrderingKey[:i], part), "ordering_key",
			"must list names of fields, each once")
	}
	require(slices.Contains([]string{"high", "normal", "low"}, q.Priority), "priority",
		"must be high, normal or low")
	require(pool.MatchString(q.Pool), "pool",
		"must be at most 40 of a-z, 0-9 and -, begin with a letter, and not end with -")

	require(1 <= q.MaxAttempts && q.MaxAttempts <= maxAttempts, "max_attempts", "must be 1 to 50")
	r.checkBackoff(place, "retry_policy", q.Backoff, q.MaxAttempts)
	require(minAckDeadline <= q.AckDeadline && q.AckDeadline <= maxAckDeadline, "ack_deadline_seconds",
		"must be 10 to 600")
	require(q.HandlerTimeout > 0, "handler_timeout", "must be above 0")
	require(q.HandlerTimeout < q.AckDeadline || q.AckDeadline <= 0, "ack_deadline_seconds",
		"must be above handler_timeout, "+seconds(q.HandlerTimeout))
	require(q.Lease > 0, "lease", "must be above 0")
	require(q.AckDeadline <= q.Lease || q.Lease <= 0, "lease",
		"must be at least ack_deadline_seconds, "+seconds(q.AckDeadline))
	require(minRetention <= q.MessageRetention && q.MessageRetention <= maxRetention,
		"message_retention_duration", "must be 600s to 2678400s")
	require(q.MessageTTL <= q.MessageRetention || q.MessageRetention == 0, "message_ttl",
		"must be at most message_retention_duration, "+seconds(q.MessageRetention))
	require(q.RememberFor >= minRemember || q.RememberFor == 0, "remember_for",
		"must be at least 259200s, 72 hours, or 0s, which is no record")
	require(q.RememberFor != 0 || q.forgets(), "remember_for",
		"must be above 0s unless the queue is unordered, tries once, drops what fails, refuses corrections, and "+
			"emits nothing: without records that is all it can do")
	require(q.RememberFor >= q.MessageRetention || q.RememberFor < minRemember, "remember_for",
		"must be at least message_retention_duration, "+seconds(q.MessageRetention))

	require(1 <= q.Concurrency && q.Concurrency <= maxConcurrency, "concurrency", "must be 1 to 1000")
	require(q.SlotWait >= 0 &&
		(q.SlotWait+q.LongestTimeout() < q.AckDeadline || q.LongestTimeout() >= q.AckDeadline), "slot_wait",
		"must be 0 or more, and with the longest timeout below ack_deadline_seconds, "+seconds(q.AckDeadline))
	require(0 <= q.NackBudget && q.NackBudget <= maxBudget, "nack_budget",
		"must be 0s, which is no limit, to 3600s")
	require(0 <= q.MinInstances && q.MinInstances <= q.MaxInstances, "min_instances",
		"must be 0 to max_instances")
	require(1 <= q.MaxInstances && q.MaxInstances <= maxInstances, "max_instances", "must be 1 to 1000")
	require(q.BacklogAlertAbove >= 0, "backlog_alert_above", "must not be negative")
	require(q.BacklogWarnAbove == 0 || (0 < q.BacklogWarnAbove && q.BacklogWarnAbove < q.BacklogAlertAbove),
		"backlog_warn_above", "must be 0, which is none, or below backlog_alert_above")
	// A message that waits for its next attempt is not late; one that is no longer handled is too late.
	_, wait := q.BrokerBackoff()
	require(q.OldestAlert >= wait+q.AckDeadline || q.AckDeadline > maxAckDeadline, "oldest_alert",
		"must be at least the broker's longest wait and the attempt after it, "+seconds(wait+q.AckDeadline))
	require(q.OldestAlert < q.MessageTTL || q.MessageTTL == 0, "oldest_alert",
		"must be below message_ttl, "+seconds(q.MessageTTL))
	require(q.OldestAlert < q.MessageRetention || q.MessageRetention < minRetention, "oldest_alert",
		"must be below message_retention_duration, "+seconds(q.MessageRetention))
	require(q.OnCorrected == Refuse || q.OnCorrected == Accept, "on_corrected", "must be refuse or accept")
	require(q.DedupeBy == ByEventID || q.DedupeBy == ByIdempotencyKey, "dedupe_by",
		"must be event_id or idempotency_key")
	require(q.OnTerminal == Ack || q.OnTerminal == Reject, "on_terminal", "must be ack or reject")
	require(0 <= q.Rate.PerSecond && q.Rate.PerSecond <= maxRate, "rate.per_second",
		"must be 0, which is no limit, to 100000")
	require(0 <= q.Rate.PerUser && (q.Rate.PerSecond == 0 || q.Rate.PerUser <= q.Rate.PerSecond) &&
		q.Rate.PerUser <= maxUserRate, "rate.per_user",
		"must be 0, which is no limit, to 100, and at most per_second where that is set")
	require((q.Rate.PerUser > 0) == (len(q.Rate.User) > 0), "rate.user",
		"must list names of fields where per_user is above 0, and only there")
	require(q.MaxBacklog == (MaxBacklog{}) ||
		(q.MaxBacklog.Messages > 0 && (q.MaxBacklog.OnFull == RefuseMore || q.MaxBacklog.OnFull == AlertAlone)),
		"max_backlog", "must have messages above 0, and on_full refuse or alert")
	require(q.MaxBacklog.Messages == 0 || q.BacklogAlertAbove < q.MaxBacklog.Messages, "max_backlog.messages",
		"must be above backlog_alert_above")
	if !q.DeadLetter.Drop {
		require(deadLetterRetention <= q.DeadLetter.Retention && q.DeadLetter.Retention <= maxRetention,
			"dead_letter.retention", "must be 1209600s, 14 days, to 2678400s")
		for _, name := range q.DeadLetter.Aliases {
			require(alias.MatchString(name), "dead_letter.aliases", aliasRule)
		}
		require(q.DeadLetter.AlertAbove >= 0, "dead_letter.alert_above", "must not be negative")
		require(0 <= q.DeadLetter.WarnAbove && q.DeadLetter.WarnAbove <= max(0, q.DeadLetter.AlertAbove),
			"dead_letter.warn_above", "must be 0 to alert_above")
		require(q.DeadLetter.OldestWarn == 0 || q.DeadLetter.OldestWarn < q.DeadLetter.OldestAlert,
			"dead_letter.oldest_warn", "must be 0s, which is none, or below oldest_alert")
		require(q.RememberFor >= q.DeadLetter.Retention || q.RememberFor < minRemember, "remember_for",
			"must be at least dead_letter.retention, "+seconds(q.DeadLetter.Retention))
	}

	require(!q.Enabled || len(q.Handlers) > 0, "handlers", "an enabled queue needs some")
	for name, h := range q.Handlers {
		path := handlerPath(name)
		_, err := routing.Parse(name)
		require(err == nil && eventType.MatchString(name), path,
			"must be an event type, or a pattern of them: at most 64 of a-z, 0-9 and _ - * #, in words joined by dots")
		require(h.Post != (Post{}) || word.MatchString(h.Name), path+".name",
			"must be at most 64 of a-z, 0-9 and _ . -, and begin with a letter")
		require(1 <= h.MaxAttempts && h.MaxAttempts <= maxAttempts || h.MaxAttempts == q.MaxAttempts,
			path+".max_attempts", "must be 1 to 50")
		require(h.Timeout > 0 || h.Timeout == q.HandlerTimeout, path+".timeout", "must be above 0")
		require(h.Timeout < q.AckDeadline || h.Timeout == q.HandlerTimeout || q.AckDeadline <= 0, path+".timeout",
			"must be below ack_deadline_seconds, "+seconds(q.AckDeadline))
		if !reflect.DeepEqual(h.Backoff, q.Backoff) {
			r.checkBackoff(place, path+".retry_policy", h.Backoff, h.MaxAttempts)
		}
	}
}

func (r *reader) checkEmissions(place string, q Queue, c *Catalog) {
	for eventType, h := range q.Handlers {
		path := handlerPath(eventType) + ".emits"
		for i, id := range h.Emits {
			at := slices.IndexFunc(c.Queues, func(other Queue) bool { return other.ID == id })
			of := func(t Topic) bool { return t.ID == id }
			shared := slices.ContainsFunc(c.Topics, of)
			switch {
			case slices.Contains(h.Emits[:i], id):
				r.wrong(place, path, "lists "+shown(id)+" twice")
			case at < 0 && !shared && !slices.ContainsFunc(c.OutboundTopics, of):
				r.wrong(place, path, "no queue or topic has the id "+shown(id))
			case q.Enabled && shared && !slices.Contains(c.OtherTopics(), id):
				r.wrong(place, path, "no enabled queue takes messages of topic "+shown(id))
			case q.Enabled && at >= 0 && !c.Queues[at].Enabled && !r.isUnread(queuePlace+" "+shown(id), "enabled"):
				r.wrong(place, path, "queue "+shown(id)+" is not enabled")
			}
		}
	}
}

// maxWaitsFor is the longest that anything is delayed; see package lane.
const maxWaitsFor = 30 * 24 * time.Hour

func (r *reader) checkIfRun(place string, q Queue, c *Catalog) {
	for eventType, h := range q.Handlers {
		require := r.requirer(place)
		require(h.WaitsFor <= maxWaitsFor, handlerPath(eventType)+".waits_for", "must be at most 2592000s")
		for i, id := range h.EmitsIfRun {
			known := slices.ContainsFunc(c.Queues, func(other Queue) bool { return other.ID == id })
			path := handlerPath(eventType) + ".emits_if_run"
			require(known, path, "no queue has the id "+shown(id))
			require(!slices.Contains(h.EmitsIfRun[:i], id) && !slices.Contains(h.Emits, id), path,
				"lists "+shown(id)+" twice")
		}
	}
}

func handlerPath(eventType string) string { return "handlers." + shown(eventType) }

func (r *reader) checkBackoff(place, path string, p retry.Policy, attempts int) {
	require := r.requirer(place)
	if len(p.Schedule) > 0 {
		require(len(p.Schedule) <= attempts || attempts < 1, path+".schedule",
			fmt.Sprintf("lists %d waits for %d attempts", len(p.Schedule), attempts))
		require(slices.IsSorted(p.Schedule), path+".schedule", "a wait must not be shorter than the one before")
		require(slices.Max(p.Schedule) <= maxWait, path+".schedule", "a wait must be at most 86400s")
		return
	}
	require(0 < p.Max && p.Max <= maxWait, path+".maximum_backoff", "must be above 0 and at most 86400s")
	require(p.Base <= p.Max, path+".minimum_backoff", "must be at most maximum_backoff, "+seconds(p.Max))
	require(1 <= p.Multiplier && p.Multiplier <= 10, path+".multiplier", "must be 1 to 10")
	require(p.Jitter <= p.Max, path+".jitter", "must be at most maximum_backoff, "+seconds(p.Max))
}
