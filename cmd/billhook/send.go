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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/ingest/importer"
	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pii"
	"billhook/internal/platform/env"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/signature"
)

// devSecret signs webhooks if no secret is set. It is public: only a stack on this machine accepts it.
const devSecret = "billhook-dev-secret-for-this-machine-only" //nolint:gosec // public, see above

// secrets returns the secrets in an environment variable, else devSecret.
func (p *program) secrets(variable string) []string {
	if given := env.Secret(p.getenv(variable)).List(); len(given) > 0 {
		return given
	}
	return []string{devSecret}
}

// sent has the answers to all messages.
type sent struct {
	Accepted int               `json:"accepted" show:"Accepted"`
	Refused  int               `json:"refused" show:"Refused"`
	Items    []importer.Result `json:"items" show:"Answers"`
}

// ingest returns a client of the webhook service that signs with a secret.
func (p *program) ingest(scheme signature.Scheme, secret string) (*importer.HTTPIngest, error) {
	if at, err := url.Parse(p.env.Webhook); err != nil || at.Host == "" {
		return nil, usageError("--webhook: %q is no address of a webhook service, such as http://127.0.0.1:8080",
			p.env.Webhook)
	}
	signer, err := signature.NewSigner(scheme, secret)
	client := &http.Client{Timeout: 30 * time.Second}
	return &importer.HTTPIngest{
		Base: strings.TrimSuffix(p.env.Webhook, "/"), Signer: signer, Client: client, Now: time.Now,
	}, err
}

// post signs a body as a source does, with secret or else the source's own, and posts it. It returns a result
// for each item of a list, in order.
func (p *program) post(
	ctx context.Context, c *catalog.Catalog, path string, source catalog.Source, secret string, body []byte,
) ([]importer.Result, error) {
	to, err := p.ingest(c.Signature(source), cmp.Or(secret, p.secrets(source.SecretVariable)[0]))
	if err != nil {
		return nil, err
	}
	answer, err := to.Post(ctx, path, strconv.FormatInt(time.Now().UnixNano(), 10), body)
	switch {
	case err != nil:
		err = nobody(err, p.env.Webhook, "--webhook", "BILLHOOK_WEBHOOK", "webhook service")
		return nil, fmt.Errorf("send: %w", err)
	case answer.Unread:
		return nil, fmt.Errorf("send: the answer to it (%d) is not JSON", answer.Status)
	case len(answer.Results) > 0:
		return answer.Results, nil
	default:
		return []importer.Result{answer.Result}, nil
	}
}

// sending has the flags of commands that sign a file or samples as a source does, and post them.
type sending struct {
	File    string `json:"-" query:"file" help:"the body to send, - for standard input"`
	EventID string `json:"-" query:"event-id" help:"the sample's id: what is sent again under it is handled once"`
	Repeat  int    `json:"-" query:"repeat" default:"1" help:"how many to send, one after the other"`
}

// post posts the bodies that made returns, with the id of a sample's event.
func (s sending) post(
	ctx context.Context, p *program, c *catalog.Catalog, source catalog.Source, path string,
	made func() (body []byte, id string, err error),
) (sent, error) {
	all := sent{Items: []importer.Result{}}
	for range s.Repeat {
		body, id, err := made()
		if err != nil {
			return sent{}, err
		}
		replies, err := p.post(ctx, c, path, source, "", body)
		if err != nil && id != "" && serve.ExitCode(err) != misused { // it was sent
			err = fmt.Errorf("%w; whether it was taken is not known: send it again with --event-id %s", err, id)
		}
		if err != nil {
			return all, err
		}
		for _, r := range replies {
			if r.Status < http.StatusBadRequest {
				all.Accepted++
			} else {
				all.Refused++
			}
		}
		all.Items = append(all.Items, replies...)
	}
	if all.Refused > 0 {
		return all, fmt.Errorf("%d of %d were refused", all.Refused, len(all.Items))
	}
	return all, nil
}

type sendFlags struct {
	Source   string `json:"-" query:"source" arg:"source" validate:"required"`
	Sample   string `json:"-" query:"sample" default:"order_completed" help:"which sample to send without -f, such as refund"`
	Order    string `json:"-" query:"order" help:"the id of the sample's order, instead of a new one; of a refund or a chargeback that of the order that it takes back"`
	Customer string `json:"-" query:"customer" help:"the sample's customer"`
	UID      string `json:"-" query:"uid" help:"the sample's user"`
	sending
}

func (p *program) send() {
	command := ofCatalog(p, console.Row{Name: "send"},
		func(ctx context.Context, c *catalog.Catalog, in sendFlags) (sent, error) {
			body, unread := p.readFile(in.File)
			unknown := oneOf(slices.Sorted(maps.Keys(c.Sources)), &in.Source)
			if err := errors.Join(unread, unknown, oneOf(samples.Names(), &in.Sample)); err != nil {
				return sent{}, err
			}
			source := c.Sources[in.Source]
			if body == nil && source.Scheme != samples.Provider {
				return sent{}, usageError("there is no sample for this source; name a file with -f")
			}
			if kind, personal := pii.Detect(pii.UID, in.UID); personal {
				p.warn("--uid is personal data (%s): it is left out, and the customer is credited.", kind)
			}
			return in.post(ctx, p, c, source, "/webhooks/"+in.Source, func() ([]byte, string, error) {
				if body != nil {
					return body, "", nil
				}
				// The other ids are derived from the event's: under a repeated id another body would be a conflict.
				id := cmp.Or(in.EventID, strconv.FormatInt(time.Now().UnixMicro(), 10)+"1")
				event := samples.Event{EventID: id, SubscriptionID: id + "3", CustomerID: in.Customer, UID: in.UID}
				event.OrderID = cmp.Or(in.Order, id+"2")
				return samples.Read(in.Sample, event), id, nil
			})
		})
	ofSamples(command, "sample", "order", "customer", "uid", "event-id")
}

// ofSamples excludes the flags of samples if a file is given.
func ofSamples(command *cobra.Command, flags ...string) {
	for _, name := range flags {
		command.MarkFlagsMutuallyExclusive("file", name)
	}
}

type enqueueFlags struct {
	Queue     string `json:"-" query:"to" arg:"queue" validate:"required"`
	Type      string `json:"-" query:"type" help:"the sample's event type"`
	Key       string `json:"-" query:"key" help:"the sample's ordering key: sets the member of the message that the queue's key is made of"`
	DeliverAt string `json:"-" query:"deliver-at" help:"not before this time: RFC 3339, or a wait such as 10m"`
	sending
}

func (p *program) enqueue() {
	command := ofCatalog(p, console.Row{Name: "enqueue"},
		func(ctx context.Context, c *catalog.Catalog, in enqueueFlags) (sent, error) {
			given, unread := p.readFile(in.File)
			q, err := queue(c, in.Queue)
			if err == nil && !q.Enabled {
				err = fmt.Errorf("the queue %s does not run here", q.ID)
			}
			if err = errors.Join(unread, err); err != nil {
				return sent{}, err
			}
			path := "/queues/" + url.PathEscape(q.ID) + "/messages"
			return in.post(ctx, p, c, c.Sources[catalog.Producers], path, func() (body []byte, id string, err error) {
				if body = given; body == nil {
					body, id, err = sample(c, q, cmp.Or(in.Type, samples.TypeFor(c, q)), in.EventID, in.Key)
				}
				if err == nil && in.DeliverAt != "" {
					body, err = delayed(body, in.DeliverAt)
				}
				return body, id, err
			})
		})
	ofSamples(command, "type", "key", "event-id")
}

// sample returns a message for a queue, made from its id: under a repeated id another would be a conflict.
func sample(c *catalog.Catalog, q catalog.Queue, eventType, id, key string) ([]byte, string, error) {
	if eventType == "" {
		return nil, "", usageError("there is no sample for the queue %s; name a file with -f", q.ID)
	}
	id = cmp.Or(id, samples.IDPrefix+strings.ToLower(rand.Text()[:10]))
	body, err := samples.Keyed(c, q, eventType, id, key, time.Now())
	if errors.Is(err, samples.ErrNoKey) {
		err = usageError("--key: a message of the queue %s has no member that its ordering key is made of", q.ID)
	}
	return body, id, err
}

// delayed returns a message, or an item with one, with a time of delivery: a time, or a wait from now.
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

type ofProvider struct {
	Provider string `json:"-" query:"provider" arg:"provider" validate:"required"`
}

func (o ofProvider) provider(c *catalog.Catalog) (catalog.Provider, error) {
	err := oneOf(slices.Sorted(maps.Keys(c.Providers)), &o.Provider)
	return c.Providers[o.Provider], err
}

type tryFlags struct {
	ofProvider
	File string `json:"-" query:"file" validate:"required" help:"the body of a webhook, - for standard input"`
	Read string `json:"-" query:"read" help:"what the provider's API says of it, in a file, where the event reads there"`
}

// listening says where dev accepts a provider's webhooks, and how to forward them there.
type listening struct {
	URL   string   `json:"url"`
	Steps []string `json:"steps"`
}

func (p *program) providers() {
	ofCatalog(p, console.Row{Name: "providers try"},
		func(_ context.Context, c *catalog.Catalog, in tryFlags) (trial webhook.Trial, err error) {
			of, unknown := in.provider(c)
			body, unread := p.readFile(in.File)
			read, err := p.readFile(in.Read)
			if err = errors.Join(unknown, unread, err); err != nil {
				return trial, err
			}
			if in.Read != "" {
				body = webhook.Beside(body, read)
			}
			made, err := webhook.Try(c, of, body, time.Now)
			if err != nil {
				return trial, fmt.Errorf("the webhook would be refused: %w", err)
			}
			return *made, nil
		})
	ofCatalog(p, console.Row{Name: "listen"},
		func(_ context.Context, c *catalog.Catalog, in ofProvider) (said listening, err error) {
			of, err := in.provider(c)
			if err != nil {
				return said, err
			}
			source, declaration := c.SourceOf(of)
			if declaration != "" {
				said.Steps = append(said.Steps, "Add to catalog/sources.yaml, under sources:\n"+declaration)
			}
			path := "/webhooks/" + source.Name
			said.URL = p.env.Webhook + path
			said.Steps = append(said.Steps,
				"Start dev with the provider's secret: "+
					"CATALOG_DIR=catalog "+source.SecretVariable+"=... bin/billhook dev",
				"Have a tunnel of yours lead to "+p.env.Webhook+", such as: cloudflared tunnel --url "+p.env.Webhook)
			urls := strings.NewReplacer("{url}", "https://<your tunnel>"+path, "{local}", said.URL)
			for _, step := range of.Setup {
				said.Steps = append(said.Steps, urls.Replace(step))
			}
			said.Steps = append(said.Steps, "See what came: bin/billhook events ls")
			p.printf("dev takes the webhooks of %s at %s\n\n", of.Name, said.URL)
			for i, step := range said.Steps {
				p.printf("%d. %s\n", i+1, laidOut(step))
			}
			return said, nil
		})
}
