package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/env"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/signature"
)

// devSecret signs the webhooks of `billhook dev` and `billhook send` where no secret is set. It
// is public: nothing but a stack on this machine accepts it.
const devSecret = "billhook-dev-secret-for-this-machine-only" //nolint:gosec // public, see above

// secretsOf reads the secrets of each source from the environment. Without one it is devSecret.
func secretsOf(c *catalog.Catalog, getenv func(string) string) map[string][]string {
	secrets := map[string][]string{}
	for name, source := range c.Sources {
		secrets[name] = env.Secret(getenv(source.SecretVariable)).List()
		if len(secrets[name]) == 0 {
			secrets[name] = []string{devSecret}
		}
	}
	return secrets
}

type reply struct {
	Status      int    `json:"status"`
	EventID     string `json:"event_id,omitempty"`
	Queue       string `json:"queue,omitempty"`
	MessageID   string `json:"message_id,omitempty"`
	OrderingKey string `json:"ordering_key,omitempty"`
	Ignored     bool   `json:"ignored,omitempty"`
	Reason      string `json:"reason,omitempty"`
	Code        string `json:"code,omitempty"`
	Detail      string `json:"detail,omitempty"`

	Violations []serve.Violation `json:"violations,omitempty"`
	// RetryAfter is in how many seconds the same can be sent again; 0: never.
	RetryAfter int `json:"retry_after,omitempty"`
	// OrderID and CustomerID are ids of a webhook that others take up.
	OrderID    string `json:"order_id,omitempty"`
	CustomerID string `json:"customer_id,omitempty"`
}

type answers struct {
	status int
	// replies are of the items of a list, in their order; else there is one.
	replies []reply
	list    bool
}

// post signs a body as a source does, and posts it.
func post(ctx context.Context, address string, source catalog.Source, secret string, body []byte, at time.Time) (answer answers, err error) {
	signer, err := signature.NewSigner(signature.Scheme(source.Scheme), secret)
	if err != nil {
		return answer, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, http.NoBody)
	if err != nil {
		return answer, fmt.Errorf("send: %w", err)
	}
	headers := signer.SignFor(request.URL.RequestURI(), strconv.FormatInt(at.UnixNano(), 10), body, at)
	headers["Content-Type"] = "application/json"
	status, header, text, err := exchange(ctx, http.MethodPost, address, headers, body)
	if err != nil {
		base := request.URL.Scheme + "://" + request.URL.Host
		return answer, fmt.Errorf("send: %w", nobody(err, base, "--webhook", "BILLHOOK_WEBHOOK", "webhook service"))
	}
	answer.status = status
	var list struct {
		Results []reply `json:"results"`
	}
	if json.Unmarshal(text, &list) == nil && len(list.Results) > 0 {
		answer.replies, answer.list = list.Results, true
		return answer, nil
	}
	var one reply
	if err := json.Unmarshal(text, &one); err != nil {
		return answer, fmt.Errorf("send: the answer to it (%d) is not JSON", answer.status)
	}
	one.Status = answer.status
	if after, err := strconv.Atoi(header.Get("Retry-After")); err == nil {
		one.RetryAfter = after
	}
	answer.replies = []reply{one}
	return answer, nil
}

// sending is what send and enqueue do: sign a file or samples as a source would, and post them.
type sending struct {
	*program
	catalog *catalog.Catalog
	source  catalog.Source
	// file is what -f names, and path where it is posted.
	file, path string
	eventID    string
	repeat     int
}

func (s *sending) flags(command *cobra.Command) {
	command.Flags().StringVarP(&s.file, "file", "f", "", "the body to send, - for standard input")
	command.Flags().StringVar(&s.eventID, "event-id", "", "the id of the event: what is sent again under it is handled once")
	command.Flags().IntVar(&s.repeat, "repeat", 1, "how many to send, one after the other")
	s.webhookFlag(command)
	command.Long += "\n\nWith --repeat each sample has ids of its own. Together with --event-id, or -f, it is the same event each time, which is\n" +
		"handled once. It succeeds only if everything was accepted."
}

// run sends what made makes of the file's content, nil without a file, and prints the answers: that to one request as it
// is, and those to several as a list. made also returns the ids of what it makes, and look says whether an event of it
// can be looked at.
func (s *sending) run(command *cobra.Command, look bool, made func(file []byte) ([]byte, reply, error)) error {
	if s.repeat < 1 {
		return usageError("--repeat: say 1 or more")
	}
	file, err := readFile(s.file, command.InOrStdin())
	if err != nil {
		return err
	}
	all, accepted, requests := []reply{}, 0, 0
	for ; requests < s.repeat && err == nil; requests++ {
		body, ids, failed := made(file)
		if failed != nil {
			return failed
		}
		var answer answers
		answer, err = post(command.Context(), s.env.Webhook+s.path, s.source, secretsOf(s.catalog, s.getenv)[s.source.Name][0], body, time.Now())
		if err != nil && ids.EventID != "" {
			err = fmt.Errorf("%w; whether it was taken is not known: send it again with --event-id %s", err, ids.EventID)
		}
		for _, r := range answer.replies {
			if r.OrderID, r.CustomerID = ids.OrderID, ids.CustomerID; r.Status < http.StatusBadRequest {
				accepted++
			}
			s.printReply(r)
			all = append(all, r)
		}
	}
	if err == nil && accepted < len(all) {
		err = fmt.Errorf("%d of %d were refused", len(all)-accepted, len(all))
	}
	if len(all) == 1 && s.repeat == 1 {
		if look && err == nil && !all[0].Ignored {
			s.printf("  > bin/billhook events show %s\n", cmp.Or(all[0].EventID, s.eventID))
		}
		return errors.Join(err, s.printJSON(all[0]))
	}
	s.printf("%d were accepted, %d refused.\n", accepted, len(all)-accepted)
	return errors.Join(err, s.printJSON(map[string]any{"items": all, "next": ""}))
}

func (p *program) printReply(r reply) {
	about := fmt.Sprintf("event %s  queue %s  message %s  key %s", cmp.Or(r.EventID, "-"), cmp.Or(r.Queue, r.Reason, "-"), cmp.Or(r.MessageID, "-"), cmp.Or(r.OrderingKey, "-"))
	if r.Code != "" {
		about = r.Code + ": " + r.Detail
	}
	if r.RetryAfter > 0 {
		about += fmt.Sprintf(" Send it again in %d s.", r.RetryAfter)
	}
	p.printf("%d  %s\n", r.Status, about)
	for _, v := range r.Violations {
		p.printf("     %s\n", audit.Escape(v.Path+": "+v.Rule))
	}
}

func (p *program) sendCommand() *cobra.Command {
	s := &sending{program: p}
	var sample string
	var of samples.Event
	command := &cobra.Command{
		Use:   "send <source>",
		Short: "Sign a webhook as its provider does, and post it; without -f a sample with new ids",
		Long: "The secret is the first of the source's variable (such as WEBHOOK_SECRET_PAYNOW), else the public one that\n" +
			"`billhook dev` accepts. A refund and a chargeback are about an order that was sent before: name it with --order.",
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) (err error) {
			if s.catalog, err = p.catalog(); err != nil {
				return err
			}
			if err := errors.Join(oneOf(slices.Sorted(maps.Keys(s.catalog.Sources)), &args[0]), oneOf(samples.Names(), &sample)); err != nil {
				return usageError(err.Error())
			}
			s.source, s.path, of.EventID = s.catalog.Sources[args[0]], "/webhooks/"+args[0], s.eventID
			for _, name := range []string{"sample", "event-id", "order", "customer", "uid"} {
				if s.file != "" && command.Flags().Changed(name) {
					return usageError(fmt.Sprintf("--%s: a file has its own; it goes without -f", name))
				}
			}
			if s.file == "" && s.source.Scheme != catalog.SchemePayNow {
				return usageError("there is no sample for this source; name a file with -f")
			}
			return s.run(command, s.file == "", func(file []byte) ([]byte, reply, error) {
				if file != nil {
					return file, reply{}, nil
				}
				body, ids := made(sample, of, time.Now())
				return body, ids, nil
			})
		},
	}
	s.flags(command)
	flags := command.Flags()
	flags.StringVar(&sample, "sample", samples.OrderCompleted, "which sample to send without -f: "+strings.Join(samples.Names(), ", "))
	_ = command.RegisterFlagCompletionFunc("sample", cobra.FixedCompletions(samples.Names(), cobra.ShellCompDirectiveNoFileComp)) // it is there
	flags.StringVar(&of.OrderID, "order", "", "the id of the sample's order, instead of a new one; of a refund or a chargeback that of the order that it takes back")
	flags.StringVar(&of.CustomerID, "customer", "", "the sample's customer")
	flags.StringVar(&of.UID, "uid", "", "the sample's user")
	return command
}

// made makes a sample's body, and returns its ids. What the person has not named is new, but for the customer and the
// user. The new ids follow from the event's, for another body under an id that is used again would be a conflict.
func made(sample string, of samples.Event, at time.Time) (body []byte, ids reply) {
	of.EventID = cmp.Or(of.EventID, strconv.FormatInt(at.UnixMicro(), 10)+"1")
	of.OrderID, of.SubscriptionID = cmp.Or(of.OrderID, of.EventID+"2"), of.EventID+"3"
	body, ids.EventID = samples.Read(sample, of), of.EventID
	if bytes.Contains(body, []byte(of.OrderID)) {
		ids.OrderID, ids.CustomerID = of.OrderID, of.CustomerID
	}
	return body, ids
}

type enqueueing struct {
	sending
	queue                     catalog.Queue
	eventType, key, deliverAt string
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
	return command
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

// body is a file, or a sample, with what the flags say. A file that no flag changes is sent as it is: what is wrong with
// it is for the webhook service to say.
func (e *enqueueing) body(file []byte) (body []byte, ids reply, err error) {
	changes := e.eventType != "" || e.eventID != "" || e.key != "" || e.deliverAt != ""
	if file != nil && !changes {
		return file, ids, nil
	}
	if file == nil {
		if file, err = e.sample(time.Now()); err != nil {
			return nil, ids, err
		}
	}
	var item object
	if err := json.Unmarshal(file, &item); err != nil || item == nil || item["messages"] != nil {
		return nil, ids, usageError("-f: the file has no single message, which the other flags could change")
	}
	message := item.inside("message")
	if message == nil {
		item, message = object{}, item
	}
	if err := e.change(message); err != nil {
		return nil, ids, err
	}
	wait, err := time.ParseDuration(e.deliverAt)
	if err == nil {
		item.set("deliver_at", time.Now().Add(wait).UTC().Format(time.RFC3339Nano))
	} else if _, err := time.Parse(time.RFC3339, e.deliverAt); err != nil && e.deliverAt != "" {
		return nil, ids, usageError("--deliver-at: say a time such as 2026-03-01T12:00:00Z, or a wait such as 10m")
	} else {
		item.set("deliver_at", e.deliverAt)
	}
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
	message.set(format.ID, e.eventID)
	message.set(format.Type, e.eventType)
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
		message.set(place, e.key)
		return nil
	}
	in.set(place, e.key)
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
