package main

import (
	"cmp"
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
	sending
	queue                             catalog.Queue
	eventType, key, deliverAt, tenant string
	maxAttempts                       int
}

func (p *program) enqueueCommand() *cobra.Command {
	e := &enqueueing{sending: sending{program: p}}
	command := &cobra.Command{
		Use:   "enqueue <queue>",
		Short: "Sign a message as an internal service does, and send it to a queue; without -f a sample with a new id",
		Long: "The file has a message, an item with what is asked for it, or a list of items: what docs/producing.md describes. The secret is\n" +
			"the first of WEBHOOK_SIGNING_SECRET, else the public one that `billhook dev` accepts.",
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) (err error) {
			if e.catalog, err = p.catalog(); err != nil {
				return err
			}
			if e.queue, err = queue(e.catalog, args[0]); err != nil {
				return err
			}
			if !e.queue.Enabled {
				return fmt.Errorf("the queue %s does not run here", e.queue.ID)
			}
			e.source, e.path = e.catalog.Sources[catalog.Producers], "/queues/"+url.PathEscape(e.queue.ID)+"/messages"
			return e.run(command, e.queue.Remembers(), e.body)
		},
	}
	e.flags(command)
	flags := command.Flags()
	flags.StringVar(&e.eventType, "type", "", "the event type, where the file does not say it, or of the sample")
	flags.StringVar(&e.key, "key", "", "the ordering key: sets the member of the message that the queue's key is made of")
	flags.StringVar(&e.deliverAt, "deliver-at", "", "not before this time: RFC 3339, or a wait such as 10m")
	flags.StringVar(&e.tenant, "tenant", "", "whose event it is: two tenants may have the same id")
	flags.IntVar(&e.maxAttempts, "max-attempts", 0, "fewer attempts than the queue gives")
	return command
}

type object map[string]json.RawMessage

// set sets a member that has a value.
func set[V comparable](o object, name string, value V) {
	if value != *new(V) {
		o[name], _ = json.Marshal(value) // a text and a number always marshal
	}
}

func (o object) inside(name string) (in object) {
	_ = json.Unmarshal(o[name], &in) // what is no object has no members
	return in
}

// body is a file, or a sample, with what the flags say. A file that no flag changes is sent as it is: what is wrong with
// it is for the webhook service to say.
func (e *enqueueing) body(file []byte) (body []byte, ids reply, err error) {
	changes := e.eventType != "" || e.eventID != "" || e.key != "" || e.deliverAt != "" || e.tenant != "" || e.maxAttempts != 0
	if file != nil && !changes {
		return file, ids, nil
	}
	if file == nil {
		if file, err = e.sample(time.Now()); err != nil {
			return nil, ids, err
		}
	}
	item, message := object{}, object{}
	if err := json.Unmarshal(file, &item); err != nil || item == nil || item["messages"] != nil {
		return nil, ids, usageError("-f: the file has no single message, which the other flags could change")
	}
	if message = item.inside("message"); message == nil {
		item, message = object{}, item
	}
	if err := e.change(message); err != nil {
		return nil, ids, err
	}
	wait, err := time.ParseDuration(e.deliverAt)
	if err == nil {
		set(item, "deliver_at", time.Now().Add(wait).UTC().Format(time.RFC3339Nano))
	} else if _, err := time.Parse(time.RFC3339, e.deliverAt); err != nil && e.deliverAt != "" {
		return nil, ids, usageError("--deliver-at: say a time such as 2026-03-01T12:00:00Z, or a wait such as 10m")
	} else {
		set(item, "deliver_at", e.deliverAt)
	}
	set(item, "tenant", e.tenant)
	set(item, "max_attempts", e.maxAttempts)
	_ = json.Unmarshal(message[e.format().ID], &ids.EventID) // a file may have none
	if item["message"], err = json.Marshal(message); err != nil {
		return nil, ids, err
	}
	body, err = json.Marshal(item)
	return body, ids, err
}

func (e *enqueueing) sample(now time.Time) ([]byte, error) {
	eventType := cmp.Or(e.eventType, samples.TypeFor(e.catalog, e.queue))
	if eventType == "" {
		return nil, usageError(fmt.Sprintf("there is no sample for the queue %s; name a file with -f", e.queue.ID))
	}
	// The message follows from its id, for another one under an id that is used again would be a conflict.
	unique := cmp.Or(strings.TrimPrefix(e.eventID, samples.IDPrefix), strings.ToLower(rand.Text()[:10]))
	return samples.Message(e.catalog, e.queue, eventType, unique, now)
}

func (e *enqueueing) format() contract.Format {
	i := slices.IndexFunc(contract.Formats, func(f contract.Format) bool { return f.Name == e.queue.Contract })
	return contract.Formats[i]
}

// change sets in a message what the flags say of it.
func (e *enqueueing) change(message object) (err error) {
	format, eventType := e.format(), ""
	set(message, format.ID, e.eventID)
	set(message, format.Type, e.eventType)
	if e.key == "" {
		return nil
	}
	_ = json.Unmarshal(message[format.Type], &eventType) // an empty one has no declaration
	place := e.keyed(eventType)
	if place == "" {
		return usageError(fmt.Sprintf("--key: a message of the queue %s has no member that its ordering key is made of", e.queue.ID))
	}
	in := message.inside(format.Content)
	if in == nil { // a raw object: its members become the content
		set(message, place, e.key)
		return nil
	}
	set(in, place, e.key)
	message[format.Content], err = json.Marshal(in)
	return err
}

// keyed is the member of a message's content that the queue's ordering key is made of; empty: none is.
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
