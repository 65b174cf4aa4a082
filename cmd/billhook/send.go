package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pii"
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

// reply is what the webhook service answers to one message.
type reply struct {
	Status      int    `json:"status" show:"Status"`
	EventID     string `json:"event_id,omitempty" show:"Event"`
	Queue       string `json:"queue,omitempty" show:"Queue"`
	MessageID   string `json:"message_id,omitempty" show:"Message,less"`
	OrderingKey string `json:"ordering_key,omitempty" show:"Key,less"`
	Ignored     bool   `json:"ignored,omitempty"`
	Reason      string `json:"reason,omitempty"`
	Code        string `json:"code,omitempty" show:"Refused"`
	Detail      string `json:"detail,omitempty"`
	// RetryAfter is in how many seconds the same can be sent again; 0: never.
	RetryAfter int               `json:"retry_after,omitempty"`
	Violations []serve.Violation `json:"violations,omitempty"`
}

func (r reply) Notes() (notes []string) {
	if r.Detail != "" {
		notes = append(notes, r.Code+": "+r.Detail)
	}
	if r.RetryAfter > 0 {
		notes = append(notes, fmt.Sprintf("Send it again in %d s.", r.RetryAfter))
	}
	if r.Ignored {
		notes = append(notes, "Ignored: "+r.Reason)
	}
	for _, v := range r.Violations {
		notes = append(notes, v.Path+": "+v.Rule)
	}
	return notes
}

// sent is what was answered to all messages.
type sent struct {
	Accepted int     `json:"accepted" show:"Accepted"`
	Refused  int     `json:"refused" show:"Refused"`
	Items    []reply `json:"items" show:"Answers"`
}

func (s sent) Failure() string {
	if s.Refused == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d were refused", s.Refused, len(s.Items))
}

// post signs a body as a source does, and posts it. A list has a reply for each of its items, in their order.
func post(ctx context.Context, c *catalog.Catalog, address string, source catalog.Source, secret string, body []byte) ([]reply, error) {
	signer, err := signature.NewSigner(c.Signature(source), secret)
	if err != nil {
		return nil, err
	}
	to, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	now := time.Now()
	headers := signer.SignFor(to.RequestURI(), strconv.FormatInt(now.UnixNano(), 10), body, now)
	headers["Content-Type"] = "application/json"
	status, header, text, err := exchange(ctx, http.MethodPost, address, headers, body)
	if err != nil {
		base := to.Scheme + "://" + to.Host
		return nil, fmt.Errorf("send: %w", nobody(err, base, "--webhook", "BILLHOOK_WEBHOOK", "webhook service"))
	}
	var answer struct {
		reply
		Results []reply `json:"results"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("send: the answer to it (%d) is not JSON", status)
	}
	if len(answer.Results) > 0 {
		return answer.Results, nil
	}
	answer.Status = status
	if after, err := strconv.Atoi(header.Get("Retry-After")); err == nil {
		answer.RetryAfter = after
	}
	return []reply{answer.reply}, nil
}

// sending is what send and enqueue do: sign a file or samples as a source would, and post them.
type sending struct {
	*program
	eventID string
	repeat  int
}

// flags adds the flags. Those that say what is in a sample go without a file.
func (s *sending) flags(command *cobra.Command, file *string, ofSamples ...string) {
	command.Args = cobra.ExactArgs(1)
	command.Flags().StringVarP(file, "file", "f", "", "the body to send, - for standard input")
	command.Flags().StringVar(&s.eventID, "event-id", "", "the sample's id: what is sent again under it is handled once")
	command.Flags().IntVar(&s.repeat, "repeat", 1, "how many to send, one after the other")
	s.webhookFlag(command)
	for _, name := range append(ofSamples, "event-id") {
		command.MarkFlagsMutuallyExclusive("file", name)
	}
}

// run posts what made returns, with the id that its event has, and prints the answers.
func (s *sending) run(ctx context.Context, c *catalog.Catalog, source catalog.Source, path string, made func() ([]byte, string, error)) error {
	all := sent{Items: []reply{}}
	for range s.repeat {
		body, id, err := made()
		if err != nil {
			return err
		}
		replies, err := post(ctx, c, s.env.Webhook+path, source, secretsOf(c, s.getenv)[source.Name][0], body)
		if err != nil && id != "" {
			err = fmt.Errorf("%w; whether it was taken is not known: send it again with --event-id %s", err, id)
		}
		if err != nil {
			return errors.Join(err, show(s.program, all))
		}
		for _, r := range replies {
			if r.Status < http.StatusBadRequest {
				all.Accepted++
			}
		}
		all.Items = append(all.Items, replies...)
		all.Refused = len(all.Items) - all.Accepted
	}
	return show(s.program, all)
}

func (p *program) sendCommand() *cobra.Command {
	s, file := &sending{program: p}, ""
	var of samples.Event
	command := &cobra.Command{
		Use:   "send <source>",
		Short: "Sign a webhook as its provider does, and post it; without -f a sample with new ids",
		Long: "The secret is the first of the source's variable (such as WEBHOOK_SIGNING_SECRET), else the public one that\n" +
			"`billhook dev` accepts. A refund and a chargeback are about an order that was sent before: name it with --order.\n" +
			"With --repeat each sample has ids of its own; together with --event-id it is the same event each time.",
		RunE: func(command *cobra.Command, args []string) error {
			c, err := p.catalog()
			if err != nil {
				return err
			}
			if err := oneOf(slices.Sorted(maps.Keys(c.Sources)), &args[0]); err != nil {
				return err
			}
			source := c.Sources[args[0]]
			body, err := readFile(file, command.InOrStdin())
			if err == nil && body == nil && source.Scheme != samples.Provider {
				err = usageError("there is no sample for this source; name a file with -f")
			}
			if err != nil {
				return err
			}
			if kind, personal := pii.Detect(pii.UID, of.UID); personal {
				p.warn("--uid is personal data (%s): the webhook service leaves it out, and the customer is credited.", kind)
			}
			return s.run(command.Context(), c, source, "/webhooks/"+args[0], func() ([]byte, string, error) {
				if body != nil {
					return body, "", nil
				}
				// The other new ids follow from the event's: another body under an id that is used again would be a conflict.
				event := of
				event.EventID = cmp.Or(s.eventID, strconv.FormatInt(time.Now().UnixMicro(), 10)+"1")
				event.OrderID, event.SubscriptionID = cmp.Or(of.OrderID, event.EventID+"2"), event.EventID+"3"
				return samples.Read(command.Flag("sample").Value.String(), event), event.EventID, nil
			})
		},
	}
	flag(command, console.Field{
		Name: "sample", Help: "which sample to send without -f: " + strings.Join(samples.Names(), ", "),
		OneOf: samples.Names(), Standard: samples.OrderCompleted, Type: reflect.TypeFor[string](),
	})
	flags := command.Flags()
	flags.StringVar(&of.OrderID, "order", "", "the id of the sample's order, instead of a new one; of a refund or a chargeback that of the order that it takes back")
	flags.StringVar(&of.CustomerID, "customer", "", "the sample's customer")
	flags.StringVar(&of.UID, "uid", "", "the sample's user")
	s.flags(command, &file, "sample", "order", "customer", "uid")
	return command
}

func (p *program) enqueueCommand() *cobra.Command {
	s, file := &sending{program: p}, ""
	var eventType, key, deliverAt string
	command := &cobra.Command{
		Use:   "enqueue <queue>",
		Short: "Sign a message as an internal service does, and send it to a queue; without -f a sample with a new id",
		Long: "The file has a message, an item with what is asked for it, or a list of items: what docs/producing.md describes. The secret is\n" +
			"the first of WEBHOOK_SIGNING_SECRET, else the public one that `billhook dev` accepts. With --repeat each sample has an id of\n" +
			"its own; together with --event-id it is the same event each time.",
		RunE: func(command *cobra.Command, args []string) error {
			c, err := p.catalog()
			if err != nil {
				return err
			}
			q, err := queue(c, args[0])
			if err == nil && !q.Enabled {
				err = fmt.Errorf("the queue %s does not run here", q.ID)
			}
			if err != nil {
				return err
			}
			given, err := readFile(file, command.InOrStdin())
			if err != nil {
				return err
			}
			path := "/queues/" + url.PathEscape(q.ID) + "/messages"
			return s.run(command.Context(), c, c.Sources[catalog.Producers], path, func() (body []byte, id string, err error) {
				if body = given; body == nil {
					body, id, err = sample(c, q, cmp.Or(eventType, samples.TypeFor(c, q)), s.eventID, key)
				}
				if err == nil && deliverAt != "" {
					body, err = delayed(body, deliverAt)
				}
				return body, id, err
			})
		},
	}
	flags := command.Flags()
	flags.StringVar(&eventType, "type", "", "the sample's event type")
	flags.StringVar(&key, "key", "", "the sample's ordering key: sets the member of the message that the queue's key is made of")
	flags.StringVar(&deliverAt, "deliver-at", "", "not before this time: RFC 3339, or a wait such as 10m")
	s.flags(command, &file, "type", "key")
	return command
}

// sample is a message for a queue. It follows from its id: another one under an id that is used again would be a conflict.
func sample(c *catalog.Catalog, q catalog.Queue, eventType, eventID, key string) (body []byte, id string, err error) {
	if eventType == "" {
		return nil, "", usageError(fmt.Sprintf("there is no sample for the queue %s; name a file with -f", q.ID))
	}
	unique := cmp.Or(strings.TrimPrefix(eventID, samples.IDPrefix), strings.ToLower(rand.Text()[:10]))
	if body, err = samples.Message(c, q, eventType, unique, time.Now()); err != nil {
		return nil, "", err
	}
	var message map[string]any
	if err := json.Unmarshal(body, &message); err != nil {
		return nil, "", err
	}
	format := contract.Formats[slices.IndexFunc(contract.Formats, func(f contract.Format) bool { return f.Name == q.Contract })]
	if eventID != "" {
		message[format.ID] = eventID
	}
	if key != "" {
		content, _ := message[format.Content].(map[string]any)
		member := keyMember(c, q, eventType)
		if content == nil || member == "" {
			return nil, "", usageError(fmt.Sprintf("--key: a message of the queue %s has no member that its ordering key is made of", q.ID))
		}
		content[member] = key
	}
	body, err = json.Marshal(message)
	return body, fmt.Sprint(message[format.ID]), err
}

// keyMember is the member of a message's content that the queue's ordering key is made of; empty: none is.
func keyMember(c *catalog.Catalog, q catalog.Queue, eventType string) string {
	for _, declared := range c.Contracts.Contents(q.Contract, eventType) {
		for _, name := range q.OrderingKey {
			for _, m := range declared.Members {
				if m.Name == name || (name == "subject" && m.Required && m.Shape == "id") {
					return m.Name
				}
			}
		}
	}
	return ""
}

// delayed is a message, or an item with one, that is to be handled at a time, or after a wait.
func delayed(message []byte, at string) ([]byte, error) {
	when, err := time.Parse(time.RFC3339, at)
	if wait, failed := time.ParseDuration(at); failed == nil {
		when, err = time.Now().Add(wait), nil
	}
	if err != nil {
		return nil, usageError("--deliver-at: say a time such as 2026-03-01T12:00:00Z, or a wait such as 10m")
	}
	var item map[string]json.RawMessage
	if err := json.Unmarshal(message, &item); err != nil || item["messages"] != nil {
		return nil, usageError("--deliver-at: the file has no single message")
	}
	if item["message"] == nil {
		item = map[string]json.RawMessage{"message": message}
	}
	item["deliver_at"], _ = json.Marshal(when.UTC()) // a time always marshals
	return json.Marshal(item)
}
