package catalog

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"billhook/internal/retry"
)

// JSON returns the catalog expanded: defaults applied, names and the broker's
// settings derived. Durations are strings in seconds. The same catalog gives the
// same bytes.
func (c *Catalog) JSON() ([]byte, error) {
	type object = map[string]any
	queues := make([]object, 0, len(c.Queues))
	for _, q := range c.Queues {
		handlers := object{}
		for eventType, h := range q.Handlers {
			shown := object{
				"name": h.Name, "emits": append([]string{}, h.Emits...), "max_attempts": h.MaxAttempts, "timeout": seconds(h.Timeout), "retry_policy": backoff(h.Backoff),
			}
			if h.Post != (Post{}) {
				shown["post"] = object{"target": h.Post.Target, "path": h.Post.Path, "reconcile": h.Post.Reconcile}
			}
			handlers[eventType] = shown
		}
		minimum, maximum := q.BrokerBackoff()
		out := object{
			"id": q.ID, "alias": q.Alias, "description": q.Description, "enabled": q.Enabled, "contract": q.Contract,
			"filter": q.Filter, "ordering_key": append([]string{}, q.OrderingKey...), "priority": q.Priority, "pool": q.Pool,
			"handlers": handlers, "max_attempts": q.MaxAttempts, "retry_policy": backoff(q.Backoff),
			"ack_deadline_seconds": int(q.AckDeadline / time.Second), "lease": seconds(q.Lease),
			"handler_timeout": seconds(q.HandlerTimeout), "message_ttl": seconds(q.MessageTTL),
			"message_retention_duration": seconds(q.MessageRetention), "remember_for": seconds(q.RememberFor),
			"concurrency": q.Concurrency, "slot_wait": seconds(q.SlotWait), "min_instances": q.MinInstances, "max_instances": q.MaxInstances,
			"backlog_alert_above": q.BacklogAlertAbove, "oldest_alert": seconds(q.OldestAlert),
			"on_terminal": q.OnTerminal, "nack_budget": seconds(q.NackBudget), "on_orphan": q.OnOrphan, "on_poison": q.OnPoison, "on_corrected": q.OnCorrected, "four_eyes": q.FourEyes,
			"batch": object{"size": q.Batch.Size, "wait": seconds(q.Batch.Wait)}, "enable_message_ordering": q.Ordered(),
			"topic": q.Topic(), "push_subscription": q.PushSubscription(), "push_path": q.PushPath(),
			"broker": object{
				"minimum_backoff": seconds(minimum), "maximum_backoff": seconds(maximum),
				"max_delivery_attempts": BrokerMaxDeliveryAttempts,
			},
			"dead_letter": object{"drop": true},
		}
		if !q.DeadLetter.Drop {
			out["dead_letter"] = object{
				"drop": false, "topic": q.DeadLetter.Topic, "retention": seconds(q.DeadLetter.Retention),
				"alert_above": q.DeadLetter.AlertAbove, "oldest_alert": seconds(q.DeadLetter.OldestAlert),
				"hold_subscription": q.DeadLetterHold(), "push_subscription": q.DeadLetterPush(), "push_path": q.DeadLetterPushPath(),
			}
		}
		queues = append(queues, out)
	}
	topics := make([]object, 0, len(c.OutboundTopics))
	for _, t := range c.OutboundTopics {
		topics = append(topics, object{"id": t.ID, "alias": t.Alias, "description": t.Description})
	}
	products := object{}
	for id, p := range c.Products {
		products[id] = object{"points": p.Points}
	}
	sources := object{}
	for name, s := range c.Sources {
		sources[name] = object{
			"scheme": s.Scheme, "secret_variable": s.SecretVariable, "max_body_bytes": s.MaxBodyBytes,
			"rate_per_second": s.RatePerSecond, "burst": s.Burst, "uid_metadata_key": s.UIDMetadataKey, "events": s.Events,
		}
	}
	expanded, err := json.MarshalIndent(object{
		"queues": queues, "outbound_topics": topics, "products": products, "sources": sources, "targets": c.shownTargets(),
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("catalog: print: %w", err)
	}
	return expanded, nil
}

func backoff(p retry.Policy) map[string]any {
	if len(p.Schedule) > 0 {
		schedule := make([]string, len(p.Schedule))
		for i, wait := range p.Schedule {
			schedule[i] = seconds(wait)
		}
		return map[string]any{"schedule": schedule}
	}
	return map[string]any{
		"minimum_backoff": seconds(p.Base), "maximum_backoff": seconds(p.Max), "multiplier": p.Multiplier, "jitter": seconds(p.Jitter),
	}
}

func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}
