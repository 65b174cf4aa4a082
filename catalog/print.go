package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	strictjson "github.com/go-json-experiment/json"

	"billhook/internal/retry"
)

type object = map[string]any

// inSeconds writes durations as the files have them.
var inSeconds = strictjson.WithMarshalers(strictjson.MarshalFunc(func(d time.Duration) ([]byte, error) {
	return strconv.AppendQuote(nil, seconds(d)), nil
}))

// JSON returns the catalog expanded: defaults applied, names and the broker's
// settings derived. Durations are strings in seconds. The same catalog gives the
// same bytes.
func (c *Catalog) JSON() ([]byte, error) {
	queues := make([]object, 0, len(c.Queues))
	for _, q := range c.Queues {
		queue, err := printed(q)
		if err != nil {
			return nil, err
		}
		queues = append(queues, queue)
	}
	tables, err := plain(object{
		"topics": c.Topics, "outbound_topics": c.OutboundTopics, "products": c.Products, "sources": c.Sources, "targets": c.Targets,
	})
	if err != nil {
		return nil, err
	}
	tables["queues"] = queues
	expanded, err := json.MarshalIndent(tables, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("catalog: print: %w", err)
	}
	return expanded, nil
}

// printed is a queue with what is derived from it.
func printed(q Queue) (object, error) {
	handlers := object{}
	for eventType, h := range q.Handlers {
		handler, err := plain(h)
		if err != nil {
			return nil, err
		}
		handler["retry_policy"] = backoff(h.Backoff)
		handlers[eventType] = handler
	}
	out, err := plain(q)
	if err != nil {
		return nil, err
	}
	minimum, maximum := q.BrokerBackoff()
	maps.Copy(out, object{
		"handlers": handlers, "retry_policy": backoff(q.Backoff), "ack_deadline_seconds": int(q.AckDeadline / time.Second),
		"enable_message_ordering": q.Ordered(), "topic": q.Topic(), "shared": q.SharedTopic != "", "filter": q.Filter().String(),
		"push_subscription": q.PushSubscription(), "push_path": q.PushPath(),
		"broker": object{
			"minimum_backoff": seconds(minimum), "maximum_backoff": seconds(maximum), "max_delivery_attempts": BrokerMaxDeliveryAttempts,
		},
	})
	if q.DeadLetter.Drop {
		out["dead_letter"] = object{"drop": true}
		return out, nil
	}
	letter, err := plain(q.DeadLetter)
	if err != nil {
		return nil, err
	}
	letter["hold_subscription"], letter["push_subscription"], letter["push_path"] = q.DeadLetterHold(), q.DeadLetterPush(), q.DeadLetterPushPath()
	out["dead_letter"] = letter
	return out, nil
}

// plain is a value as a map under its names in the files.
func plain(v any) (fields object, err error) {
	text, err := strictjson.Marshal(v, inSeconds)
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		err = decoder.Decode(&fields)
	}
	if err != nil {
		return nil, fmt.Errorf("catalog: print: %w", err)
	}
	return fields, nil
}

func backoff(p retry.Policy) any {
	if len(p.Schedule) > 0 {
		schedule := make([]string, len(p.Schedule))
		for i, wait := range p.Schedule {
			schedule[i] = seconds(wait)
		}
		return object{"schedule": schedule}
	}
	return object{
		"minimum_backoff": seconds(p.Base), "maximum_backoff": seconds(p.Max), "multiplier": p.Multiplier, "jitter": seconds(p.Jitter),
	}
}

func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}
