package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/retry"
)

var asWritten = jsonv2.WithMarshalers(jsonv2.JoinMarshalers(
	jsonv2.MarshalFunc(func(d time.Duration) ([]byte, error) {
		return strconv.AppendQuote(nil, seconds(d)), nil
	}),
	jsonv2.MarshalToFunc(func(to *jsontext.Encoder, p retry.Policy) error {
		if len(p.Schedule) > 0 {
			return jsonv2.MarshalEncode(to, map[string]any{"schedule": p.Schedule})
		}
		return jsonv2.MarshalEncode(to, map[string]any{
			"minimum_backoff": p.Base, "maximum_backoff": p.Max, "multiplier": p.Multiplier, "jitter": p.Jitter,
		})
	}),
))

// JSON returns the catalog expanded, defaults applied and names derived, with durations in seconds. The same
// catalog gives the same bytes.
func (c *Catalog) JSON() ([]byte, error) {
	tree, err := treeOf(jsonv2.Marshal(map[string]any{
		"queues": c.Queues, "topics": c.Topics, "outbound_topics": c.OutboundTopics, "products": c.Products,
		"sources": c.Sources, "targets": c.Targets, "endpoints": c.Endpoints, "tasks_pool": c.TasksPool,
	}, asWritten))
	if err != nil {
		return nil, err
	}
	for i, queue := range tree["queues"].([]any) {
		c.Queues[i].expand(queue.(map[string]any))
	}
	return json.MarshalIndent(tree, "", "  ")
}

// JSON returns the queue expanded, as in the catalog's JSON.
func (q Queue) JSON() ([]byte, error) {
	tree, err := treeOf(jsonv2.Marshal(q, asWritten))
	if err != nil {
		return nil, err
	}
	q.expand(tree)
	return json.MarshalIndent(tree, "", "  ")
}

// treeOf returns JSON as a map, whose keys are printed in order.
func treeOf(text []byte, err error) (tree map[string]any, _ error) {
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		err = decoder.Decode(&tree)
	}
	if err != nil {
		return nil, fmt.Errorf("catalog: print: %w", err)
	}
	return tree, nil
}

func (q Queue) expand(tree map[string]any) {
	minimum, maximum := q.BrokerBackoff()
	maps.Copy(tree, map[string]any{
		"ack_deadline_seconds": int(q.AckDeadline / time.Second), "enable_message_ordering": q.Ordered(),
		"filter": q.Filter().String(), "topic": q.Topic(), "shared": q.SharedTopic != "",
		"push_subscription": q.PushSubscription(), "push_path": q.PushPath(),
		"broker": map[string]any{
			"minimum_backoff": seconds(minimum), "maximum_backoff": seconds(maximum),
			"max_delivery_attempts": BrokerMaxDeliveryAttempts,
		},
	})
	if q.DeadLetter.Drop {
		tree["dead_letter"] = map[string]bool{"drop": true}
		return
	}
	maps.Copy(tree["dead_letter"].(map[string]any), map[string]any{
		"topic": q.DeadLetter.Topic, "hold_subscription": q.DeadLetterHold(),
		"push_subscription": q.DeadLetterPush(), "push_path": q.DeadLetterPushPath(),
	})
}

func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}

// Webhook is the webhook service's name in Publishers.
const Webhook = "webhook"

// WorkerOf returns the name of a pool's worker in Publishers.
func WorkerOf(pool string) string { return "worker-" + pool }

// Publishers lists the services that publish on each topic, by topic id: no other service gets a grant.
func (c *Catalog) Publishers() map[string][]string {
	publishers := map[string][]string{}
	publish := func(service string, ids ...string) {
		for _, id := range ids {
			if q, ok := c.Queue(id); ok {
				id = q.Topic()
			}
			if !slices.Contains(publishers[id], service) {
				publishers[id] = append(publishers[id], service)
			}
		}
	}
	if _, open := c.Sources[Producers]; open {
		publish(Webhook, c.running()...)
	}
	for _, s := range c.Sources {
		publish(Webhook, slices.Collect(maps.Values(s.Events))...)
	}
	for _, pool := range c.Pools() {
		worker := WorkerOf(pool)
		if pool == c.TasksPool { // the tasks publish for all
			publish(worker, c.running()...)
		}
		for q, h := range c.handlers() {
			if q.Pool == pool || pool == c.TasksPool {
				publish(worker, h.Emits...)
			}
		}
		for _, q := range c.Enabled() {
			if q.Pool == pool && !q.DeadLetter.Drop {
				publish(worker, q.DeadLetter.Topic)
			}
		}
	}
	return publishers
}

func (c *Catalog) running() (ids []string) {
	for _, q := range c.Enabled() {
		ids = append(ids, q.ID)
	}
	return ids
}
