package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/catalog"
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
	// RetryAfter is in how many seconds the same is to be sent again; 0: not again.
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
	one.RetryAfter, _ = strconv.Atoi(header.Get("Retry-After")) // without the header it is 0
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
		"handled once. Where the webhook service asks to come again later (Retry-After), the command waits so long and sends the same\n" +
		"again, until it is accepted or the command is stopped. It succeeds only if everything was accepted."
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
		answer, err = s.patiently(command.Context(), body, ids.EventID)
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

// patiently posts, and posts again as long as the answer asks for a wait. id is the event's, where it is known.
func (s *sending) patiently(ctx context.Context, body []byte, id string) (answers, error) {
	secret := secretsOf(s.catalog, s.getenv)[s.source.Name][0]
	for {
		answer, err := post(ctx, s.env.Webhook+s.path, s.source, secret, body, time.Now())
		if err != nil && id != "" {
			err = fmt.Errorf("%w; whether it was taken is not known: send it again with --event-id %s", err, id)
		}
		if err != nil || answer.list || answer.replies[0].RetryAfter == 0 {
			return answer, err
		}
		later := answer.replies[0]
		s.printf("%d  %s: %s\n     Sending it again in %d s.\n", later.Status, later.Code, later.Detail, later.RetryAfter)
		select {
		case <-s.after(time.Duration(later.RetryAfter) * time.Second):
		case <-ctx.Done():
			return answers{}, fmt.Errorf("stopped before everything was sent: the last answer was %d %s", later.Status, later.Code)
		}
	}
}

func (p *program) printReply(r reply) {
	about := fmt.Sprintf("event %s  queue %s  message %s  key %s", cmp.Or(r.EventID, "-"), cmp.Or(r.Queue, r.Reason, "-"), cmp.Or(r.MessageID, "-"), cmp.Or(r.OrderingKey, "-"))
	if r.Code != "" {
		about = r.Code + ": " + r.Detail
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
