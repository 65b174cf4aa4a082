package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"billhook/internal/retry"
)

// printedQueue is a queue with what follows from it.
type printedQueue struct {
	Queue
	AckDeadline      int           `json:"ack_deadline_seconds"`
	Ordered          bool          `json:"enable_message_ordering"`
	Topic            string        `json:"topic"`
	Shared           bool          `json:"shared"`
	Filter           string        `json:"filter"`
	PushSubscription string        `json:"push_subscription"`
	PushPath         string        `json:"push_path"`
	Broker           printedBroker `json:"broker"`
	DeadLetter       any           `json:"dead_letter"`
}

type printedBroker struct {
	Minimum  time.Duration `json:"minimum_backoff"`
	Maximum  time.Duration `json:"maximum_backoff"`
	Attempts int           `json:"max_delivery_attempts"`
}

type printedLetters struct {
	DeadLetter
	Hold string `json:"hold_subscription"`
	Push string `json:"push_subscription"`
	Path string `json:"push_path"`
}

// asWritten writes durations and policies as the files have them.
var asWritten = jsonv2.WithMarshalers(jsonv2.JoinMarshalers(
	jsonv2.MarshalFunc(func(d time.Duration) ([]byte, error) { return strconv.AppendQuote(nil, seconds(d)), nil }),
	jsonv2.MarshalFunc(func(p retry.Policy) ([]byte, error) {
		policy := map[string]any{"minimum_backoff": seconds(p.Base), "maximum_backoff": seconds(p.Max), "multiplier": p.Multiplier, "jitter": seconds(p.Jitter)}
		if len(p.Schedule) > 0 {
			waits := make([]string, len(p.Schedule))
			for i, wait := range p.Schedule {
				waits[i] = seconds(wait)
			}
			policy = map[string]any{"schedule": waits}
		}
		return json.Marshal(policy)
	}),
))

// JSON returns the catalog expanded: defaults applied, names and the broker's
// settings derived. Durations are strings in seconds. The same catalog gives the
// same bytes.
func (c *Catalog) JSON() ([]byte, error) {
	queues := make([]printedQueue, len(c.Queues))
	for i, q := range c.Queues {
		minimum, maximum := q.BrokerBackoff()
		queues[i] = printedQueue{
			Queue: q, AckDeadline: int(q.AckDeadline / time.Second), Ordered: q.Ordered(), Topic: q.Topic(), Shared: q.SharedTopic != "",
			Filter: q.Filter().String(), PushSubscription: q.PushSubscription(), PushPath: q.PushPath(),
			Broker:     printedBroker{minimum, maximum, BrokerMaxDeliveryAttempts},
			DeadLetter: map[string]bool{"drop": true},
		}
		if !q.DeadLetter.Drop {
			queues[i].DeadLetter = printedLetters{q.DeadLetter, q.DeadLetterHold(), q.DeadLetterPush(), q.DeadLetterPushPath()}
		}
	}
	text, err := jsonv2.Marshal(map[string]any{
		"queues": queues, "topics": c.Topics, "outbound_topics": c.OutboundTopics, "products": c.Products, "sources": c.Sources,
	}, asWritten)
	var sorted any
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		err = decoder.Decode(&sorted)
	}
	if err != nil {
		return nil, fmt.Errorf("catalog: print: %w", err)
	}
	return json.MarshalIndent(sorted, "", "  ")
}

func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}
