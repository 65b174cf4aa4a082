package catalog

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"billhook/internal/filter"
	"billhook/internal/retry"
)

var (
	// Pub/Sub: a letter first, 3 to 255 characters; the derived names need room.
	queueID  = regexp.MustCompile(`^[a-z][a-z0-9-]{2,99}$`)
	variable = regexp.MustCompile(`^[A-Z][A-Z0-9_]{2,63}$`)
	name     = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,63}$`)
	metadata = regexp.MustCompile(`^checkout\.metadata\.[a-z0-9_]+$`)
)

// Bounds that Pub/Sub sets (its documentation), and the floor of the requirements:
// an event is remembered for at least 72 hours.
const (
	minAckDeadline = 10 * time.Second
	maxAckDeadline = 600 * time.Second
	minRetention   = 10 * time.Minute
	maxRetention   = 31 * 24 * time.Hour
	minRemember    = 72 * time.Hour
	maxPoints      = 1_000_000_000
)

// check reports every broken relation of a catalog whose values have been read.
func (c *Catalog) check() []error {
	var mistakes []error
	names := map[string]bool{}
	taken := func(file, what, id string) {
		if id == "" {
			return
		}
		if names[id] {
			mistakes = append(mistakes, fmt.Errorf("%s: %s %s: the name is used twice", file, what, quote(id)))
		}
		names[id] = true
	}
	if len(c.Queues) == 0 {
		mistakes = append(mistakes, fmt.Errorf("queues.yaml: queues: there is none"))
	}
	for _, q := range c.Queues {
		taken("queues.yaml", "queue", q.ID)
		taken("queues.yaml", "alias", q.Alias)
		for _, mistake := range q.check() {
			mistakes = append(mistakes, fmt.Errorf("queues.yaml: queue %s: %s", quote(q.ID), mistake))
		}
	}
	for _, topic := range c.OutboundTopics {
		taken("queues.yaml", "outbound topic", topic.ID)
		taken("queues.yaml", "alias", topic.Alias)
		if !queueID.MatchString(topic.ID) || strings.HasPrefix(topic.ID, "goog") {
			mistakes = append(mistakes, fmt.Errorf("queues.yaml: outbound topic %s: id: not a Pub/Sub topic id", quote(topic.ID)))
		}
	}
	for id, product := range c.Products {
		if id == "" || len(id) > 128 || strings.ContainsAny(id, "/ ") {
			mistakes = append(mistakes, fmt.Errorf("products.yaml: product %s: not a product id", quote(id)))
		}
		if product.Points < 1 || product.Points > maxPoints {
			mistakes = append(mistakes, fmt.Errorf("products.yaml: product %s: points: must be 1 to %d", quote(id), maxPoints))
		}
	}
	for _, s := range c.Sources {
		for _, mistake := range c.checkSource(s) {
			mistakes = append(mistakes, fmt.Errorf("sources.yaml: source %s: %s", quote(s.Name), mistake))
		}
	}
	return mistakes
}

func (q Queue) check() []string {
	var mistakes []string
	require := func(ok bool, key, what string) {
		if !ok {
			mistakes = append(mistakes, key+": "+what)
		}
	}
	require(queueID.MatchString(q.ID) && !strings.HasPrefix(q.ID, "goog"), "id", "must be 3 to 100 of a-z, 0-9 and -, begin with a letter, and not with goog")
	require(q.Description != "", "description", "is missing")
	require(slices.Contains([]string{"paynow.v1", "envelope.v1", "message.v1"}, q.Contract), "contract", "must be paynow.v1, envelope.v1 or message.v1")
	if _, err := filter.Parse(q.Filter); err != nil {
		require(false, "filter", err.Error())
	}
	require(slices.Contains([]string{"high", "normal", "low"}, q.Priority), "priority", "must be high, normal or low")
	require(name.MatchString(q.Pool), "pool", "must be a name")
	for _, part := range q.OrderingKey {
		require(name.MatchString(part), "ordering_key", "must list field names")
	}
	require(q.MaxAttempts >= 1 && q.MaxAttempts <= 100, "max_attempts", "must be 1 to 100")
	for _, mistake := range checkBackoff(q.Backoff) {
		require(false, "retry_policy", mistake)
	}
	require(q.AckDeadline >= minAckDeadline && q.AckDeadline <= maxAckDeadline, "ack_deadline_seconds", "must be 10 to 600")
	require(q.HandlerTimeout > 0 && q.HandlerTimeout < q.AckDeadline, "handler_timeout", "must be above 0 and below the ack deadline")
	require(q.AckDeadline <= q.Lease, "lease", "must be at least the ack deadline")
	require(q.MessageTTL >= 0, "message_ttl", "must not be negative")
	require(q.MessageRetention >= minRetention && q.MessageRetention <= maxRetention, "message_retention_duration", `must be "600s" to "2678400s"`)
	require(q.RememberFor >= minRemember, "remember_for", `must be at least "259200s"`)
	require(q.RememberFor >= q.MessageRetention, "remember_for", "must be at least message_retention_duration")
	require(q.Concurrency >= 1 && q.Concurrency <= 1000, "concurrency", "must be 1 to 1000")
	require(q.MinInstances >= 0 && q.MaxInstances >= 1 && q.MinInstances <= q.MaxInstances, "max_instances", "must be at least 1 and at least min_instances")
	require(q.OnTerminal == Ack || q.OnTerminal == Reject, "on_terminal", "must be ack or reject")
	require(!q.Enabled || len(q.Handlers) > 0, "handlers", "an enabled queue needs some")
	if q.DeadLetter.Drop {
		require(q.DeadLetter.Topic == "", "dead_letter", "drop and topic exclude each other")
	} else {
		require(queueID.MatchString(q.DeadLetter.Topic), "dead_letter.topic", "not a Pub/Sub topic id")
		require(q.DeadLetter.Retention >= minRetention && q.DeadLetter.Retention <= maxRetention, "dead_letter.retention", `must be "600s" to "2678400s"`)
		require(q.DeadLetter.AlertAbove >= 0, "dead_letter.alert_above", "must not be negative")
		require(q.RememberFor >= q.DeadLetter.Retention, "remember_for", "must be at least dead_letter.retention, or a late replay is not recognized")
	}
	for eventType, h := range q.Handlers {
		key := "handlers." + eventType
		require(name.MatchString(eventType), key, "not an event type")
		require(name.MatchString(h.Name), key+".name", "must be a handler's name")
		require(h.MaxAttempts >= 1 && h.MaxAttempts <= 100, key+".max_attempts", "must be 1 to 100")
		require(h.Timeout > 0 && h.Timeout < q.AckDeadline, key+".timeout", "must be above 0 and below the ack deadline")
		for _, mistake := range checkBackoff(h.Backoff) {
			require(false, key+".retry_policy", mistake)
		}
	}
	return mistakes
}

func checkBackoff(p retry.Policy) []string {
	if len(p.Schedule) > 0 {
		if !slices.IsSorted(p.Schedule) {
			return []string{"schedule: waits must not become shorter"}
		}
		return nil
	}
	var mistakes []string
	if p.Base > p.Max {
		mistakes = append(mistakes, "minimum_backoff: must not be above maximum_backoff")
	}
	if p.Max <= 0 || p.Max > 24*time.Hour {
		mistakes = append(mistakes, `maximum_backoff: must be above 0 and at most "86400s"`)
	}
	if p.Multiplier < 1 || p.Multiplier > 10 {
		mistakes = append(mistakes, "multiplier: must be 1 to 10")
	}
	return mistakes
}

func (c *Catalog) checkSource(s Source) []string {
	var mistakes []string
	require := func(ok bool, key, what string) {
		if !ok {
			mistakes = append(mistakes, key+": "+what)
		}
	}
	require(name.MatchString(s.Name), "name", "must be a name")
	require(slices.Contains([]Scheme{SchemePayNow, SchemeGeneric, SchemeStandard}, s.Scheme), "scheme", "must be paynow, generic or standard")
	require(variable.MatchString(s.SecretVariable), "secret_variable", "must name an environment variable")
	require(s.MaxBodyBytes >= 1024 && s.MaxBodyBytes <= 8<<20, "max_body_bytes", "must be 1024 to 8388608")
	require(s.RatePerSecond >= 0 && (s.RatePerSecond == 0 || s.Burst >= 1), "burst", "must be at least 1 where a rate is set")
	require(s.UIDMetadataKey == "" || metadata.MatchString(s.UIDMetadataKey), "uid_metadata_key", "must be a key of checkout.metadata")
	for eventType, id := range s.Events {
		q, ok := c.Queue(id)
		require(ok && q.ID == id, "events."+eventType, "no queue has the id "+quote(id))
	}
	return mistakes
}
