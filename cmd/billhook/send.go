package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/catalog"
	"billhook/internal/devstack"
	"billhook/internal/env"
	"billhook/internal/serve"
	"billhook/internal/signature"
	"billhook/internal/webhook/samples"
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

// targetsOf has the stand-in serve every target, and reads what signs as secretsOf does. A
// target's URL is not read: samples do not go to a real service.
func targetsOf(c *catalog.Catalog, getenv func(string) string) map[string]devstack.Place {
	places := map[string]devstack.Place{}
	for name, target := range c.Targets {
		secrets := append(target.Secrets(func(variable string) []string { return env.Secret(getenv(variable)).List() }), devSecret)
		places[name] = devstack.Place{Secret: secrets[0]}
	}
	return places
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
}

// post signs a body as the source would at the given time, and posts it.
func post(ctx context.Context, base string, source catalog.Source, secret string, body []byte, at time.Time) (reply, error) {
	status, answer, err := signed{base + "/webhooks/" + source.Name, source.Scheme, secret}.post(ctx, body, at)
	if err != nil {
		return reply{}, err
	}
	return readReply(status, answer)
}

// signed is an address that takes signed requests.
type signed struct {
	url    string
	scheme catalog.Scheme
	secret string
}

// post signs a body at the given time, and posts it.
func (s signed) post(ctx context.Context, body []byte, at time.Time) (status int, answer []byte, err error) {
	signer, err := signature.NewSigner(signature.Scheme(s.scheme), s.secret)
	if err != nil {
		return 0, nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("send: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	for name, value := range signer.Sign(strconv.FormatInt(at.UnixNano(), 10), body, at) {
		request.Header.Set(name, value)
	}
	status, answer, err = exchange(&http.Client{Timeout: 30 * time.Second}, request)
	if err != nil {
		return 0, nil, fmt.Errorf("send: %w", err)
	}
	return status, answer, nil
}

func readReply(status int, answer []byte) (reply, error) {
	var r reply
	if err := json.Unmarshal(answer, &r); err != nil {
		return reply{}, fmt.Errorf("send: the answer to it (%d) is not JSON", status)
	}
	r.Status = status
	return r, nil
}

func (p *program) sendCommand() *cobra.Command {
	var file, base, sample string
	command := &cobra.Command{
		Use:   "send <source>",
		Short: "Sign a webhook as its source would and post it; without -f a sample under new ids",
		Long: "The secret is the first of the source's variable (such as WEBHOOK_SECRET_PAYNOW), else the public one that\n" +
			"`billhook dev` accepts.",
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			c, err := p.catalog()
			if err != nil {
				return err
			}
			source, ok := c.Sources[args[0]]
			if !ok {
				return errors.New("the catalog has no source of that name")
			}
			now := time.Now()
			var body []byte
			switch {
			case file == "-":
				body, err = io.ReadAll(command.InOrStdin())
			case file != "":
				body, err = os.ReadFile(file) //nolint:gosec // the person names the file
			case source.Scheme != catalog.SchemePayNow:
				return errors.New("there is no sample for this source; name a file with -f")
			default:
				id := strconv.FormatInt(now.UnixNano()/1000, 10)
				if !slices.Contains(samples.Names(), sample) {
					return fmt.Errorf("there is no sample of that name, only %s", strings.Join(samples.Names(), ", "))
				}
				body = samples.Read(sample, samples.Event{EventID: id + "1", OrderID: id + "2", SubscriptionID: id + "3"})
			}
			if err != nil {
				return fmt.Errorf("send: %w", err)
			}
			answer, err := post(command.Context(), base, source, secretsOf(c, p.getenv)[source.Name][0], body, now)
			if err != nil {
				return err
			}
			p.printf("%d %s\n", answer.Status, http.StatusText(answer.Status))
			if answer.Code != "" {
				p.printf("  %s: %s\n", answer.Code, answer.Detail)
				for _, v := range answer.Violations {
					p.printf("    %s: %s\n", v.Path, v.Rule)
				}
			} else {
				p.printf("  event %s  queue %s  message %s  key %s %s\n", answer.EventID, answer.Queue, answer.MessageID, answer.OrderingKey, answer.Reason)
			}
			if err := p.printJSON(answer); err != nil {
				return err
			}
			if answer.Status >= http.StatusBadRequest {
				return fmt.Errorf("refused with %d", answer.Status)
			}
			return nil
		},
	}
	command.Flags().StringVarP(&file, "file", "f", "", "the body to send, - for standard input")
	command.Flags().StringVar(&sample, "sample", samples.OrderCompleted, "which sample to send without -f: "+strings.Join(samples.Names(), ", "))
	command.Flags().StringVar(&base, "webhook", "http://127.0.0.1:8080", "the webhook service's address")
	return command
}
