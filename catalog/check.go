package catalog

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
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
	// A dead letter that is kept for less time may expire before anybody looks.
	deadLetterRetention = 14 * 24 * time.Hour
	maxWait             = 24 * time.Hour
	MaxPoints           = 1_000_000_000 // the most that one piece of a product is worth
	// Half of what the broker can count, so that its backstop keeps headroom.
	maxAttempts    = BrokerMaxDeliveryAttempts / 2
	maxBudget      = time.Hour // with more time between two nacks nobody would see one
	maxConcurrency = 1000      // Cloud Run's own limits
	maxInstances   = 1000
	// How many messages a second the webhook service can count, for a queue and for one user.
	maxRate     = 100_000
	maxUserRate = 100
)

var (
	// Of Pub/Sub's 255 characters the longest derived name needs nine: -dlq-hold.
	queueID   = regexp.MustCompile(`^[a-z][a-z0-9-]{2,245}$`)
	alias     = regexp.MustCompile(`^[a-z][a-z0-9_.:-]{0,99}$`)
	label     = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$`)
	field     = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)
	word      = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,63}$`)
	eventType = regexp.MustCompile(`^[a-z*#][a-z0-9_.*#-]{0,63}$`)
	anyCase   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)
	// The contract's id; no other is ever sent.
	productID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)
	variable  = regexp.MustCompile(`^WEBHOOK_[A-Z0-9_]{3,56}$`)
)

// forgets reports whether the queue needs no records for anything that it does.
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

// within requires a value from low to high. note explains low, for example what 0 means.
func within[T int | int64 | float64 | time.Duration](r requirer, path string, is, low, high T, note string) {
	text := func(v T) string {
		if d, ok := any(v).(time.Duration); ok {
			return seconds(d)
		}
		return strconv.FormatFloat(float64(v), 'f', -1, 64)
	}
	if note != "" {
		note = ", " + note + ","
	}
	r(low <= is && is <= high, path, "must be "+text(low)+note+" to "+text(high))
}

// oneOf requires one of at least two choices.
func oneOf[T ~string](r requirer, path string, value T, choices ...T) {
	text, last := string(choices[0]), len(choices)-1
	for _, choice := range choices[1:last] {
		text += ", " + string(choice)
	}
	r(slices.Contains(choices, value), path, "must be "+text+" or "+string(choices[last]))
}

const (
	noLimit  = "which is no limit"
	wordRule = "must be at most 64 of a-z, 0-9 and _ . -, and begin with a letter"
	nameRule = "must be at most 64 of letters, digits and _ . -, and begin with a letter"

	aliasRule = "must be at most 100 of a-z, 0-9 and _ . : -, and begin with a letter"
	labelRule = "must be at most 40 of a-z, 0-9 and -, begin with a letter, and not end with -"
	topicRule = "must be 3 to 246 of a-z, 0-9 and -, begin with a letter, and not with goog"
)

func (r *reader) checkQueue(place string, q Queue, shared []Topic) {
	require := r.requirer(place)
	checkNames(require, q, shared)
	r.checkBackoff(place, "retry_policy", q.Backoff, q.MaxAttempts)
	checkTimes(require, q)
	checkLoad(require, q)
	if !q.DeadLetter.Drop {
		checkDeadLetters(require, q.DeadLetter, q.RememberFor)
	}
	require(!q.Enabled || len(q.Handlers) > 0, "handlers", "an enabled queue needs some")
	for name, h := range q.Handlers {
		r.checkHandler(place, name, q, h)
	}
}

func checkNames(require requirer, q Queue, shared []Topic) {
	require(topicID(q.ID), "id", topicRule)
	require(q.Alias == "" || alias.MatchString(q.Alias), "alias", aliasRule)
	require(q.Description != "", "description", "is missing")
	own := q.SharedTopic == ""
	known := slices.ContainsFunc(shared, func(t Topic) bool { return t.ID == q.SharedTopic })
	require(own || known, "topic", "no shared topic has the id "+shown(q.SharedTopic))
	require(own || len(q.Bindings) > 0, "bindings", "a queue on a shared topic needs some; # takes all")
	for i, p := range q.Bindings {
		_, err := routing.Parse(string(p))
		require(err == nil && !slices.Contains(q.Bindings[:i], p), "bindings",
			"must list patterns of words, * and # joined by dots, each once")
	}
	for i, part := range q.OrderingKey {
		once := !slices.Contains(q.OrderingKey[:i], part)
		require(once && field.MatchString(part), "ordering_key", "must list names of fields, each once")
	}
	oneOf(require, "priority", q.Priority, "high", "normal", "low")
	require(label.MatchString(q.Pool), "pool", labelRule)
	oneOf(require, "on_corrected", q.OnCorrected, Refuse, Accept)
	oneOf(require, "dedupe_by", q.DedupeBy, ByEventID, ByIdempotencyKey)
	oneOf(require, "on_terminal", q.OnTerminal, Ack, Reject)
}

func checkTimes(require requirer, q Queue) {
	ack, retention := seconds(q.AckDeadline), seconds(q.MessageRetention)
	within(require, "ack_deadline_seconds", q.AckDeadline.Seconds(), minAckDeadline.Seconds(),
		maxAckDeadline.Seconds(), "")
	require(q.HandlerTimeout > 0, "handler_timeout", "must be above 0")
	require(q.HandlerTimeout < q.AckDeadline || q.AckDeadline <= 0, "ack_deadline_seconds",
		"must be above handler_timeout, "+seconds(q.HandlerTimeout))
	require(q.Lease > 0, "lease", "must be above 0")
	require(q.AckDeadline <= q.Lease || q.Lease <= 0, "lease", "must be at least ack_deadline_seconds, "+ack)
	within(require, "message_retention_duration", q.MessageRetention, minRetention, maxRetention, "")
	require(q.MessageTTL <= q.MessageRetention || q.MessageRetention == 0, "message_ttl",
		"must be at most message_retention_duration, "+retention)
	require(q.RememberFor >= minRemember || q.RememberFor == 0, "remember_for",
		"must be at least 259200s, 72 hours, or 0s, which is no record")
	require(q.RememberFor != 0 || q.forgets(), "remember_for",
		"must be above 0s unless the queue is unordered, tries once, drops what fails, refuses corrections, and "+
			"emits nothing: without records that is all it can do")
	require(q.RememberFor >= q.MessageRetention || q.RememberFor < minRemember, "remember_for",
		"must be at least message_retention_duration, "+retention)
	longest := q.LongestTimeout()
	require(q.SlotWait >= 0 && (q.SlotWait+longest < q.AckDeadline || longest >= q.AckDeadline), "slot_wait",
		"must be 0 or more, and with the longest timeout below ack_deadline_seconds, "+ack)
	within(require, "nack_budget", q.NackBudget, 0, maxBudget, noLimit)
	// A message that waits for its next attempt is not late; one that is no longer handled is too late.
	_, wait := q.BrokerBackoff()
	require(q.OldestAlert >= wait+q.AckDeadline || q.AckDeadline > maxAckDeadline, "oldest_alert",
		"must be at least the broker's longest wait and the attempt after it, "+seconds(wait+q.AckDeadline))
	require(q.OldestAlert < q.MessageTTL || q.MessageTTL == 0, "oldest_alert",
		"must be below message_ttl, "+seconds(q.MessageTTL))
	require(q.OldestAlert < q.MessageRetention || q.MessageRetention < minRetention, "oldest_alert",
		"must be below message_retention_duration, "+retention)
}

func checkLoad(require requirer, q Queue) {
	within(require, "max_attempts", q.MaxAttempts, 1, maxAttempts, "")
	within(require, "concurrency", q.Concurrency, 1, maxConcurrency, "")
	require(0 <= q.MinInstances && q.MinInstances <= q.MaxInstances, "min_instances",
		"must be 0 to max_instances")
	within(require, "max_instances", q.MaxInstances, 1, maxInstances, "")
	alert, warn := q.BacklogAlertAbove, q.BacklogWarnAbove
	require(alert >= 0, "backlog_alert_above", "must not be negative")
	require(warn == 0 || (0 < warn && warn < alert), "backlog_warn_above",
		"must be 0, which is none, or below backlog_alert_above")
	rate, bound := q.Rate, q.MaxBacklog
	within(require, "rate.per_second", rate.PerSecond, 0, maxRate, noLimit)
	perUser := 0 <= rate.PerUser && rate.PerUser <= maxUserRate
	require(perUser && (rate.PerSecond == 0 || rate.PerUser <= rate.PerSecond), "rate.per_user",
		"must be 0, which is no limit, to 100, and at most per_second where that is set")
	require((rate.PerUser > 0) == (len(rate.User) > 0), "rate.user",
		"must list names of fields where per_user is above 0, and only there")
	chosen := bound.OnFull == RefuseMore || bound.OnFull == AlertAlone
	require(bound == (MaxBacklog{}) || (bound.Messages > 0 && chosen), "max_backlog",
		"must have messages above 0, and on_full refuse or alert")
	require(bound.Messages == 0 || alert < bound.Messages, "max_backlog.messages",
		"must be above backlog_alert_above")
}

func checkDeadLetters(require requirer, d DeadLetter, rememberFor time.Duration) {
	within(require, "dead_letter.retention", d.Retention, deadLetterRetention, maxRetention, "14 days")
	for _, name := range d.Aliases {
		require(alias.MatchString(name), "dead_letter.aliases", aliasRule)
	}
	require(d.AlertAbove >= 0, "dead_letter.alert_above", "must not be negative")
	require(0 <= d.WarnAbove && d.WarnAbove <= max(0, d.AlertAbove), "dead_letter.warn_above",
		"must be 0 to alert_above")
	require(d.OldestWarn == 0 || d.OldestWarn < d.OldestAlert, "dead_letter.oldest_warn",
		"must be 0s, which is none, or below oldest_alert")
	require(rememberFor >= d.Retention || rememberFor < minRemember, "remember_for",
		"must be at least dead_letter.retention, "+seconds(d.Retention))
}

func (r *reader) checkHandler(place, name string, q Queue, h Handler) {
	require, path := r.requirer(place), handlerPath(name)
	_, err := routing.Parse(name)
	require(err == nil && eventType.MatchString(name), path, "must be an event type, or a pattern of them: "+
		"at most 64 of a-z, 0-9 and _ - * #, in words joined by dots")
	require(h.Post != (Post{}) || word.MatchString(h.Name), path+".name", wordRule)
	if h.MaxAttempts != q.MaxAttempts {
		within(require, path+".max_attempts", h.MaxAttempts, 1, maxAttempts, "")
	}
	if h.Timeout != q.HandlerTimeout {
		require(h.Timeout > 0, path+".timeout", "must be above 0")
		require(h.Timeout < q.AckDeadline || q.AckDeadline <= 0, path+".timeout",
			"must be below ack_deadline_seconds, "+seconds(q.AckDeadline))
	}
	if !reflect.DeepEqual(h.Backoff, q.Backoff) {
		r.checkBackoff(place, path+".retry_policy", h.Backoff, h.MaxAttempts)
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
			q, known := c.Queue(id)
			path := handlerPath(eventType) + ".emits_if_run"
			require(known && q.ID == id, path, "no queue has the id "+shown(id))
			twice := slices.Contains(h.EmitsIfRun[:i], id) || slices.Contains(h.Emits, id)
			require(!twice, path, "lists "+shown(id)+" twice")
		}
	}
}

func handlerPath(eventType string) string { return "handlers." + shown(eventType) }

func (r *reader) checkBackoff(place, path string, p retry.Policy, attempts int) {
	require := r.requirer(place)
	if n := len(p.Schedule); n > 0 {
		path += ".schedule"
		require(n <= attempts || attempts < 1, path, fmt.Sprintf("lists %d waits for %d attempts", n, attempts))
		require(slices.IsSorted(p.Schedule), path, "a wait must not be shorter than the one before")
		require(slices.Max(p.Schedule) <= maxWait, path, "a wait must be at most 86400s")
		return
	}
	require(0 < p.Max && p.Max <= maxWait, path+".maximum_backoff", "must be above 0 and at most 86400s")
	require(p.Base <= p.Max, path+".minimum_backoff", "must be at most maximum_backoff, "+seconds(p.Max))
	within(require, path+".multiplier", p.Multiplier, 1, 10, "")
	require(p.Jitter <= p.Max, path+".jitter", "must be at most maximum_backoff, "+seconds(p.Max))
}
