package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/catalog"
	"billhook/internal/compose/devstack"
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

// targetsOf reads where the targets are, and what signs as secretsOf does. The stand-in serves those
// without an address.
func targetsOf(c *catalog.Catalog, getenv func(string) string) map[string]devstack.Address {
	places := map[string]devstack.Address{}
	for name, target := range c.Targets {
		secrets := append(env.Secret(getenv(target.SecretVariable)).List(), devSecret)
		places[name] = devstack.Address{URL: getenv(target.URLVariable), Secret: secrets[0]}
	}
	return places
}

// realTargets are the variables that lead a target elsewhere than to the stand-in, with their addresses.
func realTargets(c *catalog.Catalog, getenv func(string) string) map[string]string {
	found := map[string]string{}
	for _, target := range c.TargetsOf("") {
		if at := getenv(target.URLVariable); at != "" {
			found[target.URLVariable] = at
		}
	}
	return found
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
}

// waits reports whether the same is to be sent again, later.
func (r reply) waits() bool { return r.RetryAfter > 0 }

func post(ctx context.Context, base string, source catalog.Source, secret string, body []byte, at time.Time) (reply, error) {
	answer, err := signed{base + "/webhooks/" + source.Name, source.Scheme, secret}.post(ctx, body, at)
	if err != nil {
		return reply{}, err
	}
	return answer.replies[0], nil
}

type signed struct {
	url    string
	scheme catalog.Scheme
	secret string
}

type answers struct {
	status int
	// replies are of the items of a list, in their order; else there is one.
	replies []reply
	list    bool
}

func (s signed) post(ctx context.Context, body []byte, at time.Time) (answer answers, err error) {
	signer, err := signature.NewSigner(signature.Scheme(s.scheme), s.secret)
	if err != nil {
		return answer, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return answer, fmt.Errorf("send: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	for name, value := range signer.SignFor(request.URL.RequestURI(), strconv.FormatInt(at.UnixNano(), 10), body, at) {
		request.Header.Set(name, value)
	}
	status, header, text, err := exchange(&http.Client{Timeout: 30 * time.Second}, request)
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

var takesBack = []string{samples.Refund, samples.RefundPartial, samples.Chargeback}

type sending struct {
	p                      *program
	source                 catalog.Source
	file, sample, base, of string
	event                  samples.Event
	repeat                 int
}

func (p *program) sendCommand() *cobra.Command {
	s := &sending{p: p}
	command := &cobra.Command{
		Use:   "send <source>",
		Short: "Sign a webhook as its provider does, and post it; without -f a sample with new ids",
		Long: "The secret is the first of the source's variable (such as WEBHOOK_SECRET_PAYNOW), else the public one that\n" +
			"`billhook dev` accepts.\n\n" +
			"A refund and a chargeback are about an order that was sent before: name it with --of. With --repeat each webhook has ids\n" +
			"of its own. Together with --event-id, or -f, it is the same webhook each time, as a provider sends one that it had no\n" +
			"answer to.\n\n" + waitsLong,
		Example: "  billhook send paynow\n" +
			"  billhook send paynow --order 502113004410999001 --uid some-user\n" +
			"  billhook send paynow --sample refund --of 502113004410999001\n" +
			"  billhook send paynow --repeat 100 --json",
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			c, err := p.catalog()
			if err != nil {
				return err
			}
			var ok bool
			if s.source, ok = c.Sources[args[0]]; !ok {
				return usageError(fmt.Sprintf("the catalog has no source %q%s", args[0], meant(args[0], slices.Sorted(maps.Keys(c.Sources)))))
			}
			if err := s.check(command); err != nil {
				return err
			}
			file, err := readFile(s.file, command.InOrStdin())
			if err != nil {
				return err
			}
			secret := secretsOf(c, p.getenv)[s.source.Name][0]
			return repeated(command.Context(), p, s.repeat, func() (func() ([]sent, error), error) {
				var one sent
				body := file
				if body == nil {
					body = s.made(time.Now(), &one)
				}
				return func() ([]sent, error) {
					answer, err := post(command.Context(), s.base, s.source, secret, body, time.Now())
					if err != nil {
						return nil, untold(err, one.EventID)
					}
					if one.reply = answer; answer.Ignored {
						one.next = nil
					} else if one.EventID != "" {
						one.next = append([]string{"events show " + one.EventID}, one.next...)
					}
					return []sent{one}, nil
				}, nil
			})
		},
	}
	flags := command.Flags()
	flags.StringVarP(&s.file, "file", "f", "", "the body to send, - for standard input")
	flags.StringVar(&s.sample, "sample", samples.OrderCompleted, "which sample to send without -f: "+strings.Join(samples.Names(), ", "))
	_ = command.RegisterFlagCompletionFunc("sample", cobra.FixedCompletions(samples.Names(), cobra.ShellCompDirectiveNoFileComp)) // it is there
	p.webhookFlag(command, &s.base)
	flags.StringVar(&s.event.EventID, "event-id", "", "the sample's event id, instead of a new one")
	flags.StringVar(&s.event.OrderID, "order", "", "the id of the sample's order, instead of a new one")
	flags.StringVar(&s.of, "of", "", "the id of an order sent before, which a refund or a chargeback takes back")
	flags.StringVar(&s.event.CustomerID, "customer", "", "the sample's customer")
	flags.StringVar(&s.event.UID, "uid", "", "the sample's user")
	flags.IntVar(&s.repeat, "repeat", 1, "how many webhooks to send, one after the other")
	return command
}

func (s *sending) check(command *cobra.Command) error {
	back := slices.Contains(takesBack, s.sample)
	if err := oneOf(samples.Names(), &s.sample); err != nil {
		return usageError("--sample: " + err.Error())
	}
	switch given := command.Flags().Changed; {
	case s.repeat < 1:
		return usageError("--repeat: say 1 or more")
	case s.file != "":
		for _, name := range []string{"sample", "event-id", "order", "of", "customer", "uid"} {
			if given(name) {
				return usageError(fmt.Sprintf("--%s: a file has its own; it goes without -f", name))
			}
		}
	case s.source.Scheme != catalog.SchemePayNow:
		return usageError("there is no sample for this source; name a file with -f")
	case given("of") && given("order"):
		return usageError("--of and --order: name the order once")
	case given("of") && !back:
		return usageError(fmt.Sprintf("--of: the sample %s takes no order back; those that do are %s", s.sample, strings.Join(takesBack, ", ")))
	}
	return nil
}

// made makes a sample's body and notes its ids. What the person has not named is new, but for the
// customer and the user. The new ids follow from the event's, for another body under an id that is
// used again would be a conflict.
func (s *sending) made(at time.Time, one *sent) []byte {
	event := s.event
	event.EventID = cmp.Or(event.EventID, strconv.FormatInt(at.UnixMicro(), 10)+"1")
	event.OrderID = cmp.Or(s.of, event.OrderID, event.EventID+"2")
	event.SubscriptionID = event.EventID + "3"
	one.EventID = event.EventID
	body := samples.Read(s.sample, event)
	if bytes.Contains(body, []byte(event.OrderID)) {
		one.OrderID, one.CustomerID = event.OrderID, event.CustomerID
		if !slices.Contains(takesBack, s.sample) {
			refund := "send paynow --sample " + samples.Refund + " --of " + event.OrderID
			if event.CustomerID != "" {
				refund += " --customer " + event.CustomerID
			}
			one.next = []string{refund}
		}
	}
	return body
}

func (p *program) printReply(r reply, many bool) {
	about := fmt.Sprintf("event %s  queue %s  message %s  key %s", cmp.Or(r.EventID, "-"), cmp.Or(r.Queue, r.Reason, "-"), cmp.Or(r.MessageID, "-"), cmp.Or(r.OrderingKey, "-"))
	if r.Code != "" {
		about = r.Code + ": " + r.Detail
	}
	if many {
		p.printf("%d  %s%s\n", r.Status, about, violations(r, "; "))
		return
	}
	p.printf("%d %s\n  %s%s\n", r.Status, http.StatusText(r.Status), about, own(violations(r, "\n    ")))
}

func violations(r reply, separator string) (text string) {
	for _, v := range r.Violations {
		text += separator + audit.Escape(v.Path+": "+v.Rule)
	}
	return text
}

// readFile reads a file that the person names, - for standard input; without a name there is nothing to read.
func readFile(name string, stdin io.Reader) (data []byte, err error) {
	switch name {
	case "":
		return nil, nil
	case "-":
		data, err = io.ReadAll(stdin)
	default:
		data, err = os.ReadFile(filepath.Clean(name))
	}
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return data, nil
}
