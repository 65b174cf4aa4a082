package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/ingest/webhook/samples"
)

type enqueueing struct {
	p                  *program
	catalog            *catalog.Catalog
	queue              catalog.Queue
	file, base         string
	eventType, eventID string
	key, deliverAt     string
	tenant             string
	maxAttempts        int
	repeat             int
}

func (p *program) enqueueCommand() *cobra.Command {
	e := &enqueueing{p: p}
	command := &cobra.Command{
		Use:   "enqueue <queue>",
		Short: "Sign a message as an internal service does, and send it to a queue; without -f a sample with a new id",
		Long: "The file has a message, an item with what is asked for it, or a list of items: what docs/producing.md describes. The secret is\n" +
			"the first of WEBHOOK_SIGNING_SECRET, else the public one that `billhook dev` accepts.\n\n" +
			"With --repeat each sample has ids of its own. Together with --event-id, or -f, it is the same message each time, which is\n" +
			"handled once.\n\n" + waitsLong,
		Example: "  billhook enqueue <queue>\n" +
			"  billhook enqueue <queue> --repeat 20 --key some-subscription\n" +
			"  billhook enqueue <queue> --type order.shipped --key some-order\n" +
			"  billhook enqueue <queue> -f message.json --deliver-at 10m",
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) (err error) {
			if e.catalog, err = p.catalog(); err != nil {
				return err
			}
			q, ok := e.catalog.Queue(args[0])
			switch {
			case !ok:
				return unknownQueue(e.catalog, args[0])
			case !q.Enabled:
				return fmt.Errorf("the queue %s does not run here", q.ID)
			case e.repeat < 1:
				return usageError("--repeat: say 1 or more")
			}
			e.queue = q
			file, err := readFile(e.file, command.InOrStdin())
			if err != nil {
				return err
			}
			return repeated(command.Context(), p, e.repeat, func() (func() ([]sent, error), error) {
				return e.send(command.Context(), file)
			})
		},
	}
	flags := command.Flags()
	flags.StringVarP(&e.file, "file", "f", "", "the message to send, - for standard input")
	flags.StringVar(&e.eventType, "type", "", "the event type, where the file does not say it, or of the sample")
	flags.StringVar(&e.eventID, "event-id", "", "the message's id: what is sent again under it is handled once")
	flags.StringVar(&e.key, "key", "", "the ordering key: sets the member of the message that the queue's key is made of")
	flags.StringVar(&e.deliverAt, "deliver-at", "", "not before this time: RFC 3339, or a wait such as 10m")
	flags.StringVar(&e.tenant, "tenant", "", "whose event it is: two tenants may have the same id")
	flags.IntVar(&e.maxAttempts, "max-attempts", 0, "fewer attempts than the queue gives")
	p.webhookFlag(command, &e.base)
	flags.IntVar(&e.repeat, "repeat", 1, "how many messages to send, one after the other")
	return command
}

func (e *enqueueing) send(ctx context.Context, file []byte) (post func() ([]sent, error), err error) {
	body, id, err := e.body(file, time.Now())
	if err != nil {
		return nil, err
	}
	from := e.catalog.Sources[catalog.Producers]
	to := signed{e.base + "/queues/" + url.PathEscape(e.queue.ID) + "/messages", from.Scheme, secretsOf(e.catalog, e.p.getenv)[catalog.Producers][0]}
	return func() (all []sent, err error) {
		answer, err := to.post(ctx, body, time.Now())
		if err != nil {
			return nil, untold(err, id)
		}
		for _, r := range answer.replies {
			one := sent{reply: r}
			if e.queue.Remembers() {
				one.next = []string{"events show " + r.EventID}
			}
			all = append(all, one)
		}
		if answer.list && slices.ContainsFunc(answer.replies, reply.waits) {
			body, err = again(body, answer.replies)
		}
		return all, err
	}, nil
}

func again(body []byte, replies []reply) ([]byte, error) {
	var list map[string][]json.RawMessage
	if err := json.Unmarshal(body, &list); err != nil || len(list[inList]) != len(replies) {
		return nil, fmt.Errorf("send: %d answers to a list of %d messages", len(replies), len(list[inList]))
	}
	left := []json.RawMessage{}
	for i, item := range list[inList] {
		if replies[i].waits() {
			left = append(left, item)
		}
	}
	return json.Marshal(map[string]any{inList: left})
}

type object map[string]json.RawMessage

func (o object) set(name, text string) {
	if text != "" {
		o[name], _ = json.Marshal(text) // a text always marshals
	}
}

func (o object) inside(name string) (in object) {
	_ = json.Unmarshal(o[name], &in) // what is no object has no members
	return in
}

func (e *enqueueing) body(file []byte, now time.Time) (body []byte, id string, err error) {
	if file == nil {
		if file, err = e.sample(now); err != nil {
			return nil, "", err
		}
	} else if !e.changes() {
		return file, "", nil // as it is: what is wrong with it is for the door to say
	}
	var head object
	if err := json.Unmarshal(file, &head); err != nil || head == nil {
		return nil, "", usageError("-f: the file has no JSON object, which the other flags could change")
	}
	if head[inList] != nil {
		return nil, "", usageError("-f: the file has a list, whose items say all themselves; leave the other flags away")
	}
	item, message := object{}, head
	if wrapped := head.inside(inItem); wrapped != nil {
		item, message = head, wrapped
	}
	if err := e.change(message); err != nil {
		return nil, "", err
	}
	if err := e.ask(item, now); err != nil {
		return nil, "", err
	}
	_ = json.Unmarshal(message[e.format().ID], &id) // a file may have none
	if len(item) == 0 {
		body, err = json.Marshal(message)
		return body, id, err
	}
	if item[inItem], err = json.Marshal(message); err == nil {
		body, err = json.Marshal(item)
	}
	return body, id, err
}

// The names of what the door takes around messages.
const (
	inList = "messages"
	inItem = "message"
)

// changes reports whether a flag changes what a file has.
func (e *enqueueing) changes() bool {
	return e.eventType != "" || e.eventID != "" || e.key != "" || e.deliverAt != "" || e.tenant != "" || e.maxAttempts != 0
}

func (e *enqueueing) sample(now time.Time) ([]byte, error) {
	eventType := e.eventType
	if eventType == "" {
		if eventType = samples.TypeFor(e.catalog, e.queue); eventType == "" {
			return nil, usageError(fmt.Sprintf("there is no sample for the queue %s; name a file with -f", e.queue.ID))
		}
	}
	// The message follows from its id, for another one under an id that is used again would be a conflict.
	unique := cmp.Or(strings.TrimPrefix(e.eventID, samples.IDPrefix), strings.ToLower(rand.Text()[:10]))
	return samples.Message(e.catalog, e.queue, eventType, unique, now)
}

func (e *enqueueing) format() contract.Format {
	for _, f := range contract.Formats {
		if f.Name == e.queue.Contract {
			return f
		}
	}
	return contract.Format{}
}

func (e *enqueueing) change(message object) error {
	format := e.format()
	message.set(format.ID, e.eventID)
	message.set(format.Type, e.eventType)
	if e.key == "" {
		return nil
	}
	var eventType string
	_ = json.Unmarshal(message[format.Type], &eventType) // an empty one has no declaration
	place := e.keyed(eventType)
	if place == "" {
		return usageError(fmt.Sprintf("--key: a message of the queue %s has no member that its ordering key is made of", e.queue.ID))
	}
	in := message.inside(format.Content)
	if in == nil { // a raw object: its members become the content
		message.set(place, e.key)
		return nil
	}
	in.set(place, e.key)
	var err error
	message[format.Content], err = json.Marshal(in)
	return err
}

func (e *enqueueing) keyed(eventType string) string {
	for _, declared := range e.catalog.Contracts.Contents(e.queue.Contract, eventType) {
		for _, name := range e.queue.OrderingKey {
			for _, m := range declared.Members {
				if m.Name == name || (name == "subject" && m.Required && m.Shape == "id") {
					return m.Name
				}
			}
		}
	}
	return ""
}

// ask sets what the flags say in an item.
func (e *enqueueing) ask(item object, now time.Time) error {
	item.set("tenant", e.tenant)
	if e.maxAttempts != 0 {
		item["max_attempts"], _ = json.Marshal(e.maxAttempts) // a number always marshals
	}
	if wait, err := time.ParseDuration(e.deliverAt); err == nil {
		item.set("deliver_at", now.Add(wait).UTC().Format(time.RFC3339Nano))
		return nil
	}
	if _, err := time.Parse(time.RFC3339, e.deliverAt); err != nil && e.deliverAt != "" {
		return usageError("--deliver-at: say a time such as 2026-03-01T12:00:00Z, or a wait such as 10m")
	}
	item.set("deliver_at", e.deliverAt)
	return nil
}
